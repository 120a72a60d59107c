//! The names of the processes.

use std::fmt;
use std::str::FromStr;

/// A process of Bulkhead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Process {
    /// Starts, watches and restarts the others.
    Supervisor,
    /// One worker per pod; the only one that talks to the container runtime.
    PodWorkerPool,
    /// Pods from files and HTTP, merged.
    ConfigSourcer,
    /// Compares runtime states, emits pod lifecycle events.
    Pleg,
    /// Liveness, readiness and startup probes.
    Prober,
    /// Observations to PodStatus.
    StatusSyncer,
    /// The dispatcher.
    SyncLoop,
    /// Asks programs of the node for credentials of registries.
    CredentialProvider,
    /// The only one that talks to the API server.
    ApiGateway,
    /// What the node serves over the network: logs, sessions, statistics.
    NodeApi,
}

/// File name, below `<run-dir>`, of what the machine does not give the services of the bundle,
/// one a line.
pub const MACHINE_LACKS_FILE_NAME: &str = "machine-lacks";

/// Connections to a process that queue while it is down or starts.
pub const SOCKET_BACKLOG: u32 = 1024;

impl Process {
    /// Those that every node runs, in the order in which the supervisor starts them.
    pub const ON_EVERY_NODE: [Process; 7] = [
        Process::Supervisor,
        Process::PodWorkerPool,
        Process::StatusSyncer,
        Process::Pleg,
        Process::Prober,
        Process::ConfigSourcer,
        Process::SyncLoop,
    ];

    /// All of them, in the order in which the supervisor starts them: those of every node,
    /// credential-provider where the node's configuration names any program for it,
    /// api-gateway where it names an API server, and node-api where that says who may do what.
    pub const ALL: [Process; 10] = [
        Process::Supervisor,
        Process::PodWorkerPool,
        Process::StatusSyncer,
        Process::Pleg,
        Process::Prober,
        Process::ConfigSourcer,
        Process::SyncLoop,
        Process::CredentialProvider,
        Process::ApiGateway,
        Process::NodeApi,
    ];

    /// Name of the process, its binary, its socket and its state directory.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Process::Supervisor => "supervisor",
            Process::PodWorkerPool => "pod-worker-pool",
            Process::ConfigSourcer => "config-sourcer",
            Process::Pleg => "pleg",
            Process::Prober => "prober",
            Process::StatusSyncer => "status-syncer",
            Process::SyncLoop => "sync-loop",
            Process::CredentialProvider => "credential-provider",
            Process::ApiGateway => "api-gateway",
            Process::NodeApi => "node-api",
        }
    }

    /// File name of the socket that it serves, below `<run-dir>`.
    #[must_use]
    pub fn socket_file_name(self) -> String {
        format!("{}.sock", self.name())
    }
}

impl fmt::Display for Process {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// There is no process of this name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no process is called {0:?}; there are {names}", names = Process::ALL.map(Process::name).join(", "))]
pub struct UnknownProcess(pub String);

impl FromStr for Process {
    type Err = UnknownProcess;

    fn from_str(name: &str) -> Result<Process, UnknownProcess> {
        Process::ALL
            .into_iter()
            .find(|process| process.name() == name)
            .ok_or_else(|| UnknownProcess(name.to_owned()))
    }
}
