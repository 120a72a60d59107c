//! Starts that the runtime gives up because the one who asked for them died, and
//! whoever kept its connection.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use cri::RuntimeReads as _;
use cri::v1::{ContainerFilter, ContainerState};
use serde_json::json;
use simulated_runtime::Faults;

use super::{calls, finished, running, starts};
use crate::garbage::Order;
use crate::testing::{TestNode, eventually, pod_running};

const EXITED: ContainerState = ContainerState::ContainerExited;

const SLOW_START: Faults = Faults {
    start_delay: Duration::from_secs(5),
    ..Faults::NONE
};

const SLOW_CREATION: Faults = Faults {
    container_delay: Duration::from_secs(5),
    ..Faults::NONE
};

/// Waits until a call is made, and kills the pool, and whoever keeps its connection,
/// during it.
async fn killed_during(method: &str, node: &mut TestNode) {
    let before = calls(node, method);
    eventually("it is made", || calls(node, method) > before).await;
    node.kill();
    node.runtime.close_connection();
    node.runtime.set_faults(Faults::NONE);
}

/// Waits until the runtime shows this many containers in a state: it has given up what
/// the dead asked for.
async fn shown(node: &TestNode, state: ContainerState, count: usize) {
    for _ in 0..1000 {
        // Each look takes its time.
        let all = node.runtime.list_containers(ContainerFilter::default());
        let all = all.await.unwrap().into_iter();
        if all.filter(|one| one.state() == state).count() == count {
            return;
        }
        tokio::time::advance(Duration::from_millis(20)).await;
    }
    panic!("never: {count} containers in {state:?}");
}

/// What an instance carries of its container's restarts.
fn carried(annotations: &BTreeMap<String, String>) -> (&str, &str) {
    let of = |key: &str| annotations.get(key).map_or("", String::as_str);
    let count = of("io.kubernetes.container.restartCount");
    (count, of(pod_lifecycle::annotations::RESTART_WAIT))
}

/// That the container of the pod runs, and counts as never started before.
async fn is_first_instance(node: &TestNode) {
    running(node, "u1").await;
    let containers = node.runtime.containers();
    let [instance] = containers.as_slice() else {
        panic!("{containers:?}");
    };
    assert_eq!(carried(&instance.config.annotations), ("0", "0"));
    let reasons = node.reasons("u1");
    for reason in ["BackOff", "Failed"] {
        assert!(!reasons.contains(&reason.to_owned()), "{reasons:?}");
    }
}

fn collect_dead_containers(node: &TestNode) {
    let pod_uid = "u1".to_owned();
    node.current_run()
        .garbage
        .order(Order::Containers { pod_uid });
}

