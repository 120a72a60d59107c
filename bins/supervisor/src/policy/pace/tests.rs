//! Tables and properties of the waits, and what follows from them for a whole node.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use topology::Process;

use super::*;
use crate::policy::{Action, Ending, Event, Fleet, FleetEvent, STOP_ORDER, State};

const CAP: Duration = Duration::from_secs(10);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The waits of a process that serves for so long each time until it crashes.
fn waits(ready_for: impl IntoIterator<Item = u64>) -> Vec<u128> {
    let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
    let mut waits = Vec::new();
    for ready_for in ready_for.into_iter().map(millis) {
        now += ready_for;
        pace.was_ready(ready_for, CAP);
        let wait = pace.crashed(now, CAP, 0.0);
        now += wait;
        waits.push(wait.as_millis());
    }
    waits
}

#[test]
fn the_wait_follows_what_a_crash_says() {
    // How long it was ready before each crash, and the waits after them.
    let table: [(&[u64], &[u128]); 6] = [
        // Soon after each start: doubled.
        (&[0, 999, 0, 500, 0], &[0, 50, 100, 200, 400]),
        // Never soon: none.
        (&[1_000; 4], &[0; 4]),
        // In between: as it was.
        (
            &[0, 0, 0, 0, 0, 0, 7_999, 5_000],
            &[0, 50, 100, 200, 400, 800, 800, 800],
        ),
        // Ten times the last wait: half, each time.
        (
            &[0, 0, 0, 0, 0, 0, 8_000, 4_000, 2_000],
            &[0, 50, 100, 200, 400, 800, 400, 200, 100],
        ),
        // So long that it is halved twice, then until nothing is left.
        (
            &[0, 0, 0, 0, 0, 0, 12_000, 59_000],
            &[0, 50, 100, 200, 400, 800, 200, 0],
        ),
        // A minute is always enough.
        (
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60_000],
            &[0, 50, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 0],
        ),
    ];
    for (ready_for, expected) in table {
        assert_eq!(waits(ready_for.iter().copied()), expected, "{ready_for:?}");
    }
}

/// How often a process is started that fails again and again, so long after it was ready
/// each time, and how much of the time it is away: starts in a minute and percent, once the
/// series is old.
fn comes_to(ready_for: Duration) -> (u32, u128) {
    const MINUTES: u32 = 60;
    let old = Duration::from_secs(600);
    let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
    let (mut starts, mut away, mut all) = (0, Duration::ZERO, Duration::ZERO);
    while now < old + Duration::from_secs(60) * MINUTES {
        let is_old = now >= old;
        now += START + ready_for;
        pace.was_ready(ready_for, CAP);
        let wait = pace.crashed(now, CAP, 0.0);
        now += wait;
        if is_old {
            starts += 1;
            away += START + wait;
            all += START + wait + ready_for;
        }
    }
    let percent = away.as_millis() * 100 / all.as_millis();
    (starts / MINUTES, percent)
}

/// A wait is there so that a process that cannot run does not use up the node. One that is
/// ready for a second each time computes for a small part of that to start, so a wait would
/// save little, and cost what it does in between.
#[test]
fn who_serves_in_between_is_away_little_and_nobody_starts_all_the_time() {
    // Ready for so many ms each time: starts a minute, percent away.
    for (ready_for, expected) in [
        (0, (5, 100)),
        (500, (5, 95)),
        (999, (5, 91)),
        (1_000, (50, 16)),
        (2_000, (27, 9)),
        (10_000, (5, 1)),
        (30_000, (2, 0)),
    ] {
        assert_eq!(comes_to(millis(ready_for)), expected, "{ready_for} ms");
    }
}

#[test]
fn a_long_series_at_the_longest_wait_is_halved_as_any_other() {
    let mut ready_for = vec![0; 100];
    ready_for.push(59_000);
    let mut short = Pace::new();
    for _ in 0..100 {
        short.crashed(Duration::ZERO, millis(4_000), 0.0);
    }
    short.was_ready(millis(40_000), millis(4_000));
    assert_eq!(
        short.crashed(Duration::ZERO, millis(4_000), 0.0),
        millis(3_200)
    );
    // At 10 s it would take 100 s; a minute ends the series before that.
    assert_eq!(waits(ready_for).last(), Some(&10_000));
}

/// What a node under random kills came to.
#[derive(Debug, Default)]
struct Outcome {
    longest_wait: Duration,
    /// Until all processes were ready at the same time again.
    longest_gap: Duration,
}

/// A node whose processes are killed at random, each kill of one of them.
struct Node {
    fleet: Fleet,
    random: SmallRng,
    now: Moment,
    pids: i32,
    ready_at: BTreeMap<Process, Moment>,
    outcome: Outcome,
}

/// From the start of a process until it is ready: more than is measured.
const START: Duration = Duration::from_millis(200);

impl Node {
    fn apply(&mut self, event: FleetEvent) {
        let jitter = self.random.random_range(-1.0..=1.0);
        for (process, action) in self.fleet.step(self.now, event, jitter) {
            assert_eq!(action, Action::Launch, "{process} hangs");
            self.pids += 1;
            self.ready_at.insert(process, self.now + START);
            self.apply(FleetEvent::Of(process, Event::Launched(self.pids)));
        }
    }

