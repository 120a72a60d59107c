//! What confines a running process, read from outside.

use std::fmt;
use std::io;

use nix::unistd::Pid;

use crate::capabilities::CapabilitySet;
use crate::status_text::{field, hexadecimal_field};

/// What `/proc/PID/status` says about the rights of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// What it may do now.
    pub effective: CapabilitySet,
    /// What it could ever get.
    pub bounding: CapabilitySet,
    /// Whether exec can never give it more.
    pub no_new_privileges: bool,
    /// Whether a seccomp filter is in force.
    pub seccomp_filter: bool,
}

/// Why the confinement of a process is not known.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// It is gone, or `/proc` refuses.
    #[error("cannot read the status of process {pid}")]
    Read {
        /// Which.
        pid: Pid,
        /// The cause.
        source: io::Error,
    },
    /// The kernel's text lacks a field.
    #[error("the status of process {pid} has no usable {field}")]
    Field {
        /// Which.
        pid: Pid,
        /// What is missing.
        field: &'static str,
    },
}

/// The mode number of a seccomp filter in `/proc/PID/status`.
const SECCOMP_MODE_FILTER: u64 = 2;

impl Confinement {
    /// Reads it for a running process.
    ///
    /// # Errors
    /// When the process is gone or its status cannot be read.
    pub fn of(pid: Pid) -> Result<Confinement, InspectError> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
            .map_err(|source| InspectError::Read { pid, source })?;
        Confinement::parse(&status).map_err(|field| InspectError::Field { pid, field })
    }

    fn parse(status: &str) -> Result<Confinement, &'static str> {
        let identifier = |name| {
            // Real, effective, saved, file system.
            field(status, name)
                .and_then(|values| values.split_whitespace().nth(1))
                .and_then(|value| value.parse::<u32>().ok())
                .ok_or(name)
        };
        let number = |name| {
            field(status, name)
                .and_then(|value| value.parse::<u64>().ok())
                .ok_or(name)
        };
        let mask = |name| {
            hexadecimal_field(status, name)
                .map(CapabilitySet::from_mask)
                .ok_or(name)
        };
        Ok(Confinement {
            uid: identifier("Uid")?,
            gid: identifier("Gid")?,
            effective: mask("CapEff")?,
            bounding: mask("CapBnd")?,
            no_new_privileges: number("NoNewPrivs")? != 0,
            // Absent in a kernel without seccomp.
            seccomp_filter: number("Seccomp").unwrap_or(0) == SECCOMP_MODE_FILTER,
        })
    }
}

/// For the status table: `caps 0, nnp, seccomp`.
impl fmt::Display for Confinement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "caps {}", self.effective.len())?;
        if self.no_new_privileges {
            formatter.write_str(", nnp")?;
        }
        if self.seccomp_filter {
            formatter.write_str(", seccomp")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tpleg\nUid:\t990\t991\t990\t990\nGid:\t5\t6\t5\t5\n\
        CapPrm:\t0000000000000000\nCapEff:\t0000000000000021\nCapBnd:\t0000000000000021\n\
        NoNewPrivs:\t1\nSeccomp:\t2\n";

    #[test]
    fn the_status_text_is_understood() {
        let confinement = Confinement::parse(STATUS).unwrap();
        assert_eq!((confinement.uid, confinement.gid), (991, 6));
        assert_eq!(confinement.to_string(), "caps 2, nnp, seccomp");
    }

    #[test]
    fn a_missing_field_is_named() {
        let text = STATUS.replace("CapEff", "CapOdd");
        assert_eq!(Confinement::parse(&text), Err("CapEff"));
        let text = STATUS.replace("Seccomp", "Other");
        assert!(!Confinement::parse(&text).unwrap().seccomp_filter);
    }

    #[test]
    fn a_running_process_can_be_read_and_an_absent_one_not() {
        assert!(Confinement::of(nix::unistd::getpid()).is_ok());
        assert!(Confinement::of(Pid::from_raw(i32::MAX)).is_err());
    }
}
