//! Volumes are there before what mounts them.

use pod_volumes::{MountedVolume, ReadyVolume, VolumeSpec};

use super::*;

/// A pod that mounts an emptyDir and a path of the node, and names a path that nobody
/// mounts.
fn with_volumes(mut case: Case) -> Case {
    let spec = &mut case.pod["spec"];
    spec["volumes"] = json!([
        {"name": "e", "emptyDir": {}},
        {"name": "h", "hostPath": {"path": "/srv"}},
        {"name": "unused", "hostPath": {"path": "/var"}},
    ]);
    spec["containers"][0]["volumeMounts"] = json!([{"name": "h", "mountPath": "/h"}]);
    case
}

fn made(case: &mut Case, name: &str) {
    let wanted = pod_volumes::wanted(&pod(case.pod.clone()));
    let volume = wanted.into_iter().find(|it| it.name == name).unwrap();
    let mounted = MountedVolume {
        host_path: "/there".into(),
        read_only: false,
    };
    let ready = ReadyVolume {
        spec: volume.spec,
        mounted,
    };
    case.observation.volumes.insert(volume.name, ready);
}

fn volumes_of(plan: Plan) -> Vec<String> {
    let volumes = match plan {
        Plan::NewSandbox { volumes, .. } | Plan::Work(Work { volumes, .. }) => volumes,
        other => panic!("{other:?}"),
    };
    volumes.into_iter().map(|volume| volume.name).collect()
}

#[test]
fn all_volumes_are_made_before_the_sandbox_and_before_a_container() {
    let mut case = with_volumes(Case::bare("Always"));
    assert_eq!(volumes_of(case.plan()), ["e", "h"]);
    case.observation.sandboxes.clear();
    assert_eq!(volumes_of(case.plan()), ["e", "h"]);
}

#[test]
fn a_volume_that_was_made_is_not_made_again_unless_it_is_to_be_another() {
    let mut case = with_volumes(Case::bare("Always"));
    made(&mut case, "e");
    assert_eq!(volumes_of(case.plan()), ["h"]);
    made(&mut case, "h");
    assert_eq!(volumes_of(case.plan()), [""; 0]);
    let ready = case.observation.volumes.get_mut("e").unwrap();
    ready.spec = VolumeSpec::Impossible(String::new());
    assert_eq!(volumes_of(case.plan()), ["e"]);
}

#[test]
fn nobody_looks_at_volumes_unless_something_is_to_be_made() {
    let all_run = || {
        let mut case = with_volumes(Case::new("Always"));
        case.has("a", running());
        case
    };
    let mut case = all_run();
    assert_eq!(case.plan(), Plan::Work(Work::default()), "all runs");
    case.has("b", exited(1));
    assert_eq!(volumes_of(case.plan()), ["e", "h"]);
    case.pod["spec"]["containers"][2]["image"] = json!("i:2");
    assert_eq!(case.work().stops.len(), 1);
    assert_eq!(volumes_of(case.plan()), [""; 0], "a stop comes first");
    let mut case = all_run();
    case.has("b", ContainerState::Created);
    assert_eq!(case.starts(), ["b"]);
    assert_eq!(volumes_of(case.plan()), [""; 0], "it was made with them");
}

#[test]
fn no_volume_is_made_for_a_pod_that_the_policy_refuses() {
    for has_sandbox in [true, false] {
        let mut case = with_volumes(Case::bare("Always"));
        case.refused = Some(Refused {
            message: String::new(),
            ends_what_runs: false,
        });
        if !has_sandbox {
            case.observation.sandboxes.clear();
        }
        assert_eq!(volumes_of(case.plan()), [""; 0]);
    }
}
