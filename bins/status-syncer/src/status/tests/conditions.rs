//! Readiness by verdicts, and the conditions of a pod with their transition times.

use bulkhead_api::v1::InstanceResources;

use super::*;

#[test]
fn readiness_follows_verdicts_of_the_same_instance() {
    use ProbeResult::{Failure, Success, Unspecified};
    // startup probe? readiness probe? verdicts, then started and ready
    for (startup, readiness, startup_verdict, readiness_verdict, started, ready) in [
        (false, false, Unspecified, Unspecified, true, true),
        (false, true, Unspecified, Unspecified, true, false),
        (false, true, Unspecified, Failure, true, false),
        (false, true, Unspecified, Success, true, true),
        (true, false, Unspecified, Unspecified, false, false),
        (true, false, Failure, Unspecified, false, false),
        (true, false, Success, Unspecified, true, true),
        (true, true, Success, Unspecified, true, false),
        (true, true, Success, Success, true, true),
        (true, true, Failure, Success, false, false),
    ] {
        let probe = |wanted: bool| wanted.then(|| json!({"tcpSocket": {"port": 1}}));
        let mut node = Node::new(json!({"containers": [{
            "name": "c", "startupProbe": probe(startup), "readinessProbe": probe(readiness),
        }]}));
        node.running("c", "a");
        node.verdict("a", ProbeKind::Startup, startup_verdict);
        node.verdict("a", ProbeKind::Readiness, readiness_verdict);
        // Of another instance: says nothing.
        node.verdict("b", ProbeKind::Readiness, Success)
            .verdict("b", ProbeKind::Startup, Success);
        let status = node.compute();
        let case = format!("{startup} {readiness} {startup_verdict:?} {readiness_verdict:?}");
        assert_eq!(container(&status, "c").started, Some(started), "{case}");
        assert_eq!(container(&status, "c").ready, ready, "{case}");
        let expected = if ready { "True" } else { "False" };
        assert_eq!(condition(&status, "Ready").status, expected, "{case}");
        assert_eq!(
            condition(&status, "ContainersReady").status,
            expected,
            "{case}"
        );
    }
}

#[test]
fn containers_can_start_once_the_sandbox_has_its_network() {
    let sandbox = |ready: bool, ips: &[&str]| SandboxObservation {
        ready,
        ips: ips.iter().map(|&ip| ip.to_owned()).collect(),
        ..SandboxObservation::default()
    };
    for (on_nodes_network, sandboxes, expected) in [
        (false, vec![], "False"),
        (false, vec![sandbox(true, &[])], "False"),
        (true, vec![sandbox(true, &[])], "True"),
        (false, vec![sandbox(true, &["10.0.0.5"])], "True"),
        (false, vec![sandbox(false, &["10.0.0.5"])], "False"),
    ] {
        let spec = json!({"hostNetwork": on_nodes_network, "containers": [{"name": "c"}]});
        let mut node = Node::new(spec);
        node.observation.sandboxes = sandboxes;
        let told = |status: PodStatus| {
            condition(&status, "PodReadyToStartContainers")
                .status
                .clone()
        };
        assert_eq!(told(node.compute()), expected);
        // A pool that has not asked the runtime yet changes nothing.
        node.observation.sandboxes.clear();
        node.observation.is_observed = false;
        assert_eq!(told(node.compute()), expected);
    }
}

#[test]
fn an_unknown_verdict_keeps_what_was_published_for_the_instance() {
    let mut node = Node::new(json!({"containers": [{
        "name": "c",
        "startupProbe": {"tcpSocket": {"port": 1}},
        "readinessProbe": {"tcpSocket": {"port": 1}},
    }]}));
    node.running("c", "a");
    node.verdict("a", ProbeKind::Startup, ProbeResult::Success);
    node.verdict("a", ProbeKind::Readiness, ProbeResult::Success);
    let before = node.compute();
    assert!(container(&before, "c").ready);

    // A restart of this process: the verdicts are gone, what was published is not.
    node.verdicts = Verdicts::default();
    assert_eq!(node.compute(), before);

    // A new instance starts without any.
    node.gone().exited("c", "a", 1).running("c", "b");
    let status = node.compute();
    assert_eq!(container(&status, "c").started, Some(false));
    assert!(!container(&status, "c").ready);
}

#[test]
fn a_container_that_does_not_run_is_not_ready() {
    let mut node = Node::with_policy("Never");
    let status = node.exited("c", "a", 0).compute();
    assert_eq!(container(&status, "c").started, Some(false));
    assert!(!container(&status, "c").ready);
    assert_eq!(
        condition(&status, "Ready").reason.as_deref(),
        Some("PodCompleted")
    );
    assert_eq!(
        condition(&status, "Initialized").reason.as_deref(),
        Some("PodCompleted")
    );
}

