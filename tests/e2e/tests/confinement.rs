//! What confines the running processes, as the kernel tells it, against the topology.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result};
use confine::CapabilitySet;
use e2e::Ground;
use serde_json::json;
use topology::{Identities, Namespace, Need, PROCESSES, Process, row};

/// Variables that a process may have: those of all, and of who speaks TLS.
const VARIABLES: [&str; 11] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PID",
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "BULKHEAD_LOG",
    "BULKHEAD_LOG_FORMAT",
    "RUST_BACKTRACE",
];
const AUTHORITIES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// A line of `/proc/PID/status`, with single spaces.
fn field(status: &str, name: &str) -> Result<String> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|line| line.strip_prefix(':'));
    let words = value.with_context(|| format!("no {name}"))?;
    Ok(words.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The filters of its own, and those of the supervisor that started it.
fn filters(process: Process) -> u32 {
    let of = |process| {
        if row(process).needs(Need::Programs) {
            1
        } else {
            2
        }
    };
    let own = of(process);
    if process == Process::Supervisor {
        own
    } else {
        own + of(Process::Supervisor)
    }
}

fn capabilities(process: Process) -> Result<CapabilitySet> {
    let set = |process| {
        let names = row(process).capabilities.iter().map(|(name, _)| *name);
        CapabilitySet::of(names)
    };
    let mut wanted = set(process)?;
    if process == Process::Supervisor {
        // It keeps what it hands down.
        for row in PROCESSES {
            wanted = wanted.union(set(row.process)?);
        }
    }
    Ok(wanted.intersection(CapabilitySet::available()?))
}

#[test]
fn each_process_has_namespaces_of_its_own_as_the_topology_says() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let pids = ground.bulkhead.pids()?;
    assert_eq!(pids.len(), Process::ON_EVERY_NODE.len());
    for shown in ground.bulkhead.processes()? {
        let process: Process = shown.name.parse()?;
        for kind in Namespace::ALL {
            let mut words = shown.confinement.split(", ");
            let is_shown = words.any(|word| word == kind.file_name());
            let expected = row(process).namespaces.contains(&kind);
            assert_eq!(is_shown, expected, "{process} {}", shown.confinement);
        }
    }
    for kind in Namespace::ALL {
        let of = |pid: &u32| fs::read_link(format!("/proc/{pid}/ns/{}", kind.file_name()));
        let nodes = pids.get(&Process::Supervisor);
        let nodes = of(nodes.context("no supervisor")?)?;
        let mut seen = BTreeSet::new();
        for (process, pid) in &pids {
            let found = of(pid)?;
            if row(*process).namespaces.contains(&kind) {
                assert_ne!(found, nodes, "{process} {kind:?}");
                assert!(seen.insert(found), "{process} shares its {kind:?}");
            } else {
                assert_eq!(found, nodes, "{process} {kind:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn the_kernel_confines_each_process_as_the_topology_says() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let identities = Identities::from_base(ground.bulkhead.uid_base())?;
    let pids = ground.bulkhead.pids()?;
    assert_eq!(pids.len(), Process::ON_EVERY_NODE.len());
    for (process, pid) in pids {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let (uid, gid) = (identities.uid(process), identities.gid(process));
        let kept = format!("{:016x}", capabilities(process)?.mask());
        let none = format!("{:016x}", 0);
        for (name, expected) in [
            ("Uid", format!("{uid} {uid} {uid} {uid}")),
            ("Gid", format!("{gid} {gid} {gid} {gid}")),
            ("CapPrm", kept.clone()),
            ("CapEff", kept.clone()),
            ("CapBnd", kept),
            ("NoNewPrivs", "1".to_owned()),
            ("Seccomp", "2".to_owned()),
            ("Seccomp_filters", filters(process).to_string()),
        ] {
            assert_eq!(field(&status, name)?, expected, "{process} {name}");
        }
        if !row(process).root {
            for name in ["CapInh", "CapAmb"] {
                assert_eq!(field(&status, name)?, none, "{process} {name}");
            }
        }
        let limits = fs::read_to_string(format!("/proc/{pid}/limits"))?;
        let core = limits.lines().find(|line| line.starts_with("Max core"));
        let core: Vec<_> = core.context("no limit")?.split_whitespace().collect();
        assert_eq!(core, ["Max", "core", "file", "size", "0", "0", "bytes"]);
        if process != Process::Supervisor {
            let environment = fs::read_to_string(format!("/proc/{pid}/environ"))?;
            let names = environment.split_terminator('\0');
            let names: BTreeSet<_> = names.filter_map(|it| it.split('=').next()).collect();
            let mut known: BTreeSet<_> = VARIABLES.into();
            if process == Process::ConfigSourcer {
                known.extend(AUTHORITIES);
            }
            assert!(names.is_subset(&known), "{process}: {names:?}");
        }
    }
    Ok(())
}
