//! The whole process against a pool and targets that do what a test says, over
//! sockets in memory and under a paused clock.

mod node;
mod restarts;
mod room;

use std::path::Path;

use bulkhead_api::v1::ProbeKind::{Liveness, Readiness};
use bulkhead_api::v1::ProbeResult::{Failure, Success};
use bulkhead_api::v1::prober_client::ProberClient;
use bulkhead_api::v1::watch_results_response::Message as Told;

use super::*;
use node::{Behaviour, GoesOn, Node, as_time_passes, sleep};

#[tokio::test(start_paused = true)]
async fn readiness_follows_its_target() {
    let node = Node::new().await;
    node.behave("c1", Behaviour::Accept);
    node.announce(node.target("c1", &[Readiness]));
    let mut watcher = node.watch().await;
    watcher.until("c1", Readiness, Success).await;
    node.behave("c1", Behaviour::Refuse);
    let began = Instant::now();
    watcher.until("c1", Readiness, Failure).await;
    let took = began.elapsed();
    assert!(
        took > Duration::from_secs(2) && took < Duration::from_millis(3200),
        "{took:?}"
    );
    node.behave("c1", Behaviour::Accept);
    watcher.until("c1", Readiness, Success).await;
    assert!(
        watcher.changes_within(60).await.is_empty(),
        "nothing new is told"
    );
}

#[tokio::test(start_paused = true)]
async fn each_try_that_fails_is_told_to_who_is_connected() {
    let node = Node::new().await;
    node.behave("c1", Behaviour::Accept);
    node.announce(node.target("c1", &[Liveness]));
    let mut watcher = node.watch().await;
    watcher.until("c1", Liveness, Success).await;
    sleep(3).await;
    node.behave("c1", Behaviour::Refuse);
    let mut tries = Vec::new();
    // Those before the threshold too, and none that succeeded. The verdict may
    // come before the try that led to it, or after it.
    while tries.len() < 3 || watcher.verdict("c1", Liveness) != Some(Failure) {
        if let Told::Attempt(attempt) = watcher.message().await {
            tries.push(attempt);
        }
    }
    assert_eq!(tries.len(), 3, "{tries:?}");
    for attempt in &tries {
        assert_eq!(attempt.outcome(), v1::ProbeTryOutcome::Failure);
        assert_eq!(attempt.pod_uid, "pod-of-c1");
        assert_eq!(attempt.container_name, "main");
        let message = &attempt.message;
        assert!(message.starts_with("Liveness probe failed: "), "{message}");
    }
    // Not part of what a later reader is told first.
    let told = node.watch().await.changes_within(5).await;
    assert_eq!(told, []);
}

#[tokio::test(start_paused = true)]
async fn slow_targets_delay_nobody_else() {
    let node = Node::new().await;
    let probe = br#"{"tcpSocket":{"port":80},"periodSeconds":1,"timeoutSeconds":600}"#;
    for number in 0..400 {
        let container = format!("slow-{number}");
        node.behave(&container, Behaviour::Hang);
        node.announce(v1::ProbeTarget {
            liveness_json: probe.to_vec(),
            ..node.target(&container, &[])
        });
    }
    sleep(5).await;
    node.behave("quick", Behaviour::Accept);
    let began = Instant::now();
    node.announce(node.target("quick", &[Readiness]));
    let mut watcher = node.watch().await;
    watcher.until("quick", Readiness, Success).await;
    assert!(began.elapsed() < Duration::from_millis(100));
    sleep(100).await;
    let connects = node.connects("quick");
    let gaps = connects.windows(2).map(|pair| pair[1] - pair[0]);
    for gap in gaps {
        let off = gap.abs_diff(Duration::from_secs(1));
        assert!(off < Duration::from_millis(20), "{gap:?}");
    }
    assert!((99..=103).contains(&connects.len()), "{}", connects.len());
}

