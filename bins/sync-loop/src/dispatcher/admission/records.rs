//! What admission decided, kept over restarts: a rejected pod stays rejected,
//! an admitted one stays admitted. Losing the records is safe: pods that run
//! are adopted, all others are checked anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::rejection::Rejection;

/// One pod's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "camelCase")]
pub enum AdmissionRecord {
    /// It may run.
    Admitted,
    /// It may not.
    Rejected {
        /// See [`Rejection::reason`].
        reason: String,
        /// See [`Rejection::message`].
        message: String,
    },
}

impl From<&Rejection> for AdmissionRecord {
    fn from(rejection: &Rejection) -> Self {
        AdmissionRecord::Rejected {
            reason: rejection.reason.clone(),
            message: rejection.message.clone(),
        }
    }
}

/// All records, by uid. Cloning shares them until one side changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    from = "BTreeMap<String, AdmissionRecord>",
    into = "BTreeMap<String, AdmissionRecord>"
)]
pub struct AdmissionRecords(Arc<BTreeMap<String, AdmissionRecord>>);

impl From<BTreeMap<String, AdmissionRecord>> for AdmissionRecords {
    fn from(records: BTreeMap<String, AdmissionRecord>) -> Self {
        AdmissionRecords(Arc::new(records))
    }
}

impl From<AdmissionRecords> for BTreeMap<String, AdmissionRecord> {
    fn from(records: AdmissionRecords) -> Self {
        Arc::unwrap_or_clone(records.0)
    }
}

impl AdmissionRecords {
    /// The record of a pod.
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&AdmissionRecord> {
        self.0.get(uid)
    }

    /// Sets a record; returns whether that changed anything.
    pub fn set(&mut self, uid: &str, record: AdmissionRecord) -> bool {
        if self.0.get(uid) == Some(&record) {
            return false;
        }
        Arc::make_mut(&mut self.0).insert(uid.to_owned(), record);
        true
    }

    /// Removes a record; returns whether there was one.
    pub fn remove(&mut self, uid: &str) -> bool {
        self.0.contains_key(uid) && Arc::make_mut(&mut self.0).remove(uid).is_some()
    }

    /// Keeps the records of the pods that `keep` names; returns whether any went.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) -> bool {
        if self.0.keys().all(|uid| keep(uid)) {
            return false;
        }
        Arc::make_mut(&mut self.0).retain(|uid, _| keep(uid));
        true
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
