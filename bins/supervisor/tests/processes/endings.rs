//! What a run of a process leaves behind does not outlive it: neither what it has
//! started nor the harm that it has done to its socket; and what it takes too much of
//! it takes from itself alone.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use bulkhead_api::v1;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use topology::Process;

use crate::node::{Node, PATIENCE, all_ready, came_back, exists, not_tried, row, supervised};

fn kill_hard(pid: u32) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
}

fn untouched(status: &v1::SupervisorStatus, but: Process) {
    for process in supervised().filter(|process| *process != but) {
        assert_eq!(row(status, process).restarts_total, 0, "{process}");
    }
}

#[tokio::test]
async fn a_child_that_left_session_and_group_is_gone_before_the_next_run() {
    let mut node = Node::prepare();
    node.behave(Process::Pleg, "escape");
    node.start().await;
    for _round in 0..3 {
        let status = node.wait_for(all_ready).await;
        let pid = row(&status, Process::Pleg).pid;
        let text = format!("{pid} escaped ");
        let escaped = node.last_number_logged(Process::Pleg, &text).await;
        // It is in a session of its own by then.
        node.until(|| session_of(escaped) == Some(escaped)).await;
        kill_hard(pid);
        node.wait_for(|status| came_back(status, Process::Pleg, pid))
            .await;
        assert!(!exists(escaped), "{escaped} lives beside the next run");
    }
}

#[tokio::test]
async fn what_a_killed_supervisor_leaves_is_gone_before_the_next_one_runs_its_processes() {
    let mut node = Node::prepare();
    node.behave(Process::Pleg, "escape");
    node.start().await;
    let status = node.wait_for(all_ready).await;
    let text = format!("{} escaped ", row(&status, Process::Pleg).pid);
    let escaped = node.last_number_logged(Process::Pleg, &text).await;
    node.until(|| session_of(escaped) == Some(escaped)).await;
    node.signal(Signal::SIGKILL);
    node.ended().await;
    node.start().await;
    node.wait_for(all_ready).await;
    assert!(!exists(escaped), "{escaped} lives beside the next run");
}

/// A cgroup whose processes do not end, whoever kills them: on version 1 the frozen ones
/// do not. It stands for a disk that hangs.
struct Ice(PathBuf);

impl Ice {
    fn around(pid: u32) -> Option<Ice> {
        let freezer = PathBuf::from("/sys/fs/cgroup/freezer");
        if !freezer.join("cgroup.procs").exists() {
            return None;
        }
        let ice = Ice(freezer.join(format!("bulkhead-test-ice-{pid}")));
        fs::create_dir(&ice.0).unwrap();
        fs::write(ice.0.join("cgroup.procs"), pid.to_string()).unwrap();
        fs::write(ice.0.join("freezer.state"), "FROZEN").unwrap();
        Some(ice)
    }

    fn melts(&self) {
        fs::write(self.0.join("freezer.state"), "THAWED").unwrap();
    }
}

impl Drop for Ice {
    fn drop(&mut self) {
        self.melts();
        let begun = std::time::Instant::now();
        while fs::remove_dir(&self.0).is_err() && begun.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
    }
}

#[tokio::test]
async fn what_does_not_end_delays_the_next_run_and_shows() {
    let mut node = Node::prepare();
    node.behave(Process::Pleg, "escape");
    node.start().await;
    let pid = row(&node.wait_for(all_ready).await, Process::Pleg).pid;
    let text = format!("{pid} escaped ");
    let escaped = node.last_number_logged(Process::Pleg, &text).await;
    let Some(ice) = Ice::around(escaped) else {
        not_tried("a killed process that does not end: only cgroups of version 1 keep one from it");
        return;
    };
    node.behave(Process::Pleg, "serve");
    kill_hard(pid);
    let status = node
        .wait_for(|status| came_back(status, Process::Pleg, pid))
        .await;
    let degraded = "pleg runs beside what is left of earlier runs and does not end (processes: 1)";
    assert!(exists(escaped));
    assert!(
        status.degradations.iter().any(|text| text == degraded),
        "{status:?}"
    );
    ice.melts();
    node.until(|| !exists(escaped)).await;
    let pid = row(&status, Process::Pleg).pid;
    kill_hard(pid);
    let status = node
        .wait_for(|status| came_back(status, Process::Pleg, pid))
        .await;
    assert!(!status.degradations.iter().any(|text| text == degraded));
    untouched(&status, Process::Pleg);
}

/// The sixth field of the kernel's line.
fn session_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(3)?.parse().ok()
}

#[tokio::test]
async fn a_socket_that_a_run_has_shut_down_is_made_anew_before_the_next_one() {
    let mut node = Node::prepare();
    node.behave(Process::Pleg, "harm");
    node.start().await;
    node.wait_for(|status| row(status, Process::Pleg).restarts_total >= 1)
        .await;
    node.behave(Process::Pleg, "answer");
    let status = node.wait_for(all_ready).await;
    let answered = UnixStream::connect(node.path("run/pleg.sock"));
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut answered.unwrap(), &mut answer).unwrap();
    assert_eq!(answer, "an answer of pleg");
    untouched(&status, Process::Pleg);
}
