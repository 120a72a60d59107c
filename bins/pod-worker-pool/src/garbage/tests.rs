//! Rounds that take long.

use std::collections::HashSet;
use std::time::Duration;

use bulkhead_api::v1::WorkerPhase;
use node_host::LogTarget;
use pod::{PodIdentity, PodSource};
use simulated_node::LogFiles;
use simulated_runtime::{Faults, Happening};

use super::Order;
use super::collection::PARALLEL_REMOVALS;
use crate::testing::{IMAGE, TestNode, eventually, pod_running};
use serde_json::{Value, json};

fn order_everything(node: &TestNode) {
    node.current_run().garbage.order(Order::Everything {
        desired: HashSet::new(),
        sources_ready: true,
    });
}

fn has_logs(node: &TestNode, uid: &str) -> bool {
    let state = node.host.state();
    state.logs.keys().any(|pod| pod.uid() == uid)
}

/// Pods that ran, are not wanted and have no worker any more: this process of the pool
/// has never heard of them.
async fn run_and_forget(node: &mut TestNode, pods: &[(&str, &Value)]) {
    for (uid, pod) in pods {
        node.create(pod).await;
        eventually("it runs", || node.running(uid).is_some()).await;
    }
    // Jobs beside what runs on are done by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for (uid, pod) in pods {
        node.stop(pod, 1).await;
        eventually("it is stopped", || node.running(uid).is_none()).await;
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    node.kill();
    node.start();
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_back_during_a_round_keeps_its_logs() {
    let mut node = TestNode::new();
    let back = pod_running("a", "u1", &["run"]);
    let gone = pod_running("b", "u2", &["run"]);
    run_and_forget(&mut node, &[("u1", &back), ("u2", &gone)]).await;
    node.runtime.set_faults(Faults {
        sandbox_stop_delay: Duration::from_secs(100),
        ..Faults::NONE
    });
    let stops = || node.runtime.calls().get("StopPodSandbox").copied();
    let before = stops();
    order_everything(&node);
    eventually("the round waits for the runtime", || stops() > before).await;
    node.runtime.set_faults(Faults::NONE);
    assert!(has_logs(&node, "u1") && has_logs(&node, "u2"));
    node.create(&back).await;
    eventually("it runs again", || node.running("u1").is_some()).await;
    assert!(has_logs(&node, "u2"), "the round waits still");
    eventually("the round goes on", || !has_logs(&node, "u2")).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(has_logs(&node, "u1"), "a running pod without logs");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_back_does_not_wait_for_the_turns_of_its_own_removals() {
    let mut node = TestNode::new();
    let back = pod_running("a", "u1", &["run"]);
    run_and_forget(&mut node, &[("u1", &back)]).await;
    // Starts have all turns, and no removal begins beside them.
    node.runtime.set_faults(Faults {
        sandbox_delay: Duration::from_secs(100),
        ..Faults::NONE
    });
    for number in 0..20 {
        let uid = format!("n{number}");
        node.create(&pod_running(&uid, &uid, &["run"])).await;
    }
    let turns = || node.current_run().turns.status_line();
    eventually("starts wait for turns", || {
        turns().contains("RunPodSandbox")
    })
    .await;
    order_everything(&node);
    let is_waiting = || turns().contains("RemoveContainer");
    eventually("the removal waits for its turn", is_waiting).await;
    let before = node.seconds();
    node.create(&back).await;
    eventually("a step looks at it", || node.observation("u1").is_some()).await;
    assert!(is_waiting() && node.seconds() - before < 1.0, "{}", turns());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_back_during_a_round_does_nothing_twice() {
    let mut node = TestNode::new();
    let mut pods: Vec<_> = ["u1", "u2", "u3", "u4", "u5"]
        .map(|uid| (uid, pod_running(uid, uid, &["run"])))
        .into();
    for (_, pod) in &mut pods {
        let job = json!({"name": "job", "image": IMAGE, "command": ["exit", "0", "10"]});
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        containers.push(job);
        pod["spec"]["restartPolicy"] = json!("OnFailure");
    }
    let all: Vec<(&str, &Value)> = pods.iter().map(|(uid, pod)| (*uid, pod)).collect();
    run_and_forget(&mut node, &all).await;
    node.runtime.set_faults(Faults {
        container_removal_delay: Duration::from_secs(100),
        ..Faults::NONE
    });
    let removals = || node.runtime.calls().get("RemoveContainer").copied();
    order_everything(&node);
    // So many pods at a time.
    let all_wait = || removals() == Some(PARALLEL_REMOVALS as u64);
    eventually("the round waits for the runtime", all_wait).await;
    node.runtime.set_faults(Faults::NONE);
    let starts = |container: &str| {
        let history = node.runtime.history().to_vec().into_iter();
        let starts = history.filter(|it| it.happening == Happening::Started);
        let of_it = starts.filter(|it| it.pod_uid == "u5" && it.container == container);
        of_it.count()
    };
    assert_eq!((starts("c"), starts("job")), (1, 1));
    let (uid, back) = pods.last().unwrap();
    node.create(back).await;
    eventually("it runs again", || node.running(uid).is_some()).await;
    let left = || node.runtime.containers().into_iter();
    let others_are_gone = || !left().any(|it| it.pod_uid != "u5");
    eventually("the round ends", others_are_gone).await;
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!((starts("c"), starts("job")), (2, 2), "it begins anew, once");
}

/// The log of the first instance of a container that ends again and again, once that is to
/// be removed.
async fn a_replaced_instance(node: &TestNode) -> LogTarget {
    let log = LogTarget {
        pod: PodIdentity::new("u1", "default", "a").unwrap(),
        container: "c".to_owned(),
        attempt: 0,
    };
    let files = LogFiles::default();
    node.host.state().log_files.insert(log.clone(), files);
    node.create(&pod_running("a", "u1", &["exit", "1", "0"]))
        .await;
    eventually("two have ended", || ids(node).len() == 3).await;
    log
}

fn ids(node: &TestNode) -> Vec<String> {
    let containers = node.runtime.containers().into_iter();
    containers.map(|it| it.id).collect()
}

fn has_log(node: &TestNode, log: &LogTarget) -> bool {
    node.host.state().log_files.contains_key(log)
}

/// Has dead containers of pod `u1` removed.
fn order_containers(node: &TestNode) {
    let pod_uid = "u1".to_owned();
    node.current_run()
        .garbage
        .order(Order::Containers { pod_uid });
}

#[tokio::test(start_paused = true)]
async fn no_log_stays_of_a_container_whose_removal_this_process_does_not_see_the_end_of() {
    let mut node = TestNode::new();
    let log = a_replaced_instance(&node).await;
    let first = ids(&node).remove(0);
    node.runtime.set_faults(Faults {
        container_removal_delay: Duration::from_secs(100),
        ..Faults::NONE
    });
    let removals = || node.runtime.calls().get("RemoveContainer").copied();
    let before = removals();
    order_containers(&node);
    eventually("it is removed", || removals() > before).await;
    node.kill();
    eventually("it is gone", || !ids(&node).contains(&first)).await;
    node.runtime.set_faults(Faults::NONE);
    node.start();
    order_containers(&node);
    eventually("so is its log", || !has_log(&node, &log)).await;
}

#[tokio::test(start_paused = true)]
async fn a_container_stays_as_long_as_its_log_so_that_the_next_round_finds_both() {
    let node = TestNode::new();
    let log = a_replaced_instance(&node).await;
    let first = ids(&node).remove(0);
    let order = || {
        order_containers(&node);
        // A round waits 10 s for a file system.
        tokio::time::sleep(Duration::from_secs(60))
    };
    node.host.state().messages_hang = true;
    order().await;
    assert!(ids(&node).contains(&first) && has_log(&node, &log));
    node.host.state().messages_hang = false;
    order().await;
    assert!(!ids(&node).contains(&first) && !has_log(&node, &log));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_cannot_be_removed_shows_in_the_status_until_it_is_gone() {
    let node = TestNode::new();
    a_replaced_instance(&node).await;
    let first = ids(&node).remove(0);
    let line = || node.current_run().status_lines().join("");
    let is_told = || line().contains(&format!("garbage is left: container {first}: "));
    node.runtime.set_call_fails("RemoveContainer", &first, true);
    order_everything(&node);
    eventually("it is told", is_told).await;
    node.runtime
        .set_call_fails("RemoveContainer", &first, false);
    order_everything(&node);
    eventually("it is told no more", || !line().contains("garbage")).await;
    assert!(!ids(&node).contains(&first));
}

/// A node with eight pods, `u0` to `u7`, that nobody knows any more.
async fn eight_forgotten() -> TestNode {
    let mut node = TestNode::new();
    let uids: Vec<String> = (0..8).map(|number| format!("u{number}")).collect();
    let pods: Vec<Value> = uids
        .iter()
        .map(|it| pod_running(it, it, &["run"]))
        .collect();
    let all: Vec<(&str, &Value)> = uids.iter().map(String::as_str).zip(&pods).collect();
    run_and_forget(&mut node, &all).await;
    node
}

#[tokio::test(start_paused = true)]
async fn what_is_on_the_node_goes_though_the_sandboxes_of_many_pods_cannot_be_stopped() {
    let node = eight_forgotten().await;
    node.runtime.set_faults(Faults {
        sandbox_stop_delay: Duration::from_secs(120),
        ..Faults::NONE
    });
    let leave_directory = || node.host.state().directories.insert("u9".to_owned());
    // The second round comes while the first ones hang still.
    for _ in 0..2 {
        leave_directory();
        let before = node.seconds();
        order_everything(&node);
        let is_gone = || !node.host.state().directories.contains("u9");
        eventually("the directory goes", is_gone).await;
        let waited = node.seconds() - before;
        assert!(waited < 60.0, "{waited}");
    }
    let sandboxes = || node.runtime.sandboxes().len();
    assert_eq!(sandboxes(), 8, "they hang");
    let line = || node.current_run().status_lines().join("");
    eventually("it is told", || line().contains("sandboxes: ")).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    order_everything(&node);
    tokio::time::sleep(Duration::from_secs(150)).await;
    order_everything(&node);
    eventually("they go in the end", || sandboxes() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn sandboxes_that_cannot_be_stopped_keep_no_others() {
    let node = eight_forgotten().await;
    node.runtime.set_faults(Faults {
        sandbox_stop_delay: Duration::from_secs(100),
        ..Faults::NONE
    });
    let stay = |uid: &str| *uid < *"u4";
    for sandbox in node.runtime.sandboxes() {
        let fails = stay(&sandbox.pod_uid);
        node.runtime
            .set_call_fails("StopPodSandbox", &sandbox.id, fails);
    }
    for _ in 0..3 {
        order_everything(&node);
        tokio::time::sleep(Duration::from_secs(180)).await;
    }
    let left = node.runtime.sandboxes();
    assert!(left.len() == PARALLEL_REMOVALS && left.iter().all(|it| stay(&it.pod_uid)));
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_left_that_its_source_took_back_goes_while_another_source_is_away() {
    let mut node = TestNode::new();
    let unknown = pod_running("b", "u2", &["run"]);
    run_and_forget(&mut node, &[("u2", &unknown)]).await;
    let pod = pod_running("a", "u1", &["run"]);
    node.create(&pod).await;
    eventually("it runs", || node.running("u1").is_some()).await;
    end(&node, &pod, "u1").await;
    let delivered = [crate::testing::desired(pod).document().source()];
    assert_ne!(delivered, [PodSource::Http]);
    let (pool, desired) = (node.current_run().pool.clone(), HashSet::new());
    let known = pool.sync_known(desired.clone(), delivered.into(), None);
    assert!(known.await.unwrap().is_empty(), "its worker is forgotten");
    let is_left = |uid: &str| {
        let containers = node.runtime.containers().into_iter();
        let sandboxes = node.runtime.sandboxes().into_iter();
        [
            containers.filter(|it| it.pod_uid == uid).count() > 0,
            sandboxes.filter(|it| it.pod_uid == uid).count() > 0,
            has_logs(&node, uid),
        ]
    };
    assert_eq!([is_left("u1"), is_left("u2")], [[true; 3]; 2]);
    let order = Order::Everything {
        desired,
        sources_ready: false,
    };
    node.host.state().pod_logs_fail = true;
    // Long enough for a round.
    for _ in 0..3 {
        node.current_run().garbage.order(order.clone());
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(is_left("u1"), [false, false, true]);
    node.host.state().pod_logs_fail = false;
    node.current_run().garbage.order(order);
    eventually("nothing of it is left", || is_left("u1") == [false; 3]).await;
    assert_eq!(is_left("u2"), [true; 3], "nobody can tell of that one");
}

/// A pod was ended since the node is short of disk: what it alone used goes at once, or
/// another one would have to end.
#[tokio::test(start_paused = true)]
async fn the_image_of_a_pod_that_has_ended_goes_with_its_containers() {
    const OWN: &str = "localhost/own:1";
    let node = TestNode::new();
    node.runtime.add_image(OWN, true);
    let mut pod = pod_running("a", "u1", &["run"]);
    pod["spec"]["containers"][0]["image"] = json!(OWN);
    node.create(&pod).await;
    eventually("it runs", || node.running("u1").is_some()).await;
    node.current_run().garbage.order(Order::Everything {
        desired: ["u1".to_owned()].into(),
        sources_ready: true,
    });
    // The image is old enough to go.
    tokio::time::sleep(Duration::from_secs(300)).await;
    node.stop(&pod, 1).await;
    let has_ended = || node.phase("u1") == Some(WorkerPhase::Finished);
    eventually("it has ended", has_ended).await;
    let images = || node.runtime.images();
    let is_own = |image: &String| image.contains("own");
    assert!(images().iter().any(is_own) && !node.runtime.containers().is_empty());
    node.current_run().garbage.free_space(true).await;
    assert!(!images().iter().any(is_own), "{:?}", images());
}

const OWN: &str = "localhost/own:1";
const UNUSED: &str = "localhost/unused:1";

fn has_image(node: &TestNode, name: &str) -> bool {
    node.runtime.images().iter().any(|image| image == name)
}

/// A pod that alone uses an image, another image that nobody uses, and a pod that has
/// ended and left a container; the images are old enough to go. The pod with the image.
async fn images_and_a_dead_container(node: &TestNode) -> Value {
    for image in [OWN, UNUSED] {
        node.runtime.add_image(image, true);
    }
    let mut pod = pod_running("a", "u1", &["run"]);
    pod["spec"]["containers"][0]["image"] = json!(OWN);
    node.create(&pod).await;
    let dead = pod_running("b", "u2", &["run"]);
    node.create(&dead).await;
    for uid in ["u1", "u2"] {
        eventually("it runs", || node.running(uid).is_some()).await;
    }
    node.current_run().garbage.order(Order::Everything {
        desired: ["u1".to_owned(), "u2".to_owned()].into(),
        sources_ready: true,
    });
    tokio::time::sleep(Duration::from_secs(300)).await;
    end(node, &dead, "u2").await;
    pod
}

async fn end(node: &TestNode, pod: &Value, uid: &str) {
    node.stop(pod, 1).await;
    let has_ended = || node.phase(uid) == Some(WorkerPhase::Finished);
    eventually("it has ended", has_ended).await;
    assert!(node.runtime.containers().iter().any(|it| it.pod_uid == uid));
}

/// The next removal of a container hangs, and those after it do not.
async fn one_removal_hangs(node: &TestNode) {
    node.runtime.set_faults(Faults {
        container_removal_delay: Duration::from_secs(1000),
        ..Faults::NONE
    });
    let removals = || node.runtime.calls().get("RemoveContainer").copied();
    let before = removals();
    order_everything(node);
    eventually("it waits for the runtime", || removals() > before).await;
    node.runtime.set_faults(Faults::NONE);
}

#[tokio::test(start_paused = true)]
async fn unused_images_do_not_wait_for_a_container_whose_removal_hangs() {
    let node = TestNode::new();
    let pod = images_and_a_dead_container(&node).await;
    one_removal_hangs(&node).await;
    let before = node.seconds();
    let garbage = node.current_run().garbage.clone();
    let freeing = tokio::spawn(async move { garbage.free_space(true).await });
    eventually("the image goes", || !has_image(&node, UNUSED)).await;
    let waited = node.seconds() - before;
    assert!(waited < 12.0, "{waited}");
    assert!(has_image(&node, OWN), "a pod runs with it");
    freeing.await.unwrap();
    // Who asks next does not wait longer, and what has ended meanwhile uses no image.
    end(&node, &pod, "u1").await;
    let before = node.seconds();
    node.current_run().garbage.free_space(true).await;
    let waited = node.seconds() - before;
    assert!(waited < 45.0 && !has_image(&node, OWN), "{waited}");
}

/// It is not called as usual, and the runtime pins nothing.
#[tokio::test(start_paused = true)]
async fn the_image_of_sandboxes_stays_whatever_it_is_called() {
    const OF_SANDBOXES: &str = "registry.local/mirrored-pause:3.6";
    let node = TestNode::new();
    node.runtime.set_sandbox_image(OF_SANDBOXES);
    node.runtime.add_image(OF_SANDBOXES, true);
    images_and_a_dead_container(&node).await;
    node.current_run().garbage.free_space(true).await;
    assert!(!has_image(&node, UNUSED) && has_image(&node, OF_SANDBOXES));
}

/// A removal begins beside no start, and so may wait for long.
#[tokio::test(start_paused = true)]
async fn an_image_stays_that_a_pod_is_to_have_which_comes_while_its_removal_waits_for_a_turn() {
    let node = TestNode::new();
    let pod = images_and_a_dead_container(&node).await;
    end(&node, &pod, "u1").await;
    node.runtime.set_faults(Faults {
        sandbox_delay: Duration::from_secs(100),
        ..Faults::NONE
    });
    for number in 0..20 {
        let uid = format!("n{number}");
        node.create(&pod_running(&uid, &uid, &["run"])).await;
    }
    let turns = || node.current_run().turns.status_line();
    let garbage = node.current_run().garbage.clone();
    let freeing = tokio::spawn(async move { garbage.free_space(true).await });
    let is_waiting = || turns().contains("RemoveImage");
    eventually("the removal waits for its turn", is_waiting).await;
    let asked = || node.runtime.calls().get("RemoveImage").copied();
    assert_eq!(asked(), None, "{}", turns());
    // Its image was used longest ago, and so is the first to go.
    let mut back = pod_running("c", "u3", &["run"]);
    back["spec"]["containers"][0]["image"] = json!(UNUSED);
    node.create(&back).await;
    freeing.await.unwrap();
    assert!(has_image(&node, UNUSED) && !has_image(&node, OWN));
    eventually("it runs", || node.running("u3").is_some()).await;
}

/// Removing one image may take minutes.
/// Frees all space, and is at the first of several images.
async fn removing_the_first_image(node: &TestNode) -> tokio::task::JoinHandle<()> {
    let garbage = node.current_run().garbage.clone();
    let freeing = tokio::spawn(async move { garbage.free_space(true).await });
    let removals = || node.runtime.calls().get("RemoveImage").copied();
    eventually("the first is removed", || removals() == Some(1)).await;
    freeing
}

#[tokio::test(start_paused = true)]
async fn an_image_stays_that_a_pod_begins_to_use_while_others_are_removed() {
    let node = TestNode::new();
    let pod = images_and_a_dead_container(&node).await;
    end(&node, &pod, "u1").await;
    node.runtime.set_faults(Faults {
        image_removal_delay: Duration::from_secs(60),
        ..Faults::NONE
    });
    let freeing = removing_the_first_image(&node).await;
    // It was used longest ago, and so went first.
    let mut back = pod_running("c", "u3", &["run"]);
    back["spec"]["containers"][0]["image"] = json!(OWN);
    node.create(&back).await;
    eventually("it runs", || node.running("u3").is_some()).await;
    freeing.await.unwrap();
    assert!(!has_image(&node, UNUSED) && has_image(&node, OWN));
}

#[tokio::test(start_paused = true)]
async fn an_image_stays_that_a_pod_is_to_have_which_comes_while_others_are_removed() {
    let node = TestNode::new();
    let pod = images_and_a_dead_container(&node).await;
    end(&node, &pod, "u1").await;
    node.runtime.set_faults(Faults {
        image_removal_delay: Duration::from_secs(60),
        sandbox_delay: Duration::from_secs(200),
        ..Faults::NONE
    });
    let freeing = removing_the_first_image(&node).await;
    // No container has it before its sandbox is there.
    let mut back = pod_running("c", "u3", &["run"]);
    back["spec"]["containers"][0]["image"] = json!(OWN);
    node.create(&back).await;
    freeing.await.unwrap();
    assert!(node.running("u3").is_none());
    assert!(!has_image(&node, UNUSED) && has_image(&node, OWN));
    eventually("it runs", || node.running("u3").is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn an_image_goes_though_removing_the_containers_that_used_it_takes_a_while() {
    let node = TestNode::new();
    let pod = images_and_a_dead_container(&node).await;
    end(&node, &pod, "u1").await;
    node.runtime.set_faults(Faults {
        container_removal_delay: Duration::from_secs(20),
        ..Faults::NONE
    });
    node.current_run().garbage.free_space(true).await;
    assert!(!has_image(&node, UNUSED) && !has_image(&node, OWN));
}
