//! What stops a pod that ends, or that waits for its name, and what is cleared away.

use super::*;
use crate::known::SandboxKnown;
use crate::termination::Termination;

fn termination(cause: TerminationCause) -> Termination {
    Termination {
        cause,
        requested_at: NOW,
        grace: Some(Duration::from_secs(7)),
    }
}

fn evicted() -> TerminationCause {
    TerminationCause::Evicted {
        reason: String::new(),
        message: String::new(),
        is_disruption: false,
    }
}

impl Case {
    pub(super) fn terminate(&self, cause: TerminationCause, is_runtime_only: bool) -> Plan {
        self.plan_for(Goal::Terminate {
            termination: &termination(cause),
            pod: Some(&pod(self.pod.clone())).filter(|_| !is_runtime_only),
            is_runtime_only,
        })
    }

    pub(super) fn end(&self) -> Plan {
        self.terminate(TerminationCause::Deleted, false)
    }

    pub(super) fn stop_pod(&self) -> StopPod {
        match self.end() {
            Plan::StopPod(stop) => stop,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn calls_that_make_something_are_waited_for_before_anything_is_stopped() {
    let mut case = Case::new("Always");
    let plan = |case: &Case| case.terminate(TerminationCause::Killed, false);
    assert!(matches!(plan(&case), Plan::StopPod(_)));
    case.observation.calls_under_way = true;
    assert_eq!(plan(&case), Plan::AwaitCalls);
}

#[test]
fn all_that_is_alive_is_stopped_and_what_was_only_created_is_removed() {
    let mut case = Case::new("Never");
    case.has("b", ContainerState::Created);
    case.has("c", ContainerState::Unknown);
    let stop = case.stop_pod();
    let containers = stop.containers.iter();
    let containers: Vec<_> = containers
        .map(|it| (&*it.container_id, it.reason, it.grace.as_secs(), it.how))
        .collect();
    assert_eq!(
        containers,
        [
            ("a-0", None, 7, StopHow::Stop),
            ("c-0", None, 7, StopHow::StopUnknown)
        ]
    );
    assert_eq!(stop.created.len(), 1);
    assert_eq!(stop.created[0].container_id, "b-0");
    assert_eq!(stop.sandboxes, [SANDBOX]);
}

#[test]
fn what_a_stop_did_not_help_with_is_removed() {
    let mut case = Case::bare("Never");
    case.has("a", ContainerState::Unknown);
    let now = Moment {
        wall: NOW,
        monotonic: Instant::now(),
        since_boot: Duration::from_secs(1000),
    };
    case.known.order_stop("a-0", Duration::ZERO, now);
    case.known.note_stop_of_unknown("a-0");
    assert_eq!(case.stop_pod().containers[0].how, StopHow::Remove);
    assert_eq!(case.work().stops[0].how, StopHow::Remove);
}

#[test]
fn a_sandbox_that_runs_no_more_is_stopped_once() {
    let mut case = Case::bare("Always");
    case.lost();
    assert_eq!(case.stop_pod().sandboxes, [SANDBOX]);
    case.known.note_sandbox(SANDBOX, SandboxKnown::Stopped);
    let done = case.terminate(TerminationCause::Deleted, false);
    assert_eq!(done, Plan::Stopped);
    // It runs, whatever was said of it.
    case.observation.sandboxes[0].ready = true;
    assert_eq!(case.stop_pod().sandboxes, [SANDBOX]);
    let nothing = Case {
        observation: Observation::default(),
        ..Case::bare("Always")
    };
    let done = nothing.terminate(TerminationCause::Deleted, false);
    assert_eq!(done, Plan::Stopped);
}

#[test]
fn files_stay_while_the_source_has_a_pod_that_ended_and_evictions_are_recorded() {
    let nothing = Case {
        observation: Observation::default(),
        ..Case::bare("Always")
    };
    for (cause, removes_directory, must_be_recorded) in [
        (TerminationCause::Deleted, true, false),
        (TerminationCause::Killed, true, false),
        (TerminationCause::Orphaned, true, false),
        (TerminationCause::Completed, false, false),
        (TerminationCause::DeadlineExceeded, false, false),
        (TerminationCause::EndedAtSource, false, false),
        (evicted(), false, true),
    ] {
        let expected = Plan::CleanUp(CleanUp {
            removes_directory,
            must_be_recorded,
        });
        let termination = termination(cause.clone());
        assert_eq!(nothing.plan_for(Goal::CleanUp(&termination)), expected);
        // Nobody asks for more of a pod that only the runtime has.
        assert_eq!(nothing.terminate(cause, true), expected);
    }
}

#[test]
fn nothing_of_a_pod_that_waits_for_its_name_stays_alive() {
    let wait = |case: &Case| case.plan_for(Goal::Wait(&pod(case.pod.clone())));
    let mut case = Case::new("Always");
    let Plan::StopPod(stop) = wait(&case) else {
        panic!("{case:?}", case = wait(&case));
    };
    case.is_all_there_is(true, &stop);
    for name in ["a", "b", "c"] {
        case.has(name, exited(0));
    }
    assert_eq!(wait(case.lost()), Plan::Work(Work::default()));
}
