//! Links on the way to the manifests that have no target.

use std::os::unix::fs::symlink;

use super::*;

#[tokio::test]
async fn where_no_pods_are_known_a_link_without_a_target_is_told_and_is_an_answer() {
    let mut node = Node::new();
    symlink("nothing", node.manifests()).unwrap();
    node.start();
    let state = node
        .until("told", |state| has_problem(state, "leads nowhere"))
        .await;
    assert!(state.ready && images(&state).is_empty());
}

#[tokio::test]
async fn a_link_that_loses_its_target_takes_no_pods_along_until_it_is_removed() {
    let mut node = Node::new();
    let target = node.disk.path().join("target");
    fs::write(&target, manifest("a", "i:1")).unwrap();
    symlink(&target, node.manifests()).unwrap();
    node.start();
    node.until_images(&["i:1"]).await;
    fs::remove_file(&target).unwrap();
    let state = node
        .until("told", |state| has_problem(state, "remove the link"))
        .await;
    assert_eq!(images(&state), ["i:1"]);
    fs::remove_file(node.manifests()).unwrap();
    node.until_images(&[]).await;
}
