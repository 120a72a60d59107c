//! Namespaces that a process has of its own (namespaces(7)). Those that are not listed
//! it shares with the node.

/// A kind of namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Namespace {
    /// An empty network: no interface that is up, no address, no route, nobody's
    /// abstract sockets. Sockets with a path stay reachable.
    Network,
    /// Shared memory, semaphores and queues of System V, and message queues of POSIX.
    Ipc,
    /// Files: only those that it needs to start and those of its row, and of processes
    /// only its own.
    Mount,
}

impl Namespace {
    /// All of them.
    pub const ALL: [Namespace; 3] = [Namespace::Network, Namespace::Ipc, Namespace::Mount];

    /// Its name in the documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Namespace::Network => "network",
            Namespace::Ipc => "inter-process communication",
            Namespace::Mount => "mount",
        }
    }

    /// Its name in `/proc/PID/ns`.
    #[must_use]
    pub fn file_name(self) -> &'static str {
        match self {
            Namespace::Network => "net",
            Namespace::Ipc => "ipc",
            Namespace::Mount => "mnt",
        }
    }
}
