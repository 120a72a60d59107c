//! Containers with restart policies and rules of their own.

use super::*;

/// A pod whose container `a` has these fields.
fn case(policy: &str, fields: Value) -> Case {
    let mut case = Case::new(policy);
    for (key, value) in fields.as_object().unwrap() {
        case.pod["spec"]["containers"][0][key] = value.clone();
    }
    case
}

#[test]
fn a_containers_own_policy_decides_over_its_pods() {
    for (pod, own, code, starts) in [
        ("Always", "Never", 1, false),
        ("Always", "OnFailure", 0, false),
        ("Never", "Always", 0, true),
        ("Never", "OnFailure", 1, true),
        ("OnFailure", "Never", 1, false),
    ] {
        let mut case = case(pod, json!({"restartPolicy": own}));
        case.has("a", exited(code));
        assert_eq!(!case.starts().is_empty(), starts, "{pod} {own} {code}");
    }
}

#[test]
fn a_rule_starts_a_container_again_that_its_policy_would_leave() {
    let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}});
    let fields = json!({"restartPolicy": "Never", "restartPolicyRules": [rule]});
    let mut case = case("Never", fields);
    case.has("a", exited(42));
    assert_eq!(case.starts(), ["a"]);
    case.has("a", exited(1));
    assert!(case.starts().is_empty());
    for name in ["b", "c"] {
        case.has(name, exited(0));
    }
    assert_eq!(case.plan(), COMPLETED);
}

#[test]
fn a_failed_probe_ends_a_container_for_good_whose_own_policy_is_never() {
    let probe = json!({"exec": {"command": ["x"]}});
    for (pod, own, starts) in [("Always", "Never", false), ("Never", "Always", true)] {
        let fields = json!({"restartPolicy": own, "livenessProbe": probe.clone()});
        let mut case = case(pod, fields);
        case.failed_probes.not_live.insert("a-0".into());
        let stops = case.work().stops;
        assert_eq!(stops[0].message.contains("will be restarted"), starts);
        case.has("a", exited(137));
        case.kills.insert("a-0".into(), KillReason::LivenessFailed);
        assert_eq!(!case.starts().is_empty(), starts, "{pod} {own}");
    }
}

#[test]
fn what_a_container_ended_with_decides_after_its_post_start_hook_failed() {
    let hook = json!({"postStart": {"sleep": {"seconds": 1}}});
    for (policy, code, starts) in [
        ("Always", 0, true),
        ("OnFailure", 1, true),
        ("OnFailure", 0, false),
        ("Never", 1, false),
    ] {
        let mut case = case(policy, json!({"lifecycle": hook.clone()}));
        case.known.note_start("a-0", true);
        case.known.note_ended_post_start("a-0", false);
        assert_eq!(case.work().stops[0].message, "FailedPostStartHook");
        case.has("a", exited(code));
        let reason = KillReason::PostStartFailed;
        case.kills.insert("a-0".into(), reason);
        assert_eq!(!case.starts().is_empty(), starts, "{policy} {code}");
    }
}

#[test]
fn an_init_containers_own_policy_decides_whether_it_is_tried_again() {
    for (pod, own, is_tried) in [("Always", "Never", false), ("Never", "OnFailure", true)] {
        let mut case = Case::with_init(pod);
        case.pod["spec"]["initContainers"][0]["restartPolicy"] = json!(own);
        case.has("i1", exited(1));
        match is_tried {
            true => assert_eq!(case.starts(), ["i1"]),
            false => assert_eq!(case.plan(), COMPLETED),
        }
        case.has("i1", exited(0));
        assert_eq!(case.starts(), ["i2"]);
    }
}

#[test]
fn a_lost_sandbox_is_replaced_for_the_containers_that_are_started_again() {
    let mut case = case("Never", json!({"restartPolicy": "Always"}));
    for name in ["a", "b", "c"] {
        case.has(name, exited(0));
    }
    let lost = Some(Unusable::NotReady);
    assert_eq!(case.lost().plan(), new_sandbox(1, lost, &["a"]));
}
