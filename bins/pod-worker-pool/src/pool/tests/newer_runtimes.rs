//! What only newer runtimes have: asked of them, and of no others.

use std::time::Duration;

use serde_json::{Value, json};

use super::RUN;
use super::images::collect_while;
use crate::testing::{IMAGE, TestNode, eventually, pod_running};

const FILES: &str = "localhost/files:1";

fn pod() -> Value {
    let mut value = pod_running("a", "u1", RUN);
    value["spec"]["os"] = json!({"name": "linux"});
    value["spec"]["containers"][0]["lifecycle"] = json!({"stopSignal": "SIGUSR1"});
    value
}

/// Waits until the container waits for this reason, and returns the message.
async fn message_of(node: &TestNode, reason: &str) -> String {
    let message = || {
        let observation = node.observation("u1")?;
        let mut waiting = observation.waiting.into_iter();
        Some(waiting.find(|it| it.reason == reason)?.message)
    };
    eventually("the reason is told", || message().is_some()).await;
    message().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_has_stop_signals_is_asked_for_one() {
    let node = TestNode::new();
    node.runtime.set_version("containerd", "v2.3.0");
    node.create(&pod()).await;
    eventually("it runs", || node.running("u1").is_some()).await;
    assert_eq!(node.running("u1").unwrap().config.stop_signal, 29);
}

#[tokio::test(start_paused = true)]
async fn a_stop_signal_waits_for_a_runtime_that_has_it() {
    let node = TestNode::new();
    node.runtime.set_version("containerd", "1.7.24~ds1");
    node.create(&pod()).await;
    let message = message_of(&node, "CreateContainerConfigError").await;
    let expected = "lifecycle.stopSignal: it is not supported by the runtime, containerd 1.7.24";
    assert!(message.contains(expected), "{message}");
    assert!(node.running("u1").is_none());
    // The runtime is upgraded.
    node.runtime.set_version("containerd", "v2.3.0");
    eventually("it runs", || node.running("u1").is_some()).await;
}

/// A pod whose container mounts an image.
fn pod_with_image(policy: &str) -> Value {
    let mut value = pod_running("a", "u1", RUN);
    value["spec"]["volumes"] =
        json!([{"name": "files", "image": {"reference": FILES, "pullPolicy": policy}}]);
    value["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "files", "mountPath": "/files", "subPath": "etc"}]);
    value
}

fn node_with(version: &str, has_image: bool) -> TestNode {
    let node = TestNode::new();
    node.runtime.set_version("containerd", version);
    node.runtime.add_image(FILES, has_image);
    node
}

#[tokio::test(start_paused = true)]
async fn the_image_of_a_volume_is_pulled_and_mounted() {
    for policy in ["IfNotPresent", "Always"] {
        let node = node_with("v2.2.0", false);
        let mut pod = pod_with_image(policy);
        // Its own image too: neither is pulled again while the other one is.
        pod["spec"]["containers"][0]["imagePullPolicy"] = json!(policy);
        node.runtime.set_pull_hangs(FILES, true);
        node.create(&pod).await;
        let pulling = || node.reasons("u1").iter().any(|reason| reason == "Pulling");
        eventually("it is pulled", pulling).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(node.running("u1").is_none(), "it waits for the pull");
        node.runtime.set_pull_hangs(FILES, false);
        eventually("it runs", || node.running("u1").is_some()).await;
        let config = node.running("u1").unwrap().config;
        let mut mounts = config.mounts.iter();
        let mount = mounts
            .find(|mount| mount.container_path == "/files")
            .unwrap();
        assert!(mount.readonly && mount.host_path.is_empty());
        assert_eq!(mount.image_sub_path, "etc");
        let image = mount.image.clone().unwrap().image;
        assert_ne!(image, config.image.clone().unwrap().image);
        let pulls = node.reasons("u1").into_iter();
        let expected = if policy == "Always" { 2 } else { 1 };
        assert_eq!(pulls.filter(|it| it == "Pulling").count(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn the_image_of_a_volume_that_cannot_be_had_is_told_like_the_containers_own() {
    let node = node_with("v2.2.0", false);
    node.create(&pod_with_image("Never")).await;
    let message = message_of(&node, "ErrImageNeverPull").await;
    assert!(message.contains(FILES), "{message}");
    assert!(node.running("u1").is_none());
}

#[tokio::test(start_paused = true)]
async fn an_image_volume_waits_for_a_runtime_that_has_it() {
    let node = node_with("1.7.24~ds1", true);
    node.create(&pod_with_image("Never")).await;
    let message = message_of(&node, "CreateContainerConfigError").await;
    let expected = "spec.containers[0].volumeMounts[0]: it is not supported by the runtime";
    assert!(message.contains(expected), "{message}");
    node.runtime.set_version("containerd", "v2.2.0");
    eventually("it runs", || node.running("u1").is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn the_image_of_a_volume_is_kept_while_there_is_its_container() {
    let mut node = node_with("v2.2.0", true);
    node.runtime.add_image("localhost/unused:1", true);
    node.create(&pod_with_image("Never")).await;
    eventually("it runs", || node.running("u1").is_some()).await;
    // Over a restart of the pool too.
    node.kill();
    node.start();
    node.create(&pod_with_image("Never")).await;
    node.host.state().disk_is_full = true;
    let is_there = || {
        let images = node.runtime.images();
        images.iter().any(|name| name == "localhost/unused:1")
    };
    collect_while(&node, Duration::from_secs(1), is_there).await;
    let mut left = node.runtime.images();
    left.sort();
    assert_eq!(left, [IMAGE, FILES]);
}

/// A pod with users of its own, whose root sees all of `/proc`.
fn pod_with_users(name: &str, uid: &str) -> Value {
    let mut value = pod_running(name, uid, RUN);
    value["spec"]["hostUsers"] = json!(false);
    value["spec"]["containers"][0]["securityContext"] = json!({"procMount": "Unmasked"});
    value
}

/// The first id of the node that the running container of a pod has.
fn first_id(node: &TestNode, uid: &str) -> Option<u32> {
    let config = node.running(uid)?.config;
    let security = config.linux.clone()?.security_context?;
    let own = security.namespace_options?.userns_options?;
    let mappings = config.mounts.iter().map(|mount| &mount.uid_mappings);
    assert!(mappings.clone().all(|mappings| *mappings == own.uids));
    Some(own.uids.first()?.host_id)
}

#[tokio::test(start_paused = true)]
async fn pods_with_users_of_their_own_keep_their_ids_and_share_none() {
    let mut node = TestNode::new();
    node.runtime.set_user_namespaces(true);
    let (first, second) = (pod_with_users("a", "u1"), pod_with_users("b", "u2"));
    node.create(&first).await;
    eventually("it runs", || first_id(&node, "u1") == Some(65_536)).await;
    node.create(&second).await;
    eventually("it runs", || first_id(&node, "u2") == Some(131_072)).await;
    // Also when the container is made anew by the next process.
    node.kill();
    node.start();
    node.create(&first).await;
    node.create(&second).await;
    let id = node.running("u2").unwrap().id;
    eventually("it is adopted", || node.observation("u2").is_some()).await;
    node.runtime.crash_container(&id, 1);
    let is_new = || node.running("u2").is_some_and(|it| it.id != id);
    eventually("it runs again", is_new).await;
    assert_eq!(first_id(&node, "u2"), Some(131_072));
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_users_of_its_own_waits_for_a_runtime_that_has_them() {
    let node = TestNode::new();
    node.create(&pod_with_users("a", "u1")).await;
    let failed = || {
        node.reasons("u1")
            .contains(&"FailedCreatePodSandBox".to_owned())
    };
    eventually("it is told", failed).await;
    assert!(node.host.state().id_ranges.is_empty());
    assert!(node.runtime.sandboxes().is_empty());
    node.runtime.set_user_namespaces(true);
    eventually("it runs", || first_id(&node, "u1") == Some(65_536)).await;
}
