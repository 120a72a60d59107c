//! Container statuses: states, last states, restart counts, and what a collected or vanished instance leaves.

use super::*;

#[test]
fn before_the_first_instance_a_container_is_being_created() {
    let mut node = Node::with_policy("Always");
    let status = node.compute();
    assert_eq!(state_of(&status, "c"), "waiting ContainerCreating");
    assert_eq!(last_of(&status, "c"), "empty");
    assert_eq!(container(&status, "c").image, "i");
    assert_eq!(status.phase.as_deref(), Some("Pending"));

    let mut node = Node::with_init("Always");
    let status = node.compute();
    for name in ["i1", "i2", "c"] {
        assert_eq!(state_of(&status, name), "waiting PodInitializing");
    }
}

#[test]
fn an_init_container_has_started_while_it_runs() {
    let mut node = Node::with_init("Always");
    let started = |status: &PodStatus| container(status, "i1").started;
    assert_eq!(started(&node.compute()), Some(false));
    assert_eq!(started(&node.running("i1", "a").compute()), Some(true));
    assert_eq!(
        started(&node.gone().exited("i1", "a", 0).compute()),
        Some(false)
    );
}

#[test]
fn a_restarted_container_shows_how_the_last_instance_ended() {
    let mut node = Node::with_policy("Always");
    let status = node.exited("c", "a", 3).running("c", "b").compute();
    assert_eq!(state_of(&status, "c"), "running");
    assert_eq!(last_of(&status, "c"), "terminated 3 Error");
    assert_eq!(container(&status, "c").restart_count, 1);
    assert_eq!(
        container(&status, "c").container_id.as_deref(),
        Some("containerd://b")
    );
    assert_eq!(container(&status, "c").image, "i@runtime");
}

#[test]
fn an_id_begins_with_what_the_runtime_calls_itself() {
    let id = |status: &PodStatus| container(status, "c").container_id.clone().unwrap();
    let mut node = Node::with_policy("Always");
    node.pod.spec.as_mut().unwrap().containers[0].readiness_probe = Some(Probe::default());
    node.verdict("a", ProbeKind::Readiness, ProbeResult::Success);
    assert_eq!(id(&node.running("c", "a").compute()), "containerd://a");
    // As after an upgrade from a version that did not know it. It is the same instance.
    node.verdicts = Verdicts::default();
    node.observation.runtime_name = "cri-o".to_owned();
    let status = node.compute();
    assert_eq!(id(&status), "cri-o://a");
    assert!(container(&status, "c").ready);
    let restarted = node.gone().exited("c", "a", 3).running("c", "b");
    let status = restarted.compute();
    assert_eq!(id(&status), "cri-o://b");
    let last = container(&status, "c").last_state.clone();
    assert_eq!(
        last.unwrap().terminated.unwrap().container_id.as_deref(),
        Some("cri-o://a")
    );
}

#[test]
fn the_newest_instance_is_told_from_its_number_where_the_clock_was_set_back() {
    let mut node = Node::with_policy("OnFailure");
    node.exited("c", "a", 0).running("c", "b");
    for instance in &mut node.observation.containers {
        if instance.id == "b" {
            instance.created_at_unix_nanos = SECOND;
        }
    }
    let status = node.compute();
    assert_eq!(state_of(&status, "c"), "running");
    assert_eq!(container(&status, "c").restart_count, 1);
    assert_eq!(status.phase.as_deref(), Some("Running"));
}

#[test]
fn the_end_of_a_collected_instance_stays_known() {
    let mut node = Node::with_policy("Always");
    node.exited("c", "a", 3).compute();
    let mut only_new = node.gone().running("c", "b").compute();
    assert_eq!(last_of(&only_new, "c"), "terminated 3 Error");
    only_new = node.compute();
    assert_eq!(last_of(&only_new, "c"), "terminated 3 Error");
}

#[test]
fn the_restart_count_never_decreases() {
    let mut node = Node::with_policy("Always");
    node.exited("c", "a", 1)
        .exited("c", "b", 1)
        .running("c", "d");
    assert_eq!(container(&node.compute(), "c").restart_count, 2);
    node.gone().running("c", "d");
    assert_eq!(container(&node.compute(), "c").restart_count, 2);
}

#[test]
fn a_reason_for_no_start_shows_only_where_a_start_is_due() {
    // policy, exit code, state with the reason CrashLoopBackOff given
    for (policy, exit_code, expected) in [
        ("Always", 0, "waiting CrashLoopBackOff"),
        ("Always", 1, "waiting CrashLoopBackOff"),
        ("OnFailure", 0, "terminated 0 Completed"),
        ("OnFailure", 1, "waiting CrashLoopBackOff"),
        ("Never", 1, "terminated 1 Error"),
    ] {
        let mut node = Node::with_policy(policy);
        let status = node
            .exited("c", "a", exit_code)
            .waiting("c", "CrashLoopBackOff")
            .compute();
        assert_eq!(state_of(&status, "c"), expected, "{policy} {exit_code}");
        if expected.starts_with("waiting") {
            assert!(last_of(&status, "c").starts_with(&format!("terminated {exit_code}")));
        }
    }
    let mut node = Node::with_policy("Always");
    let status = node
        .running("c", "a")
        .waiting("c", "CrashLoopBackOff")
        .compute();
    assert_eq!(state_of(&status, "c"), "running");
    let mut node = Node::with_policy("Always");
    let status = node.waiting("c", "ErrImagePull").compute();
    assert_eq!(state_of(&status, "c"), "waiting ErrImagePull");
    assert_eq!(status.phase.as_deref(), Some("Pending"));
}

