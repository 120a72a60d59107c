//! What becomes of each file: its pods, its last good version, its problems.

use pod_manifest::{Origin, static_pods};

use super::*;

const A: &str = "/m/a.yaml";
const B: &str = "/m/b.yaml";

fn manifest(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: c, image: '{image}'}}]\n"
    )
}

fn observe(manifests: &mut Manifests, path: &str, text: &str, seen: &str) {
    let observation = Observation::Content {
        bytes: text.as_bytes().to_vec(),
        fingerprint: None,
    };
    manifests.observe(path, observation, seen, |bytes| {
        static_pods(bytes, Origin::File(path), &"node".into())
    });
}

fn names(manifests: &Manifests) -> Vec<String> {
    let (set, ..) = manifests.snapshot(&LastPublished::default());
    set.values()
        .map(|pod| pod.identity().name().to_owned())
        .collect()
}

fn images(manifests: &Manifests) -> Vec<String> {
    let (set, ..) = manifests.snapshot(&LastPublished::default());
    set.values()
        .map(|pod| pod.decode().unwrap().containers()[0].image.clone().unwrap())
        .collect()
}

fn problems(manifests: &Manifests) -> Vec<Problem> {
    manifests.snapshot(&LastPublished::default()).2
}

fn seen(manifests: &Manifests) -> Vec<String> {
    let (set, ..) = manifests.snapshot(&LastPublished::default());
    set.values()
        .map(|pod| pod.decode().unwrap())
        .map(|pod| pod.annotation(CONFIG_SEEN_ANNOTATION).unwrap().to_owned())
        .collect()
}

#[test]
fn a_good_file_that_is_most_likely_a_mistake_is_a_problem_with_pods() {
    let mut manifests = Manifests::default();
    let text = manifest(
        "a",
        "i:1', resources: {limits: {memory: 256m}}, imagePullPolicy: 'Always",
    );
    observe(&mut manifests, A, &text, "t1");
    assert_eq!(names(&manifests), ["a-node"]);
    let expected = Problem {
        subject: A.to_owned(),
        field: "spec.containers[0].resources.limits[memory]".to_owned(),
        reason:
            "pod default/a-node is accepted, but: Invalid value: \"256m\": it is a fraction of \
                 a byte: m is a thousandth, M and Mi are a million"
                .to_owned(),
    };
    assert_eq!(problems(&manifests), [expected]);
    observe(&mut manifests, A, &manifest("a", "i:1"), "t1");
    assert_eq!(problems(&manifests), []);
}

#[test]
fn a_good_file_has_its_pods() {
    let mut manifests = Manifests::default();
    observe(&mut manifests, A, &manifest("a", "i:1"), "t1");
    assert_eq!(names(&manifests), ["a-node"]);
    assert_eq!(seen(&manifests), ["t1"]);
    assert_eq!(problems(&manifests), []);
}

#[test]
fn a_bad_file_keeps_its_last_good_version() {
    let mut manifests = Manifests::default();
    observe(&mut manifests, A, &manifest("a", "i:1"), "t1");
    observe(&mut manifests, B, &manifest("b", "i:1"), "t1");
    for bad in ["", "{", "a: [", &manifest("a", ""), "kind: Service\n"] {
        observe(&mut manifests, A, bad, "t2");
        assert_eq!(images(&manifests), ["i:1", "i:1"], "{bad:?}");
        let found = problems(&manifests);
        assert_eq!(found.len(), 1, "{bad:?}: {found:?}");
        assert_eq!(found[0].subject, A);
    }
    observe(&mut manifests, A, &manifest("a", "i:2"), "t3");
    let mut found = images(&manifests);
    found.sort();
    assert_eq!(found, ["i:1", "i:2"]);
    assert_eq!(problems(&manifests), []);
}

#[test]
fn a_problem_names_the_field() {
    let mut manifests = Manifests::default();
    observe(&mut manifests, A, &manifest("a", ""), "t1");
    assert_eq!(
        problems(&manifests),
        [Problem {
            subject: A.to_owned(),
            field: "spec.containers[0].image".to_owned(),
            reason: "Required value".to_owned(),
        }]
    );
    assert!(names(&manifests).is_empty());
}

#[test]
fn an_unreadable_file_keeps_its_last_good_version() {
    let mut manifests = Manifests::default();
    observe(&mut manifests, A, &manifest("a", "i:1"), "t1");
    let unreadable = Observation::Unreadable {
        reason: "is a FIFO".to_owned(),
    };
    manifests.observe(A, unreadable, "t2", |_| panic!("there is nothing to judge"));
    assert_eq!(names(&manifests), ["a-node"]);
    assert_eq!(problems(&manifests), [Problem::new(A, "is a FIFO")]);
    // The same content again is good again.
    observe(&mut manifests, A, &manifest("a", "i:1"), "t3");
    assert_eq!(problems(&manifests), []);
    assert_eq!(seen(&manifests), ["t1"]);
}

#[test]
fn a_removed_file_takes_its_pods_along() {
    let mut manifests = Manifests::default();
    observe(&mut manifests, A, &manifest("a", "i:1"), "t1");
    observe(&mut manifests, B, &manifest("b", "i:1"), "t1");
    observe(&mut manifests, B, "{", "t2");
    manifests.retain(&[A.to_owned()].into());
    assert_eq!(names(&manifests), ["a-node"]);
    assert_eq!(problems(&manifests), []);
    manifests.retain(&BTreeSet::new());
    assert!(manifests.is_empty());
}

