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
    let content = Ok((text.as_bytes().to_vec(), None));
    manifests.observe(path, content, seen, |bytes| {
        static_pods(bytes, Origin::File(path), &"node".into())
    });
}

fn names(manifests: &mut Manifests) -> Vec<String> {
    let (set, ..) = manifests.publish();
    set.values()
        .map(|pod| pod.identity().name().to_owned())
        .collect()
}

fn images(manifests: &mut Manifests) -> Vec<String> {
    let (set, ..) = manifests.publish();
    set.values()
        .map(|pod| pod.decode().unwrap().containers()[0].image.clone().unwrap())
        .collect()
}

fn problems(manifests: &mut Manifests) -> Vec<Problem> {
    manifests.publish().1
}

fn seen(manifests: &mut Manifests) -> Vec<String> {
    let (set, ..) = manifests.publish();
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
    assert_eq!(names(&mut manifests), ["a-node"]);
    let expected = Problem {
        subject: A.to_owned(),
        field: "spec.containers[0].resources.limits[memory]".to_owned(),
        reason:
            "pod default/a-node is accepted, but: Invalid value: \"256m\": it is a fraction of \
                 a byte: m is a thousandth, M and Mi are a million"
                .to_owned(),
    };
    assert_eq!(problems(&mut manifests), [expected]);
    observe(&mut manifests, A, &manifest("a", "i:1"), "t1");
    assert_eq!(problems(&mut manifests), []);
}

#[test]
fn a_good_file_has_its_pods() {
    let mut manifests = Manifests::default();
    observe(&mut manifests, A, &manifest("a", "i:1"), "t1");
    assert_eq!(names(&mut manifests), ["a-node"]);
    assert_eq!(seen(&mut manifests), ["t1"]);
    assert_eq!(problems(&mut manifests), []);
}

#[test]
fn a_bad_file_keeps_its_last_good_version() {
    let mut manifests = Manifests::default();
    observe(&mut manifests, A, &manifest("a", "i:1"), "t1");
    observe(&mut manifests, B, &manifest("b", "i:1"), "t1");
    for bad in ["", "{", "a: [", &manifest("a", ""), "kind: Service\n"] {
        observe(&mut manifests, A, bad, "t2");
        assert_eq!(images(&mut manifests), ["i:1", "i:1"], "{bad:?}");
        let found = problems(&mut manifests);
        assert_eq!(found.len(), 1, "{bad:?}: {found:?}");
        assert_eq!(found[0].subject, A);
    }
    observe(&mut manifests, A, &manifest("a", "i:2"), "t3");
    let mut found = images(&mut manifests);
    found.sort();
    assert_eq!(found, ["i:1", "i:2"]);
    assert_eq!(problems(&mut manifests), []);
}

#[test]
fn a_problem_names_the_field() {
    let mut manifests = Manifests::default();
    observe(&mut manifests, A, &manifest("a", ""), "t1");
    assert_eq!(
        problems(&mut manifests),
        [Problem {
            subject: A.to_owned(),
            field: "spec.containers[0].image".to_owned(),
            reason: "Required value".to_owned(),
        }]
    );
    assert!(names(&mut manifests).is_empty());
}

#[test]
fn an_unreadable_file_keeps_its_last_good_version() {
    let mut manifests = Manifests::default();
    observe(&mut manifests, A, &manifest("a", "i:1"), "t1");
    let unreadable = Err("is a FIFO".to_owned());
    manifests.observe(A, unreadable, "t2", |_| panic!("there is nothing to judge"));
    assert_eq!(names(&mut manifests), ["a-node"]);
    assert_eq!(problems(&mut manifests), [Problem::new(A, "is a FIFO")]);
    // The same content again is good again.
    observe(&mut manifests, A, &manifest("a", "i:1"), "t3");
    assert_eq!(problems(&mut manifests), []);
    assert_eq!(seen(&mut manifests), ["t1"]);
}

#[test]
fn a_removed_file_takes_its_pods_along() {
    let mut manifests = Manifests::default();
    observe(&mut manifests, A, &manifest("a", "i:1"), "t1");
    observe(&mut manifests, B, &manifest("b", "i:1"), "t1");
    observe(&mut manifests, B, "{", "t2");
    manifests.retain(&[A.to_owned()].into());
    assert_eq!(names(&mut manifests), ["a-node"]);
    assert_eq!(problems(&mut manifests), []);
    manifests.retain(&BTreeSet::new());
    assert!(names(&mut manifests).is_empty());
}

#[test]
fn the_same_content_is_judged_once() {
    let mut manifests = Manifests::default();
    for text in [manifest("a", "i:1"), "{".to_owned()] {
        observe(&mut manifests, A, &text, "t1");
        let again = Ok((text.into_bytes(), None));
        manifests.observe(A, again, "t2", |_| panic!("judged again"));
    }
}

#[test]
fn a_pod_that_keeps_its_uid_keeps_when_it_was_seen() {
    let mut manifests = Manifests::default();
    let text = manifest("a, uid: mine", "i:1");
    observe(&mut manifests, A, &text, "t1");
    observe(&mut manifests, A, &text.replace("i:1", "i:2"), "t2");
    assert_eq!(images(&mut manifests), ["i:2"]);
    assert_eq!(seen(&mut manifests), ["t1"]);
    // Without a UID of its own, changed content is another pod.
    observe(&mut manifests, B, &manifest("b", "i:1"), "t3");
    observe(&mut manifests, B, &manifest("b", "i:2"), "t4");
    let mut found = seen(&mut manifests);
    found.sort();
    assert_eq!(found, ["t1", "t4"]);
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
    for _ in 0..2 {
        assert_eq!(problems(&mut manifests).len(), 1);
        assert!(problems(&mut manifests)[0].reason.starts_with("left out"));
        assert!(!manifests.publish().2, "its pods may be running");
        observe(&mut manifests, c, &many("c", 2), "t2");
    }
    // A smaller version fits, and a larger one leaves that.
    observe(&mut manifests, c, &many("c", 1), "t3");
    assert_eq!(
        (problems(&mut manifests), names(&mut manifests).len()),
        (vec![], 2000)
    );
    observe(&mut manifests, c, &many("c", 2), "t4");
    assert_eq!(names(&mut manifests).len(), 2000);
    // Where another file goes there is room, at the next look.
    manifests.retain(&[B.to_owned(), c.to_owned()].into());
    observe(&mut manifests, c, &many("c", 2), "t5");
    assert_eq!(names(&mut manifests).len(), 1001);
}

#[test]
fn what_was_never_good_and_what_two_files_claim_is_not_known() {
    let mut manifests = Manifests::default();
    observe(&mut manifests, A, "{", "t1");
    assert!(!manifests.publish().2);
    observe(&mut manifests, A, &manifest("a", "i:1"), "t1");
    assert!(manifests.publish().2);
    observe(&mut manifests, A, "{", "t1");
    assert!(manifests.publish().2, "its last good version is known");
    observe(&mut manifests, B, &manifest("a", "i:2"), "t1");
    assert!(!manifests.publish().2);
}
