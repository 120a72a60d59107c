//! What each source of files comes to, and what is said when it cannot be had.

use std::collections::BTreeSet;
use std::sync::Arc;

use local_objects::ObjectRef;
use serde_json::{Value, json};

use super::*;

/// A ConfigMap `c` and a Secret `s`; whether `away` is there nobody knows.
fn objects() -> Objects {
    let mut objects = Objects::default();
    for (kind, name, data) in [
        (ObjectKind::ConfigMap, "c", [("k1", "one"), ("k2", "two")]),
        (
            ObjectKind::Secret,
            "s",
            [("k1", "secret one"), ("x", "secret x")],
        ),
    ] {
        let reference = reference(kind, name);
        let data = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec().into()));
        let object = LocalObject {
            reference: reference.clone(),
            version: "1".to_owned(),
            data: data.into(),
            binary_keys: BTreeSet::new(),
        };
        objects.insert(reference, Lookup::Found(Arc::new(object)));
    }
    for kind in [ObjectKind::ConfigMap, ObjectKind::Secret] {
        objects.insert(reference(kind, "none"), Lookup::Missing);
        let away = Lookup::Unknown("config-sourcer does not answer".to_owned());
        objects.insert(reference(kind, "away"), away);
    }
    objects
}

fn reference(kind: ObjectKind, name: &str) -> ObjectRef {
    ObjectRef {
        kind,
        namespace: "default".to_owned(),
        name: name.to_owned(),
    }
}

fn made(source: &Value) -> Result<Files, Unavailable> {
    made_for(&json!({}), source)
}

/// The same for a pod with this security context.
fn made_for(context: &Value, source: &Value) -> Result<Files, Unavailable> {
    let mut value = test_pods::manifest("p", "u");
    value["spec"]["securityContext"] = context.clone();
    value["metadata"]["labels"] = json!({"app": "web"});
    value["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1500m"}});
    let mut volume = json!({"name": "v"});
    let fields = volume.as_object_mut().unwrap();
    fields.extend(source.as_object().unwrap().clone());
    value["spec"]["volumes"] = json!([volume]);
    let pod = test_pods::pod(value);
    let allocatable = [("memory".to_owned(), "1Mi".parse().unwrap())].into();
    let content = Content {
        objects: &objects(),
        allocatable: &allocatable,
    };
    files(&pod, &pod.volumes()[0], &content, &mut OfPod::new()).unwrap()
}

/// Path, content, mode and owner of each file.
fn listed(source: &Value) -> Vec<(String, String, u32, Option<u32>)> {
    let files = made(source).unwrap_or_else(|error| panic!("{source}: {error:?}"));
    let listed = files.files.into_iter().map(|(path, file)| {
        let content = String::from_utf8(file.content.as_slice().to_vec()).unwrap();
        (path, content, file.mode, file.user)
    });
    listed.collect()
}

fn file(path: &str, content: &str, mode: u32) -> (String, String, u32, Option<u32>) {
    (path.to_owned(), content.to_owned(), mode, None)
}

#[test]
fn an_object_without_items_has_a_file_for_each_key() {
    let files = [file("k1", "one", 0o644), file("k2", "two", 0o644)];
    assert_eq!(listed(&json!({"configMap": {"name": "c"}})), files);
    let secret = json!({"secret": {"secretName": "s", "defaultMode": 0o400}});
    let files = [
        file("k1", "secret one", 0o400),
        file("x", "secret x", 0o400),
    ];
    assert_eq!(listed(&secret), files);
    assert_eq!(made(&secret).unwrap().kind, FilesKind::Secret);
}

#[test]
fn items_choose_keys_and_have_their_own_modes_and_owners() {
    let source = json!({"configMap": {"name": "c", "defaultMode": 0o1640, "defaultUser": 7,
        "items": [{"key": "k2", "path": "a/b", "mode": 0o500, "user": 8},
            {"key": "k2", "path": "c"}]}});
    let mut files = [file("a/b", "two", 0o500), file("c", "two", 0o640)];
    files[0].3 = Some(8);
    files[1].3 = Some(7);
    assert_eq!(listed(&source), files);
}

