//! The state file with all verdicts.

use std::path::Path;

use state_file::{StateFile, StateFileError};
use topology::{Process, row};

use crate::ledger::Saved;

/// Format of the state file.
const VERSION: u32 = 1;

/// The state file.
#[derive(Clone, Debug)]
pub(crate) struct Store(StateFile);

impl Store {
    /// The file in the process's state directory, which is made if it is missing.
    pub(crate) fn open(directory: &Path) -> Store {
        if let Err(error) = std::fs::create_dir_all(directory) {
            let directory = directory.display();
            tracing::warn!(%directory, %error, "cannot make the state directory");
        }
        // After a reboot of the machine no container that it names exists.
        let file = StateFile::new(directory.join("verdicts.json"), VERSION).without_sync();
        let file = file.at_most(row(Process::Prober).state_file_max_bytes());
        Store(file)
    }

    /// What an earlier run wrote; nothing when that cannot be read.
    pub(crate) fn load(&self) -> Saved {
        match self.0.load() {
            Ok(saved) => saved.unwrap_or_default(),
            Err(error) => {
                let error = telemetry::chain(&error);
                tracing::warn!(error, "verdicts of the last run are lost");
                Saved::default()
            }
        }
    }

    /// Writes all verdicts. What they replace must not outlive them: the pool still knows
    /// what it was told.
    pub(crate) fn save(&self, saved: &Saved) -> Result<(), StateFileError> {
        self.0.save(saved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::ledger::{MAX_INSTANCES, Owner, SavedInstance};
    use crate::worker::Verdict;

    fn saved() -> Saved {
        let instance = SavedInstance {
            owner: Owner {
                pod_uid: "u".to_owned(),
                container_name: "c".to_owned(),
            },
            verdicts: Default::default(),
        };
        [("id".to_owned(), instance)].into()
    }

    #[test]
    fn what_is_saved_is_loaded_in_the_next_run() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("prober");
        assert!(Store::open(&path).load().is_empty());
        Store::open(&path).save(&saved()).unwrap();
        assert_eq!(Store::open(&path).load(), saved());
    }

    #[test]
    fn as_many_instances_as_are_accepted_fit() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path());
        let verdict = |kind| Verdict {
            message: "x".repeat(500),
            ..Verdict::initial(kind)
        };
        let kinds = [Kind::Liveness, Kind::Readiness, Kind::Startup];
        let instance = SavedInstance {
            owner: Owner {
                pod_uid: "u".repeat(36),
                container_name: "c".repeat(63),
            },
            verdicts: kinds.map(|kind| (kind, verdict(kind))).into(),
        };
        let ids = (0..MAX_INSTANCES).map(|number| format!("{number:064}"));
        let saved: Saved = ids.map(|id| (id, instance.clone())).collect();
        store.save(&saved).unwrap();
        assert_eq!(store.load(), saved);
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path());
        std::fs::write(store.0.path(), "{").unwrap();
        assert!(store.load().is_empty());
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_survived() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "in the way").unwrap();
        let store = Store::open(&path);
        assert!(store.save(&saved()).is_err());
        assert!(store.load().is_empty());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        store.save(&saved()).unwrap();
        assert_eq!(store.load(), saved());
    }
}
