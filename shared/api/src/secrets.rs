//! Debug of the message that carries values of Secrets: they stay out of logs.

use crate::v1::ObjectValue;

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
