//! What a process needs of the kernel beside what each of them does: files that it has
//! listed, sockets of this node, threads, time and memory.

/// A kind of system calls that most processes are forbidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Sockets of IPv4 and IPv6.
    Internet,
    /// To be told when files change (inotify).
    FileEvents,
    /// To start programs.
    Programs,
    /// To mount, or to start somebody who does. The kernel forbids mounts to whoever is
    /// held to listed files.
    Mounts,
    /// To enter namespaces that it has made before it was sealed, and to make those of
    /// mounts again.
    Namespaces,
}

impl Need {
    /// Its name in the documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Need::Internet => "internet",
            Need::FileEvents => "file events",
            Need::Programs => "programs",
            Need::Mounts => "mounts",
            Need::Namespaces => "namespaces",
        }
    }
}
