//! What must survive the death of this process and is nowhere else: kills that
//! were begun, and since when a pod with a deadline counts. One small file a pod,
//! written before the first signal is sent, so that whoever resumes the kill knows
//! why, and gives neither more nor less grace.
//!
//! Deleting any of the files at any time is safe for the node, and costs this: a
//! termination is asked for again and begins anew with its full grace; an instance
//! that was killed counts as one that ended by itself; and a pod that was evicted,
//! which nothing but its record tells of, starts again if its source has it still;
//! the deadline of a pod that has no sandbox yet begins anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clock::UnixNanos;
use pod::PodIdentity;
use serde::{Deserialize, Serialize};
use state_file::{StateFile, StateFileError};

use crate::plan::KillReason;
use crate::stop::StopRecords;
use crate::worker::Termination;

/// Format of the files.
const VERSION: u32 = 2;
/// Files are called by UID with this suffix.
const SUFFIX: &str = ".json";
/// Most files that are read at a start: far above the pods of any node.
const MAX_RECORDS: usize = 10_000;

/// What is recorded of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Why and with which grace the whole pod is stopped, if it is.
    pub termination: Option<Termination>,
    /// Why single instances are stopped while the pod lives on, by container id.
    pub kills: BTreeMap<String, KillReason>,
    /// Until when instances that are being stopped may take, for either reason.
    pub stops: StopRecords,
    /// When the first sync of a pod with a deadline was.
    #[serde(default, with = "nanos")]
    pub started_at: Option<UnixNanos>,
}

/// The directory of the records.
#[derive(Clone, Debug)]
pub struct Records {
    directory: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Content {
    namespace: String,
    name: String,
    record: Record,
}

impl Records {
    /// The records below the state directory of this process.
    #[must_use]
    pub fn new(state_directory: &Path) -> Records {
        Records {
            directory: state_directory.join("kills"),
        }
    }

    /// Makes the directory.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn prepare(&self) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.directory)
    }

    /// The record of a pod; an empty one if there is none that can be read.
    #[must_use]
    pub fn load(&self, pod: &PodIdentity) -> Record {
        match self.file(pod.uid()).load::<Content>() {
            Ok(content) => content.map(|content| content.record).unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%pod, error = telemetry::chain(&error), "kills are not resumed");
                Record::default()
            }
        }
    }

    /// All records, by the names of their files; unreadable ones are left out.
    #[must_use]
    pub fn all(&self) -> Vec<(PodIdentity, Record)> {
        self.uids()
            .into_iter()
            .filter_map(|uid| {
                let content: Content = match self.file(&uid).load() {
                    Ok(content) => content?,
                    Err(error) => {
                        tracing::warn!(uid, error = telemetry::chain(&error), "kill not resumed");
                        return None;
                    }
                };
                let pod = PodIdentity::new(uid, content.namespace, content.name).ok()?;
                Some((pod, content.record))
            })
            .collect()
    }

    /// The pods that have records.
    #[must_use]
    pub fn uids(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(&self.directory) else {
            return Vec::new();
        };
        entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name();
                let uid = name.to_str()?.strip_suffix(SUFFIX)?;
                pod::identity::check_uid(uid).ok()?;
                Some(uid.to_owned())
            })
            .take(MAX_RECORDS)
            .collect()
    }

    /// Writes the record of a pod, or removes the file when it is empty.
    ///
    /// # Errors
    /// When the file system refuses; what was written before stands.
    pub fn save(&self, pod: &PodIdentity, record: &Record) -> Result<(), StateFileError> {
        if *record == Record::default() {
            return self.remove(pod.uid());
        }
        self.file(pod.uid()).save(&Content {
            namespace: pod.namespace().to_owned(),
            name: pod.name().to_owned(),
            record: record.clone(),
        })
    }

    /// Removes the record of a pod; absent is fine.
    ///
    /// # Errors
    /// When the file system refuses.
    pub fn remove(&self, uid: &str) -> Result<(), StateFileError> {
        self.file(uid).remove()
    }

    fn file(&self, uid: &str) -> StateFile {
        StateFile::new(self.directory.join(format!("{uid}{SUFFIX}")), VERSION)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::stop::StopRecord;
    use crate::worker::TerminationCause;

    fn pod() -> PodIdentity {
        PodIdentity::new("u1", "default", "a").unwrap()
    }

    #[test]
    fn a_record_is_found_again_by_another_life() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::new(directory.path());
        records.prepare().unwrap();
        assert_eq!(records.load(&pod()), Record::default());
        let now = UnixNanos(5_000_000_000);
        let record = Record {
            termination: Some(Termination::new(TerminationCause::Killed, now, None, None)),
            kills: [("c1".to_owned(), KillReason::LivenessFailed)].into(),
            stops: [(
                "c1".to_owned(),
                StopRecord::new(now, Duration::from_secs(30)),
            )]
            .into(),
            started_at: Some(now),
        };
        records.save(&pod(), &record).unwrap();
        let again = Records::new(directory.path());
        assert_eq!(again.load(&pod()), record);
        assert_eq!(again.all(), [(pod(), record)]);
        records.save(&pod(), &Record::default()).unwrap();
        assert!(again.all().is_empty());
    }

    #[test]
    fn a_record_of_an_earlier_version_is_understood() {
        let text = r#"{"termination": null, "kills": {"c1": "LivenessFailed"}, "stops": {}}"#;
        let record: Record = serde_json::from_str(text).unwrap();
        assert_eq!(record.kills["c1"], KillReason::LivenessFailed);
        assert_eq!(record.started_at, None);
    }

    #[test]
    fn damaged_and_foreign_files_are_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let records = Records::new(directory.path());
        records.prepare().unwrap();
        for name in ["u1.json", "...json", "notes.txt", "u_2.json"] {
            std::fs::write(directory.path().join("kills").join(name), "{").unwrap();
        }
        assert_eq!(records.uids(), ["u1"]);
        assert!(records.all().is_empty());
        assert_eq!(records.load(&pod()), Record::default());
    }
}
