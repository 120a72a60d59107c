//! The wait before a service starts again, by the rule of [`Pace`], which systemd 252 does
//! not have: its own wait is always the same. What is remembered of a service from one end
//! to the next is a line in the run directory.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use topology::{Process, row};

use crate::policy::{Moment, Pace};

/// Longest wait: it is a part of the stop of the service, which systemd gives 6 s.
const LONGEST: Duration = Duration::from_secs(4);

/// What is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Series {
    failures: u32,
    /// When the run was started that comes after the wait.
    started: Moment,
}

/// How long to wait after an end of `process`, because of those before. To be called once
/// for each end; `jitter` is a random number within -1 ..= 1.
///
/// # Errors
/// When it cannot be remembered.
pub(super) fn after_end(
    run_dir: &Path,
    process: Process,
    now: Moment,
    jitter: f64,
) -> io::Result<Duration> {
    let path = run_dir.join(format!("{process}.restarts"));
    let before = match fs::read_to_string(&path) {
        Ok(text) => parse(&text).unwrap_or_default(),
        Err(error) if error.kind() == ErrorKind::NotFound => Series::default(),
        Err(error) => return Err(error),
    };
    let cap = row(process).backoff_cap.min(LONGEST);
    let (wait, next) = before.ended(now, cap, jitter);
    let (failures, started) = (next.failures, next.started.as_millis());
    let new = path.with_extension("new");
    fs::write(&new, format!("{failures} {started}\n"))?;
    fs::rename(new, path)?;
    Ok(wait)
}

fn parse(text: &str) -> Option<Series> {
    let (failures, started) = text.trim_end().split_once(' ')?;
    Some(Series {
        failures: failures.parse().ok()?,
        started: Duration::from_millis(started.parse().ok()?),
    })
}

impl Series {
    fn ended(self, now: Moment, cap: Duration, jitter: f64) -> (Duration, Series) {
        let mut pace = Pace::after(self.failures);
        pace.was_ready(now.saturating_sub(self.started), cap);
        let wait = pace.crashed(now, cap, jitter);
        let next = Series {
            failures: pace.failures(),
            started: now + wait,
        };
        (wait, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::SOON;

    /// The waits before so many restarts, when each run lasts so long.
    fn waits(count: usize, lasts: Duration) -> Vec<Duration> {
        let directory = tempfile::tempdir().unwrap();
        let mut now = Duration::from_secs(1000);
        let mut waits = Vec::new();
        for _ in 0..count {
            let wait = after_end(directory.path(), Process::Pleg, now, 0.0).unwrap();
            waits.push(wait);
            now += wait + lasts;
        }
        waits
    }

    #[test]
    fn who_ends_soon_waits_longer_each_time_and_not_for_ever() {
        let waits = waits(12, Duration::from_millis(50));
        assert_eq!(waits[0], Duration::ZERO, "the first restart is at once");
        assert!(waits.is_sorted(), "{waits:?}");
        assert_eq!(waits.last(), Some(&LONGEST));
        let sum: Duration = waits.iter().sum();
        assert!(sum > Duration::from_secs(15), "{waits:?}");
    }

    #[test]
    fn who_runs_for_a_while_between_its_ends_waits_for_nothing() {
        assert_eq!(waits(50, SOON), [Duration::ZERO; 50]);
        assert_eq!(waits(9, Duration::from_secs(3600)), [Duration::ZERO; 9]);
    }

    #[test]
    fn the_longest_wait_ends_before_systemd_does_not_wait_any_longer() {
        let longest = backoff::jittered(LONGEST, crate::policy::JITTER, 1.0);
        assert!(longest < Duration::from_secs(5), "{longest:?}");
    }

    #[test]
    fn a_damaged_line_is_as_none() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("pleg.restarts"), "x").unwrap();
        let now = Duration::from_secs(5);
        let wait = after_end(directory.path(), Process::Pleg, now, 0.0).unwrap();
        assert_eq!(wait, Duration::ZERO);
        assert_eq!(parse("3 1500\n").unwrap().failures, 3);
        for text in ["", "3", "x 1", "3 x", "-1 5"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
