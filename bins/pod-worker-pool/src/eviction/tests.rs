//! A node that is short of something, and pods that have more than they may.

mod limits;
mod turns;

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use bulkhead_api::v1::WorkerPhase;
use node_config::EvictionSettings;
use node_layout::{FilesystemUsage, MachineUsage, PodFilesUsage, TreeSize};
use pod::PodSource;
use serde_json::{Value, json};
use simulated_node::{HALF_FULL, IDLE};
use simulated_runtime::Faults;

use crate::testing::{IMAGE, TestNode, eventually, pod_running};

const GIB: u64 = 1 << 30;

/// A pod that runs, with its priority and the memory that it uses.
async fn run(node: &TestNode, uid: &str, priority: i32, memory: u64) -> Value {
    let mut pod = pod_running(uid, uid, &["run"]);
    pod["spec"]["priority"] = json!(priority);
    node.runtime.set_memory_use(uid, memory);
    node.create(&pod).await;
    eventually("it runs", || node.running(uid).is_some()).await;
    pod
}

fn memory_left(node: &TestNode, bytes: u64) {
    node.host.state().machine_usage = Some(MachineUsage {
        memory_available_bytes: bytes,
        ..IDLE
    });
}

/// So much is left on the disk at the next looks; the last one stays.
fn disk_left(node: &TestNode, looks: &[u64]) {
    // A look asks for the disk of the pods, and for that of the images.
    let both = looks.iter().flat_map(|bytes| [bytes, bytes]);
    let shown = both.map(|bytes| FilesystemUsage {
        available_bytes: *bytes,
        ..HALF_FULL
    });
    node.host.state().filesystem_usage = shown.collect();
}

