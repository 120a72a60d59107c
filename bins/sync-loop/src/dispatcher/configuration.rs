//! Messages of config-sourcer as additions, updates, reconciliations and removals.
//!
//! config-sourcer says how a pod is now, or that it is gone. Which of the kubelet's
//! operations that is (ADD, UPDATE, DELETE, RECONCILE, REMOVE) is decided here and
//! nowhere else, by comparing it with what is known, pods of a snapshot and single
//! ones alike. So a repeated, a late and a missed message all come to the same end.

use std::collections::BTreeMap;
use std::sync::Arc;

use bulkhead_api::v1;
use bulkhead_api::v1::watch_pods_response::Message;
use pod::metadata::LOCAL_ANNOTATIONS;
use pod::{Pod, PodDocument, PodSource};

use super::SyncLoop;
use super::pod_facts::PodFacts;
use super::pod_manager::{ArrivedPod, Uid};
use super::sources::{Snapshot, problem_text};

/// Pods that are desired or being stopped at most; more are refused.
const MAX_DESIRED_PODS: usize = ipc::limits::MAX_PODS;

/// Their JSON at most, in bytes: a quarter of the memory that this process may
/// use, since a snapshot that arrives is held beside what is known. 110 pods of
/// 10 KiB are 1 MiB.
const MAX_DESIRED_BYTES: usize = 24 << 20;

/// Pods sorted by what is to be done with them.
#[derive(Debug, Default)]
struct Changes {
    added: Vec<ArrivedPod>,
    updated: Vec<ArrivedPod>,
    reconciled: Vec<ArrivedPod>,
}

impl SyncLoop {
    /// Takes in a message of config-sourcer.
    pub(super) fn handle_configuration(&mut self, message: Message) {
        match message {
            Message::Sources(configured) => {
                for source in self.sources.configure(&configured.names) {
                    tracing::info!(%source, "a source is no longer configured; its pods go");
                    let uids = self.pods.uids_of(source);
                    self.handle_pod_removes(&uids);
                }
            }
            Message::SnapshotBegin(begin) => {
                if let Some(source) = known_source(&begin.source) {
                    self.sources.snapshot_began(source, begin.ready);
                }
            }
            Message::Pod(arrived) => {
                if let (Some(source), Some(pod)) = (known_source(&arrived.source), arrived.pod) {
                    self.pod_arrived(source, pod);
                }
            }
            Message::Gone(gone) => {
                if let Some(source) = known_source(&gone.source) {
                    self.pod_gone(source, &gone.uid);
                }
            }
            Message::SnapshotEnd(end) => {
                let source = known_source(&end.source);
                if let Some(source) = source
                    && let Some(snapshot) = self.sources.snapshot_ended(source)
                {
                    self.apply_snapshot(source, snapshot);
                }
            }
            Message::Problems(problems) => self.problems_changed(problems),
        }
    }

    /// A pod as its source has it now: of the snapshot if one is arriving, else
    /// by itself.
    fn pod_arrived(&mut self, source: PodSource, pod: v1::Pod) {
        let uid = uid_of(&pod);
        let arrived = read_pod(source, pod);
        if let Err(reason) = &arrived {
            tracing::warn!(%source, reason, "a pod cannot be read; its last version stands");
            self.report(None, source.as_str(), "FailedManifest", reason.clone());
        }
        let Some(snapshot) = self.sources.arriving(source) else {
            if let Ok(arrived) = arrived {
                let mut changes = Changes::default();
                self.sort_in(arrived, &mut changes);
                self.apply(changes);
            }
            return;
        };
        match arrived {
            Ok(mut arrived) => {
                let uid = arrived.uid();
                // The same bytes need not be held twice.
                let known = self.pods.document(&uid);
                if let Some(known) = known.filter(|known| known.hash() == arrived.document.hash()) {
                    arrived.document = known.clone();
                }
                snapshot.bytes += arrived.document.json().len();
                if snapshot.pods.len() < MAX_DESIRED_PODS && snapshot.bytes <= MAX_DESIRED_BYTES {
                    snapshot.pods.insert(uid, arrived);
                } else {
                    snapshot.truncated = true;
                }
            }
            Err(_) => match uid {
                Some(uid) if snapshot.unreadable.len() < MAX_DESIRED_PODS => {
                    snapshot.unreadable.insert(uid);
                }
                _ => snapshot.truncated = true,
            },
        }
    }

    /// A source no longer has a pod.
    fn pod_gone(&mut self, source: PodSource, uid: &str) {
        if let Some(snapshot) = self.sources.arriving(source) {
            snapshot.pods.remove(uid);
            return;
        }
        let known = self.pods.document(uid);
        if known.is_none_or(|document| document.source() != source) {
            return;
        }
        if self.sources.is_ready_now(source) {
            self.handle_pod_removes(&[uid.into()]);
        } else {
            tracing::warn!(%source, %uid, "removal from a source that is not ready");
        }
    }

    /// Removals come first: what goes makes room for what comes.
    fn apply_snapshot(&mut self, source: PodSource, snapshot: Snapshot) {
        if snapshot.ready && !snapshot.truncated {
            let mut missing = self.pods.uids_of(source);
            missing.retain(|uid| {
                !snapshot.pods.contains_key(uid) && !snapshot.unreadable.contains(uid)
            });
            self.handle_pod_removes(&missing);
        }
        if snapshot.truncated {
            let reason = format!(
                "source {source} has pods that cannot be read, more than {MAX_DESIRED_PODS}, or \
                 more than {MAX_DESIRED_BYTES} bytes; nothing of it is removed"
            );
            tracing::warn!(reason, "a snapshot is incomplete");
            self.report(None, source.as_str(), "FailedManifest", reason);
        }
        let mut changes = Changes::default();
        for arrived in snapshot.pods.into_values() {
            self.sort_in(arrived, &mut changes);
        }
        self.apply(changes);
    }

