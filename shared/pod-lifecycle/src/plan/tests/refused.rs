//! Pods that the node policy refuses.

use super::*;

fn refused(ends_what_runs: bool) -> Option<Refused> {
    Some(Refused {
        reason: REFUSED_REASON,
        message: "hostNetwork is not granted".to_owned(),
        ends_what_runs,
    })
}

const NOTHING: Plan = Plan::Work(Work {
    stops: Vec::new(),
    volumes: Vec::new(),
    post_starts: Vec::new(),
    starts: Vec::new(),
    resizes: Vec::new(),
    refreshes: Vec::new(),
    waits: Vec::new(),
    pulls: Vec::new(),
    wake_at: None,
});

#[test]
fn nothing_new_is_made_for_a_refused_pod() {
    for ends_what_runs in [false, true] {
        let mut new = Case::bare("Always");
        new.observation.sandboxes.clear();
        new.refused = refused(ends_what_runs);
        assert_eq!(new.plan(), NOTHING, "it never ran");
    }
    let mut crashed = Case::new("Always");
    crashed.has("b", exited_ago(1, 10_000)).refused = refused(false);
    assert_eq!(crashed.plan(), NOTHING, "what runs of it runs on");
    let mut lost = Case::new("Always");
    lost.lost().refused = refused(false);
    assert_eq!(lost.plan(), NOTHING, "it gets no other sandbox");
}

#[test]
fn what_could_not_be_started_again_is_not_stopped() {
    let mut case = Case::new("Always");
    case.pod["spec"]["containers"][0]["livenessProbe"] = json!({"exec": {"command": ["true"]}});
    case.has("a", running());
    case.failed_probes.not_live.insert("a-0".to_owned());
    assert_eq!(
        case.kills(),
        [("a-0".to_owned(), KillReason::LivenessFailed)]
    );
    case.refused = refused(false);
    assert_eq!(case.plan(), NOTHING);
}

#[test]
fn what_runs_of_a_refused_pod_ends_where_the_policy_says_so() {
    let mut case = Case::new("Always");
    case.refused = refused(true);
    let plan = case.plan();
    assert!(
        matches!(&plan, Plan::End(TerminationCause::Evicted { message, .. })
            if message == "hostNetwork is not granted"),
        "{plan:?}"
    );
}

#[test]
fn what_does_not_run_is_not_ended_by_the_policy() {
    let mut completed = Case::new("Never");
    completed.lost();
    for name in ["a", "b", "c"] {
        completed.has(name, exited(0));
    }
    let as_without_a_policy = completed.plan();
    assert_eq!(as_without_a_policy, Plan::End(TerminationCause::Completed));
    completed.refused = refused(true);
    assert_eq!(completed.plan(), as_without_a_policy);
    let mut lost = Case::bare("Always");
    lost.lost().refused = refused(true);
    assert_eq!(lost.plan(), NOTHING);
}
