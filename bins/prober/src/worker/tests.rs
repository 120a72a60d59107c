//! Mirrors the kubelet's worker tests by behaviour: initial delay, thresholds,
//! on-hold, termination, and the rules for restarts of this process.

use super::ProbeResult::{Failure, Success, Unknown};
use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Long enough after the start of the process that nothing is spread.
const LATER: Moment = Duration::from_secs(1000);

fn timing() -> Timing {
    Timing {
        initial_delay: Duration::ZERO,
        period: seconds(10),
        timeout: seconds(1),
        success_threshold: 1,
        failure_threshold: 1,
    }
}

/// Of a container that has run for longer than a period.
fn worker(kind: Kind, timing: Timing) -> Worker {
    let mut worker = Worker::new(kind, timing, seconds(100), None, LATER);
    worker.allow(true, 0.0, LATER);
    worker
}

fn success() -> Outcome {
    Outcome::Success(String::new())
}

fn failure() -> Outcome {
    Outcome::Failure("refused".to_owned())
}

/// Makes the next try end with `outcome`; returns whether the verdict changed.
fn probe(worker: &mut Worker, outcome: Outcome) -> bool {
    let now = worker.due().expect("a try is planned");
    assert!(worker.begin(Attempt(1), now));
    worker.finish(Attempt(1), outcome, now)
}

fn seeded(kind: Kind, result: ProbeResult) -> Worker {
    let seed = Verdict {
        result,
        message: "seed".to_owned(),
    };
    let mut worker = Worker::new(kind, timing(), seconds(100), Some(seed), LATER);
    worker.allow(true, 0.0, LATER);
    worker
}

#[test]
fn before_the_first_try_a_container_is_alive_not_ready_and_not_known_to_have_started() {
    for (kind, result) in [
        (Kind::Liveness, Success),
        (Kind::Readiness, Failure),
        (Kind::Startup, Unknown),
    ] {
        let worker = worker(kind, timing());
        assert_eq!(worker.verdict().result, result);
        assert_eq!(worker.verdict().message, "");
    }
}

#[test]
fn the_initial_delay_counts_from_the_start_of_the_container() {
    let delayed = Timing {
        initial_delay: seconds(30),
        ..timing()
    };
    for (age, due) in [
        (0, LATER + seconds(30)),
        (10, LATER + seconds(20)),
        (30, LATER),
        (500, LATER),
    ] {
        let mut worker = Worker::new(Kind::Liveness, delayed, seconds(age), None, LATER);
        assert_eq!(worker.due(), None, "not allowed yet");
        worker.allow(true, 0.0, LATER);
        assert_eq!(worker.due(), Some(due), "{age} s old");
        assert!(!worker.begin(Attempt(1), due - Duration::from_nanos(1)));
        assert!(worker.begin(Attempt(1), due));
    }
}

#[test]
fn nothing_that_a_container_does_in_its_first_period_kills_it() {
    for (kind, age, first, failed) in [
        (Kind::Liveness, 0, 10, 10),
        (Kind::Liveness, 4, 6, 6),
        // After a restart of this process.
        (Kind::Liveness, 25, 0, 0),
        // One that has started already is told at once.
        (Kind::Startup, 0, 0, 10),
        (Kind::Startup, 25, 0, 0),
        (Kind::Readiness, 0, 0, 0),
    ] {
        let mut worker = Worker::new(kind, timing(), seconds(age), None, LATER);
        worker.allow(true, 0.0, LATER);
        assert_eq!(worker.due(), Some(LATER + seconds(first)), "{kind:?} {age}");
        let mut last = LATER;
        while worker.verdict().result != Failure || worker.verdict().message.is_empty() {
            last = worker.due().unwrap();
            probe(&mut worker, failure());
        }
        assert_eq!(last, LATER + seconds(failed), "{kind:?} {age}");
    }
}

#[test]
fn the_first_try_is_spread_over_a_period_only_shortly_after_the_start() {
    for (now, spread, wait) in [
        (seconds(0), 0.0, seconds(0)),
        (seconds(0), 0.5, seconds(5)),
        (seconds(9), 0.9, seconds(9)),
        (seconds(10), 0.9, seconds(0)),
        (LATER, 0.5, seconds(0)),
    ] {
        let mut worker = Worker::new(Kind::Readiness, timing(), seconds(100), None, now);
        worker.allow(true, spread, now);
        assert_eq!(worker.due(), Some(now + wait), "at {now:?}");
    }
}

