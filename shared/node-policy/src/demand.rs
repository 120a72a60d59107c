//! What needs permission.

use std::fmt;

use pod::capability::plain_name;
use pod::sysctl::dotted;

/// One thing that a pod or container asks for. Whether it needs more than its level is
/// [`Permit::check`](crate::Permit::check)'s decision; so whoever lists demands, from a
/// pod or from a request to the container runtime, lists them all and knows no level.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Demand {
    /// The node's network namespace.
    HostNetwork,
    /// The node's process namespace.
    HostPid,
    /// The node's IPC namespace.
    HostIpc,
    /// A Windows container that is a process of the node.
    WindowsHostProcess,
    /// A privileged container: all capabilities, all devices, no profiles.
    Privileged,
    /// A capability that is added: the name in capitals without `CAP_`, or `ALL`. See
    /// [`Demand::capability`].
    Capability(String),
    /// The runtime's default capabilities are not all dropped.
    DefaultCapabilities,
    /// A path of the node, with all that is below and mounted below it.
    HostPath {
        /// As the pod or request has it.
        path: String,
        /// Whether the container can only read it.
        read_only: bool,
    },
    /// A port of the node. A pod in the node's network has all of them and does not
    /// ask for each.
    HostPort(u16),
    /// A device node of the node.
    Device {
        /// As the pod or request has it.
        path: String,
        /// Whether it is a block device: a disk.
        block: bool,
    },
    /// A sysctl of the pod's namespaces: its name with dots.
    Sysctl(String),
    /// A user that the container runs as: its number, from the pod or from the image.
    /// In a user namespace 0 is nobody on the node and is not asked for.
    User(i64),
    /// The container is not kept from running as root (`runAsNonRoot` is not true).
    /// Whoever knows the user asks for [`Demand::User`] instead.
    MayRunAsRoot,
    /// A group that the container's processes are in.
    Group(i64),
    /// The container's processes may gain privileges (no `no_new_privs`).
    PrivilegeEscalation,
    /// A seccomp profile that filters nothing, on request.
    SeccompUnconfined,
    /// No seccomp profile is chosen, so the node's default holds. The container runtime
    /// is then told `Unconfined` unless `seccompDefault` is set: whoever sees only that
    /// request must ask for this and not for [`Demand::SeccompUnconfined`].
    SeccompUnset,
    /// No AppArmor profile, on request.
    AppArmorUnconfined,
    /// An option of SELinux and its value, which is not empty.
    SeLinux(SeLinuxOption, String),
    /// A `/proc` without the usual masks.
    UnmaskedProc,
    /// The same in a pod with users of its own, whose root sees no more of it than other
    /// users of the node do.
    UnmaskedProcOfOwnUsers,
    /// A kind of volume that is not among those of `restricted`, by its field's name.
    /// hostPath volumes are [`Demand::HostPath`].
    VolumeKind(String),
    /// A host that a probe or hook is sent to instead of the pod.
    ProbeHost(String),
    /// Commands of people in a pod that is beyond `baseline`
    /// ([`Permit::is_beyond_baseline`](crate::Permit::is_beyond_baseline)), and connections to
    /// its ports where they are the node's. No pod asks for it: people do.
    Exec,
}

/// An option of SELinux that the Standards look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeLinuxOption {
    /// `type`.
    Type,
    /// `user`.
    User,
    /// `role`.
    Role,
}

impl Demand {
    /// An added capability, however its name is written.
    #[must_use]
    pub fn capability(name: &str) -> Demand {
        Demand::Capability(plain_name(name))
    }

    /// A sysctl, with dots or slashes.
    #[must_use]
    pub fn sysctl(name: &str) -> Demand {
        Demand::Sysctl(dotted(name))
    }
}

/// As the subject of "... is not allowed".
impl fmt::Display for Demand {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Demand::HostNetwork => formatter.write_str("the node's network (hostNetwork)"),
            Demand::HostPid => formatter.write_str("the node's processes (hostPID)"),
            Demand::HostIpc => formatter.write_str("the node's IPC (hostIPC)"),
            Demand::WindowsHostProcess => formatter.write_str("a Windows host process"),
            Demand::Privileged => formatter.write_str("a privileged container"),
            Demand::Capability(name) => write!(formatter, "adding the capability {name:?}"),
            Demand::DefaultCapabilities => {
                formatter.write_str("keeping the default capabilities (drop is not [\"ALL\"])")
            }
            Demand::HostPath { path, read_only } => {
                let way = if *read_only { "reading" } else { "writing" };
                write!(formatter, "{way} the node's path {path:?}")
            }
            Demand::HostPort(port) => write!(formatter, "the node's port {port}"),
            Demand::Device { path, block: true } => write!(formatter, "the disk {path:?}"),
            Demand::Device { path, block: false } => write!(formatter, "the device {path:?}"),
            Demand::Sysctl(name) => write!(formatter, "the sysctl {name:?}"),
            Demand::User(user) => write!(formatter, "running as user {user}"),
            Demand::MayRunAsRoot => {
                formatter.write_str("being able to run as root (runAsNonRoot is not true)")
            }
            Demand::Group(group) => write!(formatter, "running in group {group}"),
            Demand::PrivilegeEscalation => {
                formatter.write_str("gaining privileges (allowPrivilegeEscalation is not false)")
            }
            Demand::SeccompUnconfined => formatter.write_str("an unconfined seccomp profile"),
            Demand::SeccompUnset => formatter.write_str("no choice of a seccomp profile"),
            Demand::AppArmorUnconfined => formatter.write_str("an unconfined AppArmor profile"),
            Demand::SeLinux(option, value) => {
                let option = match option {
                    SeLinuxOption::Type => "type",
                    SeLinuxOption::User => "user",
                    SeLinuxOption::Role => "role",
                };
                write!(formatter, "the SELinux {option} {value:?}")
            }
            Demand::UnmaskedProc | Demand::UnmaskedProcOfOwnUsers => {
                formatter.write_str("an unmasked /proc (procMount)")
            }
            Demand::VolumeKind(kind) => write!(formatter, "a volume of kind {kind}"),
            Demand::ProbeHost(host) => write!(formatter, "a probe or hook sent to {host:?}"),
            Demand::Exec => formatter.write_str("a session with a pod that is beyond baseline"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_capability_are_the_same_demand() {
        for spelling in ["NET_ADMIN", "CAP_NET_ADMIN", "cap_net_admin", "net_admin"] {
            assert_eq!(
                Demand::capability(spelling),
                Demand::Capability("NET_ADMIN".to_owned())
            );
        }
    }
}
