//! What the file of a pod says.

use pod::PodIdentity;
use pod_lifecycle::record::Record;
use serde::{Deserialize, Serialize};

use crate::shutdown_kills::is_rejection;

/// What is in the file of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) record: Record,
}

impl Content {
    /// What is believed of a file that was read: a record of a pod, within the bounds
    /// that it would have if this process had written it.
    pub(super) fn checked(self, uid: &str) -> Option<Content> {
        PodIdentity::new(uid, &self.namespace, &self.name).ok()?;
        Some(Content {
            record: self.record.within_bounds(),
            ..self
        })
    }

    /// Whether it is of this pod, and not of another that had its UID.
    pub(super) fn is_of(&self, pod: &PodIdentity) -> bool {
        (self.namespace.as_str(), self.name.as_str()) == (pod.namespace(), pod.name())
    }

    /// Whether it tells of a pod that starts again with the next boot of the node.
    pub(super) fn ends_with_the_boot(&self) -> bool {
        let termination = self.record.termination.as_ref();
        termination.is_some_and(|it| it.cause.ends_with_the_boot())
    }

    /// What is left of it when its pod starts again with a boot of the node. One that was
    /// rejected may have ended before: what tells that, beside its instances, stays.
    pub(super) fn after_the_boot(&self) -> Option<Content> {
        let mut record = Record::begun_anew_beside(self.record.former_sandboxes.clone());
        let termination = self.record.termination.as_ref();
        if termination.is_some_and(|it| is_rejection(&it.cause)) {
            record.started_at = self.record.started_at;
            record
                .refused_starts
                .clone_from(&self.record.refused_starts);
        }
        (record != Record::default()).then(|| Content {
            record,
            ..self.clone()
        })
    }

    /// What should be in the file of a pod.
    pub(super) fn of(pod: &PodIdentity, record: &Record) -> Option<Content> {
        (*record != Record::default()).then(|| Content {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            record: record.clone(),
        })
    }
}
