//! Which pod of the runtime is which version of a scenario.

use std::collections::BTreeMap;

use simulated_runtime::{Entry, Happening};

use crate::desired::VERSION_LABEL;

/// UID of the pod of each version, from the labels of its sandboxes.
pub(crate) fn uids_by_version(history: &[Entry]) -> BTreeMap<String, String> {
    let mut uids = BTreeMap::new();
    for entry in history {
        if let Happening::Created { labels, .. } = &entry.happening
            && let Some(version) = labels.get(VERSION_LABEL)
        {
            uids.insert(version.clone(), entry.pod_uid.clone());
        }
    }
    uids
}