#[test]
fn the_same_content_is_judged_once() {
    let mut manifests = Manifests::default();
    for text in [manifest("a", "i:1"), "{".to_owned()] {
        observe(&mut manifests, A, &text, "t1");
        let revision = manifests.revision();
        let again = Observation::Content {
            bytes: text.into_bytes(),
            fingerprint: None,
        };
        manifests.observe(A, again, "t2", |_| panic!("judged again"));
        assert_eq!(manifests.revision(), revision);
    }
}

#[test]
fn a_pod_that_keeps_its_uid_keeps_when_it_was_seen() {
    let mut manifests = Manifests::default();
    let text = manifest("a, uid: mine", "i:1");
    observe(&mut manifests, A, &text, "t1");
    observe(&mut manifests, A, &text.replace("i:1", "i:2"), "t2");
    assert_eq!(images(&manifests), ["i:2"]);
    assert_eq!(seen(&manifests), ["t1"]);
    // Without a UID of its own, changed content is another pod.
    observe(&mut manifests, B, &manifest("b", "i:1"), "t3");
    observe(&mut manifests, B, &manifest("b", "i:2"), "t4");
    let mut found = seen(&manifests);
    found.sort();
    assert_eq!(found, ["t1", "t4"]);
}

#[test]
fn what_is_remembered_brings_everything_back() {
    let mut before = Manifests::default();
    observe(&mut before, A, &manifest("a", "i:1"), "t1");
    observe(&mut before, B, &manifest("b", "i:1"), "t1");
    observe(&mut before, B, "{", "t2");
    let mut after = Manifests::from_remembered(before.to_remember());
    assert_eq!(
        after.snapshot(&LastPublished::default()).0,
        before.snapshot(&LastPublished::default()).0
    );
    // Both are judged again: the good one comes to the same, the bad one keeps its pods.
    observe(&mut after, A, &manifest("a", "i:1"), "t3");
    observe(&mut after, B, "{", "t3");
    assert_eq!(
        after.snapshot(&LastPublished::default()).0,
        before.snapshot(&LastPublished::default()).0
    );
    assert_eq!(seen(&after), ["t1", "t1"]);
    assert_eq!(problems(&after).len(), 1);
    assert!(!after.has_bad_without_pods());
}

#[test]
fn what_another_version_makes_of_a_manifest_counts_from_its_start_on() {
    let mut before = Manifests::default();
    let text = manifest("a, uid: mine", "i:1");
    observe(&mut before, A, &text, "t1");
    let mut after = Manifests::from_remembered(before.to_remember());
    let same = Observation::Content {
        bytes: text.into_bytes(),
        fingerprint: None,
    };
    after.observe(A, same, "t2", |bytes| {
        let text = str::from_utf8(bytes).unwrap().replace("i:1", "i:2");
        static_pods(text.as_bytes(), Origin::File(A), &"node".into())
    });
    assert_eq!(
        (images(&after), seen(&after)),
        (vec!["i:2".to_owned()], vec!["t1".to_owned()])
    );
}

#[test]
fn a_file_for_which_there_is_no_room_waits_and_the_others_stay() {
    let many = |name: &str, pods: usize| {
        let pods = (0..pods).map(|it| manifest(&format!("{name}{it}"), "i:1"));
        pods.collect::<Vec<_>>().join("---\n")
    };
    let mut manifests = Manifests::default();
    observe(&mut manifests, A, &many("a", 1000), "t1");
    observe(&mut manifests, B, &many("b", 999), "t1");
    let c = "/m/c.yaml";
    observe(&mut manifests, c, &many("c", 2), "t1");
    let revision = manifests.revision();
    for _ in 0..2 {
        assert_eq!(problems(&manifests).len(), 1);
        assert!(problems(&manifests)[0].reason.starts_with("left out"));
        assert_eq!(manifests.fingerprints()[c], None);
        observe(&mut manifests, c, &many("c", 2), "t2");
    }
    assert_eq!(manifests.revision(), revision);
    // A smaller version fits, and a larger one leaves that.
    observe(&mut manifests, c, &many("c", 1), "t3");
    assert_eq!(
        (problems(&manifests), names(&manifests).len()),
        (vec![], 2000)
    );
    observe(&mut manifests, c, &many("c", 2), "t4");
    assert_eq!(names(&manifests).len(), 2000);
    // Where another file goes there is room, at the next look.
    assert!(manifests.retain(&[B.to_owned(), c.to_owned()].into()));
    observe(&mut manifests, c, &many("c", 2), "t5");
    assert_eq!(names(&manifests).len(), 1001);
    assert!(!manifests.retain(&[c.to_owned()].into()));
    // Bytes count as pods do.
    assert!(fits((1, MAX_SOURCE_BYTES - 2), (1, 2)));
    assert!(!fits((1, MAX_SOURCE_BYTES - 2), (1, 3)));
}

#[test]
fn a_bad_file_that_was_never_good_is_told_apart() {
    let mut manifests = Manifests::default();
    observe(&mut manifests, A, "{", "t1");
    assert!(manifests.has_bad_without_pods());
    assert!(manifests.to_remember().is_empty());
    observe(&mut manifests, A, &manifest("a", "i:1"), "t1");
    assert!(!manifests.has_bad_without_pods());
}
