//! Pods that run, or ran, as another version than the one that is to run.

use super::*;

/// The pod as it is now is what it was started with.
fn noted(case: &mut Case) {
    let pod = pod(case.pod.clone());
    case.observation.sandboxes[0].started_with = Some(pod::update::started_with(&pod));
}

fn changed(case: &mut Case) {
    case.pod["spec"]["containers"][0]["command"] = json!(["other"]);
}

#[test]
fn while_something_runs_of_another_version_nothing_is_made_or_stopped() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut case = Case::new(policy);
        noted(&mut case);
        case.has("b", exited(1));
        changed(&mut case);
        assert_eq!(case.plan(), Plan::Work(Work::default()));
        let started_with = pod::update::started_with(&pod(case.pod.clone()));
        let held = held(&case.observation, &started_with).unwrap();
        assert_eq!(held.reason, NOT_APPLIED_REASON);
        assert!(!keeps_version(&case.observation, &started_with));
        // A deletion is obeyed, and a deadline.
        let ends = case.terminate(TerminationCause::Deleted, false);
        assert!(matches!(ends, Plan::StopPod(_)), "{ends:?}");
        case.pod["spec"]["activeDeadlineSeconds"] = json!(1);
        case.started_at = Some(ago(100));
        assert_eq!(case.plan(), Plan::End(TerminationCause::DeadlineExceeded));
    }
}

#[test]
fn when_nothing_runs_the_pod_goes_on_as_its_newest_version_in_another_sandbox() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut case = Case::bare(policy);
        noted(&mut case);
        changed(&mut case);
        let plan = case.plan();
        let Plan::NewSandbox { why, .. } = plan else {
            panic!("{policy}: {plan:?}");
        };
        assert_eq!(why, Some(Unusable::OfAnotherVersion));
    }
}

#[test]
fn a_permitted_change_or_an_unknown_note_holds_nothing_up() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut case = Case::new(policy);
        noted(&mut case);
        case.has("b", exited(1));
        let before = case.plan();
        case.pod["metadata"]["labels"] = json!({"new": "1"});
        assert_eq!(case.plan(), before);
        for note in [None, Some("0-of-another-version".to_owned())] {
            case.observation.sandboxes[0].started_with = note;
            case.pod["spec"]["containers"][0]["livenessProbe"] =
                json!({"exec": {"command": ["other"]}});
            assert_eq!(case.plan(), before);
        }
    }
}
