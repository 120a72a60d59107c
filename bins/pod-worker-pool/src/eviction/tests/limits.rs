//! Pods that have more on the node's disk than they may.

use super::*;

#[tokio::test(start_paused = true)]
async fn pods_that_have_more_on_the_disk_than_they_may_are_evicted_and_others_are_not() {
    let node = TestNode::new();
    for uid in ["over", "within", "unlimited"] {
        let mut pod = pod_running(uid, uid, &["run"]);
        if uid != "unlimited" {
            pod["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] = json!("1Mi");
        }
        node.create(&pod).await;
        eventually("it runs", || node.running(uid).is_some()).await;
    }
    let set = |uid: &str, bytes| {
        let mut state = node.host.state();
        state.pod_files.insert(uid.to_owned(), files(bytes));
    };
    set("within", 1 << 20);
    set("unlimited", 1 << 40);
    seconds(200).await;
    set("over", (1 << 20) + 1);
    eventually("it goes", || node.running("over").is_none()).await;
    let observation = node.observation("over").unwrap();
    assert_eq!(
        observation.failed_message,
        "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". "
    );
    assert!(!observation.is_disruption);
    seconds(200).await;
    assert!(node.running("within").is_some() && node.running("unlimited").is_some());
    assert!(conditions(&node).is_empty());
}

/// What containers that have ended wrote is not what the pod uses now: one that restarts
/// may write as much each time.
#[tokio::test(start_paused = true)]
async fn only_what_containers_wrote_that_have_not_ended_counts_towards_limits() {
    let node = TestNode::new();
    let mut pod = pod_running("a", "u1", &["exit", "1", "100000"]);
    let limited = json!({"limits": {"ephemeral-storage": "1Gi"}});
    let init = json!({
        "name": "i", "image": IMAGE, "command": ["exit", "0", "100"], "resources": limited,
    });
    pod["spec"]["initContainers"] = json!([init]);
    pod["spec"]["containers"][0]["resources"] = limited;
    node.runtime.set_layer_use("u1", 600 << 20);
    let logs = TreeSize {
        bytes: 600 << 20,
        inodes: 1,
    };
    let files = PodFilesUsage {
        logs: BTreeMap::from([("i".to_owned(), logs)]),
        ..PodFilesUsage::default()
    };
    node.host.state().pod_files.insert("u1".to_owned(), files);
    node.create(&pod).await;
    let ended = || {
        let containers = node.runtime.containers().into_iter();
        let ended = containers.filter(|it| !it.running && it.name == "c");
        ended.count()
    };
    let is_evicted = || node.reasons("u1").contains(&"Evicted".to_owned());
    eventually("it restarts", || {
        ended() > 0 && node.running("u1").is_some()
    })
    .await;
    seconds(90).await;
    assert!(!is_evicted() && ended() > 0, "{:?}", node.reasons("u1"));
    node.runtime.set_layer_use("u1", (1 << 30) + 1);
    eventually("the one that runs has too much", is_evicted).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_too_much_goes_though_the_files_of_others_cannot_be_measured() {
    let node = TestNode::new();
    for uid in ["hangs", "over"] {
        let mut pod = pod_running(uid, uid, &["run"]);
        pod["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] = json!("1Mi");
        node.create(&pod).await;
        eventually("it runs", || node.running(uid).is_some()).await;
    }
    let too_much = files(2 << 20);
    node.host.state().hanging.insert("hangs".to_owned());
    let _ = node
        .host
        .state()
        .pod_files
        .insert("over".to_owned(), too_much);
    let before = node.seconds();
    eventually("it goes", || node.running("over").is_none()).await;
    let waited = node.seconds() - before;
    assert!(waited < 29.0, "{waited}");
}
