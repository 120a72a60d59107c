//! What a call to the runtime can end in, and how a gRPC status becomes that.
//!
//! A broken connection is told by the sources of the error, never by the code: the
//! transport reports it as Unknown, and an expired deadline as Cancelled.

use std::error::Error;

use tonic::{Code, Status};

/// Longest message that is kept of an answer; they end up in events and statuses.
const MAX_MESSAGE_BYTES: usize = 8 * 1024;

/// What containerd says, under no code of its own, when an earlier attempt of the same
/// name is there already or still under way.
const NAME_TAKEN: &str = "is reserved for";

/// A call to the runtime that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{method}: {kind}: {message}")]
pub struct RuntimeError {
    /// The CRI method, such as `RunPodSandbox`.
    pub method: &'static str,
    /// What to do about it depends on this.
    pub kind: RuntimeErrorKind,
    /// The runtime's own words, shortened to 8 KiB.
    pub message: String,
}

/// What kind of failure a [`RuntimeError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RuntimeErrorKind {
    /// The runtime does not know the sandbox, container or image.
    NotFound,
    /// The name is taken, by an earlier attempt of ours as a rule.
    AlreadyExists,
    /// The runtime could not be reached, or the connection broke during the call.
    Unavailable,
    /// No answer within the deadline; the call may still have taken effect.
    DeadlineExceeded,
    /// This runtime does not have the method.
    Unimplemented,
    /// Everything else; the message tells.
    Other,
}

impl std::fmt::Display for RuntimeErrorKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::NotFound => "not found",
            Self::AlreadyExists => "already exists",
            Self::Unavailable => "runtime unavailable",
            Self::DeadlineExceeded => "deadline exceeded",
            Self::Unimplemented => "not implemented by this runtime",
            Self::Other => "failed",
        })
    }
}

impl RuntimeError {
    /// An error of `method`, its message shortened to what is kept.
    pub fn new(
        method: &'static str,
        kind: RuntimeErrorKind,
        message: impl Into<String>,
    ) -> RuntimeError {
        let mut message = message.into();
        if message.len() > MAX_MESSAGE_BYTES {
            message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        }
        RuntimeError {
            method,
            kind,
            message,
        }
    }

    /// Whether the thing asked about does not exist: for a removal that is success.
    pub fn is_not_found(&self) -> bool {
        self.kind == RuntimeErrorKind::NotFound
    }

    pub(crate) fn from_status(method: &'static str, status: &Status) -> RuntimeError {
        RuntimeError::new(method, kind_of(status), message_of(status))
    }
}

fn kind_of(status: &Status) -> RuntimeErrorKind {
    match transport_failure(status) {
        Some(kind) => kind,
        None => match status.code() {
            Code::NotFound => RuntimeErrorKind::NotFound,
            Code::AlreadyExists => RuntimeErrorKind::AlreadyExists,
            Code::Unavailable => RuntimeErrorKind::Unavailable,
            Code::DeadlineExceeded => RuntimeErrorKind::DeadlineExceeded,
            Code::Unimplemented => RuntimeErrorKind::Unimplemented,
            Code::Unknown if status.message().contains(NAME_TAKEN) => {
                RuntimeErrorKind::AlreadyExists
            }
            _ => RuntimeErrorKind::Other,
        },
    }
}

/// A status that came over the wire has no source; one made on this side of it has.
fn transport_failure(status: &Status) -> Option<RuntimeErrorKind> {
    let mut source = status.source();
    source?;
    while let Some(error) = source {
        if error.is::<tonic::TimeoutExpired>() {
            return Some(RuntimeErrorKind::DeadlineExceeded);
        }
        source = error.source();
    }
    Some(RuntimeErrorKind::Unavailable)
}

/// The runtime's message, or for a failure on the way the innermost cause, which says
/// more than "transport error".
fn message_of(status: &Status) -> String {
    let mut message = status.message().to_owned();
    let mut source = status.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !message.contains(&cause) {
            if !message.is_empty() {
                message.push_str(": ");
            }
            message.push_str(&cause);
        }
        source = error.source();
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_from_the_runtime_map_to_kinds() {
        for (code, kind) in [
            (Code::NotFound, RuntimeErrorKind::NotFound),
            (Code::AlreadyExists, RuntimeErrorKind::AlreadyExists),
            (Code::Unavailable, RuntimeErrorKind::Unavailable),
            (Code::DeadlineExceeded, RuntimeErrorKind::DeadlineExceeded),
            (Code::Unimplemented, RuntimeErrorKind::Unimplemented),
            (Code::Unknown, RuntimeErrorKind::Other),
            (Code::Cancelled, RuntimeErrorKind::Other),
        ] {
            assert_eq!(kind_of(&Status::new(code, "")), kind, "{code:?}");
        }
    }

    #[test]
    fn a_reserved_name_already_exists() {
        let message =
            r#"failed to reserve sandbox name "n_d_u_0": name "n_d_u_0" is reserved for "6c1c""#;
        assert_eq!(
            kind_of(&Status::unknown(message)),
            RuntimeErrorKind::AlreadyExists
        );
    }

    #[test]
    fn a_broken_connection_is_told_by_its_source_not_its_code() {
        let status = Status::from_error(Box::new(std::io::Error::other("gone")));
        assert_eq!(status.code(), Code::Unknown);
        let error = RuntimeError::from_status("Version", &status);
        assert_eq!(error.kind, RuntimeErrorKind::Unavailable);
        assert_eq!(error.message, "gone");
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let error = RuntimeError::new("Version", RuntimeErrorKind::Other, "ä".repeat(8 * 1024));
        assert_eq!(error.message.len(), MAX_MESSAGE_BYTES);
        let error = RuntimeError::new(
            "Version",
            RuntimeErrorKind::Other,
            "x".to_owned() + &"ä".repeat(8 * 1024),
        );
        assert_eq!(error.message.len(), MAX_MESSAGE_BYTES - 1);
    }
}
