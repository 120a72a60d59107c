//! What of a pod must survive the death of pod-worker-pool and is nowhere else. Which
//! files hold it is the pool's business.

use std::collections::{BTreeMap, BTreeSet};

use clock::UnixNanos;
use serde::{Deserialize, Serialize};

use crate::hook::PostStart;
use crate::instance_resources::{InstanceResources, KnownResources};
use crate::stop::{KillReason, StopRecords};
use crate::termination::Termination;

/// What is recorded of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Why and with which grace the whole pod is stopped, if it is.
    pub termination: Option<Termination>,
    /// Why single instances are stopped while the pod lives on, by container id.
    pub kills: BTreeMap<String, KillReason>,
    /// Until when instances that are being stopped may take, for either reason.
    pub stops: StopRecords,
    /// How far postStart hooks are that have not ended well, by container id.
    pub post_starts: BTreeMap<String, PostStart>,
    /// Instances that the runtime refused to start, by container id. What it says of them
    /// may read like a start whose caller went away, which is made again. One with a
    /// postStart hook is among `post_starts` too: its hook is due if it runs after all.
    pub refused_starts: BTreeSet<String>,
    /// What instances run with that was changed since they were made, by container id.
    pub resources: BTreeMap<String, KnownResources>,
    /// What containers keep while the node has no room for what they are to have, by
    /// name.
    pub kept_resources: BTreeMap<String, InstanceResources>,
    /// When the first sync of a pod with a deadline was.
    #[serde(with = "nanos")]
    pub started_at: Option<UnixNanos>,
    /// The sandboxes that the pod had before it began anew under its UID, by id. By id and
    /// not by number: what a kubelet makes of the pod meanwhile is not among them.
    pub former_sandboxes: BTreeSet<String>,
}

impl Record {
    /// The record as one that this process could have written, whatever was read.
    #[must_use]
    pub fn within_bounds(self) -> Record {
        Record {
            termination: self.termination.map(Termination::within_bounds),
            ..self
        }
    }

    /// What is left of it when the pod begins anew beside these sandboxes.
    #[must_use]
    pub fn begun_anew_beside(former_sandboxes: BTreeSet<String>) -> Record {
        Record {
            former_sandboxes,
            ..Record::default()
        }
    }

    /// Whether it is of use after a crash of the machine, which ends all containers,
    /// and with them what there was to resume. A pod that was evicted stays so.
    #[must_use]
    pub fn outlives_the_machine(&self) -> bool {
        let termination = self.termination.as_ref();
        termination.is_some_and(|termination| termination.cause.is_known_by_record_alone())
    }
}

mod nanos {
    use clock::UnixNanos;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        at: &Option<UnixNanos>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        at.map(|at| at.0).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<UnixNanos>, D::Error> {
        let nanos = Option::<i64>::deserialize(from)?;
        Ok(nanos.map(UnixNanos))
    }
}
