//! Reading containers' logs: the files that the runtime writes in CRI format, from
//! their beginning or near their end, and on while the container writes.
//!
//! Not here: which attempt of a container is meant, and who may read.

mod line;
pub(crate) mod reader;
mod tail;
#[cfg(test)]
mod test_log;

use clock::UnixNanos;
use node_host::NodeError;
use pod::PodIdentity;

pub(crate) use line::LogStream;

/// Which log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogTarget {
    /// The pod.
    pub pod: PodIdentity,
    /// The container.
    pub container: String,
    /// How often it was started before the instance whose log this is.
    pub attempt: u32,
}

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

/// Some lines of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogChunk {
    /// What the container wrote; at most some 32 KiB.
    pub content: Vec<u8>,
    /// Where it wrote it.
    pub stream: LogStream,
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
