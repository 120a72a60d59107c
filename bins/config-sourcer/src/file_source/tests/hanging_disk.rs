//! A disk that hangs or is slow, while manifests are read and while the state is saved.

use super::*;

/// Opens its gate when a test ends: its runtime waits for threads that read.
struct Opens(Gate);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.set_shut(false);
    }
}

/// Lets time pass until the source tells that a place is slow, with these images. It does not pass
/// by itself as long as a thread reads or writes.
async fn until_slow(node: &Node, place: &Path, expected: &[&str]) -> SourceState {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let state = node.publication.watch().borrow()[&PodSource::File].clone();
        let told = state.problems.iter().any(|problem| {
            problem.reason.contains("for more than 5 s")
                && problem.subject == place.display().to_string()
        });
        if told && images(&state) == expected {
            return state;
        }
        assert!(std::time::Instant::now() < deadline, "{state:?}");
        tokio::time::advance(Duration::from_secs(1)).await;
    }
}

/// Lets time pass until what is good is on the disk.
async fn until_saved_while_hanging(node: &Node, text: &str) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !fs::read_to_string(node.state_file()).is_ok_and(|content| content.contains(text)) {
        assert!(std::time::Instant::now() < deadline, "{text} is not saved");
        tokio::time::advance(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_is_told_and_never_looks_empty() {
    let mut node = Node::with_directory();
    node.write("a", &manifest("a", "i:1"));
    node.start();
    node.until_images(&["i:1"]).await;
    node.until_saved("i:1").await;

    // In a new run, from the start: what was good then stands, and is not ready.
    node.write("b", &manifest("b", "i:2"));
    let gate = Gate::default();
    gate.set_shut(true);
    let _opens = Opens(gate.clone());
    let at_gate = gate.clone();
    let disk = Disk::new(move |order, reporter| {
        at_gate.pass();
        reader::read(order, reporter)
    });
    node.start_with(&node.manifests(), disk);
    let before = until_slow(&node, &node.manifests(), &["i:1"]).await;
    assert_eq!((before.ready, before.problems.len()), (false, 1));
    tokio::time::advance(Duration::from_secs(24 * 3600)).await;
    let after = until_slow(&node, &node.manifests(), &["i:1"]).await;
    assert_eq!(after, before);

    // Over: all of it counts.
    gate.set_shut(false);
    let state = node.until_images(&["i:1", "i:2"]).await;
    assert!(state.problems.is_empty(), "{state:?}");

    // Once more, and nothing that was ready is less so.
    gate.set_shut(true);
    node.remove("a");
    let state = until_slow(&node, &node.manifests(), &["i:1", "i:2"]).await;
    assert!(state.ready);
    gate.set_shut(false);
    let state = node.until_images(&["i:2"]).await;
    assert!(state.problems.is_empty(), "{state:?}");
    assert_eq!(gate.most_waiting(), 1);
}

#[tokio::test(start_paused = true)]
async fn files_before_the_one_that_hangs_count_and_it_is_named() {
    let mut node = Node::with_directory();
    node.write("a", &manifest("a", "i:1"));
    node.write("b", &manifest("b", "i:2"));
    let gate = Gate::default();
    gate.set_shut(true);
    let _opens = Opens(gate.clone());
    // After everything was read, as if one more file did not come.
    let at_gate = gate.clone();
    let disk = Disk::new(move |order, reporter| {
        let settled = Settled::All;
        let listing = reader::read(Order { settled, ..order }, reporter);
        at_gate.pass();
        listing
    });
    node.start_with(&node.manifests(), disk);
    let place = node.manifests().join("b");
    let state = until_slow(&node, &place, &["i:1", "i:2"]).await;
    assert_eq!((state.ready, state.problems.len()), (false, 1));
    until_saved_while_hanging(&node, "i:2").await;
    gate.set_shut(false);
    node.until_images(&["i:1", "i:2"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_has_the_state_too_holds_up_nothing_else() {
    let mut node = Node::with_directory();
    node.write("a", &manifest("a", "i:1"));
    node.start();
    node.until_images(&["i:1"]).await;
    node.until_saved("i:1").await;
    node.write("a", "bad: [");

    // In a new run, before anything is remembered: nothing is removed.
    let (manifests, state) = (Gate::default(), Gate::default());
    let _opens = (Opens(manifests.clone()), Opens(state.clone()));
    state.set_shut(true);
    let at_gate = manifests.clone();
    let disk = Disk::new(move |order, reporter| {
        let settled = Settled::All;
        let listing = reader::read(Order { settled, ..order }, reporter);
        at_gate.pass();
        listing
    });
    node.start_on(&node.manifests(), disk, Some(state.clone()));
    let before = until_slow(&node, &node.state_file(), &[]).await;
    assert_eq!((before.ready, before.problems.len()), (false, 1));
    state.set_shut(false);
    let after = node.until_images(&["i:1"]).await;
    assert_eq!(after.problems.len(), 1, "{after:?}");

    // Later, with something to be written down.
    manifests.set_shut(true);
    state.set_shut(true);
    node.write("b", &manifest("b", "i:2"));
    let place = node.manifests().join("b");
    until_slow(&node, &place, &["i:1", "i:2"]).await;
    for _ in 0..100 {
        tokio::time::advance(SLOW).await;
    }
    state.set_shut(false);
    until_saved_while_hanging(&node, "i:2").await;
    manifests.set_shut(false);
    let after = node.until("read", |state| state.problems.len() == 1).await;
    assert_eq!(images(&after), ["i:1", "i:2"]);
    assert_eq!((manifests.most_waiting(), state.most_waiting()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_state_disk_that_hangs_keeps_no_manifest_from_being_followed() {
    let mut node = Node::with_directory();
    let state = Gate::default();
    let _opens = Opens(state.clone());
    node.start_on(
        &node.manifests(),
        Disk::new(reader::read),
        Some(state.clone()),
    );
    node.until_images(&[]).await;
    state.set_shut(true);
    for round in 1..=2 * MAX_UNSAVED_LOOKS {
        let image = format!("i:{round}");
        node.write("a", &manifest("a", &image));
        node.until_images(&[&image]).await;
    }
    // The state is saved with the last of them, not with the one that was new when
    // it began to hang.
    state.set_shut(false);
    let last = format!("i:{}", 2 * MAX_UNSAVED_LOOKS);
    until_saved_while_hanging(&node, &last).await;
    assert_eq!(state.most_waiting(), 1);
}

#[tokio::test(start_paused = true)]
async fn many_files_that_are_slow_are_no_hang_and_count_as_they_come() {
    let mut node = Node::with_directory();
    node.write("a", &manifest("a", "i:1"));
    // After everything was read, as if there were more files, all as they were.
    let (come, more) = std::sync::mpsc::channel::<PathBuf>();
    let (seen, came) = std::sync::mpsc::channel::<()>();
    let ends = Mutex::new((more, seen));
    let disk = Disk::new(move |order, reporter| {
        let settled = Settled::All;
        let listing = reader::read(Order { settled, ..order }, reporter);
        let (more, seen) = &*ends.lock().unwrap();
        for place in more {
            reporter.at(&place.display().to_string());
            seen.send(()).unwrap();
        }
        listing
    });
    node.start_with(&node.manifests(), disk);
    let state = || node.publication.watch().borrow()[&PodSource::File].clone();
    let another = async |name: &str| {
        come.send(node.manifests().join(name)).unwrap();
        let deadline = std::time::Instant::now() + PATIENCE;
        while came.try_recv().is_err() {
            assert!(std::time::Instant::now() < deadline, "{name} is not read");
            tokio::task::yield_now().await;
        }
        // The source, which has been woken, has its turn several times.
        for _ in 0..20 {
            tokio::time::advance(Duration::from_millis(50)).await;
        }
    };
    for number in 0..100 {
        another(&number.to_string()).await;
        assert_eq!(*state().problems, [], "{number}");
    }
    assert_eq!(
        (images(&state()), state().ready),
        (vec!["i:1".to_owned()], false)
    );

    // One that does hang is told, and no longer when others come after it.
    another("slow").await;
    until_slow(&node, &node.manifests().join("slow"), &["i:1"]).await;
    for number in 0..10 {
        another(&number.to_string()).await;
    }
    assert_eq!(*state().problems, []);
    drop(come);
    node.until_images(&["i:1"]).await;
}

#[tokio::test]
async fn a_reading_ends_when_nobody_waits_for_it() {
    let node = Node::with_directory();
    for name in ["a", "b", "c"] {
        node.write(name, "x");
    }
    let order = Order {
        path: node.manifests(),
        clock: WallClock::system(),
        known: Default::default(),
        settled: Settled::All,
        arming: None,
    };
    let (reporter, reports) = reporter(&order.path);
    drop(reports);
    let listing = tokio::task::spawn_blocking(move || reader::read(order, &reporter));
    assert!(listing.await.unwrap().listed.is_empty());
}
