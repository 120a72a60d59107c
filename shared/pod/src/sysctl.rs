//! Kernel settings of a pod (`securityContext.sysctls`): their names, which namespaces
//! they belong to, and which are safe.

/// The namespace that a kernel setting belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SysctlNamespace {
    /// System V IPC and message queues.
    Ipc,
    /// The network.
    Net,
}

impl SysctlNamespace {
    /// The kubelet's word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            SysctlNamespace::Ipc => "ipc",
            SysctlNamespace::Net => "net",
        }
    }

    /// That of a setting with this dotted name, or of all that begin with it; `None`
    /// when the kernel has it once for the whole machine.
    #[must_use]
    pub fn of(name: &str) -> Option<SysctlNamespace> {
        let is_ipc = IPC.iter().any(|beginning| name.starts_with(beginning));
        if name == "kernel.sem" || is_ipc {
            return Some(SysctlNamespace::Ipc);
        }
        name.starts_with("net.").then_some(SysctlNamespace::Net)
    }
}

/// What names of settings of the IPC namespace begin with.
const IPC: [&str; 3] = ["kernel.shm", "kernel.msg", "fs.mqueue."];

/// Settings that concern their pod alone, with the first kernel version that has them
/// for each namespace, where a kubelet asks for one. As of Kubernetes 1.37.
const SAFE: [(&str, Option<KernelVersion>); 12] = [
    ("kernel.shm_rmid_forced", None),
    ("net.ipv4.ip_local_port_range", None),
    (
        "net.ipv4.ip_local_reserved_ports",
        Some(KernelVersion(3, 16)),
    ),
    ("net.ipv4.ip_unprivileged_port_start", None),
    ("net.ipv4.ping_group_range", None),
    ("net.ipv4.tcp_fin_timeout", Some(KernelVersion(4, 6))),
    ("net.ipv4.tcp_keepalive_intvl", Some(KernelVersion(4, 5))),
    ("net.ipv4.tcp_keepalive_probes", Some(KernelVersion(4, 5))),
    ("net.ipv4.tcp_keepalive_time", Some(KernelVersion(4, 5))),
    ("net.ipv4.tcp_rmem", Some(KernelVersion(4, 15))),
    ("net.ipv4.tcp_syncookies", None),
    ("net.ipv4.tcp_wmem", Some(KernelVersion(4, 15))),
];

/// Version of a Linux kernel: what it was released as, without corrections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion(pub u32, pub u32);

impl KernelVersion {
    /// From what uname(2) calls the release: `6.1.0-18-amd64`.
    #[must_use]
    pub fn parse(release: &str) -> Option<KernelVersion> {
        let mut numbers = release
            .split(|character: char| !character.is_ascii_digit())
            .map(|number| number.parse::<u32>().ok());
        Some(KernelVersion(numbers.next()??, numbers.next()??))
    }
}

/// Whether a setting with this dotted name is safe on this kernel: one of which nobody
/// knows the version has only those that every kernel has.
#[must_use]
pub fn is_safe(name: &str, kernel: Option<KernelVersion>) -> bool {
    SAFE.iter().any(|(safe, since)| match since {
        None => *safe == name,
        Some(since) => *safe == name && kernel.is_some_and(|kernel| kernel >= *since),
    })
}

/// A name with dots. As in sysctl(8), the first separator tells how it is written: of
/// `net/ipv4/conf/eth0.1/rp_filter` the slashes separate, and the dot is part of a name.
#[must_use]
pub fn dotted(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name[at..].starts_with('/') => name
            .chars()
            .map(|character| match character {
                '/' => '.',
                '.' => '/',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_belong_to_the_namespaces_that_the_kernel_gives_them() {
        for (name, expected) in [
            ("kernel.sem", Some(SysctlNamespace::Ipc)),
            ("kernel.semaphore", None),
            ("kernel.shmmax", Some(SysctlNamespace::Ipc)),
            ("kernel.msg", Some(SysctlNamespace::Ipc)),
            ("fs.mqueue.msg_max", Some(SysctlNamespace::Ipc)),
            ("net.core.somaxconn", Some(SysctlNamespace::Net)),
            ("net", None),
            ("vm.swappiness", None),
            ("kernel.panic", None),
        ] {
            assert_eq!(SysctlNamespace::of(name), expected, "{name}");
        }
        for (safe, _) in SAFE {
            assert!(SysctlNamespace::of(safe).is_some(), "{safe}");
        }
    }

    #[test]
    fn a_safe_setting_needs_a_kernel_that_has_it_for_each_namespace() {
        let old = KernelVersion::parse("4.4.0-210-generic");
        let new = KernelVersion::parse("6.1.0-18-amd64");
        for (name, kernel, expected) in [
            ("net.ipv4.tcp_syncookies", None, true),
            ("net.ipv4.tcp_rmem", new, true),
            ("net.ipv4.tcp_rmem", old, false),
            ("net.ipv4.tcp_rmem", None, false),
            ("net.ipv4.ip_local_reserved_ports", old, true),
            ("net.core.somaxconn", new, false),
        ] {
            assert_eq!(is_safe(name, kernel), expected, "{name} {kernel:?}");
        }
    }

    #[test]
    fn a_kernels_version_is_the_beginning_of_its_release() {
        for (release, expected) in [
            ("6.18.44-fc", Some(KernelVersion(6, 18))),
            ("5.4", Some(KernelVersion(5, 4))),
            ("4.15-rc1", Some(KernelVersion(4, 15))),
            ("6", None),
            ("", None),
            ("v6.1", None),
            ("99999999999.1", None),
        ] {
            assert_eq!(KernelVersion::parse(release), expected, "{release}");
        }
        assert!(KernelVersion(4, 15) > KernelVersion(4, 6));
    }

    #[test]
    fn the_first_separator_tells_how_a_name_is_written() {
        for (name, expected) in [
            ("net.core.somaxconn", "net.core.somaxconn"),
            ("net/core/somaxconn", "net.core.somaxconn"),
            (
                "net/ipv4/conf/eth0.1/rp_filter",
                "net.ipv4.conf.eth0/1.rp_filter",
            ),
            (
                "net.ipv4.conf.eth0/1.rp_filter",
                "net.ipv4.conf.eth0/1.rp_filter",
            ),
            ("plain", "plain"),
        ] {
            assert_eq!(dotted(name), expected, "{name}");
        }
    }
}
