//! What this machine does not give, and what the node does not run without.

use std::collections::BTreeSet;

use config_files::bulkhead::Protection;
use confine::{CapabilitySet, Confinement};
use topology::{Process, ProcessRow};

use crate::egress;
use crate::failure::Failure;

/// Something that this machine does not give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Degradation {
    /// What it concerns.
    pub(crate) lacks: BTreeSet<Protection>,
    /// What is missing and why, for people.
    pub(crate) text: String,
}

impl Degradation {
    pub(crate) fn of(lacks: Protection, text: String) -> Degradation {
        Degradation {
            lacks: BTreeSet::from([lacks]),
            text,
        }
    }
}

/// What the kernel does not hold the processes to, or this one not.
pub(crate) fn of_kernel() -> Vec<Degradation> {
    let lacks = confine::landlock_lacks();
    let landlock = (!lacks.is_empty())
        .then(|| format!("this kernel's Landlock cannot {}", lacks.join(", nor ")))
        .map(|text| Degradation::of(Protection::Landlock, text));
    let egress = egress::not_in_force().map(|text| Degradation::of(Protection::Egress, text));
    landlock.into_iter().chain(egress).collect()
}

/// Refuses a machine that lacks something of what the node does not run without.
pub(crate) fn check_minimum(
    degradations: &[Degradation],
    minimum: &BTreeSet<Protection>,
) -> Result<(), Failure> {
    for degradation in degradations {
        if let Some(protection) = degradation.lacks.intersection(minimum).next() {
            return Err(Failure::Confinement {
                protection: *protection,
                reason: degradation.text.clone(),
            });
        }
    }
    Ok(())
}

/// What a running process lacks of the confinement that is the same on every machine, for
/// people. `shares_namespaces` says that the machine does not give namespaces, which is told
/// already.
pub(crate) fn lacking(
    row: &ProcessRow,
    found: &Confinement,
    shares_namespaces: bool,
) -> Vec<String> {
    let process = row.process;
    let mut lacks = Vec::new();
    if !found.no_new_privileges {
        lacks.push(format!("{process} runs without no_new_privs"));
    }
    if !found.seccomp_filter {
        lacks.push(format!("{process} runs without a filter of system calls"));
    }
    // The supervisor has what it hands down as well.
    let allowed = CapabilitySet::of(row.capabilities.iter().map(|(name, _reason)| *name));
    let more = allowed.map(|allowed| found.bounding.without(allowed));
    if let Ok(more) = more
        && !more.is_empty()
        && process != Process::Supervisor
    {
        lacks.push(format!("{process} may have {more}, which is not for it"));
    }
    let shared = found.shared_namespaces.iter();
    for kind in shared.filter(|kind| row.namespaces.contains(kind) && !shares_namespaces) {
        let name = kind.name();
        lacks.push(format!("{process} runs in the node's {name} namespace"));
    }
    lacks
}

#[cfg(test)]
mod tests {
    use topology::{Namespace, row};

    use super::*;

    #[test]
    fn what_a_running_process_lacks_is_told_once() {
        let whole = Confinement {
            uid: 1,
            gid: 1,
            effective: CapabilitySet::default(),
            bounding: CapabilitySet::default(),
            no_new_privileges: true,
            seccomp_filter: true,
            own_namespaces: Namespace::ALL.to_vec(),
            shared_namespaces: Vec::new(),
        };
        let with = |shared: &[Namespace]| Confinement {
            shared_namespaces: shared.to_vec(),
            ..whole.clone()
        };
        let bare = Confinement {
            no_new_privileges: false,
            seccomp_filter: false,
            ..with(&[])
        };
        let mounting = Confinement {
            bounding: CapabilitySet::from_mask(1 << 21),
            ..with(&[])
        };
        let network = &[Namespace::Network];
        let told = "pleg runs in the node's network namespace";
        for (process, found, is_told, expected) in [
            (Process::Pleg, with(&[]), false, &[][..]),
            (Process::Pleg, with(network), false, &[told]),
            (Process::Pleg, with(network), true, &[]),
            // It has business there.
            (Process::Prober, with(network), false, &[]),
            (Process::Supervisor, with(&Namespace::ALL), false, &[]),
            (
                Process::Pleg,
                mounting.clone(),
                false,
                &["pleg may have CAP_SYS_ADMIN, which is not for it"],
            ),
            (Process::PodWorkerPool, mounting, false, &[]),
            (
                Process::Pleg,
                bare,
                true,
                &[
                    "pleg runs without no_new_privs",
                    "pleg runs without a filter of system calls",
                ],
            ),
        ] {
            assert_eq!(
                lacking(row(process), &found, is_told),
                expected,
                "{process}"
            );
        }
    }

    #[test]
    fn exactly_what_is_asked_for_and_missing_is_fatal() {
        let all = Protection::ALL;
        for missing in all {
            let degradations = [Degradation::of(missing, "no".to_owned())];
            for asked in all {
                let refused = check_minimum(&degradations, &BTreeSet::from([asked])).is_err();
                assert_eq!(
                    refused,
                    asked == missing,
                    "{asked} asked, {missing} missing"
                );
            }
            assert!(check_minimum(&degradations, &BTreeSet::new()).is_ok());
            assert!(check_minimum(&degradations, &BTreeSet::from(all)).is_err());
        }
        assert!(check_minimum(&[], &BTreeSet::from(all)).is_ok());
    }
}
