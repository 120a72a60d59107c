//! The state file with all verdicts.

use std::path::Path;

use state_file::StateFile;

use crate::ledger::Saved;

/// Format of the state file.
const VERSION: u32 = 1;

/// The state file.
#[derive(Debug)]
pub(crate) struct Store {
    file: StateFile,
    failing: bool,
}

impl Store {
    /// The file in the process's state directory, which is made if it is missing.
    pub(crate) fn open(directory: &Path) -> Store {
        if let Err(error) = std::fs::create_dir_all(directory) {
            let directory = directory.display();
            tracing::warn!(%directory, %error, "cannot make the state directory");
        }
        Store {
            // After a reboot of the machine no container that it names exists.
            file: StateFile::new(directory.join("verdicts.json"), VERSION).without_sync(),
            failing: false,
        }
    }

    /// What an earlier life wrote; nothing when that cannot be read.
    pub(crate) fn load(&self) -> Saved {
        match self.file.load() {
            Ok(saved) => saved.unwrap_or_default(),
            Err(error) => {
                let error = telemetry::chain(&error);
                tracing::warn!(error, "verdicts of the last life are lost");
                Saved::default()
            }
        }
    }

    /// Writes all verdicts; returns whether that worked. Where it does not, the
    /// old file goes: what it says is not true any more, and after a restart the
    /// pool still knows what it was told. On a full disk that makes the room that
    /// the new file needs.
    pub(crate) fn save(&mut self, saved: &Saved) -> bool {
        let first = self.file.save(saved);
        let result = first.or_else(|error| match self.file.remove() {
            Ok(()) => self.file.save(saved),
            Err(other) => {
                let other = telemetry::chain(&other);
                tracing::debug!(error = other, "cannot remove the outdated state file");
                Err(error)
            }
        });
        match result {
            Ok(()) => {
                if std::mem::replace(&mut self.failing, false) {
                    tracing::info!("verdicts are saved again");
                }
                true
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    let error = telemetry::chain(&error);
                    tracing::error!(error, "cannot save verdicts; they are told all the same");
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Owner, SavedInstance};

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
    fn what_is_saved_is_loaded_in_the_next_life() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("prober");
        assert!(Store::open(&path).load().is_empty());
        assert!(Store::open(&path).save(&saved()));
        assert_eq!(Store::open(&path).load(), saved());
    }

    #[test]
    fn a_damaged_file_is_as_good_as_none() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path());
        std::fs::write(store.file.path(), "{").unwrap();
        assert!(store.load().is_empty());
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_survived() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "in the way").unwrap();
        let mut store = Store::open(&path);
        assert!(!store.save(&saved()));
        assert!(store.load().is_empty());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(store.save(&saved()));
        assert_eq!(store.load(), saved());
    }
}
