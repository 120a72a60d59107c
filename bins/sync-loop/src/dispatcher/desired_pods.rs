//! The desired pods, by uid: the kubelet's pod manager. Mirror pods, by which an API server
//! shows static pods, are paired with them and never run.
//!
//! What does not live here: whether a pod is admitted (`admission`), what its
//! worker does (`workers`), what was decided about it (`decision`).

use std::collections::BTreeMap;
use std::sync::Arc;

use pod::{PodDocument, PodSource};

use super::pod_facts::PodFacts;

/// Pods that are desired or being stopped at most; more are refused.
pub(crate) const MAX_PODS: usize = ipc::limits::MAX_PODS;

/// Their JSON at most, in bytes.
pub(crate) const MAX_BYTES: usize = ipc::limits::MAX_DESIRED_BYTES;

/// Uid of a pod; clones share the text.
pub(crate) type Uid = Arc<str>;

/// A pod that should run here, as its source last delivered it.
#[derive(Clone, Debug)]
pub(crate) struct DesiredPod {
    /// The pod.
    pub document: PodDocument,
    /// What the loop needs of it.
    pub facts: Arc<PodFacts>,
}

impl DesiredPod {
    /// Its uid.
    #[must_use]
    pub(crate) fn uid(&self) -> Uid {
        self.document.identity().uid().into()
    }
}

/// All desired pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct DesiredPods {
    pods: BTreeMap<Uid, DesiredPod>,
    /// Mirror pods: the `namespace/name` that each has in common with its static pod.
    mirrors: BTreeMap<Uid, String>,
    /// Bytes of all desired pods as JSON.
    json_bytes: usize,
}

impl DesiredPods {
    /// The desired pod with this uid.
    #[must_use]
    pub(crate) fn get(&self, uid: &str) -> Option<&DesiredPod> {
        self.pods.get(uid)
    }

    /// Adds a pod, or replaces what is known of it.
    pub(crate) fn set(&mut self, pod: DesiredPod) {
        self.json_bytes += pod.document.json().len();
        if let Some(former) = self.pods.insert(pod.uid(), pod) {
            self.json_bytes -= former.document.json().len();
        }
    }

    /// Removes a pod.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<DesiredPod> {
        let pod = self.pods.remove(uid)?;
        self.json_bytes -= pod.document.json().len();
        Some(pod)
    }

    /// Takes note of a mirror pod; of too many it takes none.
    pub(crate) fn set_mirror(&mut self, pod: &DesiredPod) {
        if self.mirrors.len() < MAX_PODS || self.mirrors.contains_key(&pod.uid()) {
            let name = pod.facts.full_name.clone();
            self.mirrors.insert(pod.uid(), name);
        }
    }

    /// Forgets a mirror pod, if it is known.
    pub(crate) fn remove_mirror(&mut self, uid: &str) {
        self.mirrors.remove(uid);
    }

    /// The mirror pod of a static pod.
    #[must_use]
    pub(crate) fn mirror_of(&self, pod: &DesiredPod) -> Option<&Uid> {
        if pod.document.source() == PodSource::Api {
            return None;
        }
        let mut mirrors = self.mirrors.iter();
        let found = mirrors.find(|(_, name)| **name == pod.facts.full_name);
        found.map(|(uid, _)| uid)
    }

    /// Whether a source has this pod: one that is desired, or a mirror pod.
    #[must_use]
    pub(crate) fn is_of(&self, uid: &str, source: PodSource) -> bool {
        let of_pod = self.pods.get(uid).map(|pod| pod.document.source());
        let of_mirror = self.mirrors.get(uid).map(|_| PodSource::Api);
        of_pod.or(of_mirror) == Some(source)
    }

    /// All desired pods, by uid.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Uid, &DesiredPod)> {
        self.pods.iter()
    }

    /// Uids of all, or the one that is named if it is desired.
    #[must_use]
    pub(crate) fn uids(&self, named: Option<&str>) -> Vec<Uid> {
        let uids = self.pods.keys();
        let named = uids.filter(|uid| named.is_none_or(|named| named == &***uid));
        named.cloned().collect()
    }

    /// Uids of everything that one source delivered.
    #[must_use]
    pub(crate) fn uids_of(&self, source: PodSource) -> Vec<Uid> {
        let uids = self.pods.keys().chain(self.mirrors.keys());
        uids.filter(|uid| self.is_of(uid, source))
            .cloned()
            .collect()
    }

    /// The document of a desired pod.
    #[must_use]
    pub(crate) fn document(&self, uid: &str) -> Option<&PodDocument> {
        self.pods.get(uid).map(|pod| &pod.document)
    }

    /// How many pods are held.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }

    /// Bytes of all pods as JSON.
    #[must_use]
    pub(crate) fn json_bytes(&self) -> usize {
        self.json_bytes
    }
}
