//! The levels of the Pod Security Standards and what each of them allows.
//!
//! <https://kubernetes.io/docs/concepts/security/pod-security-standards/>, as of
//! Kubernetes 1.37. Tests hold a table of it against [`Level::allows`].

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::demand::{Demand, SeLinuxOption};

/// A level of the Pod Security Standards. A greater one allows more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// What hardened pods need.
    Restricted,
    /// What ordinary pods need.
    Baseline,
    /// Everything but what is protected ([`Protected`](crate::Protected)).
    Privileged,
}

/// Capabilities that a container may add under `baseline`.
const BASELINE_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Sysctls that concern the pod alone.
const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// SELinux types of containers.
const SELINUX_TYPES: [&str; 4] = [
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
];

impl Level {
    /// Whether pods of this level may have it without a grant.
    #[must_use]
    pub fn allows(self, demand: &Demand) -> bool {
        self >= lowest_level(demand)
    }

    /// The word in policy files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Restricted => "restricted",
            Level::Baseline => "baseline",
            Level::Privileged => "privileged",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The strictest level that allows it.
fn lowest_level(demand: &Demand) -> Level {
    match demand {
        Demand::HostNetwork
        | Demand::HostPid
        | Demand::HostIpc
        | Demand::WindowsHostProcess
        | Demand::Privileged
        | Demand::HostPath { .. }
        | Demand::HostPort(_)
        | Demand::Device { .. }
        | Demand::SeccompUnconfined
        | Demand::AppArmorUnconfined
        | Demand::UnmaskedProc
        | Demand::ProbeHost(_)
        | Demand::Exec => Level::Privileged,
        Demand::Capability(name) if name == "NET_BIND_SERVICE" => Level::Restricted,
        Demand::Capability(name) if BASELINE_CAPABILITIES.contains(&name.as_str()) => {
            Level::Baseline
        }
        Demand::Sysctl(name) if SAFE_SYSCTLS.contains(&name.as_str()) => Level::Restricted,
        Demand::SeLinux(SeLinuxOption::Type, value) if SELINUX_TYPES.contains(&value.as_str()) => {
            Level::Restricted
        }
        Demand::Capability(_) | Demand::Sysctl(_) | Demand::SeLinux(..) => Level::Privileged,
        Demand::User(0) => Level::Baseline,
        Demand::User(_) | Demand::Group(_) => Level::Restricted,
        Demand::DefaultCapabilities
        | Demand::MayRunAsRoot
        | Demand::PrivilegeEscalation
        | Demand::SeccompUnset
        | Demand::UnmaskedProcOfOwnUsers
        | Demand::VolumeKind(_) => Level::Baseline,
    }
}
