//! Pods that cannot be taken when they arrive, and can be later.

use super::*;
use crate::dispatcher::messages::GARBAGE_COLLECTION_PERIOD;
use ipc::limits::{MAX_DESIRED_BYTES, MAX_PODS};

const ANEW: &str = "watch-pods-anew";

fn problems(harness: &Harness, source: usize) -> Vec<String> {
    harness.sync_loop.summary().sources[source].problems.clone()
}

/// Whether the stream is opened again in housekeeping.
fn asks_anew(harness: &mut Harness) -> bool {
    harness.wait(GARBAGE_COLLECTION_PERIOD);
    briefs(&harness.tick_housekeeping()).contains(&ANEW.to_owned())
}

/// The pod `a` runs for the source http, and the file has it too.
fn shadowed() -> Harness {
    let mut harness = Harness::running();
    harness.configure(&["file", "http"]);
    harness.snapshot(PodSource::Http, true, &[plain("a")]);
    let actions = harness.snapshot(PodSource::File, true, &[plain("a")]);
    assert_eq!(briefs(&actions), ["event FailedManifest "]);
    harness
}

#[test]
fn a_pod_of_two_sources_goes_on_with_the_second_when_the_first_drops_it() {
    let mut harness = shadowed();
    let line = "source http has this pod too, and had it first; that of source file waits";
    assert_eq!(problems(&harness, 0).len(), 1);
    assert!(problems(&harness, 0)[0].ends_with(line));
    // It is told once.
    assert_eq!(briefs(&harness.deliver(&plain("a"))), [""; 0]);
    let again = harness.snapshot(PodSource::File, true, &[plain("a")]);
    assert_eq!(briefs(&again), [""; 0]);
    let actions = harness.remove_in(PodSource::Http, &plain("a"));
    assert_eq!(briefs(&actions), ["KILL a", "save 0"]);
    assert!(asks_anew(&mut harness));
    let soon = briefs(&harness.tick_housekeeping());
    assert!(!soon.contains(&ANEW.to_owned()), "{soon:?}");
    harness.configure(&["file", "http"]);
    harness.snapshot(PodSource::Http, true, &[]);
    let actions = harness.snapshot(PodSource::File, true, &[plain("a")]);
    assert_eq!(briefs(&actions), ["CREATE a", "save 1"]);
    assert_eq!(problems(&harness, 0), [""; 0]);
    assert!(!asks_anew(&mut harness));
}

#[test]
fn a_pod_that_its_source_no_longer_has_is_not_asked_for() {
    for how in ["gone", "changes", "snapshot", "source"] {
        let mut harness = shadowed();
        match how {
            "gone" => harness.remove(&plain("a")),
            "changes" => harness.change(&[plain("a")], &[]),
            "snapshot" => harness.snapshot(PodSource::File, true, &[]),
            _ => harness.configure(&["http"]),
        };
        assert!(!asks_anew(&mut harness), "{how}");
    }
}

#[test]
fn a_pod_for_which_there_is_no_room_is_taken_when_there_is() {
    let large = |uid: &str, bytes: usize| {
        let mut pod = plain(uid);
        pod["metadata"]["annotations"] = json!({"a": "x".repeat(bytes)});
        pod
    };
    let half = MAX_DESIRED_BYTES / 48;
    let many: Vec<_> = (0..MAX_PODS).map(|it| plain(&format!("u{it}"))).collect();
    let few: Vec<_> = (0..47).map(|it| large(&format!("u{it}"), half)).collect();
    // The second is a little more than what is left.
    for (pods, last) in [(many, plain("last")), (few, large("last", half + half / 2))] {
        let mut harness = Harness::running();
        harness.snapshot(PodSource::File, true, &pods);
        let refused = ["event FailedManifest "];
        assert_eq!(briefs(&harness.deliver(&last)), refused);
        assert_eq!(problems(&harness, 0).len(), 1);
        // What is being stopped still counts.
        let killed = harness.remove(&pods[0]);
        assert_eq!(briefs(&harness.deliver(&last)), [""; 0]);
        assert_eq!(problems(&harness, 0).len(), 1);
        harness.acknowledge(&killed, WorkerPhase::Finished);
        let workers: Vec<_> = (1..pods.len())
            .map(|it| worker(&format!("u{it}"), WorkerPhase::Syncing))
            .collect();
        harness.housekeeping(&workers, &[]);
        harness.deliver(&last);
        assert_eq!(problems(&harness, 0), [""; 0]);
        assert_eq!(harness.sync_loop.desired_pods(Some("last")).len(), 1);
    }
}
