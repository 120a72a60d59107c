//! `timeline`: what happened to one pod, drawn over time.

mod chart;
mod place;
mod story;
mod svg;
#[cfg(test)]
mod tests;
mod text;

use std::process::ExitCode;

use bulkhead_api::v1;
use clock::{UnixNanos, WallClock};
use pod::PodExt as _;

use crate::arguments::TimelineOptions;
use crate::connection::{Connection, EXTRA_DEADLINE};
use crate::escape::plain;
use crate::events;
use crate::failure::Failure;
use crate::output::{Output, note};
use crate::pod_list::{self, ListedPod, pick};
use crate::pod_row::status_word;
use crate::terminal;
use crate::words::{age, timestamp};
use chart::Chart;
use text::Look;

/// Columns where there is no terminal.
const COLUMNS: u16 = 100;

/// Columns that are used of a wide terminal.
const MAX_COLUMNS: u16 = 200;

/// Columns without which nothing can be seen.
const MIN_COLUMNS: u16 = 40;

/// Prints a timeline.
pub(crate) async fn timeline(
    connection: &Connection,
    options: &TimelineOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let listed = pick(&pod_list::all(connection).await?, &options.pod)?.read()?;
    let events = events::recent(connection, EXTRA_DEADLINE).await;
    let mut events = events.unwrap_or_else(|failure| {
        let why = telemetry::chain(&failure);
        note(&format!("what only events tell is not shown: {why}"));
        Vec::new()
    });
    let uid = listed.pod.uid();
    events.retain(|event| event.pod.as_ref().is_some_and(|pod| pod.uid == uid));
    let now = WallClock::system().now();
    if options.svg {
        output.text(&as_svg(&listed, &events, now))?;
        return Ok(ExitCode::SUCCESS);
    }
    let columns = options.width.unwrap_or_else(|| {
        let terminal = terminal::size().filter(|_| output.terminal);
        terminal.map_or(COLUMNS, |(columns, _)| {
            columns.clamp(MIN_COLUMNS, MAX_COLUMNS)
        })
    });
    let look = Look {
        width: usize::from(columns),
        colours: output.colours,
        ascii: !output.terminal,
    };
    output.text(&as_text(&listed, &events, now, look))?;
    Ok(ExitCode::SUCCESS)
}

fn chart_of(listed: &ListedPod, events: &[v1::Event], now: UnixNanos) -> Option<Chart> {
    let status = listed.pod.status.clone().unwrap_or_default();
    Chart::new(story::lanes(&listed.pod, &status, events), now)
}

/// What the picture is of.
fn title(listed: &ListedPod, chart: Option<&Chart>, now: UnixNanos) -> String {
    let status = listed.pod.status.clone().unwrap_or_default();
    let word = status_word(&listed.pod, &status);
    let since = chart.map(|chart| {
        let ago = age(now.since(chart.begin));
        format!(", since {} ({ago} ago)", timestamp(chart.begin))
    });
    let since = since.unwrap_or_else(|| ", nothing has happened to it yet".to_owned());
    plain(&format!("{}: {word}{since}", listed.full_name()))
}

fn as_text(listed: &ListedPod, events: &[v1::Event], now: UnixNanos, look: Look) -> String {
    let chart = chart_of(listed, events, now);
    let mut text = title(listed, chart.as_ref(), now) + "\n";
    if let Some(chart) = &chart {
        text += "\n";
        text += &text::render(chart, look);
    }
    text
}

fn as_svg(listed: &ListedPod, events: &[v1::Event], now: UnixNanos) -> String {
    let chart = chart_of(listed, events, now);
    let title = title(listed, chart.as_ref(), now);
    // Of a pod to which nothing has happened there is the title alone.
    let empty = Chart {
        begin: now,
        end: now,
        goes_on: false,
        lanes: Vec::new(),
    };
    svg::render(chart.as_ref().unwrap_or(&empty), &title)
}
