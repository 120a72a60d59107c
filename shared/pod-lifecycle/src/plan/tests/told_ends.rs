//! What may be done before the runtime's lists show an end, and what not.

use super::*;
use crate::observation::ToldEnd;

impl Case {
    fn told(&mut self, id: &str, exit_code: i32) -> &mut Case {
        let end = ToldEnd {
            exit_code,
            finished_at: ago(1),
        };
        self.observation.told_ends.insert(id.into(), end);
        self
    }
}

/// To look again soon, and nothing else.
fn look_again() -> Plan {
    Plan::Work(Work {
        wake_at: Some(NOW.plus(Duration::from_secs(1))),
        ..Work::default()
    })
}

#[test]
fn an_end_that_was_told_counts_before_it_shows() {
    for policy in ["Always", "OnFailure"] {
        let mut case = Case::new(policy);
        assert!(case.starts().is_empty());
        assert_eq!(
            case.told("a", 3).starts(),
            [] as [&str; 0],
            "not of a pod's"
        );
        assert_eq!(case.told("a-0", 3).starts(), ["a"]);
        assert_eq!(case.new_instance().restart_count, 1);
    }
}

#[test]
fn what_shows_already_is_left_as_it_is() {
    for state in [exited(0), ContainerState::Unknown] {
        let mut case = Case::new("OnFailure");
        case.has("a", state);
        let before = case.plan();
        assert_eq!(case.told("a-0", 3).plan(), before);
    }
}

/// The lists may yet say that it ran out of memory.
#[test]
fn an_init_container_has_not_succeeded_before_the_lists_say_so() {
    let mut case = Case::with_init("OnFailure");
    case.has("i1", running()).told("i1-0", 0);
    assert_eq!(case.plan(), Plan::Work(Work::default()));
    assert_eq!(case.told("i1-0", 1).starts(), ["i1"]);
    // Another container's end counts whatever its code.
    assert_eq!(Case::new("Always").told("a-0", 0).starts(), ["a"]);
}

#[test]
fn nothing_is_planned_ahead_in_a_sandbox_that_ends() {
    let mut case = Case::new("Always");
    case.told("a-0", 3).told(SANDBOX, 3);
    assert_eq!(case.plan(), Plan::Work(Work::default()));
}

#[test]
fn ends_of_pods_and_waits_are_not_decided_ahead() {
    // The pod would be at its end.
    let mut case = Case::new("Never");
    case.told("a-0", 0).told("b-0", 0).told("c-0", 1);
    assert_eq!(case.plan(), look_again());
    // Its container would wait.
    let mut case = Case::new("Always");
    case.container("a").restart_wait = Some(Duration::from_secs(10));
    assert_eq!(case.told("a-0", 1).plan(), look_again());
    // It would be ended by its deadline, or get another sandbox.
    let mut case = Case::new("Always");
    case.pod["spec"]["activeDeadlineSeconds"] = json!(60);
    case.started_at = Some(ago(60));
    assert_eq!(case.told("a-0", 1).plan(), look_again());
    let mut case = Case::new("Always");
    assert_eq!(case.lost().told("a-0", 1).plan(), look_again());
}

#[test]
fn others_are_stopped_ahead_and_only_what_shows_waits() {
    let mut case = Case::new("Always");
    case.container("a").restart_wait = Some(Duration::from_secs(10));
    case.told("a-0", 1);
    case.kills.insert("b-0".into(), KillReason::LivenessFailed);
    case.has("c", exited_ago(1, 1));
    case.container("c").restart_wait = Some(Duration::from_secs(10));
    let work = case.work();
    let stops: Vec<_> = work.stops.iter().map(|stop| &stop.container_id).collect();
    assert_eq!(stops, ["b-0"]);
    let waits: Vec<_> = work.waits.iter().map(|wait| &wait.name).collect();
    assert_eq!(waits, ["c"]);
}
