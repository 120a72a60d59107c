//! What a call to the runtime can end in, and how a gRPC status becomes that.
//!
//! A broken connection is told by the sources of the error, never by the code: the
//! transport reports it as Unknown, and an expired deadline as Cancelled.

use std::error::Error;

use tonic::{Code, Status};

use crate::error_kind::RuntimeErrorKind;
use crate::quirks::{self, FailedPull};

/// Longest message that is kept of an answer; they end up in events and statuses.
const MAX_MESSAGE_BYTES: usize = 8 * 1024;

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

/// The method by which a command is run in a container.
pub const EXEC_SYNC: &str = "ExecSync";

impl RuntimeError {
    /// Whether this call itself failed, and not another that had to be made before it: then
    /// it was never sent.
    #[must_use]
    pub fn is_of(&self, method: &str) -> bool {
        self.method == method
    }

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

    /// A refusal for which the runtime has no code: what it means is told from its words.
    #[must_use]
    pub fn refused(method: &'static str, message: impl Into<String>) -> RuntimeError {
        let message = message.into();
        RuntimeError::new(method, quirks::refusal(method, &message), message)
    }

    /// Why a pull failed, and what the runtime says beyond the name of that; `None` if it
    /// names nothing.
    #[must_use]
    pub fn failed_pull(&self) -> Option<(FailedPull, &str)> {
        let has_no_code = self.kind == RuntimeErrorKind::Other;
        quirks::failed_pull(&self.message).filter(|_| has_no_code)
    }

    /// Whether the runtime answered that it will not do it, for a reason that no code of
    /// gRPC stands for.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(
            self.kind,
            RuntimeErrorKind::NotStartable
                | RuntimeErrorKind::BeingStarted
                | RuntimeErrorKind::NoSandboxProcess
                | RuntimeErrorKind::Other
        )
    }

    /// Whether nobody knows what became of the call: the runtime was away or slow.
    #[must_use]
    pub fn is_no_answer(&self) -> bool {
        matches!(
            self.kind,
            RuntimeErrorKind::Unavailable | RuntimeErrorKind::DeadlineExceeded
        )
    }

    pub(crate) fn from_status(method: &'static str, status: &Status) -> RuntimeError {
        RuntimeError::new(method, kind_of(method, status), message_of(status))
    }
}

fn kind_of(method: &str, status: &Status) -> RuntimeErrorKind {
    match transport_failure(status) {
        Some(kind) => kind,
        None => match status.code() {
            Code::NotFound => RuntimeErrorKind::NotFound,
            Code::AlreadyExists => RuntimeErrorKind::AlreadyExists,
            Code::Unavailable => RuntimeErrorKind::Unavailable,
            Code::DeadlineExceeded => RuntimeErrorKind::DeadlineExceeded,
            Code::Unimplemented => RuntimeErrorKind::Unimplemented,
            Code::ResourceExhausted if is_session(method) => RuntimeErrorKind::Exhausted,
            _ => quirks::refusal(method, status.message()),
        },
    }
}

/// Elsewhere the code means a message that is too large.
fn is_session(method: &str) -> bool {
    matches!(method, "Exec" | "Attach" | "PortForward")
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
            let status = Status::new(code, "");
            assert_eq!(kind_of("Version", &status), kind, "{code:?}");
        }
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