    fn of_each(&mut self, what: impl Fn(&Self, Process, State) -> Option<Event>) {
        for process in STOP_ORDER {
            let state = self.fleet.machine(process).map(|machine| machine.state());
            if let Some(event) = state.and_then(|state| what(self, process, state)) {
                self.apply(FleetEvent::Of(process, event));
            }
        }
    }

    fn advance(&mut self) {
        self.now += millis(10);
        self.of_each(|node, process, state| match state {
            State::Ready { .. } => Some(Event::Beat),
            State::Starting { .. } => (node.ready_at[&process] <= node.now).then_some(Event::Ready),
            _ => None,
        });
        self.apply(FleetEvent::Tick);
    }

    fn kill_one(&mut self) {
        let victim = STOP_ORDER[self.random.random_range(0..STOP_ORDER.len())];
        self.of_each(|_node, process, state| {
            let runs = matches!(state, State::Starting { .. } | State::Ready { .. });
            (process == victim && runs).then_some(Event::Ended(Ending::Signal(9)))
        });
    }

    fn under_kills(every: Duration, seed: u64) -> Outcome {
        let mut node = Node {
            fleet: Fleet::new(|_| true),
            random: SmallRng::seed_from_u64(seed),
            now: Duration::ZERO,
            pids: 0,
            ready_at: BTreeMap::new(),
            outcome: Outcome::default(),
        };
        let (mut next_kill, mut all_ready_at) = (every, START);
        node.apply(FleetEvent::Tick);
        while node.now < Duration::from_secs(600) {
            node.advance();
            if next_kill <= node.now {
                node.kill_one();
                next_kill += every;
            }
            let mut all_ready = true;
            for (_process, machine) in node.fleet.machines() {
                if let State::Waiting { due } = machine.state() {
                    let wait = due.saturating_sub(node.now);
                    node.outcome.longest_wait = node.outcome.longest_wait.max(wait);
                }
                all_ready &= matches!(machine.state(), State::Ready { .. });
            }
            if all_ready {
                all_ready_at = node.now;
            }
            let gap = node.now.saturating_sub(all_ready_at);
            node.outcome.longest_gap = node.outcome.longest_gap.max(gap);
        }
        node.outcome
    }
}

/// With waits that only a minute of readiness made shorter it took up to 40 s until
/// all were ready at the same time again, with waits of 12 s.
#[test]
fn one_kill_every_five_seconds_makes_nobody_wait() {
    for seed in 0..20 {
        let outcome = Node::under_kills(Duration::from_secs(5), seed);
        assert_eq!(outcome.longest_wait, Duration::ZERO, "seed {seed}");
        assert!(outcome.longest_gap <= 2 * START, "seed {seed}: {outcome:?}");
    }
}

#[test]
fn a_kill_every_second_leaves_the_node_whole_between_kills() {
    for seed in 0..20 {
        let outcome = Node::under_kills(Duration::from_secs(1), seed);
        assert!(
            outcome.longest_gap < Duration::from_secs(5),
            "seed {seed}: {outcome:?}"
        );
    }
}

proptest! {
    #[test]
    fn no_wait_is_longer_than_the_longest_one(
        crashes in prop::collection::vec((0_u64..70_000, 0_u64..20_000, -1.0..=1.0), 1..200),
    ) {
        let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
        for (ready_for, cap, jitter) in crashes {
            let cap = millis(cap);
            now += millis(ready_for);
            pace.was_ready(millis(ready_for), cap);
            let wait = pace.crashed(now, cap, jitter);
            prop_assert!(wait <= cap.mul_f64(1.0 + JITTER), "{wait:?} of {cap:?}");
            now += wait;
        }
    }

    #[test]
    fn who_is_never_killed_soon_after_a_start_never_waits(
        gaps in prop::collection::vec(1_000_u64..70_000, 1..200),
        jitter in -1.0..=1.0,
    ) {
        let (mut pace, mut now) = (Pace::new(), Duration::ZERO);
        for ready_for in gaps.into_iter().map(millis) {
            now += ready_for;
            pace.was_ready(ready_for, CAP);
            prop_assert_eq!(pace.crashed(now, CAP, jitter), Duration::ZERO);
        }
    }

    #[test]
    fn whatever_the_series_was_readiness_in_between_never_makes_a_wait_longer(
        soon in 1_u32..30,
        ready_for in 1_000_u64..60_000,
    ) {
        let mut pace = Pace::new();
        let mut last = Duration::ZERO;
        for _ in 0..soon {
            last = pace.crashed(Duration::ZERO, CAP, 0.0);
        }
        pace.was_ready(millis(ready_for), CAP);
        let next = pace.crashed(Duration::ZERO, CAP, 0.0);
        let expected = if millis(ready_for) >= READY_FOR_HALF * last { last / 2 } else { last };
        prop_assert!(next <= expected, "{next:?} after {last:?}");
    }
}
