//! Where everything of a chart stands: columns of a given width. Pure.
//!
//! A pod comes up in a second and then runs for days. On an axis to scale the first
//! second would be nothing, so the time between two changes takes room by the logarithm
//! of its length: what took longer is never drawn narrower, and the labels tell how long
//! it was.

use std::collections::BTreeSet;

use clock::UnixNanos;

use super::chart::{Chart, Kind, length};
use crate::table::Tone;

/// A length of time that gets one part of the room, in nanoseconds: 100 ms.
const PART: f64 = 1e8;

/// A chart in columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) ticks: Vec<Tick>,
    /// In the order of the chart's lanes.
    pub(super) lanes: Vec<PlacedLane>,
}

/// A time on the axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tick {
    /// The column that it stands for.
    pub(super) at: usize,
    /// Where its label begins.
    pub(super) label_at: usize,
    pub(super) label: String,
}

/// A lane in columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlacedLane {
    /// In the order of the lane's spans.
    pub(super) bars: Vec<Bar>,
    /// In the order of the lane's marks.
    pub(super) points: Vec<Point>,
}

/// A span: columns from `from` to before `to`, one at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) kind: Kind,
    pub(super) goes_on: bool,
}

/// A mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) at: usize,
    pub(super) tone: Tone,
}

/// Places a chart in so many columns, of which a letter of a label takes `letter`.
pub(super) fn place(chart: &Chart, width: usize, letter: usize) -> Placed {
    let width = width.max(1);
    let axis = Axis::of(chart, width);
    let lane = |lane: &super::chart::Lane| PlacedLane {
        bars: lane
            .spans
            .iter()
            .map(|span| {
                let from = axis.column(span.begin).min(width - 1);
                let to = axis.column(chart.end_of(span)).max(from + 1);
                Bar {
                    from,
                    to,
                    kind: span.kind,
                    goes_on: span.end.is_none(),
                }
            })
            .collect(),
        points: lane
            .marks
            .iter()
            .map(|mark| Point {
                at: axis.column(mark.at).min(width - 1),
                tone: mark.tone,
            })
            .collect(),
    };
    Placed {
        ticks: ticks(chart, &axis, width, letter),
        lanes: chart.lanes.iter().map(lane).collect(),
    }
}

/// Instants at which something changes, and their columns.
struct Axis(Vec<(UnixNanos, usize)>);

impl Axis {
    fn of(chart: &Chart, width: usize) -> Axis {
        let mut instants = BTreeSet::from([chart.begin, chart.end]);
        for lane in &chart.lanes {
            for span in &lane.spans {
                instants.extend([span.begin, chart.end_of(span)]);
            }
            instants.extend(lane.marks.iter().map(|mark| mark.at));
        }
        let instants: Vec<UnixNanos> = instants.into_iter().collect();
        let mut room = 0.0;
        let mut positions = vec![0.0];
        for pair in instants.windows(2) {
            let nanos = pair[1].since(pair[0]).as_nanos() as f64;
            room += (1.0 + nanos / PART).log2();
            positions.push(room);
        }
        let column = |position: f64| match room > 0.0 {
            // Within 0..=width: the position is at most the room.
            true => (position / room * width as f64).round() as usize,
            false => 0,
        };
        let columns = positions.into_iter().map(column);
        Axis(instants.into_iter().zip(columns).collect())
    }

    /// The column of an instant at which something changes.
    fn column(&self, at: UnixNanos) -> usize {
        let index = self.0.partition_point(|(instant, _)| *instant < at);
        self.0.get(index).or(self.0.last()).map_or(0, |it| it.1)
    }
}

