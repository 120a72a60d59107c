//! What the file of a pod says.

use pod::PodIdentity;
use pod_lifecycle::record::Record;
use serde::{Deserialize, Serialize};

/// What is in the file of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) record: Record,
}

impl Content {
    /// What should be in the file of a pod.
    pub(super) fn of(pod: &PodIdentity, record: &Record) -> Option<Content> {
        (*record != Record::default()).then(|| Content {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            record: record.clone(),
        })
    }
}
