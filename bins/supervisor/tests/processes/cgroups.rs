//! Running processes that somebody moves out of their cgroups.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use bulkhead_api::v1::SupervisorStatus;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::net::UnixDatagram;

use crate::node::{Node, all_ready, cgroups_of, not_tried, row, supervised};

/// In which of Bulkhead's cgroups each of these processes is, as `/proc` tells it.
fn memberships(pids: &[u32]) -> BTreeMap<u32, Vec<String>> {
    let of = |pid| {
        let all = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let ours = all.lines().filter(|line| line.contains("/bulkhead-"));
        ours.map(str::to_owned).collect()
    };
    pids.iter().map(|pid| (*pid, of(*pid))).collect()
}

/// A node whose supervisor tells its starter that it lives, and all its processes.
async fn node_below_a_starter() -> (Node, Vec<u32>) {
    let mut node = Node::prepare();
    let path = node.path("starter.notify");
    let starter = UnixDatagram::bind(&path).unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 512];
        while starter.recv(&mut buffer).await.is_ok() {}
    });
    node.start_with(|command| {
        command
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "2000000");
    })
    .await;
    let status = node.wait_for(all_ready).await;
    let pids = supervised().map(|process| row(&status, process).pid);
    let supervisor = u32::try_from(node.supervisor_pid().as_raw()).unwrap();
    let pids = pids.into_iter().chain([supervisor]).collect();
    (node, pids)
}

fn enter(cgroup: &Path, pid: u32) {
    fs::write(cgroup.join("cgroup.procs"), pid.to_string()).unwrap();
}

#[tokio::test]
async fn a_process_that_is_moved_to_another_cgroup_is_put_back() {
    let (node, pids) = node_below_a_starter().await;
    let before = memberships(&pids);
    let (first, second) = (pids[0], pids[1]);
    for cgroup in cgroups_of(second) {
        enter(&cgroup, first);
    }
    assert_ne!(memberships(&pids), before);
    node.until(|| memberships(&pids) == before).await;
    node.wait_for_log("moved out of their cgroups").await;
}

/// As systemd does with cgroups of version 1: see `Cgroups::keep`.
#[tokio::test]
async fn processes_whose_cgroups_systemd_removes_get_them_anew() {
    let (node, pids) = node_below_a_starter().await;
    let before = memberships(&pids);
    let mut lines = before.values().flatten();
    if lines.any(|line| line.starts_with("0::")) {
        // In version 2 it leaves delegated units alone.
        not_tried("cgroups that systemd removes: it does so in those of version 1 only");
        return;
    }
    let of_supervisor: BTreeSet<_> = cgroups_of(*pids.last().unwrap()).into_iter().collect();
    for cgroup in of_supervisor {
        let all = cgroup.parent().unwrap();
        for pid in &pids {
            enter(all.parent().unwrap(), *pid);
        }
        for below in fs::read_dir(all).unwrap().flatten() {
            if below.file_type().unwrap().is_dir() {
                fs::remove_dir(below.path()).unwrap();
            }
        }
        fs::remove_dir(all).unwrap();
    }
    assert!(memberships(&pids).values().all(Vec::is_empty));
    node.until(|| memberships(&pids) == before).await;
    // The next run of a process gets there too.
    let (process, killed) = (supervised().next().unwrap(), pids[0]);
    kill(
        Pid::from_raw(i32::try_from(killed).unwrap()),
        Signal::SIGKILL,
    )
    .unwrap();
    let is_back =
        |status: &SupervisorStatus| row(status, process).pid != killed && all_ready(status);
    let pid = row(&node.wait_for(is_back).await, process).pid;
    assert_eq!(memberships(&[pid])[&pid], before[&killed]);
}
