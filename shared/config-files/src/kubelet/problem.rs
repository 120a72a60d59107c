//! What can be wrong with a `KubeletConfiguration`.

use std::io;
use std::path::PathBuf;

use crate::document::DocumentError;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeletConfigError {
    /// A file is not what it should be.
    #[error("the kubelet's configuration cannot be read")]
    Document(#[from] DocumentError),
    /// The drop-in directory cannot be listed.
    #[error("cannot list the drop-in directory {path}", path = path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// No such field exists.
    #[error(
        "{path}: there is no field {field} in a KubeletConfiguration{}",
        .meant.map(|meant| format!(": did you mean {meant}?")).unwrap_or_default(),
        path = path.display()
    )]
    UnknownField {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// The one that was most likely meant.
        meant: Option<&'static str>,
    },
    /// A field has a value that it cannot have.
    #[error("{place}: {field}: {reason}")]
    Value {
        /// Where it came from.
        place: String,
        /// The path of the field.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// What an operator should know about a configuration that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The field.
    pub field: String,
    /// What about it.
    pub text: &'static str,
}

/// A value that a field cannot have, wherever it came from.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {reason}")]
pub(super) struct WrongValue {
    /// The path of the field.
    pub(super) field: String,
    /// What is wrong with it.
    pub(super) reason: String,
}

/// What becomes of applying something.
pub(super) type Applied = Result<(), WrongValue>;

/// A value that a field cannot have.
pub(super) fn refused<T>(field: &str, reason: impl Into<String>) -> Result<T, WrongValue> {
    Err(WrongValue {
        field: field.to_owned(),
        reason: reason.into(),
    })
}
