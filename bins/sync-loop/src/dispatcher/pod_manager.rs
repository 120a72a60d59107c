//! The desired pods, by uid.
//!
//! What does not live here: whether a pod is admitted (`admission`), what its
//! worker does (`workers`).

use std::collections::BTreeMap;
use std::sync::Arc;

use pod::{PodDocument, PodSource};

use super::admission::AdmissionState;
use super::decision::Decision;
use super::pod_facts::PodFacts;

/// Uid of a pod; clones share the text.
pub(crate) type Uid = Arc<str>;

/// A pod as its source delivered it.
#[derive(Clone, Debug)]
pub(crate) struct ArrivedPod {
    /// The pod.
    pub document: PodDocument,
    /// What the loop needs of it.
    pub facts: Arc<PodFacts>,
}

impl ArrivedPod {
    /// Its uid.
    #[must_use]
    pub(crate) fn uid(&self) -> Uid {
        self.document.identity().uid().into()
    }
}

/// A pod that should run here.
#[derive(Clone, Debug)]
pub(crate) struct DesiredPod {
    /// The pod as last delivered.
    pub document: PodDocument,
    /// What the loop needs of it.
    pub facts: Arc<PodFacts>,
    /// Whether it may run.
    pub admission: AdmissionState,
    /// What was last decided about it, and why.
    pub decision: Option<Decision>,
}

/// All desired pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodManager {
    pods: BTreeMap<Uid, DesiredPod>,
    /// Bytes of all of them as JSON.
    json_bytes: usize,
}

impl PodManager {
    /// The desired pod with this uid.
    #[must_use]
    pub(crate) fn get(&self, uid: &str) -> Option<&DesiredPod> {
        self.pods.get(uid)
    }

    /// The desired pod with this uid, to change.
    pub(crate) fn get_mut(&mut self, uid: &str) -> Option<&mut DesiredPod> {
        self.pods.get_mut(uid)
    }

    /// Adds a pod, or replaces what is known of it; its admission stays.
    pub(crate) fn set(&mut self, arrived: ArrivedPod) {
        let uid = arrived.uid();
        self.json_bytes += arrived.document.json().len();
        if let Some(pod) = self.pods.get_mut(&uid) {
            self.json_bytes -= pod.document.json().len();
            pod.document = arrived.document;
            pod.facts = arrived.facts;
        } else {
            let pod = DesiredPod {
                document: arrived.document,
                facts: arrived.facts,
                admission: AdmissionState::default(),
                decision: None,
            };
            self.pods.insert(uid, pod);
        }
    }

    /// Removes a pod.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<DesiredPod> {
        let pod = self.pods.remove(uid)?;
        self.json_bytes -= pod.document.json().len();
        Some(pod)
    }

    /// All desired pods, by uid.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Uid, &DesiredPod)> {
        self.pods.iter()
    }

    /// Uids of everything that one source delivered.
    #[must_use]
    pub(crate) fn uids_of(&self, source: PodSource) -> Vec<Uid> {
        self.pods
            .iter()
            .filter(|(_, pod)| pod.document.source() == source)
            .map(|(uid, _)| Arc::clone(uid))
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
