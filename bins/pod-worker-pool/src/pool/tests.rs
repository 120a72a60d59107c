//! Whole workers on a simulated runtime, under a paused clock.

mod api_pods;
mod begun_anew;
mod changed_pods;
mod claims;
mod cut_short_starts;
mod deadlines;
mod earlier_starts;
mod ephemeral;
mod evictions;
mod files_in_memory;
mod graces;
mod hanging_state_disk;
mod hanging_volumes;
mod hooks;
mod images;
mod newer_runtimes;
mod objects;
mod pull_secrets;
mod pulls;
mod resizes;
mod restart_all;
mod retries;
mod sidecars;
mod sizes;
mod slow_calls;
mod static_pods;

use std::time::Duration;

use bulkhead_api::v1::{self, WorkerPhase};
use pod_lifecycle::{KillRequest, UpdateKind};
use serde_json::json;
use simulated_runtime::{Faults, Happening};

use crate::pool::UpdateExtras;
use crate::testing::{IMAGE, TestNode, eventually, pod_running};

const RUN: &[&str] = &["run"];

async fn running(node: &TestNode, uid: &str) -> String {
    eventually("a container runs", || node.running(uid).is_some()).await;
    node.running(uid)
        .map(|container| container.id)
        .unwrap_or_default()
}

fn calls(node: &TestNode, method: &str) -> u64 {
    node.runtime.calls().get(method).copied().unwrap_or(0)
}

async fn finished(node: &TestNode, uid: &str) {
    eventually("the worker finishes", || {
        node.phase(uid) == Some(WorkerPhase::Finished)
    })
    .await;
}

/// That a container of the usual pod failed its liveness probe.
fn not_live(container_id: &str) -> v1::ProbeVerdict {
    v1::ProbeVerdict {
        pod_uid: "u1".into(),
        container_name: "c".into(),
        container_id: container_id.to_owned(),
        kind: v1::ProbeKind::Liveness.into(),
        result: v1::ProbeResult::Failure.into(),
        message: String::new(),
    }
}

