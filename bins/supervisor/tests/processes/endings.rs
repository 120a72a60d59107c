//! What a run of a process leaves behind does not outlive it: neither what it has
//! started nor the harm that it has done to its socket; and what it takes too much of
//! it takes from itself alone.

use std::fs;
use std::io::ErrorKind;
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

/// The reason of the oldest crash that is remembered.
async fn first_reason(node: &Node, process: Process) -> String {
    let crashes = node.crashes(process).await;
    let ending = crashes.last().and_then(|crash| crash.ending.clone());
    ending.map(|ending| ending.reason).unwrap_or_default()
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
async fn what_a_run_did_to_its_socket_does_not_reach_the_next_one() {
    for (harm, words) in [
        ("shutdown", "was shut down"),
        ("queue", "had its queue changed"),
        ("flags", "had its flags changed"),
    ] {
        let mut node = Node::prepare();
        node.behave(Process::Pleg, &format!("harm {harm}"));
        node.start().await;
        node.wait_for(|status| row(status, Process::Pleg).restarts_total >= 1)
            .await;
        let reason = first_reason(&node, Process::Pleg).await;
        let expected = format!("exit code 1; its socket {words} and was made anew");
        assert_eq!(reason, expected);
        // A caller finds a socket at every moment, also while it is made anew. While a
        // run goes on that has shut its own down, that one refuses.
        for _ in 0..100 {
            if let Err(error) = UnixStream::connect(node.path("run/pleg.sock")) {
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{harm}");
            }
        }
        node.behave(Process::Pleg, "answer");
        let status = node.wait_for(all_ready).await;
        let answered = UnixStream::connect(node.path("run/pleg.sock"));
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut answered.unwrap(), &mut answer).unwrap();
        assert_eq!(answer, "an answer of pleg");
        untouched(&status, Process::Pleg);
    }
}

#[tokio::test]
async fn a_run_that_harmed_nothing_keeps_its_socket_and_who_queues_in_it() {
    let mut node = Node::prepare();
    node.behave(Process::Pleg, "exit 3");
    node.start().await;
    let mut queued = UnixStream::connect(node.path("run/pleg.sock")).unwrap();
    node.wait_for(|status| row(status, Process::Pleg).restarts_total >= 3)
        .await;
    assert_eq!(first_reason(&node, Process::Pleg).await, "exit code 3");
    node.behave(Process::Pleg, "answer");
    node.wait_for(all_ready).await;
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut queued, &mut answer).unwrap();
    assert_eq!(answer, "an answer of pleg");
}

#[tokio::test]
async fn a_queue_that_a_run_has_filled_is_emptied_by_the_next_one() {
    // It runs as root: the others cannot connect to their own sockets.
    let mut node = Node::prepare();
    let socket = node.path("run/pod-worker-pool.sock");
    node.behave(
        Process::PodWorkerPool,
        &format!("fill {}", socket.display()),
    );
    node.start().await;
    node.wait_for(|status| row(status, Process::PodWorkerPool).restarts_total >= 1)
        .await;
    node.behave(Process::PodWorkerPool, "answer");
    let queued = node
        .last_number_logged(Process::PodWorkerPool, "callers queue ")
        .await;
    assert!(queued > 500, "{queued}");
    node.wait_for(all_ready).await;
    let mut answer = String::new();
    let mut caller = UnixStream::connect(&socket).unwrap();
    std::io::Read::read_to_string(&mut caller, &mut answer).unwrap();
    assert_eq!(answer, "an answer of pod-worker-pool");
}

#[tokio::test]
async fn a_process_beyond_its_memory_limit_is_killed_alone_and_its_record_says_so() {
    let mut node = Node::prepare();
    let limit = topology::row(Process::Pleg).memory_max_bytes >> 20;
    node.behave(Process::Pleg, &format!("eat {}", 2 * limit));
    node.start().await;
    node.wait_for(|status| row(status, Process::Pleg).restarts_total >= 1)
        .await;
    node.behave(Process::Pleg, "serve");
    let reason = first_reason(&node, Process::Pleg).await;
    let expected = format!("killed by SIGKILL: out of memory by its own limit of {limit} MiB");
    assert_eq!(reason, expected);
    let status = node.wait_for(all_ready).await;
    untouched(&status, Process::Pleg);
}

#[tokio::test]
async fn a_fork_bomb_in_one_process_stops_no_other_and_ends_with_it() {
    let mut node = Node::prepare();
    node.behave(Process::Pleg, "fork bomb");
    node.start().await;
    let status = node.wait_for(all_ready).await;
    let started = node
        .last_number_logged(Process::Pleg, "no more children than ")
        .await;
    let most = u32::from(topology::row(Process::Pleg).tasks_max);
    assert!(started > 1 && started < most, "{started}");
    // Others start tasks as before.
    let prober = row(&status, Process::Prober).pid;
    kill_hard(prober);
    let status = node
        .wait_for(|status| came_back(status, Process::Prober, prober))
        .await;
    let pleg = row(&status, Process::Pleg).pid;
    let bombs = node.members_of_cgroup(pleg);
    assert!(bombs.len() > 2, "{bombs:?}");
    node.behave(Process::Pleg, "serve");
    kill_hard(pleg);
    node.wait_for(|status| came_back(status, Process::Pleg, pleg))
        .await;
    for bomb in bombs {
        assert!(!exists(bomb), "{bomb} lives beside the next run");
    }
}