#[test]
fn tries_follow_each_other_by_the_period_whatever_they_take() {
    for (took, next) in [(0, 10), (1, 10), (9, 10), (10, 10), (11, 20), (35, 40)] {
        let mut worker = worker(Kind::Readiness, timing());
        assert!(worker.begin(Attempt(1), LATER));
        assert_eq!(worker.due(), None, "one try at a time");
        worker.finish(Attempt(1), failure(), LATER + seconds(took));
        assert_eq!(worker.due(), Some(LATER + seconds(next)), "took {took} s");
    }
}

#[test]
fn a_late_begin_does_not_shift_the_ticks() {
    let mut worker = worker(Kind::Readiness, timing());
    let late = LATER + seconds(4);
    assert!(worker.begin(Attempt(1), late));
    worker.finish(Attempt(1), success(), late + seconds(1));
    assert_eq!(worker.due(), Some(LATER + seconds(10)));
}

#[test]
fn it_fails_only_after_as_many_failures_in_a_row_as_the_threshold() {
    for kind in [Kind::Liveness, Kind::Readiness, Kind::Startup] {
        let timing = Timing {
            failure_threshold: 3,
            ..timing()
        };
        let mut worker = worker(kind, timing);
        if kind != Kind::Startup {
            probe(&mut worker, success());
        }
        let before = worker.verdict().clone();
        assert!(!probe(&mut worker, failure()));
        assert!(!probe(&mut worker, failure()));
        assert_eq!(*worker.verdict(), before);
        assert!(probe(&mut worker, failure()));
        assert_eq!(worker.verdict().result, Failure);
        assert_eq!(worker.verdict().message, "refused");
    }
}

#[test]
fn a_success_in_between_starts_the_count_again() {
    let timing = Timing {
        failure_threshold: 2,
        ..timing()
    };
    let mut worker = worker(Kind::Liveness, timing);
    for _ in 0..5 {
        assert!(!probe(&mut worker, failure()));
        assert!(!probe(&mut worker, success()));
    }
    assert_eq!(worker.verdict().result, Success);
}

#[test]
fn it_succeeds_only_after_as_many_successes_in_a_row_as_the_threshold() {
    let timing = Timing {
        success_threshold: 3,
        ..timing()
    };
    let mut worker = worker(Kind::Readiness, timing);
    probe(&mut worker, success());
    probe(&mut worker, success());
    probe(&mut worker, failure());
    assert_eq!(worker.verdict().result, Failure);
    assert!(!probe(&mut worker, success()));
    assert!(!probe(&mut worker, success()));
    assert!(probe(&mut worker, success()));
    assert_eq!(worker.verdict().result, Success);
}

#[test]
fn a_try_that_could_not_be_made_changes_nothing_not_even_a_streak() {
    let timing = Timing {
        failure_threshold: 2,
        ..timing()
    };
    let mut worker = worker(Kind::Liveness, timing);
    assert!(!probe(&mut worker, failure()));
    assert!(!probe(&mut worker, Outcome::Error("no".to_owned())));
    assert!(probe(&mut worker, failure()), "the second failure");
}

#[test]
fn after_a_liveness_or_startup_failure_it_is_on_hold() {
    for kind in [Kind::Liveness, Kind::Startup] {
        let mut worker = worker(kind, timing());
        assert!(probe(&mut worker, failure()));
        assert_eq!(worker.due(), None);
        worker.allow(false, 0.0, LATER);
        worker.allow(true, 0.0, LATER);
        assert_eq!(worker.due(), None, "only a new instance ends it");
        assert!(!worker.terminate());
        assert_eq!(worker.verdict().result, Failure);
    }
    let mut readiness = worker(Kind::Readiness, timing());
    probe(&mut readiness, failure());
    assert!(readiness.due().is_some());
}

#[test]
fn a_startup_probe_stops_once_it_succeeded() {
    let mut worker = worker(Kind::Startup, timing());
    assert!(probe(&mut worker, success()));
    assert_eq!(worker.due(), None);
    worker.allow(true, 0.0, LATER);
    assert_eq!(worker.due(), None);
}

