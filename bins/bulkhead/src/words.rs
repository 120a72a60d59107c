//! Durations, sizes and times as people read them.

use std::time::Duration;

use clock::UnixNanos;
use pod::meta::Time;

/// Two units at most, as kubectl shows an age: 45s, 3m20s, 5h, 12d.
pub(crate) fn age(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let years = days / 365;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if !seconds.is_multiple_of(60) => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if !minutes.is_multiple_of(60) => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        172_800..691_200 if !hours.is_multiple_of(24) => format!("{days}d{}h", hours % 24),
        172_800..63_072_000 => format!("{days}d"),
        _ if years < 8 && !days.is_multiple_of(365) => format!("{years}y{}d", days % 365),
        _ => format!("{years}y"),
    }
}

/// The age of something that happened at a time of the API.
pub(crate) fn age_since(time: &Time, now: UnixNanos) -> String {
    age(now.since(nanos(time)))
}

/// A time of the API in nanoseconds.
pub(crate) fn nanos(time: &Time) -> UnixNanos {
    UnixNanos(i64::try_from(time.0.as_nanosecond()).unwrap_or(0))
}

/// A point in time as RFC 3339 in UTC, whole seconds.
pub(crate) fn timestamp(at: UnixNanos) -> String {
    timestamp_of_seconds(at.0.div_euclid(1_000_000_000))
}

/// The same of seconds of Unix time, which may be centuries away.
pub(crate) fn timestamp_of_seconds(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| "-".to_owned(), |time| time.to_string())
}

/// MiB with one digit.
pub(crate) fn mebibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) / (1 << 20);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_at_most_two_units() {
        for (seconds, shown) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (601, "10m"),
            (7_260, "121m"),
            (10_860, "3h1m"),
            (30_000, "8h"),
            (180_000, "2d2h"),
            (864_000, "10d"),
            (63_072_000 + 86_400, "2y1d"),
            (315_360_000, "10y"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), shown, "{seconds}");
        }
    }

    #[test]
    fn a_timestamp_is_utc() {
        assert_eq!(
            timestamp(UnixNanos(1_700_000_000_999_999_999)),
            "2023-11-14T22:13:20Z"
        );
    }
}
