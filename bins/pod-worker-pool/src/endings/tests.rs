//! What may be done before the runtime's lists show an end, and what not.

use super::*;
use crate::observation::{Sandbox, SandboxNetwork};
use crate::plan::{Kill, KillReason, RestartWait};
use crate::worker::TerminationCause;
use crate::worker::desired::testing::{manifest, pod};
use serde_json::json;

const END: End = End {
    exit_code: 3,
    finished_at: 70,
};

fn container(id: &str, state: ContainerState) -> Container {
    Container {
        id: id.into(),
        name: "c".into(),
        sandbox_id: "s".into(),
        restart_count: 0,
        created_at: UnixNanos(40),
        state,
        image: "i".into(),
        image_id: "i".into(),
        spec_hash: String::new(),
        termination_grace: None,
        restart_wait: None,
    }
}

fn any_pod() -> Pod {
    pod(manifest("p", "u1"))
}

fn running(id: &str) -> Container {
    let started_at = UnixNanos(50);
    container(id, ContainerState::Running { started_at })
}

fn observed(containers: Vec<Container>) -> Observation {
    let sandbox = Sandbox {
        id: "s".into(),
        attempt: 0,
        ready: true,
        created_at: UnixNanos(1),
        network: SandboxNetwork::Host,
        pod_started_at: None,
    };
    Observation {
        sandboxes: vec![sandbox],
        containers,
        ..Observation::default()
    }
}

#[test]
fn an_end_that_was_told_counts_before_it_shows() {
    let endings = Endings::default();
    let observation = observed(vec![running("a"), running("b")]);
    assert_eq!(endings.ahead_of(&any_pod(), &observation), None);
    endings.note("a", END);
    let ahead = endings.ahead_of(&any_pod(), &observation).unwrap();
    let exit = ahead.containers[0].state.exit().unwrap();
    assert_eq!(exit.exit_code, 3);
    assert_eq!(exit.started_at, UnixNanos(50));
    assert_eq!(exit.finished_at, UnixNanos(70));
    assert_eq!(ahead.containers[1], observation.containers[1]);
}

#[test]
fn what_shows_already_is_left_as_it_is() {
    let endings = Endings::default();
    endings.note("a", END);
    let shown = exit(
        UnixNanos(50),
        End {
            exit_code: 4,
            finished_at: 71,
        },
    );
    for state in [
        ContainerState::Exited(shown),
        ContainerState::Created,
        ContainerState::Unknown,
    ] {
        let observation = observed(vec![container("a", state)]);
        assert_eq!(endings.ahead_of(&any_pod(), &observation), None);
    }
}

/// The lists may yet say that it ran out of memory.
#[test]
fn an_init_container_has_not_succeeded_before_the_lists_say_so() {
    let mut value = manifest("p", "u1");
    value["spec"]["initContainers"] = json!([{"name": "c", "image": "i:1"}]);
    let pod = pod(value);
    let observation = observed(vec![running("a")]);
    for (exit_code, is_ahead) in [(0, false), (1, true)] {
        let endings = Endings::default();
        endings.note("a", End { exit_code, ..END });
        let ahead = endings.ahead_of(&pod, &observation);
        assert_eq!(ahead.is_some(), is_ahead, "{exit_code}");
        assert!(
            endings.ahead_of(&any_pod(), &observation).is_some(),
            "an ordinary container's end counts whatever its code"
        );
    }
}

#[test]
fn nothing_is_planned_ahead_in_a_sandbox_that_ends() {
    let endings = Endings::default();
    endings.note("a", END);
    endings.note("s", END);
    assert_eq!(
        endings.ahead_of(&any_pod(), &observed(vec![running("a")])),
        None
    );
}

#[test]
fn the_oldest_end_is_forgotten_and_a_repeated_one_counts_once() {
    let endings = Endings::default();
    for _ in 0..MAX_ENDINGS {
        endings.note("a", END);
    }
    let observation = observed(vec![running("a")]);
    assert!(endings.ahead_of(&any_pod(), &observation).is_some());
    for other in 0..MAX_ENDINGS {
        endings.note(&format!("other-{other}"), END);
    }
    assert_eq!(endings.ahead_of(&any_pod(), &observation), None);
    let told = endings.0.lock().unwrap();
    assert_eq!(told.by_id.len(), MAX_ENDINGS);
    assert_eq!(told.ids.len(), MAX_ENDINGS);
}

#[test]
fn ends_of_pods_and_waits_are_not_decided_ahead() {
    let now = UnixNanos(100);
    let observation = observed(vec![running("a")]);
    let wait = || RestartWait {
        name: "c".into(),
        container_id: "a".into(),
        wait: Duration::from_secs(10),
        until: UnixNanos(200),
    };
    let only_waits = Work {
        waits: vec![wait()],
        wake_at: Some(UnixNanos(200)),
        ..Work::default()
    };
    let sandbox = Plan::NewSandbox {
        attempt: 1,
        why: None,
        first: Vec::new(),
    };
    for plan in [
        Plan::End(TerminationCause::Completed),
        sandbox,
        Plan::Work(only_waits),
    ] {
        let Plan::Work(work) = only_work(plan, &observation, now) else {
            panic!("only work is done ahead");
        };
        assert!(work.is_empty() && work.waits.is_empty(), "{work:?}");
        assert_eq!(work.wake_at, Some(now.plus(LOOK_AGAIN)));
    }

    let kill = Kill {
        container_id: "b".into(),
        name: "d".into(),
        reason: KillReason::LivenessFailed,
        message: String::new(),
        grace: Duration::from_secs(2),
    };
    let work = Work {
        kills: vec![kill],
        waits: vec![wait()],
        ..Work::default()
    };
    let Plan::Work(left) = only_work(Plan::Work(work.clone()), &observation, now) else {
        panic!("only work is done ahead");
    };
    assert_eq!(left.kills, work.kills);
    assert_eq!(left.waits, []);
}