/// Labels for the begin, for the end, and between them for as many begins and ends of
/// spans as there is room for.
fn ticks(chart: &Chart, axis: &Axis, width: usize, letter: usize) -> Vec<Tick> {
    let room = |label: &str| label.chars().count() * letter;
    let end = match chart.goes_on {
        true => "now".to_owned(),
        false => chart.offset(chart.end),
    };
    let end_at = width.saturating_sub(room(&end));
    let mut ticks = vec![Tick {
        at: 0,
        label_at: 0,
        label: "0s".to_owned(),
    }];
    let mut free = room("0s") + 2 * letter;
    let spans = chart.lanes.iter().flat_map(|lane| &lane.spans);
    let instants: BTreeSet<UnixNanos> = spans
        .flat_map(|span| [span.begin, chart.end_of(span)])
        .filter(|at| *at > chart.begin && *at < chart.end)
        .collect();
    for instant in instants {
        let label = format!("+{}", length(instant.since(chart.begin)));
        let at = axis.column(instant);
        let after = at + room(&label) + 2 * letter;
        if at >= free && after <= end_at {
            ticks.push(Tick {
                at,
                label_at: at,
                label,
            });
            free = after;
        }
    }
    if end_at >= free && chart.end > chart.begin {
        ticks.push(Tick {
            at: width - 1,
            label_at: end_at,
            label: end,
        });
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::super::chart::{Lane, Mark, Span};
    use super::*;

    fn millis(millis: i64) -> UnixNanos {
        UnixNanos(millis * 1_000_000)
    }

    fn lane(spans: &[(i64, Option<i64>)], marks: &[i64]) -> Lane {
        let span = |&(begin, end): &(i64, Option<i64>)| Span {
            begin: millis(begin),
            end: end.map(millis),
            kind: Kind::Running,
            title: String::new(),
        };
        let mark = |&at: &i64| Mark {
            at: millis(at),
            tone: Tone::Bad,
            title: String::new(),
        };
        Lane {
            name: "l".to_owned(),
            spans: spans.iter().map(span).collect(),
            marks: marks.iter().map(mark).collect(),
        }
    }

    fn bars(lanes: Vec<Lane>, now: i64, width: usize) -> Vec<Vec<(usize, usize)>> {
        let chart = Chart::new(lanes, millis(now)).unwrap();
        let placed = place(&chart, width, 1);
        let of_lane = |lane: PlacedLane| lane.bars.iter().map(|bar| (bar.from, bar.to)).collect();
        placed.lanes.into_iter().map(of_lane).collect()
    }

    #[test]
    fn spans_stand_where_their_times_are() {
        // Equal lengths get equal room.
        assert_eq!(
            bars(
                vec![lane(&[(0, Some(100)), (100, Some(200))], &[])],
                500,
                40
            ),
            [[(0, 20), (20, 40)]]
        );
        // Ten times as long is wider, not ten times as wide: 1 part and 3.46 parts.
        assert_eq!(
            bars(vec![lane(&[(0, Some(100)), (100, None)], &[])], 1_100, 40),
            [[(0, 9), (9, 40)]]
        );
        // Two lanes share one axis.
        assert_eq!(
            bars(
                vec![lane(&[(0, Some(200))], &[]), lane(&[(100, None)], &[])],
                200,
                40
            ),
            [[(0, 40)], [(20, 40)]]
        );
    }

    #[test]
    fn a_span_without_length_is_seen_too() {
        assert_eq!(bars(vec![lane(&[(5, Some(5))], &[])], 5, 40), [[(0, 1)]]);
        assert_eq!(
            bars(
                vec![lane(&[(0, Some(100)), (100, Some(100))], &[])],
                100,
                40
            ),
            [[(0, 40), (39, 40)]]
        );
    }

    #[test]
    fn nothing_stands_outside_however_narrow_it_is() {
        let spans: Vec<_> = (0..50)
            .map(|number| (number * 7, Some(number * 9)))
            .collect();
        let lanes = vec![
            lane(&spans, &[0, 3, 441, 9_000_000]),
            lane(&[(3, None)], &[]),
        ];
        let chart = Chart::new(lanes, millis(90_000_000)).unwrap();
        for width in [0, 1, 2, 7, 80, 1_000] {
            let placed = place(&chart, width, 1);
            let width = width.max(1);
            for lane in placed.lanes {
                assert!(
                    lane.bars
                        .iter()
                        .all(|bar| bar.from < bar.to && bar.to <= width)
                );
                assert!(lane.points.iter().all(|point| point.at < width));
            }
            assert!(placed.ticks.iter().all(|tick| tick.at < width));
        }
    }

    #[test]
    fn later_never_stands_before_earlier() {
        let marks: Vec<i64> = (0..40).map(|number| number * number * 37).collect();
        let chart = Chart::new(vec![lane(&[(0, None)], &marks)], millis(70_000)).unwrap();
        let points = place(&chart, 60, 1).lanes.remove(0).points;
        assert!(points.is_sorted_by_key(|point| point.at));
    }

    #[test]
    fn labels_do_not_overlap_and_tell_begin_and_end() {
        let spans: Vec<_> = (0..30)
            .map(|number| (number * 500, Some(number * 500 + 400)))
            .collect();
        for (goes_on, last) in [(false, "+14s"), (true, "now")] {
            let mut lanes = vec![lane(&spans, &[])];
            lanes.extend(goes_on.then(|| lane(&[(0, None)], &[])));
            let chart = Chart::new(lanes, millis(60_000)).unwrap();
            let ticks = place(&chart, 80, 1).ticks;
            assert!(ticks.len() > 4, "{ticks:?}");
            assert_eq!(ticks[0].label, "0s");
            assert_eq!(ticks.last().unwrap().label, last);
            for pair in ticks.windows(2) {
                let ends = pair[0].label_at + pair[0].label.len();
                assert!(ends < pair[1].label_at, "{pair:?}");
            }
        }
    }
}