    /// Compares a pod with what is known of it.
    fn sort_in(&mut self, arrived: ArrivedPod, changes: &mut Changes) {
        let source = arrived.document.source();
        let identity = arrived.document.identity();
        if !self.sources.is_configured(source) {
            return;
        }
        let known = self.pods.document(identity.uid());
        if let Err(reason) = self.check_size(&arrived, known, changes) {
            tracing::warn!(pod = %identity, reason, "a pod is refused");
            let reference = identity.into();
            self.report(Some(reference), "", "FailedManifest", reason);
            return;
        }
        let Some(known) = known else {
            changes.added.push(arrived);
            return;
        };
        if known.source() != source {
            let other = known.source();
            tracing::warn!(pod = %identity, %source, %other, "two sources have this pod; the first counts");
            return;
        }
        match compare(known, &arrived.document) {
            // The newest bytes are kept all the same: by their hash others find them.
            Difference::None => self.pods.set(arrived),
            Difference::Status => changes.reconciled.push(arrived),
            Difference::Pod => changes.updated.push(arrived),
        }
    }

    /// Whether there is room for another pod, or for a larger version of one.
    fn check_size(
        &self,
        arrived: &ArrivedPod,
        known: Option<&PodDocument>,
        changes: &Changes,
    ) -> Result<(), String> {
        let (departed, departed_bytes) = self.workers.departed_size();
        let pods = self.pods.len() + departed + changes.added.len();
        if known.is_none() && pods >= MAX_DESIRED_PODS {
            return Err(format!("this node takes at most {MAX_DESIRED_PODS} pods"));
        }
        let mut bytes = self.pods.json_bytes() + departed_bytes + arrived.document.json().len();
        bytes -= known.map_or(0, |known| known.json().len());
        let coming = changes.added.iter().chain(&changes.updated);
        bytes += coming.map(|pod| pod.document.json().len()).sum::<usize>();
        if bytes > MAX_DESIRED_BYTES {
            return Err(format!(
                "all pods together may have {MAX_DESIRED_BYTES} bytes"
            ));
        }
        Ok(())
    }

    fn apply(&mut self, changes: Changes) {
        self.handle_pod_updates(changes.updated);
        self.handle_pod_reconcile(changes.reconciled);
        self.handle_pod_additions(changes.added);
    }

    fn problems_changed(&mut self, problems: v1::SourceProblems) {
        let Some(source) = known_source(&problems.source) else {
            return;
        };
        for problem in self.sources.set_problems(source, problems.problems) {
            self.report(
                None,
                &problem.subject,
                "FailedManifest",
                problem_text(&problem),
            );
        }
    }
}

/// How two versions of a pod differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// In nothing that anybody asked for.
    None,
    /// In their status alone.
    Status,
    /// In what is desired.
    Pod,
}

/// Compares two versions as the kubelet does: by spec, labels, annotations and
/// deletion, then by status. What an API server writes for itself is no difference,
/// nor is an annotation that a source adds, like the time when it first saw the pod.
pub(super) fn compare(old: &PodDocument, new: &PodDocument) -> Difference {
    if old.hash() == new.hash() {
        return Difference::None;
    }
    let (Ok(old), Ok(new)) = (old.decode(), new.decode()) else {
        return Difference::Pod;
    };
    if !same_wish(&old, &new) {
        Difference::Pod
    } else if old.status != new.status {
        Difference::Status
    } else {
        Difference::None
    }
}

fn same_wish(old: &Pod, new: &Pod) -> bool {
    let annotations = |pod: &Pod| -> BTreeMap<String, String> {
        let all = pod.metadata.annotations.iter().flatten();
        all.filter(|(key, _)| !LOCAL_ANNOTATIONS.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    let labels = |pod: &Pod| pod.metadata.labels.clone().unwrap_or_default();
    let deletion = |pod: &Pod| {
        let metadata = &pod.metadata;
        (
            metadata.deletion_timestamp.clone(),
            metadata.deletion_grace_period_seconds,
        )
    };
    old.spec == new.spec
        && labels(old) == labels(new)
        && annotations(old) == annotations(new)
        && deletion(old) == deletion(new)
}

fn known_source(name: &str) -> Option<PodSource> {
    let source = PodSource::parse(name);
    if source.is_none() {
        tracing::warn!(source = ?name.chars().take(16).collect::<String>(), "unknown source");
    }
    source
}

/// The uid in a message's header, if it can be one.
fn uid_of(pod: &v1::Pod) -> Option<Uid> {
    let uid = &pod.reference.as_ref()?.uid;
    pod::identity::check_uid(uid).ok()?;
    Some(uid.as_str().into())
}

/// Checks and decodes a pod; the reason is for people.
fn read_pod(source: PodSource, message: v1::Pod) -> Result<ArrivedPod, String> {
    let read = || -> Result<ArrivedPod, pod::wire::WireError> {
        let document = PodDocument::from_message(message)?;
        let facts = Arc::new(PodFacts::of(&document.decode()?));
        Ok(ArrivedPod { document, facts })
    };
    let arrived = read().map_err(|error| telemetry::chain(&error))?;
    if arrived.document.source() == source {
        Ok(arrived)
    } else {
        Err(format!(
            "pod {} says that it is of another source",
            arrived.document.identity()
        ))
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
        let table: [(Change, Difference); 17] = [
            (|_| {}, None),
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
