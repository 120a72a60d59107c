//! How much of a machine, of a file system and of a pod's files there is.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

/// How much of a machine is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineUsage {
    /// Bytes of memory that it has.
    pub memory_capacity_bytes: u64,
    /// Bytes of it that are free, or hold what can be read again from a disk and was not
    /// used lately: all but the working set.
    pub memory_available_bytes: u64,
    /// Most processes and threads that it can have.
    pub max_processes: u64,
    /// Processes and threads that it has.
    pub processes: u64,
}

/// What a machine has used since it was booted, and what of its memory is used for what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineCounters {
    /// Nanoseconds in which a processor was not idle, of all processors.
    pub cpu_nanos: u64,
    /// When it was booted, in seconds since 1970.
    pub booted_at: u64,
    /// Bytes of memory that are not free.
    pub memory_used_bytes: u64,
    /// Bytes of memory that processes have for themselves.
    pub memory_anonymous_bytes: u64,
    /// How often a page was missing.
    pub page_faults: u64,
    /// How often it had to be read from a disk then.
    pub major_page_faults: u64,
}

/// How much of a file system is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilesystemUsage {
    /// Its device: two paths with the same one are on the same file system.
    pub device: u64,
    /// Its size in bytes.
    pub capacity_bytes: u64,
    /// What is free of it, for users other than root.
    pub available_bytes: u64,
    /// Inodes that it has; 0 where it makes them as needed.
    pub inodes: u64,
    /// Inodes that are free.
    pub inodes_free: u64,
}

/// How much a tree of files takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeSize {
    /// Bytes of the blocks that its files have.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

impl AddAssign for TreeSize {
    fn add_assign(&mut self, other: TreeSize) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }
}

/// How much the files of a pod take on the node's disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodFilesUsage {
    /// Of the `emptyDir` volumes that were asked for, by name.
    pub volumes: BTreeMap<String, TreeSize>,
    /// Logs by container name.
    pub logs: BTreeMap<String, TreeSize>,
    /// Its hosts file, the files for the termination messages of its containers, and its
    /// `configMap` volumes.
    pub other: TreeSize,
    /// Volumes with directories that lie too deep to be gone through, or too many of
    /// them: they take more than what is said here.
    pub too_deep: BTreeSet<String>,
    /// Some tree takes more than what is said here, for whatever reason.
    pub is_partial: bool,
}
