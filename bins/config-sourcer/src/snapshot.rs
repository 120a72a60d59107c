//! The set of pods that a source delivers, made of its manifests. Pure.

use std::collections::BTreeMap;

use ipc::limits::{MAX_PODS, MAX_SOURCE_BYTES};
use pod::PodDocument;

/// The pods of a source by UID.
pub(crate) type PodSet = BTreeMap<String, PodDocument>;

/// The manifest that each published pod is from, by its full name.
pub(crate) type Owners = BTreeMap<String, String>;

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

/// Whether a source may have so many pods, and so many bytes.
pub(crate) fn fits<'a>(pods: impl IntoIterator<Item = &'a PodDocument>) -> bool {
    let bytes = pods.into_iter().map(|pod| pod.json().len());
    let (pods, bytes) = bytes.fold((0, 0), |sum, it| (sum.0 + 1, sum.1 + it));
    pods <= MAX_PODS && bytes <= MAX_SOURCE_BYTES
}

/// The problem with a manifest whose pods do not fit.
pub(crate) fn no_room(subject: &str) -> Problem {
    let reason =
        format!("left out: a source has at most {MAX_PODS} pods and {MAX_SOURCE_BYTES} bytes");
    Problem::new(subject, reason)
}

/// Joins the pods of manifests, given with what they came from, to one set.
///
/// Two pods with one UID or one full name cannot both run. The one counts that is from the
/// manifest of the pod that was published last, however that was edited; else the first one.
/// Also returns what is then published.
#[must_use]
pub(crate) fn assemble<'a>(
    manifests: impl IntoIterator<Item = (&'a str, &'a [PodDocument])>,
    last_published: &Owners,
) -> (PodSet, Owners, Vec<Problem>) {
    let pods = |(subject, pods): (&'a str, &'a [PodDocument])| {
        let pods = pods.iter();
        pods.map(move |pod| (pod.identity().full_name(), subject, pod))
    };
    let mut candidates: Vec<_> = manifests.into_iter().flat_map(pods).collect();
    // Stable: among equals the order of manifests stays.
    candidates.sort_by_key(|(name, subject, _)| {
        last_published.get(name).map(String::as_str) != Some(*subject)
    });
    let mut set = PodSet::new();
    let mut owners = Owners::new();
    let mut problems = Vec::new();
    for (full_name, subject, pod) in candidates {
        let identity = pod.identity();
        if let Some(other) = owners.get(&full_name) {
            let what = format!("pod {}/{}", identity.namespace(), identity.name());
            let reason = format!("{what} is already in {other}");
            problems.push(Problem::new(subject, reason));
        } else if set.contains_key(identity.uid()) {
            let reason = format!("another pod has the uid {}", identity.uid());
            problems.push(Problem::new(subject, reason));
        } else {
            owners.insert(full_name, subject.to_owned());
            set.insert(identity.uid().to_owned(), pod.clone());
        }
    }
    problems.sort();
    (set, owners, problems)
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
            &Owners::new(),
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
        let (_, published, _) = assemble([("b.yaml", first.as_slice())], &Owners::new());
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
            assert_eq!(now, published);
            assert_eq!(problems.len(), 1);
            assert_eq!(problems[0].subject, "a.bak");
        }
        // With another pod in it, the file has no say about this one any more.
        let renamed = [pod("4", "b")];
        let (set, _, problems) = assemble(
            [("a.bak", backup.as_slice()), ("b.yaml", &renamed)],
            &published,
        );
        assert_eq!((uids(&set), problems), (vec!["1", "4"], vec![]));
    }

    #[test]
    fn duplicate_uids_are_left_out_and_reported() {
        let pods = [pod("1", "a"), pod("1", "b")];
        let (set, _, problems) = assemble([("x", pods.as_slice())], &Owners::new());
        assert_eq!(uids(&set), ["1"]);
        assert_eq!(problems, [Problem::new("x", "another pod has the uid 1")]);
    }

    #[test]
    fn number_and_size_of_a_source_are_bounded() {
        let many: Vec<_> = (0..=MAX_PODS).map(|it| pod(&it.to_string(), "a")).collect();
        assert!(fits(&many[1..]) && !fits(&many));
        let large: Vec<_> = (0..16).map(|_| padded("1", "a", 1_000_000)).collect();
        let taken: usize = large.iter().map(|pod| pod.json().len()).sum();
        let left = MAX_SOURCE_BYTES - taken;
        let small = |bytes| padded("2", "b", bytes);
        let bare = small(0).json().len();
        assert!(fits(large.iter().chain([&small(left - bare)])));
        assert!(!fits(large.iter().chain([&small(left - bare + 1)])));
    }
}
