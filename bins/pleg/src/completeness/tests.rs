//! Tables of what proves the runtime's events complete, and what does not.

use super::*;
use Step::{Changed, Events, OneChanged, Pass, Quiet, Seconds, Told, ToldOfAny};

fn at(millis: u64) -> Moment {
    Duration::from_millis(millis)
}

/// What happens to the node, in order.
#[derive(Clone, Copy)]
enum Step {
    /// The runtime sends events, or none.
    Events(bool),
    /// An event of pod `a`.
    Told,
    /// An event of nobody knows which pod.
    ToldOfAny,
    /// So many milliseconds pass.
    Pass(u64),
    /// A list of all, in no time, that finds nothing.
    Quiet,
    /// One that finds a change of pod `a`.
    Changed,
    /// A list of pod `a` that finds a change.
    OneChanged,
    /// So many seconds, with a list at the end of each that finds nothing.
    Seconds(u32),
}

fn after(steps: &[Step]) -> Completeness {
    let mut completeness = Completeness::new();
    let mut now = Moment::ZERO;
    let none = BTreeSet::new();
    let changed = ["a".to_owned()].into();
    for step in steps {
        match *step {
            Events(available) => completeness.events(available),
            Told => completeness.told("a", now),
            ToldOfAny => completeness.told_of_any(now),
            Pass(millis) => now += at(millis),
            Quiet => completeness.relisted_all(now, now, &none),
            Changed => completeness.relisted_all(now, now, &changed),
            OneChanged => completeness.relisted_one(true),
            Seconds(seconds) => {
                for _ in 0..seconds {
                    now += SHORT;
                    completeness.relisted_all(now, now, &none);
                }
            }
        }
    }
    completeness
}

/// What proves the events, and leaves the node quiet.
const PROOF: [Step; 4] = [Events(true), Told, Changed, Seconds(RELISTS_TO_PROVE)];

#[test]
fn only_a_told_change_and_relists_that_find_nothing_else_prove_the_events() {
    let almost = Seconds(RELISTS_TO_PROVE - 2);
    let cases: [(&str, &[Step], Duration); 9] = [
        ("nothing is known", &[Seconds(100)], SHORT),
        (
            "no event ever told anything",
            &[Events(true), Seconds(100)],
            SHORT,
        ),
        (
            "an event that no change followed",
            &[Events(true), Told, Seconds(100)],
            SHORT,
        ),
        (
            "what was told without its pod",
            &[Events(true), ToldOfAny, Changed, Seconds(100)],
            SHORT,
        ),
        (
            "without events",
            &[Told, Changed, OneChanged, Seconds(100)],
            SHORT,
        ),
        (
            "too few relists",
            &[Events(true), Told, Changed, almost],
            SHORT,
        ),
        ("proven", &PROOF, LONG),
        (
            "a change that the relist for the event found",
            &[Events(true), Told, OneChanged, Seconds(RELISTS_TO_PROVE)],
            LONG,
        ),
        (
            "a change told when the stream was another",
            &[
                Events(true),
                Told,
                Changed,
                Events(false),
                Events(true),
                Seconds(RELISTS_TO_PROVE),
            ],
            LONG,
        ),
    ];
    for (case, steps, interval) in cases {
        assert_eq!(after(steps).interval(), interval, "{case}");
    }
}

#[test]
fn what_happens_then_takes_the_proof_away_or_does_not() {
    let relists = Seconds(RELISTS_TO_PROVE);
    let cases: [(&str, &[Step], bool); 9] = [
        ("nothing", &[Seconds(100)], true),
        ("a change that no event told", &[Changed, Seconds(1)], false),
        (
            "found again right after: the event may come",
            &[Changed, Pass(500), Quiet],
            true,
        ),
        (
            "the event comes after the list",
            &[Changed, Pass(500), Told, Seconds(9)],
            true,
        ),
        (
            "it comes too late",
            &[Changed, Seconds(1), Told, relists],
            false,
        ),
        (
            "it came before the list",
            &[Told, Pass(1900), Changed, Seconds(9)],
            true,
        ),
        (
            "it came for something else before",
            &[Told, Seconds(3), Changed, Seconds(1)],
            false,
        ),
        ("hints were lost", &[ToldOfAny, Changed, Seconds(9)], true),
        ("the stream broke", &[Events(false), Seconds(100)], false),
    ];
    for (case, steps, proven) in cases {
        let steps: Vec<Step> = PROOF.iter().chain(steps).copied().collect();
        let completeness = after(&steps);
        assert_eq!(completeness.state == State::Proven, proven, "{case}");
    }
}

#[test]
fn what_was_not_told_has_to_be_proven_anew() {
    let untold: Vec<Step> = PROOF.into_iter().chain([Changed, Seconds(50)]).collect();
    let completeness = after(&untold);
    assert_eq!(completeness.interval(), SHORT);
    assert_eq!(
        completeness.describe(),
        "relist interval 1 s: no event told a change of pod a"
    );
    let again: Vec<Step> = untold
        .into_iter()
        .chain([Told, Changed, Seconds(3)])
        .collect();
    let completeness = after(&again);
    assert_eq!(completeness.interval(), LONG);
    assert_eq!(
        completeness.describe(),
        "relist interval 10 s: events of the runtime tell every change"
    );
}

#[test]
fn an_event_keeps_the_interval_short_until_its_change_must_show() {
    let told: Vec<Step> = PROOF.into_iter().chain([Told]).collect();
    assert_eq!(after(&told).interval(), SHORT);
    let later: Vec<Step> = told.into_iter().chain([Seconds(3)]).collect();
    assert_eq!(after(&later).interval(), LONG);
}

#[test]
fn what_is_remembered_of_events_is_bounded() {
    let mut completeness = after(&PROOF);
    for number in 0..2 * MAX_HINTS {
        completeness.told(&number.to_string(), at(100_000));
    }
    assert_eq!(completeness.told.len(), MAX_HINTS);
    assert!(completeness.told_of_any.is_some());
    let mut completeness = after(&PROOF);
    let many = (0..2 * MAX_HINTS)
        .map(|number| number.to_string())
        .collect();
    completeness.relisted_all(at(100_000), at(100_000), &many);
    assert_eq!(completeness.untold.len(), MAX_HINTS);
}
