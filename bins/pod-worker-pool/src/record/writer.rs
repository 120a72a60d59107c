//! The files of the records, and the one who writes them, on threads for blocking work.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use state_file::{StateFile, StateFileError};
use tokio::time::Instant;

use super::{Change, Content, RecordError, Records};

/// Format of the files.
const VERSION: u32 = 2;
/// Files are called by UID with this suffix.
const SUFFIX: &str = ".json";
/// Most files that are read at a start: far above the pods of any node.
const MAX_RECORDS: usize = 10_000;
/// Wait before what could not be done is tried again, whatever else is done meanwhile.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// The directory of the records.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    /// No change of a file begins any more.
    pub(super) is_closed: AtomicBool,
    /// Held while a file is changed.
    pub(super) changing: Mutex<()>,
}

impl Directory {
    /// The directory, made if it is missing.
    pub(super) fn open(path: PathBuf) -> std::io::Result<Directory> {
        std::fs::create_dir_all(&path)?;
        Ok(Directory {
            path,
            is_closed: AtomicBool::new(false),
            changing: Mutex::new(()),
        })
    }

    /// All files by UID; without content those that cannot be read.
    pub(super) fn read(&self) -> Vec<(String, Option<Content>)> {
        let entries = match std::fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) => {
                tracing::warn!(%error, "kills are not resumed");
                return Vec::new();
            }
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
            .map(|uid| {
                let content = self.file(&uid).load::<Content>().unwrap_or_else(|error| {
                    let error = telemetry::chain(&error);
                    tracing::warn!(uid, error, "kills are not resumed");
                    None
                });
                (uid, content)
            })
            .collect()
    }

    pub(super) fn change(
        &self,
        uid: &str,
        content: Option<&Content>,
    ) -> Result<(), StateFileError> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_closed.load(Ordering::SeqCst) {
            return Ok(());
        }
        match content {
            Some(content) if content.record.outlives_the_machine() => self.file(uid).save(content),
            // One disk write a kill would be many at once, when a node's pods are
            // stopped together.
            Some(content) => self.file(uid).without_sync().save(content),
            None => self.file(uid).remove(),
        }
    }

    fn close(&self, lives: Lives) {
        self.is_closed.store(true, Ordering::SeqCst);
        if lives == Lives::ManyPerProcess {
            drop(self.changing.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn file(&self, uid: &str) -> StateFile {
        StateFile::new(self.path.join(format!("{uid}{SUFFIX}")), VERSION)
    }
}

/// How many lives of the pool there are in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lives {
    /// Whoever ends the life ends the process: a change that hangs is left to that.
    OnePerProcess,
    /// Another life may read the files as soon as this one is dropped: the change
    /// that is under way is waited for.
    ManyPerProcess,
}

/// Brings the files to what the records are. Once it is dropped no change begins.
#[derive(Debug)]
pub(crate) struct RecordWriter {
    lives: Lives,
    records: Records,
    pub(super) directory: Arc<Directory>,
}

impl RecordWriter {
    pub(super) fn new(records: Records, directory: Directory, lives: Lives) -> RecordWriter {
        RecordWriter {
            lives,
            records,
            directory: Arc::new(directory),
        }
    }

    /// Writes for ever.
    pub(crate) async fn run(self) {
        let mut retry_at = None;
        loop {
            if !self.records.has_failed() {
                retry_at = None;
            } else if *retry_at.get_or_insert_with(|| Instant::now() + RETRY_PAUSE)
                <= Instant::now()
            {
                self.records.try_failed_again();
                retry_at = None;
            }
            if let Some(change) = self.records.next_change() {
                self.carry_out(change).await;
                continue;
            }
            let changed = self.records.0.changed.notified();
            match retry_at {
                // Cancel-safe: a change that nobody was told of is found all the same,
                // and that it is time too.
                Some(at) => drop(tokio::time::timeout_at(at, changed).await),
                None => changed.await,
            }
        }
    }

    pub(super) async fn carry_out(&self, change: Change) {
        let Change {
            uid,
            number,
            content,
            waiting,
        } = change;
        let directory = Arc::clone(&self.directory);
        let key = uid.clone();
        let writing = tokio::task::spawn_blocking(move || directory.change(&key, content.as_ref()));
        let result = writing.await.unwrap_or_else(|error| {
            // It panicked or the runtime is ending: nothing is known to be written.
            Err(StateFileError::Io {
                action: "write",
                path: self.directory.path.clone(),
                source: std::io::Error::other(error),
            })
        });
        let result = result.map_err(Arc::new);
        self.records.carried_out(&uid, number, result.is_ok());
        if let Err(error) = &result {
            tracing::debug!(uid, error = telemetry::chain(error), "record not written");
        }
        for waiting in waiting {
            // Who waited may have gone on.
            let _ = waiting.send(result.clone().map_err(RecordError::Failed));
        }
    }
}

impl Drop for RecordWriter {
    fn drop(&mut self) {
        self.directory.close(self.lives);
    }
}
