//! Messages of config-sourcer as additions, updates, reconciliations and removals.
//!
//! What a message says counts less than what differs from what is known: a
//! snapshot is compared pod by pod, and an ADD of a pod that is known is an
//! update. So a repeated, a late and a missed message all come to the same end.

use std::sync::Arc;

use bulkhead_api::v1;
use bulkhead_api::v1::watch_pods_response::Message;
use pod::metadata::LOCAL_ANNOTATIONS;
use pod::{PodDocument, PodSource};
use v1::PodOperation;

use super::SyncLoop;
use super::pod_facts::PodFacts;
use super::pod_manager::{ArrivedPod, Uid};
use super::sources::{Snapshot, problem_text};

/// Pods that are desired or being stopped at most, mirror pods included; more are
/// refused.
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
            Message::SnapshotPod(arrived) => {
                if let (Some(source), Some(pod)) = (known_source(&arrived.source), arrived.pod) {
                    self.snapshot_pod(source, pod);
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
            Message::Change(change) => {
                let operation = change.operation();
                if let (Some(source), Some(pod)) = (known_source(&change.source), change.pod) {
                    self.pod_changed(source, operation, pod);
                }
            }
            Message::Problems(problems) => self.problems_changed(problems),
        }
    }

    fn snapshot_pod(&mut self, source: PodSource, pod: v1::Pod) {
        let uid = uid_of(&pod);
        let arrived = read_pod(source, pod);
        let Some(snapshot) = self.sources.arriving(source) else {
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
            Err(reason) => {
                match uid {
                    Some(uid) if snapshot.unreadable.len() < MAX_DESIRED_PODS => {
                        snapshot.unreadable.insert(uid);
                    }
                    _ => snapshot.truncated = true,
                }
                self.unreadable_pod(source, &reason);
            }
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

    fn pod_changed(&mut self, source: PodSource, operation: PodOperation, pod: v1::Pod) {
        if let Some(snapshot) = self.sources.arriving(source) {
            // A change in the middle of a snapshot belongs to it.
            if operation == PodOperation::Remove {
                if let Some(uid) = uid_of(&pod) {
                    snapshot.pods.remove(&uid);
                }
            } else {
                self.snapshot_pod(source, pod);
            }
            return;
        }
        if operation == PodOperation::Remove {
            let uid = uid_of(&pod).filter(|uid| {
                self.pods
                    .document(uid)
                    .is_some_and(|document| document.source() == source)
            });
            match uid {
                Some(uid) if self.sources.is_ready_now(source) => self.handle_pod_removes(&[uid]),
                Some(uid) => {
                    tracing::warn!(%source, %uid, "removal from a source that is not ready")
                }
                None => {}
            }
            return;
        }
        match read_pod(source, pod) {
            Ok(arrived) => {
                let mut changes = Changes::default();
                self.sort_in(arrived, &mut changes);
                self.apply(changes);
            }
            Err(reason) => self.unreadable_pod(source, &reason),
        }
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
            Difference::None => {}
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

    fn unreadable_pod(&mut self, source: PodSource, reason: &str) {
        tracing::warn!(%source, reason, "a pod cannot be read; its last version stands");
        self.report(None, source.as_str(), "FailedManifest", reason.to_owned());
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

/// Compares two versions. Annotations that a source adds on its own, like the
/// time when it first saw the pod, are no difference.
pub(super) fn compare(old: &PodDocument, new: &PodDocument) -> Difference {
    if old.hash() == new.hash() {
        return Difference::None;
    }
    let parts = |document: &PodDocument| -> Option<(serde_json::Value, Option<serde_json::Value>)> {
        let mut pod: serde_json::Value = serde_json::from_slice(document.json()).ok()?;
        let status = pod.as_object_mut()?.remove("status");
        if let Some(annotations) = pod.pointer_mut("/metadata/annotations") {
            let annotations = annotations.as_object_mut()?;
            annotations.retain(|key, _| !LOCAL_ANNOTATIONS.contains(&key.as_str()));
        }
        Some((pod, status))
    };
    match (parts(old), parts(new)) {
        (Some((old, _)), Some((new, _))) if old != new => Difference::Pod,
        (Some((_, old)), Some((_, new))) if old != new => Difference::Status,
        (Some(_), Some(_)) => Difference::None,
        _ => Difference::Pod,
    }
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
        let facts = Arc::new(PodFacts::of(&document.decode()?, source));
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
    use super::*;

    fn document(json: &str) -> PodDocument {
        PodDocument::from_json(json.as_bytes().to_vec(), PodSource::File)
            .unwrap()
            .0
    }

    #[test]
    fn versions_differ_by_what_was_asked_for() {
        let pod = |rest: &str, annotation: &str| {
            document(&format!(
                r#"{{"metadata":{{"uid":"u1","namespace":"d","name":"n","annotations":{{{annotation}}}}}{rest}}}"#
            ))
        };
        let old = pod("", r#""kubernetes.io/config.seen":"1","a":"1""#);
        for (rest, annotation, expected) in [
            (
                "",
                r#""kubernetes.io/config.seen":"1","a":"1""#,
                Difference::None,
            ),
            (
                "",
                r#""kubernetes.io/config.seen":"2","a":"1""#,
                Difference::None,
            ),
            (
                "",
                r#""kubernetes.io/config.seen":"1","a":"2""#,
                Difference::Pod,
            ),
            (
                r#","status":{"phase":"Failed"}"#,
                r#""a":"1""#,
                Difference::Status,
            ),
            (
                r#","status":{"phase":"Failed"}"#,
                r#""a":"2""#,
                Difference::Pod,
            ),
            (
                r#","spec":{"containers":[]}"#,
                r#""a":"1""#,
                Difference::Pod,
            ),
        ] {
            assert_eq!(
                compare(&old, &pod(rest, annotation)),
                expected,
                "{rest} {annotation}"
            );
        }
    }
}