#[test]
fn files_belong_to_the_group_of_the_pod_which_can_read_them() {
    for (context, expected) in [
        (json!({}), (0o400, None)),
        (json!({"fsGroup": 4711}), (0o440, Some(4711))),
    ] {
        let source = json!({"secret": {"secretName": "s", "defaultMode": 0o400}});
        let files = made_for(&context, &source).unwrap().files;
        assert!(!files.is_empty());
        for file in files.values() {
            assert_eq!((file.mode, file.group), expected, "{context}");
        }
    }
}

#[test]
fn what_is_missing_is_said_as_the_kubelet_says_it_unless_it_is_optional() {
    for (source, expected) in [
        (
            json!({"configMap": {"name": "none"}}),
            r#"configmap "none" not found"#,
        ),
        (
            json!({"secret": {"secretName": "none"}}),
            r#"secret "none" not found"#,
        ),
        (
            json!({"configMap": {"name": "c", "items": [{"key": "n", "path": "p"}]}}),
            "references non-existent config key: n",
        ),
        (
            json!({"projected": {"sources": [
                {"secret": {"name": "s", "items": [{"key": "n", "path": "p"}]}}]}}),
            "references non-existent secret key: n",
        ),
    ] {
        assert_eq!(made(&source), Err(Unavailable(expected.to_owned())));
        let mut optional = source.clone();
        for pointer in ["/configMap", "/secret", "/projected/sources/0/secret"] {
            if let Some(source) = optional.pointer_mut(pointer) {
                source["optional"] = json!(true);
            }
        }
        assert_eq!(listed(&optional), [], "{optional}");
    }
}

/// Whether an object is there has to be known even of an optional one: a pod must not be
/// started without it because config-sourcer was being restarted.
#[test]
fn an_object_that_nobody_knows_of_is_waited_for_even_if_it_is_optional() {
    for optional in [true, false] {
        let source = json!({"configMap": {"name": "away", "optional": optional}});
        let why = "config-sourcer does not answer".to_owned();
        assert_eq!(made(&source), Err(Unavailable(why)));
    }
}

#[test]
fn the_downward_api_tells_fields_and_resources() {
    let source = json!({"downwardAPI": {"defaultMode": 0o600, "items": [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}, "mode": 0o444},
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}},
        {"path": "memory", "resourceFieldRef":
            {"containerName": "c", "resource": "limits.memory", "divisor": "1Ki"}},
    ]}});
    let files = [
        file("cpu", "2", 0o600),
        file("labels", "app=\"web\"", 0o444),
        file("memory", "1024", 0o600),
        file("name", "p", 0o600),
    ];
    assert_eq!(listed(&source), files);
    for (item, expected) in [
        (
            json!({"fieldRef": {"fieldPath": "status.podIP"}}),
            "unsupported fieldPath: status.podIP",
        ),
        (
            json!({"resourceFieldRef": {"containerName": "n", "resource": "limits.cpu"}}),
            "container n not found",
        ),
        (
            json!({"resourceFieldRef": {"containerName": "c", "resource": "limits.gpu"}}),
            "unsupported container resource : limits.gpu",
        ),
    ] {
        let mut item = item;
        item["path"] = json!("f");
        let source = json!({"downwardAPI": {"items": [item]}});
        assert_eq!(made(&source), Err(Unavailable(expected.to_owned())));
    }
}

#[test]
fn projected_sources_share_one_volume_and_the_later_one_wins() {
    let source = json!({"projected": {"defaultMode": 0o440, "sources": [
        {"configMap": {"name": "c"}},
        {"secret": {"name": "s", "items": [{"key": "k1", "path": "k1", "mode": 0o400}]}},
        {"downwardAPI": {"items": [
            {"path": "pod/uid", "fieldRef": {"fieldPath": "metadata.uid"}}]}},
    ]}});
    let files = [
        file("k1", "secret one", 0o400),
        file("k2", "two", 0o440),
        file("pod/uid", "u", 0o440),
    ];
    assert_eq!(listed(&source), files);
    let token = json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}});
    let why = "serviceAccountToken is not supported".to_owned();
    assert_eq!(made(&token), Err(Unavailable(why)));
}

