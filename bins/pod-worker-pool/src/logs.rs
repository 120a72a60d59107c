//! Containers' logs: the files that the runtime writes in CRI format, read from their
//! beginning or near their end, and on while the container writes, as a kubelet reads
//! them: without what was rotated before; and how they are rotated.
//!
//! Not here: which attempt of a container is meant, who may read, and the making of a
//! rotation, which is `log_rotation`.

mod line;
pub(crate) mod reader;
pub(crate) mod rotated;
mod tail;
#[cfg(test)]
mod test_log;

use clock::UnixNanos;
use node_host::NodeError;
use pod::PodIdentity;

pub(crate) use node_host::LogTarget;

/// Which part of it, and how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogOptions {
    /// Go on when the end is reached, until the container has ended.
    pub follow: bool,
    /// Only the last so many lines.
    pub tail_lines: Option<u64>,
    /// Only lines written at this time or later.
    pub since: Option<UnixNanos>,
    /// Put the time in front of each line.
    pub timestamps: bool,
}

/// Some lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogChunk {
    /// What the container wrote; at most some 32 KiB.
    pub content: Vec<u8>,
    /// When the last of it was written.
    pub at: UnixNanos,
}

/// A log that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// There is none of this container and attempt.
    #[error("container {container} of pod {pod} has no log of attempt {attempt}")]
    NotFound {
        /// The pod.
        pod: PodIdentity,
        /// The container.
        container: String,
        /// The attempt.
        attempt: u32,
    },
    /// The node refused.
    #[error("cannot read the log")]
    Node(#[from] NodeError),
}
