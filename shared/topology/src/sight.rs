//! What a process that has mounts of its own sees of the node's files.

/// How much of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sight {
    /// What it needs to start, and what its row lists.
    #[default]
    Listed,
    /// All, as far as modes permit and only to read, but for what is in these places; of
    /// what its row lists, also what is there.
    NodeBut(&'static [Hidden]),
}

/// A place of the node that is hidden: there is an empty directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hidden {
    /// A directory; where the node has none, there is none. Parents come first.
    pub path: &'static str,
    /// How many bytes everybody may write there, in memory that counts as the process's:
    /// they are gone with its run.
    pub room: Option<u64>,
    /// What is there all the same.
    pub keeps: &'static [&'static str],
    /// Why it is hidden.
    pub reason: &'static str,
}

impl Hidden {
    const fn empty(path: &'static str, reason: &'static str) -> Hidden {
        Hidden {
            path,
            room: None,
            keeps: &[],
            reason,
        }
    }
}

/// Devices that any program may count on, and the links that lead to what it has open.
const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/fd",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
];

/// From programs of the node that need its libraries, configuration and certificates, which
/// may be anywhere. They have a quarter of the memory of their process to write to.
pub(crate) const WITHOUT_WHAT_OTHERS_LEAVE: &[Hidden] = &[
    Hidden {
        keeps: DEVICES,
        ..Hidden::empty("/dev", "devices of the machine, by modes that are too wide")
    },
    Hidden {
        room: Some(16 << 20),
        ..Hidden::empty("/dev/shm", "memory that others share")
    },
    Hidden {
        room: Some(32 << 20),
        ..Hidden::empty("/tmp", "files and sockets that others leave")
    },
    Hidden {
        room: Some(16 << 20),
        ..Hidden::empty("/var/tmp", "files that others leave")
    },
    Hidden::empty("/run", "sockets that everybody may connect to"),
    Hidden::empty("/home", "what people keep"),
    Hidden::empty("/root", "what people keep"),
];
