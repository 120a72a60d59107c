//! How paths may be opened: where links are followed, and what is checked after.

use node_policy::{
    NodePath, PathAccess, Policy, Protected, Subject, check_opened_volume, volume_access,
};
use pod::{Pod, PodSource};
use serde_json::{Value, json};

fn policy(text: &str) -> Policy {
    let mut protected = Protected::default();
    let added = protected.add_runtime_socket("/run/containerd/containerd.sock");
    assert_eq!(added, Ok(()));
    Policy::parse(text, protected).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn pod(path: &str, mounts: &[(&str, bool)]) -> Pod {
    let container = |(image, read_only): &(&str, bool)| -> Value {
        json!({ "name": "c", "image": image, "volumeMounts": [
            { "name": "v", "mountPath": "/m", "readOnly": read_only }] })
    };
    let containers: Vec<Value> = mounts.iter().map(container).collect();
    let pod = json!({
        "metadata": { "namespace": "a", "name": "b" },
        "spec": {
            "containers": containers,
            "volumes": [{ "name": "e", "emptyDir": {} }, { "name": "v", "hostPath": { "path": path } }],
        },
    });
    serde_json::from_value(pod).unwrap_or_default()
}

/// The trusted beginning, whether links below are followed, and whether it is only read.
fn access(text: &str, pod: &Pod) -> Option<(String, bool, bool)> {
    let permit = policy(text).permit_for(&Subject::of(PodSource::File, pod, "n"));
    let access = volume_access(&permit, pod, 1).ok()??;
    Some((
        access.trusted.to_string(),
        access.follow_links,
        access.read_only,
    ))
}

fn grant(paths: &str) -> String {
    format!("[[grants]]\npods = [\"a/b\"]\nhostPaths = [{paths}]")
}

#[test]
fn links_are_followed_in_what_the_grant_names_and_below_it_where_it_says_so() {
    let writer = pod("/srv/a/b", &[("i", false)]);
    for (paths, expected) in [
        ("{ prefix = \"/srv\" }", Some(("/srv", false))),
        (
            "{ prefix = \"/srv\" }, { prefix = \"/srv/a\" }",
            Some(("/srv/a", false)),
        ),
        ("{ prefix = \"/srv/a/b\" }", Some(("/srv/a/b", false))),
        (
            "{ prefix = \"/srv\", followLinks = true }",
            Some(("/srv", true)),
        ),
        (
            "{ prefix = \"/srv\" }, { prefix = \"/\", followLinks = true }",
            Some(("/srv", true)),
        ),
        ("{ prefix = \"/srv\", readOnly = true }", None),
        ("{ prefix = \"/other\", followLinks = true }", None),
    ] {
        let expected = expected.map(|(trusted, follow)| (trusted.to_owned(), follow, false));
        assert_eq!(access(&grant(paths), &writer), expected, "{paths}");
    }
}

#[test]
fn at_level_privileged_links_may_lead_anywhere_but_to_what_is_protected() {
    let level = "[sources]\nfile = \"privileged\"";
    let reader = pod("/srv/a", &[("i", true)]);
    assert_eq!(access(level, &reader), Some(("/".to_owned(), true, true)));
    let permit = policy(level).permit_for(&Subject::of(PodSource::File, &reader, "n"));
    for (real, is_disk, allowed) in [
        ("/srv/a", false, true),
        ("/etc/shadow", false, true),
        ("/run/containerd/containerd.sock", false, false),
        ("/run/containerd", false, false),
        ("/run", false, false),
        ("/proc/1/root", false, false),
        ("/", false, false),
        ("/srv/disk", true, false),
    ] {
        let found = check_opened_volume(&permit, &reader, 1, real, is_disk);
        assert_eq!(found.is_ok(), allowed, "{real}: {found:?}");
    }
}

#[test]
fn a_grant_that_names_what_is_protected_is_enough_once_it_is_open() {
    let writer = pod("/var/run/containerd/containerd.sock", &[("i", false)]);
    let text = grant("{ prefix = \"/var/run/containerd\" }");
    assert_eq!(
        access(&text, &writer),
        Some(("/var/run/containerd".to_owned(), false, false))
    );
    let permit = policy(&text).permit_for(&Subject::of(PodSource::File, &writer, "n"));
    let opened = |real| check_opened_volume(&permit, &writer, 1, real, false).is_ok();
    assert!(opened("/run/containerd/containerd.sock"));
    assert!(!opened("/proc/1/root"));
}

#[test]
fn a_disk_is_named_by_the_path_that_was_asked_for_or_by_its_own() {
    let writer = pod("/srv/disk", &[("i", false)]);
    for (device, expected) in [("/srv/disk", true), ("/srv/real", true), ("/srv", false)] {
        let text = format!(
            "{}\ndevices = [\"{device}\"]",
            grant("{ prefix = \"/srv\" }")
        );
        let permit = policy(&text).permit_for(&Subject::of(PodSource::File, &writer, "n"));
        let opened = check_opened_volume(&permit, &writer, 1, "/srv/real", true);
        assert_eq!(opened.is_ok(), expected, "{device}");
    }
}

#[test]
fn of_several_containers_the_one_that_may_least_decides() {
    let both = pod("/srv/a/b", &[("x", true), ("y", false)]);
    let text = "[[grants]]\nimages = [\"x\"]\nhostPaths = [{ prefix = \"/srv/a\", followLinks = true }]\n\
                [[grants]]\nimages = [\"y\"]\nhostPaths = [{ prefix = \"/srv\" }]";
    assert_eq!(access(text, &both), Some(("/srv".to_owned(), false, false)));
    let one = pod("/srv/a/b", &[("x", true)]);
    assert_eq!(access(text, &one), Some(("/srv/a".to_owned(), true, true)));
    let stranger = pod("/srv/a/b", &[("x", true), ("z", true)]);
    assert_eq!(access(text, &stranger), None);
}

#[test]
fn the_names_of_a_path_whose_links_are_followed_are_counted_from_the_root() {
    let access = |trusted: &str, follow_links| PathAccess {
        trusted: NodePath::parse(trusted).unwrap_or(NodePath::root()),
        follow_links,
        read_only: false,
    };
    for (access, expected) in [
        (access("/", false), [false, false, false]),
        (access("/srv", false), [true, false, false]),
        (access("/srv/a", false), [true, true, false]),
        (access("/srv", true), [true, true, true]),
        (PathAccess::unrestricted(), [true, true, true]),
    ] {
        let found = [0, 1, 2].map(|name| access.follows_link_at(name));
        assert_eq!(found, expected, "{access:?}");
    }
}
