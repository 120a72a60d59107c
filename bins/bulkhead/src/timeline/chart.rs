//! What a timeline is made of: lanes of spans and marks, as plain values.

use std::time::Duration;

use clock::UnixNanos;

use crate::table::Tone;
use crate::words::age;

/// All lanes, and the time that they cover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chart {
    pub(super) begin: UnixNanos,
    pub(super) end: UnixNanos,
    /// Whether `end` is now, and something goes on.
    pub(super) goes_on: bool,
    pub(super) lanes: Vec<Lane>,
}

/// One row of the picture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) name: String,
    pub(super) spans: Vec<Span>,
    pub(super) marks: Vec<Mark>,
}

/// Something that took time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) begin: UnixNanos,
    /// Absent: it goes on.
    pub(super) end: Option<UnixNanos>,
    pub(super) kind: Kind,
    /// What it is, in words.
    pub(super) title: String,
}

/// Something that happened at one point in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) at: UnixNanos,
    pub(super) tone: Tone,
    /// What it is, in words.
    pub(super) title: String,
}

/// What kind of time a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Something is made that others wait for.
    Preparing,
    /// An image is pulled.
    Pulling,
    /// Nothing is done until a time comes or another has ended.
    Waiting,
    /// It runs, ran as it should, or is ready.
    Running,
    /// It ran and failed, or is not ready.
    Failed,
}

impl Kind {
    /// All of them, as the legend has them.
    pub(super) const ALL: [Kind; 5] = [
        Kind::Preparing,
        Kind::Pulling,
        Kind::Waiting,
        Kind::Running,
        Kind::Failed,
    ];

    /// For the legend.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Preparing => "preparing",
            Kind::Pulling => "pulling",
            Kind::Waiting => "waiting",
            Kind::Running => "running or ready",
            Kind::Failed => "failed or not ready",
        }
    }
}

impl Chart {
    /// A chart of these lanes until now, or until the last of them ended. Lanes without
    /// anything are left out; times to come count as now; what ends before it begins has
    /// no length (the API cuts times to whole seconds). None if nothing is known.
    pub(super) fn new(mut lanes: Vec<Lane>, now: UnixNanos) -> Option<Chart> {
        for lane in &mut lanes {
            for span in &mut lane.spans {
                span.begin = span.begin.min(now);
                span.end = span.end.map(|end| end.min(now).max(span.begin));
            }
            for mark in &mut lane.marks {
                mark.at = mark.at.min(now);
            }
            lane.spans.sort_by_key(|span| span.begin);
            lane.marks.sort_by_key(|mark| mark.at);
        }
        lanes.retain(|lane| !lane.spans.is_empty() || !lane.marks.is_empty());
        let spans = || lanes.iter().flat_map(|lane| &lane.spans);
        let marks = || {
            lanes
                .iter()
                .flat_map(|lane| &lane.marks)
                .map(|mark| mark.at)
        };
        let begin = spans().map(|span| span.begin).chain(marks()).min()?;
        let goes_on = spans().any(|span| span.end.is_none());
        let last = spans().filter_map(|span| span.end).chain(marks()).max();
        let end = last.filter(|_| !goes_on).unwrap_or(now);
        Some(Chart {
            begin,
            end,
            goes_on,
            lanes,
        })
    }

    /// When a span of it ends, or the chart.
    pub(super) fn end_of(&self, span: &Span) -> UnixNanos {
        span.end.unwrap_or(self.end)
    }

    /// A point in time as the time since the begin.
    pub(super) fn offset(&self, at: UnixNanos) -> String {
        format!("+{}", length(at.since(self.begin)))
    }

    /// A span in words: what, from when, and how long.
    pub(super) fn words_of(&self, span: &Span) -> String {
        let took = length(self.end_of(span).since(span.begin));
        match span.end {
            Some(_) => format!("{} ({took})", span.title),
            None => format!("{} ({took} until now)", span.title),
        }
    }
}

/// How long something took: below a second in milliseconds, then as an age.
pub(super) fn length(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0 => "0s".to_owned(),
        1..1_000 => format!("{millis}ms"),
        1_000..10_000 => format!("{}.{}s", millis / 1_000, millis % 1_000 / 100),
        _ => age(duration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn lane(begin: i64, end: Option<i64>) -> Lane {
        let at = |seconds: i64| UnixNanos(seconds * SECOND);
        let span = Span {
            begin: at(begin),
            end: end.map(at),
            kind: Kind::Running,
            title: "runs".to_owned(),
        };
        Lane {
            spans: vec![span],
            ..Lane::default()
        }
    }

    #[test]
    fn a_chart_ends_now_only_while_something_goes_on() {
        let now = UnixNanos(100 * SECOND);
        for (lanes, begin, end, goes_on) in [
            (vec![lane(10, Some(20)), lane(15, Some(30))], 10, 30, false),
            (vec![lane(10, Some(20)), lane(15, None)], 10, 100, true),
            // A clock that was set back, and times that are cut to seconds.
            (vec![lane(50, Some(40))], 50, 50, false),
            (vec![lane(200, Some(300))], 100, 100, false),
        ] {
            let chart = Chart::new(lanes, now).unwrap();
            let told = (chart.begin.0 / SECOND, chart.end.0 / SECOND, chart.goes_on);
            assert_eq!(told, (begin, end, goes_on));
        }
        assert_eq!(Chart::new(vec![Lane::default()], now), None);
    }

    #[test]
    fn lengths_are_told_as_exactly_as_they_matter() {
        for (millis, told) in [
            (0, "0s"),
            (7, "7ms"),
            (999, "999ms"),
            (1_250, "1.2s"),
            (9_999, "9.9s"),
            (10_000, "10s"),
            (200_000, "3m20s"),
        ] {
            assert_eq!(length(Duration::from_millis(millis)), told);
        }
    }
}
