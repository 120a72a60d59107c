//! Pods that were changed while nobody watched.

use super::*;

fn noted(case: &mut Case, index: usize) {
    let pod = pod(case.pod.clone());
    case.observation.sandboxes[index].started_with = Some(pod::update::started_with(&pod));
}

/// A pod of each restart policy as it was started, and how it is now.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for policy in ["Always", "OnFailure", "Never"] {
        let mut runs = Case::new(policy);
        noted(&mut runs, 0);
        let mut waits_after_a_crash = Case::new(policy);
        waits_after_a_crash.has("b", exited(1));
        noted(&mut waits_after_a_crash, 0);
        let mut completed = Case::bare(policy);
        for name in ["a", "b", "c"] {
            completed.has(name, exited(0));
        }
        completed.lost();
        noted(&mut completed, 0);
        let mut starts = Case::bare(policy);
        noted(&mut starts, 0);
        cases.extend([runs, waits_after_a_crash, completed, starts]);
    }
    cases
}

#[test]
fn a_pod_that_was_changed_while_nobody_watched_ends() {
    let end = Plan::End(TerminationCause::SpecChanged { fields: Vec::new() });
    for mut case in cases() {
        case.pod["spec"]["containers"][0]["command"] = json!(["other"]);
        assert_eq!(case.plan(), end);
        // Its deadline, a deletion mark and the node policy come after that: they are
        // those of the new version.
        case.pod["spec"]["activeDeadlineSeconds"] = json!(1);
        case.started_at = Some(ago(100));
        case.refused = Some(Refused {
            message: "refused".to_owned(),
            ends_what_runs: true,
        });
        assert_eq!(case.plan(), end);
        // A rest of the former version beside a sandbox of this one, too.
        noted(&mut case, 0);
        let mut rest = sandbox("s0", 0, false);
        rest.started_with = Some("1-other".to_owned());
        case.observation.sandboxes.push(rest);
        assert_eq!(case.plan(), end);
    }
}

#[test]
fn a_permitted_change_or_an_unknown_note_ends_nothing() {
    for mut case in cases() {
        let before = case.plan();
        case.pod["metadata"]["labels"] = json!({"new": "1"});
        assert_eq!(case.plan(), before);
        for note in [None, Some("0-of-another-version".to_owned())] {
            case.observation.sandboxes[0].started_with = note;
            case.pod["spec"]["containers"][0]["livenessProbe"] =
                json!({"exec": {"command": ["other"]}});
            let plan = case.plan();
            let is_ended = matches!(plan, Plan::End(TerminationCause::SpecChanged { .. }));
            assert!(!is_ended, "{plan:?}");
        }
    }
}
