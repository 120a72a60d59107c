//! What a node operation can end in.

use std::io;
use std::path::{Path, PathBuf};

use pod::identity::IdentityError;

/// A node operation that failed.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The operating system refused.
    #[error("{action} {path}", path = path.display())]
    Io {
        /// What was tried: "create", "read" ...
        action: &'static str,
        /// What it was tried on.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// We refuse: it is not what it should be.
    #[error("{path}: {reason}", path = path.display())]
    Refused {
        /// What was found.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// systemd did not do with a slice what it was asked to.
    #[error(transparent)]
    Slice(Box<system_bus::Error>),
    /// A check failed; the text says all of it.
    #[error("{message}")]
    CheckFailed {
        /// For the pod's owner.
        message: String,
    },
    /// A name cannot be part of a path.
    #[error(transparent)]
    Name(#[from] IdentityError),
    /// A volume cannot be set up; the text is for the pod's owner.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {reason}")]
    Volume {
        /// Its name.
        volume: String,
        /// Why not.
        reason: String,
    },
    /// A pod cannot have ids for a user namespace of its own.
    #[error(transparent)]
    IdRange(#[from] node_layout::IdRangeError),
    /// The thread that did it ended early.
    #[error("a node operation was cut short: {reason}")]
    CutShort {
        /// What is known of it.
        reason: String,
    },
}

impl NodeError {
    /// The operating system's refusal of `action` on `path`.
    pub fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> NodeError {
        NodeError::Io {
            action,
            path: path.into(),
            source,
        }
    }

    /// Something that is not what it should be.
    pub fn refused(path: impl Into<PathBuf>, reason: impl Into<String>) -> NodeError {
        NodeError::Refused {
            path: path.into(),
            reason: reason.into(),
        }
    }
}

/// Puts what was tried beside the operating system's error.
pub(crate) trait IoContext<Value> {
    fn context(self, action: &'static str, path: &Path) -> Result<Value, NodeError>;
}

impl<Value, Cause: Into<io::Error>> IoContext<Value> for Result<Value, Cause> {
    fn context(self, action: &'static str, path: &Path) -> Result<Value, NodeError> {
        self.map_err(|source| NodeError::io(action, path, source.into()))
    }
}
