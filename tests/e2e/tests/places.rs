//! What the running processes hold open, against what the topology lists for each. A
//! process may open more for a moment than is seen here; what it holds is always seen.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use node_config::{NODE_CONFIG_FILE, NodeConfig};
use serde_json::json;
use test_support::{images, wait_for};
use topology::{Access, Process};

/// What the supervisor opens to start a process: its standard input.
const NOTHING: &str = "/dev/null";

/// Standard input, output and error come from whoever started the process.
const GIVEN: [&str; 3] = ["0", "1", "2"];

/// A file that a process holds open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    process: Process,
    path: PathBuf,
    access: Access,
}

/// What `pid` has opened that has a path: no sockets, pipes and the like.
fn held(process: Process, pid: u32) -> Vec<Held> {
    let directory = PathBuf::from(format!("/proc/{pid}"));
    // What is closed while this looks, or whose process ended, is not held.
    let entries = fs::read_dir(directory.join("fd")).into_iter().flatten();
    let entry = |entry: fs::DirEntry| {
        if GIVEN.iter().any(|given| entry.file_name() == *given) {
            return None;
        }
        let target = fs::read_link(entry.path()).ok()?;
        let info = directory.join("fdinfo").join(entry.file_name());
        let info = fs::read_to_string(info).ok()?;
        let path = target.to_str()?.trim_end_matches(" (deleted)");
        if path == "/" && is_of_gone_mount(&directory, &info) {
            return None;
        }
        (path.starts_with('/') && !path.starts_with("/memfd:")).then(|| Held {
            process,
            path: PathBuf::from(path),
            access: access(&info),
        })
    };
    entries.flatten().filter_map(entry).collect()
}

/// Whether it leads into a mount that was unmounted meanwhile, as that of a volume in
/// memory is at the end of its pod: the top of such a mount is shown as `/`.
fn is_of_gone_mount(directory: &Path, info: &str) -> bool {
    let mounts = fs::read_to_string(directory.join("mountinfo")).unwrap_or_default();
    let mount = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let mount = mount.map(str::trim);
    let mut there = mounts.lines().map(|line| line.split(' ').next());
    mount.is_some() && !mounts.is_empty() && !there.any(|there| there == mount)
}

/// How a descriptor was opened, by its `fdinfo`.
fn access(info: &str) -> Access {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    // O_ACCMODE: 0 is O_RDONLY. What cannot be read counts as the worst.
    match flags.map(|flags| flags & 0o3) {
        Some(0) => Access::Read,
        _ => Access::Write,
    }
}

fn is_listed(config: &NodeConfig, held: &Held) -> bool {
    held.path == Path::new(NOTHING)
        || node_config::may_open(config, held.process, &held.path, held.access)
}

#[test]
fn what_a_process_holds_open_is_in_its_row_of_the_topology() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let config = NodeConfig::read(&ground.bulkhead.paths().run.join(NODE_CONFIG_FILE))?;
    let pids = ground.bulkhead.pids()?;
    assert_eq!(pids.len(), Process::ON_EVERY_NODE.len());
    let mut seen = BTreeSet::new();
    let mut look = || {
        for (&process, &pid) in &pids {
            seen.extend(held(process, pid));
        }
    };
    let script = "for i in $(seq 1 200); do echo $i; done; sleep 1000";
    ground.apply(
        "writer",
        json!({
            "containers": [{
                "name": "app", "image": images::BUSYBOX, "command": ["sh", "-c", script],
                "volumeMounts": [
                    {"name": "disk", "mountPath": "/disk"},
                    {"name": "memory", "mountPath": "/memory"},
                ],
                "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
            }],
            "volumes": [
                {"name": "disk", "emptyDir": {}},
                {"name": "memory", "emptyDir": {"medium": "Memory"}},
            ],
        }),
    )?;
    wait_for("the pod", TIMEOUT, || {
        look();
        let pod = ground
            .bulkhead
            .pod("writer")
            .map_err(|error| format!("{error:#}"))?;
        let pod = pod.ok_or("there is none")?;
        match test_support::observe::condition(&pod, "Ready") {
            Some(true) => Ok(()),
            other => Err(format!("ready: {other:?}")),
        }
    })?;
    ground.bulkhead.remove_manifest("writer.json")?;
    wait_for("the end of the pod", TIMEOUT, || {
        look();
        match ground.bulkhead.pod("writer") {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err("it is there".to_owned()),
            Err(error) => Err(format!("{error:#}")),
        }
    })?;
    look();
    assert_eq!(ground.bulkhead.pids()?, pids, "nothing was restarted");

    let unlisted: Vec<&Held> = seen
        .iter()
        .filter(|held| !is_listed(&config, held))
        .collect();
    assert!(unlisted.is_empty(), "{unlisted:#?}");
    // The looks see what there is: logs are held all the time, to write.
    let log = ground.bulkhead.paths().log.join("bulkhead/pleg.log");
    let mut log = Held {
        process: Process::Supervisor,
        path: fs::canonicalize(&log).with_context(|| log.display().to_string())?,
        access: Access::Write,
    };
    assert!(seen.contains(&log), "{seen:#?}");
    // And what another process holds is not listed for it.
    log.process = Process::Pleg;
    assert!(!is_listed(&config, &log));
    Ok(())
}
