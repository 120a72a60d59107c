//! The way of the last good manifests to their state file and back, on threads
//! that may block: a disk that hangs holds up nothing but what is written to it.
//! What is worth keeping, and when, is decided in `file_source`.

use std::fmt;
use std::future;
use std::sync::Arc;

use futures_util::FutureExt;
use state_file::StateFileError;
use tokio::task::{JoinError, JoinHandle};

use crate::last_good::{LastGood, Memory, PathKind, Recall};

/// Differs whenever what is worth writing down does: the recall, the kind, and the
/// revision of the manifests.
pub(crate) type Version = (Recall, Option<PathKind>, u64);

/// Where the last good manifests are; each call may block. [`Memory`], but for
/// tests of what hangs.
pub(crate) trait Store: fmt::Debug + Send + Sync {
    /// Where that is, for people.
    fn place(&self) -> String;
    /// What an earlier life has left.
    fn load(&self) -> Result<Option<LastGood>, StateFileError>;
    /// Keeps this instead.
    fn save(&self, last_good: &LastGood) -> Result<(), StateFileError>;
}

impl Store for Memory {
    fn place(&self) -> String {
        self.path().display().to_string()
    }

    fn load(&self) -> Result<Option<LastGood>, StateFileError> {
        Memory::load(self)
    }

    fn save(&self, last_good: &LastGood) -> Result<(), StateFileError> {
        Memory::save(self, last_good)
    }
}

type Saving = JoinHandle<Result<(), StateFileError>>;

/// Loads once, and saves one version at a time.
#[derive(Debug)]
pub(crate) struct Keeper {
    store: Arc<dyn Store>,
    /// At most one: a disk that hangs gets no second writer.
    saving: Option<(Version, Saving)>,
    /// What is on the disk.
    saved: Option<Version>,
    fails: bool,
}

impl Keeper {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            saving: None,
            saved: None,
            fails: false,
        }
    }

    /// Where everything is kept.
    pub(crate) fn place(&self) -> String {
        self.store.place()
    }

    /// Reads what an earlier life has left.
    pub(crate) fn load(&self) -> JoinHandle<Result<Option<LastGood>, StateFileError>> {
        let store = Arc::clone(&self.store);
        tokio::task::spawn_blocking(move || store.load())
    }

    /// Whether this is on the disk.
    pub(crate) fn has(&self, version: Version) -> bool {
        self.saved == Some(version)
    }

    /// Whether something is still being written.
    pub(crate) fn is_saving(&mut self) -> bool {
        // What has ended since makes way.
        let _ = self.finished().now_or_never();
        self.saving.is_some()
    }

    /// Begins to write what is not on the disk yet, unless something else is being
    /// written. Returns whether it did.
    pub(crate) fn save(&mut self, version: Version, last_good: impl FnOnce() -> LastGood) -> bool {
        if self.is_saving() || self.has(version) {
            return false;
        }
        let (store, last_good) = (Arc::clone(&self.store), last_good());
        let saving = tokio::task::spawn_blocking(move || store.save(&last_good));
        self.saving = Some((version, saving));
        true
    }

    /// Waits until what is being written is on the disk, or has failed; for ever
    /// if nothing is. Cancel-safe: what was begun goes on.
    pub(crate) async fn finished(&mut self) {
        let Some((version, saving)) = &mut self.saving else {
            return future::pending().await;
        };
        let (version, result) = (*version, saving.await);
        self.saving = None;
        match failure(result) {
            None => {
                self.saved = Some(version);
                self.fails = false;
            }
            // It costs nothing until a file is bad and we are restarted.
            Some(error) => {
                if !self.fails {
                    tracing::warn!(error, "last good manifests cannot be kept over a restart");
                }
                self.fails = true;
            }
        }
    }
}

fn failure(result: Result<Result<(), StateFileError>, JoinError>) -> Option<String> {
    match result {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(telemetry::chain(&error)),
        // It panicked, or the runtime is ending.
        Err(error) => Some(telemetry::chain(&error)),
    }
}
