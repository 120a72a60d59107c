//! Containers whose CPU and memory change while they run.

use std::time::Duration;

use cri::v1::LinuxContainerResources;
use pod::resources::PodCgroupResources;
use pod_lifecycle::UpdateKind;
use serde_json::{Value, json};
use simulated_runtime::ContainerView;

use super::{RUN, calls, running, starts};
use crate::testing::{IMAGE, TestNode, eventually, pod_running};

const MIB: i64 = 1 << 20;

/// A pod whose container `c` has so many thousandths of a core, and MiB of memory.
fn pod_with(cpu: u32, memory: i64) -> Value {
    let mut pod = pod_running("a", "u1", RUN);
    gives(&mut pod, cpu, memory);
    pod
}

fn gives(pod: &mut Value, cpu: u32, memory: i64) {
    let amounts = json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")});
    pod["spec"]["containers"][0]["resources"] = json!({"requests": amounts, "limits": amounts});
}

fn resources_of(container: &ContainerView) -> LinuxContainerResources {
    let linux = container.config.linux.clone().unwrap_or_default();
    linux.resources.unwrap_or_default()
}

/// The quota and the memory of the container `c`.
fn limits(node: &TestNode) -> (i64, i64) {
    let all = node.runtime.containers().into_iter();
    let mut running = all.filter(|it| it.running && it.name == "c");
    let found = running.next().map(|it| resources_of(&it));
    let found = found.unwrap_or_default();
    (found.cpu_quota / 100, found.memory_limit_in_bytes / MIB)
}

async fn gets(node: &TestNode, cpu: i64, memory: i64) {
    let what = format!("{cpu}m and {memory} MiB");
    eventually(&what, || limits(node) == (cpu, memory)).await;
}

fn given(node: &TestNode) -> Vec<PodCgroupResources> {
    let state = node.host.state();
    state
        .cgroup_resources
        .get("u1")
        .cloned()
        .unwrap_or_default()
}

fn of_pod(cgroup: &PodCgroupResources) -> (u64, i64) {
    let memory = cgroup.memory_limit_bytes.unwrap_or_default();
    (
        cgroup.cpu_quota_micros.unwrap_or_default() / 100,
        memory / MIB,
    )
}

const UPDATE: &str = "UpdateContainerResources";

