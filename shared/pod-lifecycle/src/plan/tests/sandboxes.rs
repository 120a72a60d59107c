//! When a sandbox is made, kept and replaced.

use super::*;

#[test]
fn a_lost_sandbox_is_replaced_with_what_still_has_to_run() {
    let mut case = Case::new("Always");
    for name in ["a", "b", "c"] {
        case.has(name, exited(0));
    }
    let lost = Some(Unusable::NotReady);
    assert_eq!(case.lost().plan(), new_sandbox(1, lost, &["a", "b", "c"]));
    let mut case = Case::new("OnFailure");
    case.has("a", exited(0)).has("b", exited(1));
    assert_eq!(case.lost().plan(), new_sandbox(1, lost, &["b", "c"]));
}

#[test]
fn a_lost_sandbox_of_a_pod_that_is_done_is_not_replaced() {
    for (policy, code) in [("Never", 1), ("Never", 0), ("OnFailure", 0)] {
        let mut case = Case::new(policy);
        for name in ["a", "b", "c"] {
            case.has(name, exited(code));
        }
        assert_eq!(case.lost().plan(), COMPLETED, "{policy}");
    }
    // One that was never restarted loses what still ran in it, too.
    assert_eq!(Case::new("Never").lost().plan(), COMPLETED);
}

#[test]
fn a_lost_sandbox_in_which_nothing_ever_ran_is_replaced_whatever_the_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut case = Case::bare(policy);
        case.lost();
        let all = ["a", "b", "c"];
        assert_eq!(case.plan(), new_sandbox(1, Some(Unusable::NotReady), &all));
        case.has("a", ContainerState::Created);
        assert_eq!(case.plan(), new_sandbox(1, Some(Unusable::NotReady), &all));
    }
}

#[test]
fn a_sandbox_that_cannot_be_trusted_is_replaced() {
    let all = ["a", "b", "c"];
    let mut case = Case::new("Always");
    case.observation.sandboxes[0].network = SandboxNetwork::Pod { ips: Vec::new() };
    assert_eq!(case.plan(), new_sandbox(1, Some(Unusable::NoAddress), &all));
    case.observation.sandboxes[0].network = SandboxNetwork::Host;
    assert_eq!(
        case.plan(),
        new_sandbox(1, Some(Unusable::NetworkChanged), &all)
    );
    case.pod["spec"]["hostNetwork"] = json!(true);
    assert_eq!(case.plan(), Plan::Work(Work::default()));
}

#[test]
fn of_several_sandboxes_the_one_in_which_something_runs_is_kept() {
    let stop = |sandbox: &str| Plan::StopSandboxes {
        sandboxes: vec![sandbox.to_owned()],
        stops: Vec::new(),
    };
    for policy in ["Always", "OnFailure", "Never"] {
        // One of the same pod that showed too late, older or newer, alive or not.
        for attempt in [2, 4] {
            let mut case = Case::new(policy);
            let late = sandbox("late", attempt, true);
            case.observation.sandboxes = vec![sandbox(SANDBOX, 3, true), late];
            let sandboxes = &mut case.observation.sandboxes;
            sandboxes.sort_by_key(|sandbox| std::cmp::Reverse(sandbox.attempt));
            assert_eq!(case.plan(), stop("late"), "{policy} {attempt}");
            let mut late = case.observation.sandboxes.iter_mut();
            late.find(|it| it.id == "late").unwrap().ready = false;
            assert_eq!(case.plan(), Plan::Work(Work::default()));
        }
        // Nothing runs yet.
        let mut case = Case::bare(policy);
        case.observation.sandboxes = vec![sandbox("new", 1, true), sandbox(SANDBOX, 0, true)];
        assert_eq!(case.plan(), stop(SANDBOX));
        case.observation.sandboxes[1].ready = false;
        assert_eq!(case.starts(), ["a", "b", "c"]);
    }
}

#[test]
fn of_several_sandboxes_in_which_something_runs_the_newest_is_kept() {
    let mut case = Case::new("Always");
    case.observation.sandboxes = vec![sandbox("new", 1, true), sandbox(SANDBOX, 0, true)];
    case.container("b").sandbox_id = "new".to_owned();
    let Plan::StopSandboxes { sandboxes, stops } = case.plan() else {
        panic!("{:?}", case.plan());
    };
    assert_eq!(sandboxes, [SANDBOX]);
    let stops = stops.into_iter();
    let stops = stops.map(|stop| (stop.container_id, stop.reason));
    let lost = |id: &str| (id.to_owned(), Some(KillReason::SandboxLost));
    assert!(stops.eq([lost("a-0"), lost("c-0")]));
}

#[test]
fn a_sandbox_that_cannot_be_trusted_is_replaced_with_all_that_run_beside_it() {
    let mut case = Case::new("Always");
    case.observation.sandboxes = vec![sandbox("late", 4, true), sandbox(SANDBOX, 3, true)];
    case.observation.sandboxes[1].network = SandboxNetwork::Host;
    assert_eq!(
        case.plan(),
        new_sandbox(5, Some(Unusable::NetworkChanged), &["a", "b", "c"])
    );
}

#[test]
fn a_sandbox_that_was_made_just_now_is_given_a_moment() {
    let made = |created_at| {
        let mut case = Case::bare("Always");
        case.lost();
        case.observation.sandboxes[0].created_at = created_at;
        case.plan()
    };
    let replaced = new_sandbox(1, Some(Unusable::NotReady), &["a", "b", "c"]);
    assert_eq!(made(ago(1)), replaced);
    let waits = Plan::Work(Work {
        wake_at: Some(NOW.plus(Duration::from_secs(1))),
        ..Work::default()
    });
    assert_eq!(made(NOW), waits);
    let of_the_future = NOW.plus(Duration::from_nanos(1));
    assert_eq!(made(of_the_future), replaced, "the clock was set back");
    let mut case = Case::new("Never");
    case.lost().observation.sandboxes[0].created_at = NOW;
    assert_eq!(case.plan(), Plan::End(TerminationCause::Completed));
}
