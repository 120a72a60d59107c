//! Ephemeral containers: the kubelet's table, by behaviour, and ours.

use pod::accessors::ContainerKind;

use super::*;

/// A pod with init container i1 and ephemeral container e, of which all but e run as they
/// should.
fn case(policy: &str) -> Case {
    let mut case = Case::new(policy);
    case.pod["spec"]["initContainers"] = json!([{"name": "i1", "image": "i:1"}]);
    case.has("i1", exited(0));
    add(&mut case, "e");
    case
}

fn add(case: &mut Case, name: &str) {
    let spec = case.pod["spec"].as_object_mut().unwrap();
    let listed = spec.entry("ephemeralContainers").or_insert(json!([]));
    let ephemeral = json!({"name": name, "image": "i:1"});
    listed.as_array_mut().unwrap().push(ephemeral);
}

/// An instance of an ephemeral container.
fn has(case: &mut Case, name: &str, state: ContainerState) {
    let mut instance = case.container("a").clone();
    instance.id = format!("{name}-0");
    instance.name = name.to_owned();
    instance.state = state;
    let spec =
        pod::ephemeral::any_container(&pod(case.pod.clone()), name).map(|it| it.into_owned());
    instance.spec_hash = pod::ContainerHash::of(&spec.unwrap()).to_string();
    case.observation.containers.push(instance);
}

const POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

#[test]
fn each_is_started_once_and_never_again() {
    for policy in POLICIES {
        let mut case = case(policy);
        assert_eq!(case.starts(), ["e"]);
        assert_eq!(case.work().starts[0].kind, ContainerKind::Ephemeral);
        has(&mut case, "e", running());
        assert_eq!(case.plan(), Plan::Work(Work::default()), "{policy}");
        add(&mut case, "f");
        assert_eq!(case.starts(), ["f"]);
        for state in [exited(0), exited(1), ContainerState::Unknown] {
            case.container("e").state = state;
            assert_eq!(case.starts(), ["f"]);
            assert!(case.kills().is_empty());
        }
        // Its instance was collected.
        case.observation.containers.retain(|it| it.name != "e");
        case.observation.starts_in_logs.insert("e".into(), 1);
        assert_eq!(case.starts(), ["f"]);
    }
}

#[test]
fn one_whose_start_was_cut_short_has_not_run() {
    let mut case = case("Never");
    has(&mut case, "e", ContainerState::Created);
    assert!(matches!(case.work().starts[0].how, StartHow::Resume { .. }));
    let ContainerState::Exited(exit) = exited_ago(128, 0) else {
        unreachable!();
    };
    case.container("e").state = ContainerState::StartAbandoned(exit);
    assert_eq!(case.new_instance().discard, [discard("e-0", true)]);
}

#[test]
fn they_wait_for_no_others_and_are_started_first() {
    let mut case = case("Always");
    case.observation.containers.clear();
    assert_eq!(case.starts(), ["e", "i1"]);
    case.has("i1", running());
    assert_eq!(case.starts(), ["e"]);
    case.has("i1", exited(0));
    assert_eq!(case.starts(), ["e", "a", "b", "c"]);
    case.pulls.insert("e".into());
    assert_eq!(case.starts(), ["a", "b", "c"]);
    assert_eq!(case.work().pulls, ["e"]);
}

#[test]
fn they_keep_no_finished_pod_alive() {
    let mut case = case("Never");
    for name in ["a", "b", "c"] {
        case.has(name, exited(0));
    }
    assert_eq!(case.plan(), COMPLETED, "nor is one started in it");
    has(&mut case, "e", running());
    assert_eq!(case.plan(), COMPLETED);
    let stops: Vec<_> = case
        .stop_pod()
        .containers
        .into_iter()
        .map(|it| it.name)
        .collect();
    assert_eq!(stops, ["e"], "they are stopped with their pod");
}

#[test]
fn they_are_not_started_again_in_a_new_sandbox() {
    let mut case = case("Always");
    has(&mut case, "e", running());
    case.lost();
    assert_eq!(
        case.plan(),
        new_sandbox(1, Some(Unusable::NotReady), &["i1"])
    );
    for container in &mut case.observation.containers {
        container.state = exited(137);
    }
    case.observation.sandboxes.insert(0, sandbox("s2", 1, true));
    assert_eq!(case.starts(), ["i1"]);
}

#[test]
fn they_are_left_alone_when_all_others_start_again() {
    let mut case = case("Always");
    has(&mut case, "e", running());
    let codes = json!({"operator": "In", "values": [42]});
    let rule = json!({"action": "RestartAllContainers", "exitCodes": codes});
    case.pod["spec"]["containers"][0]["restartPolicy"] = json!("Never");
    case.pod["spec"]["containers"][0]["restartPolicyRules"] = json!([rule]);
    case.has("a", exited(42));
    let stopped: Vec<String> = case.kills().into_iter().map(|(id, _)| id).collect();
    assert_eq!(stopped, ["b-0", "c-0"]);
    case.has("b", exited(137)).has("c", exited(137));
    assert_eq!(case.starts(), ["i1"]);
}
