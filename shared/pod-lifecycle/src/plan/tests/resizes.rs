//! Changed CPU and memory of containers that run: the kubelet's table of
//! `computePodActions` with resizes, by behaviour, and ours.

use super::*;
use crate::instance_resources::KnownResources;

fn resources(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}})
}

/// A pod whose containers have 100m and 100M each, all of which run.
fn case(policy: &str) -> Case {
    let mut case = Case::bare(policy);
    for index in 0..3 {
        case.pod["spec"]["containers"][index]["resources"] = resources("100m", "100M");
    }
    for name in ["a", "b", "c"] {
        case.has(name, running());
    }
    case
}

fn millis_and_megabytes(cpu: i64, memory: i64) -> InstanceResources {
    InstanceResources {
        cpu_request_millis: cpu,
        cpu_limit_millis: cpu,
        memory_limit_bytes: memory * 1_000_000,
    }
}

impl Case {
    fn gives_b(&mut self, resources: Value) {
        self.pod["spec"]["containers"][1]["resources"] = resources;
    }

    /// The containers that get other resources, with CPU limits and memory limits.
    fn resizes(&self) -> Vec<(String, InstanceResources, InstanceResources)> {
        let resizes = self.work().resizes.into_iter();
        resizes.map(|it| (it.name, it.from, it.to)).collect()
    }
}

#[test]
fn what_changes_is_changed_in_place_unless_its_policy_restarts() {
    let restart =
        |resource: &str| json!([{"resourceName": resource, "restartPolicy": "RestartContainer"}]);
    let other =
        |resource: &str| json!([{"resourceName": resource, "restartPolicy": "NotRequired"}]);
    for (policies, changed, restarts) in [
        (json!(null), ("200m", "100M"), false),
        (json!(null), ("100m", "200M"), false),
        (json!(null), ("50m", "50M"), false),
        (other("cpu"), ("200m", "200M"), false),
        (restart("cpu"), ("200m", "100M"), true),
        (restart("cpu"), ("100m", "200M"), false),
        (restart("memory"), ("200m", "100M"), false),
        (restart("memory"), ("100m", "50M"), true),
        (restart("memory"), ("200m", "50M"), true),
    ] {
        for policy in ["Always", "OnFailure"] {
            let mut case = case(policy);
            case.pod["spec"]["containers"][1]["resizePolicy"] = policies.clone();
            assert_eq!(case.plan(), Plan::Work(Work::default()));
            case.gives_b(resources(changed.0, changed.1));
            let kills = [("b-0".to_owned(), KillReason::ResizeRestart)];
            assert_eq!(case.kills(), &kills[..usize::from(restarts)], "{policies}");
            assert_eq!(case.resizes().len(), usize::from(!restarts), "{policies}");
            assert!(case.starts().is_empty());
        }
    }
}

#[test]
fn one_that_was_stopped_for_its_resources_is_started_again_whatever_its_exit_code() {
    let mut case = case("OnFailure");
    case.pod["spec"]["containers"][1]["resizePolicy"] =
        json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
    case.gives_b(resources("200m", "100M"));
    assert_eq!(
        case.work().stops[0].message,
        "Container b resize requires restart"
    );
    case.has("b", exited(0));
    case.kills.insert("b-0".into(), KillReason::ResizeRestart);
    assert_eq!(case.starts(), ["b"]);
}

#[test]
fn only_containers_that_run_are_changed() {
    for (state, is_resized) in [
        (running(), true),
        (exited(0), false),
        (ContainerState::Created, false),
        (ContainerState::Unknown, false),
    ] {
        let mut case = case("Always");
        case.has("b", state);
        let made_with = case.container("b").resources;
        case.gives_b(resources("200m", "50M"));
        assert_eq!(case.container("b").resources, made_with);
        let expected = (
            "b".to_owned(),
            millis_and_megabytes(100, 100),
            millis_and_megabytes(200, 50),
        );
        assert_eq!(case.resizes(), [expected][..usize::from(is_resized)]);
    }
    // Nor one that is stopped for something else.
    let mut case = case("Always");
    case.gives_b(resources("200m", "50M"));
    case.kills.insert("b-0".into(), KillReason::LivenessFailed);
    assert_eq!(case.resizes(), []);
}

#[test]
fn of_init_containers_only_sidecars_are_changed() {
    for (own_policy, is_resized) in [(None, false), (Some("Always"), true)] {
        let mut case = case("Always");
        case.pod["spec"]["initContainers"] = json!([{
            "name": "i", "image": "i:1", "restartPolicy": own_policy,
            "resources": resources("100m", "100M"),
        }]);
        case.has("i", running());
        for name in ["a", "b", "c"] {
            case.has(name, running());
        }
        case.pod["spec"]["initContainers"][0]["resources"] = resources("300m", "100M");
        let Plan::Work(work) = case.plan() else {
            // The former version of an ordinary one may not change.
            panic!("{:?}", case.plan())
        };
        assert_eq!(work.resizes.len(), usize::from(is_resized));
    }
}

