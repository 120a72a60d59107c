//! Volumes are there before what mounts them.

use std::sync::Arc;

use local_objects::{LocalObject, Lookup, ObjectKind, ObjectRef};
use pod_volumes::{MountedVolume, ReadyVolume, Volume, VolumeSpec, WrittenFiles};

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

fn wanted(case: &Case) -> Vec<Volume> {
    let content = Content {
        objects: &case.objects,
        allocatable: &BTreeMap::new(),
    };
    pod_volumes::wanted(&pod(case.pod.clone()), &content)
}

fn made(case: &mut Case, name: &str) {
    let wanted = wanted(case);
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
            reason: REFUSED_REASON,
            message: String::new(),
            ends_what_runs: false,
        });
        if !has_sandbox {
            case.observation.sandboxes.clear();
        }
        assert_eq!(volumes_of(case.plan()), [""; 0]);
    }
}

/// All runs, and the pod has the files `f` with its labels and `c` with a ConfigMap.
fn with_files() -> Case {
    let mut case = Case::new("Always");
    case.pod["metadata"]["labels"] = json!({"app": "web"});
    case.pod["spec"]["volumes"] = json!([
        {"name": "e", "emptyDir": {}},
        {"name": "f", "downwardAPI": {"items": [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"name": "c", "configMap": {"name": "settings"}},
    ]);
    has_settings(&mut case, Some("one"));
    case
}

fn has_settings(case: &mut Case, value: Option<&str>) {
    let reference = ObjectRef {
        kind: ObjectKind::ConfigMap,
        namespace: "default".to_owned(),
        name: "settings".to_owned(),
    };
    let found = value.map(|value| {
        Lookup::Found(Arc::new(LocalObject {
            reference: reference.clone(),
            version: value.to_owned(),
            data: [("k".to_owned(), value.as_bytes().to_vec().into())].into(),
            binary_keys: BTreeSet::new(),
        }))
    });
    let away = || Lookup::Unknown("config-sourcer does not answer".to_owned());
    case.objects.insert(reference, found.unwrap_or_else(away));
}

/// All volumes of files were written as they are wanted now, this long ago.
fn written(case: &mut Case, seconds: u64) {
    let volumes = wanted(case).into_iter();
    let files = volumes.filter(|volume| matches!(volume.spec, VolumeSpec::Files(_)));
    let files = files.map(|Volume { name, spec }| {
        let seen_at = ago(seconds);
        (name, WrittenFiles { spec, seen_at })
    });
    case.observation.files = files.collect();
}

fn refreshes(case: &Case) -> Vec<String> {
    let refreshes = case.work().refreshes.into_iter();
    refreshes.map(|volume| volume.name).collect()
}

#[test]
fn files_are_refreshed_when_what_they_tell_has_changed() {
    let mut case = with_files();
    assert_eq!(refreshes(&case), ["f", "c"], "nobody knows what is there");
    written(&mut case, 20);
    assert_eq!(refreshes(&case), [""; 0]);
    assert_eq!(
        case.work().wake_at,
        Some(ago(20).plus(Duration::from_secs(60)))
    );
    case.pod["metadata"]["labels"]["app"] = json!("shop");
    assert_eq!(refreshes(&case), ["f"]);
    has_settings(&mut case, Some("two"));
    assert_eq!(refreshes(&case), ["f", "c"]);
}

#[test]
fn files_are_looked_at_every_minute_and_when_the_clock_was_put_back() {
    let mut case = with_files();
    for (seconds, expected) in [(59, &[""; 0][..]), (60, &["f", "c"]), (5000, &["f", "c"])] {
        written(&mut case, seconds);
        assert_eq!(refreshes(&case), expected, "{seconds}");
    }
    written(&mut case, 0);
    for files in case.observation.files.values_mut() {
        files.seen_at = NOW.plus(Duration::from_secs(1));
    }
    assert_eq!(refreshes(&case), ["f", "c"]);
}

#[test]
fn files_stay_as_they_are_while_nobody_knows_what_is_to_be_in_them() {
    let mut case = with_files();
    written(&mut case, 20);
    has_settings(&mut case, None);
    case.pod["metadata"]["labels"]["app"] = json!("shop");
    assert_eq!(refreshes(&case), ["f"]);
}

#[test]
fn a_container_is_started_again_with_the_files_that_were_written() {
    let of_settings = |case: &Case| match case.plan() {
        Plan::Work(work) => {
            let mut volumes = work.volumes.into_iter();
            volumes.find(|volume| volume.name == "c").unwrap().spec
        }
        other => panic!("{other:?}"),
    };
    let mut case = with_files();
    let spec = wanted(&case).into_iter().find(|it| it.name == "c");
    written(&mut case, 20);
    has_settings(&mut case, None);
    case.has("b", exited(1));
    assert_eq!(Some(of_settings(&case)), spec.map(|it| it.spec));
    case.observation.files.clear();
    assert!(matches!(of_settings(&case), VolumeSpec::Impossible(_)));
}

#[test]
fn stops_and_starts_come_before_a_refresh() {
    let mut case = with_files();
    case.has("b", exited(1));
    let work = case.work();
    assert_eq!((work.starts.len(), work.refreshes.len()), (1, 0));
    case.has("b", running());
    case.pod["spec"]["containers"][2]["image"] = json!("i:2");
    let work = case.work();
    assert_eq!((work.stops.len(), work.refreshes.len()), (1, 0));
}

#[test]
fn nothing_is_refreshed_for_a_pod_that_the_policy_refuses() {
    let mut case = with_files();
    case.refused = Some(Refused {
        reason: REFUSED_REASON,
        message: String::new(),
        ends_what_runs: false,
    });
    assert_eq!(refreshes(&case), [""; 0]);
}
