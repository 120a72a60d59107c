//! What is remembered of instances and sandboxes, and until when.

use std::time::Instant;

use clock::UnixNanos;

use super::*;
use crate::observation::{Container, ContainerState, Exit, Sandbox, SandboxNetwork};

fn exit() -> Exit {
    Exit {
        started_at: UnixNanos(1),
        finished_at: UnixNanos(2),
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
    }
}

fn running() -> ContainerState {
    ContainerState::Running {
        started_at: UnixNanos(1),
    }
}

fn exited() -> ContainerState {
    ContainerState::Exited(exit())
}

fn container(restart_count: u32, state: ContainerState) -> Container {
    Container {
        id: format!("c{restart_count}"),
        name: "c".to_owned(),
        sandbox_id: "s".to_owned(),
        restart_count,
        created_at: UnixNanos(0),
        state,
        image: String::new(),
        image_id: String::new(),
        stop_signal: None,
        user: None,
        is_recursively_read_only: false,
        spec_hash: String::new(),
        termination_grace: None,
        restart_wait: None,
        pre_stop: None,
        sidecar: None,
        round: 0,
        resources: None,
    }
}

fn observed(containers: impl IntoIterator<Item = Container>) -> Observation {
    Observation {
        containers: containers.into_iter().collect(),
        ..Observation::default()
    }
}

fn now() -> Moment {
    Moment {
        wall: UnixNanos(1_000_000_000),
        monotonic: Instant::now(),
        since_boot: Duration::from_secs(1000),
    }
}

const GRACE: Duration = Duration::from_secs(30);

#[test]
fn a_kill_is_remembered_until_a_newer_instance_has_run() {
    for (newer, killed, expected) in [
        (None, None, false),
        (None, Some(running()), true),
        (None, Some(exited()), true),
        (Some(ContainerState::Created), Some(exited()), true),
        (
            Some(ContainerState::StartAbandoned(exit())),
            Some(exited()),
            true,
        ),
        (Some(running()), Some(exited()), false),
        (Some(exited()), Some(exited()), false),
        (Some(running()), Some(running()), true),
    ] {
        let newer = newer.map(|state| container(1, state));
        let killed = killed.map(|state| container(0, state));
        let observation = observed(newer.into_iter().chain(killed));
        for is_ordered in [false, true] {
            let mut known = Known::default();
            assert!(known.note_kill("c0", KillReason::LivenessFailed));
            if is_ordered {
                known.order_stop("c0", GRACE, now());
            }
            known.observed(&observation);
            let reason = known.kill_reason("c0");
            assert_eq!(reason.is_some(), expected, "{observation:?}");
        }
    }
}

#[test]
fn the_stop_of_a_container_that_has_ended_is_forgotten() {
    for (reason, expected) in [
        (None, None),
        (
            Some(KillReason::StateUnknown),
            Some(InstanceKnown::Killed(KillReason::StateUnknown)),
        ),
    ] {
        for was_unknown in [false, true] {
            let mut known = Known::default();
            if let Some(reason) = reason {
                known.note_kill("c0", reason);
            }
            known.order_stop("c0", GRACE, now());
            if was_unknown {
                known.note_stop_of_unknown("c0");
            }
            known.observed(&observed([container(0, ContainerState::Unknown)]));
            let is_unstoppable = matches!(
                known.instance("c0"),
                Some(InstanceKnown::Unstoppable { .. })
            );
            assert_eq!(is_unstoppable, was_unknown);
            known.observed(&observed([container(0, exited())]));
            assert_eq!(known.instance("c0"), expected);
            known.observed(&observed([]));
            assert_eq!(known.instance("c0"), None);
        }
    }
}

#[test]
fn what_is_known_of_stops_and_refused_starts_survives_in_the_record() {
    let mut known = Known::default();
    known.note_kill("a", KillReason::LivenessFailed);
    let at = now();
    known.order_stop("a", GRACE, at);
    known.note_kill("b", KillReason::DefinitionChanged);
    known.order_stop("c", GRACE, at);
    known.note_refused_start("d".to_owned());
    let mut record = Record::default();
    known.write_to(&mut record);
    let mut after = Known::of_record(&record);
    assert_eq!(after.kill_reason("a"), Some(KillReason::LivenessFailed));
    assert_eq!(after.kill_reason("b"), Some(KillReason::DefinitionChanged));
    assert_eq!(after.kill_reason("c"), None);
    assert!(
        after.start_was_refused("d"),
        "its pod may have been told as failed"
    );
    for id in ["a", "c"] {
        assert!(!after.order_stop(id, GRACE, at).is_first, "{id}");
    }
    assert!(after.order_stop("b", GRACE, at).is_first);
    let mut again = Record::default();
    Known::of_record(&record).write_to(&mut again);
    assert_eq!(again, record);
}

