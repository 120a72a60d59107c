//! Rounds on a simulated node.

use std::collections::BTreeMap;
use std::time::Duration;

use simulated_node::LogFiles;
use simulated_runtime::Faults;

use super::*;
use crate::testing::{TestNode, eventually, pod_running};

/// Longer than the time between two rounds.
const A_ROUND: Duration = Duration::from_secs(11);

const TOO_BIG: u64 = 10 << 20;

fn log(attempt: u32) -> LogTarget {
    LogTarget {
        pod: PodIdentity::new("u1", "default", "web").unwrap(),
        container: "c".to_owned(),
        attempt,
    }
}

/// A node with one pod whose log has these files.
async fn node(files: &LogFiles) -> TestNode {
    let node = TestNode::new();
    node.host.state().log_files.insert(log(0), files.clone());
    let pod = pod_running("web", "u1", &["run"]);
    node.create(&pod).await;
    let is_seen = || {
        let observation = node.observation("u1");
        observation.is_some_and(|it| !running_of(&it).is_empty())
    };
    eventually("it is seen to run", is_seen).await;
    node
}

fn files(node: &TestNode) -> LogFiles {
    node.host.state().log_files[&log(0)].clone()
}

fn reopened(node: &TestNode) -> u64 {
    let calls = node.runtime.calls();
    calls.get("ReopenContainerLog").copied().unwrap_or(0)
}

fn sizes(sizes: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let sizes = sizes.iter().map(|&(name, size)| (name.to_owned(), size));
    sizes.collect()
}

