//! What survives a restart: the published pods, in one small state file. It is
//! a cache: without it, statuses are computed anew from what the pool observes,
//! and only times of transitions and rejections are lost.

use std::path::Path;

use ipc::limits::MAX_PODS;
use pod::{PodDocument, PodSource};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use state_file::{StateFile, StateFileError};
use topology::{Process, row};

use crate::publication::{PublishedPod, WorkerNotes};

/// Format of the file; another one counts as absent.
const VERSION: u32 = 1;
const FILE_NAME: &str = "statuses.json";

/// The state file.
#[derive(Clone, Debug)]
pub(crate) struct Store(StateFile);

#[derive(Serialize)]
struct Saving<'a> {
    source: &'a str,
    pod: Box<RawValue>,
}

#[derive(Deserialize)]
struct Saved {
    source: String,
    pod: Box<RawValue>,
}

impl Store {
    /// The file below the state directory of this process.
    pub(crate) fn new(directory: &Path) -> Store {
        // A reboot ends every container that a status tells of.
        let file = StateFile::new(directory.join(FILE_NAME), VERSION).without_sync();
        let file = file.at_most(row(Process::StatusSyncer).state_file_max_bytes());
        Store(file)
    }

    /// What was saved. A file or an entry that cannot be read is reported and
    /// left out.
    pub(crate) fn load(&self) -> Vec<PublishedPod> {
        let saved: Vec<Saved> = match self.0.load() {
            Ok(saved) => saved.unwrap_or_default(),
            Err(error) => {
                let error = telemetry::chain(&error);
                tracing::warn!(
                    error,
                    "saved statuses cannot be used; they are computed anew"
                );
                return Vec::new();
            }
        };
        let pod = |saved: Saved| {
            let source = PodSource::parse(&saved.source)?;
            let json = saved.pod.get().as_bytes().to_vec();
            match PodDocument::from_json(json, source) {
                Ok((document, _)) => Some(PublishedPod {
                    document,
                    desired: None,
                    worker: WorkerNotes::default(),
                }),
                Err(error) => {
                    let error = telemetry::chain(&error);
                    tracing::warn!(error, "a saved status cannot be used; it is computed anew");
                    None
                }
            }
        };
        let pods = saved.into_iter().filter_map(pod);
        pods.take(MAX_PODS).collect()
    }

    /// Saves all of it. Where that fails the older file stays: what it knows of other pods is
    /// worth more than the change that a kill would lose then.
    pub(crate) fn save(&self, pods: &[PodDocument]) -> Result<(), StateFileError> {
        let saving = pods.iter().filter_map(|document| {
            Some(Saving {
                source: document.source().as_str(),
                pod: serde_json::from_slice(&document.to_json().ok()?).ok()?,
            })
        });
        self.0.save(&saving.collect::<Vec<_>>())
    }
}

#[cfg(test)]
mod tests {
    use pod::Pod;

    use super::*;

    fn published(name: &str) -> PublishedPod {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.to_owned());
        pod.metadata.namespace = Some("default".to_owned());
        pod.metadata.uid = Some(format!("uid-{name}"));
        pod.status = serde_json::from_str(r#"{"phase":"Running"}"#).unwrap();
        let document = PodDocument::encode(&pod, PodSource::File).unwrap();
        PublishedPod {
            document,
            desired: None,
            worker: WorkerNotes::default(),
        }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path());
        assert_eq!(store.load(), []);
        let pods = [published("a"), published("b")];
        let entries = pods.clone().map(|pod| pod.document);
        store.save(&entries).unwrap();
        assert_eq!(store.load(), pods);
    }

    #[test]
    fn one_bad_entry_costs_only_itself() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path());
        let good = published("a");
        let pod = || serde_json::from_slice(&good.document.to_json().unwrap()).unwrap();
        let entries = [
            Saving {
                source: "file",
                pod: pod(),
            },
            Saving {
                source: "moon",
                pod: pod(),
            },
            Saving {
                source: "file",
                pod: serde_json::from_str("{}").unwrap(),
            },
        ];
        store.0.save(&entries).unwrap();
        assert_eq!(store.load(), [good]);
    }

    #[test]
    fn a_damaged_file_counts_as_absent() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path());
        std::fs::write(directory.path().join(FILE_NAME), "{").unwrap();
        assert_eq!(store.load(), []);
    }
}
