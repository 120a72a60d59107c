//! A disk that hangs while manifests are read.

use std::sync::{Condvar, Mutex};

use super::*;

/// A disk that hangs while it is shut.
#[derive(Debug, Clone, Default)]
struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Debug, Default)]
struct GateState {
    shut: bool,
    waiting: usize,
    most_waiting: usize,
}

impl Gate {
    fn set_shut(&self, shut: bool) {
        self.0.0.lock().unwrap().shut = shut;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let mut state = self.0.0.lock().unwrap();
        state.waiting += 1;
        state.most_waiting = state.most_waiting.max(state.waiting);
        let (mut state, waited) = (self
            .0
            .1
            .wait_timeout_while(state, PATIENCE, |state| state.shut))
        .unwrap();
        state.waiting -= 1;
        // As bad as for ever: nobody who could open it goes on.
        assert!(!waited.timed_out(), "the test's own thread hangs too");
    }

    /// Waits, without letting time pass, until something hangs.
    async fn until_reached(&self) {
        while self.0.0.lock().unwrap().waiting == 0 {
            tokio::task::yield_now().await;
        }
    }

    fn most_waiting(&self) -> usize {
        self.0.0.lock().unwrap().most_waiting
    }
}

/// Opens its gate when a test ends: its runtime waits for threads that read.
struct Opens(Gate);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.set_shut(false);
    }
}

/// Lets time pass until the source tells that a file is slow, with these images. It does not
/// pass by itself as long as a thread reads.
async fn until_slow(node: &Node, file: &str, expected: &[&str]) -> SourceState {
    let place = node.manifests().join(file).display().to_string();
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let state = node.publication.watch().borrow()[&PodSource::File].clone();
        let told = state.problems.iter().any(|problem| {
            problem.reason.contains("for more than 5 s") && problem.subject == place
        });
        if told && images(&state) == expected {
            return state;
        }
        assert!(std::time::Instant::now() < deadline, "{state:?}");
        tokio::time::advance(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_is_told_and_never_looks_empty() {
    let mut node = Node::with_directory();
    node.write("a", &manifest("a", "i:1"));
    let gate = Gate::default();
    gate.set_shut(true);
    let _opens = Opens(gate.clone());
    let at_gate = gate.clone();
    node.start_altered(&node.manifests(), |source| {
        source.read = Arc::new(move |order| {
            let file = order.path.join("a").display().to_string();
            order.place.send(file).unwrap();
            at_gate.pass();
            reader::read(order)
        });
    });
    gate.until_reached().await;
    let before = until_slow(&node, "a", &[]).await;
    assert_eq!((before.ready, before.problems.len()), (false, 1));
    tokio::time::advance(Duration::from_secs(24 * 3600)).await;
    let after = until_slow(&node, "a", &[]).await;
    assert_eq!(after, before);

    // Over: all of it counts.
    gate.set_shut(false);
    let state = node.until_images(&["i:1"]).await;
    assert!(state.problems.is_empty(), "{state:?}");

    // Once more, and nothing that was ready is less so.
    gate.set_shut(true);
    node.remove("a");
    gate.until_reached().await;
    let state = until_slow(&node, "a", &["i:1"]).await;
    assert!(state.ready);
    gate.set_shut(false);
    let state = node.until_images(&[]).await;
    assert!(state.problems.is_empty(), "{state:?}");
    assert_eq!(gate.most_waiting(), 1);
}

#[tokio::test]
async fn a_reading_ends_when_nobody_waits_for_it() {
    let node = Node::with_directory();
    for name in ["a", "b", "c"] {
        node.write(name, "x");
    }
    let (at, place) = watch::channel(String::new());
    drop(place);
    let order = Order {
        path: node.manifests(),
        node: "node".into(),
        clock: WallClock::system(),
        manifests: Manifests::default(),
        settled: Default::default(),
        arming: None,
        place: at,
    };
    let listing = tokio::task::spawn_blocking(move || reader::read(order));
    let mut manifests = listing.await.unwrap().manifests;
    assert_eq!(manifests.publish().1, [], "none is read");
}
