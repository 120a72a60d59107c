//! Deaths of the prober and of the pool: no verdict turns, none is taken back.

use ipc::StateHub;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_kill_at_any_moment_never_takes_back_what_was_told() {
    let mut node = Node::new().await;
    node.announce(node.target("c1", &[Readiness]));
    node.behave("c1", Behaviour::Accept);
    let mut watcher = node.watch().await;
    watcher.until("c1", Readiness, Success).await;
    for millis in 0..60 {
        node.kill_prober();
        node.start_prober();
        let mut watcher = node.watch().await;
        assert_eq!(watcher.verdict("c1", Readiness), Some(Success));
        let lives_for = Duration::from_millis(millis * 37);
        let changes = tokio::time::timeout(lives_for, watcher.message()).await;
        assert!(changes.is_err(), "{changes:?}");
    }
}

/// As while the node policy refuses its pod.
#[tokio::test(start_paused = true)]
async fn a_failure_of_a_probe_that_was_taken_away_is_forgotten_and_the_others_stand() {
    let node = Node::new().await;
    let whole = node.target("c1", &[Liveness, Readiness]);
    node.announce(whole.clone());
    let mut watcher = node.watch().await;
    watcher.until("c1", Liveness, Failure).await;
    node.change("c1", |target| target.liveness_json.clear());
    while watcher.verdict("c1", Liveness).is_some() {
        watcher.message().await;
    }
    assert_eq!(watcher.verdict("c1", Readiness), Some(Failure));
    node.behave("c1", Behaviour::Accept);
    watcher.until("c1", Readiness, Success).await;
    node.announce(whole);
    let changes = watcher.changes_within(60).await;
    assert_eq!(changes, [("c1".to_owned(), Liveness, Success)]);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_has_not_found_its_containers_yet_turns_no_verdict() {
    let mut node = Node::new().await;
    node.behave("c1", Behaviour::Accept);
    let target = node.target("c1", &[Readiness]);
    node.announce(target.clone());
    let mut watcher = node.watch().await;
    watcher.until("c1", Readiness, Success).await;

    node.kill_pool();
    node.pool.targets = StateHub::new();
    node.start_pool();
    assert!(watcher.changes_within(60).await.is_empty());
    assert_eq!(watcher.verdict("c1", Readiness), Some(Success));
    let connects = node.connects("c1").len();
    node.announce(target);
    assert!(watcher.changes_within(10).await.is_empty());
    assert!(node.connects("c1").len() > connects, "probed again");

    // One that never comes back is forgotten in the end, and not before there is nothing
    // left that it could come back with.
    node.kill_pool();
    node.pool.targets = StateHub::new();
    node.pool.is_complete.send_replace(false);
    node.start_pool();
    assert!(watcher.changes_within(3600).await.is_empty());
    assert_eq!(watcher.verdict("c1", Readiness), Some(Success));
    node.pool.is_complete.send_replace(true);
    let began = Instant::now();
    while watcher.verdict("c1", Readiness).is_some() {
        watcher.message().await;
    }
    let took = began.elapsed();
    assert!(took >= crate::ledger::MISSING_FOR, "{took:?}");
    assert!(
        took < crate::ledger::MISSING_FOR + Duration::from_secs(5),
        "{took:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_the_pool_leaves_probes_as_far_apart_as_they_were() {
    let mut node = Node::new().await;
    let names: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
    for name in &names {
        node.behave(name, Behaviour::Accept);
        let probe = br#"{"tcpSocket":{"port":80},"periodSeconds":10}"#;
        node.announce(v1::ProbeTarget {
            readiness_json: probe.to_vec(),
            ..node.target(name, &[])
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    sleep(30).await;
    let targets: Vec<_> = names
        .iter()
        .map(|name| node.pool.targets.get(name).unwrap())
        .collect();
    node.kill_pool();
    node.pool.targets = StateHub::new();
    node.start_pool();
    // It finds out what runs, and names all at once.
    sleep(3).await;
    let named = Instant::now();
    for target in targets {
        node.announce(target);
    }
    sleep(30).await;
    let mut tries = Vec::new();
    for name in &names {
        let since: Vec<_> = node.connects(name);
        let since: Vec<_> = since.into_iter().filter(|at| *at >= named).collect();
        assert!((2..=4).contains(&since.len()), "{name}: {}", since.len());
        tries.extend(since);
    }
    tries.sort();
    let apart = tries.windows(2).map(|two| two[1] - two[0]);
    let least = apart.min().unwrap();
    assert!(least >= Duration::from_millis(400), "{least:?}");
}
