//! What the running services lack of their confinement, as the kernel tells it of each. So
//! it shows where a drop-in, or a systemd that leaves settings out, has weakened a unit.

use std::collections::BTreeSet;
use std::io;

use confine::Confinement;
use nix::unistd::Pid;
use topology::{Identities, row};

use super::services;
use crate::degradation::lacking;

/// What was found of each process.
type Found = BTreeSet<(i32, String)>;

/// Looks again and again.
#[derive(Debug, Default)]
pub(super) struct Looks {
    last: Found,
}

impl Looks {
    /// What is lacking, for people.
    pub(super) fn look(&mut self, identities: &Identities) -> Vec<String> {
        match find(identities) {
            Ok(found) => self.told_of(found),
            Err(error) => vec![format!("cannot see what confines the processes: {error}")],
        }
    }

    /// Only what was so before: until systemd has started its program, a process has not all
    /// of its confinement yet.
    fn told_of(&mut self, found: Found) -> Vec<String> {
        let still = found.intersection(&self.last);
        let told: BTreeSet<String> = still.map(|(_pid, text)| text.clone()).collect();
        self.last = found;
        told.into_iter().collect()
    }
}

fn find(identities: &Identities) -> io::Result<Found> {
    let mut found = Found::new();
    for (pid, process) in services::running(identities)? {
        // One that is gone lacks nothing. Who looks may not see namespaces of others.
        if let Ok(confinement) = Confinement::of(Pid::from_raw(pid)) {
            let lacks = lacking(row(process), &confinement, true);
            found.extend(lacks.into_iter().map(|text| (pid, text)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_told_when_it_lasts_and_no_longer_than_that() {
        let of = |pids: &[i32]| -> Found {
            let lacks = |pid: &i32| (*pid, "pleg runs without no_new_privs".to_owned());
            pids.iter().map(lacks).collect()
        };
        let mut looks = Looks::default();
        for (found, told) in [
            (of(&[7]), 0),
            (of(&[7]), 1),
            (of(&[7, 8]), 1),
            // Both of one service.
            (of(&[7, 8]), 1),
            // Another run.
            (of(&[9]), 0),
            (of(&[]), 0),
        ] {
            assert_eq!(looks.told_of(found.clone()).len(), told, "{found:?}");
        }
    }

    #[test]
    fn nobody_lacks_anything_where_no_service_runs() {
        let identities = Identities::from_base(1_000).unwrap();
        assert_eq!(find(&identities).unwrap(), Found::new());
    }
}
