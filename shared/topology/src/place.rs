//! Places of the node's file system, by what they mean. Where they are, the node's
//! configuration says (`node-config`), since several nodes fit on one machine.

/// Something that a process opens by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The run directory: sockets of all processes, and the resolved configuration.
    RunDirectory,
    /// The process's own directory for what must survive a restart.
    OwnState,
    /// The programs of all processes.
    Programs,
    /// The files that an operator configures the node with, as the supervisor's command
    /// line names them.
    ConfigurationFiles,
    /// The file or directory with the manifests of static pods.
    Manifests,
    /// The directory with ConfigMaps and Secrets for static pods.
    LocalObjects,
    /// Certificates of the system's authorities.
    Authorities,
    /// What the C library reads to find the address of a name.
    NameResolution,
    /// The node policy.
    NodePolicy,
    /// The node's credentials of registries.
    PullCredentials,
    /// The programs that give credentials of registries.
    CredentialPrograms,
    /// The container runtime's socket.
    RuntimeSocket,
    /// The directories of all pods.
    PodDirectories,
    /// The logs of all pods, and the links to them.
    PodLogs,
    /// The hierarchies of control groups.
    Cgroups,
    /// The socket of the system's message bus.
    SystemBus,
    /// The configuration of logind.
    LoginManager,
    /// What the kernel tells of processes, mounts, memory and the machine.
    Kernel,
    /// The node's own resolver configuration and host names, for those of pods.
    NodeNames,
    /// What `hostPath` volumes of pods name, as the node policy permits.
    HostPaths,
}

impl Place {
    /// Its name in the documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Place::RunDirectory => "run directory",
            Place::OwnState => "own state directory",
            Place::Programs => "programs",
            Place::ConfigurationFiles => "configuration files",
            Place::Manifests => "manifests",
            Place::LocalObjects => "local objects",
            Place::Authorities => "certificate authorities",
            Place::NameResolution => "name resolution",
            Place::NodePolicy => "node policy",
            Place::PullCredentials => "pull credentials",
            Place::CredentialPrograms => "credential programs",
            Place::RuntimeSocket => "runtime's socket",
            Place::PodDirectories => "pod directories",
            Place::PodLogs => "pod logs",
            Place::Cgroups => "control groups",
            Place::SystemBus => "system bus",
            Place::LoginManager => "logind's configuration",
            Place::Kernel => "kernel",
            Place::NodeNames => "node's names",
            Place::HostPaths => "host paths",
        }
    }
}

/// What for a place is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// To read, list or run what is there.
    Read,
    /// To change it too. A socket that somebody connects to counts as changed.
    Write,
}

impl Access {
    /// Its name in the documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
        }
    }
}

/// A place that a process may open once it is sealed.
#[derive(Clone, Copy, Debug)]
pub struct PlaceRow {
    /// What.
    pub place: Place,
    /// How.
    pub access: Access,
    /// Why.
    pub reason: &'static str,
}
