//! What changed between two sets of pods of one source: the kubelet's ADD,
//! UPDATE, REMOVE, DELETE and RECONCILE. Pure.

use std::collections::BTreeMap;

use pod::metadata::LOCAL_ANNOTATIONS;
use pod::wire::{WireError, content_hash};
use pod::{Pod, PodDocument, PodSource};
use serde::Serialize;
use serde_json::json;

/// The pods of a source by UID.
pub(crate) type PodSet = BTreeMap<String, SourcePod>;

/// A pod as its source delivers it, with what is needed to compare it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourcePod {
    document: PodDocument,
    /// Hash of what a user can change: spec, labels, annotations, deletion.
    meaning: String,
    /// Hash of the status.
    status: String,
    deleting: bool,
}

impl SourcePod {
    /// Encodes a pod for the way to its consumers.
    ///
    /// # Errors
    /// When it is too large or has no usable identity.
    pub(crate) fn new(pod: &Pod, source: PodSource) -> Result<Self, WireError> {
        Ok(Self::with_document(PodDocument::encode(pod, source)?, pod))
    }

    /// Takes over JSON that was encoded before.
    ///
    /// # Errors
    /// When it is not a pod, too large or without a usable identity.
    pub(crate) fn from_json(json: Vec<u8>, source: PodSource) -> Result<Self, WireError> {
        let (document, pod) = PodDocument::from_json(json, source)?;
        Ok(Self::with_document(document, &pod))
    }

    fn with_document(document: PodDocument, pod: &Pod) -> Self {
        let metadata = &pod.metadata;
        let annotations: BTreeMap<_, _> = metadata
            .annotations
            .iter()
            .flatten()
            .filter(|(key, _)| !LOCAL_ANNOTATIONS.contains(&key.as_str()))
            .collect();
        let labels: BTreeMap<_, _> = metadata.labels.iter().flatten().collect();
        let meaning = json!({
            "spec": pod.spec,
            "labels": labels,
            "annotations": annotations,
            "deletionTimestamp": metadata.deletion_timestamp,
            "deletionGracePeriodSeconds": metadata.deletion_grace_period_seconds,
        });
        Self {
            document,
            meaning: hash(&meaning),
            status: hash(&pod.status),
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }

    /// The pod as it crosses to other processes.
    #[must_use]
    pub(crate) fn document(&self) -> &PodDocument {
        &self.document
    }

    /// The UID.
    #[must_use]
    pub(crate) fn uid(&self) -> &str {
        self.document.identity().uid()
    }
}

/// Hash of a value whose JSON has sorted keys.
fn hash(value: &impl Serialize) -> String {
    // These types have string keys and finite numbers: they are always JSON.
    let value = serde_json::to_value(value).unwrap_or_default();
    content_hash(value.to_string().as_bytes())
}

/// What happened to a pod in its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// It is new.
    Add,
    /// It has changed.
    Update,
    /// It has been marked for deletion.
    Delete,
    /// It is gone.
    Remove,
    /// Only its status differs.
    Reconcile,
}

/// A pod that changed. For `Remove` it is its last version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// What happened.
    pub operation: Operation,
    /// The pod.
    pub document: PodDocument,
}

/// The changes that lead from `old` to `new`: first what goes, then what comes
/// and what differs, each by UID.
#[must_use]
pub(crate) fn merge(old: &PodSet, new: &PodSet) -> Vec<Change> {
    let removed = old
        .iter()
        .filter(|(uid, _)| !new.contains_key(*uid))
        .map(|(_, pod)| Change {
            operation: Operation::Remove,
            document: pod.document.clone(),
        });
    let others = new.iter().filter_map(|(uid, pod)| {
        let operation = match old.get(uid) {
            None => Operation::Add,
            Some(before) => difference(before, pod)?,
        };
        Some(Change {
            operation,
            document: pod.document.clone(),
        })
    });
    removed.chain(others).collect()
}

fn difference(old: &SourcePod, new: &SourcePod) -> Option<Operation> {
    if old.meaning != new.meaning {
        Some(if new.deleting {
            Operation::Delete
        } else {
            Operation::Update
        })
    } else if old.status != new.status {
        Some(Operation::Reconcile)
    } else {
        // At most the annotations of the sources differ.
        None
    }
}

#[cfg(test)]
mod tests;
