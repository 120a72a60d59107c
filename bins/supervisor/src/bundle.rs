//! What the units of the bundle, in which systemd supervises the processes, have this
//! program do: each task by itself, as root.

mod lacks;

use std::fs::Permissions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use topology::{MACHINE_LACKS_FILE_NAME, Process};

use crate::degradation::{Degradation, check_minimum};
use crate::failure::Failure;
use crate::flags::Flags;
use crate::settings::Settings;
use crate::{access, directories, preflight, settings};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Directories and configuration.
    Prepare,
    /// The access list of a socket that systemd has made.
    PermitCallers(Process),
}

impl Task {
    /// That of the flags, if it is not to supervise.
    pub(crate) fn of(flags: &Flags) -> Option<Task> {
        let prepare = flags.prepare.then_some(Task::Prepare);
        let permit = flags.permit_callers.map(Task::PermitCallers);
        prepare.or(permit)
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
    write_lacks(&config.directories.run_dir, &lacks)?;
    directories::write_node_config(config, &identities)?;
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

/// One a line, for `bulkhead status`.
fn write_lacks(run_dir: &Path, lacks: &[Degradation]) -> Result<(), Failure> {
    let mut lines = String::new();
    for degradation in lacks {
        tracing::warn!(degradation = degradation.text, "degraded");
        lines += &degradation.text.replace('\n', " ");
        lines.push('\n');
    }
    let path = run_dir.join(MACHINE_LACKS_FILE_NAME);
    let written = state_file::write_atomically(&path, lines.as_bytes(), |file| {
        file.set_permissions(Permissions::from_mode(0o644))
    });
    written.map_err(Failure::io("write what the machine lacks in", &path))
}

fn permit_callers(run_dir: &Path, process: Process) -> Result<(), Failure> {
    let config = settings::resolved(run_dir)?;
    let callers = settings::identities(&config)?.callers(process);
    let path = config.directories.socket(process);
    let failed = Failure::io("set who may connect to", &path);
    match access::permit(&path, &callers) {
        Ok(true) => Ok(()),
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
        assert!(task(&["--permit-callers=nobody"]).is_err());
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
