//! What confines the processes, as far as the machine has it.

use std::fmt;

use serde::Deserialize;

/// A part of the confinement that some machines do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Protection {
    /// Each process has the capabilities of the topology.
    Capabilities,
    /// All rules of Landlock.
    Landlock,
    /// Filters of system calls. Nothing starts without them, so they are never missing.
    Seccomp,
    /// Namespaces of the topology.
    Namespaces,
    /// Limits of memory and tasks for each process by itself.
    Limits,
    /// Weights for processors and disks.
    Shares,
    /// What a process leaves behind is ended, in whatever session it is.
    TotalEnd,
    /// `oom_score_adj` of the topology.
    OomScores,
    /// The kernel lets only callers of the topology connect.
    SocketAccess,
    /// The kernel keeps processes from metadata services, whatever they do.
    Egress,
}

impl Protection {
    /// All of them.
    pub const ALL: [Protection; 10] = [
        Protection::Capabilities,
        Protection::Landlock,
        Protection::Seccomp,
        Protection::Namespaces,
        Protection::Limits,
        Protection::Shares,
        Protection::TotalEnd,
        Protection::OomScores,
        Protection::SocketAccess,
        Protection::Egress,
    ];

    /// Its name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protection::Capabilities => "capabilities",
            Protection::Landlock => "landlock",
            Protection::Seccomp => "seccomp",
            Protection::Namespaces => "namespaces",
            Protection::Limits => "limits",
            Protection::Shares => "shares",
            Protection::TotalEnd => "totalEnd",
            Protection::OomScores => "oomScores",
            Protection::SocketAccess => "socketAccess",
            Protection::Egress => "egress",
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_read_by_its_name() {
        for protection in Protection::ALL {
            let read: Protection = serde_json::from_value(protection.name().into()).unwrap();
            assert_eq!(read, protection);
        }
    }
}