#[test]
fn a_refusal_says_nothing_of_the_next_start() {
    let mut known = Known::default();
    assert!(!known.note_start("a", false), "nothing was known of it");
    known.note_refused_start("a".to_owned());
    assert!(known.note_start("a", false));
    assert!(!known.start_was_refused("a"));
    known.note_kill("a", KillReason::DefinitionChanged);
    assert!(!known.note_start("a", false));
    assert!(known.kill_reason("a").is_some());
}

#[test]
fn the_hook_of_an_instance_that_is_started_at_last_is_due() {
    let mut known = Known::default();
    for _ in 0..2 {
        assert!(known.note_start("a", true));
        assert!(!known.note_start("a", true), "it is known by now");
        assert_eq!(known.post_start("a"), Some(PostStart::Due));
        // The runtime has not started it, and shows it as made still.
        known.note_refused_start("a".to_owned());
        assert_eq!(known.post_start("a"), None);
    }
    known.note_start("a", true);
    known.note_begun_post_start("a");
    assert!(!known.note_start("a", true));
    assert_eq!(known.post_start("a"), Some(PostStart::Begun));
}

#[test]
fn the_hook_of_an_instance_that_runs_though_its_start_was_refused_is_due() {
    for (state, expected) in [
        (ContainerState::Created, None),
        (ContainerState::Unknown, None),
        (ContainerState::StartAbandoned(exit()), None),
        (exited(), None),
        (running(), Some(PostStart::Due)),
    ] {
        for is_restarted in [false, true] {
            let mut known = Known::default();
            known.note_start("c0", true);
            known.note_refused_start("c0".to_owned());
            if is_restarted {
                let mut record = Record::default();
                known.write_to(&mut record);
                known = Known::of_record(&record);
            }
            known.observed(&observed([container(0, state.clone())]));
            assert_eq!(known.post_start("c0"), expected, "{state:?}");
            assert_eq!(known.start_was_refused("c0"), expected.is_none());
        }
    }
    let mut known = Known::default();
    known.note_refused_start("c0".to_owned());
    known.observed(&observed([container(0, running())]));
    assert_eq!(known.instance("c0"), None, "it has no hook");
}

#[test]
fn a_hook_that_was_begun_is_not_due_again_by_a_refused_start() {
    let mut known = Known::default();
    known.note_start("c0", true);
    known.note_begun_post_start("c0");
    known.note_refused_start("c0".to_owned());
    known.observed(&observed([container(0, running())]));
    assert_eq!(known.post_start("c0"), None);
}

#[test]
fn the_first_reason_to_kill_an_instance_stands() {
    let mut known = Known::default();
    known.order_stop("a", GRACE, now());
    assert!(known.note_kill("a", KillReason::LivenessFailed));
    assert!(!known.note_kill("a", KillReason::SandboxLost));
    assert_eq!(known.kill_reason("a"), Some(KillReason::LivenessFailed));
    assert!(matches!(
        known.instance("a"),
        Some(InstanceKnown::Stopping { .. })
    ));
}

#[test]
fn a_sandbox_that_could_not_be_stopped_is_tried_again_by_the_next_sync() {
    let mut known = Known::default();
    known.note_sandbox("s", SandboxKnown::Stopped);
    known.note_sandbox("t", SandboxKnown::StopFailed);
    known.forget_failed_stops();
    assert_eq!(known.sandbox("s"), Some(SandboxKnown::Stopped));
    assert_eq!(known.sandbox("t"), None);
    let shown = Sandbox {
        id: "s".to_owned(),
        attempt: 0,
        ready: false,
        created_at: UnixNanos(0),
        network: SandboxNetwork::Host,
        pod_started_at: None,
        started_with: None,
    };
    let mut observation = Observation {
        sandboxes: vec![shown],
        ..Observation::default()
    };
    known.observed(&observation);
    assert_eq!(known.sandbox("s"), Some(SandboxKnown::Stopped));
    observation.sandboxes.clear();
    known.observed(&observation);
    assert_eq!(known.sandbox("s"), None);
}
