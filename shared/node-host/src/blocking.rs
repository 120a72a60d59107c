//! What work on a thread for blocking work came to.

use crate::error::NodeError;

pub(super) fn joined<Value>(
    outcome: Result<Result<Value, NodeError>, tokio::task::JoinError>,
) -> Result<Value, NodeError> {
    outcome.map_err(|error| NodeError::CutShort {
        reason: error.to_string(),
    })?
}
