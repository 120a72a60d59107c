//! The process with fake peers over in-memory sockets, under a paused clock.

mod fakes;
pub(super) mod warnings;

use std::time::Duration;

use bulkhead_api::v1;
use v1::watch_pod_lifecycle_events_response::Message as LifecycleMessage;
use v1::watch_pods_response::Message as ConfigurationMessage;
use v1::watch_results_response::Message as ResultMessage;
use v1::{ProbeKind, ProbeResult, UpdateType};

use fakes::{FakeNode, plain, with_cpu};
use warnings::Warnings;

fn now_is(pod: v1::Pod) -> ConfigurationMessage {
    ConfigurationMessage::Pod(v1::SourcePod {
        source: "file".into(),
        pod: Some(pod),
    })
}

fn gone(uid: &str) -> ConfigurationMessage {
    ConfigurationMessage::Gone(v1::SourcePodGone {
        source: "file".into(),
        uid: uid.into(),
    })
}

fn started(uid: &str) -> LifecycleMessage {
    LifecycleMessage::Event(v1::PodLifecycleEvent {
        pod_uid: uid.into(),
        r#type: v1::PodLifecycleEventType::ContainerStarted.into(),
        container_id: "id".into(),
    })
}

#[tokio::test(start_paused = true)]
async fn a_slow_pool_does_not_hold_the_loop_and_no_kill_is_lost() {
    let node = FakeNode::start(vec![plain("a")]).await;
    node.until("a is created", |node| {
        node.pool.count("a", UpdateType::Create) == 1
    })
    .await;
    node.pool.hang(true);
    node.configuration.send(gone("a"));
    for index in 0..100 {
        node.configuration.send(now_is(plain(&format!("u{index}"))));
        node.lifecycle.send(started("u0"));
    }
    // The loop goes on: it answers, and its ticks come.
    let before = node.loop_status().await;
    node.until_async("the loop has taken everything in", async |node| {
        let status = node.loop_status().await;
        status.sources[0].pods == 100 && status.iterations > before.iterations + 20
    })
    .await;
    node.pool.hang(false);
    node.until("everything arrives", |node| node.pool.created() == 101)
        .await;
    node.until("the kill arrives", |node| {
        node.pool.count("a", UpdateType::Kill) >= 1
    })
    .await;
    let syncs = node.pool.count("u0", UpdateType::Sync);
    assert!(
        syncs < 50,
        "the newest update counts, not all of the {syncs}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_lifecycle_events_starves_nobody() {
    let node = FakeNode::start(vec![plain("a")]).await;
    node.until("a is created", |node| {
        node.pool.count("a", UpdateType::Create) == 1
    })
    .await;
    let flood = node.lifecycle.flood(started("a"));
    let beat = node.loop_status().await.iterations;
    node.configuration.send(now_is(plain("b")));
    node.until("the configuration", |node| {
        node.pool.count("b", UpdateType::Create) == 1
    })
    .await;
    node.results.send(ResultMessage::Verdict(fakes::verdict(
        "b",
        ProbeKind::Liveness,
        ProbeResult::Failure,
    )));
    node.until("the probe", |node| {
        node.pool.last("b").cause == "liveness probe of container c failed"
    })
    .await;
    let housekeeping = node.pool.questions();
    node.until("housekeeping", |node| node.pool.questions() > housekeeping)
        .await;
    assert!(node.loop_status().await.iterations > beat);
    flood.abort();
}

/// How long it takes until housekeeping asks the pool the next time.
async fn until_housekeeping(node: &FakeNode) -> Duration {
    let (asked, begin) = (node.pool.questions(), node.now());
    node.until("housekeeping", |node| node.pool.questions() > asked)
        .await;
    node.now() - begin
}

#[tokio::test(start_paused = true)]
async fn housekeeping_is_done_every_30_s_while_all_is_as_desired_and_every_2_s_else() {
    let node = FakeNode::start(vec![plain("a"), plain("b")]).await;
    node.until("both are created", |node| node.pool.created() == 2)
        .await;
    // Those of the start are over by then.
    for _ in 0..4 {
        until_housekeeping(&node).await;
    }
    for _ in 0..2 {
        let waited = until_housekeeping(&node).await.as_millis();
        assert!((29_900..30_100).contains(&waited), "{waited} ms");
    }
    // pleg was answered by another run of the pool.
    node.lifecycle
        .send(LifecycleMessage::Health(v1::PlegHealth {
            healthy: true,
            pool_boot_id: "pool-2".to_owned(),
            ..v1::PlegHealth::default()
        }));
    let waited = until_housekeeping(&node).await.as_millis();
    assert!(waited < 2_100, "{waited} ms");
    // This pool never says that it has ended.
    node.configuration.send(gone("a"));
    for _ in 0..3 {
        let waited = until_housekeeping(&node).await.as_millis();
        assert!(waited < 2_100, "{waited} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn housekeeping_that_takes_longer_than_15_s_is_logged() {
    let warnings = Warnings::of("::shell::pool");
    let _logging = tracing::subscriber::set_default(warnings.clone());
    let node = FakeNode::start(vec![plain("a")]).await;
    // This pool never says that it has ended: housekeeping is done every 2 s.
    node.configuration.send(gone("a"));
    for (seconds, logged) in [(15, 0), (18, 1)] {
        for _ in 0..3 {
            until_housekeeping(&node).await;
        }
        node.pool.hang(true);
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        node.pool.hang(false);
        until_housekeeping(&node).await;
        assert_eq!(warnings.count(), logged, "{seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_status_syncer_is_told_rejections_and_verdicts_again() {
    let mut node = FakeNode::start(vec![plain("a"), with_cpu("rejected", 9000)]).await;
    node.until("the rejection", |node| {
        node.status.rejections() == ["rejected OutOfcpu"]
    })
    .await;
    let verdict = fakes::verdict("a", ProbeKind::Readiness, ProbeResult::Success);
    node.results.send(ResultMessage::Verdict(verdict));
    node.until("the verdict", |node| {
        node.status
            .knows_verdict(ProbeKind::Readiness, ProbeResult::Success)
    })
    .await;
    // Long after anything has happened.
    node.until("the resync", |node| {
        node.pool.last("a").cause == "periodic resync"
    })
    .await;
    node.restart_status_syncer("status-2");
    let before = node.now();
    node.until("both again", |node| {
        node.status
            .knows_verdict(ProbeKind::Readiness, ProbeResult::Success)
            && node.status.rejections() == ["rejected OutOfcpu"]
    })
    .await;
    let waited = node.now() - before;
    assert!(waited <= Duration::from_secs(5), "{waited:?}");
}

/// Pods of one source that find no room must not keep back what is told of all others.
#[tokio::test(start_paused = true)]
async fn a_rejection_that_finds_no_room_keeps_nothing_else_back() {
    let node = FakeNode::start(vec![plain("a")]).await;
    node.until("a is created", |node| node.pool.created() == 1)
        .await;
    node.status.set_room(false);
    node.configuration.send(now_is(with_cpu("rejected", 9000)));
    node.until("its event", |node| node.status.has_event("OutOfcpu"))
        .await;
    let verdict = fakes::verdict("a", ProbeKind::Readiness, ProbeResult::Success);
    node.results.send(ResultMessage::Verdict(verdict));
    node.until("the verdict", |node| {
        node.status
            .knows_verdict(ProbeKind::Readiness, ProbeResult::Success)
    })
    .await;
    let retained = node.status.retained();
    node.until("the pods that there are", |node| {
        node.status.retained() > retained
    })
    .await;
    assert!(node.status.rejections().is_empty());
    node.status.set_room(true);
    node.until("the rejection", |node| {
        node.status.rejections() == ["rejected OutOfcpu"]
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_turned_away_is_taken_from_a_new_stream() {
    let node = FakeNode::start(vec![plain("a")]).await;
    node.until("a is created", |node| node.pool.created() == 1)
        .await;
    let source = || "http".to_owned();
    let snapshot = [
        ConfigurationMessage::Sources(v1::ConfiguredSources {
            names: vec!["file".into(), source()],
        }),
        ConfigurationMessage::SnapshotBegin(v1::SourceSnapshotBegin {
            source: source(),
            ready: true,
        }),
        ConfigurationMessage::Pod(v1::SourcePod {
            source: source(),
            pod: Some(v1::Pod {
                source: source(),
                ..plain("a")
            }),
        }),
        ConfigurationMessage::SnapshotEnd(v1::SourceSnapshotEnd { source: source() }),
    ];
    for message in snapshot.clone() {
        node.configuration.send(message);
    }
    node.until("its event", |node| node.status.has_event("FailedManifest"))
        .await;
    node.configuration.begins_with(snapshot.to_vec());
    node.configuration.send(gone("a"));
    node.until("a is created for its other source", |node| {
        node.pool.count("a", UpdateType::Create) == 2
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn while_the_runtime_is_down_its_health_is_asked_for_with_a_back_off() {
    let node = FakeNode::start(vec![plain("a")]).await;
    node.until("a is created", |node| {
        node.pool.count("a", UpdateType::Create) == 1
    })
    .await;
    node.pool.set_runtime_error("connection refused");
    node.until_async("it is shown", async |node| {
        node.loop_status().await.runtime_error == "connection refused"
    })
    .await;
    node.lifecycle.send(started("a"));
    let (asked, begin) = (node.pool.health_questions(), node.now());
    node.until("eight questions", |node| {
        node.pool.health_questions() >= asked + 8
    })
    .await;
    let waited = node.now() - begin;
    // 100 ms doubling to 5 s: the eighth comes after some 15 s, not after 40 s.
    assert!(
        waited > Duration::from_secs(5) && waited < Duration::from_secs(25),
        "{waited:?}"
    );
    assert_eq!(node.pool.count("a", UpdateType::Sync), 0);
    node.pool.set_runtime_error("");
    node.until("the sync that waited", |node| {
        node.pool.count("a", UpdateType::Sync) == 1
    })
    .await;
    assert_eq!(node.pool.last("a").cause, "the container runtime is back");
}

#[tokio::test(start_paused = true)]
async fn the_loop_shows_its_peers_and_its_pods() {
    let node = FakeNode::start(vec![plain("a"), plain("b")]).await;
    node.until("both are created", |node| node.pool.created() == 2)
        .await;
    node.until("status-syncer is reached", |node| {
        node.status.retained() > 0
    })
    .await;
    let status = node.loop_status().await;
    let connected: Vec<_> = status
        .peers
        .iter()
        .filter(|peer| peer.connected)
        .map(|peer| peer.process.as_str())
        .collect();
    for peer in [
        "config-sourcer",
        "pod-worker-pool",
        "status-syncer",
        "pleg",
        "prober",
    ] {
        assert!(connected.contains(&peer), "{peer} in {connected:?}");
    }
    assert!(status.sources[0].ready && status.pleg_healthy);
    let pods = node.desired_pods().await;
    assert_eq!(pods.len(), 2);
    assert_eq!(
        pods[0].last_decision,
        "sent CREATE to its worker: added by source file"
    );
}
