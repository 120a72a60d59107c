//! API timestamps: whole seconds, as `metav1.Time` has them in JSON.

use clock::UnixNanos;
use jiff::Timestamp;
use pod::meta::Time;

/// The API's form of a point in time, cut to whole seconds.
pub(crate) fn api_time(at: UnixNanos) -> Time {
    let seconds = at.0.div_euclid(1_000_000_000);
    // Every i64 of nanoseconds is within the years that jiff has.
    Time(Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// The same for an instant that may be unknown (0).
pub(super) fn known_time(unix_nanos: i64) -> Option<Time> {
    (unix_nanos > 0).then(|| api_time(UnixNanos(unix_nanos)))
}
