//! What a pod that arrived from its source asks for: the kubelet's ADD, UPDATE, DELETE
//! and RECONCILE, decided here and nowhere else.
//!
//! config-sourcer says how a pod is now, and this compares it with what is known,
//! pods of a snapshot and single ones alike. So a repeated, a late and a missed
//! message all come to the same end. Pure.

use pod::{PodDocument, PodSource};

use super::desired_pods::{DesiredPod, DesiredPods, MAX_BYTES, MAX_PODS};

/// Pods by what is to be done with them.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    /// They are new.
    pub added: Vec<DesiredPod>,
    /// What is asked of them differs; a deletion mark does, too.
    pub updated: Vec<DesiredPod>,
    /// Their status differs, and nothing else.
    pub reconciled: Vec<DesiredPod>,
    /// Nothing of interest differs.
    pub unchanged: Vec<DesiredPod>,
    /// Mirror pods, which are never run.
    pub mirrors: Vec<DesiredPod>,
    /// They cannot be taken now; why, for people.
    pub refused: Vec<(PodDocument, String)>,
}

impl Operations {
    /// Compares pods with those that are desired; `departed` pods, so many with so many
    /// bytes of JSON, take room too.
    pub(crate) fn of(
        arrived: Vec<DesiredPod>,
        pods: &DesiredPods,
        departed: (usize, usize),
    ) -> Operations {
        let mut operations = Operations::default();
        let mut count = pods.len() + departed.0;
        let mut bytes = pods.json_bytes() + departed.1;
        for pod in arrived {
            let known = pods.document(pod.document.identity().uid());
            // One that is known as another pod is refused by the pool.
            if known.is_none() && pod.document.source() == PodSource::Api && pod.facts.is_mirror {
                operations.mirrors.push(pod);
                continue;
            }
            let with_it = bytes + pod.document.json().len();
            let with_it = with_it - known.map_or(0, |known| known.json().len());
            if let Some(reason) = refusal(pod.document.source(), known, count, with_it) {
                operations.refused.push((pod.document, reason));
                continue;
            }
            bytes = with_it;
            let Some(known) = known else {
                count += 1;
                operations.added.push(pod);
                continue;
            };
            match compare(known, &pod.document) {
                Difference::None => operations.unchanged.push(pod),
                Difference::Status => operations.reconciled.push(pod),
                Difference::Pod => operations.updated.push(pod),
            }
        }
        operations
    }

    /// All pods but those that are refused.
    pub(crate) fn accepted(&self) -> impl Iterator<Item = &DesiredPod> {
        let known = self.updated.iter().chain(&self.reconciled);
        self.added.iter().chain(known).chain(&self.unchanged)
    }
}

/// Why a pod of a source cannot be taken beside `count` others; with it all have so many
/// bytes.
fn refusal(
    source: PodSource,
    known: Option<&PodDocument>,
    count: usize,
    bytes: usize,
) -> Option<String> {
    let other = known.map(PodDocument::source);
    if let Some(other) = other.filter(|other| *other != source) {
        Some(format!(
            "source {other} has this pod too, and had it first; that of source {source} waits"
        ))
    } else if known.is_none() && count >= MAX_PODS {
        Some(format!("this node takes at most {MAX_PODS} pods"))
    } else if bytes > MAX_BYTES {
        Some(format!("all pods together may have {MAX_BYTES} bytes"))
    } else {
        None
    }
}

/// How two versions of a pod differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Difference {
    /// In nothing that anybody asked for.
    None,
    /// In their status alone.
    Status,
    /// In what is desired.
    Pod,
}

/// Compares two versions as the kubelet does: by what is wished, which the hash covers, then
/// by status.
fn compare(old: &PodDocument, new: &PodDocument) -> Difference {
    if old.hash() != new.hash() {
        Difference::Pod
    } else if old.status() != new.status() {
        Difference::Status
    } else {
        Difference::None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn document(change: impl Fn(&mut Value)) -> PodDocument {
        let mut pod = json!({
            "metadata": {"uid": "u1", "namespace": "default", "name": "n",
                         "labels": {"a": "b"},
                         "annotations": {"note": "x", "kubernetes.io/config.seen": "then"}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]},
            "status": {"phase": "Pending"},
        });
        change(&mut pod);
        let json = pod.to_string().into_bytes();
        PodDocument::from_json(json, PodSource::Api).unwrap().0
    }

    #[test]
    fn versions_differ_by_what_was_asked_for() {
        use Difference::{None, Pod, Status};
        const SEEN: &str = "kubernetes.io/config.seen";
        type Change = fn(&mut Value);
        let table: [(Change, Difference); 19] = [
            (|_| {}, None),
            (|pod| pod["metadata"]["name"] = json!("other"), Pod),
            (|pod| pod["metadata"]["namespace"] = json!("other"), Pod),
            (|pod| pod["spec"]["hostname"] = json!("h"), Pod),
            (|pod| pod["metadata"]["labels"]["a"] = json!("c"), Pod),
            (|pod| pod["metadata"]["labels"] = Value::Null, Pod),
            (
                |pod| pod["metadata"]["annotations"]["note"] = json!("y"),
                Pod,
            ),
            (
                |pod| pod["metadata"]["annotations"]["more"] = json!("y"),
                Pod,
            ),
            (
                |pod| pod["metadata"]["annotations"] = json!({SEEN: "then"}),
                Pod,
            ),
            (
                |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
                Pod,
            ),
            (
                |pod| pod["metadata"]["deletionGracePeriodSeconds"] = json!(5),
                Pod,
            ),
            (|pod| pod["status"]["phase"] = json!("Running"), Status),
            (
                |pod| {
                    pod["status"]["phase"] = json!("Running");
                    pod["spec"]["hostname"] = json!("h");
                },
                Pod,
            ),
            (
                |pod| pod["metadata"]["annotations"][SEEN] = json!("now"),
                None,
            ),
            (
                |pod| pod["metadata"]["annotations"]["kubernetes.io/config.hash"] = json!("h"),
                None,
            ),
            (
                |pod| pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("m"),
                None,
            ),
            (
                |pod| pod["metadata"]["annotations"]["kubernetes.io/config.source"] = json!("api"),
                None,
            ),
            (|pod| pod["metadata"]["resourceVersion"] = json!("7"), None),
            (
                |pod| pod["metadata"]["managedFields"] = json!([{"manager": "x"}]),
                None,
            ),
        ];
        let old = document(|_| {});
        for (index, (change, expected)) in table.into_iter().enumerate() {
            assert_eq!(compare(&old, &document(change)), expected, "row {index}");
        }
        // No annotations at all are the same as only those of the sources.
        let none = document(|pod| pod["metadata"]["annotations"] = Value::Null);
        let local = document(|pod| pod["metadata"]["annotations"] = json!({SEEN: "now"}));
        assert_eq!(compare(&none, &local), None);
    }
}
