//! What confines a running process, read from outside.

use std::fmt;
use std::io;

use nix::unistd::Pid;
use topology::Namespace;

use crate::capabilities::CapabilitySet;
use crate::status_text::{field, hexadecimal_field};

/// What `/proc/PID` says about the rights of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// The kinds of namespaces in which it is apart from whoever looks.
    pub own_namespaces: Vec<Namespace>,
    /// Those in which it is together with whoever looks. What the kernel does not tell is
    /// in neither.
    pub shared_namespaces: Vec<Namespace>,
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
        let confinement =
            Confinement::parse(&status).map_err(|field| InspectError::Field { pid, field })?;
        Ok(confinement.with_namespaces(|kind| {
            let of = |process: &str| {
                std::fs::read_link(format!("/proc/{process}/ns/{}", kind.file_name())).ok()
            };
            Some(of(&pid.to_string())? != of("self")?)
        }))
    }

    /// Completed by the kinds of namespaces, of which `is_own` says whether it has one of
    /// its own, where that is known.
    fn with_namespaces(mut self, is_own: impl Fn(Namespace) -> Option<bool>) -> Confinement {
        for kind in Namespace::ALL {
            match is_own(kind) {
                Some(true) => self.own_namespaces.push(kind),
                Some(false) => self.shared_namespaces.push(kind),
                None => {}
            }
        }
        self
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
            own_namespaces: Vec::new(),
            shared_namespaces: Vec::new(),
        })
    }
}

/// For the status table: `caps 0, nnp, seccomp, net, ipc, mnt`.
impl fmt::Display for Confinement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "caps {}", self.effective.len())?;
        if self.no_new_privileges {
            formatter.write_str(", nnp")?;
        }
        if self.seccomp_filter {
            formatter.write_str(", seccomp")?;
        }
        for kind in &self.own_namespaces {
            write!(formatter, ", {}", kind.file_name())?;
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
    fn namespaces_of_its_own_are_shown_and_unknown_ones_are_neither() {
        let seen = |network, ipc| {
            let confinement = Confinement::parse(STATUS).unwrap();
            confinement.with_namespaces(|kind| match kind {
                Namespace::Network => network,
                Namespace::Ipc => ipc,
                Namespace::Mount => None,
            })
        };
        for (network, ipc, text, shared) in [
            (Some(true), Some(true), ", net, ipc", &[][..]),
            (Some(false), Some(true), ", ipc", &[Namespace::Network]),
            (Some(false), None, "", &[Namespace::Network]),
            (None, None, "", &[]),
        ] {
            let found = seen(network, ipc);
            assert_eq!(found.to_string(), format!("caps 2, nnp, seccomp{text}"));
            assert_eq!(found.shared_namespaces, shared);
        }
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
        let own = Confinement::of(nix::unistd::getpid()).unwrap();
        assert_eq!(own.shared_namespaces, Namespace::ALL, "with itself");
        assert!(Confinement::of(Pid::from_raw(i32::MAX)).is_err());
    }
}
