//! Tables and properties of the waits.

use proptest::prelude::*;

use super::*;

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

/// From the start of a process until it is ready: more than is measured.
const START: Duration = Duration::from_millis(200);

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
