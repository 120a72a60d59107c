//! What admission decided, kept over restarts: a rejected pod stays rejected,
//! an admitted one stays admitted. Losing the records is safe: pods that run
//! are adopted, all others are checked anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipc::limits::{MAX_PODS, truncate};
use pod::identity::check_uid;
use serde::{Deserialize, Serialize};

use super::rejection::Rejection;
use super::resizes::Allocation;
use crate::dispatcher::pod_facts::PodFacts;

/// Longest reason and message that are taken from a file, far above those of any check.
const MAX_REJECTION_BYTES: usize = 4096;

/// Longest hash that is taken from a file.
const MAX_HASH_BYTES: usize = 64;

/// One pod's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "decision", rename_all = "camelCase")]
pub enum AdmissionRecord {
    /// It may run.
    Admitted(Allocation),
    /// It may not.
    Rejected {
        /// See [`Rejection::reason`].
        reason: String,
        /// See [`Rejection::message`].
        message: String,
        /// `PodFacts::admission_hash` of the pod that was judged.
        admission_hash: String,
    },
}

impl AdmissionRecord {
    /// That a pod was rejected.
    pub(super) fn rejected(rejection: &Rejection, pod: &PodFacts) -> AdmissionRecord {
        AdmissionRecord::Rejected {
            reason: rejection.reason.clone(),
            message: rejection.message.clone(),
            admission_hash: pod.admission_hash.clone(),
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
    /// Whatever a file says, the records are such as this process makes: of pods that can
    /// be, not more than a node has, with texts that can be told on.
    fn from(records: BTreeMap<String, AdmissionRecord>) -> Self {
        let records = records.into_iter();
        let of_pods = records.filter(|(uid, _)| check_uid(uid).is_ok());
        let bounded = of_pods.take(MAX_PODS).map(|(uid, mut record)| {
            match &mut record {
                AdmissionRecord::Rejected {
                    reason,
                    message,
                    admission_hash,
                } => {
                    truncate(reason, MAX_REJECTION_BYTES);
                    truncate(message, MAX_REJECTION_BYTES);
                    truncate(admission_hash, MAX_HASH_BYTES);
                }
                AdmissionRecord::Admitted(allocation) => allocation.put_within_bounds(),
            }
            (uid, record)
        });
        AdmissionRecords(Arc::new(bounded.collect()))
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

    /// What an admitted pod has.
    #[must_use]
    pub fn allocation(&self, uid: &str) -> Option<&Allocation> {
        match self.get(uid)? {
            AdmissionRecord::Admitted(allocation) => Some(allocation),
            AdmissionRecord::Rejected { .. } => None,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted() -> AdmissionRecord {
        let pod = serde_json::from_str("{}").unwrap();
        AdmissionRecord::Admitted(Allocation::of(&PodFacts::of(&pod)))
    }

    #[test]
    fn an_allocation_of_a_hostile_file_is_within_bounds() {
        let long = "x".repeat(100_000);
        let text = serde_json::json!({"u1": {
            "decision": "admitted",
            "inForce": {"resizable": long, "cpuMillis": i64::MIN, "memoryBytes": -1},
            "pending": {"isInfeasible": true, "message": long, "resizable": long,
                        "sinceUnixNanos": 0},
        }});
        let records: AdmissionRecords = serde_json::from_value(text).unwrap();
        let written = serde_json::to_value(&records).unwrap();
        assert!(written.to_string().len() < 5000);
        let in_force = &written["u1"]["inForce"];
        assert_eq!(in_force["cpuMillis"], 0);
        assert_eq!(in_force["memoryBytes"], 0);
    }

    #[test]
    fn a_hostile_file_gives_records_within_bounds() {
        let rejected = |text: &str| AdmissionRecord::Rejected {
            reason: text.to_owned(),
            message: text.to_owned(),
            admission_hash: text.to_owned(),
        };
        let mut file = BTreeMap::from([
            ("u1".to_owned(), rejected(&"\u{e9}".repeat(100_000))),
            ("../../etc/passwd".to_owned(), admitted()),
            ("x".repeat(10_000), admitted()),
            (String::new(), admitted()),
        ]);
        let records = AdmissionRecords::from(file.clone());
        assert_eq!(records.len(), 1);
        let Some(AdmissionRecord::Rejected {
            reason,
            message,
            admission_hash,
        }) = records.get("u1")
        else {
            panic!("{records:?}");
        };
        assert!(admission_hash.len() <= MAX_HASH_BYTES);
        assert!(reason.len() <= MAX_REJECTION_BYTES && message.len() <= MAX_REJECTION_BYTES);
        let many = 0..10 * MAX_PODS;
        file.extend(many.map(|number| (format!("p{number}"), admitted())));
        assert_eq!(AdmissionRecords::from(file).len(), MAX_PODS);
        for text in [
            "[]",
            "{\"u1\":{\"decision\":\"other\"}}",
            "{\"u1\":7}",
            "null",
        ] {
            assert!(
                serde_json::from_str::<AdmissionRecords>(text).is_err(),
                "{text}"
            );
        }
    }
}
