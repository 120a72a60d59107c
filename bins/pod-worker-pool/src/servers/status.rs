//! The one place where errors become gRPC statuses.

use cri::{RuntimeError, RuntimeErrorKind};
use pod::identity::IdentityError;
use pod::wire::WireError;
use tonic::Status;

use crate::logs::LogError;
use crate::pod_source::PodSourceError;
use crate::pool::PoolError;

pub(super) fn of_pool(error: PoolError) -> Status {
    match error {
        PoolError::Stopping => Status::unavailable(error.to_string()),
        PoolError::Full(_) | PoolError::TooLarge => Status::resource_exhausted(error.to_string()),
        PoolError::Refused(_) => Status::failed_precondition(error.to_string()),
    }
}

pub(super) fn of_pod_source(error: &PodSourceError) -> Status {
    let message = telemetry::chain(error);
    match error {
        PodSourceError::Gone(_) => Status::not_found(message),
        PodSourceError::Outdated(_) => Status::aborted(message),
        PodSourceError::Away { .. } | PodSourceError::Busy => Status::unavailable(message),
        PodSourceError::NotAPod(_)
        | PodSourceError::Another { .. }
        | PodSourceError::Invalid(_)
        | PodSourceError::Mirror(_) => Status::invalid_argument(message),
    }
}

pub(super) fn of_runtime(error: &RuntimeError) -> Status {
    let message = telemetry::chain(error);
    match error.kind {
        RuntimeErrorKind::NotFound => Status::not_found(message),
        RuntimeErrorKind::DeadlineExceeded => Status::deadline_exceeded(message),
        RuntimeErrorKind::Unavailable => Status::unavailable(message),
        RuntimeErrorKind::Unimplemented => Status::unimplemented(message),
        RuntimeErrorKind::Forbidden => Status::permission_denied(message),
        RuntimeErrorKind::Exhausted => Status::resource_exhausted(message),
        RuntimeErrorKind::AlreadyExists
        | RuntimeErrorKind::NotStartable
        | RuntimeErrorKind::BeingStarted
        | RuntimeErrorKind::NoSandboxProcess
        | RuntimeErrorKind::Other => Status::internal(message),
    }
}

/// Of a call that only makes up the address of a session, after a look at what it is for.
pub(super) fn of_session(error: &RuntimeError) -> Status {
    match error.kind {
        RuntimeErrorKind::DeadlineExceeded => Status::unavailable(telemetry::chain(error)),
        RuntimeErrorKind::Other => Status::failed_precondition(telemetry::chain(error)),
        _ => of_runtime(error),
    }
}

pub(super) fn of_wire(error: &WireError) -> Status {
    Status::invalid_argument(telemetry::chain(error))
}

pub(super) fn of_identity(error: &IdentityError) -> Status {
    Status::invalid_argument(telemetry::chain(error))
}

pub(super) fn of_log(error: &LogError) -> Status {
    let message = telemetry::chain(error);
    match error {
        LogError::NotFound { .. } => Status::not_found(message),
        LogError::Node(_) => Status::internal(message),
    }
}
