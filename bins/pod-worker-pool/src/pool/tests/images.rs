//! Images that nobody uses go when their disk is too full.

use std::time::Duration;

use pod::metadata::POD_UID_LABEL;
use serde_json::json;

use crate::garbage::Order;
use crate::testing::{IMAGE, TestNode, eventually, pod_running};

use super::{RUN, running};

const MINUTE: Duration = Duration::from_secs(60);
const PAUSE: &str = "localhost/pause:1";

/// A node with one pod, the sandboxes' image and some that nobody uses.
async fn node_with_unused(count: usize) -> TestNode {
    let node = TestNode::new();
    node.create(&pod_running("a", "u1", RUN)).await;
    running(&node, "u1").await;
    node.runtime.add_image(PAUSE, true);
    for number in 0..count {
        let name = format!("localhost/unused-{number:02}:1");
        node.runtime.add_image(&name, true);
    }
    node
}

fn set_full(node: &TestNode, is_full: bool) {
    node.host.state().disk_is_full = is_full;
}

/// What housekeeping orders now and then, for so long.
async fn collect(node: &TestNode, time: Duration) {
    let begun = tokio::time::Instant::now();
    collect_while(node, MINUTE / 2, || begun.elapsed() < time).await;
}

/// What housekeeping orders each `interval`, as long as the condition holds.
pub(super) async fn collect_while(
    node: &TestNode,
    interval: Duration,
    mut condition: impl FnMut() -> bool,
) {
    let begun = tokio::time::Instant::now();
    while condition() {
        assert!(begun.elapsed() < 60 * MINUTE, "it ends");
        node.current_run().garbage.order(Order::Everything {
            desired: ["u1".to_owned()].into(),
            sources_ready: true,
        });
        tokio::time::sleep(interval).await;
    }
}

fn warnings(node: &TestNode) -> Vec<String> {
    let events = node.current_run().events.feed().recent().into_iter();
    events
        .filter(|event| event.reason == "FreeDiskSpaceFailed")
        .map(|event| event.message)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_is_freed_down_to_the_low_mark() {
    let node = node_with_unused(25).await;
    collect(&node, 4 * MINUTE).await;
    assert_eq!(node.runtime.images().len(), 27, "the disk is not full");

    // A tenth is free, and a fifth should be: ten images.
    set_full(&node, true);
    let none_is_removed = || node.runtime.images().len() == 27;
    collect_while(&node, Duration::from_secs(1), none_is_removed).await;
    set_full(&node, false);
    collect(&node, 6 * MINUTE).await;
    let left = node.runtime.images();
    assert_eq!(left.len(), 17);
    for kept in [IMAGE, PAUSE] {
        assert!(left.iter().any(|name| name == kept), "{kept}");
    }
    assert_eq!(warnings(&node), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn it_is_told_of_when_not_enough_can_be_freed() {
    let node = node_with_unused(3).await;
    collect(&node, 4 * MINUTE).await;
    set_full(&node, true);
    collect(&node, 6 * MINUTE).await;
    let mut left = node.runtime.images();
    left.sort();
    assert_eq!(left, [IMAGE, PAUSE]);
    let told = warnings(&node);
    let first = told.first().map(String::as_str).unwrap_or_default();
    let gib = simulated_runtime::IMAGE_BYTES;
    let (wanted, found) = (10 * gib, 3 * gib);
    assert_eq!(
        first,
        format!(
            "Failed to garbage collect required amount of images. Attempted to free \
             {wanted} bytes, but only found {found} bytes eligible to free."
        )
    );
}

/// On a node that pulls from nowhere it could never be started.
#[tokio::test(start_paused = true)]
async fn the_image_of_a_container_that_is_still_to_start_stays() {
    let node = node_with_unused(3).await;
    let mut pod = pod_running("b", "u2", RUN);
    let mut init = pod["spec"]["containers"][0].clone();
    init["name"] = json!("first");
    pod["spec"]["initContainers"] = json!([init]);
    let later = "localhost/later:1";
    pod["spec"]["containers"][0]["image"] = json!(later);
    node.runtime.add_image(later, true);
    // The runtime refuses to look for a name that no image can have.
    let mut strange = pod_running("c", "u3", RUN);
    strange["spec"]["containers"][0]["image"] = json!("localhost/strange:1");
    node.runtime
        .set_call_fails("ImageStatus", "localhost/strange:1", true);
    node.create(&strange).await;
    node.create(&pod).await;
    eventually("its init container runs", || {
        let first = node.runtime.newest((POD_UID_LABEL, "u2"), "first");
        first.is_some_and(|it| it.running)
    })
    .await;
    set_full(&node, true);
    collect(&node, 6 * MINUTE).await;
    let mut left = node.runtime.images();
    left.sort();
    assert_eq!(left, [IMAGE, later, PAUSE]);
}
