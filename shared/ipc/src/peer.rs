//! Who is at the other end of a connection, and closing it.

use tokio_util::sync::CancellationToken;

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
}

impl Caller {
    /// Closes the connection once the answer had time to leave.
    pub(crate) fn cut_off(&self) {
        let cut = self.cut.clone();
        tokio::spawn(async move {
            tokio::time::sleep(LAST_WORDS).await;
            cut.cancel();
        });
    }
}
