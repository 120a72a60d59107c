//! Whether a container that has ended is started again: by its own policy and rules, else
//! by its pod's policy (Kubernetes 1.34, KEP-5307).

use crate::core::{Container, ContainerRestartRule, Pod};
use crate::{PodExt, RestartPolicy};

/// The policy of a container: its own, or its pod's.
#[must_use]
pub fn policy_of(pod: &Pod, container: &Container) -> RestartPolicy {
    let own = container.restart_policy.as_deref();
    own.and_then(RestartPolicy::parse)
        .unwrap_or_else(|| pod.restart_policy())
}

/// Whether a container that exited with this code is started again. The first rule that
/// matches decides; rules count beside a policy of the container's own alone.
#[must_use]
pub fn restarts(pod: &Pod, container: &Container, exit_code: i32) -> bool {
    let rules = match container.restart_policy {
        Some(_) => container.restart_policy_rules.as_deref(),
        None => None,
    };
    let mut rules = rules.unwrap_or_default().iter();
    let matching = rules.find(|rule| matches(rule, exit_code));
    let is_restart = matching.is_some_and(|rule| rule.action == "Restart");
    is_restart || policy_of(pod, container).restarts(exit_code)
}

/// Whether nothing is ever started again in a pod.
#[must_use]
pub fn never_restarts(pod: &Pod) -> bool {
    pod.all_containers().all(|(_, container)| {
        let rules = container.restart_policy_rules.as_deref();
        policy_of(pod, container) == RestartPolicy::Never && rules.unwrap_or_default().is_empty()
    })
}

fn matches(rule: &ContainerRestartRule, exit_code: i32) -> bool {
    let Some(codes) = &rule.exit_codes else {
        return false;
    };
    let is_named = codes.values.iter().flatten().any(|code| *code == exit_code);
    match codes.operator.as_str() {
        "In" => is_named,
        "NotIn" => !is_named,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(policy: &str, container: &str) -> Pod {
        let text = format!(
            r#"{{"spec":{{"restartPolicy":"{policy}","containers":[{{"name":"c"{container}}}]}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_containers_rules_come_before_its_policy_and_that_before_the_pods() {
        let rule = |operator: &str, policy: &str| {
            let codes = format!(r#"{{"operator":"{operator}","values":[3,42]}}"#);
            format!(r#",{policy}"restartPolicyRules":[{{"action":"Restart","exitCodes":{codes}}}]"#)
        };
        let never = r#""restartPolicy":"Never","#;
        // The pod's policy, the container's fields, and for 0, 1 and 42 what follows.
        for (policy, container, expected) in [
            ("Always", String::new(), [true, true, true]),
            ("OnFailure", String::new(), [false, true, true]),
            ("Never", String::new(), [false, false, false]),
            ("Always", r#","restartPolicy":"Never""#.into(), [false; 3]),
            ("Never", r#","restartPolicy":"Always""#.into(), [true; 3]),
            (
                "Never",
                r#","restartPolicy":"OnFailure""#.into(),
                [false, true, true],
            ),
            ("Always", rule("In", never), [false, false, true]),
            ("Always", rule("NotIn", never), [true, true, false]),
            // Without a policy of its own there are no rules.
            ("Never", rule("In", ""), [false, false, false]),
        ] {
            let pod = pod(policy, &container);
            let found = [0, 1, 42].map(|code| restarts(&pod, &pod.containers()[0], code));
            assert_eq!(found, expected, "{policy} {container}");
        }
    }

    #[test]
    fn a_pod_never_restarts_where_no_container_ever_does() {
        assert!(never_restarts(&pod("Never", "")));
        assert!(!never_restarts(&pod("OnFailure", "")));
        assert!(never_restarts(&pod(
            "Always",
            r#","restartPolicy":"Never""#
        )));
        assert!(!never_restarts(&pod(
            "Never",
            r#","restartPolicy":"Always""#
        )));
    }
}
