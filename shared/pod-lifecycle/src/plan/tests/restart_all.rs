//! All containers of a pod are started again: the kubelet's tables for
//! `RestartAllContainers`, by behaviour, and what kills in between leave.

use super::*;

/// Init containers i1 and s2, of which the second is a sidecar; all are as they should be.
/// An exit of the container with 42 starts all again.
fn case(policy: &str, trigger: &str) -> Case {
    let mut case = Case::new(policy);
    case.pod["spec"]["initContainers"] = json!([
        {"name": "i1", "image": "i:1"},
        {"name": "s2", "image": "i:1", "restartPolicy": "Always"},
    ]);
    case.has("i1", exited(0)).has("s2", running());
    case.container("s2").sidecar = Some(1);
    let rule = json!({
        "action": "RestartAllContainers",
        "exitCodes": {"operator": "In", "values": [42]},
    });
    for list in ["initContainers", "containers"] {
        for spec in case.pod["spec"][list].as_array_mut().unwrap() {
            if spec["name"] == trigger {
                let own = spec.get("restartPolicy").cloned();
                spec["restartPolicy"] = own.unwrap_or_else(|| json!("Never"));
                spec["restartPolicyRules"] = json!([rule]);
            }
        }
    }
    case
}

/// Adds an instance, newer than those that there are.
fn next(case: &mut Case, name: &str, round: u32, state: ContainerState) {
    let mut instance = case.container(name).clone();
    instance.restart_count += 1;
    instance.id = format!("{name}-{}", instance.restart_count);
    instance.state = state;
    instance.round = round;
    case.observation.containers.insert(0, instance);
}

fn end_all(case: &mut Case) {
    for container in &mut case.observation.containers {
        if container.state.may_run() {
            container.state = exited(143);
        }
    }
}

#[test]
fn an_exit_that_the_rule_names_stops_what_runs_at_once_and_starts_nothing() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut case = case(policy, "a");
        case.pod["spec"]["terminationGracePeriodSeconds"] = json!(30);
        assert_eq!(case.plan(), Plan::Work(Work::default()));
        case.has("a", exited(42)).has("c", ContainerState::Unknown);
        case.container("b").pre_stop = crate::hook::Hook::of(
            &serde_json::from_value(json!({"sleep": {"seconds": 9}})).unwrap(),
            &[],
        );
        let work = case.work();
        let ids: Vec<&str> = work.stops.iter().map(|it| &*it.container_id).collect();
        assert_eq!(ids, ["b-0", "s2-0", "c-0"], "{policy}");
        for stop in &work.stops {
            assert_eq!(stop.reason, Some(KillReason::AllRestart));
            assert_eq!((stop.grace.as_secs(), &stop.pre_stop), (2, &None));
            assert!(stop.after.is_empty(), "in no order");
            let is_unknown = stop.name == "c";
            assert_eq!(stop.how == StopHow::StopUnknown, is_unknown);
        }
        assert!(work.starts.is_empty() && work.waits.is_empty());
    }
}

#[test]
fn any_other_exit_is_a_matter_of_the_container_alone() {
    for (policy, starts) in [("Always", vec!["b"]), ("Never", vec![])] {
        let mut case = case(policy, "a");
        // Another code, and another container with that code.
        case.has("a", exited(1)).has("b", exited(42));
        assert_eq!(case.starts(), starts, "{policy}");
        assert!(case.kills().is_empty());
    }
}

#[test]
fn all_containers_start_again_in_order_those_that_had_ended_for_good_too() {
    for trigger in ["i1", "s2", "a"] {
        let mut case = case("Never", trigger);
        case.has("b", exited(0)).has("c", exited(1));
        case.has(trigger, exited(42));
        if trigger == "i1" {
            case.observation.containers.retain(|it| it.name == "i1");
        }
        end_all(&mut case);
        let instance = case.new_instance();
        assert_eq!((instance.round, instance.restart_count), (1, 1));
        for (name, state, following) in [
            ("i1", running(), vec![]),
            ("i1", exited(0), vec!["s2"]),
            ("s2", running(), vec!["a", "b", "c"]),
        ] {
            let is_there = case
                .observation
                .newest(name)
                .is_some_and(|it| it.round == 1);
            match case.observation.newest(name) {
                None => _ = case.has(name, state),
                Some(_) if is_there => case.container(name).state = state,
                Some(_) => next(&mut case, name, 1, state),
            }
            case.container(name).round = 1;
            assert_eq!(case.starts(), following, "{trigger} {name}");
        }
        for name in ["a", "b", "c"] {
            match case.observation.newest(name) {
                None => _ = case.has(name, running()),
                Some(_) => next(&mut case, name, 1, running()),
            }
            case.container(name).round = 1;
        }
        assert_eq!(case.plan(), Plan::Work(Work::default()), "{trigger}");
        // From now on ends count again.
        case.container("b").state = exited(0);
        assert_eq!(case.plan(), Plan::Work(Work::default()), "{trigger}");
    }
}

