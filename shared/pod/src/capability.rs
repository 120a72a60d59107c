//! Capabilities that a container adds and drops (`securityContext.capabilities`): their
//! names, and the ways to write one.

/// The word for all of them.
pub const ALL: &str = "ALL";

/// The names of Linux (capabilities(7), up to 6.12) without `CAP_`, in the order of their
/// numbers.
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// A name in capitals and without `CAP_`: the one way to write it that every runtime
/// understands.
#[must_use]
pub fn plain_name(name: &str) -> String {
    let name = name.to_ascii_uppercase();
    name.strip_prefix("CAP_").map(str::to_owned).unwrap_or(name)
}

/// The plain name of a capability of Linux, or [`ALL`]; `None` where it is neither.
#[must_use]
pub fn known(name: &str) -> Option<String> {
    let plain = plain_name(name);
    (plain == ALL || NAMES.contains(&plain.as_str())).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_is_known_in_every_spelling_and_nothing_else_is_one() {
        for (name, expected) in [
            ("NET_RAW", Some("NET_RAW")),
            ("CAP_NET_RAW", Some("NET_RAW")),
            ("net_raw", Some("NET_RAW")),
            ("cap_net_raw", Some("NET_RAW")),
            ("Cap_Net_Raw", Some("NET_RAW")),
            ("CHECKPOINT_RESTORE", Some("CHECKPOINT_RESTORE")),
            ("ALL", Some(ALL)),
            ("all", Some(ALL)),
            ("CAP_ALL", Some(ALL)),
            ("NET_ROW", None),
            ("CAP_CAP_NET_RAW", None),
            ("CAP_", None),
            ("", None),
            (" NET_RAW", None),
            ("NET-RAW", None),
            // Capitals of these letters are those of ASCII, but only in Unicode.
            ("\u{17f}yslog", None),
        ] {
            assert_eq!(known(name).as_deref(), expected, "{name:?}");
        }
    }
}