#[test]
fn termination_stops_liveness_and_startup_with_success_and_leaves_readiness() {
    let mut liveness = worker(Kind::Liveness, timing());
    assert!(!liveness.terminate(), "it was a success before");
    assert_eq!(liveness.due(), None);
    let mut startup = worker(Kind::Startup, timing());
    assert!(startup.terminate());
    assert_eq!(startup.verdict().result, Success);
    let mut readiness = worker(Kind::Readiness, timing());
    assert!(!readiness.terminate());
    assert!(readiness.due().is_some());
    assert!(probe(&mut readiness, success()));
}

#[test]
fn a_try_that_ends_after_a_pause_or_termination_does_not_count() {
    let mut paused = worker(Kind::Liveness, timing());
    assert!(paused.begin(Attempt(7), LATER));
    paused.allow(false, 0.0, LATER);
    paused.allow(true, 0.0, LATER);
    assert!(!paused.finish(Attempt(7), failure(), LATER));
    assert!(paused.begin(Attempt(8), LATER));
    assert!(!paused.finish(Attempt(7), failure(), LATER));
    assert!(paused.finish(Attempt(8), failure(), LATER));

    let mut terminated = worker(Kind::Liveness, timing());
    assert!(terminated.begin(Attempt(7), LATER));
    terminated.terminate();
    assert!(!terminated.finish(Attempt(7), failure(), LATER));
    assert_eq!(terminated.verdict().result, Success);
}

#[test]
fn a_pause_does_not_shift_the_ticks() {
    for (paused, allowed, next) in [(1, 2, 10), (9, 10, 10), (1, 11, 20), (1, 95, 100)] {
        let mut worker = worker(Kind::Readiness, timing());
        probe(&mut worker, success());
        worker.allow(false, 0.0, LATER + seconds(paused));
        worker.allow(true, 0.5, LATER + seconds(allowed));
        assert_eq!(worker.due(), Some(LATER + seconds(next)), "{allowed}");
    }
    let mut probing = worker(Kind::Readiness, timing());
    assert!(probing.begin(Attempt(1), LATER));
    probing.allow(false, 0.0, LATER + seconds(1));
    probing.allow(true, 0.0, LATER + seconds(2));
    assert_eq!(probing.due(), Some(LATER + seconds(10)));
}

#[test]
fn a_pause_keeps_the_verdict_and_forgets_the_streak() {
    let timing = Timing {
        failure_threshold: 2,
        ..timing()
    };
    let mut worker = worker(Kind::Readiness, timing);
    probe(&mut worker, success());
    probe(&mut worker, failure());
    worker.allow(false, 0.0, LATER);
    assert_eq!(worker.due(), None);
    worker.allow(true, 0.0, LATER);
    assert_eq!(worker.verdict().result, Success);
    assert!(!probe(&mut worker, failure()));
}

#[test]
fn a_restart_keeps_the_verdict_and_starts_the_counts_again() {
    let mut readiness = seeded(Kind::Readiness, Success);
    assert_eq!(readiness.verdict().result, Success);
    assert!(
        !probe(&mut readiness, success()),
        "nothing new: {readiness:?}"
    );

    let liveness = seeded(Kind::Liveness, Failure);
    assert_eq!(liveness.due(), None, "still on hold");
    assert_eq!(liveness.verdict().result, Failure);

    let startup = seeded(Kind::Startup, Success);
    assert_eq!(startup.due(), None, "a startup success is remembered");

    let unknown = seeded(Kind::Startup, Unknown);
    assert!(unknown.due().is_some());
    assert_eq!(*unknown.verdict(), Verdict::initial(Kind::Startup));
}

#[test]
fn only_news_are_told() {
    let mut worker = worker(Kind::Readiness, timing());
    assert!(probe(&mut worker, failure()), "the first reason is news");
    let other = Outcome::Failure("another reason".to_owned());
    assert!(!probe(&mut worker, other));
    assert_eq!(worker.verdict().message, "refused");
    assert!(probe(&mut worker, success()));
    assert!(!probe(&mut worker, success()));
    assert!(probe(&mut worker, failure()));
}