#[test]
fn a_limit_that_goes_takes_the_instance_with_it() {
    for without in [
        json!({"requests": {"cpu": "100m", "memory": "100M"}, "limits": {"cpu": "100m"}}),
        json!({"requests": {"cpu": "100m", "memory": "100M"}, "limits": {"memory": "100M"}}),
    ] {
        let mut case = case("Always");
        case.gives_b(without);
        let kills = [("b-0".to_owned(), KillReason::ResizeRestart)];
        assert_eq!(case.kills(), kills);
    }
    // One that comes does not.
    let mut case = case("Always");
    case.container("b").resources = Some(InstanceResources {
        cpu_limit_millis: 0,
        ..millis_and_megabytes(100, 100)
    });
    assert_eq!(case.resizes().len(), 1);
}

#[test]
fn a_change_that_was_begun_is_made_again_whatever_is_wanted_by_now() {
    let mut case = case("Always");
    let (old, new) = (
        millis_and_megabytes(100, 100),
        millis_and_megabytes(200, 50),
    );
    case.known.note_resize("b-0", old, new);
    let widest = millis_and_megabytes(200, 100);
    assert_eq!(case.resizes(), [("b".to_owned(), widest, old)]);
    case.gives_b(resources("200m", "50M"));
    assert_eq!(case.resizes(), [("b".to_owned(), widest, new)]);
    case.known.note_resized("b-0", new);
    assert_eq!(case.resizes(), []);
    // What it was made with does not count any more.
    case.gives_b(resources("100m", "100M"));
    assert_eq!(case.resizes(), [("b".to_owned(), new, old)]);
    // It may have got a limit that is not wanted.
    let unlimited = InstanceResources {
        memory_limit_bytes: 0,
        ..old
    };
    case.known.note_resize("b-0", unlimited, old);
    case.gives_b(json!({"requests": {"cpu": "100m", "memory": "100M"}, "limits": {"cpu": "100m"}}));
    assert_eq!(
        case.kills(),
        [("b-0".to_owned(), KillReason::ResizeRestart)]
    );
}

#[test]
fn an_instance_of_which_nobody_knows_what_it_has_is_left_alone() {
    let mut case = case("Always");
    case.container("b").resources = None;
    case.gives_b(resources("200m", "50M"));
    assert_eq!(case.plan(), Plan::Work(Work::default()));
}

#[test]
fn what_is_known_goes_with_the_instance_and_survives_this_process() {
    let mut case = case("Always");
    let known = |known: &Known, case: &mut Case| known.resources(case.container("b"));
    let (old, new) = (
        millis_and_megabytes(100, 100),
        millis_and_megabytes(200, 50),
    );
    case.known.note_resize("b-0", old, new);
    let mut record = crate::record::Record::default();
    case.known.write_to(&mut record);
    let text = serde_json::to_string(&record).unwrap();
    let mut next = Known::of_record(&serde_json::from_str(&text).unwrap());
    let attempted = KnownResources {
        now: old,
        attempted: Some(new),
    };
    assert_eq!(known(&next, &mut case), Some(attempted));
    next.observed(&case.observation);
    assert_eq!(known(&next, &mut case), Some(attempted));
    // The next instance may have to keep them.
    case.has("b", exited(0));
    next.observed(&case.observation);
    assert_eq!(known(&next, &mut case), Some(attempted));
    case.observation.containers.retain(|it| it.name != "b");
    next.observed(&case.observation);
    next.write_to(&mut record);
    assert!(record.resources.is_empty());
}

#[test]
fn a_container_keeps_what_it_was_last_to_have() {
    let mut case = case("Always");
    let (old, new) = (
        millis_and_megabytes(100, 100),
        millis_and_megabytes(200, 50),
    );
    case.known.note_resize("b-0", old, new);
    let pod = pod(case.pod.clone());
    case.known.keep_resources(&pod, &case.observation);
    assert_eq!(case.known.kept_resources().get("b"), Some(&new));
    // From then on, whatever its instances are seen with, and by the next process too.
    case.known.note_resized("b-0", old);
    let mut record = crate::record::Record::default();
    case.known.write_to(&mut record);
    let mut next = Known::of_record(&record);
    next.keep_resources(&pod, &case.observation);
    assert_eq!(next.kept_resources().get("b"), Some(&new));
    next.keep_no_resources(&pod);
    assert!(next.kept_resources().is_empty());
}

#[test]
fn a_container_that_was_never_made_keeps_what_the_pod_said_while_there_was_room() {
    let mut case = case("Always");
    case.gives_b(resources("100m", "100M"));
    let small = pod(case.pod.clone());
    case.known.keep_no_resources(&small);
    case.gives_b(resources("200m", "50M"));
    let large = pod(case.pod.clone());
    case.observation.containers.retain(|it| it.name != "b");
    case.known.keep_resources(&large, &case.observation);
    let kept = case.known.kept_resources().get("b");
    assert_eq!(kept, Some(&millis_and_megabytes(100, 100)));
}

#[test]
fn a_pod_that_the_policy_refuses_keeps_what_it_has() {
    let mut case = case("Always");
    case.gives_b(resources("200m", "50M"));
    case.refused = Some(Refused {
        reason: REFUSED_REASON,
        message: String::new(),
        ends_what_runs: false,
    });
    assert_eq!(case.plan(), Plan::Work(Work::default()));
}
