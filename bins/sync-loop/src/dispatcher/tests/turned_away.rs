//! Pods that cannot be taken when they arrive, and can be later.

use super::*;
use ipc::limits::{MAX_DESIRED_BYTES, MAX_PODS};

const ANEW: &str = "watch-pods-anew";

fn problems(harness: &Harness, source: usize) -> Vec<String> {
    harness.sync_loop.summary().sources[source].problems.clone()
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
    assert_eq!(briefs(&actions), ["KILL a", ANEW, "save 0"]);
    // Asked for once, until its source is shown again.
    for event in [Event::SyncTick, Event::ConfigurationStreamBegan] {
        assert_eq!(briefs(&harness.handle(event)), [""; 0]);
    }
    let actions = harness.configure(&["file", "http"]);
    assert_eq!(briefs(&actions), [""; 0]);
    harness.snapshot(PodSource::Http, true, &[]);
    let actions = harness.snapshot(PodSource::File, true, &[plain("a")]);
    assert_eq!(briefs(&actions), ["CREATE a", "save 1"]);
    assert_eq!(problems(&harness, 0), [""; 0]);
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
        if how == "source" {
            harness.snapshot(PodSource::Http, true, &[plain("a")]);
        }
        let actions = harness.remove_in(PodSource::Http, &plain("a"));
        assert_eq!(briefs(&actions), ["KILL a", "save 0"], "{how}");
    }
}

#[test]
fn a_pod_for_which_there_was_no_room_is_asked_for_when_there_is() {
    let large = |uid: &str, bytes: usize| {
        let mut pod = plain(uid);
        pod["metadata"]["annotations"] = json!({"a": "x".repeat(bytes)});
        pod
    };
    let half = MAX_DESIRED_BYTES / 48;
    let many: Vec<_> = (0..MAX_PODS).map(|it| plain(&format!("u{it}"))).collect();
    let few: Vec<_> = (0..47).map(|it| large(&format!("u{it}"), half)).collect();
    for (pods, last) in [(many, plain("last")), (few, large("last", half))] {
        let mut harness = Harness::running();
        harness.snapshot(PodSource::File, true, &pods);
        let last = match pods.len() == MAX_PODS {
            true => last,
            // A little more than what is left.
            false => large("last", half + (half / 2)),
        };
        let actions = harness.deliver(&last);
        assert_eq!(briefs(&actions), ["event FailedManifest "]);
        assert_eq!(problems(&harness, 0).len(), 1);
        // What is being stopped still counts.
        let actions = harness.remove(&pods[0]);
        assert!(!briefs(&actions).contains(&ANEW.to_owned()));
        let mut actions = harness.acknowledge(&actions, WorkerPhase::Finished);
        let workers: Vec<_> = (1..pods.len())
            .map(|it| worker(&format!("u{it}"), WorkerPhase::Syncing))
            .collect();
        actions.extend(harness.housekeeping(&workers, &[]));
        assert!(
            briefs(&actions).contains(&ANEW.to_owned()),
            "{}",
            pods.len()
        );
    }
}
