//! How each process is started: what it gets and what it does not.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use config_files::bulkhead::{ProcessSettings, Protection};
use confine::{CapabilitySet, Launch, SpawnError};
use nix::unistd::Pid;
use node_config::NodeConfig;
use topology::{ALLOCATOR_VARIABLES, Identities, PROCESSES, Process, ProcessRow, row};

use crate::cgroups::Cgroups;
use crate::degradation::Degradation;
use crate::directories::node_config_path;
use crate::failure::Failure;
use crate::listeners::Listeners;
use crate::log_pipe::LogPipe;
use crate::namespaces::Namespaces;
use crate::oom_score::OomScores;
use crate::policy::WATCHDOG_SILENCE;

/// What of the supervisor's own environment the processes get.
const INHERITED_VARIABLES: [&str; 3] = [
    telemetry::LEVEL_VARIABLE,
    telemetry::FORMAT_VARIABLE,
    "RUST_BACKTRACE",
];

/// What each process may do beside its user's rights.
#[derive(Debug)]
pub(crate) struct Privileges {
    kept: BTreeMap<Process, CapabilitySet>,
    /// What this machine does not give, for people.
    pub(crate) degradations: Vec<Degradation>,
}

impl Privileges {
    /// The topology's rows, as far as this machine gives what they name.
    pub(crate) fn find() -> Result<Privileges, Failure> {
        let available = CapabilitySet::available().map_err(|source| Failure::System {
            action: "read its own capabilities",
            source,
        })?;
        Privileges::within(available, PROCESSES)
    }

    /// The same of some rows, where so much can be given.
    pub(crate) fn within(
        available: CapabilitySet,
        rows: impl IntoIterator<Item = &'static ProcessRow>,
    ) -> Result<Privileges, Failure> {
        let mut privileges = Privileges {
            kept: BTreeMap::new(),
            degradations: Vec::new(),
        };
        for row in rows {
            let names = row.capabilities.iter().map(|(name, _reason)| *name);
            let wanted = CapabilitySet::of(names).map_err(|unknown| Failure::System {
                action: "understand the table of processes",
                source: io::Error::new(io::ErrorKind::InvalidData, unknown),
            })?;
            let missing = wanted.without(available);
            if !missing.is_empty() {
                let text = format!(
                    "{} runs without {missing}: this machine does not give it",
                    row.process
                );
                let degradation = Degradation::of(Protection::Capabilities, text);
                privileges.degradations.push(degradation);
            }
            privileges
                .kept
                .insert(row.process, wanted.intersection(available));
        }
        Ok(privileges)
    }

    /// What the supervisor itself needs: its own, and all that it hands down.
    pub(crate) fn own(&self) -> CapabilitySet {
        self.kept
            .values()
            .fold(CapabilitySet::EMPTY, |all, set| all.union(*set))
    }

    fn of(&self, process: Process) -> CapabilitySet {
        self.kept.get(&process).copied().unwrap_or_default()
    }
}

/// What the kernel does for each process, as far as this machine has it.
#[derive(Debug)]
pub(crate) struct Shares {
    pub(crate) cgroups: Cgroups,
    pub(crate) oom_scores: OomScores,
    pub(crate) namespaces: Namespaces,
}

/// Starts processes.
#[derive(Debug)]
pub(crate) struct Launcher {
    bin_dir: PathBuf,
    run_dir: PathBuf,
    listeners: Listeners,
    shares: Shares,
    identities: Identities,
    privileges: Privileges,
}

impl Launcher {
    pub(crate) fn new(
        config: &NodeConfig,
        listeners: Listeners,
        shares: Shares,
        identities: Identities,
        privileges: Privileges,
    ) -> Launcher {
        Launcher {
            bin_dir: config.directories.bin_dir.clone(),
            run_dir: config.directories.run_dir.clone(),
            listeners,
            shares,
            identities,
            privileges,
        }
    }

    /// Makes the socket of a process anew where nobody can connect to it any more.
    pub(crate) fn repair_socket(&mut self, process: Process) -> io::Result<bool> {
        self.listeners.repair(process)
    }

    /// Has the next run of each process see the files that this configuration names.
    pub(crate) fn renew_mounts(&mut self, config: &NodeConfig) {
        self.shares.namespaces.renew_mounts(config);
    }