#[test]
fn an_init_container_that_fails_afterwards_ends_a_pod_that_is_never_restarted() {
    for (policy, starts) in [("Never", None), ("Always", Some("i1"))] {
        let mut case = case(policy, "a");
        case.has("a", exited(42));
        end_all(&mut case);
        next(&mut case, "i1", 1, exited(1));
        match starts {
            None => assert_eq!(case.plan(), COMPLETED),
            Some(name) => assert_eq!(case.starts(), [name]),
        }
    }
}

#[test]
fn whoever_looks_at_any_point_goes_on_from_there() {
    let mut case = case("Never", "a");
    case.has("a", exited(42));
    let all = |it: &Case| it.kills().into_iter().map(|(id, _)| id).collect::<Vec<_>>();
    assert_eq!(all(&case), ["b-0", "c-0", "s2-0"]);
    // Stopped one after the other, whatever they end with, and with no record of it.
    case.has("c", exited(42));
    assert_eq!(all(&case), ["b-0", "s2-0"]);
    case.has("b", exited(0));
    assert_eq!(all(&case), ["s2-0"]);
    case.has("s2", exited(143));
    assert_eq!(case.starts(), ["i1"]);
    // Made by a call of an earlier round that nobody heard the end of.
    next(&mut case, "b", 0, running());
    assert_eq!(all(&case), ["b-1"]);
    case.container("b").state = exited(143);
    // Made in this round and not started.
    next(&mut case, "i1", 1, ContainerState::Created);
    assert!(matches!(case.work().starts[0].how, StartHow::Resume { .. }));
    case.container("i1").state = exited(0);
    assert_eq!(case.starts(), ["s2"]);
    // What began the round is collected, as any instance with a newer one beside it.
    next(&mut case, "s2", 1, running());
    next(&mut case, "a", 1, running());
    case.observation.containers.retain(|it| it.id != "a-0");
    assert_eq!(case.starts(), ["b", "c"]);
    assert_eq!(case.new_instance().round, 1);
    // The next time.
    case.container("a").state = exited(42);
    assert_eq!(all(&case), ["s2-1"]);
    case.container("s2").state = exited(0);
    assert_eq!(case.starts(), ["i1"]);
    assert_eq!(case.new_instance().round, 2);
}

#[test]
fn an_instance_of_an_earlier_round_that_never_ran_is_made_again() {
    let mut case = case("Always", "a");
    case.has("i1", ContainerState::Created).has("a", exited(42));
    end_all(&mut case);
    let instance = case.new_instance();
    assert_eq!(instance.discard, [discard("i1-0", false)]);
    assert_eq!((instance.round, instance.restart_count), (1, 0));
}

#[test]
fn each_container_waits_for_its_own_back_off() {
    let mut case = case("Always", "a");
    case.has("a", exited_ago(42, 1)).has("i1", exited_ago(0, 5));
    case.container("i1").restart_wait = Some(Duration::from_secs(10));
    end_all(&mut case);
    let work = case.work();
    assert!(work.starts.is_empty());
    let wait = &work.waits[0];
    assert_eq!((wait.name.as_str(), wait.wait.as_secs()), ("i1", 10));
    assert_eq!(wait.until, NOW.plus(Duration::from_secs(5)));
    case.container("i1").state = exited_ago(0, 11);
    assert_eq!(case.new_instance().restart_wait.as_secs(), 20);
}

#[test]
fn a_sandbox_that_is_lost_meanwhile_is_replaced_first() {
    for policy in ["Always", "Never"] {
        let mut case = case(policy, "a");
        case.has("a", exited(42)).lost();
        let lost = Some(Unusable::NotReady);
        assert_eq!(case.plan(), new_sandbox(1, lost, &["i1"]), "{policy}");
        end_all(&mut case);
        case.observation.sandboxes.insert(0, sandbox("s2", 1, true));
        assert_eq!(case.starts(), ["i1"]);
        assert_eq!(case.new_instance().round, 1);
    }
}

#[test]
fn nothing_is_stopped_that_the_node_policy_would_not_let_start_again() {
    let mut case = case("Always", "a");
    case.has("a", exited(42));
    case.refused = Some(Refused {
        reason: REFUSED_REASON,
        message: "no".to_owned(),
        ends_what_runs: false,
    });
    assert_eq!(case.plan(), Plan::Work(Work::default()));
}
