//! A timeline as an SVG file that stands alone. Pure.

use std::fmt::Write as _;

use clock::UnixNanos;

use super::chart::{Chart, Kind, Lane};
use super::place::{PlacedLane, Tick, place};
use crate::escape::plain;
use crate::table::Tone;

/// Units of the bars' part; one is a pixel where nothing is scaled.
const WIDTH: usize = 1_000;
/// Of a letter of the axis' labels.
const LETTER: usize = 8;
const ROW: usize = 26;
const BAR: usize = 16;
/// Above the first lane: title and axis.
const TOP: usize = 64;
/// Below the last lane: the legend.
const BOTTOM: usize = 44;
const MARGIN: usize = 16;
const LETTER_OF_NAME: usize = 8;

/// Colours are the reader's: light or dark, as its system is set.
const STYLE: &str = "\
:root{--ground:#ffffff;--ink:#1f2328;--faint:#d0d7de;--preparing:#8c959f;--pulling:#bf8700;\
--waiting:#c8d1da;--running:#2da44e;--failed:#cf222e}\
@media(prefers-color-scheme:dark){:root{--ground:#0d1117;--ink:#e6edf3;--faint:#30363d;\
--preparing:#6e7681;--pulling:#d29922;--waiting:#484f58;--running:#3fb950;--failed:#f85149}}\
text{font:13px ui-monospace,monospace;fill:var(--ink)}.title{font-size:15px}\
.ground{fill:var(--ground)}.line{stroke:var(--faint)}\
.preparing{fill:var(--preparing)}.pulling{fill:var(--pulling)}.waiting{fill:var(--waiting)}\
.running{fill:var(--running)}.failed{fill:var(--failed)}\
.bad{fill:var(--failed);stroke:var(--ground)}.notable{fill:var(--pulling);stroke:var(--ground)}\
.plain{fill:var(--ink);stroke:var(--ground)}";

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Preparing => "preparing",
        Kind::Pulling => "pulling",
        Kind::Waiting => "waiting",
        Kind::Running => "running",
        Kind::Failed => "failed",
    }
}

/// The whole file.
pub(super) fn render(chart: &Chart, title: &str) -> String {
    let placed = place(chart, WIDTH, LETTER);
    let names = chart.lanes.iter().map(|lane| lane.name.chars().count());
    let left = MARGIN * 2 + names.max().unwrap_or(0) * LETTER_OF_NAME;
    let height = TOP + chart.lanes.len() * ROW;
    let (whole_width, whole_height) = (left + WIDTH + MARGIN, height + BOTTOM);
    let title = escaped(title);
    let mut svg = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {whole_width} {whole_height}\" \
         width=\"{whole_width}\" height=\"{whole_height}\" role=\"img\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"{MARGIN}\" y=\"26\">{title}</text>\n"
    );
    axis(&mut svg, &placed.ticks, left, height);
    for (index, (lane, of_lane)) in chart.lanes.iter().zip(&placed.lanes).enumerate() {
        one_lane(&mut svg, chart, (lane, of_lane), left, TOP + index * ROW);
    }
    legend(&mut svg, left, height + 20);
    svg += "</svg>\n";
    svg
}

// Writing to a string does not fail.

fn axis(svg: &mut String, ticks: &[Tick], left: usize, height: usize) {
    for tick in ticks {
        let x = left + tick.at;
        let _ = writeln!(
            svg,
            "<line class=\"line\" x1=\"{x}\" x2=\"{x}\" y1=\"{}\" y2=\"{height}\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            TOP - 8,
            left + tick.label_at,
            TOP - 12,
            escaped(&tick.label)
        );
    }
}

fn one_lane(
    svg: &mut String,
    chart: &Chart,
    (lane, placed): (&Lane, &PlacedLane),
    left: usize,
    top: usize,
) {
    let title = |at: UnixNanos, words: &str| {
        escaped(&format!("{} {}: {words}", chart.offset(at), lane.name))
    };
    let _ = writeln!(
        svg,
        "<text x=\"{MARGIN}\" y=\"{}\">{}</text>",
        top + BAR,
        escaped(&lane.name)
    );
    for (span, bar) in lane.spans.iter().zip(&placed.bars) {
        let _ = writeln!(
            svg,
            "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{BAR}\" rx=\"2\">\
             <title>{}</title></rect>",
            class(bar.kind),
            left + bar.from,
            top + 3,
            bar.to - bar.from,
            title(span.begin, &chart.words_of(span))
        );
    }
    for (mark, point) in lane.marks.iter().zip(&placed.points) {
        let tone = match point.tone {
            Tone::Bad => "bad",
            Tone::Notable => "notable",
            Tone::Plain | Tone::Good => "plain",
        };
        let _ = writeln!(
            svg,
            "<circle class=\"{tone}\" cx=\"{}\" cy=\"{}\" r=\"5\"><title>{}</title></circle>",
            left + point.at,
            top + 3 + BAR / 2,
            title(mark.at, &mark.title)
        );
    }
}

fn legend(svg: &mut String, left: usize, y: usize) {
    let mut x = left;
    for kind in Kind::ALL {
        let word = kind.word();
        let _ = writeln!(
            svg,
            "<rect class=\"{}\" x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\"/>\
             <text x=\"{}\" y=\"{y}\">{word}</text>",
            class(kind),
            y - 11,
            x + 18
        );
        x += 18 + (word.len() + 3) * LETTER;
    }
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\">axis not to scale</text>");
}

/// Text as XML has it, without what XML cannot have.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in plain(text).chars() {
        match letter {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}
