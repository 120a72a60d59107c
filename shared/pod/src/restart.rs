//! Whether a container that has ended is started again: by its own policy and rules, else
//! by its pod's policy (Kubernetes 1.34, KEP-5307); and whether its end starts all
//! containers of the pod again (Kubernetes 1.35, KEP-5532).

use crate::accessors::ContainerKind;
use crate::core::{Container, ContainerRestartRule, Pod};
use crate::{PodExt, RestartPolicy};

/// Action of a rule: the container that ended is started again.
pub const RESTART: &str = "Restart";

/// Action of a rule: all containers of the pod are started again, init containers first.
pub const RESTART_ALL_CONTAINERS: &str = "RestartAllContainers";

/// The policy of a container: its own, or its pod's.
#[must_use]
pub fn policy_of(pod: &Pod, container: &Container) -> RestartPolicy {
    let own = container.restart_policy.as_deref();
    own.and_then(RestartPolicy::parse)
        .unwrap_or_else(|| pod.restart_policy())
}

/// Whether a container that exited with this code is started again, alone or with all
/// others. The first rule that matches decides.
#[must_use]
pub fn restarts(pod: &Pod, container: &Container, exit_code: i32) -> bool {
    let action = action(container, exit_code);
    let is_restart = action.is_some_and(|it| [RESTART, RESTART_ALL_CONTAINERS].contains(&it));
    is_restart || policy_of(pod, container).restarts(exit_code)
}

/// Whether all containers of the pod are started again when this one exited with this
/// code.
#[must_use]
pub fn restarts_all(container: &Container, exit_code: i32) -> bool {
    action(container, exit_code) == Some(RESTART_ALL_CONTAINERS)
}

/// Whether an exit of any container can start all containers of the pod again.
#[must_use]
pub fn may_restart_all(pod: &Pod) -> bool {
    let mut rules = pod
        .all_containers()
        .flat_map(|(_, container)| rules(container));
    rules.any(|rule| rule.action == RESTART_ALL_CONTAINERS)
}

/// What the first rule that matches says.
fn action(container: &Container, exit_code: i32) -> Option<&str> {
    let mut rules = rules(container).iter();
    let matching = rules.find(|rule| matches(rule, exit_code));
    matching.map(|rule| rule.action.as_str())
}

/// Rules count beside a policy of the container's own alone.
fn rules(container: &Container) -> &[ContainerRestartRule] {
    match container.restart_policy {
        Some(_) => container
            .restart_policy_rules
            .as_deref()
            .unwrap_or_default(),
        None => &[],
    }
}

/// Whether nothing is ever started again in a pod, but for sidecars beside what runs.
#[must_use]
pub fn never_restarts(pod: &Pod) -> bool {
    let mut others = pod
        .all_containers()
        .filter(|(kind, _)| *kind != ContainerKind::Sidecar);
    let are_left = others.all(|(_, container)| {
        let rules = container.restart_policy_rules.as_deref();
        policy_of(pod, container) == RestartPolicy::Never && rules.unwrap_or_default().is_empty()
    });
    are_left && !may_restart_all(pod)
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
    fn an_exit_starts_all_containers_again_where_the_first_rule_that_matches_says_so() {
        let rule = |action: &str, codes: &str| {
            format!(r#"{{"action":"{action}","exitCodes":{{"operator":"In","values":[{codes}]}}}}"#)
        };
        let all = rule(RESTART_ALL_CONTAINERS, "3,42");
        let one = rule(RESTART, "42");
        // The rules, and for 0, 3 and 42 whether all are started again.
        for (rules, expected) in [
            (all.clone(), [false, true, true]),
            (format!("{one},{all}"), [false, true, false]),
            (format!("{all},{one}"), [false, true, true]),
            (one, [false, false, false]),
        ] {
            let has_action = rules.contains(RESTART_ALL_CONTAINERS);
            let rules = format!(r#""restartPolicyRules":[{rules}]"#);
            let own = pod("Never", &format!(r#","restartPolicy":"Never",{rules}"#));
            let container = &own.containers()[0];
            assert_eq!(
                [0, 3, 42].map(|code| restarts_all(container, code)),
                expected
            );
            assert!(restarts(&own, container, 42), "alone or with all others");
            assert_eq!(may_restart_all(&own), has_action);
            // Without a policy of its own there are no rules.
            let none = pod("Never", &format!(",{rules}"));
            assert!(!restarts_all(&none.containers()[0], 42));
            assert!(!may_restart_all(&none));
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
        // A sidecar is started again only beside others, unless it starts those again too.
        let with_sidecar = |rules: &str| {
            let mut pod = pod("Never", "");
            let sidecar = format!(r#"{{"name":"s","restartPolicy":"Always"{rules}}}"#);
            let sidecar = serde_json::from_str(&sidecar).unwrap();
            pod.spec.as_mut().unwrap().init_containers = Some(vec![sidecar]);
            pod
        };
        assert!(never_restarts(&with_sidecar("")));
        let rule =
            r#"{"action":"RestartAllContainers","exitCodes":{"operator":"In","values":[1]}}"#;
        let rules = format!(r#","restartPolicyRules":[{rule}]"#);
        assert!(!never_restarts(&with_sidecar(&rules)));
    }
}
