//! What must survive the death of this process and is nowhere else: kills that
//! were begun. One small file a pod, written before the first signal is sent, so
//! that whoever resumes the kill gives neither more nor less grace.
//!
//! Deleting any of the files at any time is safe: a termination is then asked for
//! again and begins anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clock::UnixNanos;
use pod::PodIdentity;
use serde::{Deserialize, Serialize};
use state_file::{StateFile, StateFileError};

use crate::plan::KillReason;
use crate::worker::{MINIMUM_SIGTERM_GRACE, Termination};

/// Format of the files.
const VERSION: u32 = 1;
/// Files are called by UID with this suffix.
const SUFFIX: &str = ".json";
/// Most files that are read at a start: far above the pods of any node.
const MAX_RECORDS: usize = 10_000;

/// The kills of one pod that were begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The whole pod.
    pub termination: Option<Termination>,
    /// Single instances, by container id.
    pub kills: BTreeMap<String, KillRecord>,
}

/// The kill of one instance while its pod lives on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillRecord {
    /// Why.
    pub reason: KillReason,
    /// Wall time in Unix nanoseconds.
    requested_at: i64,
    /// How long the instance may take.
    grace: Duration,
}

impl KillRecord {
    /// A kill that begins now.
    #[must_use]
    pub fn new(reason: KillReason, now: UnixNanos, grace: Duration) -> KillRecord {
        KillRecord {
            reason,
            requested_at: now.0,
            grace,
        }
    }

    /// What is left of its grace, and at least [`MINIMUM_SIGTERM_GRACE`] of it.
    #[must_use]
    pub fn stop_timeout(&self, now: UnixNanos) -> Duration {
        let deadline = UnixNanos(self.requested_at).plus(self.grace);
        let least = self.grace.min(MINIMUM_SIGTERM_GRACE);
        deadline.since(now).min(self.grace).max(least)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
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
            kills: [(
                "c1".to_owned(),
                KillRecord::new(KillReason::LivenessFailed, now, Duration::from_secs(30)),
            )]
            .into(),
        };
        records.save(&pod(), &record).unwrap();
        let again = Records::new(directory.path());
        assert_eq!(again.load(&pod()), record);
        assert_eq!(again.all(), [(pod(), record)]);
        records.save(&pod(), &Record::default()).unwrap();
        assert!(again.all().is_empty());
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

    #[test]
    fn what_is_left_of_a_kill_is_counted_from_its_request() {
        let begun = UnixNanos(100_000_000_000);
        let kill = KillRecord::new(KillReason::StartupFailed, begun, Duration::from_secs(10));
        for (seconds, left) in [(0, 10), (4, 6), (10, 2), (99, 2)] {
            let now = begun.plus(Duration::from_secs(seconds));
            assert_eq!(kill.stop_timeout(now), Duration::from_secs(left));
        }
        assert_eq!(kill.stop_timeout(UnixNanos(0)), Duration::from_secs(10));
    }
}