#[tokio::test(start_paused = true)]
async fn one_pod_with_many_slow_probes_does_not_take_all_places() {
    let node = Node::new().await;
    let probe = br#"{"tcpSocket":{"port":80},"periodSeconds":1,"timeoutSeconds":600}"#;
    for number in 0..1000 {
        let container = format!("slow-{number}");
        node.behave(&container, Behaviour::Hang);
        node.announce(v1::ProbeTarget {
            readiness_json: probe.to_vec(),
            pod: Some(v1::PodReference {
                uid: "greedy".to_owned(),
                ..Default::default()
            }),
            ..node.target(&container, &[])
        });
    }
    node.behave("quick", Behaviour::Accept);
    node.announce(node.target("quick", &[Readiness]));
    let mut watcher = node.watch().await;
    let began = Instant::now();
    watcher.until("quick", Readiness, Success).await;
    assert!(began.elapsed() < Duration::from_millis(100));
    let quick = node.connects("quick").len();
    let hanging = node.pods.connects.lock().unwrap().len() - quick;
    assert_eq!(hanging, crate::agenda::MAX_NETWORK_TRIES_PER_POD);
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_carried_out_once_and_its_end_is_reported() {
    let mut node = Node::new().await;
    node.kill_pool();
    node.behave("c1", Behaviour::Refuse);
    let hook = v1::HttpHook {
        boot_id: "pool".to_owned(),
        id: 7,
        pod_ip: node.target("c1", &[]).pod_ip,
        port: 80,
        path: "/".to_owned(),
        timeout_seconds: 5,
        ..v1::HttpHook::default()
    };
    let hangs = v1::HttpHook {
        id: 8,
        port: 70_000,
        ..hook.clone()
    };
    *node.pool.hooks.lock().unwrap() = vec![hook, hangs];
    node.start_pool();
    sleep(60).await;
    let mut reported = node.pool.reported.lock().unwrap().clone();
    reported.sort_by_key(|report| report.id);
    let ids: Vec<u64> = reported.iter().map(|report| report.id).collect();
    assert_eq!(ids, [7, 8]);
    assert!(reported[0].error.contains("refused"), "{reported:?}");
    assert!(reported[1].error.contains("no port"), "{reported:?}");
    assert!(reported.iter().all(|report| report.boot_id == "pool"));
    assert_eq!(node.connects("c1").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_nobody_waits_for_is_cut_off_and_those_of_one_pod_hold_up_no_other() {
    let mut node = Node::new().await;
    node.kill_pool();
    node.behave("hangs", Behaviour::Hang);
    node.behave("refuses", Behaviour::Refuse);
    let hook = |id: u64, pod: &str, container: &str| v1::HttpHook {
        boot_id: "pool".to_owned(),
        id,
        pod: Some(v1::PodReference {
            uid: pod.to_owned(),
            ..Default::default()
        }),
        pod_ip: node.target(container, &[]).pod_ip,
        port: 80,
        timeout_seconds: 24 * 3600,
        ..v1::HttpHook::default()
    };
    let per_pod = crate::agenda::MAX_HOOKS_PER_POD as u64;
    let mut hooks: Vec<_> = (0..per_pod).map(|id| hook(id, "a", "hangs")).collect();
    hooks.push(hook(100, "a", "refuses"));
    hooks.push(hook(200, "b", "refuses"));
    let reported = |node: &Node| {
        let reported = node.pool.reported.lock().unwrap().clone();
        reported
            .iter()
            .map(|report| report.id)
            .collect::<Vec<u64>>()
    };
    node.pool.hooks.lock().unwrap().clone_from(&hooks);
    node.start_pool();
    sleep(60).await;
    assert_eq!(reported(&node), [200]);
    node.kill_pool();
    hooks.push(v1::HttpHook {
        id: 3,
        is_cancelled: true,
        ..v1::HttpHook::default()
    });
    *node.pool.hooks.lock().unwrap() = hooks;
    node.start_pool();
    sleep(60).await;
    let mut reported = reported(&node);
    reported.sort_unstable();
    assert_eq!(reported, [100, 200, 200]);
}

#[tokio::test(start_paused = true)]
async fn exec_probes_are_run_by_the_pool_by_reference() {
    let mut node = Node::new().await;
    node.announce(v1::ProbeTarget {
        liveness_json: br#"{"exec":{},"periodSeconds":1,"failureThreshold":1}"#.to_vec(),
        ..node.target("c1", &[])
    });
    let mut watcher = node.watch().await;
    watcher.until("c1", Liveness, Success).await;
    sleep(4).await;
    {
        let executed = node.pool.executed.lock().unwrap();
        assert!(executed.len() >= 3);
        let request = &executed[0];
        assert_eq!(request.container_id, "c1");
        assert_eq!(request.pod_uid, "pod-of-c1");
        assert_eq!(request.container_name, "main");
        assert_eq!(request.kind(), Liveness);
    }
    // What cannot be run, or asked for, is nobody's fault.
    node.pool.exec.lock().unwrap().error = "the runtime is busy".to_owned();
    let before = node.pool.executed.lock().unwrap().len();
    assert!(watcher.changes_within(2).await.is_empty());
    assert!(
        node.pool.executed.lock().unwrap().len() >= before + 6,
        "three tries each"
    );
    node.kill_pool();
    assert!(watcher.changes_within(60).await.is_empty());
    *node.pool.exec.lock().unwrap() = v1::ExecProbeResponse {
        exit_code: 1,
        output: b"broken".to_vec(),
        ..Default::default()
    };
    node.start_pool();
    watcher.until("c1", Liveness, Failure).await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_saved_is_told_all_the_same_and_saved_later() {
    let node = Node::new().await;
    let state = node.state_dir.path().join("prober");
    std::fs::remove_dir_all(&state).unwrap();
    std::fs::write(&state, "in the way").unwrap();
    node.behave("c1", Behaviour::Accept);
    node.announce(node.target("c1", &[Readiness]));
    let mut watcher = node.watch().await;
    watcher.until("c1", Readiness, Success).await;
    std::fs::remove_file(&state).unwrap();
    std::fs::create_dir(&state).unwrap();
    sleep(3).await;
    assert!(Path::exists(&node.state_file()));
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_holds_verdicts_up_once_and_probing_never() {
    let mut node = Node::new().await;
    let _goes_on = GoesOn(node.disk.clone());
    node.behave("c1", Behaviour::Accept);
    let mut watcher = node.watch().await;
    node.disk.hangs(true);
    let begun = Instant::now();
    node.announce(node.target("c1", &[Readiness]));
    as_time_passes(watcher.until("c1", Readiness, Success)).await;
    let took = begun.elapsed();
    let bound = state_file::SAVE_MAY_TAKE;
    assert!(took >= bound, "told before it was saved: {took:?}");
    assert!(took < bound + Duration::from_secs(2), "{took:?}");
    assert!(node.connects("c1").len() >= 4, "probing goes on");

    // Now that it is known to hang nobody waits for it.
    node.behave("c1", Behaviour::Refuse);
    let begun = Instant::now();
    as_time_passes(watcher.until("c1", Readiness, Failure)).await;
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(3200), "{took:?}");

    // Over: what was told last is what a restart finds.
    node.disk.hangs(false);
    sleep(1).await;
    node.kill_prober();
    node.start_prober();
    let watcher = node.watch().await;
    assert_eq!(watcher.verdict("c1", Readiness), Some(Failure));
}

#[tokio::test(start_paused = true)]
async fn a_target_without_sense_stops_no_other() {
    let node = Node::new().await;
    node.announce(v1::ProbeTarget {
        container_id: "nameless".to_owned(),
        ..Default::default()
    });
    node.announce(v1::ProbeTarget {
        readiness_json: b"not json".to_vec(),
        ..node.target("broken", &[])
    });
    node.behave("c1", Behaviour::Accept);
    node.announce(node.target("c1", &[Readiness]));
    let mut watcher = node.watch().await;
    watcher.until("c1", Readiness, Success).await;
    assert_eq!(watcher.verdict("broken", Readiness), Some(Failure));
    assert!(watcher.changes_within(60).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_the_first_tries_are_spread_over_a_period() {
    let mut node = Node::new().await;
    let probe = br#"{"tcpSocket":{"port":80},"periodSeconds":10}"#;
    for number in 0..100 {
        let container = format!("c{number}");
        node.behave(&container, Behaviour::Accept);
        node.announce(v1::ProbeTarget {
            readiness_json: probe.to_vec(),
            ..node.target(&container, &[])
        });
    }
    sleep(60).await;
    node.kill_prober();
    node.pods.connects.lock().unwrap().clear();
    let began = Instant::now();
    node.start_prober();
    sleep(10).await;
    let connects = node.pods.connects.lock().unwrap();
    let halves = connects
        .iter()
        .filter(|(_, at)| *at < began + Duration::from_secs(5));
    let early = halves.count();
    assert!(
        (25..=75).contains(&early),
        "{early} of 100 in the first half"
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_else_may_watch() {
    let node = Node::new().await;
    let network = node.hub.network(Process::Pleg, &node.identities);
    let status = ProberClient::new(network.channel(Process::Prober))
        .watch_results(v1::WatchResultsRequest {})
        .await
        .unwrap_err();
    assert!(ipc::is_broken_connection(&status), "hung up on: {status}");
}
