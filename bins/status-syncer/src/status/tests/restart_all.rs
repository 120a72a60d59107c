//! Statuses of a pod of which all containers are started again.

use super::*;

/// A pod with an init container `i` and containers `c` and `d`; `c` starts all again when
/// it exits with 42.
fn node(policy: &str) -> Node {
    let rule = json!({
        "action": "RestartAllContainers",
        "exitCodes": {"operator": "In", "values": [42]},
    });
    let mut node = Node::new(json!({
        "restartPolicy": policy,
        "initContainers": [{"name": "i"}],
        "containers": [
            {"name": "c", "restartPolicy": "Never", "restartPolicyRules": [rule]},
            {"name": "d"},
        ],
    }));
    node.exited("i", "i0", 0)
        .running("c", "c0")
        .running("d", "d0");
    node
}

fn end(node: &mut Node, id: &str, exit_code: i32) {
    let mut containers = node.observation.containers.iter_mut();
    let container = containers.find(|it| it.id == id).unwrap();
    container.set_state(RuntimeState::Exited);
    container.exit_code = exit_code;
}

/// All that there is is from before.
fn next_round(node: &mut Node) {
    for container in &mut node.observation.containers {
        container.is_of_earlier_round = true;
    }
}

fn restarting(status: &PodStatus) -> (&str, &str) {
    let mut conditions = status.conditions.iter().flatten();
    let condition = conditions.find(|it| it.type_ == "AllContainersRestarting");
    let condition = condition.unwrap();
    (
        condition.status.as_str(),
        condition.reason.as_deref().unwrap_or_default(),
    )
}

#[test]
fn a_pod_whose_containers_all_start_again_is_pending_and_never_ends_by_it() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut node = node(policy);
        let status = node.compute();
        assert_eq!(status.phase.as_deref(), Some("Running"));
        assert_eq!(restarting(&status), ("False", ""));
        end(&mut node, "c0", 42);
        next_round(&mut node);
        let status = node.compute();
        assert_eq!(status.phase.as_deref(), Some("Pending"), "{policy}");
        assert_eq!(restarting(&status), ("True", "RestartAllContainersStarted"));
        assert_eq!(state_of(&status, "c"), "waiting PodInitializing");
        let last = container(&status, "c").last_state.as_ref().unwrap();
        assert_eq!(last.terminated.as_ref().unwrap().exit_code, 42);
        // The other one is killed, and nothing of it restarts by policy.
        end(&mut node, "d0", 137);
        let status = node.compute();
        assert_eq!(status.phase.as_deref(), Some("Pending"), "{policy}");
        assert_eq!(restarting(&status), ("False", ""));
        for name in ["i", "c", "d"] {
            assert_eq!(state_of(&status, name), "waiting PodInitializing");
        }
        let status = node.running("i", "i1").compute();
        assert_eq!(status.phase.as_deref(), Some("Pending"), "{policy}");
        end(&mut node, "i1", 0);
        let status = node.compute();
        assert_eq!(status.phase.as_deref(), Some("Pending"), "{policy}");
        let status = node.running("c", "c1").running("d", "d1").compute();
        assert_eq!(status.phase.as_deref(), Some("Running"), "{policy}");
        assert_eq!(container(&status, "d").restart_count, 1);
    }
}

#[test]
fn why_one_of_them_waits_is_told() {
    let mut node = node("Never");
    end(&mut node, "c0", 42);
    end(&mut node, "d0", 137);
    next_round(&mut node);
    node.waiting("i", "CrashLoopBackOff");
    let status = node.compute();
    assert_eq!(state_of(&status, "i"), "waiting CrashLoopBackOff");
    assert_eq!(status.phase.as_deref(), Some("Pending"));
}

#[test]
fn a_pod_that_is_ended_meanwhile_ends_as_any_other() {
    let mut node = node("Never").api_pod();
    end(&mut node, "c0", 42);
    end(&mut node, "d0", 137);
    next_round(&mut node);
    let status = node.phase(WorkerPhase::Terminated).compute();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(restarting(&status), ("False", "PodFailed"));
    assert_eq!(state_of(&status, "c"), "terminated 42 Completed");
}

#[test]
fn only_pods_that_have_such_a_rule_have_the_condition() {
    let mut node = Node::with_policy("Always");
    let status = node.running("c", "a").compute();
    let mut conditions = status.conditions.iter().flatten();
    assert!(!conditions.any(|it| it.type_ == "AllContainersRestarting"));
}