#[tokio::test(start_paused = true)]
async fn lives_that_die_in_every_step_after_a_cut_short_start_keep_the_back_off() {
    let mut node = TestNode::new();
    let pod = pod_running("a", "u1", &["exit", "1", "1000"]);
    node.create(&pod).await;
    eventually("it crashed twice", || starts(&node, "u1").len() == 2).await;
    let second = starts(&node, "u1")[1];
    node.runtime.set_faults(SLOW_START);
    killed_during("StartContainer", &mut node).await;
    assert_eq!(
        node.runtime.containers().len(),
        3,
        "two ended, one starting"
    );
    let oldest = node.runtime.containers().remove(0).id;
    shown(&node, EXITED, 3).await;

    // This one removes what was cut short, and dies before it has made another.
    node.runtime.set_faults(SLOW_CREATION);
    let before = calls(&node, "CreateContainer");
    node.start();
    collect_dead_containers(&node);
    eventually("the oldest goes", || {
        let containers = node.runtime.containers();
        containers.iter().all(|container| container.id != oldest)
    })
    .await;
    node.create(&pod).await;
    eventually("another one is being made", || {
        calls(&node, "CreateContainer") > before
    })
    .await;
    assert_eq!(node.runtime.containers().len(), 1, "the last that ended");
    node.kill();
    node.runtime.set_faults(Faults::NONE);

    node.start();
    node.create(&pod).await;
    eventually("it is started again", || starts(&node, "u1").len() == 3).await;
    let containers = node.runtime.containers();
    let newest = containers.iter().find(|it| it.running).unwrap();
    assert_eq!(carried(&newest.config.annotations), ("2", "20"));
    // The lists also tell whose end the runtime will tell of.
    collect_dead_containers(&node);
    eventually("and again", || starts(&node, "u1").len() == 4).await;
    let starts = starts(&node, "u1");
    assert!(starts[2] - second >= 10, "{starts:?}");
    assert!((21..25).contains(&(starts[3] - starts[2])), "{starts:?}");
    assert!(node.running("u1").is_some());
    collect_dead_containers(&node);
    eventually("what was replaced goes", || {
        node.runtime.containers().len() == 2
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_order_has_the_runtime_finish_what_was_begun_and_begins_nothing() {
    let delay = Duration::from_secs(3);
    let slow_sandbox = Faults {
        sandbox_delay: delay,
        ..Faults::NONE
    };
    let slow_start = Faults {
        start_delay: delay,
        ..Faults::NONE
    };
    for (method, next, faults) in [
        ("RunPodSandbox", "CreateContainer", slow_sandbox),
        ("StartContainer", "", slow_start),
    ] {
        let mut node = TestNode::new();
        node.runtime.set_faults(faults);
        let pod = pod_running("a", "u1", &["run"]);
        node.create(&pod).await;
        eventually("it is made", || calls(&node, method) == 1).await;
        let begun = node.seconds();
        node.shut_down().await;
        let took = node.seconds() - begun;
        assert!((2.0..4.0).contains(&took), "{method}: {took}");
        node.runtime.close_connection();
        assert_eq!(calls(&node, next), 0, "{method}");

        node.runtime.set_faults(Faults::NONE);
        node.start();
        node.create(&pod).await;
        is_first_instance(&node).await;
        for once in [method, "StartContainer"] {
            assert_eq!(calls(&node, once), 1, "{method}: {once}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_order_waits_for_no_call_that_hangs() {
    let mut node = TestNode::new();
    node.runtime.set_faults(Faults {
        start_delay: Duration::from_secs(100),
        ..Faults::NONE
    });
    node.create(&pod_running("a", "u1", &["run"])).await;
    eventually("it is made", || calls(&node, "StartContainer") == 1).await;
    let begun = node.seconds();
    node.shut_down().await;
    let took = node.seconds() - begun;
    assert!((3.9..4.1).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_was_made_half_is_no_crash() {
    for policy in ["Always", "Never"] {
        let mut node = TestNode::new();
        let mut pod = pod_running("a", "u1", &["run"]);
        pod["spec"]["restartPolicy"] = json!(policy);
        node.runtime.set_faults(SLOW_CREATION);
        node.create(&pod).await;
        killed_during("CreateContainer", &mut node).await;
        shown(&node, ContainerState::ContainerCreated, 1).await;
        node.start();
        node.create(&pod).await;
        is_first_instance(&node).await;
        assert_eq!(calls(&node, "StartContainer"), 2, "{policy}");
    }
}

/// One that was made of another version of the pod, say, on a disk that is damaged.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_removed_keeps_no_container_from_being_started() {
    let mut node = TestNode::new();
    let mut pod = pod_running("a", "u1", &["run"]);
    node.runtime.set_faults(SLOW_CREATION);
    node.create(&pod).await;
    killed_during("CreateContainer", &mut node).await;
    shown(&node, ContainerState::ContainerCreated, 1).await;
    let created = node.runtime.containers().remove(0).id;
    node.runtime
        .set_call_fails("RemoveContainer", &created, true);
    node.runtime.add_image("localhost/other:1", true);
    pod["spec"]["containers"][0]["image"] = json!("localhost/other:1");
    node.start();
    node.create(&pod).await;
    // Until no call can hold its name any more.
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_ne!(running(&node, "u1").await, created);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_cut_short_start_does_not_keep_another_from_being_made() {
    let mut node = TestNode::new();
    let pod = pod_running("a", "u1", &["run"]);
    node.runtime.set_faults(Faults {
        loses_tasks: true,
        ..SLOW_START
    });
    node.create(&pod).await;
    eventually("it is made", || calls(&node, "StartContainer") == 1).await;
    node.kill();
    node.runtime.close_connection();
    shown(&node, EXITED, 1).await;
    node.start();
    let begun = node.seconds();
    node.create(&pod).await;
    is_first_instance(&node).await;
    let took = node.seconds() - begun;
    assert!(took < 10.0, "{took}");
    assert_eq!(calls(&node, "Delete"), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_cut_short_start_goes_with_its_pod() {
    let mut node = TestNode::new();
    node.runtime.set_faults(Faults {
        loses_tasks: true,
        ..SLOW_START
    });
    node.create(&pod_running("a", "u1", &["run"])).await;
    eventually("it is made", || calls(&node, "StartContainer") == 1).await;
    node.kill();
    node.runtime.close_connection();
    shown(&node, EXITED, 1).await;
    // Nobody wants the pod any more.
    node.start();
    node.current_run().garbage.order(Order::Everything {
        desired: HashSet::new(),
        sources_ready: true,
    });
    eventually("it is gone", || node.runtime.containers().is_empty()).await;
    assert_eq!(calls(&node, "Delete"), 1);
}

#[tokio::test(start_paused = true)]
async fn what_may_still_be_starting_is_left_alone() {
    let mut node = TestNode::new();
    let pod = pod_running("a", "u1", &["run"]);
    node.runtime.set_faults(SLOW_START);
    node.create(&pod).await;
    eventually("it is made", || calls(&node, "StartContainer") == 1).await;
    node.kill();
    node.start();
    let mut changed = pod.clone();
    changed["spec"]["containers"][0]["image"] = json!("localhost/other:1");
    node.runtime.add_image("localhost/other:1", true);
    node.create(&changed).await;
    running(&node, "u1").await;
    assert_eq!(calls(&node, "Delete"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_was_cut_short_is_no_crash_for_the_next_run() {
    for is_cancelled in [true, false] {
        let mut node = TestNode::new();
        let pod = pod_running("a", "u1", &["run"]);
        node.runtime.set_faults(SLOW_START);
        node.create(&pod).await;
        killed_during("StartContainer", &mut node).await;
        // Else an instance is found that seems to wait for its start, and is refused it.
        if is_cancelled {
            shown(&node, EXITED, 1).await;
        }
        node.start();
        node.create(&pod).await;
        is_first_instance(&node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_failed_by_a_refused_start_stays_failed_in_the_next_run() {
    for list in ["containers", "initContainers"] {
        let mut node = TestNode::new();
        let mut pod = pod_running("a", "u1", &["run"]);
        pod["spec"]["restartPolicy"] = json!("Never");
        let mut refused = pod["spec"]["containers"][0].clone();
        refused["name"] = json!("refused");
        refused["command"] = json!(["cannot-start", "context canceled"]);
        pod["spec"][list] = json!([refused]);
        node.create(&pod).await;
        finished(&node, "u1").await;
        for _ in 0..2 {
            node.kill();
            node.start();
            node.create(&pod).await;
            finished(&node, "u1").await;
        }
        assert_eq!(calls(&node, "StartContainer"), 1, "{list}");
        assert!(node.observation("u1").unwrap().terminal);
    }
}

/// A program's name stands in what the runtime says of a start.
#[tokio::test(start_paused = true)]
async fn a_program_that_reads_like_a_cut_short_start_crashes_like_any_other() {
    for name in [
        "context canceled",
        "failed to set starting state",
        "lstat /proc/0/ns/ipc",
        "name is reserved for context canceled",
    ] {
        let mut node = TestNode::new();
        let pod = pod_running("a", "u1", &["cannot-start", name]);
        node.create(&pod).await;
        let begun = node.seconds();
        let tried = || calls(&node, "StartContainer");
        eventually("it was tried often", || tried() == 4).await;
        collect_dead_containers(&node);
        eventually("no garbage is left", || {
            node.runtime.containers().len() <= 2
        })
        .await;
        assert!(node.seconds() - begun >= 30.0, "{name}: 0, 10 and 20 s");
        let containers = node.runtime.containers();
        let newest = containers.last().unwrap();
        assert_eq!(carried(&newest.config.annotations), ("3", "40"), "{name}");
        node.kill();
    }
}
