//! The pods that requests may be made for, each with what the policy permits it. Who
//! takes pods writes here; the gate only reads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use node_policy::Permit;
use pod::PodIdentity;

use crate::CommandDigest;

/// How a pod stands with the policy that is in force.
#[derive(Clone, Debug)]
pub enum Standing {
    /// It may have what the permit allows.
    Permitted(Arc<Permit>),
    /// It asks for more than its permit allows and is let through with a report,
    /// because the policy only audits.
    Audited(Arc<Permit>),
    /// Nothing new is made for it; the text says why.
    Refused(String),
}

/// What a volume of a pod is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldVolume {
    /// The pod's own, which the node has nothing in.
    PodsAlone,
    /// This path of the node.
    HostPath(String),
}

/// The volumes of a pod by their names. One of which nobody knows yet what it is is none
/// of them.
pub type HeldVolumes = BTreeMap<String, HeldVolume>;

/// A pod that requests may be made for.
#[derive(Clone, Debug)]
pub struct HeldPod {
    /// Which pod.
    pub identity: PodIdentity,
    /// What it may have.
    pub standing: Standing,
    /// By which handler of the runtime its sandboxes run; empty for the default one.
    pub runtime_handler: String,
    /// Whether it asks for anything that `baseline` does not give: then people may have
    /// sessions with it where the permit has that too.
    pub is_beyond_baseline: bool,
    /// Whether it is to have users of its own.
    pub has_user_namespace: bool,
    /// The commands that may be run in each container, by its name: those of probes
    /// and hooks of the pod as it is now.
    pub commands: BTreeMap<String, BTreeSet<CommandDigest>>,
    /// Its volumes, as the pod says.
    pub volumes: HeldVolumes,
}

impl HeldPod {
    /// The images of its containers, as the pod names them.
    pub(crate) fn images(&self) -> &[String] {
        match &self.standing {
            Standing::Permitted(permit) | Standing::Audited(permit) => &permit.subject().images,
            Standing::Refused(_) => &[],
        }
    }
}

/// The pods that requests may be made for. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct HeldPods(Arc<Mutex<BTreeMap<String, Arc<HeldPod>>>>);

impl HeldPods {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<HeldPod>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on requests may be made for this pod, as it says.
    pub fn hold(&self, pod: HeldPod) {
        let uid = pod.identity.uid().to_owned();
        self.lock().insert(uid, Arc::new(pod));
    }

    /// No request may be made for this pod any more.
    pub fn release(&self, pod_uid: &str) {
        self.lock().remove(pod_uid);
    }

    /// The pod with this UID.
    #[must_use]
    pub fn get(&self, pod_uid: &str) -> Option<Arc<HeldPod>> {
        self.lock().get(pod_uid).cloned()
    }
}
