//! What the units of the bundle, in which systemd supervises the processes, have this
//! program do: each task by itself, as root.

mod restart_wait;
mod services;
mod watch;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use nix::unistd::{Uid, seteuid};
use node_config::{NODE_CONFIG_FILE, NodeConfig};
use topology::{Identities, Process};

use crate::failure::Failure;
use crate::flags::Flags;
use crate::{access, directories, preflight, settings};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Directories and configuration.
    Prepare,
    /// The access list of a socket that systemd has made.
    PermitCallers(Process),
    /// What comes between a run of a process and the next: a look at its socket, which it
    /// may have shut down, and the wait.
    AfterEnd(Process),
    /// To watch them all.
    Watch,
}

impl Task {
    /// That of the flags, if it is not to supervise.
    pub(crate) fn of(flags: &Flags) -> Option<Task> {
        let prepare = flags.prepare.then_some(Task::Prepare);
        let permit = flags.permit_callers.map(Task::PermitCallers);
        let after_end = flags.after_end.map(Task::AfterEnd);
        let watch = flags.watch.then_some(Task::Watch);
        prepare.or(permit).or(after_end).or(watch)
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
            Task::AfterEnd(process) => after_end(&flags.run_dir, process),
            Task::Watch => watch::run(&flags.run_dir),
        }
    }
}

/// As far as the supervisor does for itself. The container runtime may come later.
fn prepare(flags: &Flags) -> Result<(), Failure> {
    let settings = settings::resolve(flags)?;
    let config = &settings.node;
    let identities = settings::identities(config)?;
    let _instance = directories::lock_run_dir(&config.directories.run_dir)?;
    preflight::check_binaries(config, &identities)?;
    directories::prepare(config, &identities)?;
    directories::write_node_config(config, &identities)
}

fn permit_callers(run_dir: &Path, process: Process) -> Result<(), Failure> {
    let config = NodeConfig::read(&run_dir.join(NODE_CONFIG_FILE))
        .map_err(|error| Failure::Configuration(Box::new(error)))?;
    let callers = settings::identities(&config)?.callers(process);
    let path = config.directories.socket(process);
    let failed = |source| Failure::Io {
        action: "set who may connect to",
        path: path.clone(),
        source,
    };
    match access::permit(&path, &callers) {
        Ok(true) => Ok(()),
        Ok(false) => Err(failed(io::Error::new(
            ErrorKind::Unsupported,
            "the file system has no access lists",
        ))),
        Err(error) => Err(failed(error)),
    }
}

/// The wait comes last: whoever calls meanwhile is to find the socket.
#[expect(
    clippy::disallowed_methods,
    reason = "to wait is its task, and nothing else runs in this program"
)]
fn after_end(run_dir: &Path, process: Process) -> Result<(), Failure> {
    enter_mounts_of_node().map_err(|source| Failure::System {
        action: "see the node's files",
        source,
    })?;
    let repaired = repair_socket(run_dir, process);
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let now = Duration::try_from(now).unwrap_or_default();
    let jitter = rand::random_range(-1.0..=1.0);
    match restart_wait::after_end(run_dir, process, now, jitter) {
        Ok(wait) => std::thread::sleep(wait),
        Err(error) => tracing::error!(%process, %error, "cannot tell how often it has ended"),
    }
    repaired
}

/// A unit's own mounts are for all that it runs, however privileged: there the run directory
/// can only be read, and systemd is out of sight.
fn enter_mounts_of_node() -> io::Result<()> {
    let mounts = File::open("/proc/1/ns/mnt")?;
    Ok(setns(mounts, CloneFlags::CLONE_NEWNS)?)
}

/// A socket that was shut down refuses all callers, whichever process has it.
fn repair_socket(run_dir: &Path, process: Process) -> Result<(), Failure> {
    let path = run_dir.join(process.socket_file_name());
    // Without a configuration it is root that connects, which says as much of the socket.
    let config = NodeConfig::read(&run_dir.join(NODE_CONFIG_FILE)).ok();
    let identities = config.and_then(|config| settings::identities(&config).ok());
    let caller = identities.and_then(|identities| served_user(&identities, process));
    let connected = connect_as(caller, &path).map_err(|source| Failure::System {
        action: "look at a socket as one of its callers",
        source,
    })?;
    let is_harmed = match connected {
        Ok(()) => false,
        Err(error) => matches!(
            error.kind(),
            ErrorKind::ConnectionRefused | ErrorKind::NotFound
        ),
    };
    if !is_harmed {
        return Ok(());
    }
    tracing::warn!(%process, "its socket refuses callers: it is made anew");
    let unit = format!("bulkhead-{process}.socket");
    let status = Command::new("systemctl")
        .args(["--no-block", "restart", &unit])
        .status();
    let failed = |source| Failure::System {
        action: "have systemd make the socket anew",
        source,
    };
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(io::Error::other(status.to_string()))),
        Err(error) => Err(failed(error)),
    }
}

/// The user as whom to connect, where the process does not serve root: its next run would
/// log a refusal for each run that ends.
fn served_user(identities: &Identities, process: Process) -> Option<u32> {
    match identities.may_call(0, process) {
        true => None,
        false => identities.callers(process).first().copied(),
    }
}

/// Connects as this user, and is root again. Fails when it cannot change users; inside is
/// how the connection went.
fn connect_as(user: Option<u32>, path: &Path) -> io::Result<io::Result<()>> {
    let Some(user) = user else {
        return Ok(preflight::connect_at_once(path).map(drop));
    };
    seteuid(Uid::from_raw(user))?;
    let connected = preflight::connect_at_once(path).map(drop);
    seteuid(Uid::from_raw(0))?;
    Ok(connected)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use topology::PROCESSES;

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
        // The second is what units of an earlier version say.
        for flag in ["--after-end=pleg", "--repair-socket=pleg"] {
            let after_end = task(&[flag]).unwrap();
            assert_eq!(after_end, Some(Task::AfterEnd(Process::Pleg)));
        }
        assert_eq!(task(&["--watch"]).unwrap(), Some(Task::Watch));
        assert!(task(&["--after-end=nobody"]).is_err());
        assert!(task(&["--watch", "--prepare"]).is_err());
        assert!(task(&["--prepare", "--permit-callers=pleg"]).is_err());
    }

    #[test]
    fn a_socket_is_looked_at_by_a_user_whom_the_process_serves() {
        let identities = Identities::from_base(10_000).unwrap();
        for row in PROCESSES.iter().filter(|row| !row.services.is_empty()) {
            let user = served_user(&identities, row.process).unwrap_or(0);
            assert!(identities.may_call(user, row.process), "{}", row.process);
        }
        // pleg serves no operator.
        let user = served_user(&identities, Process::Pleg);
        assert_ne!(user, None);
    }
}
