//! Whether somebody wants this process to end in its own order.

use std::sync::atomic::{AtomicBool, Ordering};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Whether waiting is pointless because an end was requested and not acknowledged yet.
pub(crate) fn is_made() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// Every `wait_for` gives up from now on.
pub(crate) fn make() {
    REQUESTED.store(true, Ordering::SeqCst);
}

/// Waiting works again; whether a request was made.
pub(crate) fn withdraw() -> bool {
    REQUESTED.swap(false, Ordering::SeqCst)
}
