//! The set of pods that a source delivers, made of its manifests. Pure.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use ipc::limits::{MAX_PODS, MAX_SOURCE_BYTES};
use pod::PodDocument;

/// The pods of a source by UID.
pub(crate) type PodSet = BTreeMap<String, PodDocument>;

/// UIDs of pods.
pub(crate) type Uids = BTreeSet<String>;

/// The pods that a source published last. Of two manifests that claim one UID or name, the
/// one that was published stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LastPublished {
    /// Their UIDs.
    pub uids: Uids,
    /// What each is from, by its full name. An edit gives a pod another UID, so only this
    /// tells the file that was edited from a copy of it.
    pub subjects: BTreeMap<String, String>,
}

/// Something that is wrong with a source, for people.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    /// The file, directory or URL.
    pub subject: String,
    /// The field's path; empty when it is the whole of the subject.
    pub field: String,
    /// What is wrong.
    pub reason: String,
}

impl Problem {
    /// A problem with the whole of a subject.
    pub(crate) fn new(subject: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            field: String::new(),
            reason: reason.into(),
        }
    }
}

/// Joins the pods of manifests, given with what they came from, to one set.
///
/// Two pods with one UID or one full name cannot both run. The one counts that is from the
/// manifest of the pod that was published last, however that was edited; else the pod that was
/// published last; else the first one. Also returns what is then published.
#[must_use]
pub(crate) fn assemble<'a>(
    manifests: impl IntoIterator<Item = (&'a str, &'a [PodDocument])>,
    last_published: &LastPublished,
) -> (PodSet, LastPublished, Vec<Problem>) {
    let mut candidates: Vec<(&str, &PodDocument)> = manifests
        .into_iter()
        .flat_map(|(subject, pods)| pods.iter().map(move |pod| (subject, pod)))
        .collect();
    // Stable: among equals the order of manifests stays.
    candidates.sort_by_cached_key(|(subject, pod)| {
        let owner = last_published.subjects.get(&pod.identity().full_name());
        let is_owner = owner.is_some_and(|owner| owner == subject);
        (
            !is_owner,
            !last_published.uids.contains(pod.identity().uid()),
        )
    });
    let mut set = PodSet::new();
    let mut names: BTreeMap<String, &str> = BTreeMap::new();
    let mut problems = Vec::new();
    let mut too_many = HashSet::new();
    let mut bytes = 0;
    for (subject, pod) in candidates {
        let identity = pod.identity();
        let full_name = identity.full_name();
        let length = pod.json().len();
        if let Some(other) = names.get(&full_name) {
            let what = format!("pod {}/{}", identity.namespace(), identity.name());
            problems.push(Problem::new(
                subject,
                format!("{what} is already in {other}"),
            ));
        } else if set.contains_key(identity.uid()) {
            let reason = format!("another pod has the uid {}", identity.uid());
            problems.push(Problem::new(subject, reason));
        } else if set.len() == MAX_PODS || bytes + length > MAX_SOURCE_BYTES {
            if too_many.insert(subject) {
                let reason = format!(
                    "left out: a source has at most {MAX_PODS} pods \
                     and {MAX_SOURCE_BYTES} bytes"
                );
                problems.push(Problem::new(subject, reason));
            }
        } else {
            bytes += length;
            names.insert(full_name, subject);
            set.insert(identity.uid().to_owned(), pod.clone());
        }
    }
    problems.sort();
    let subjects = names.into_iter();
    let last_published = LastPublished {
        uids: set.keys().cloned().collect(),
        subjects: subjects
            .map(|(name, subject)| (name, subject.to_owned()))
            .collect(),
    };
    (set, last_published, problems)
}

#[cfg(test)]
mod tests {
    use pod::PodSource;
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, name: &str) -> PodDocument {
        padded(uid, name, 0)
    }

    fn padded(uid: &str, name: &str, bytes: usize) -> PodDocument {
        let value = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"uid": uid, "name": name, "namespace": "default",
                         "annotations": {"padding": "x".repeat(bytes)}},
        });
        PodDocument::from_json(value.to_string().into_bytes(), PodSource::File)
            .unwrap()
            .0
    }

    fn uids(set: &PodSet) -> Vec<&str> {
        set.keys().map(String::as_str).collect()
    }

    #[test]
    fn duplicate_names_are_left_out_and_reported() {
        let (first, second) = ([pod("1", "a")], [pod("2", "a"), pod("3", "b")]);
        let (set, _, problems) = assemble(
            [("x.yaml", first.as_slice()), ("y.yaml", &second)],
            &LastPublished::default(),
        );
        assert_eq!(uids(&set), ["1", "3"]);
        assert_eq!(
            problems,
            [Problem::new("y.yaml", "pod default/a is already in x.yaml")]
        );
    }

    #[test]
    fn a_copy_never_displaces_the_pod_that_was_published() {
        let original = |uid| [pod(uid, "a")];
        let (first, edited) = (original("2"), original("3"));
        let (_, published, _) = assemble([("b.yaml", first.as_slice())], &LastPublished::default());
        let backup = [pod("1", "a")];
        for (copy, original) in [
            (&backup, &first),
            (&backup, &edited),
            // Both have a UID of their own, and it is the same one.
            (&first, &first),
        ] {
            let (set, now, problems) = assemble(
                [("a.bak", copy.as_slice()), ("b.yaml", original)],
                &published,
            );
            assert_eq!(uids(&set), [original[0].identity().uid()]);
            assert_eq!(now.subjects, published.subjects);
            assert_eq!(problems.len(), 1);
            assert_eq!(problems[0].subject, "a.bak");
        }
    }

    #[test]
    fn without_its_file_a_published_pod_is_known_by_its_uid() {
        let (other, moved) = ([pod("1", "a")], [pod("2", "a")]);
        let (_, published, _) = assemble([("b.yaml", moved.as_slice())], &LastPublished::default());
        let (set, now, _) = assemble(
            [("a.bak", other.as_slice()), ("c.yaml", &moved)],
            &published,
        );
        assert_eq!(uids(&set), ["2"]);
        let subjects: Vec<_> = now.subjects.values().collect();
        assert_eq!(subjects, ["c.yaml"]);
        // With another pod in it, the file has no say about this one any more.
        let (renamed, copy) = ([pod("4", "b")], [pod("1", "a")]);
        let (set, _, problems) = assemble(
            [("a.bak", copy.as_slice()), ("b.yaml", &renamed)],
            &published,
        );
        assert_eq!((uids(&set), problems), (vec!["1", "4"], vec![]));
    }

    #[test]
    fn duplicate_uids_are_left_out_and_reported() {
        let pods = [pod("1", "a"), pod("1", "b")];
        let (set, _, problems) = assemble([("x", pods.as_slice())], &LastPublished::default());
        assert_eq!(uids(&set), ["1"]);
        assert_eq!(problems, [Problem::new("x", "another pod has the uid 1")]);
    }

    #[test]
    fn number_and_size_of_a_source_are_bounded() {
        let many: Vec<_> = (0..MAX_PODS + 5)
            .map(|n| pod(&n.to_string(), &format!("p{n}")))
            .collect();
        let (set, _, problems) = assemble([("x", many.as_slice())], &LastPublished::default());
        assert_eq!(set.len(), MAX_PODS);
        assert_eq!(problems.len(), 1);
        let large: Vec<_> = (0..20)
            .map(|n| padded(&n.to_string(), &format!("p{n}"), 1_000_000))
            .collect();
        let (set, _, problems) = assemble([("x", large.as_slice())], &LastPublished::default());
        assert_eq!(set.len(), 16);
        assert_eq!(problems.len(), 1);
    }
}
