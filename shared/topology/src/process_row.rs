//! What a row of the table of processes says.

use std::time::Duration;

use crate::namespace::Namespace;
use crate::need::Need;
use crate::place::PlaceRow;
use crate::process::Process;
use crate::sight::Sight;

/// A Linux capability, by the name that capabilities(7) gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capability(pub &'static str);

/// Who may call a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Caller {
    /// Another process, known by its user.
    Process(Process),
    /// Root, through the `bulkhead` command line.
    Operator,
}

/// A gRPC service and its permitted callers.
#[derive(Clone, Copy, Debug)]
pub struct ServiceRow {
    /// Full name, as in the path of a call: `bulkhead.v1.PodWorkers`.
    pub service: &'static str,
    /// Everybody else is refused.
    pub callers: &'static [Caller],
    /// What each of them may ask for.
    pub budget: Budget,
}

/// What one caller may ask of a service. Who asks for more waits.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Calls under way, open streams among them.
    pub at_once: u16,
    /// Why so many.
    pub reason: &'static str,
}

/// One process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessRow {
    /// Which.
    pub process: Process,
    /// What it does, in a line.
    pub job: &'static str,
    /// The system user that it runs as, unless users are given by number.
    pub user: &'static str,
    /// The number that the package gives this user and its group, one of
    /// [`STATIC_IDS`](crate::STATIC_IDS) and never changed; 0 is root's.
    pub static_id: u32,
    /// Runs as root, whatever users exist.
    pub root: bool,
    /// The capabilities that it keeps, with a reason each.
    pub capabilities: &'static [(Capability, &'static str)],
    /// Whether its configuration has secrets, in a file that nobody else reads.
    pub has_secrets: bool,
    /// What it gets of the supervisor's own environment, beside what all get.
    pub environment: &'static [&'static str],
    /// What it opens by path once it is sealed; nothing else.
    pub opens: &'static [PlaceRow],
    /// What else it needs of the kernel, with a reason each.
    pub needs: &'static [(Need, &'static str)],
    /// The namespaces that it has of its own.
    pub namespaces: &'static [Namespace],
    /// What it sees of the node's files, where it has mounts of its own.
    pub sight: Sight,
    /// What it serves on its socket.
    pub services: &'static [ServiceRow],
    /// The longest wait between two restarts.
    pub backoff_cap: Duration,
    /// Most memory that its cgroup may have, in bytes. The unit of the supervisor limits
    /// all together to the sum.
    pub memory_max_bytes: u64,
    /// Most tasks (threads), as with the memory. The process keeps below it by
    /// [`ProcessRow::blocking_threads_max`].
    pub tasks_max: u16,
    /// Its share of busy processors, where 100 is usual.
    pub cpu_weight: u16,
    /// Its share of busy disks, where 100 is usual.
    pub io_weight: u16,
    /// How likely the kernel is to kill it when the node is short of memory, -1000
    /// (never) to 1000. Whose end costs most is the least likely; containers of
    /// guaranteed pods have -997, others more.
    pub oom_score_adj: i16,
}

impl ProcessRow {
    /// Whether it needs this of the kernel.
    #[must_use]
    pub fn needs(&self, need: Need) -> bool {
        self.needs.iter().any(|(needed, _reason)| *needed == need)
    }

    /// Whether the kernel holds it to the files that it has listed. It cannot where
    /// programs are started, which open what their user may, nor where anything is
    /// mounted: Landlock forbids that.
    #[must_use]
    pub fn is_held_to_its_files(&self) -> bool {
        !self.needs(Need::Programs) && !self.needs(Need::Mounts)
    }

    /// How large one of its state files may be: who reads it has the file, what is in it and
    /// what that becomes in memory at once, and must come up whatever the file is.
    #[must_use]
    pub fn state_file_max_bytes(&self) -> u64 {
        self.memory_max_bytes / 4
    }

    /// Most threads for work that blocks, such as files on a disk that hangs: the
    /// process's own few threads are left over.
    #[must_use]
    pub fn blocking_threads_max(&self) -> usize {
        usize::from(self.tasks_max.saturating_sub(OWN_TASKS)).max(1)
    }
}

/// Threads of a process beside those for work that blocks.
const OWN_TASKS: u16 = 8;