// Conditions.

#[test]
fn a_transition_time_changes_with_the_status_only() {
    let mut node = Node::with_policy("Always");
    let status = node.compute(); // at 100
    assert_eq!(since(&status, "Ready"), 100);
    let status = node.waiting("c", "ErrImagePull").compute();
    assert_eq!(since(&status, "Ready"), 100);
    node.observation.waiting.clear();
    let status = node.running("c", "a").compute(); // at 120
    assert_eq!(
        (since(&status, "Ready"), since(&status, "Initialized")),
        (120, 100)
    );
    let status = node.compute();
    assert_eq!(
        (since(&status, "Ready"), since(&status, "ContainersReady")),
        (120, 120)
    );
    assert_eq!(status.start_time.as_ref().unwrap().0.as_second(), 100);
}

#[test]
fn conditions_name_the_containers_that_lack() {
    let mut node = Node::new(json!({
        "initContainers": [{"name": "i1"}, {"name": "i2"}],
        "containers": [{"name": "c"}, {"name": "d"}],
    }));
    let status = node.exited("i1", "a", 0).compute();
    let initialized = condition(&status, "Initialized");
    assert_eq!(
        initialized.reason.as_deref(),
        Some("ContainersNotInitialized")
    );
    assert_eq!(
        initialized.message.as_deref(),
        Some("containers with incomplete status: [i2]")
    );
    let ready = condition(&status, "Ready");
    assert_eq!(ready.reason.as_deref(), Some("ContainersNotReady"));
    assert_eq!(
        ready.message.as_deref(),
        Some("containers with unready status: [c d]")
    );
}

#[test]
fn readiness_gates_hold_ready_but_not_containers_ready() {
    let gate = |status: Option<&str>| {
        let mut node = Node::new(json!({
            "readinessGates": [{"conditionType": "example.com/gate"}],
            "containers": [{"name": "c"}],
        }));
        node.pod.status = status.map(|status| PodStatus {
            conditions: Some(vec![PodCondition {
                type_: "example.com/gate".to_owned(),
                status: status.to_owned(),
                ..PodCondition::default()
            }]),
            ..PodStatus::default()
        });
        node.running("c", "a").compute()
    };
    let status = gate(None);
    assert_eq!(condition(&status, "ContainersReady").status, "True");
    let ready = condition(&status, "Ready");
    assert_eq!(ready.reason.as_deref(), Some("ReadinessGatesNotReady"));
    assert_eq!(
        ready.message.as_deref(),
        Some("corresponding condition of pod readiness gate \"example.com/gate\" does not exist.")
    );
    assert_eq!(
        condition(&gate(Some("False")), "Ready").message.as_deref(),
        Some("the status of pod readiness gate \"example.com/gate\" is not \"True\", but False")
    );
    let status = gate(Some("True"));
    assert_eq!(condition(&status, "Ready").status, "True");
    assert_eq!(
        condition(&status, "example.com/gate").status,
        "True",
        "kept as it is"
    );
}

#[test]
fn what_the_api_server_holds_of_others_decides_and_is_told_as_it_is_there() {
    let mut node = Node::new(json!({
        "readinessGates": [{"conditionType": "example.com/gate"}],
        "containers": [{"name": "c"}],
    }));
    node.running("c", "a").compute();
    let held = |type_: &str, status: &str| PodCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        ..PodCondition::default()
    };
    let ready = |status: &PodStatus| condition(status, "Ready").status == "True";
    for (conditions, expected) in [
        (vec![held("example.com/gate", "True")], true),
        // What it holds of this node's own is no news to it.
        (
            vec![held("example.com/gate", "False"), held("Ready", "True")],
            false,
        ),
        (vec![held("example.com/gate", "True")], true),
        (vec![held("other", "True")], false),
    ] {
        node.held = Some(conditions.clone());
        let status = node.compute();
        assert_eq!(ready(&status), expected, "{conditions:?}");
        assert_eq!(condition(&status, &conditions[0].type_), &conditions[0]);
    }
    let all = node.compute().conditions.unwrap_or_default();
    assert!(!all.iter().any(|it| it.type_ == "example.com/gate"));
}

