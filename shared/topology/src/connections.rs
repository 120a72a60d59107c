//! What one user may have of one server, whatever it calls there.

/// Connections of a user to a server, and what it may send over them. Who wants more waits,
/// or is hung up on where it has connections enough.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionBudget {
    /// Connections at once.
    pub at_once: u16,
    /// Bytes of requests that a connection may have sent and nobody has read.
    pub unread_bytes: u32,
    /// Bytes that the server reads within a second, of all these connections; what was not
    /// used of the last second counts.
    pub bytes_a_second: u32,
    /// Why so many.
    pub reason: &'static str,
}

/// Unread, about the largest message of any call; a second, a kilobyte for each of the most
/// calls that any budget permits within one: most of ours have some hundred bytes.
const MIB: u32 = 1 << 20;

const OF_A_PROCESS: ConnectionBudget = ConnectionBudget {
    at_once: 8,
    unread_bytes: MIB,
    bytes_a_second: MIB,
    reason: "one or two, and for a moment those of its last run",
};

const OF_ROOT: ConnectionBudget = ConnectionBudget {
    at_once: 32,
    unread_bytes: MIB,
    bytes_a_second: MIB,
    reason: "people with several terminals, and the processes that run as root",
};

impl ConnectionBudget {
    /// That of a user, to each server that it may call.
    #[must_use]
    pub const fn of(uid: u32) -> ConnectionBudget {
        match uid {
            0 => OF_ROOT,
            _ => OF_A_PROCESS,
        }
    }
}
