//! [`Calls`]: which system calls a process needs.

use topology::{Need, ProcessRow};

/// What a process needs beside what all of them do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Sockets of IPv4 and IPv6.
    pub internet: bool,
    /// inotify.
    pub file_events: bool,
    /// fork and exec.
    pub programs: bool,
    /// mount(2) and its kin.
    pub mounts: bool,
    /// setns(2), for namespaces that a process has of its own.
    pub namespaces: bool,
}

impl Calls {
    /// What the row of a process lists.
    #[must_use]
    pub fn of(row: &ProcessRow) -> Calls {
        Calls {
            internet: row.needs(Need::Internet),
            file_events: row.needs(Need::FileEvents),
            programs: row.needs(Need::Programs),
            mounts: row.needs(Need::Mounts),
            namespaces: row.needs(Need::Namespaces),
        }
    }
}
