//! The process at the other end of a connection, as the kernel reports it.

/// The peer of a connection (`SO_PEERCRED`, unix(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user that connected; decides what it may call.
    pub uid: u32,
    /// The process that connected; for logs only, pids are reused.
    pub pid: Option<i32>,
}