#[test]
fn a_terminating_pod_waits_for_no_start() {
    let mut node = Node::with_policy("Always");
    node.exited("c", "a", 1)
        .waiting("c", "CrashLoopBackOff")
        .phase(WorkerPhase::Terminating);
    assert_eq!(state_of(&node.compute(), "c"), "terminated 1 Error");
}

#[test]
fn a_default_reason_hides_no_known_end() {
    let mut node = Node::with_policy("Always");
    let status = node
        .exited("c", "a", 1)
        .waiting("c", "ContainerCreating")
        .compute();
    assert_eq!(state_of(&status, "c"), "terminated 1 Error");
}

#[test]
fn a_completed_init_container_waits_for_no_restart() {
    let mut node = Node::with_init("Always");
    node.exited("i1", "a", 0).waiting("i1", "CrashLoopBackOff");
    let status = node
        .exited("i2", "b", 1)
        .waiting("i2", "CrashLoopBackOff")
        .compute();
    assert_eq!(state_of(&status, "i1"), "terminated 0 Completed");
    assert_eq!(state_of(&status, "i2"), "waiting CrashLoopBackOff");
    assert!(container(&status, "i1").ready);
    assert!(!container(&status, "i2").ready);
}

#[test]
fn a_container_that_ran_and_vanished_counts_as_restarted() {
    let mut node = Node::with_policy("Always");
    node.running("c", "a").compute();
    for _ in 0..3 {
        let status = node.gone().compute();
        assert_eq!(state_of(&status, "c"), "waiting ContainerCreating");
        assert_eq!(
            last_of(&status, "c"),
            "terminated 137 ContainerStatusUnknown"
        );
        assert_eq!(container(&status, "c").restart_count, 1);
        assert_eq!(
            status.phase.as_deref(),
            Some("Running"),
            "it is not pending again"
        );
    }
}

#[test]
fn a_container_that_vanished_while_the_pod_ends_is_no_restart() {
    let mut node = Node::with_policy("Always");
    node.running("c", "a").compute();
    let status = node.gone().phase(WorkerPhase::Terminating).compute();
    assert_eq!(
        last_of(&status, "c"),
        "terminated 137 ContainerStatusUnknown"
    );
    assert_eq!(container(&status, "c").restart_count, 0);
}

#[test]
fn an_unobserved_pod_keeps_its_containers() {
    let mut node = Node::with_policy("Always");
    let before = node.running("c", "a").compute();
    node.observation.is_observed = false;
    let status = node.gone().compute();
    assert_eq!(status, before);
}

#[test]
fn an_instance_in_an_unknown_state_ended_if_it_was_seen_running() {
    let mut node = Node::with_policy("Never");
    node.running("c", "a").compute();
    for _ in 0..3 {
        let status = node
            .gone()
            .instance("c", "a", RuntimeState::Unknown, 0)
            .compute();
        assert_eq!(
            state_of(&status, "c"),
            "terminated 137 ContainerStatusUnknown"
        );
        assert_eq!(container(&status, "c").restart_count, 1);
    }
    let mut node = Node::with_policy("Never");
    let status = node.instance("c", "a", RuntimeState::Unknown, 0).compute();
    assert_eq!(state_of(&status, "c"), "waiting -");
}

#[test]
fn init_containers_that_were_collected_had_completed() {
    let mut node = Node::with_init("Always");
    let status = node.running("c", "a").compute();
    assert_eq!(state_of(&status, "i1"), "terminated 0 Completed");
    assert_eq!(condition(&status, "Initialized").status, "True");
    assert_eq!(status.phase.as_deref(), Some("Running"));
}

#[test]
fn containers_are_listed_by_name_and_init_containers_in_order() {
    let mut node = Node::new(json!({
        "initContainers": [{"name": "z"}, {"name": "a"}],
        "containers": [{"name": "y"}, {"name": "b"}],
    }));
    let status = node.compute();
    let names = |statuses: &Option<Vec<ContainerStatus>>| -> Vec<String> {
        statuses
            .iter()
            .flatten()
            .map(|status| status.name.clone())
            .collect()
    };
    assert_eq!(names(&status.init_container_statuses), ["z", "a"]);
    assert_eq!(names(&status.container_statuses), ["b", "y"]);
}

