//! What the units of the bundle, in which systemd supervises the processes, have this
//! program do: each task by itself, as root.

mod confined;
mod lacks;
mod repair;
mod services;
mod status_file;
mod watch;

use std::io::{self, ErrorKind};
use std::path::Path;

use bulkhead_api::v1;
use topology::Process;

use crate::degradation::{Degradation, check_minimum};
use crate::failure::Failure;
use crate::flags::Flags;
use crate::settings::Settings;
use crate::{access, directories, preflight, quotas, settings};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Directories, configuration and quotas.
    Prepare,
    /// The access list of a socket that systemd has made.
    PermitCallers(Process),
    /// What systemd does not start again by itself.
    Repair(Process),
    /// To watch them all.
    Watch,
}

impl Task {
    /// That of the flags, if it is not to supervise.
    pub(crate) fn of(flags: &Flags) -> Option<Task> {
        let prepare = flags.prepare.then_some(Task::Prepare);
        let permit = flags.permit_callers.map(Task::PermitCallers);
        let repair = flags.repair.map(Task::Repair);
        let watch = flags.watch.then_some(Task::Watch);
        prepare.or(permit).or(repair).or(watch)
    }

    /// Does it.
    ///
    /// # Errors
    /// See [`Failure`].
    pub(crate) fn carry_out(self, flags: &Flags) -> Result<(), Failure> {
        preflight::check_root()?;
        match self {
            Task::Prepare => prepare(flags),
            Task::PermitCallers(process) => permit_callers(&flags.run_dir, process),
            Task::Repair(process) => repair::run(process),
            Task::Watch => watch::run(&flags.run_dir),
        }
    }
}

/// As far as the supervisor does for itself. The container runtime may come later.
fn prepare(flags: &Flags) -> Result<(), Failure> {
    let settings = match flags.again {
        true => resolve_again(flags)?,
        false => settings::resolve(flags)?,
    };
    let config = &settings.node;
    let identities = settings::identities(config)?;
    let _instance = directories::lock_run_dir(&config.directories.run_dir)?;
    preflight::check_binaries(config, &identities)?;
    directories::prepare(config, &identities)?;
    let lacks = lacks::find(config)?;
    check_minimum(&lacks, &settings.bulkhead.minimum_confinement)?;
    tell_lacks(&config.directories.run_dir, lacks)?;
    directories::write_node_config(config, &identities)?;
    quotas::set(config, &identities);
    Ok(())
}

/// As the supervisor reads its files again, with what was written before in the place of what
/// it remembers.
fn resolve_again(flags: &Flags) -> Result<Settings, Failure> {
    match settings::resolved(&flags.run_dir) {
        Ok(current) => settings::resolve_again(flags, &current),
        Err(failure) => {
            let error = telemetry::chain(&failure);
            tracing::warn!(error, "the node's name and address are looked for anew");
            settings::resolve(flags)
        }
    }
}

/// For who watches the processes.
fn tell_lacks(run_dir: &Path, lacks: Vec<Degradation>) -> Result<(), Failure> {
    for degradation in &lacks {
        tracing::warn!(degradation = degradation.text, "degraded");
    }
    let status = v1::SupervisorStatus {
        degradations: lacks.into_iter().map(|it| it.text).collect(),
        ..v1::SupervisorStatus::default()
    };
    let path = run_dir.join(lacks::FILE_NAME);
    status_file::write(&path, &status).map_err(|source| Failure::Io {
        action: "tell what the machine lacks in",
        path,
        source,
    })
}

fn permit_callers(run_dir: &Path, process: Process) -> Result<(), Failure> {
    let config = settings::resolved(run_dir)?;
    let callers = settings::identities(&config)?.callers(process);
    let path = config.directories.socket(process);
    let failed = Failure::io("set who may connect to", &path);
    match access::permit(&path, &callers) {
        Ok(true) => {
            process::note_socket_file(&path).map_err(Failure::io("note the file of", &path))
        }
        Ok(false) => Err(failed(io::Error::new(
            ErrorKind::Unsupported,
            "the file system has no access lists",
        ))),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn a_task_is_named_by_its_flag() {
        let task = |words: &[&str]| {
            let words = ["supervisor"].iter().chain(words);
            Flags::try_parse_from(words).map(|flags| Task::of(&flags))
        };
        assert_eq!(task(&[]).unwrap(), None);
        assert_eq!(task(&["--prepare"]).unwrap(), Some(Task::Prepare));
        let permit = task(&["--permit-callers=pleg"]).unwrap();
        assert_eq!(permit, Some(Task::PermitCallers(Process::Pleg)));
        let repair = task(&["--repair=pleg"]).unwrap();
        assert_eq!(repair, Some(Task::Repair(Process::Pleg)));
        assert_eq!(task(&["--watch"]).unwrap(), Some(Task::Watch));
        assert!(task(&["--repair=nobody"]).is_err());
        assert!(task(&["--watch", "--prepare"]).is_err());
        assert_eq!(
            task(&["--prepare", "--again"]).unwrap(),
            Some(Task::Prepare)
        );
        assert!(
            task(&["--again"]).is_err(),
            "a supervisor that starts knows nothing yet"
        );
        assert!(task(&["--prepare", "--permit-callers=pleg"]).is_err());
    }
}