fn files(bytes: u64) -> PodFilesUsage {
    let size = TreeSize { bytes, inodes: 1 };
    PodFilesUsage {
        volumes: BTreeMap::from([("data".to_owned(), size)]),
        ..PodFilesUsage::default()
    }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// UIDs of those that do not run any more.
fn evicted(node: &TestNode, all: &[&str]) -> Vec<String> {
    let ended = all.iter().filter(|uid| node.running(uid).is_none());
    ended.map(|uid| (*uid).to_owned()).collect()
}

fn conditions(node: &TestNode) -> Vec<String> {
    node.current_run().conditions.names()
}

#[tokio::test(start_paused = true)]
async fn short_of_memory_one_pod_goes_at_a_time_until_enough_is_left() {
    let node = TestNode::new();
    run(&node, "small", 0, GIB).await;
    run(&node, "large", 0, 2 * GIB).await;
    run(&node, "important", 1000, 3 * GIB).await;
    run(&node, "spared", 2_000_000_000, 4 * GIB).await;
    let all = ["small", "large", "important", "spared"];
    seconds(60).await;
    assert!(evicted(&node, &all).is_empty() && conditions(&node).is_empty());

    memory_left(&node, 50 << 20);
    eventually("one goes", || !evicted(&node, &all).is_empty()).await;
    memory_left(&node, GIB);
    assert_eq!(evicted(&node, &all), ["large"]);
    assert_eq!(conditions(&node), ["MemoryPressure"]);
    let observation = node.observation("large").unwrap();
    assert_eq!(observation.failed_reason, "Evicted");
    assert!(observation.is_disruption);
    assert_eq!(
        observation.failed_message,
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
         Container c was using 2Gi, request is 0, has larger consumption of memory. "
    );
    assert!(node.reasons("large").contains(&"Evicted".to_owned()));
    seconds(200).await;
    assert_eq!(evicted(&node, &all), ["large"]);
    assert_eq!(conditions(&node), ["MemoryPressure"]);
    seconds(120).await;
    assert!(conditions(&node).is_empty(), "the transition is over");

    memory_left(&node, 50 << 20);
    eventually("the others go", || evicted(&node, &all).len() == 3).await;
    seconds(300).await;
    assert_eq!(evicted(&node, &all), ["small", "large", "important"]);
}

/// What an init container left in a volume in memory is no container's any more.
#[tokio::test(start_paused = true)]
async fn the_pod_whose_cgroup_has_most_memory_goes_first_whatever_its_containers_use() {
    let node = TestNode::new();
    run(&node, "innocent", 0, 2 * GIB).await;
    run(&node, "filled", 0, 1 << 20).await;
    for (uid, bytes) in [("innocent", 2 * GIB), ("filled", 3 * GIB)] {
        let mut state = node.host.state();
        state.pod_memory.insert(uid.to_owned(), bytes);
    }
    memory_left(&node, 50 << 20);
    let all = ["innocent", "filled"];
    eventually("one goes", || !evicted(&node, &all).is_empty()).await;
    assert_eq!(evicted(&node, &all), ["filled"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_whose_memory_the_runtime_tells_nothing_goes_first() {
    let node = TestNode::new();
    run(&node, "large", 0, 2 * GIB).await;
    run(&node, "untold", 0, 0).await;
    memory_left(&node, 50 << 20);
    let all = ["large", "untold"];
    eventually("one goes", || !evicted(&node, &all).is_empty()).await;
    assert_eq!(evicted(&node, &all), ["untold"]);
}

#[tokio::test(start_paused = true)]
async fn measuring_files_that_takes_long_does_not_hold_up_the_look_at_memory() {
    let node = TestNode::new();
    let mut pod = pod_running("slow", "slow", &["run"]);
    pod["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] = json!("1Mi");
    node.create(&pod).await;
    eventually("it runs", || node.running("slow").is_some()).await;
    run(&node, "large", 0, 2 * GIB).await;
    node.host.state().hanging.insert("slow".to_owned());
    seconds(100).await;
    memory_left(&node, 50 << 20);
    let before = node.seconds();
    eventually("it is seen", || !conditions(&node).is_empty()).await;
    let waited = node.seconds() - before;
    assert!(waited < 12.0, "{waited}");
}

#[tokio::test(start_paused = true)]
async fn no_pod_goes_for_a_shortage_that_is_over_though_another_one_is_not() {
    let node = TestNode::new();
    for (uid, memory, disk) in [("large", 2 * GIB, 1), ("full", 1 << 20, GIB)] {
        run(&node, uid, 0, memory).await;
        node.host
            .state()
            .pod_files
            .insert(uid.to_owned(), files(disk));
    }
    seconds(20).await;
    // It takes a while to find out what pods use.
    node.runtime.set_faults(Faults {
        slowness: 1000.0,
        ..Faults::NONE
    });
    disk_left(&node, &[GIB]);
    memory_left(&node, 50 << 20);
    eventually("it is seen", || conditions(&node).len() == 2).await;
    memory_left(&node, 4 * GIB);
    let all = ["large", "full"];
    eventually("one goes", || !evicted(&node, &all).is_empty()).await;
    assert_eq!(evicted(&node, &all), ["full"]);
    let told = || node.observation("full").map(|it| it.failed_message);
    eventually("it is told why", || {
        told().is_some_and(|it| it.contains("resource: ephemeral-storage"))
    })
    .await;
}

/// Pods whose files cannot be measured, on a disk that is full.
async fn run_hanging(node: &TestNode, uids: &[&str]) {
    for uid in uids {
        run(node, uid, 0, 1 << 20).await;
        node.host.state().hanging.insert((*uid).to_owned());
    }
    seconds(20).await;
    disk_left(node, &[GIB]);
}

#[tokio::test(start_paused = true)]
async fn while_the_files_of_pods_are_measured_one_goes_for_want_of_memory() {
    let node = TestNode::new();
    run(&node, "large", 0, 2 * GIB).await;
    let slow = ["slow1", "slow2", "slow3", "slow4", "slow5", "slow6"];
    run_hanging(&node, &slow).await;
    let is_disk = || conditions(&node) == ["DiskPressure"];
    eventually("it is short of disk", is_disk).await;
    memory_left(&node, 50 << 20);
    let before = node.seconds();
    eventually("one goes", || node.running("large").is_none()).await;
    let waited = node.seconds() - before;
    assert!(waited < 15.0, "{waited}");
    assert!(evicted(&node, &slow).is_empty());
    let message = node.observation("large").unwrap().failed_message;
    assert!(message.contains("resource: memory"), "{message}");
}

/// Of those whose turn does not come the layers count, and they do not go for that.
#[tokio::test(start_paused = true)]
async fn measuring_the_files_of_all_pods_takes_no_longer_than_a_minute() {
    let node = TestNode::new();
    let small = ["a1", "a2", "a3", "a4", "a5", "a6"];
    // As many as a minute is long enough for.
    let large = ["z1", "z2", "z3", "z4"];
    for uid in large {
        node.runtime.set_layer_use(uid, GIB);
    }
    run_hanging(&node, &[&small[..], &large].concat()).await;
    let is_short = || !conditions(&node).is_empty();
    eventually("it is short of disk", is_short).await;
    let before = node.seconds();
    let has_gone = || evicted(&node, &[&small[..], &large].concat());
    eventually("one goes", || !has_gone().is_empty()).await;
    let waited = node.seconds() - before;
    assert!((59.0..75.0).contains(&waited), "{waited}");
    assert_eq!(has_gone(), ["z1"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_files_could_not_all_be_measured_goes_first_from_a_full_disk() {
    let node = TestNode::new();
    for uid in ["large", "partial"] {
        run(&node, uid, 0, 0).await;
    }
    let partial = PodFilesUsage {
        is_partial: true,
        ..files(1)
    };
    for (uid, files) in [("large", files(GIB)), ("partial", partial)] {
        node.host.state().pod_files.insert(uid.to_owned(), files);
    }
    seconds(20).await;
    disk_left(&node, &[GIB]);
    let all = ["large", "partial"];
    eventually("one goes", || !evicted(&node, &all).is_empty()).await;
    assert_eq!(evicted(&node, &all), ["partial"]);
}

#[tokio::test(start_paused = true)]
async fn the_next_pod_waits_until_the_one_before_has_gone() {
    let node = TestNode::new();
    for (uid, memory) in [("first", 2 * GIB), ("second", GIB)] {
        run(&node, uid, 0, memory).await;
    }
    // Its volumes hang when they are to be taken down.
    node.host.state().hanging.insert("first".to_owned());
    memory_left(&node, 1);
    eventually("one goes", || node.running("first").is_none()).await;
    let at = node.seconds();
    eventually("the other goes", || node.running("second").is_none()).await;
    // The grace of the first, and 30 s for its files.
    let waited = node.seconds() - at;
    assert!((29.0..36.0).contains(&waited), "{waited}");
}

#[tokio::test(start_paused = true)]
async fn another_run_of_the_pool_neither_forgets_an_eviction_nor_needs_a_second_one() {
    // Milliseconds after the pod was chosen at which the pool dies.
    for after in [0, 1, 3, 10, 50, 300, 900] {
        let mut node = TestNode::new();
        let first = run(&node, "first", 0, 2 * GIB).await;
        let second = run(&node, "second", 0, GIB).await;
        seconds(20).await;
        memory_left(&node, 1);
        let is_chosen = || node.reasons("first").contains(&"Evicted".to_owned());
        eventually("it is chosen", is_chosen).await;
        tokio::time::sleep(Duration::from_millis(after)).await;
        node.kill();
        if node.running("first").is_none() {
            memory_left(&node, 4 * GIB);
        }
        let was_stopped = node.running("first").is_none();
        node.start();
        for pod in [&second, &first] {
            node.create(pod).await;
        }
        eventually("it goes", || node.running("first").is_none()).await;
        memory_left(&node, 4 * GIB);
        eventually("it is done", || {
            node.phase("first") == Some(WorkerPhase::Finished)
        })
        .await;
        seconds(100).await;
        assert!(
            node.running("first").is_none(),
            "{after} ms, stopped: {was_stopped}"
        );
        assert_eq!(node.observation("first").unwrap().failed_reason, "Evicted");
        assert!(node.running("second").is_some(), "{after} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn unused_images_go_before_pods_where_a_disk_is_full() {
    let node = TestNode::new();
    node.runtime.add_image("localhost/unused:1", true);
    run(&node, "u1", 0, 0).await;
    node.host
        .state()
        .pod_files
        .insert("u1".to_owned(), files(GIB));
    // Images are old enough to go.
    seconds(300).await;
    node.current_run()
        .garbage
        .order(crate::garbage::Order::Everything {
            desired: ["u1".to_owned()].into(),
            sources_ready: true,
        });
    seconds(200).await;
    disk_left(&node, &[GIB, 50 * GIB]);
    let unused = || node.runtime.images().iter().any(|it| it.contains("unused"));
    eventually("the image goes", || !unused()).await;
    seconds(60).await;
    assert!(node.running("u1").is_some(), "that was enough");
    assert_eq!(conditions(&node), ["DiskPressure"]);
    assert!(node.runtime.images().iter().any(|it| it.contains(IMAGE)));

    disk_left(&node, &[GIB]);
    eventually("the pod goes", || node.running("u1").is_none()).await;
    let message = node.observation("u1").unwrap().failed_message;
    assert!(
        message.starts_with("The node was low on resource: ephemeral-storage. "),
        "{message}"
    );
}

/// Also just after this process has started: images that were there before are not new.
#[tokio::test(start_paused = true)]
async fn unused_images_go_before_pods_just_after_a_restart() {
    let mut node = TestNode::new();
    node.runtime.add_image("localhost/unused:1", true);
    run(&node, "u1", 0, 0).await;
    node.kill();
    node.start();
    seconds(1).await;
    // As if it was pulled.
    node.runtime.add_image("localhost/new:1", true);
    let files = files(GIB);
    node.host.state().pod_files.insert("u1".to_owned(), files);
    disk_left(&node, &[GIB, 50 * GIB]);
    let has = |name: &str| node.runtime.images().iter().any(|it| it.contains(name));
    eventually("the image goes", || !has("unused")).await;
    seconds(30).await;
    assert!(has("new") && node.running("u1").is_some());
}

/// A node with images that nobody uses and that are old enough to go.
async fn with_unused_images(images: &[&str]) -> TestNode {
    let node = TestNode::new();
    for image in images {
        node.runtime.add_image(image, true);
    }
    run(&node, "u1", 0, 0).await;
    node.current_run()
        .garbage
        .order(crate::garbage::Order::Everything {
            desired: ["u1".to_owned()].into(),
            sources_ready: true,
        });
    seconds(300).await;
    node
}

/// Each removal takes longer than anybody waits for one that frees nothing.
#[tokio::test(start_paused = true)]
async fn no_pod_goes_while_removing_images_frees_more_and_more() {
    let images = [
        "localhost/one:1",
        "localhost/two:1",
        "localhost/three:1",
        "localhost/four:1",
    ];
    let node = with_unused_images(&images).await;
    node.runtime.set_faults(Faults {
        image_removal_delay: Duration::from_secs(50),
        ..Faults::NONE
    });
    let left = || {
        let there = node.runtime.images().into_iter();
        there.filter(|it| images.contains(&&**it)).count() as u64
    };
    for gone in 0..3 {
        disk_left(&node, &[GIB * (1 + gone)]);
        eventually("an image goes", || left() == 3 - gone).await;
    }
    // That was enough, before the last one goes.
    disk_left(&node, &[50 * GIB]);
    seconds(60).await;
    assert!(node.running("u1").is_some());
}

/// Or one image could protect all pods.
#[tokio::test(start_paused = true)]
async fn a_pod_goes_when_the_removal_of_images_hangs() {
    let node = with_unused_images(&["localhost/one:1"]).await;
    node.runtime.set_faults(Faults {
        image_removal_delay: Duration::from_secs(1000),
        ..Faults::NONE
    });
    disk_left(&node, &[GIB]);
    let before = node.seconds();
    eventually("the pod goes", || node.running("u1").is_none()).await;
    let waited = node.seconds() - before;
    assert!((60.0..95.0).contains(&waited), "{waited}");
}

/// A node on which a pod has to go once less than 1 GiB of memory is left for so many
/// seconds, with this longest grace.
fn with_soft_threshold(seconds: u64, longest_grace: Option<u64>) -> TestNode {
    let mut node = TestNode::new();
    let signal = || "memory.available".to_owned();
    node.kill();
    node.eviction = EvictionSettings {
        hard: BTreeMap::new(),
        soft: [(signal(), "1Gi".to_owned())].into(),
        soft_grace: [(signal(), Duration::from_secs(seconds))].into(),
        max_pod_grace: longest_grace.map(Duration::from_secs),
        ..EvictionSettings::default()
    };
    node.start();
    node
}

#[tokio::test(start_paused = true)]
async fn a_soft_threshold_waits_for_its_grace_and_leaves_the_pod_what_is_configured() {
    for (longest, expected) in [
        (Some(7), 6.5..8.0),
        (Some(60), 24.5..26.0),
        (None, 0.5..2.0),
    ] {
        let node = with_soft_threshold(90, longest);
        let mut pod = pod_running("a", "u1", &["ignore-term"]);
        pod["spec"]["terminationGracePeriodSeconds"] = json!(25);
        node.create(&pod).await;
        eventually("it runs", || node.running("u1").is_some()).await;
        memory_left(&node, GIB / 2);
        let before = node.seconds();
        eventually("it is chosen", || {
            node.reasons("u1").contains(&"Evicted".to_owned())
        })
        .await;
        let chosen = node.seconds();
        let waited = chosen - before;
        assert!((90.0..115.0).contains(&waited), "{waited}");
        eventually("it ends", || node.running("u1").is_none()).await;
        let grace = node.seconds() - chosen;
        assert!(expected.contains(&grace), "{grace}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_jump_of_the_clock_evicts_no_second_pod() {
    for jump in [-3600_i64, 3600] {
        let node = with_soft_threshold(30, Some(60));
        for uid in ["u1", "u2"] {
            let mut pod = pod_running(uid, uid, &["ignore-term"]);
            pod["spec"]["terminationGracePeriodSeconds"] = json!(60);
            node.create(&pod).await;
            eventually("it runs", || node.running(uid).is_some()).await;
        }
        memory_left(&node, GIB / 2);
        let chosen = |uid: &str| node.reasons(uid).contains(&"Evicted".to_owned());
        eventually("one is chosen", || chosen("u1") || chosen("u2")).await;
        node.clock.jump(jump * 1_000_000_000);
        seconds(30).await;
        assert!(chosen("u1") != chosen("u2"), "{jump}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_pod_goes_as_soon_as_an_evicted_one_is_gone() {
    let node = TestNode::new();
    for uid in ["u1", "u2"] {
        node.create(&pod_running(uid, uid, &["run"])).await;
        eventually("it runs", || node.running(uid).is_some()).await;
    }
    memory_left(&node, GIB / 100);
    let chosen = |uid: &str| node.reasons(uid).contains(&"Evicted".to_owned());
    eventually("one is chosen", || chosen("u1") || chosen("u2")).await;
    let (first, other) = if chosen("u1") {
        ("u1", "u2")
    } else {
        ("u2", "u1")
    };
    eventually("it is gone", || node.running(first).is_none()).await;
    seconds(3).await;
    // Its source removes it.
    let pool = &node.current_run().pool;
    let wanted = HashSet::from([other.to_owned()]);
    let known = pool.sync_known(wanted, PodSource::ALL.into(), None);
    assert_eq!(known.await.unwrap().len(), 1);
    let before = node.seconds();
    eventually("the other is chosen", || chosen(other)).await;
    let waited = node.seconds() - before;
    assert!(waited < 25.0, "{waited}");
}

#[tokio::test(start_paused = true)]
async fn a_node_with_room_asks_the_runtime_only_where_its_images_are_now_and_then() {
    let node = TestNode::new();
    run(&node, "u1", 0, GIB).await;
    seconds(30).await;
    let asked = |method: &str| node.runtime.calls().get(method).copied().unwrap_or(0);
    let before = asked("ImageFsInfo");
    seconds(620).await;
    assert_eq!(asked("ImageFsInfo"), before + 2);
    assert_eq!(asked("ListContainerStats"), 0);
}
