//! One idempotent call that outlives a restart of the peer.

use std::error::Error;
use std::future::Future;
use std::io;
use std::time::Duration;

use backoff::{Backoff, Curve};
use tokio::time::Instant;
use tonic::{Code, Response, Status};

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The peer answered, and refused.
    #[error("{code}: {message}", code = .0.code().description(), message = .0.message())]
    Refused(Box<Status>),
    /// The peer did not answer in time; what it did meanwhile is not known.
    #[error("no answer within {} ms{}", .deadline.as_millis(), .last_failure.as_deref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Deadline {
        /// How long the call was tried.
        deadline: Duration,
        /// What the last broken attempt said.
        last_failure: Option<String>,
    },
}

impl CallError {
    /// The status code that the peer answered, if it answered.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            CallError::Refused(status) => Some(status.code()),
            CallError::Deadline { .. } => None,
        }
    }

    /// Whether trying again with the same request cannot help: the peer has answered
    /// that something is wrong with the request itself, or with who asks.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(
            self.code(),
            Some(
                Code::InvalidArgument
                    | Code::PermissionDenied
                    | Code::FailedPrecondition
                    | Code::NotFound
                    | Code::OutOfRange
                    | Code::Unimplemented
                    | Code::Unauthenticated
            )
        )
    }
}

/// Makes a call, again and again while the connection to the peer breaks (it
/// restarts), until it answers or `deadline` is over. The call must be
/// idempotent: a broken attempt may have taken effect.
///
/// # Errors
/// When the peer refuses, or does not answer in time.
pub async fn call<T, F>(deadline: Duration, mut attempt: impl FnMut() -> F) -> Result<T, CallError>
where
    F: Future<Output = Result<Response<T>, Status>>,
{
    let until = Instant::now() + deadline;
    let mut backoff = Backoff::new(Curve::RECONNECT);
    let mut last_failure = None;
    loop {
        match tokio::time::timeout_at(until, attempt()).await {
            Err(_) => {
                return Err(CallError::Deadline {
                    deadline,
                    last_failure,
                });
            }
            Ok(Ok(response)) => return Ok(response.into_inner()),
            Ok(Err(status)) if is_broken_connection(&status) => {
                last_failure = Some(broken_reason(&status));
                let wait = backoff.failed();
                if Instant::now() + wait >= until {
                    return Err(CallError::Deadline {
                        deadline,
                        last_failure,
                    });
                }
                tokio::time::sleep(wait).await;
            }
            Ok(Err(status)) => return Err(CallError::Refused(Box::new(status))),
        }
    }
}

/// Whether a status stands for a broken connection and not for the peer's
/// answer. tonic's codes do not tell: an answer has no source, what happened on
/// this side has one.
#[must_use]
pub fn is_broken_connection(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<tonic::transport::Error>() || error.is::<io::Error>() {
            return true;
        }
        source = error.source();
    }
    // A stream that is cut ends with an HTTP/2 error of this side, which tonic
    // keeps as the source without naming a public type of ours.
    status.source().is_some() && status.code() != Code::DeadlineExceeded
}

fn broken_reason(status: &Status) -> String {
    let mut reason = status.message().to_owned();
    let mut source = status.source();
    while let Some(error) = source {
        reason = error.to_string();
        source = error.source();
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_request_or_its_sender_is_to_blame_for_is_final() {
        for (code, expected) in [
            (Code::Cancelled, false),
            (Code::Unknown, false),
            (Code::InvalidArgument, true),
            (Code::DeadlineExceeded, false),
            (Code::NotFound, true),
            (Code::AlreadyExists, false),
            (Code::PermissionDenied, true),
            (Code::ResourceExhausted, false),
            (Code::FailedPrecondition, true),
            (Code::Aborted, false),
            (Code::OutOfRange, true),
            (Code::Unimplemented, true),
            (Code::Internal, false),
            (Code::Unavailable, false),
            (Code::DataLoss, false),
            (Code::Unauthenticated, true),
        ] {
            let error = CallError::Refused(Box::new(Status::new(code, "no")));
            assert_eq!(error.is_final(), expected, "{code:?}");
        }
        let error = CallError::Deadline {
            deadline: Duration::from_secs(1),
            last_failure: None,
        };
        assert!(!error.is_final());
    }
}
