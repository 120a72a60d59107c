//! [`DesiredPod`]: a pod as sync-loop asked for it, checked and cheap to keep.
//!
//! The JSON stays as it came and is decoded where it is used; what every update
//! needs is read from it once.

use std::time::Duration;

use pod::update::{applied, started_with};
use pod::wire::WireError;
use pod::{Pod, PodDocument, PodExt, PodIdentity, PodPhase};

/// A desired pod. Clones share the JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredPod {
    document: PodDocument,
    /// Fields that its source has otherwise.
    left: Vec<String>,
    started_with: String,
    is_static: bool,
    is_critical: bool,
    marked_for_deletion: bool,
    deletion_grace: Option<Duration>,
    spec_grace: Duration,
    phase: PodPhase,
}

impl DesiredPod {
    /// Decodes a document once to read what updates need.
    ///
    /// # Errors
    /// When the JSON is not the pod that the header names.
    pub fn new(document: PodDocument) -> Result<DesiredPod, WireError> {
        let pod = document.decode()?;
        Ok(DesiredPod {
            started_with: started_with(&pod),
            is_static: pod.is_static(),
            is_critical: pod.is_critical(),
            marked_for_deletion: pod.is_marked_for_deletion(),
            deletion_grace: pod.metadata.deletion_grace_period_seconds.map(seconds),
            spec_grace: seconds(pod.termination_grace_period_seconds()),
            phase: pod.status_phase(),
            left: Vec::new(),
            document,
        })
    }

    /// Which pod.
    #[must_use]
    pub fn identity(&self) -> &PodIdentity {
        self.document.identity()
    }

    /// The document, as it came or as [`DesiredPod::updated`] made it.
    #[must_use]
    pub fn document(&self) -> &PodDocument {
        &self.document
    }

    /// The pod itself, decoded anew: a decoded pod is far larger than its JSON.
    ///
    /// # Errors
    /// Never for a document that `new` has accepted.
    pub fn decode(&self) -> Result<Pod, WireError> {
        self.document.decode()
    }

    /// What of it may not change while it runs, as `pod::update` has it.
    #[must_use]
    pub fn started_with(&self) -> &str {
        &self.started_with
    }

    /// The fields, at most five, that its source has otherwise, but which a running pod keeps.
    #[must_use]
    pub fn left(&self) -> &[String] {
        &self.left
    }

    /// What this pod, which runs, becomes by a newer version, as `pod::update` has it.
    #[must_use]
    pub fn updated(&self, newest: DesiredPod) -> DesiredPod {
        if self.document.hash() == newest.document.hash() {
            return newest;
        }
        // Both were decoded when they came.
        let (Ok(running), Ok(decoded)) = (self.decode(), newest.decode()) else {
            return newest;
        };
        let (pod, left) = applied(&running, &decoded);
        if left.is_empty() {
            return newest;
        }
        // Together they may be too large; what is to become of the pod counts all the same.
        let document = PodDocument::encode(&pod, self.document.source());
        DesiredPod {
            document: document.unwrap_or_else(|_| self.document.clone()),
            left,
            started_with: self.started_with.clone(),
            spec_grace: self.spec_grace,
            is_critical: self.is_critical,
            ..newest
        }
    }

    /// Whether it comes from a manifest of this node.
    #[must_use]
    pub fn is_static(&self) -> bool {
        self.is_static
    }

    /// Whether it is static, a mirror pod, or of a system priority.
    #[must_use]
    pub fn is_critical(&self) -> bool {
        self.is_critical
    }

    /// Whether its source wants it gone (`metadata.deletionTimestamp`).
    #[must_use]
    pub fn is_marked_for_deletion(&self) -> bool {
        self.marked_for_deletion
    }

    /// `metadata.deletionGracePeriodSeconds`.
    #[must_use]
    pub fn deletion_grace(&self) -> Option<Duration> {
        self.deletion_grace
    }

    /// `spec.terminationGracePeriodSeconds`, 30 s if absent.
    #[must_use]
    pub fn spec_grace(&self) -> Duration {
        self.spec_grace
    }

    /// Phase in its status, as the source knows it.
    #[must_use]
    pub fn phase(&self) -> PodPhase {
        self.phase
    }
}

fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}
