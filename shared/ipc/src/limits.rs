//! Each bound with its reason, and cutting text to one.

use std::time::Duration;

/// Largest pod that is accepted, as JSON. The API server's own limit for an
/// object is 1.5 MiB with managed fields; a spec of this size is already absurd.
pub const MAX_POD_BYTES: usize = 1 << 20;

/// Largest message with one pod in it.
pub const MAX_POD_MESSAGE_BYTES: usize = MAX_POD_BYTES + (64 << 10);

/// Largest message with one ConfigMap or Secret: its values have 1 MiB at most, and its
/// keys, of which there are 4096 at most, as much again.
pub const MAX_OBJECT_MESSAGE_BYTES: usize = 3 << 20;

/// Largest message with observations of one pod: its containers and sandboxes.
pub const MAX_OBSERVATION_BYTES: usize = 1 << 20;

/// Largest list of pods by reference and the like (110 pods need some 100 KiB).
pub const MAX_LIST_BYTES: usize = 1 << 20;

/// Largest list of objects: a thousand of them with the longest names. An empty one takes two
/// bytes there and 96 in memory, so what a hostile list may have pod-worker-pool hold is this,
/// 48 times, for each list that it has at once.
pub const MAX_OBJECT_LIST_BYTES: usize = 512 << 10;

/// Largest message with one Service: 500 ports with the longest names need 40 KiB.
pub const MAX_SERVICE_MESSAGE_BYTES: usize = 64 << 10;

/// Largest message with what pod-worker-pool needs of the Node: two networks.
pub const MAX_NODE_MESSAGE_BYTES: usize = 4 << 10;

/// Largest relist: 2,000 pods with two sandboxes and seven containers each have 2 MiB. Parts
/// of a message are bounded too (`bulkhead_api::codec`).
pub const MAX_RELIST_BYTES: usize = 4 << 20;

/// Largest answer that is some words and numbers: a boot id, a phase, what a node has.
pub const MAX_ANSWER_BYTES: usize = 64 << 10;

/// Largest report of what containers use, some 300 bytes each.
pub const MAX_USAGE_BYTES: usize = 16 << 20;

/// Largest answer with the output of a command.
pub const MAX_COMMAND_OUTPUT_BYTES: usize = 16 << 20;

/// Longest boot id that is kept; ours have 16 characters.
pub const MAX_BOOT_ID_BYTES: usize = 64;

/// Largest message with one probe target: a probe is a few hundred bytes.
pub const MAX_PROBE_TARGET_MESSAGE_BYTES: usize = 64 << 10;

/// Largest probe target: beside it a message has the boot id and some tags.
pub const MAX_PROBE_TARGET_BYTES: usize = MAX_PROBE_TARGET_MESSAGE_BYTES - (1 << 10);

/// Longest text for people about a probe, of a verdict or a try.
pub const MAX_PROBE_TEXT_BYTES: usize = 1 << 10;

/// Longest cause of an update, for people.
pub const MAX_CAUSE_BYTES: usize = 256;

/// What an exec probe may take beyond its own timeout: finding a place, and the start
/// of its command on a busy node. Who runs it answers within that.
pub const EXEC_PROBE_MARGIN: Duration = Duration::from_secs(35);

/// Longest id of a container or sandbox: those of runtimes have 64 characters.
pub const MAX_CONTAINER_ID_BYTES: usize = 256;

/// Longest name of a container that is taken for one: a valid one has 63
/// characters, and whoever has a pod checks that.
pub const MAX_CONTAINER_NAME_BYTES: usize = 256;

/// Most supplementary groups of a container that are told: a pod has a few, and the image may
/// add some.
pub const MAX_TOLD_GROUPS: usize = 64;

/// Pods of one node that are accepted, far above the 110 that are supported.
pub const MAX_PODS: usize = 2000;

/// Most bytes that all pods of a source may have together, as JSON. Consumers
/// hold each of them in memory; a node's pods have some 10 KiB each.
pub const MAX_SOURCE_BYTES: usize = 16 << 20;

/// Most bytes that all desired pods of a node may have together, as JSON, with those that
/// are being stopped: a quarter of the memory that sync-loop may use, since a snapshot that
/// arrives is held beside what is known. 110 pods of 10 KiB are 1 MiB.
pub const MAX_DESIRED_BYTES: usize = 24 << 20;

/// Calls of one caller to one service that may wait until there is room in its budget.
pub const MAX_WAITING_CALLS: usize = 256;

/// Connections at once of one user: one or two, and for a moment those of its last run. Root
/// has people with several terminals, and the processes that run as root.
#[must_use]
pub(crate) const fn max_connections(uid: u32) -> u16 {
    match uid {
        0 => 32,
        _ => 8,
    }
}

/// What is read of a connection before the others are served: some hundred small frames,
/// each of which costs an answer.
pub const PORTION_BYTES: usize = 4 << 10;

/// Bytes of requests that a connection may have sent and nobody has read, about the largest
/// message of any call.
pub const MAX_UNREAD_BYTES: u32 = 1 << 20;

/// Streams that a client may reset before they were served: what HTTP/2 rapid
/// resets can make a server hold.
pub const MAX_PENDING_RESETS: usize = 64;

/// Calls at once on one connection.
pub const MAX_STREAMS_PER_CONNECTION: u32 = 256;

/// HTTP/2 header block of a call: ours are a few hundred bytes.
pub const MAX_HEADER_LIST_BYTES: u32 = 16 << 10;

/// Messages that wait between a stream and its consumer, before the stream itself is slowed
/// down. They may be as large as any, and take more memory than they have bytes.
pub const SUBSCRIPTION_QUEUE: usize = 1;

/// How long a stopping server lets calls in flight end.
pub const DRAIN: Duration = Duration::from_millis(500);

/// Cuts a text to at most `limit` bytes, between characters, and gives back the memory of
/// what was cut off: it may be a thousand times what is kept.
pub fn truncate(text: &mut String, limit: usize) {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit));
        text.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        for (limit, expected) in [
            (0, ""),
            (1, "a"),
            (2, "a"),
            (3, "aé"),
            (4, "aéb"),
            (9, "aéb"),
        ] {
            let mut text = "aéb".to_owned();
            truncate(&mut text, limit);
            assert_eq!(text, expected, "{limit}");
        }
        let mut text = "x".repeat(1 << 20);
        truncate(&mut text, 10);
        assert!(text.capacity() < 1_000, "{}", text.capacity());
    }
}