#[test]
fn a_log_is_rotated_when_it_is_as_big_as_allowed_and_opened_when_it_is_missing() {
    for (size, expected) in [
        (None, Due::Reopen),
        (Some(0), Due::Nothing),
        (Some(9), Due::Nothing),
        (Some(10), Due::Rotate),
        (Some(u64::MAX), Due::Rotate),
    ] {
        assert_eq!(due(size, 10), expected, "{size:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_that_is_too_big_is_rotated_and_opened_anew() {
    let all = sizes(&[
        ("20200101-000001.gz", 1),
        ("20200101-000002.gz", 2),
        ("20200101-000003.gz", 3),
        ("20200101-000004", 4),
        ("20200101-000004.tmp", 1),
    ]);
    let node = node(&LogFiles {
        current: Some(TOO_BIG),
        rotated: all,
    })
    .await;
    eventually("it is opened anew", || reopened(&node) == 1).await;
    let is_compressed = || files(&node).rotated.contains_key("20200101-000004.gz");
    eventually("the one before is compressed", is_compressed).await;
    let files = files(&node);
    assert_eq!(files.current, None, "the simulated runtime makes no files");
    // Five with the log itself.
    let names: Vec<&str> = files.rotated.keys().map(String::as_str).collect();
    let (newest, older) = names.split_last().unwrap();
    assert!(newest.starts_with("20231114-"), "{newest}");
    let kept = [
        "20200101-000002.gz",
        "20200101-000003.gz",
        "20200101-000004.gz",
    ];
    assert_eq!(older, kept);
}

#[tokio::test(start_paused = true)]
async fn a_small_log_is_left_alone_and_so_is_one_whose_container_has_ended() {
    let small = LogFiles {
        current: Some(TOO_BIG - 1),
        rotated: sizes(&[("1", 1)]),
    };
    let node = node(&small).await;
    tokio::time::sleep(A_ROUND).await;
    assert_eq!(files(&node), small);
    let pod = pod_running("web", "u1", &["run"]);
    node.stop(&pod, 1).await;
    eventually("it has ended", || node.running("u1").is_none()).await;
    tokio::time::sleep(A_ROUND).await;
    node.host
        .state()
        .log_files
        .insert(log(0), LogFiles::default());
    tokio::time::sleep(A_ROUND).await;
    assert_eq!(reopened(&node), 0);
}

#[tokio::test(start_paused = true)]
async fn a_log_that_the_runtime_does_not_open_anew_is_put_back_and_tried_again() {
    let node = node(&LogFiles {
        current: Some(1),
        rotated: BTreeMap::new(),
    })
    .await;
    node.runtime.set_faults(Faults {
        unavailable: true,
        ..Faults::NONE
    });
    let big = LogFiles {
        current: Some(TOO_BIG),
        rotated: BTreeMap::new(),
    };
    node.host.state().log_files.insert(log(0), big.clone());
    let before = reopened(&node);
    eventually("it was tried", || reopened(&node) > before).await;
    eventually("it is put back", || files(&node) == big).await;
    node.runtime.set_faults(Faults::NONE);
    eventually("it is rotated", || files(&node).rotated.len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_that_was_renamed_before_a_kill_is_opened_anew_by_the_next_run() {
    let renamed = LogFiles {
        current: None,
        rotated: sizes(&[("20231114-000000", TOO_BIG)]),
    };
    let mut node = node(&LogFiles {
        current: Some(1),
        rotated: BTreeMap::new(),
    })
    .await;
    node.kill();
    node.host.state().log_files.insert(log(0), renamed.clone());
    node.start();
    node.create(&pod_running("web", "u1", &["run"])).await;
    eventually("it is opened anew", || reopened(&node) > 0).await;
    assert_eq!(files(&node), renamed, "what was renamed is kept");
}

/// As while the source of the pod does not answer: the pool that was restarted meanwhile is
/// told of no pod.
#[tokio::test(start_paused = true)]
async fn the_log_of_a_container_whose_pod_nobody_names_is_rotated_too() {
    let mut node = node(&LogFiles {
        current: Some(1),
        rotated: BTreeMap::new(),
    })
    .await;
    node.kill();
    node.host.state().log_files.insert(
        log(0),
        LogFiles {
            current: Some(TOO_BIG),
            rotated: BTreeMap::new(),
        },
    );
    node.start();
    eventually("it is opened anew", || reopened(&node) > 0).await;
    assert_eq!(files(&node).rotated.len(), 1, "what was renamed is kept");
    assert!(node.observation("u1").is_none(), "nobody named it");
}

/// However big a file is that is being compressed: all logs go on being rotated, its own
/// among them, and its compression is neither begun twice nor cleared away.
#[tokio::test(start_paused = true)]
async fn a_compression_that_takes_long_holds_up_no_rotation() {
    let big = |rotated: &[(&str, u64)]| LogFiles {
        current: Some(TOO_BIG),
        rotated: sizes(rotated),
    };
    let other = LogTarget {
        pod: PodIdentity::new("u2", "default", "other").unwrap(),
        ..log(0)
    };
    let before = [("20200101-000001", 1 << 40), ("20200101-000001.tmp", 7)];
    let node = TestNode::new();
    node.host.state().compressing.insert("u1".to_owned());
    node.host
        .state()
        .log_files
        .insert(log(0), big(&before[..1]));
    node.create(&pod_running("web", "u1", &["run"])).await;
    eventually("it is opened anew", || reopened(&node) == 1).await;
    {
        let mut state = node.host.state();
        let files = state.log_files.get_mut(&log(0)).unwrap();
        files.current = Some(TOO_BIG);
        files.rotated.insert("20200101-000001.tmp".to_owned(), 7);
        state.log_files.insert(other.clone(), big(&[]));
    }
    node.create(&pod_running("other", "u2", &["run"])).await;
    let rotated = |log: &LogTarget| node.host.state().log_files[log].rotated.clone();
    eventually("the other is rotated", || rotated(&other).len() == 1).await;
    eventually("its own log is rotated", || rotated(&log(0)).len() == 4).await;
    for (name, size) in before {
        assert_eq!(rotated(&log(0)).get(name), Some(&size));
    }
    node.host.state().compressing.clear();
    let is_compressed = || rotated(&log(0)).contains_key("20200101-000001.gz");
    eventually("it is compressed", is_compressed).await;
}
