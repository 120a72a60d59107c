//! Init containers: their order, their failures, and a new sandbox.

use super::*;

#[test]
fn init_containers_run_one_after_the_other() {
    let mut case = Case::with_init("Always");
    assert_eq!(case.starts(), ["i1"]);
    case.has("i1", running());
    assert_eq!(case.plan(), Plan::Work(Work::default()));
    case.has("i1", exited(0));
    assert_eq!(case.starts(), ["i2"]);
    case.has("i2", ContainerState::Created);
    assert_eq!(case.starts(), ["i2"]);
    case.has("i2", exited(0)).has("i3", exited(0));
    assert_eq!(case.starts(), ["a", "b", "c"]);
}

#[test]
fn a_failed_init_container_is_tried_again_or_ends_the_pod_by_policy() {
    for (policy, retried) in [("Always", true), ("OnFailure", true), ("Never", false)] {
        let mut case = Case::with_init(policy);
        case.has("i1", exited(0)).has("i2", exited(1));
        if retried {
            assert_eq!(case.starts(), ["i2"], "{policy}");
        } else {
            assert_eq!(case.plan(), COMPLETED);
        }
    }
}

#[test]
fn an_init_container_that_ran_out_of_memory_has_failed() {
    let mut case = Case::with_init("Always");
    case.has("i1", exited(0));
    if let ContainerState::Exited(exit) = &mut case.container("i1").state {
        exit.reason = "OOMKilled".into();
    }
    assert_eq!(case.starts(), ["i1"]);
}

#[test]
fn an_init_container_of_unknown_state_is_killed_and_tried_again() {
    for policy in ["Always", "OnFailure"] {
        let mut case = Case::with_init(policy);
        case.has("i1", ContainerState::Unknown);
        assert_eq!(
            case.kills(),
            [("i1-0".to_owned(), KillReason::StateUnknown)]
        );
        case.has("i1", exited(0));
        case.kills.insert("i1-0".into(), KillReason::StateUnknown);
        assert_eq!(case.starts(), ["i1"], "{policy}");
    }
    let mut case = Case::with_init("Never");
    case.has("i1", ContainerState::Unknown);
    assert_eq!(case.plan(), COMPLETED);
}

#[test]
fn init_containers_run_again_in_a_new_sandbox() {
    let lost = Some(Unusable::NotReady);
    for policy in ["Always", "OnFailure"] {
        let mut case = Case::with_init(policy);
        case.has("i1", exited(0)).has("i2", exited(1));
        assert_eq!(
            case.lost().plan(),
            new_sandbox(1, lost, &["i1"]),
            "{policy}"
        );
        case.observation.sandboxes.insert(0, sandbox("s2", 1, true));
        assert_eq!(case.starts(), ["i1"]);
        assert_eq!(case.new_instance().restart_count, 1);
    }
    let mut case = Case::with_init("Never");
    case.has("i1", exited(1));
    assert_eq!(case.lost().plan(), COMPLETED);
    let mut case = Case::with_init("Never");
    assert_eq!(case.lost().plan(), new_sandbox(1, lost, &["i1"]));
}

#[test]
fn init_containers_never_run_again_in_a_live_sandbox() {
    let mut case = Case::with_init("Always");
    for name in ["a", "b"] {
        case.has(name, running());
    }
    case.has("c", exited(1));
    // Their instances were collected as garbage.
    assert_eq!(case.starts(), ["c"]);
    case.has("a", exited(1)).has("b", exited(1));
    assert_eq!(case.starts(), ["a", "b", "c"]);
}
