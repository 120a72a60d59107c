//! The desired pods, by uid and by full name, with the mirror pods beside them.
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
    /// Names the newest pod of a full name: while a static pod is being
    /// replaced, two uids share one.
    by_full_name: BTreeMap<String, Uid>,
    mirrors: BTreeMap<Uid, PodDocument>,
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
        let full_name = arrived.document.identity().full_name();
        if let Some(pod) = self.pods.get_mut(&uid) {
            if pod.document.identity().full_name() != full_name {
                forget_name(&mut self.by_full_name, &pod.document, &uid);
            }
            pod.document = arrived.document;
            pod.facts = arrived.facts;
        } else {
            let pod = DesiredPod {
                document: arrived.document,
                facts: arrived.facts,
                admission: AdmissionState::default(),
                decision: None,
            };
            self.pods.insert(Arc::clone(&uid), pod);
        }
        self.by_full_name.insert(full_name, uid);
    }

    /// Removes a pod.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<DesiredPod> {
        let pod = self.pods.remove(uid)?;
        forget_name(&mut self.by_full_name, &pod.document, uid);
        Some(pod)
    }

    /// Adds or replaces a mirror pod; returns the uid of the pod it mirrors.
    pub(crate) fn set_mirror(&mut self, document: PodDocument) -> Option<Uid> {
        let uid: Uid = document.identity().uid().into();
        let full_name = document.identity().full_name();
        let mirrored = self.by_full_name.get(&full_name).cloned();
        self.mirrors.insert(uid, document);
        mirrored
    }

    /// Removes a mirror pod, if `uid` is one; returns the uid of the pod that
    /// it mirrored, if that is there.
    pub(crate) fn remove_mirror(&mut self, uid: &str) -> Option<Option<Uid>> {
        let document = self.mirrors.remove(uid)?;
        Some(
            self.by_full_name
                .get(&document.identity().full_name())
                .cloned(),
        )
    }

    /// All desired pods, by uid; mirror pods are not among them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Uid, &DesiredPod)> {
        self.pods.iter()
    }

    /// Uids of mirror pods.
    pub(crate) fn mirror_uids(&self) -> impl Iterator<Item = &Uid> {
        self.mirrors.keys()
    }

    /// Uids of everything that one source delivered, mirror pods included.
    #[must_use]
    pub(crate) fn uids_of(&self, source: PodSource) -> Vec<Uid> {
        let pods = self.pods.iter().map(|(uid, pod)| (uid, &pod.document));
        pods.chain(self.mirrors.iter())
            .filter(|(_, document)| document.source() == source)
            .map(|(uid, _)| Arc::clone(uid))
            .collect()
    }

    /// The document of a desired or mirror pod.
    #[must_use]
    pub(crate) fn document(&self, uid: &str) -> Option<&PodDocument> {
        let pod = self.pods.get(uid).map(|pod| &pod.document);
        pod.or_else(|| self.mirrors.get(uid))
    }

    /// How many pods are held, mirror pods included.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.pods.len() + self.mirrors.len()
    }

    /// Bytes of all pods as JSON, mirror pods included.
    #[must_use]
    pub(crate) fn json_bytes(&self) -> usize {
        let pods = self.pods.values().map(|pod| &pod.document);
        pods.chain(self.mirrors.values())
            .map(|document| document.json().len())
            .sum()
    }
}

/// Removes the name of a document, unless another pod has taken it over.
fn forget_name(names: &mut BTreeMap<String, Uid>, document: &PodDocument, uid: &str) {
    let full_name = document.identity().full_name();
    if names.get(&full_name).is_some_and(|owner| &**owner == uid) {
        names.remove(&full_name);
    }
}
