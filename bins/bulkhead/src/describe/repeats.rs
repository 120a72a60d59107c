//! Failures that events report: since when and how often. Pure.
//!
//! Messages of the same failure differ in the ids of what was tried (a sandbox, a network
//! namespace), so each try may have an event of its own.

use bulkhead_api::v1;
use clock::UnixNanos;

/// What status-syncer writes before the message of an event that stands for several.
const FOLDED_PREFIX: &str = "(combined from similar events): ";

/// Shortest word that may be an id.
const MIN_ID_LENGTH: usize = 4;

/// A failure, each time that it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Repeats {
    /// What the newest event says.
    pub(super) message: String,
    /// Its reason.
    pub(super) reason: String,
    /// When it was seen first, as far as events are kept.
    pub(super) since: UnixNanos,
    pub(super) seen: Seen,
}

/// How often something was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) count: u32,
    pub(super) last: UnixNanos,
}

/// The newest of these events, with all of them that report the same.
pub(super) fn newest<'a>(events: impl Iterator<Item = &'a v1::Event> + Clone) -> Option<Repeats> {
    let newest = events.clone().max_by_key(|event| event.unix_nanos)?;
    let same = |event: &&v1::Event| {
        event.reason == newest.reason && without_ids(message(event)) == without_ids(message(newest))
    };
    let (mut since, mut count) = (newest.unix_nanos, 0_u32);
    for event in events.filter(same) {
        count = count.saturating_add(event.count.max(1));
        let first = match event.first_unix_nanos {
            0 => event.unix_nanos,
            first => first,
        };
        since = since.min(first);
    }
    Some(Repeats {
        message: message(newest).to_owned(),
        reason: newest.reason.clone(),
        since: UnixNanos(since),
        seen: Seen {
            count,
            last: UnixNanos(newest.unix_nanos),
        },
    })
}

/// What an event says, be it of itself or of the last of several.
pub(super) fn message(event: &v1::Event) -> &str {
    let message = event.message.as_str();
    message.strip_prefix(FOLDED_PREFIX).unwrap_or(message)
}

/// The words of a message that are the same each time.
fn without_ids(message: &str) -> Vec<&str> {
    let words = message.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| !is_id(word)).collect()
}

fn is_id(word: &str) -> bool {
    word.len() >= MIN_ID_LENGTH
        && word.bytes().all(|byte| byte.is_ascii_hexdigit())
        && word.bytes().any(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(reason: &str, message: &str, first: i64, last: i64, count: u32) -> v1::Event {
        v1::Event {
            reason: reason.to_owned(),
            message: message.to_owned(),
            first_unix_nanos: first,
            unix_nanos: last,
            count,
            ..v1::Event::default()
        }
    }

    #[test]
    fn tries_of_the_same_failure_are_counted_together() {
        let mount = |volume: &str, first, last, count| {
            event(
                "FailedMount",
                &format!("volume {volume:?}: absent"),
                first,
                last,
                count,
            )
        };
        let sandbox = |id: &str, last| {
            let message = format!("no network for sandbox {id:?}: cni-{id}: no plugin");
            event("FailedCreatePodSandBox", &message, 0, last, 0)
        };
        let mut folded = sandbox("77aa", 50);
        folded.message = format!("{FOLDED_PREFIX}{}", folded.message);
        (folded.first_unix_nanos, folded.count) = (40, 9);
        for (events, expected) in [
            (vec![], None),
            (vec![mount("v", 0, 7, 0)], Some((7, 1, 7))),
            (vec![mount("v", 3, 9, 5)], Some((3, 5, 9))),
            // What failed before it, and is mended.
            (
                vec![mount("u", 1, 8, 4), mount("v", 9, 9, 1)],
                Some((9, 1, 9)),
            ),
            (
                vec![mount("v", 1, 8, 4), sandbox("12ab", 9)],
                Some((9, 1, 9)),
            ),
            (
                vec![sandbox("12ab", 20), sandbox("0123456789abcdef", 30), folded],
                Some((20, 11, 50)),
            ),
        ] {
            let found = newest(events.iter());
            let told = found.map(|it| (it.since.0, it.seen.count, it.seen.last.0));
            assert_eq!(told, expected, "{events:?}");
        }
    }
}
