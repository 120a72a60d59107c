//! Debug of the messages that carry secrets: they stay out of logs.

use crate::v1::{ObjectValue, OpenSessionResponse, PullCredential, ReviewTokenRequest};

impl std::fmt::Debug for ObjectValue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let length = format!("[{} bytes]", self.value.len());
        formatter
            .debug_struct("ObjectValue")
            .field("key", &self.key)
            .field("value", &length)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for PullCredential {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("PullCredential(..)")
    }
}

impl std::fmt::Debug for ReviewTokenRequest {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ReviewTokenRequest(..)")
    }
}

impl std::fmt::Debug for OpenSessionResponse {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("OpenSessionResponse")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}