/// Of container `c` with these mounts.
fn told_mounts(mounts: Value, observe: impl FnOnce(&mut Node)) -> Value {
    let mut node = Node::new(json!({"containers": [{"name": "c", "volumeMounts": mounts}]}));
    observe(&mut node);
    let status = serde_json::to_value(node.compute()).unwrap();
    status["containerStatuses"][0]["volumeMounts"].clone()
}

#[test]
fn mounts_are_told_as_they_were_made() {
    let mount = |read_only: Value, mode: Value| {
        let mut mount = json!({"name": "v", "mountPath": "/a"});
        for (key, value) in [("readOnly", read_only), ("recursiveReadOnly", mode)] {
            if !value.is_null() {
                mount[key] = value;
            }
        }
        mount
    };
    let none = || Value::Null;
    for (asked, of_none, of_plain, of_recursive) in [
        ((none(), none()), Some(none()), none(), none()),
        ((json!(false), none()), Some(none()), none(), none()),
        (
            (json!(true), none()),
            Some(json!("Disabled")),
            json!("Disabled"),
            json!("Disabled"),
        ),
        (
            (json!(true), json!("Enabled")),
            Some(json!("Enabled")),
            json!("Enabled"),
            json!("Enabled"),
        ),
        (
            (json!(true), json!("IfPossible")),
            None,
            json!("Disabled"),
            json!("Enabled"),
        ),
    ] {
        let (read_only, mode) = asked;
        let mounts = json!([mount(read_only.clone(), mode.clone())]);
        let read_only = if read_only == json!(true) {
            read_only
        } else {
            none()
        };
        let expected = |mode| json!([mount(read_only.clone(), mode)]);
        let found = told_mounts(mounts.clone(), |_| {});
        assert_eq!(found, of_none.map_or(none(), expected), "{mode}");
        for (is_recursive, mode) in [(false, of_plain), (true, of_recursive)] {
            let found = told_mounts(mounts.clone(), |node| {
                node.running("c", "a");
                node.observation.containers[0].is_recursively_read_only = is_recursive;
            });
            assert_eq!(found, expected(mode));
        }
    }
}

#[test]
fn how_an_instance_was_mounted_stays_told_while_its_state_is_unknown() {
    let mounts = json!([
        {"name": "v", "mountPath": "/a", "readOnly": true, "recursiveReadOnly": "IfPossible"},
    ]);
    let found = told_mounts(mounts, |node| {
        node.running("c", "a");
        node.observation.containers[0].is_recursively_read_only = true;
        node.compute();
        node.observation.containers.clear();
        node.instance("c", "a", RuntimeState::Unknown, 0);
    });
    assert_eq!(found[0]["recursiveReadOnly"], "Enabled");
}

#[test]
fn of_too_many_mounts_none_are_told() {
    let mounts = |count: usize, length: usize| -> Value {
        let mount = json!({"name": "v", "mountPath": "x".repeat(length)});
        vec![mount; count].into()
    };
    for (count, length, expected) in [(64, 63, Some(64)), (64, 64, None), (65, 1, None)] {
        let found = told_mounts(mounts(count, length), |_| {});
        assert_eq!(found.as_array().map(Vec::len), expected);
    }
}

#[test]
fn as_whom_a_container_was_started_is_told_as_the_runtime_tells_it() {
    let told = |groups: usize| {
        let mut node = Node::with_init("Always");
        node.exited("i1", "a", 0).running("c", "b");
        node.observation.containers[1].user = Some(bulkhead_api::v1::ContainerUser {
            uid: u32::MAX,
            gid: 7,
            supplemental_groups: [9, 0, 0, 0].repeat(groups),
        });
        let status = serde_json::to_value(node.compute()).unwrap();
        assert!(status["initContainerStatuses"][0]["user"].is_null());
        status["containerStatuses"][0]["user"].clone()
    };
    let linux = json!({"uid": u32::MAX, "gid": 7, "supplementalGroups": [9, 9]});
    assert_eq!(told(2), json!({"linux": linux}));
    assert_eq!(told(0), json!({"linux": {"uid": u32::MAX, "gid": 7}}));
    assert!(!told(64).is_null());
    assert!(told(65).is_null());
}

#[test]
fn a_stop_signal_is_told_as_the_runtime_tells_it() {
    for (told, expected) in [
        ("", None),
        ("SIGTERM", Some("SIGTERM")),
        ("SIGRTMIN+3", Some("SIGRTMIN+3")),
        ("SIGNONE", None),
        ("\u{1b}[2J", None),
    ] {
        let mut node = Node::with_init("Always");
        node.exited("i1", "a", 0).running("c", "b");
        for container in &mut node.observation.containers {
            container.stop_signal = told.to_owned();
        }
        let status = serde_json::to_value(node.compute()).unwrap();
        for list in ["initContainerStatuses", "containerStatuses"] {
            let found = &status[list][0]["stopSignal"];
            assert_eq!(found.as_str(), expected, "{list} {told:?}");
        }
    }
}