    /// Whose next run sees those of an earlier configuration, for people.
    pub(crate) fn outdated_mounts(&self) -> Vec<String> {
        self.shares.namespaces.outdated().cloned().collect()
    }

    /// The cgroups of the processes.
    pub(crate) fn cgroups(&self) -> &Cgroups {
        &self.shares.cgroups
    }

    /// See [`Cgroups::keep`].
    pub(crate) fn keep_in_cgroups(&mut self, running: &[(Process, i32)]) -> BTreeSet<Process> {
        self.shares.cgroups.keep(running)
    }

    pub(crate) fn identities(&self) -> &Identities {
        &self.identities
    }

    /// Starts `process`. To be called from the main thread only: its children
    /// die with the thread that started them.
    pub(crate) fn launch(
        &mut self,
        process: Process,
        settings: &ProcessSettings,
        log: &LogPipe,
        notify_socket: &Path,
    ) -> Result<Pid, SpawnError> {
        let binary = self.bin_dir.join(process.name());
        let entrances = self.shares.cgroups.prepare(process);
        let cgroups: Vec<_> = entrances.files().map(AsFd::as_fd).collect();
        let listener = self
            .listeners
            .get(process)
            .map_err(|source| SpawnError::Descriptors {
                binary: binary.clone(),
                source,
            })?;
        let config = node_config_path(&self.run_dir, process);
        let uid = self.identities.uid(process);
        confine::spawn(&Launch {
            binary: &binary,
            arguments: &[process::NODE_CONFIG_FLAG.into(), config.into()],
            environment: &environment(process, notify_socket, settings, std::env::var_os),
            uid,
            gid: self.identities.gid(process),
            capabilities: self.privileges.of(process),
            open_files: settings.open_files,
            cgroups: &cgroups,
            namespaces: self.shares.namespaces.for_run(process),
            oom_score: Some(self.shares.oom_scores.of(process)),
            listeners: &[(process.name(), listener.as_fd())],
            output: log.writer(),
        })
    }
}

/// What `process` gets, and of it what `own` has: the supervisor's variables.
fn environment(
    process: Process,
    notify_socket: &Path,
    settings: &ProcessSettings,
    own: impl Fn(&'static str) -> Option<OsString>,
) -> Vec<(OsString, OsString)> {
    let watchdog = WATCHDOG_SILENCE.as_micros().to_string();
    let mut variables: Vec<(OsString, OsString)> = vec![
        ("NOTIFY_SOCKET".into(), notify_socket.into()),
        ("WATCHDOG_USEC".into(), watchdog.into()),
    ];
    let constant = |(name, value): (&str, &str)| (name.into(), value.into());
    variables.extend(ALLOCATOR_VARIABLES.map(constant));
    for &name in INHERITED_VARIABLES.iter().chain(row(process).environment) {
        variables.extend(own(name).map(|value| (name.into(), value)));
    }
    if let Some(filter) = &settings.log_filter {
        // The last one counts.
        variables.push((telemetry::LEVEL_VARIABLE.into(), filter.into()));
    }
    variables
}

/// The user's name for the status table.
pub(crate) fn user_name(config: &NodeConfig, identities: &Identities, process: Process) -> String {
    let row = row(process);
    if row.root {
        "root".to_owned()
    } else if config.uid_base.is_some() {
        identities.uid(process).to_string()
    } else {
        row.user.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_speaks_tls_is_told_whom_to_trust() {
        let settings = ProcessSettings::default();
        let names = |process| -> Vec<String> {
            let own = |name: &str| Some(OsString::from(format!("value of {name}")));
            environment(process, Path::new("/n"), &settings, own)
                .into_iter()
                .map(|(name, _)| name.to_string_lossy().into_owned())
                .collect()
        };
        for process in Process::ALL {
            let names = names(process);
            for name in ["SSL_CERT_FILE", "SSL_CERT_DIR"] {
                let told = names.iter().any(|other| other == name);
                let speaks = [Process::ConfigSourcer, Process::CredentialProvider];
                assert_eq!(told, speaks.contains(&process), "{process} {name}");
            }
            assert!(names.iter().any(|name| name == "RUST_BACKTRACE"));
        }
        let none = environment(Process::ConfigSourcer, Path::new("/n"), &settings, |_| None);
        assert!(none.iter().all(|(name, _)| name != "SSL_CERT_FILE"));
    }
}
