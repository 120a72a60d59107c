//! Waiting for conditions, and choosing a moment: the one place where tests and
//! benches block a thread for a time. Async tests wait on tokio's clock instead.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::interrupt_request;

/// Time between two looks: short against what is waited for (a container
/// start takes 100 ms), long enough to leave the processors to the others.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Has a whole number: everything is waited for so many times longer, as where the
/// processor is emulated. Waits that prove that something does not happen stay as long.
pub const PATIENCE_VARIABLE: &str = "BULKHEAD_TEST_PATIENCE";

/// The condition did not come true in time.
#[derive(Debug, Error)]
#[error("waited {waited:?} for {what}; last seen: {last_seen}")]
pub struct Timeout {
    /// What was waited for, in the caller's words.
    pub what: String,
    /// How long.
    pub waited: Duration,
    /// What the condition said at the last look.
    pub last_seen: String,
}

/// Looks at `condition` until it answers `Ok`, and returns what it holds. Its
/// `Err` tells what was seen instead, for the report. Looks at least once,
/// and once more after the time is over. Gives up early when the program was
/// told to end.
///
/// # Errors
/// `Timeout` when the condition still fails after `timeout`, or as many times longer as
/// [`PATIENCE_VARIABLE`] says.
pub fn wait_for<T, E: std::fmt::Display>(
    what: &str,
    timeout: Duration,
    condition: impl FnMut() -> Result<T, E>,
) -> Result<T, Timeout> {
    wait_for_every(POLL_INTERVAL, what, timeout, condition)
}

/// [`wait_for`] with a look every `interval`, for who measures when the
/// condition came true.
///
/// # Errors
/// `Timeout` when the condition still fails after `timeout`.
pub fn wait_for_every<T, E: std::fmt::Display>(
    interval: Duration,
    what: &str,
    timeout: Duration,
    condition: impl FnMut() -> Result<T, E>,
) -> Result<T, Timeout> {
    wait_unless(
        interrupt_request::is_made,
        interval,
        what,
        timeout,
        condition,
    )
}

/// [`wait_for`] what has to be done at the end too: it goes on when the program
/// was told to end.
///
/// # Errors
/// `Timeout` when the condition still fails after `timeout`.
pub(crate) fn wait_in_any_case<T, E: std::fmt::Display>(
    what: &str,
    timeout: Duration,
    condition: impl FnMut() -> Result<T, E>,
) -> Result<T, Timeout> {
    wait_unless(|| false, POLL_INTERVAL, what, timeout, condition)
}

fn wait_unless<T, E: std::fmt::Display>(
    is_pointless: impl Fn() -> bool,
    interval: Duration,
    what: &str,
    timeout: Duration,
    mut condition: impl FnMut() -> Result<T, E>,
) -> Result<T, Timeout> {
    let begin = Instant::now();
    let timeout = timeout * patience();
    loop {
        let last_look = begin.elapsed() >= timeout || is_pointless();
        match condition() {
            Ok(value) => return Ok(value),
            Err(seen) if last_look => {
                return Err(Timeout {
                    what: what.to_owned(),
                    waited: begin.elapsed(),
                    last_seen: format!("{seen:#}"),
                });
            }
            Err(_) => pause_for(interval),
        }
    }
}

fn patience() -> u32 {
    static PATIENCE: OnceLock<u32> = OnceLock::new();
    *PATIENCE.get_or_init(|| parse_patience(std::env::var(PATIENCE_VARIABLE).ok().as_deref()))
}

/// From 1 to 100.
fn parse_patience(text: Option<&str>) -> u32 {
    let number = text.and_then(|text| text.parse().ok());
    number.unwrap_or(1).clamp(1, 100)
}

/// [`wait_for`] with a plain yes or no.
///
/// # Errors
/// `Timeout` when the condition is still false after `timeout`.
pub fn wait_until(
    what: &str,
    timeout: Duration,
    mut condition: impl FnMut() -> bool,
) -> Result<(), Timeout> {
    wait_for(what, timeout, || {
        if condition() { Ok(()) } else { Err("not so") }
    })
}

/// Watches that `condition` stays `Ok` for the whole of `span`: for claims
/// that something does not happen.
///
/// # Errors
/// What the condition said when it failed.
pub fn holds_for<E>(span: Duration, mut condition: impl FnMut() -> Result<(), E>) -> Result<(), E> {
    let begin = Instant::now();
    loop {
        let last_look = begin.elapsed() >= span;
        condition()?;
        if last_look {
            return Ok(());
        }
        pause_for(POLL_INTERVAL);
    }
}

/// Lets exactly `span` go by, to act at a moment that the test chooses (to kill
/// 7 ms after a request, say) or to measure what happens in a given time. Nothing
/// may depend on what happened meanwhile: who needs that waits for it with
/// [`wait_for`].
#[expect(
    clippy::disallowed_methods,
    reason = "between two looks at a condition, or the moment is the point"
)]
pub fn pause_for(span: Duration) {
    std::thread::sleep(span);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_that_holds_is_looked_at_once() {
        let mut looks = 0;
        wait_until("it", Duration::ZERO, || {
            looks += 1;
            true
        })
        .unwrap();
        assert_eq!(looks, 1);
    }

    #[test]
    fn patience_is_a_number_and_never_less_than_one() {
        for (text, expected) in [
            (None, 1),
            (Some("10"), 10),
            (Some("0"), 1),
            (Some("4000000000"), 100),
            (Some("long"), 1),
        ] {
            assert_eq!(parse_patience(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_timeout_tells_what_was_seen_last() {
        let mut looks = 0;
        let error = wait_for("rain", Duration::from_millis(60), || {
            looks += 1;
            Err::<(), _>(format!("sun {looks}"))
        })
        .unwrap_err();
        assert!(looks >= 2);
        assert_eq!(error.last_seen, format!("sun {looks}"));
    }

    #[test]
    fn a_claim_that_breaks_is_reported_at_once() {
        let mut looks = 0;
        let result = holds_for(Duration::from_secs(60), || {
            looks += 1;
            if looks < 3 { Ok(()) } else { Err("broken") }
        });
        assert_eq!((result, looks), (Err("broken"), 3));
    }

    #[test]
    fn a_chosen_moment_is_met_more_closely_than_looks_are_apart() {
        // The others of a busy machine make a pause longer at times, not always.
        let wished = Duration::from_millis(7);
        let shortest = (0..20).map(|_| {
            let begin = Instant::now();
            pause_for(wished);
            begin.elapsed()
        });
        let shortest = shortest.min().unwrap();
        assert!(
            shortest >= wished && shortest < POLL_INTERVAL,
            "{shortest:?}"
        );
    }
}
