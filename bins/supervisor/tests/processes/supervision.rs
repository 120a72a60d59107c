//! The supervisor with processes that behave and misbehave.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::node::child::send_with;
use crate::node::{KUBELET_HEADER, Node, UID_BASE, all_ready, came_back, exists, row, supervised};
use bulkhead_api::v1::{
    EndingKind, GetSupervisorStatusRequest, ListCrashesRequest, ProcessState, ReloadRequest,
    RestartProcessRequest, SupervisorStatus,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use node_config::NodeConfig;
use tokio::net::UnixDatagram;
use tokio::time::timeout;
use topology::Process;

fn kill_hard(pid: u32) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn every_process_runs_as_its_user_with_its_confinement() {
    let node = Node::ready().await;
    let status = node.wait_for(all_ready).await;
    assert_eq!(status.node_name, "node");
    assert_eq!(status.processes.len(), Process::ON_EVERY_NODE.len());
    for (process, index) in Process::ON_EVERY_NODE.into_iter().zip(0..) {
        let found = row(&status, process);
        let root = topology::row(process).root;
        let uid = if root { 0 } else { UID_BASE + index };
        let owner = fs::metadata(format!("/proc/{}", found.pid)).unwrap().uid();
        assert_eq!((found.uid, owner), (uid, uid), "{process}");
        assert!(
            found.pss_bytes > 0 && found.rss_bytes >= found.pss_bytes,
            "{process}"
        );
        if !root {
            let confined = format!("caps 0, nnp, seccomp{}", own_namespaces(process));
            assert_eq!(found.confinement, confined, "{process}");
            let state = fs::metadata(node.path("state").join(process.name())).unwrap();
            assert_eq!((state.uid(), state.mode() & 0o777), (uid, 0o700));
        }
    }
    let pool = row(&status, Process::PodWorkerPool);
    let capabilities = topology::row(Process::PodWorkerPool).capabilities.len();
    assert_eq!(
        pool.confinement,
        format!(
            "caps {capabilities}, nnp, seccomp{}",
            own_namespaces(Process::PodWorkerPool)
        )
    );
    assert_eq!(pool.status_text, "serving");
}

#[tokio::test]
async fn the_lock_is_roots_alone_and_the_directories_only_let_through() {
    let node = Node::ready().await;
    // Other users pass through two of these, and can list none.
    for (name, mode) in [
        ("run", 0o711),
        ("run/supervisor.lock", 0o600),
        ("state", 0o711),
    ] {
        let found = fs::metadata(node.path(name)).unwrap();
        let found = (found.mode() & 0o7777, found.uid(), found.gid());
        assert_eq!(found, (mode, 0, 0), "{name}: {:o}", found.0);
    }
}

/// What the status adds for the namespaces of its own.
fn own_namespaces(process: Process) -> String {
    let kinds = topology::row(process).namespaces.iter();
    kinds
        .map(|kind| format!(", {}", kind.file_name()))
        .collect()
}

#[tokio::test]
async fn the_three_endings_are_told_apart_and_kept_with_the_last_lines() {
    let mut node = Node::prepare();
    node.behave(Process::Pleg, "exit 3");
    node.behave(Process::Prober, "exit 0");
    node.behave(Process::SyncLoop, "die 10");
    node.start().await;
    for (process, kind, code, reason) in [
        (Process::Pleg, EndingKind::ExitNonZero, 3, "exit code 3"),
        (Process::Prober, EndingKind::ExitZero, 0, "exit code 0"),
        (
            Process::SyncLoop,
            EndingKind::Signal,
            10,
            "killed by SIGUSR1",
        ),
    ] {
        node.wait_for(|status| row(status, process).restarts_total >= 2)
            .await;
        let crashes = node.crashes(process).await;
        assert!(crashes.len() >= 2);
        for crash in crashes {
            let ending = crash.ending.unwrap();
            assert_eq!((ending.kind(), ending.code), (kind, code));
            assert_eq!(ending.reason, reason);
            assert!(ending.pid > 0);
            let last = ending.last_log_lines.last().unwrap();
            assert_eq!(*last, format!("last words of {process}"));
        }
    }
    // Nobody else noticed.
    let status = node.wait_for(|_| true).await;
    assert_eq!(row(&status, Process::PodWorkerPool).restarts_total, 0);
    let log = node.errors();
    assert!(
        log.contains("pleg: first line\npleg: last words of pleg\n"),
        "{log}"
    );
}

#[tokio::test]
async fn a_killed_process_is_replaced_and_its_socket_never_refuses() {
    let node = Node::ready().await;
    for process in supervised() {
        let status = node.wait_for(all_ready).await;
        let old_pid = row(&status, process).pid;
        kill_hard(old_pid);
        // Whether the old one is gone or the new one not there yet.
        UnixStream::connect(node.path("run").join(process.socket_file_name())).unwrap();
        let status = node
            .wait_for(|status| came_back(status, process, old_pid))
            .await;
        assert_eq!(row(&status, process).restarts_total, 1);
        assert!(!exists(old_pid));
    }
    let status = node.wait_for(all_ready).await;
    for process in supervised() {
        assert_eq!(row(&status, process).restarts_total, 1, "{process}");
    }
}

#[tokio::test]
async fn a_silent_main_loop_gets_sigabrt_and_a_deaf_one_sigkill() {
    let mut node = Node::prepare();
    node.behave(Process::Pleg, "hang");
    node.behave(Process::Prober, "hang deaf");
    node.start().await;
    for (process, signal) in [(Process::Pleg, 6), (Process::Prober, 9)] {
        node.wait_for(|status| row(status, process).restarts_total >= 1)
            .await;
        let ending = node.crashes(process).await.pop().unwrap().ending.unwrap();
        assert_eq!((ending.kind(), ending.code), (EndingKind::Signal, signal));
        assert!(
            ending.reason.starts_with("watchdog: silent for 5 s"),
            "{}",
            ending.reason
        );
        let kept = ending.last_log_lines.iter();
        let heard = kept.filter(|line| line.contains("SIGABRT is not obeyed"));
        assert_eq!(heard.count(), usize::from(signal == 9));
    }
}

#[tokio::test]
async fn readiness_counts_only_from_the_process_itself() {
    let mut node = Node::prepare();
    node.behave(Process::Pleg, "impostor");
    node.start().await;
    node.wait_for_log("the impostor ended: exit status: 0")
        .await;
    node.wait_for_log("ignored a notification").await;
    let status = node.wait_for(|_| true).await;
    let pleg = row(&status, Process::Pleg);
    assert_ne!(pleg.state(), ProcessState::Ready);
    assert_eq!(pleg.status_text, "");
}

#[tokio::test]
async fn a_flood_of_notifications_delays_nobody_else() {
    let mut node = Node::prepare();
    node.behave(Process::Pleg, "flood");
    node.start().await;
    let status = node.wait_for(all_ready).await;
    let old_pid = row(&status, Process::SyncLoop).pid;
    kill_hard(old_pid);
    node.wait_for(|status| came_back(status, Process::SyncLoop, old_pid))
        .await;
    let status = node.wait_for(all_ready).await;
    assert_eq!(row(&status, Process::Pleg).restarts_total, 0);
}

#[tokio::test]
async fn what_a_process_leaves_behind_is_ended_and_reaped() {
    let mut node = Node::prepare();
    node.behave(Process::Pleg, "leave orphan");
    node.start().await;
    node.wait_for(|status| row(status, Process::Pleg).restarts_total >= 2)
        .await;
    for crash in node.crashes(Process::Pleg).await {
        let lines = crash.ending.unwrap().last_log_lines;
        let orphan = lines.iter().find_map(|line| line.strip_prefix("orphan "));
        let orphan: u32 = orphan.unwrap().parse().unwrap();
        node.until(|| !std::path::Path::new(&format!("/proc/{orphan}")).exists())
            .await;
    }
}

#[tokio::test]
async fn sigterm_stops_all_in_order_with_exit_code_zero() {
    let mut node = Node::ready().await;
    let status = node.wait_for(all_ready).await;
    node.signal(Signal::SIGTERM);
    assert_eq!(node.ended().await.code(), Some(0));
    let errors = node.errors();
    let ended: Vec<&str> = errors
        .lines()
        .filter(|line| line.contains("ended process="))
        .map(|line| line.split("process=").nth(1).unwrap())
        .map(|rest| rest.split(' ').next().unwrap())
        .collect();
    let order = [
        "config-sourcer",
        "prober",
        "pleg",
        "sync-loop",
        "pod-worker-pool",
        "status-syncer",
    ];
    assert_eq!(ended, order);
    for process in supervised() {
        assert!(!exists(row(&status, process).pid), "{process}");
    }
}

#[tokio::test]
async fn the_processes_end_with_the_supervisor_and_the_next_one_takes_over() {
    let mut node = Node::ready().await;
    let status = node.wait_for(all_ready).await;
    node.signal(Signal::SIGKILL);
    node.ended().await;
    node.start().await;
    let again = node.wait_for(all_ready).await;
    assert_ne!(status.boot_id, again.boot_id);
    for process in supervised() {
        let (old, new) = (row(&status, process), row(&again, process));
        assert_ne!(old.pid, new.pid, "{process}");
        assert!(!exists(old.pid), "{process}");
    }
}

#[tokio::test]
async fn exit_code_78_waits_for_another_configuration() {
    let mut node = Node::prepare();
    node.behave(Process::Pleg, "exit 78 unless max-pods 42");
    node.start().await;
    let waits = |status: &_| row(status, Process::Pleg).state() == ProcessState::BadConfiguration;
    let status = node.wait_for(waits).await;
    let pleg = row(&status, Process::Pleg);
    assert_eq!((pleg.pid, pleg.restarts_total), (0, 0));

    // A wish tries again, in vain.
    let request = RestartProcessRequest {
        name: "pleg".to_owned(),
    };
    let answer = node.client().restart_process(request).await.unwrap();
    assert_eq!(answer.into_inner().old_pid, 0);
    node.wait_for(|status| waits(status) && row(status, Process::Pleg).restarts_total == 1)
        .await;

    // A file that changed is found without a signal.
    let config = format!("{KUBELET_HEADER}maxPods: 42\n");
    fs::write(node.path("config.yaml"), config).unwrap();
    node.wait_for(all_ready).await;
}

#[tokio::test]
async fn a_restart_that_was_asked_for_is_no_crash() {
    let node = Node::ready().await;
    let status = node.wait_for(all_ready).await;
    let old_pid = row(&status, Process::Pleg).pid;
    let request = RestartProcessRequest {
        name: "pleg".to_owned(),
    };
    let mut client = node.client();
    let answer = client.restart_process(request).await.unwrap();
    assert_eq!(answer.into_inner().old_pid, old_pid);
    node.wait_for(|status| came_back(status, Process::Pleg, old_pid))
        .await;
    let status = node.wait_for(all_ready).await;
    let pleg = row(&status, Process::Pleg);
    assert_eq!(pleg.restarts_total, 1);
    let reason = pleg.last_ending.clone().unwrap().reason;
    assert_eq!(reason, "stopped as asked: exit code 0");
    assert!(node.crashes(Process::Pleg).await.is_empty());

    for (name, code) in [
        ("kubelet", tonic::Code::NotFound),
        ("supervisor", tonic::Code::InvalidArgument),
    ] {
        let request = RestartProcessRequest {
            name: name.to_owned(),
        };
        let status = client.restart_process(request).await.unwrap_err();
        assert_eq!(status.code(), code);
    }
    let request = ListCrashesRequest {
        name: "kubelet".to_owned(),
    };
    let status = client.list_crashes(request).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn config_sourcer_sees_manifests_where_a_reload_puts_them() {
    let node = Node::ready().await;
    let before = node.wait_for(all_ready).await;
    let manifests = node.path("etc/manifests");
    fs::create_dir_all(&manifests).unwrap();
    let sees = |status: &SupervisorStatus, process| {
        let root = PathBuf::from(format!("/proc/{}/root", row(status, process).pid));
        root.join(manifests.strip_prefix("/").unwrap()).exists()
    };
    assert!(!sees(&before, Process::ConfigSourcer));
    let path = manifests.display();
    let config = format!("{KUBELET_HEADER}staticPodPath: {path}\n");
    fs::write(node.path("config.yaml"), config).unwrap();
    node.client().reload(ReloadRequest {}).await.unwrap();
    let old_pid = row(&before, Process::ConfigSourcer).pid;
    let after = node
        .wait_for(|status| all_ready(status) && came_back(status, Process::ConfigSourcer, old_pid))
        .await;
    assert!(sees(&after, Process::ConfigSourcer), "{}", node.errors());
    assert!(!sees(&after, Process::Pleg));
}

#[tokio::test]
async fn a_reload_restarts_what_the_configuration_changes_and_nothing_else() {
    let node = Node::ready().await;
    let before = node.wait_for(all_ready).await;
    let mut client = node.client();
    let reload = || client.clone();
    let answer = reload().reload(ReloadRequest {}).await.unwrap();
    assert!(answer.into_inner().restarted.is_empty());

    fs::write(
        node.path("config.yaml"),
        format!("{KUBELET_HEADER}maxPodz: 1\n"),
    )
    .unwrap();
    let refused = reload().reload(ReloadRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    assert!(
        refused.message().contains("maxPodz"),
        "{}",
        refused.message()
    );
    let request = GetSupervisorStatusRequest {};
    let status = client.get_status(request).await.unwrap().into_inner();
    for process in supervised() {
        assert_eq!(row(&status, process).pid, row(&before, process).pid);
    }

    let config = format!(
        "{KUBELET_HEADER}maxPods: 7\nstaticPodURL: http://h/p\nstaticPodURLHeader: {{Authorization: [hidden]}}\n"
    );
    fs::write(node.path("config.yaml"), config).unwrap();
    node.signal(Signal::SIGHUP);
    for process in supervised() {
        let old_pid = row(&before, process).pid;
        node.wait_for(|status| came_back(status, process, old_pid))
            .await;
    }
    let public = node.path("run/node.json");
    assert_eq!(NodeConfig::read(&public).unwrap().max_pods, 7);
    assert!(!fs::read_to_string(&public).unwrap().contains("hidden"));
    assert_eq!(fs::metadata(&public).unwrap().mode() & 0o777, 0o644);
    let private = node.path("run/config-sourcer.node.json");
    let headers = NodeConfig::read(&private)
        .unwrap()
        .static_pod_url
        .unwrap()
        .headers;
    assert_eq!(headers["Authorization"], ["hidden"]);
    let metadata = fs::metadata(&private).unwrap();
    let status = node.wait_for(all_ready).await;
    let reader = row(&status, Process::ConfigSourcer).uid;
    assert_eq!((metadata.mode() & 0o777, metadata.gid()), (0o640, reader));
}

#[tokio::test]
async fn the_supervisor_speaks_to_the_watchdog_of_its_own_starter_and_to_that_one_alone() {
    let mut node = Node::prepare();
    let path = node.path("starter.notify");
    let starter = UnixDatagram::bind(&path).unwrap();
    let silence = Duration::from_secs(6);
    node.start_with(|command| {
        command
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", silence.as_micros().to_string());
    })
    .await;
    let mut buffer = [0; 512];
    let first = starter.recv(&mut buffer).await.unwrap();
    assert_eq!(&buffer[..first], b"READY=1\n");
    for _ in 0..3 {
        let heard = timeout(silence, starter.recv(&mut buffer)).await;
        let bytes = heard.expect("systemd would have killed it").unwrap();
        assert_eq!(&buffer[..bytes], b"WATCHDOG=1\n");
    }
    let status = node.wait_for(all_ready).await;
    for process in supervised() {
        let environment = fs::read(format!("/proc/{}/environ", row(&status, process).pid));
        let environment = String::from_utf8(environment.unwrap()).unwrap();
        let of_watchdogs: BTreeSet<&str> = environment
            .split('\0')
            .filter(|variable| {
                ["NOTIFY_", "WATCHDOG_"]
                    .iter()
                    .any(|name| variable.starts_with(name))
            })
            .collect();
        let own = node.path("run").join(format!("{process}.notify"));
        let own = format!("NOTIFY_SOCKET={}", own.display());
        let expected = BTreeSet::from([own.as_str(), "WATCHDOG_USEC=5000000"]);
        assert_eq!(of_watchdogs, expected, "{process}");
    }
    node.signal(Signal::SIGTERM);
    let stopping = async {
        loop {
            let bytes = starter.recv(&mut buffer).await.unwrap();
            if &buffer[..bytes] == b"STOPPING=1\n" {
                return;
            }
        }
    };
    stopping.await;
    assert_eq!(node.ended().await.code(), Some(0));
}

/// Keeps the supervisor from seeing anything until it gets SIGCONT.
async fn suspend(node: &Node) {
    node.signal(Signal::SIGSTOP);
    let status = format!("/proc/{}/status", node.supervisor_pid());
    node.until(|| fs::read_to_string(&status).is_ok_and(|text| text.contains("State:\tT")))
        .await;
}

#[tokio::test]
async fn a_connection_that_is_handed_over_just_before_death_is_kept() {
    let mut node = Node::prepare();
    let socket = node.path("far.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let behaviour = format!("hand over {}", socket.display());
    node.behave(Process::PodWorkerPool, &behaviour);
    node.start().await;
    let (far, _) = listener.accept().await.unwrap();
    let pid = u32::try_from(far.peer_cred().unwrap().pid().unwrap()).unwrap();
    // When the supervisor looks again the connection and the death are both there.
    suspend(&node).await;
    far.writable().await.unwrap();
    far.try_write(b"x").unwrap();
    node.until(|| !exists(pid)).await;
    node.behave(Process::PodWorkerPool, "serve");
    node.signal(Signal::SIGCONT);
    node.wait_for(|status| came_back(status, Process::PodWorkerPool, pid))
        .await;
    let error = far.try_read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "it is open");
}

#[tokio::test]
async fn a_run_whose_last_message_takes_for_ever_to_close_has_a_next_one_that_is_heard() {
    let mut node = Node::prepare();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = node.path("near.sock");
    let asked = tokio::net::UnixListener::bind(&socket).unwrap();
    let behaviour = format!("linger {}", socket.display());
    node.behave(Process::PodWorkerPool, &behaviour);
    node.start().await;
    let (asks, _) = asked.accept().await.unwrap();
    let address = listener.local_addr().unwrap();
    let near = tokio::net::TcpStream::connect(address).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    asks.writable().await.unwrap();
    send_with(&asks, "x", near.as_raw_fd());
    drop(near);
    let status = node
        .wait_for(|status| row(status, Process::PodWorkerPool).pid > 0)
        .await;
    let pid = row(&status, Process::PodWorkerPool).pid;
    // Its own copy must be gone before the one in its message.
    suspend(&node).await;
    far.writable().await.unwrap();
    far.try_write(b"x").unwrap();
    node.until(|| !exists(pid)).await;
    node.behave(Process::PodWorkerPool, "serve");
    node.signal(Signal::SIGCONT);
    let status = node.wait_for(all_ready).await;
    // Not one run was killed because it was not heard.
    let pool = row(&status, Process::PodWorkerPool);
    assert_eq!(pool.restarts_total, 1, "{}", node.errors());
    assert!(node.errors().contains("new notification socket"));
    drop(far);
}