#[test]
fn no_path_leads_out_of_the_volume_or_into_another_file() {
    for path in ["../x", "..x", "/x", "a//b", "a/../b", "a/.", "", "a\0b"] {
        let source = json!({"configMap": {"name": "c", "items": [{"key": "k1", "path": path}]}});
        assert!(made(&source).is_err(), "{path:?}");
    }
    for paths in [["a", "a/b"], ["a/b", "a"], ["a/b/c", "a/b"]] {
        let items = paths.map(|path| json!({"key": "k1", "path": path}));
        let source = json!({"configMap": {"name": "c", "items": items}});
        assert!(made(&source).is_err(), "{paths:?}");
    }
    let source = json!({"configMap": {"name": "c", "items":
        [{"key": "k1", "path": "a"}, {"key": "k1", "path": "ab"}]}});
    assert_eq!(listed(&source).len(), 2);
}

#[test]
fn volumes_of_other_kinds_are_not_made_of_files() {
    let pod = test_pods::pod(
        json!({"metadata": {"name": "p", "namespace": "d", "uid": "u"},
        "spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]}}),
    );
    let content = Content {
        objects: &Objects::default(),
        allocatable: &BTreeMap::new(),
    };
    assert_eq!(
        files(&pod, &pod.volumes()[0], &content, &mut OfPod::new()),
        None
    );
}

/// The pod has volumes of so many files each, with all its annotations in each file.
fn with_annotations_in(files_of: &[usize]) -> Pod {
    let mut value = test_pods::manifest("p", "u");
    value["metadata"]["annotations"] = json!({"a": "\u{7f}".repeat(250 << 10)});
    let volumes = files_of.iter().enumerate().map(|(volume, &files)| {
        let items = (0..files).map(|file| {
            let field = json!({"fieldPath": "metadata.annotations"});
            json!({"path": file.to_string(), "fieldRef": field})
        });
        let items: Vec<Value> = items.collect();
        json!({"name": format!("v{volume}"), "downwardAPI": {"items": items}})
    });
    value["spec"]["volumes"] = volumes.collect();
    test_pods::pod(value)
}

#[test]
fn the_files_of_a_pod_take_no_more_memory_than_the_bound_also_while_they_are_gathered() {
    let content = Content {
        objects: &Objects::default(),
        allocatable: &BTreeMap::new(),
    };
    let pod = with_annotations_in(&[10, 1000, 6]);
    let volumes = crate::wanted(&pod, &content);
    let of = |index: usize| match &volumes[index].spec {
        crate::VolumeSpec::Files(files) => Ok(files),
        other => Err(format!("{other:?}")),
    };
    // Each of them takes a mebibyte; what is in them is made once.
    let first = of(0).unwrap();
    let contents = first.files.values().map(|file| file.content.as_slice());
    let places: BTreeSet<*const u8> = contents.map(<[u8]>::as_ptr).collect();
    assert_eq!((first.files.len(), places.len()), (10, 1));
    assert!(of(1).unwrap_err().contains("more than 16 MiB"));
    // One that does not fit takes nothing from those after it.
    assert_eq!(of(2).unwrap().files.len(), 6);
    let all = [of(0).unwrap(), of(2).unwrap()].map(Files::size);
    assert!(all.iter().sum::<usize>() <= MAX_BYTES);
}

#[test]
fn a_file_takes_whole_pages_and_one_that_is_replaced_takes_nothing() {
    let source = json!({"downwardAPI": {"items": [
        {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
    ]}});
    assert_eq!(made(&source).unwrap().size(), 4096);
    let file = source["downwardAPI"].clone();
    let sources: Vec<Value> = vec![json!({"downwardAPI": file}); 5000];
    let twice = made(&json!({"projected": {"sources": sources}}));
    assert_eq!(twice.unwrap().size(), 4096);
}
