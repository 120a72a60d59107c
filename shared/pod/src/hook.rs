//! How large a lifecycle hook may be.

use crate::core::LifecycleHandler;

/// Largest lifecycle hook as JSON, in bytes: a preStop hook is an annotation of each
/// instance, and the runtime's lists have them all.
pub const MAX_HOOK_BYTES: usize = 32 << 10;

/// The size of a hook as JSON, in bytes.
#[must_use]
pub fn hook_bytes(handler: &LifecycleHandler) -> usize {
    // String keys and finite numbers only: encoding cannot fail.
    serde_json::to_vec(handler).unwrap_or_default().len()
}