/// When containers of a pod were started, in whole seconds since the test's start.
fn starts(node: &TestNode, uid: &str) -> Vec<u64> {
    let history = node.runtime.history().to_vec().into_iter();
    history
        .filter(|entry| entry.pod_uid == uid && entry.happening == Happening::Started)
        .filter(|entry| !entry.container.is_empty())
        .map(|entry| entry.at.since(crate::testing::START).as_secs())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_started_and_told_of() {
    let node = TestNode::new();
    node.create(&pod_running("a", "u1", RUN)).await;
    let id = running(&node, "u1").await;
    eventually("it is published", || {
        node.observation("u1").is_some_and(|observation| {
            observation.containers.iter().any(|container| {
                container.id == id && container.state() == v1::RuntimeState::Running
            })
        })
    })
    .await;
    let observation = node.observation("u1").unwrap();
    assert_eq!(observation.phase(), WorkerPhase::Syncing);
    assert_eq!(observation.sandboxes.len(), 1);
    assert!(observation.waiting.is_empty() && observation.sync_error.is_empty());
    let events = node.events("u1").into_iter();
    let told: Vec<_> = events
        .map(|it| (it.reason, it.container, it.message))
        .collect();
    let present = format!(
        "Container image \"{IMAGE}\" already present on machine and can be accessed by the pod"
    );
    let expected = [
        ("Pulled", &*present),
        ("Created", "Container created"),
        ("Started", "Container started"),
    ];
    let of_container =
        |(reason, message): (&str, &str)| (reason.to_owned(), "c".to_owned(), message.to_owned());
    assert_eq!(told, expected.map(of_container));
    assert!(node.runtime.violations().is_empty());
}

/// The kubelet's TestNetworkErrorsWithoutHostNetwork.
#[tokio::test(start_paused = true)]
async fn without_a_network_only_pods_on_the_nodes_own_are_started() {
    let mut node = TestNode::new();
    node.kill();
    node.write_policy("[sources]\nfile = \"privileged\"\n");
    node.start();
    node.runtime.set_faults(Faults {
        network_down: true,
        ..Faults::NONE
    });
    node.create(&pod_running("a", "u1", RUN)).await;
    let mut on_host = pod_running("b", "u2", RUN);
    on_host["spec"]["hostNetwork"] = json!(true);
    node.create(&on_host).await;
    running(&node, "u2").await;
    eventually("the pod's owner is told", || {
        node.reasons("u1").contains(&"NetworkNotReady".to_owned())
    })
    .await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(node.running("u1").is_none());
    assert_eq!(node.runtime.sandboxes().len(), 1);
    let error = node.observation("u1").unwrap().sync_error;
    assert!(error.starts_with("network is not ready: "), "{error}");

    node.runtime.set_faults(Faults::NONE);
    running(&node, "u1").await;
}

#[tokio::test(start_paused = true)]
async fn images_are_pulled_while_the_sandbox_is_made() {
    const PULLABLE: &str = "localhost/pullable:1";
    let node = TestNode::new();
    node.runtime.add_image(PULLABLE, false);
    node.runtime.set_faults(Faults {
        slowness: 100.0,
        ..Faults::NONE
    });
    let mut pod = pod_running("a", "u1", RUN);
    pod["spec"]["containers"][0]["image"] = json!(PULLABLE);
    node.create(&pod).await;
    eventually("both are asked for", || {
        let calls = node.runtime.calls();
        ["RunPodSandbox", "PullImage"]
            .iter()
            .all(|method| calls.contains_key(method))
    })
    .await;
    assert!(node.runtime.sandboxes().is_empty(), "it is still made");
    assert_eq!(node.reasons("u1"), ["Pulling"], "it is still pulled");
    running(&node, "u1").await;
}

#[tokio::test(start_paused = true)]
async fn one_sync_of_an_unchanged_pod_is_two_list_calls() {
    let node = TestNode::new();
    let pod = pod_running("a", "u1", RUN);
    node.create(&pod).await;
    running(&node, "u1").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = node.runtime.calls();
    node.update(UpdateKind::Sync, &pod).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut made = node.runtime.calls();
    made.retain(|method, count| {
        *count -= before.get(method).copied().unwrap_or(0);
        *count > 0
    });
    assert_eq!(
        made.into_iter().collect::<Vec<_>>(),
        [("ListContainers", 1), ("ListPodSandbox", 1)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_crash_loop_waits_longer_each_time_and_our_restarts_do_not_change_that() {
    let mut node = TestNode::new();
    let pod = pod_running("a", "u1", &["exit", "1", "0"]);
    node.create(&pod).await;
    eventually("three starts", || starts(&node, "u1").len() == 3).await;
    node.kill();
    tokio::time::sleep(Duration::from_millis(300)).await;
    node.start();
    node.create(&pod).await;
    eventually("five starts", || starts(&node, "u1").len() == 5).await;
    // At once, then 10, 20, 40 s after the exit before.
    assert_eq!(starts(&node, "u1"), [0, 0, 10, 30, 70]);
    eventually("it waits", || {
        let observation = node.observation("u1").unwrap_or_default();
        let waiting = observation.waiting.first();
        waiting.is_some_and(|waiting| waiting.message.contains("1m20s"))
    })
    .await;
    let observation = node.observation("u1").unwrap();
    let waiting = &observation.waiting[0];
    assert_eq!(waiting.reason, "CrashLoopBackOff");
    assert_eq!(
        waiting.message,
        "back-off 1m20s restarting failed container=c pod=a_default(u1)"
    );
    assert_eq!(observation.containers[0].restart_count, 4);
    // Three instances were waited for in this run, the last of them through several syncs.
    for _ in 0..3 {
        node.update(UpdateKind::Sync, &pod).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let is_back_off = |event: &&v1::Event| event.reason == "BackOff";
    let events = node.events("u1");
    let told: Vec<_> = events.iter().filter(is_back_off).collect();
    assert_eq!(told.len(), 3, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_runs_is_adopted_by_the_next_run() {
    let mut node = TestNode::new();
    let pod = pod_running("a", "u1", RUN);
    node.create(&pod).await;
    let id = running(&node, "u1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.kill();
    node.start();
    assert_eq!(
        node.observation("u1"),
        None,
        "nothing is told before it is known"
    );
    node.create(&pod).await;
    eventually("it is published", || node.observation("u1").is_some()).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(running(&node, "u1").await, id);
    assert_eq!(node.runtime.calls().get("CreateContainer"), Some(&1));
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_stopped_within_its_grace_and_cleaned_up() {
    let node = TestNode::new();
    let pod = pod_running("a", "u1", &["slow-term", "7000"]);
    node.create(&pod).await;
    running(&node, "u1").await;
    let begun = node.seconds();
    node.stop(&pod, 20).await;
    finished(&node, "u1").await;
    let took = node.seconds() - begun;
    assert!((7.0..8.0).contains(&took), "{took}");
    let observation = node.observation("u1").unwrap();
    assert_eq!(observation.containers[0].exit_code, 143);
    assert!(
        node.runtime
            .sandboxes()
            .iter()
            .all(|sandbox| !sandbox.ready)
    );
    let state = node.host.state();
    assert!(state.volumes.is_empty() && state.cgroups.is_empty());
    assert!(state.directories.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_container_that_ignores_sigterm_is_killed_when_its_grace_is_over() {
    let node = TestNode::new();
    let pod = pod_running("a", "u1", &["ignore-term"]);
    node.create(&pod).await;
    running(&node, "u1").await;
    let begun = node.seconds();
    node.stop(&pod, 20).await;
    finished(&node, "u1").await;
    let took = node.seconds() - begun;
    assert!((20.0..21.0).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn a_shorter_grace_cuts_the_running_stop_short() {
    let node = TestNode::new();
    let pod = pod_running("a", "u1", &["ignore-term"]);
    node.create(&pod).await;
    running(&node, "u1").await;
    let begun = node.seconds();
    node.stop(&pod, 60).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    node.stop(&pod, 90).await;
    node.stop(&pod, 3).await;
    finished(&node, "u1").await;
    let took = node.seconds() - begun;
    assert!((8.0..9.0).contains(&took), "{took}");
    let kills = node
        .reasons("u1")
        .iter()
        .filter(|reason| *reason == "Killing")
        .count();
    assert_eq!(kills, 1);
}

#[tokio::test(start_paused = true)]
async fn a_termination_goes_on_in_the_next_run_with_the_same_deadline() {
    let mut node = TestNode::new();
    let pod = pod_running("a", "u1", &["ignore-term"]);
    node.create(&pod).await;
    running(&node, "u1").await;
    let begun = node.seconds();
    node.stop(&pod, 20).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    node.kill();
    tokio::time::sleep(Duration::from_secs(4)).await;
    // Nobody tells the new run anything.
    node.start();
    eventually("it is stopped", || node.running("u1").is_none()).await;
    let took = node.seconds() - begun;
    assert!((20.0..21.0).contains(&took), "{took}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let state = node.host.state();
    assert!(state.directories.is_empty() && state.cgroups.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_kill_cuts_a_start_short_and_leaves_nothing_behind() {
    for after in [1, 20, 59, 62, 70, 90, 120] {
        let node = TestNode::new();
        let pod = pod_running("a", "u1", RUN);
        node.create(&pod).await;
        tokio::time::sleep(Duration::from_millis(after)).await;
        node.stop(&pod, 1).await;
        finished(&node, "u1").await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(node.running("u1"), None, "{after}");
        assert!(
            node.runtime
                .sandboxes()
                .iter()
                .all(|sandbox| !sandbox.ready)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn static_pods_of_one_name_run_one_after_the_other() {
    let mut node = TestNode::new();
    let old = pod_running("a", "u1", &["slow-term", "5000"]);
    let between = pod_running("a", "u2", RUN);
    let new = pod_running("a", "u3", RUN);
    node.create(&old).await;
    running(&node, "u1").await;
    // Also when this process never saw the old one start.
    node.kill();
    node.start();
    node.create(&between).await;
    node.create(&new).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(node.phase("u2"), Some(WorkerPhase::Waiting));
    assert!(node.running("u2").is_none() && node.running("u3").is_none());
    node.stop(&between, 30).await;
    node.stop(&old, 30).await;
    let begun = node.seconds();
    running(&node, "u3").await;
    let took = node.seconds() - begun;
    assert!(
        (5.0..6.0).contains(&took),
        "{took}: at once when the old one is gone"
    );
    assert!(node.running("u1").is_none() && node.running("u2").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_work_is_done_is_finished_and_stays_so() {
    let node = TestNode::new();
    let mut pod = pod_running("a", "u1", &["exit", "0", "2000"]);
    pod["spec"]["restartPolicy"] = json!("OnFailure");
    node.create(&pod).await;
    finished(&node, "u1").await;
    assert!(node.observation("u1").unwrap().terminal);
    let _ = node.update(UpdateKind::Sync, &pod).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(starts(&node, "u1").len(), 1);
    assert!(
        node.runtime
            .sandboxes()
            .iter()
            .all(|sandbox| !sandbox.ready)
    );
    let state = node.host.state();
    assert!(
        state.directories.contains("u1"),
        "termination messages are kept"
    );
}

#[tokio::test(start_paused = true)]
async fn init_containers_run_in_order_before_the_others() {
    let node = TestNode::new();
    let mut pod = pod_running("a", "u1", RUN);
    pod["spec"]["initContainers"] = json!([
        {"name": "i1", "image": IMAGE, "command": ["exit", "0", "1000"]},
        {"name": "i2", "image": IMAGE, "command": ["exit", "0", "500"]},
    ]);
    node.create(&pod).await;
    eventually("the container runs", || {
        node.running("u1")
            .is_some_and(|container| container.name == "c")
    })
    .await;
    let history = node.runtime.history().to_vec().into_iter();
    let order: Vec<String> = history
        .filter(|entry| entry.happening == Happening::Started)
        .map(|entry| entry.container)
        .collect();
    assert_eq!(order, ["i1", "i2", "c"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_liveness_probe_restarts_the_container() {
    let node = TestNode::new();
    let mut pod = pod_running("a", "u1", RUN);
    pod["spec"]["containers"][0]["livenessProbe"] =
        serde_json::json!({"exec": {"command": ["true"]}});
    node.create(&pod).await;
    let id = running(&node, "u1").await;
    node.send(UpdateKind::Sync, &pod, None, vec![not_live(&id)])
        .await
        .unwrap();
    eventually("another one runs", || {
        node.running("u1")
            .is_some_and(|container| container.id != id)
    })
    .await;
    assert!(node.reasons("u1").contains(&"Killing".to_owned()));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(
        starts(&node, "u1").len(),
        2,
        "the verdict was on the old one"
    );
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_pulled_is_tried_again_after_its_back_off() {
    let node = TestNode::new();
    let mut pod = pod_running("a", "u1", RUN);
    pod["spec"]["containers"][0]["image"] = json!("localhost/late:1");
    node.create(&pod).await;
    eventually("it waits", || {
        node.observation("u1").is_some_and(|observation| {
            observation
                .waiting
                .iter()
                .any(|waiting| waiting.reason == "ImagePullBackOff")
        })
    })
    .await;
    node.runtime.add_image("localhost/late:1", false);
    running(&node, "u1").await;
    assert!((10.0..12.0).contains(&node.seconds()), "{}", node.seconds());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_hangs_delays_no_other() {
    let node = TestNode::new();
    let hanging = pod_running("hanging", "u1", &["ignore-term"]);
    node.create(&hanging).await;
    running(&node, "u1").await;
    node.stop(&hanging, 3000).await;
    node.host.state().volumes_fail = true;
    let failing = pod_running("failing", "u2", RUN);
    node.create(&failing).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    node.host.state().volumes_fail = false;
    let begun = node.seconds();
    let other = pod_running("other", "u3", RUN);
    node.create(&other).await;
    running(&node, "u3").await;
    assert!(node.seconds() - begun < 0.5);
    assert!(node.reasons("u2").contains(&"FailedMount".to_owned()));
    running(&node, "u2").await;
    assert!(
        node.seconds() - begun < 15.5,
        "tried again after the back-off"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_only_the_runtime_has_is_stopped_and_forgotten() {
    let mut node = TestNode::new();
    let pod = pod_running("a", "u1", RUN);
    node.create(&pod).await;
    running(&node, "u1").await;
    node.kill();
    node.start();
    let identity = pod::PodIdentity::new("u1", "default", "a").unwrap();
    let update = pod_lifecycle::Update {
        kind: UpdateKind::Kill,
        subject: pod_lifecycle::Subject::RuntimeOnly(identity),
        kill: Some(KillRequest::default()),
    };
    node.current_run()
        .pool
        .update(update, UpdateExtras::default())
        .await
        .unwrap();
    eventually("it is stopped", || node.running("u1").is_none()).await;
    eventually("it is forgotten", || node.observation("u1").is_none()).await;
    assert!(
        node.runtime
            .sandboxes()
            .iter()
            .all(|sandbox| !sandbox.ready)
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_sandbox_is_replaced_and_its_containers_with_it() {
    let node = TestNode::new();
    let pod = pod_running("a", "u1", RUN);
    node.create(&pod).await;
    let id = running(&node, "u1").await;
    let sandbox = node.runtime.sandboxes()[0].id.clone();
    let runtime: &dyn cri::RuntimeChanges = &node.runtime;
    runtime.stop_pod_sandbox(&sandbox).await.unwrap();
    eventually("another one runs", || {
        node.running("u1")
            .is_some_and(|container| container.id != id)
    })
    .await;
    let attempts: Vec<u32> = node
        .runtime
        .sandboxes()
        .into_iter()
        .map(|sandbox| sandbox.config.metadata.clone().unwrap().attempt)
        .collect();
    assert_eq!(attempts, [0, 1]);
    assert!(node.runtime.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn sandboxes_that_die_at_once_are_not_made_without_a_pause() {
    let node = TestNode::new();
    node.create(&pod_running("a", "u1", RUN)).await;
    let runtime: &dyn cri::RuntimeChanges = &node.runtime;
    while node.seconds() < 20.0 {
        let sandboxes = node.runtime.sandboxes().into_iter();
        for sandbox in sandboxes.filter(|sandbox| sandbox.ready) {
            runtime.stop_pod_sandbox(&sandbox.id).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let made = node.runtime.sandboxes().len();
    assert!((2..=20).contains(&made), "{made}");
    running(&node, "u1").await;
    assert!(node.runtime.violations().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_away_is_waited_for() {
    let node = TestNode::new();
    node.runtime.set_faults(Faults {
        unavailable: true,
        ..Faults::NONE
    });
    node.create(&pod_running("a", "u1", RUN)).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(node.observation("u1"), None);
    node.runtime.set_faults(Faults::NONE);
    let begun = node.seconds();
    running(&node, "u1").await;
    assert!(node.seconds() - begun < 3.0);
}

/// The next process is told what the pod requests whose cgroup the first one made.
#[tokio::test(start_paused = true)]
async fn a_pod_that_runs_on_counts_in_its_class_by_what_it_requests() {
    let mut pod = pod_running("a", "u1", RUN);
    let mut node = TestNode::new();
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    node.create(&pod).await;
    running(&node, "u1").await;
    node.kill();
    node.host.state().adopted_cgroups.clear();
    node.start();
    node.create(&pod).await;
    let adopted = || node.host.state().adopted_cgroups.get("u1").copied();
    eventually("it is adopted", || adopted() == Some(100)).await;
}
