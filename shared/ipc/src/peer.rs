//! Who is at the other end of a connection, and closing it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use crate::intake::Intake;
use crate::limits::LAST_WORDS;

/// Who is at the other end of a connection, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user that connected; decides what it may call.
    pub uid: u32,
    /// The process that connected; for logs only, pids are reused.
    pub pid: Option<i32>,
}

/// Whose call it is, and how its connection is cut off.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) peer: Peer,
    /// Cancelled: the connection is closed.
    pub(crate) cut: CancellationToken,
    /// What is read of the user, on all of its connections.
    pub(crate) intake: Intake,
    /// Whether that was begun.
    is_cut_off: Arc<AtomicBool>,
}

impl Caller {
    pub(crate) fn new(peer: Peer, intake: Intake) -> Caller {
        Caller {
            peer,
            cut: CancellationToken::new(),
            intake,
            is_cut_off: Arc::default(),
        }
    }

    /// Closes the connection once the answer had time to leave. Whether that was not
    /// begun before.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(crate) fn cut_off(&self) -> bool {
        if self.is_cut_off.swap(true, Ordering::Relaxed) {
            return false;
        }
        let cut = self.cut.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LAST_WORDS).await;
            cut.cancel();
        });
        true
    }
}
