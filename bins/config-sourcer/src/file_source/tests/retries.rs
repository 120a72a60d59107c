//! What fails is tried again: listing the path, and being told of its changes.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::*;

fn listing(kind: Result<Option<PathKind>, String>, order: Order, settling: bool) -> Listing {
    Listing {
        kind,
        manifests: order.manifests,
        settling,
        left_out: 0,
        armed: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_path_that_cannot_be_listed_is_looked_at_again_after_1_s_then_ever_later() {
    let mut node = Node::with_directory();
    let (looked, mut looks) = mpsc::unbounded_channel();
    // The tenth look succeeds.
    let count = AtomicUsize::new(0);
    let read = Arc::new(move |order| {
        looked.send(()).unwrap();
        match count.fetch_add(1, Ordering::Relaxed) {
            9 => listing(Ok(Some(PathKind::Directory)), order, false),
            _ => listing(Err("broken".to_owned()), order, false),
        }
    });
    node.start_altered(&node.manifests(), |source| {
        source.read = read;
        // Its changes are not told.
        source.watch = Watcher::of(Err(io::ErrorKind::OutOfMemory.into()));
        let cap = Duration::from_secs(20);
        source.check_frequency = cap;
        source.failed_looks = failed_looks(cap);
    });
    looks.recv().await.unwrap();
    let mut waits = Vec::new();
    for _ in 0..12 {
        let before = Instant::now();
        looks.recv().await.unwrap();
        waits.push(before.elapsed().as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 20, 20, 20, 20, 20, 1, 2]);
}

#[test]
fn no_retry_waits_longer_than_the_check_frequency() {
    let frequency = Duration::from_millis(300);
    assert_eq!(failed_looks(frequency).failed(), frequency);
}

#[tokio::test]
async fn that_changes_are_noticed_late_is_shown_and_holds_up_nothing() {
    let mut node = Node::with_directory();
    node.write("a", &manifest("a", "i:1"));
    node.start_altered(&node.manifests(), |source| {
        source.check_frequency = Duration::from_millis(10);
        source.watch = Watcher::of(Err(io::ErrorKind::OutOfMemory.into()));
    });
    let state = node.until_images(&["i:1"]).await;
    assert!(has_problem(&state, "changes are noticed late"), "{state:?}");
    // Found at the next look, without being told.
    node.write("a", &manifest("a", "i:2"));
    node.until_images(&["i:2"]).await;
}
