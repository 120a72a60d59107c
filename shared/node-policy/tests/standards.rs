//! The Pod Security Standards as a table: which level allows what.
//! <https://kubernetes.io/docs/concepts/security/pod-security-standards/>

use node_policy::{Demand, Level, SeLinuxOption};

const NOBODY: [bool; 3] = [false, false, true];
const ORDINARY: [bool; 3] = [false, true, true];
const ALL: [bool; 3] = [true, true, true];

fn text(value: &str) -> String {
    value.to_owned()
}

fn path() -> Demand {
    Demand::HostPath {
        path: text("/srv"),
        read_only: true,
    }
}

#[test]
fn each_level_allows_what_the_standards_say() {
    let capability = |name: &str| Demand::Capability(text(name));
    let selinux = |option, value: &str| Demand::SeLinux(option, text(value));
    let table = [
        // Baseline: HostProcess, Host Namespaces, Privileged Containers.
        (Demand::WindowsHostProcess, NOBODY),
        (Demand::HostNetwork, NOBODY),
        (Demand::HostPid, NOBODY),
        (Demand::HostIpc, NOBODY),
        (Demand::Privileged, NOBODY),
        // Baseline: Capabilities; restricted: NET_BIND_SERVICE alone, ALL dropped.
        (capability("ALL"), NOBODY),
        (capability("NET_ADMIN"), NOBODY),
        (capability("NET_RAW"), NOBODY),
        (capability("SYS_ADMIN"), NOBODY),
        (capability("AUDIT_WRITE"), ORDINARY),
        (capability("CHOWN"), ORDINARY),
        (capability("DAC_OVERRIDE"), ORDINARY),
        (capability("FOWNER"), ORDINARY),
        (capability("FSETID"), ORDINARY),
        (capability("KILL"), ORDINARY),
        (capability("MKNOD"), ORDINARY),
        (capability("SETFCAP"), ORDINARY),
        (capability("SETGID"), ORDINARY),
        (capability("SETPCAP"), ORDINARY),
        (capability("SETUID"), ORDINARY),
        (capability("SYS_CHROOT"), ORDINARY),
        (capability("NET_BIND_SERVICE"), ALL),
        (Demand::DefaultCapabilities, ORDINARY),
        // Baseline: HostPath Volumes, Host Ports, Host Probes / Lifecycle Hooks.
        (path(), NOBODY),
        (Demand::HostPort(80), NOBODY),
        (Demand::ProbeHost(text("127.0.0.1")), NOBODY),
        // Not in the Standards: what people do in a pod that has any of that.
        (Demand::Exec, NOBODY),
        // Baseline: AppArmor, SELinux, /proc Mount Type.
        (Demand::AppArmorUnconfined, NOBODY),
        (selinux(SeLinuxOption::Type, "container_t"), ALL),
        (selinux(SeLinuxOption::Type, "container_init_t"), ALL),
        (selinux(SeLinuxOption::Type, "container_kvm_t"), ALL),
        (selinux(SeLinuxOption::Type, "container_engine_t"), ALL),
        (selinux(SeLinuxOption::Type, "spc_t"), NOBODY),
        (selinux(SeLinuxOption::User, "container_t"), NOBODY),
        (selinux(SeLinuxOption::Role, "r"), NOBODY),
        (Demand::UnmaskedProc, NOBODY),
        (Demand::UnmaskedProcOfOwnUsers, ORDINARY),
        // Seccomp: baseline forbids Unconfined, restricted wants a choice.
        (Demand::SeccompUnconfined, NOBODY),
        (Demand::SeccompUnset, ORDINARY),
        // Restricted: Volume Types, Privilege Escalation, Running as Non-root (user).
        (Demand::VolumeKind(text("nfs")), ORDINARY),
        (Demand::PrivilegeEscalation, ORDINARY),
        (Demand::MayRunAsRoot, ORDINARY),
        (Demand::User(0), ORDINARY),
        (Demand::User(1000), ALL),
        // Not in the Standards: any group is allowed, and no pod has a field for a
        // device of the node.
        (Demand::Group(0), ALL),
        (
            Demand::Device {
                path: text("/dev/fuse"),
                block: false,
            },
            NOBODY,
        ),
    ];
    for (demand, expected) in table {
        check(&demand, expected);
    }
}

#[test]
fn safe_sysctls_are_allowed_at_every_level() {
    for (demand, expected) in [
        (Demand::sysctl("kernel.shm_rmid_forced"), ALL),
        (Demand::sysctl("net.ipv4.ip_local_port_range"), ALL),
        (Demand::sysctl("net.ipv4.ip_unprivileged_port_start"), ALL),
        (Demand::sysctl("net.ipv4.tcp_syncookies"), ALL),
        (Demand::sysctl("net.ipv4.ping_group_range"), ALL),
        (Demand::sysctl("net.ipv4.ip_local_reserved_ports"), ALL),
        (Demand::sysctl("net.ipv4.tcp_keepalive_time"), ALL),
        (Demand::sysctl("net.ipv4.tcp_fin_timeout"), ALL),
        (Demand::sysctl("net.ipv4.tcp_keepalive_intvl"), ALL),
        (Demand::sysctl("net.ipv4.tcp_keepalive_probes"), ALL),
        (Demand::sysctl("net.ipv4.tcp_rmem"), ALL),
        (Demand::sysctl("net/ipv4/tcp_wmem"), ALL),
        (Demand::sysctl("kernel.msgmax"), NOBODY),
        (Demand::sysctl("net.ipv4.ip_forward"), NOBODY),
    ] {
        check(&demand, expected);
    }
}

fn check(demand: &Demand, expected: [bool; 3]) {
    let levels = [Level::Restricted, Level::Baseline, Level::Privileged];
    let allowed = levels.map(|level| level.allows(demand));
    assert_eq!(allowed, expected, "{demand:?}");
}
