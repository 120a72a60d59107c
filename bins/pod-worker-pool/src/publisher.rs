//! What others are told of the pods: observations for status-syncer, targets for
//! the prober.
//!
//! A pod is known from two sides, its worker (phase, desired pod) and its steps
//! (what the runtime has, errors, why something waits). Either side can speak at
//! any time; what is published is always made of the newest of both.

mod findings;
mod observation;
mod targets;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bulkhead_api::v1;
use ipc::StateHub;
use pod::PodDocument;
use tokio::sync::watch;

use crate::observe::RuntimeName;

pub(crate) use findings::{Findings, WorkerView};
pub(crate) use observation::waiting;
pub(crate) use targets::LOOPBACK;

#[derive(Debug, Default)]
struct Published {
    worker: Option<WorkerView>,
    findings: Option<Findings>,
    targets: BTreeSet<String>,
}

impl Published {
    /// Whether it was looked at, unless it waits for another.
    fn is_found(&self) -> bool {
        let worker = self.worker.as_ref();
        let waits = worker.is_some_and(|it| it.phase == v1::WorkerPhase::Waiting);
        waits || self.findings.is_some()
    }
}

/// Publishes. Clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    pods: Arc<Mutex<BTreeMap<String, Published>>>,
    observations: StateHub<String, v1::PodObservation>,
    targets: StateHub<String, v1::ProbeTarget>,
    host_ip: String,
    runtime_name: RuntimeName,
    is_complete: watch::Sender<bool>,
}

impl Publisher {
    /// A publisher that has nothing to tell yet. `host_ip` is the node's address,
    /// or empty.
    #[must_use]
    pub(crate) fn new(host_ip: String) -> Publisher {
        Publisher {
            pods: Arc::default(),
            observations: StateHub::new(),
            targets: StateHub::new(),
            host_ip,
            runtime_name: RuntimeName::default(),
            is_complete: watch::Sender::new(false),
        }
    }

    /// The same, which also tells what the runtime calls itself.
    pub(crate) fn with_runtime_name(mut self, name: &RuntimeName) -> Publisher {
        self.runtime_name = name.clone();
        self
    }

    /// These pods are all that there are to be.
    pub(crate) fn note_desired(&self, desired: &HashSet<String>) {
        let pods = self.lock();
        let is_found = |uid| pods.get(uid).is_some_and(Published::is_found);
        if desired.iter().all(is_found) && pods.values().all(Published::is_found) {
            self.is_complete.send_replace(true);
        }
    }

    /// Ends when every pod that there is to be has been looked at since the start.
    pub(crate) async fn complete(self) {
        let mut is_complete = self.is_complete.subscribe();
        // It lives as long as its sender, which is in `self`.
        let _ = is_complete.wait_for(|is_complete| *is_complete).await;
    }

    /// Observations by pod UID.
    #[must_use]
    pub(crate) fn observations(&self) -> &StateHub<String, v1::PodObservation> {
        &self.observations
    }

    /// The desired pod of a worker, in the version that its observation names.
    pub(crate) fn pod(&self, uid: &str) -> Option<PodDocument> {
        let pods = self.lock();
        let worker = pods.get(uid)?.worker.as_ref()?;
        Some(worker.desired.as_ref()?.document().clone())
    }

    /// Probe targets by container id.
    #[must_use]
    pub(crate) fn targets(&self) -> &StateHub<String, v1::ProbeTarget> {
        &self.targets
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Published>> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker changed.
    pub(crate) fn worker(&self, view: WorkerView) {
        let uid = view.identity.uid().to_owned();
        let mut pods = self.lock();
        let published = pods.entry(uid.clone()).or_default();
        published.worker = Some(view);
        self.publish(&uid, published);
    }

    /// A step found something. What it finds of a pod that was forgotten
    /// meanwhile is not published.
    pub(crate) fn findings(&self, uid: &str, findings: Findings) {
        let mut pods = self.lock();
        if let Some(published) = pods.get_mut(uid) {
            published.findings = Some(findings);
            self.publish(uid, published);
        }
    }

    /// A step failed before it could look: what was found before stands.
    pub(crate) fn failed(&self, uid: &str, error: &str) {
        let mut pods = self.lock();
        if let Some(published) = pods.get_mut(uid)
            && let Some(findings) = &mut published.findings
        {
            findings.sync_error = error.to_owned();
            self.publish(uid, published);
        }
    }

    /// A worker is forgotten.
    pub(crate) fn remove(&self, uid: &str) {
        let mut pods = self.lock();
        if let Some(published) = pods.remove(uid) {
            for id in &published.targets {
                self.targets.remove(id);
            }
            self.observations.remove(&uid.to_owned());
        }
    }

    fn publish(&self, uid: &str, published: &mut Published) {
        let Some(worker) = &published.worker else {
            return;
        };
        // Nothing is published of a pod before the runtime was asked about it: an
        // observation without containers would flip the pod's readiness after each restart of
        // ours. A pod that waits for another has none. Of one that is stopped it is told that
        // it is here: whoever takes it for gone forgets how it ended.
        let findings = match (&published.findings, worker.phase) {
            (Some(findings), _) => findings.clone(),
            (None, v1::WorkerPhase::Waiting | v1::WorkerPhase::Terminating) => Findings::default(),
            (None, _) => return,
        };
        let mut message = observation::message(worker, &findings, &self.host_ip);
        self.runtime_name
            .get()
            .clone_into(&mut message.runtime_name);
        self.observations.set(uid.to_owned(), message);

        let targets = targets::of(worker, &findings, &self.host_ip);
        for id in &published.targets {
            if !targets.contains_key(id) {
                self.targets.remove(id);
            }
        }
        published.targets = targets.keys().cloned().collect();
        for (id, target) in targets {
            self.targets.set(id, target);
        }
    }
}

#[cfg(test)]
mod tests;
