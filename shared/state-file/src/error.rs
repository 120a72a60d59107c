//! Why a state file cannot be written or read, and how large it may be.

use std::io;
use std::path::PathBuf;

/// The largest state file that is read or written: far above what any part writes, far
/// below what would hurt.
pub const MAX_STATE_FILE_BYTES: u64 = 64 << 20;

/// Why a state file could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StateFileError {
    /// The file system refused.
    #[error("cannot {action} state file {path}", path = path.display())]
    Io {
        /// read, write ...
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The content would make a file that nobody reads.
    #[error("state file {path} is not written: its {bytes} bytes are more than the {limit} that are read", path = path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// How large it would be.
        bytes: u64,
        /// How large it may be.
        limit: u64,
    },
    /// The content is not what was written.
    #[error("state file {path} is damaged ({reason}) and is ignored", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}
