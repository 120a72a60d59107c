//! What the running processes hold open, against what the topology lists for each. A
//! process may open more for a moment than is seen here; what it holds is always seen.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use nix::sys::stat::fstat;
use node_config::{NODE_CONFIG_FILE, NodeConfig};
use serde_json::json;
use test_support::{ManifestServer, images, wait_for};
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

/// Looks all the time while a pod starts, runs and ends. The prober looks up a name for it,
/// and connects to a port of the node.
fn while_a_pod_lives(ground: &Ground, look: &mut dyn FnMut()) -> Result<()> {
    let server = ManifestServer::start(ground.bulkhead.node(), 200, "fine")?;
    let url = server.url();
    let authority = url.split('/').nth(2).context("no authority")?;
    let port = authority.rsplit(':').next().context("no port")?;
    let port: u16 = port.parse()?;
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
                "startupProbe": {
                    "tcpSocket": {"host": "localhost", "port": port}, "periodSeconds": 1,
                },
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
    Ok(())
}

/// The sockets that `pid` holds with which it listens in its network: for connections, or
/// for datagrams of anybody.
fn listening(pid: u32) -> BTreeSet<String> {
    let directory = PathBuf::from(format!("/proc/{pid}"));
    let entries = fs::read_dir(directory.join("fd")).into_iter().flatten();
    let socket = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?;
        Some(inode.trim_end_matches(']').to_owned())
    };
    let held: BTreeSet<String> = entries.flatten().filter_map(socket).collect();
    let mut found = BTreeSet::new();
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let table = directory.join("net").join(table);
        for line in fs::read_to_string(table).unwrap_or_default().lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (Some(remote), Some(inode)) = (fields.get(2), fields.get(9)) else {
                continue;
            };
            // Who is connected to has a port.
            if remote.ends_with(":0000") && held.contains(*inode) {
                found.insert((*inode).to_owned());
            }
        }
    }
    found
}

#[test]
fn no_process_listens_on_tcp_or_udp() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let pids = ground.bulkhead.pids()?;
    assert_eq!(pids.len(), Process::ON_EVERY_NODE.len());
    let mut seen = BTreeSet::new();
    let mut look = || {
        for (&process, &pid) in &pids {
            // Twice: a socket has no peer yet for a moment while it is connected.
            if !listening(pid).is_disjoint(&listening(pid)) {
                seen.insert(process);
            }
        }
    };
    while_a_pod_lives(&ground, &mut look)?;
    look();
    assert_eq!(ground.bulkhead.pids()?, pids, "nothing was restarted");
    assert!(seen.is_empty(), "{seen:?}");
    Ok(())
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
    while_a_pod_lives(&ground, &mut look)?;
    look();
    assert_eq!(ground.bulkhead.pids()?, pids, "nothing was restarted");

    let unlisted: Vec<&Held> = seen
        .iter()
        .filter(|held| !is_listed(&config, held))
        .collect();
    assert!(unlisted.is_empty(), "{unlisted:#?}");
    // The looks see what there is: the lock is held all the time, to write.
    let lock = ground.bulkhead.paths().run.join("supervisor.lock");
    let lock = Held {
        process: Process::Supervisor,
        path: fs::canonicalize(&lock).with_context(|| lock.display().to_string())?,
        access: Access::Write,
    };
    assert!(seen.contains(&lock), "{seen:#?}");
    // And what is another's alone is not listed.
    let of_another = Held {
        process: Process::Pleg,
        path: config.policy_path.clone(),
        access: Access::Read,
    };
    assert!(!is_listed(&config, &of_another));
    Ok(())
}

/// Else the looks at the processes prove nothing.
#[test]
fn whoever_listens_is_seen_and_whoever_is_connected_is_not() -> Result<()> {
    let anywhere = (Ipv4Addr::LOCALHOST, 0);
    let (stream, datagrams) = (TcpListener::bind(anywhere)?, UdpSocket::bind(anywhere)?);
    let connected = TcpStream::connect(stream.local_addr()?)?;
    let asking = UdpSocket::bind(anywhere)?;
    asking.connect(datagrams.local_addr()?)?;
    let found = listening(std::process::id());
    for (socket, listens) in [
        (stream.as_fd(), true),
        (datagrams.as_fd(), true),
        (connected.as_fd(), false),
        (asking.as_fd(), false),
    ] {
        let inode = fstat(socket)?.st_ino.to_string();
        assert_eq!(found.contains(&inode), listens, "{socket:?}");
    }
    Ok(())
}
