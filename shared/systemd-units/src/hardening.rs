//! What systemd keeps from a process, beside what the process gives up by itself when it
//! seals itself: systemd.exec(5).

use node_config::egress::REFUSED_FROM_OUTSIDE;
use topology::{Hidden, Namespace, Need, Place, ProcessRow, Sight};

/// Settings that nobody of ours does without.
const EVERYBODY: &[(&str, &str)] = &[
    ("NoNewPrivileges", "yes"),
    ("RestrictNamespaces", "yes"),
    ("RestrictRealtime", "yes"),
    ("ProtectClock", "yes"),
    ("ProtectHostname", "yes"),
    ("LockPersonality", "yes"),
    ("SystemCallArchitectures", "native"),
    ("SystemCallErrorNumber", "EPERM"),
    ("KeyringMode", "private"),
];

/// Settings that give a process mounts of its own. Not for who mounts what pods see.
const OWN_MOUNTS: &[(&str, &str)] = &[
    ("ProtectSystem", "strict"),
    ("ProtectHome", "yes"),
    ("PrivateTmp", "yes"),
    ("PrivateDevices", "yes"),
    ("ProtectKernelTunables", "yes"),
    ("ProtectKernelModules", "yes"),
    ("ProtectKernelLogs", "yes"),
    ("ProtectControlGroups", "yes"),
    ("ProtectProc", "invisible"),
    ("ProcSubset", "pid"),
    ("PrivateMounts", "yes"),
    ("RemoveIPC", "yes"),
];

/// Where `/etc/resolv.conf` leads, by who writes it: systemd-resolved, NetworkManager,
/// resolvconf, ConnMan, netconfig. The directories, since files in them are replaced.
const RESOLVERS: [&str; 5] = [
    "/run/systemd/resolve",
    "/run/NetworkManager",
    "/run/resolvconf",
    "/run/connman",
    "/run/netconfig",
];

/// System calls with which a process seals itself (Landlock and seccomp); systemd 252 has
/// no name for the group.
const SEALING: &str = "landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp";

/// All settings of a process.
pub(crate) fn settings(row: &ProcessRow) -> Vec<(&'static str, String)> {
    let mut settings: Vec<(&'static str, String)> = Vec::new();
    let mut set = |name, value: &str| settings.push((name, value.to_owned()));
    let capabilities: Vec<&str> = row.capabilities.iter().map(|(it, _)| it.0).collect();
    let capabilities = capabilities.join(" ");
    if row.root {
        set("User", "root");
        // Root by number alone has none.
        set("SecureBits", "noroot noroot-locked");
        set("AmbientCapabilities", &capabilities);
    } else {
        set("User", row.user);
        set("Group", row.user);
    }
    set("CapabilityBoundingSet", &capabilities);
    for (name, value) in EVERYBODY {
        set(name, value);
    }
    if row.needs(Need::Mounts) {
        // It opens none: device nodes that volumes name are only looked at.
        set("DevicePolicy", "closed");
    } else {
        for (name, value) in OWN_MOUNTS {
            match (*name, row.sight) {
                // On the node's disk, without a bound.
                ("PrivateTmp", Sight::NodeBut(hidden)) => rooms(hidden, &mut set),
                _ => set(name, value),
            }
        }
        if row.sight == Sight::Listed {
            // It needs no room there, and what it had would have no bound.
            set("InaccessiblePaths", "/tmp /var/tmp -/dev/shm");
        }
        let state = format!("/var/lib/bulkhead/{}", row.process);
        set("ReadWritePaths", &state);
        // Who loads libraries loads none that it has written. systemd before 248 does not
        // know the word, which it says, and goes on.
        set("NoExecPaths", &state);
        // Sockets that everybody may connect to are there, such as the message bus's.
        set("TemporaryFileSystem", "/run:ro");
        set("BindReadOnlyPaths", "/run/bulkhead /run/systemd/notify");
        if row.needs(Need::Internet) {
            let resolvers = RESOLVERS.map(|it| format!("-{it}"));
            set("BindReadOnlyPaths", &resolvers.join(" "));
        }
        // Volumes have such bits, by which files belong to the pod's group. With it there is
        // no openat2(2), by which links are followed that stay in their directory.
        let follows = [Place::Manifests, Place::LocalObjects];
        if !row.opens.iter().any(|it| follows.contains(&it.place)) {
            set("RestrictSUIDSGID", "yes");
        }
    }
    set("RestrictAddressFamilies", families(row));
    if !row.needs(Need::Programs) {
        // What the programs are that it starts, nobody knows.
        set("MemoryDenyWriteExecute", "yes");
    }
    match (row.needs(Need::Internet), row.needs(Need::Programs)) {
        (false, _) => set("IPAddressDeny", "any"),
        (true, false) => set("IPAddressDeny", &refused_networks()),
        // The programs that it starts may ask metadata services for credentials.
        (true, true) => {}
    }
    for namespace in row.namespaces {
        let name = match namespace {
            Namespace::Network => "PrivateNetwork",
            // It comes with mounts of its own, for the queues of messages.
            Namespace::Ipc if row.needs(Need::Mounts) => continue,
            Namespace::Ipc => "PrivateIPC",
            // Set for more processes than have one that the supervisor makes.
            Namespace::Mount => continue,
        };
        set(name, "yes");
    }
    set("SystemCallFilter", &calls(row));
    set("SystemCallFilter", not_called(row));
    settings
}

/// Memory in place of directories where everybody may write.
fn rooms(hidden: &[Hidden], mut set: impl FnMut(&'static str, &str)) {
    for (path, bytes) in hidden.iter().filter_map(|it| Some((it.path, it.room?))) {
        let size = bytes >> 20;
        let options = format!("mode=1777,size={size}M,nr_inodes=4096,nosuid,nodev,noexec");
        set("TemporaryFileSystem", &format!("{path}:{options}"));
    }
}

/// What nobody of ours connects to, which here is said once more from outside, and what
/// shows that it is in force.
pub(crate) fn refused_networks() -> String {
    let mut networks = node_config::egress::refused_networks();
    networks.push((REFUSED_FROM_OUTSIDE.into(), 32));
    let networks: Vec<String> = networks
        .iter()
        .map(|(address, length)| format!("{address}/{length}"))
        .collect();
    networks.join(" ")
}

fn families(row: &ProcessRow) -> &'static str {
    match (row.needs(Need::Internet), row.needs(Need::Programs)) {
        (true, true) => "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
        (true, false) => "AF_UNIX AF_INET AF_INET6",
        (false, _) => "AF_UNIX",
    }
}

fn calls(row: &ProcessRow) -> String {
    let mounts = match row.needs(Need::Mounts) {
        true => " @mount",
        false => "",
    };
    format!("@system-service{mounts} {SEALING}")
}

fn not_called(row: &ProcessRow) -> &'static str {
    match row.root {
        true => "~@resources",
        false => "~@privileged @resources",
    }
}
