//! Durations in messages that a kubelet would write.

use std::fmt::Write as _;
use std::time::Duration;

/// A duration as Go prints it, to the second: `40s`, `1m20s`, `5m0s`.
#[must_use]
pub fn go_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = match (hours, minutes) {
        (0, 0) => write!(text, "{seconds}s"),
        (0, _) => write!(text, "{minutes}m{seconds}s"),
        _ => write!(text, "{hours}h{minutes}m{seconds}s"),
    };
    text
}