#[test]
fn a_pod_that_the_node_had_to_end_tells_so_from_then_on() {
    let mut node = Node::with_policy("Always");
    let status = node.running("c", "a").compute();
    let told = |status: &PodStatus| {
        let mut all = status.conditions.iter().flatten();
        all.find(|it| it.type_ == "DisruptionTarget").cloned()
    };
    assert_eq!(told(&status), None);
    node.observation.failed_reason = "Evicted".to_owned();
    node.observation.failed_message = "The node was low on resource: memory. ".to_owned();
    assert_eq!(told(&node.compute()), None, "it went for its own sake");
    node.observation.is_disruption = true;
    let told_first = told(&node.compute()).unwrap();
    assert_eq!(told_first.status, "True");
    assert_eq!(told_first.reason.as_deref(), Some("TerminationByKubelet"));
    assert_eq!(
        told_first.message.as_deref(),
        Some("The node was low on resource: memory. ")
    );
    let again = node.exited("c", "a", 137).compute();
    assert_eq!(told(&again), Some(told_first));
}

#[test]
fn a_resize_is_a_condition_while_it_is_under_way() {
    let mut node = Node::with_policy("Always");
    node.running("c", "a");
    let told = |status: &PodStatus| {
        let all = status.conditions.iter().flatten();
        let mut all = all.filter(|it| it.type_ == "PodResizeInProgress");
        all.next().cloned()
    };
    assert_eq!(told(&node.compute()), None);
    node.observation.resize = Some(ResizeObservation::default());
    let begun = told(&node.compute()).unwrap();
    assert_eq!(
        (begun.status.as_str(), begun.reason.as_deref()),
        ("True", None)
    );
    node.now += 10;
    node.observation.resize = Some(ResizeObservation {
        error: "why".to_owned(),
    });
    let failed = told(&node.compute()).unwrap();
    assert_eq!(failed.reason.as_deref(), Some("Error"));
    assert_eq!(failed.message.as_deref(), Some("why"));
    assert_eq!(failed.last_transition_time, begun.last_transition_time);
    node.observation.resize = None;
    assert_eq!(told(&node.compute()), None);
}

#[test]
fn a_resize_that_waits_is_a_condition_with_the_kubelets_reason() {
    let mut node = Node::with_policy("Always");
    node.running("c", "a");
    let told = |status: &PodStatus| {
        let all = status.conditions.iter().flatten();
        let mut all = all.filter(|it| it.type_ == "PodResizePending");
        all.next().cloned()
    };
    assert_eq!(told(&node.compute()), None);
    let mut since = None;
    for (is_infeasible, reason) in [(false, "Deferred"), (true, "Infeasible")] {
        node.now += 10;
        node.observation.pending_resize = Some(PendingResize {
            is_infeasible,
            message: "why".to_owned(),
        });
        let waits = told(&node.compute()).unwrap();
        assert_eq!(waits.status, "True");
        assert_eq!(waits.reason.as_deref(), Some(reason));
        assert_eq!(waits.message.as_deref(), Some("why"));
        let first = since.get_or_insert(waits.last_transition_time.clone());
        assert_eq!(waits.last_transition_time, *first);
    }
    node.observation.pending_resize = None;
    assert_eq!(told(&node.compute()), None);
}

#[test]
fn what_was_promised_is_told_until_a_resize_has_room() {
    let mut node = Node::with_policy("Always");
    let resources = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}});
    let set = |node: &mut Node, resources: &Value| {
        let containers = &mut node.pod.spec.as_mut().unwrap().containers;
        containers[0].resources = serde_json::from_value(resources.clone()).unwrap();
    };
    let told = |node: &mut Node| {
        let status = serde_json::to_value(node.compute()).unwrap();
        let status = &status["containerStatuses"][0];
        let requests = status["resources"]["requests"].clone();
        (status["allocatedResources"].clone(), requests)
    };
    let (small, large) = (resources("100m", "64Mi"), resources("300m", "96Mi"));
    let pending = || PendingResize {
        is_infeasible: false,
        message: "why".to_owned(),
    };
    set(&mut node, &small);
    node.running("c", "a");
    node.observation.containers[0].resources = Some(InstanceResources {
        cpu_request_millis: 100,
        ..InstanceResources::default()
    });
    let requests = |of: &Value| (of["requests"].clone(), of["requests"].clone());
    assert_eq!(told(&mut node), requests(&small));
    // It waits, for how long whatever happens.
    set(&mut node, &large);
    node.observation.pending_resize = Some(pending());
    for _ in 0..3 {
        assert_eq!(told(&mut node), requests(&small));
    }
    // It has room, and then it is carried out.
    node.observation.pending_resize = None;
    assert_eq!(told(&mut node).0, large["requests"]);
    let actual = node.observation.containers[0].resources.as_mut().unwrap();
    actual.cpu_request_millis = 300;
    assert_eq!(told(&mut node), requests(&large));
    // What nobody remembers is not guessed.
    node.published = None;
    node.observation.pending_resize = Some(pending());
    assert_eq!(told(&mut node).0, json!(null));
}