#[tokio::test(start_paused = true)]
async fn a_container_gets_other_resources_while_it_runs() {
    let node = TestNode::new();
    node.create(&pod_with(100, 64)).await;
    let id = running(&node, "u1").await;
    assert_eq!(limits(&node), (100, 64));
    // More of one and less of the other: the pod has room for both meanwhile.
    let new = pod_with(300, 32);
    node.update(UpdateKind::Update, &new).await.unwrap();
    gets(&node, 300, 32).await;
    eventually("the pod's cgroup follows", || {
        given(&node).last().map(of_pod) == Some((300, 32))
    })
    .await;
    let given: Vec<_> = given(&node).iter().map(of_pod).collect();
    assert_eq!(given, [(100, 64), (300, 64), (300, 32)]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(running(&node, "u1").await, id);
    assert_eq!(calls(&node, UPDATE), 1);
    assert_eq!(starts(&node, "u1").len(), 1);
    // The rest of what it was made with is kept.
    let kept = resources_of(&node.running("u1").unwrap());
    assert_eq!((kept.cpu_period, kept.cpu_shares), (100_000, 307));
    assert_eq!(kept.oom_score_adj, -997);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_a_kill_of_the_pool_interrupts_is_completed_by_the_next() {
    // Longer than a change takes.
    for after in 0..40 {
        let mut node = TestNode::new();
        let old = pod_with(100, 64);
        node.create(&old).await;
        let id = running(&node, "u1").await;
        let new = pod_with(300, 32);
        node.update(UpdateKind::Update, &new).await.unwrap();
        tokio::time::sleep(Duration::from_millis(after)).await;
        node.kill();
        tokio::time::sleep(Duration::from_millis(50)).await;
        // By then the source wants this one, or the former one again.
        let (wanted, cpu, memory) = match after % 2 {
            0 => (&new, 300, 32),
            _ => (&old, 100, 64),
        };
        node.start();
        node.create(wanted).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(limits(&node), (cpu, memory), "{after}");
        let cgroup = given(&node).last().map(of_pod);
        let wanted = (cpu.unsigned_abs(), memory);
        assert_eq!(cgroup, Some(wanted), "{after}");
        assert_eq!(running(&node, "u1").await, id);
        // The next process does nothing to it.
        let made = calls(&node, UPDATE);
        node.kill();
        node.start();
        node.create(if after % 2 == 0 { &new } else { &old }).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(calls(&node, UPDATE), made, "{after}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_keeps_no_room_of_a_change_whose_container_has_ended() {
    let mut cut_short = 0;
    for after in 0..40 {
        let mut node = TestNode::new();
        let mut old = pod_with(100, 64);
        let mut other = old["spec"]["containers"][0].clone();
        other["name"] = json!("other");
        old["spec"]["restartPolicy"] = json!("OnFailure");
        old["spec"]["containers"][0]["command"] = json!(["exit", "0", "5000"]);
        old["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .push(other);
        let runs = |node: &TestNode, name: &str| {
            let mut all = node.runtime.containers().into_iter();
            all.any(|it| it.name == name && it.running)
        };
        node.create(&old).await;
        eventually("both run", || runs(&node, "c") && runs(&node, "other")).await;
        let mut new = old.clone();
        gives(&mut new, 300, 32);
        node.update(UpdateKind::Update, &new).await.unwrap();
        tokio::time::sleep(Duration::from_millis(after)).await;
        node.kill();
        eventually("it ends for good", || !runs(&node, "c")).await;
        // By then the source wants this one, or the former one again.
        let (wanted, of_wanted) = match after % 2 {
            0 => (&new, (400, 96)),
            _ => (&old, (200, 128)),
        };
        let left = given(&node).last().map(of_pod);
        cut_short += u32::from(left != Some(of_wanted));
        node.start();
        node.create(wanted).await;
        eventually("the pod's cgroup has what the pod says", || {
            given(&node).last().map(of_pod) == Some(of_wanted)
        })
        .await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(given(&node).last().map(of_pod), Some(of_wanted), "{after}");
        // Once is enough for one process.
        let times = given(&node).len();
        node.update(UpdateKind::Sync, wanted).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(given(&node).len(), times, "{after}");
        assert!(runs(&node, "other") && !runs(&node, "c"), "{after}");
    }
    assert!(cut_short > 0, "no kill came in the midst of a change");
}

#[tokio::test(start_paused = true)]
async fn only_the_container_whose_policy_says_so_is_started_again() {
    for is_away in [false, true] {
        let mut node = TestNode::new();
        let mut pod = pod_with(100, 64);
        let other = json!({"name": "other", "image": IMAGE, "command": RUN});
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        containers.push(other);
        pod["spec"]["containers"][0]["resizePolicy"] =
            json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
        node.create(&pod).await;
        eventually("both run", || starts(&node, "u1").len() == 2).await;
        let of = |name: &str| {
            let all = node.runtime.containers().into_iter();
            let mut all = all.filter(|it| it.name == name && it.running);
            all.next().map(|it| it.id).unwrap_or_default()
        };
        let before = (of("c"), of("other"));
        // In place.
        gives(&mut pod, 200, 64);
        node.update(UpdateKind::Update, &pod).await.unwrap();
        gets(&node, 200, 64).await;
        assert_eq!((of("c"), of("other")), before);
        let other = of("other");

        gives(&mut pod, 200, 128);
        if is_away {
            node.kill();
            node.start();
        }
        node.update(UpdateKind::Update, &pod).await.unwrap();
        gets(&node, 200, 128).await;
        eventually("it is told", || starts(&node, "u1").len() == 3).await;
        let of = |name: &str| {
            let all = node.runtime.containers().into_iter();
            let mut all = all.filter(|it| it.name == name && it.running);
            all.next().map(|it| (it.id, it.config.annotations.clone()))
        };
        assert_eq!(of("other").unwrap().0, other);
        let (id, annotations) = of("c").unwrap();
        assert_ne!(id, before.0);
        assert_eq!(annotations["io.kubernetes.container.restartCount"], "1");
        assert_eq!(calls(&node, UPDATE), 1);
        assert!(node.reasons("u1").contains(&"Killing".to_owned()));
        assert!(node.runtime.violations().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_started_again_has_room_in_its_pod() {
    let node = TestNode::new();
    let mut pod = pod_with(100, 64);
    pod["spec"]["containers"][0]["command"] = json!(["exit", "1", "20000"]);
    node.create(&pod).await;
    running(&node, "u1").await;
    eventually("it has ended", || node.running("u1").is_none()).await;
    gives(&mut pod, 500, 256);
    node.update(UpdateKind::Update, &pod).await.unwrap();
    gets(&node, 500, 256).await;
    assert_eq!(given(&node).last().map(of_pod), Some((500, 256)));
}

#[tokio::test(start_paused = true)]
async fn no_memory_limit_is_set_below_what_is_used() {
    let node = TestNode::new();
    node.create(&pod_with(100, 64)).await;
    let id = running(&node, "u1").await;
    node.runtime.set_memory_use("u1", 40 << 20);
    let new = pod_with(200, 32);
    node.update(UpdateKind::Update, &new).await.unwrap();
    eventually("the reason is told", || {
        let error = node.observation("u1").unwrap_or_default().sync_error;
        error.contains("memory limit (33554432) below current usage (41943040)")
    })
    .await;
    assert_eq!(limits(&node), (100, 64));
    assert_eq!(given(&node).last().map(of_pod), Some((100, 64)));
    let told = node.observation("u1").unwrap();
    let error = told.resize.unwrap_or_default().error;
    assert!(error.contains("below current usage"), "{error}");
    let runs_with = told.containers[0].resources.unwrap_or_default();
    assert_eq!(runs_with.memory_limit_bytes, 64 * MIB);
    // Another figure is no news, and makes no event.
    node.runtime.set_memory_use("u1", 41 << 20);
    eventually("the newest figure is told", || {
        let told = node.observation("u1").unwrap_or_default();
        told.sync_error.contains("current usage (42991616)")
    })
    .await;
    // Once it uses less.
    node.runtime.set_memory_use("u1", 20 << 20);
    gets(&node, 200, 32).await;
    eventually("nothing is wrong any more", || {
        let told = node.observation("u1").unwrap_or_default();
        told.sync_error.is_empty() && told.resize.is_none()
    })
    .await;
    let told = node.observation("u1").unwrap();
    let runs_with = told.containers[0].resources.unwrap_or_default();
    assert_eq!(runs_with.memory_limit_bytes, 32 * MIB);
    let reasons = node.reasons("u1").split_off(3);
    assert_eq!(reasons, ["ResizeStarted", "ResizeError", "ResizeCompleted"]);
    assert_eq!(running(&node, "u1").await, id);
}

#[tokio::test(start_paused = true)]
async fn what_one_container_is_refused_another_gets() {
    for kill in [false, true] {
        let mut node = TestNode::new();
        let mut pod = pod_with(100, 64);
        let mut other = pod["spec"]["containers"][0].clone();
        other["name"] = json!("other");
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        containers.insert(0, other);
        node.create(&pod).await;
        let has = |node: &TestNode, name: &str, memory: i64| {
            let mut all = node.runtime.containers().into_iter();
            all.any(|it| {
                let limit = resources_of(&it).memory_limit_in_bytes;
                it.name == name && it.running && limit == memory * MIB
            })
        };
        eventually("both run", || {
            has(&node, "c", 64) && has(&node, "other", 64)
        })
        .await;
        node.runtime.set_memory_use("u1", 40 << 20);
        gives(&mut pod, 100, 128);
        let less = pod_with(100, 32);
        pod["spec"]["containers"][1] = less["spec"]["containers"][0].clone();
        node.update(UpdateKind::Update, &pod).await.unwrap();
        eventually("other has more", || has(&node, "other", 128)).await;
        if kill {
            // Perhaps before it has noted that.
            node.kill();
            node.start();
            node.create(&pod).await;
        }
        eventually("what each has is told, and why", || {
            let told = node.observation("u1").unwrap_or_default();
            let error = told.resize.clone().unwrap_or_default().error;
            let tells = |name: &str, memory: i64| {
                told.containers.iter().any(|it| {
                    let limit = it.resources.unwrap_or_default().memory_limit_bytes;
                    it.name == name && limit == memory * MIB
                })
            };
            let all = tells("c", 64) && tells("other", 128);
            all && error.contains("below current usage")
        })
        .await;
        assert!(has(&node, "c", 64), "{kill}");
        let cgroup = given(&node).last().map(of_pod);
        assert_eq!(cgroup, Some((200, 192)), "{kill}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_resize_that_the_runtime_refuses_holds_up_no_other() {
    for refused in ["c", "other"] {
        let node = TestNode::new();
        let mut pod = pod_with(100, 64);
        let mut other = pod["spec"]["containers"][0].clone();
        other["name"] = json!("other");
        let containers = pod["spec"]["containers"].as_array_mut().unwrap();
        containers.push(other);
        node.create(&pod).await;
        let found = |name: &str| {
            let all = node.runtime.containers().into_iter();
            all.filter(|it| it.running).find(|it| it.name == name)
        };
        eventually("both run", || {
            found("c").is_some() && found("other").is_some()
        })
        .await;
        let id = found(refused).unwrap().id.clone();
        node.runtime.set_call_fails(UPDATE, &id, true);
        gives(&mut pod, 200, 64);
        let more = pod["spec"]["containers"][0]["resources"].clone();
        pod["spec"]["containers"][1]["resources"] = more;
        node.update(UpdateKind::Update, &pod).await.unwrap();
        let tells = |name: &str, cpu: i64| {
            let told = node.observation("u1").unwrap_or_default();
            told.containers.iter().any(|it| {
                it.name == name && it.resources.unwrap_or_default().cpu_limit_millis == cpu
            })
        };
        let made = if refused == "c" { "other" } else { "c" };
        eventually("the other is told", || tells(made, 200)).await;
        let cgroup = given(&node).last().map(of_pod);
        assert_eq!(cgroup, Some((400, 128)), "it holds what may be made still");
        node.runtime.set_call_fails(UPDATE, &id, false);
        eventually("so is this one", || tells(refused, 200)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_container_has_is_told_though_its_next_resize_is_refused() {
    let mut resized = 0;
    for after in 0..40 {
        let mut node = TestNode::new();
        node.create(&pod_with(100, 64)).await;
        let id = running(&node, "u1").await;
        node.runtime.set_memory_use("u1", 40 << 20);
        let first = pod_with(200, 64);
        node.update(UpdateKind::Update, &first).await.unwrap();
        tokio::time::sleep(Duration::from_millis(after)).await;
        node.kill();
        node.start();
        node.create(&pod_with(100, 32)).await;
        eventually("what it has is told, and why", || {
            let told = node.observation("u1").unwrap_or_default();
            let shown = told.containers.iter().find(|it| it.id == id);
            let has = shown.and_then(|it| it.resources).unwrap_or_default();
            let has = (has.cpu_limit_millis, has.memory_limit_bytes / MIB);
            let error = told.resize.unwrap_or_default().error;
            has == limits(&node) && error.contains("below current usage")
        })
        .await;
        let (cpu, memory) = limits(&node);
        assert_eq!(memory, 64, "{after}");
        resized += u32::from(cpu == 200);
        // That is that.
        let made = calls(&node, UPDATE);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(calls(&node, UPDATE), made, "{after}");
        let cgroup = given(&node).last().map(of_pod);
        assert_eq!(cgroup, Some((cpu.unsigned_abs(), 64)), "{after}");
    }
    assert!(resized > 0, "no kill came in the midst of a change");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_resized_holds_nothing_else_up() {
    let node = TestNode::new();
    let mut pod = pod_with(100, 64);
    let other = json!({"name": "d", "image": IMAGE, "command": ["exit", "1", "5000"]});
    pod["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(other);
    node.create(&pod).await;
    running(&node, "u1").await;
    node.runtime.set_memory_use("u1", 60 << 20);
    gives(&mut pod, 100, 32);
    node.update(UpdateKind::Update, &pod).await.unwrap();
    eventually("the other one is started again and again", || {
        starts(&node, "u1").len() >= 4
    })
    .await;
    assert_eq!(limits(&node), (100, 64));
}

#[tokio::test(start_paused = true)]
async fn a_container_keeps_what_it_has_until_the_node_has_room() {
    let mut node = TestNode::new();
    node.create(&pod_with(100, 64)).await;
    let id = running(&node, "u1").await;
    // Everything else of the new version applies.
    let mut large = pod_with(3000, 4096);
    large["metadata"]["labels"] = json!({"a": "b"});
    node.update_pending(UpdateKind::Update, &large).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(limits(&node), (100, 64));
    assert_eq!(calls(&node, UPDATE), 0);
    // The next process keeps it too, also for another instance.
    node.kill();
    node.start();
    node.update_pending(UpdateKind::Create, &large).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        (running(&node, "u1").await, limits(&node)),
        (id.clone(), (100, 64))
    );
    node.runtime.crash_container(&id, 1);
    eventually("it is started again", || starts(&node, "u1").len() == 2).await;
    gets(&node, 100, 64).await;
    let second = running(&node, "u1").await;
    assert!(given(&node).iter().all(|it| of_pod(it) == (100, 64)));
    // Now there is room.
    node.update(UpdateKind::Sync, &large).await.unwrap();
    gets(&node, 3000, 4096).await;
    assert_eq!(running(&node, "u1").await, second);
}

#[tokio::test(start_paused = true)]
async fn a_container_whose_image_is_still_pulled_starts_with_what_there_was_room_for() {
    const SLOW: &str = "localhost/slow:1";
    for next_run in [false, true] {
        let mut node = TestNode::new();
        node.runtime.add_image(SLOW, false);
        node.runtime.set_pull_hangs(SLOW, true);
        let slow = |millis, megabytes| {
            let mut pod = pod_with(millis, megabytes);
            pod["spec"]["containers"][0]["image"] = SLOW.into();
            pod
        };
        node.create(&slow(100, 64)).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let large = slow(3000, 4096);
        node.update_pending(UpdateKind::Update, &large).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        if next_run {
            node.kill();
            node.start();
            node.update_pending(UpdateKind::Create, &large).await;
        }
        node.runtime.set_pull_hangs(SLOW, false);
        gets(&node, 100, 64).await;
        node.update(UpdateKind::Sync, &large).await.unwrap();
        gets(&node, 3000, 4096).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_that_is_under_way_is_completed_though_the_next_has_to_wait() {
    for after in 0..20 {
        let node = TestNode::new();
        node.create(&pod_with(100, 64)).await;
        running(&node, "u1").await;
        let second = pod_with(300, 128);
        node.update(UpdateKind::Update, &second).await.unwrap();
        tokio::time::sleep(Duration::from_millis(after)).await;
        let has_begun = limits(&node) == (300, 128);
        node.update_pending(UpdateKind::Update, &pod_with(3000, 4096))
            .await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let found = limits(&node);
        assert!(found == (300, 128) || (!has_begun && found == (100, 64)));
    }
}
