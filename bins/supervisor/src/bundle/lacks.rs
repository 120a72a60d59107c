//! What this machine does not give the services of the bundle, as who prepares them finds
//! it. Its unit has limits like theirs, so what of them it does not have itself, they do not
//! have either.

use std::io;

use config_files::bulkhead::Protection;
use confine::Confinement;
use nix::unistd::Pid;
use node_config::NodeConfig;
use topology::{PROCESSES, Process, row};

use crate::cgroups;
use crate::degradation::{Degradation, of_kernel};
use crate::failure::Failure;
use crate::launcher::Privileges;
use crate::namespaces::Namespaces;
use crate::oom_score::OomScores;

/// Finds it. The directories of the processes have to be there.
///
/// # Errors
/// When the kernel does not tell what systemd may do.
pub(super) fn find(config: &NodeConfig) -> Result<Vec<Degradation>, Failure> {
    let of_systemd = Confinement::of(Pid::from_raw(1)).map_err(|error| Failure::System {
        action: "read what systemd may do",
        source: io::Error::other(error),
    })?;
    let supervised = PROCESSES
        .iter()
        .filter(|row| row.process != Process::Supervisor);
    let privileges = Privileges::within(of_systemd.bounding, supervised)?;
    let (_oom_scores, unspared) = OomScores::open();
    let (_namespaces, shared) = Namespaces::open(config);
    let of = |protection| move |text| Degradation::of(protection, text);
    let mut lacks = privileges.degradations;
    lacks.extend(cgroups::not_in_force(row(Process::Supervisor)));
    lacks.extend(unspared.map(of(Protection::OomScores)));
    lacks.extend(shared.into_iter().map(of(Protection::Namespaces)));
    lacks.extend(of_kernel());
    Ok(lacks)
}
