//! The files of the records, one a pod. Everything here blocks.

use std::path::PathBuf;

use state_file::{StateFile, StateFileError, UNFINISHED};

use super::content::Content;

/// Format of the files.
const VERSION: u32 = 2;
/// Files are called by UID with this suffix.
const SUFFIX: &str = ".json";
/// Most files that are read at a start: far above the pods of any node.
const MAX_RECORDS: usize = 10_000;
/// Largest file: a pod of a hundred containers, all of which are being stopped, needs a
/// tenth of that.
const MAX_RECORD_BYTES: u64 = 256 << 10;
/// Most bytes of all files together that are read at a start.
const MAX_TOTAL_BYTES: u64 = 64 << 20;

/// The directory of the records.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
}

impl Directory {
    /// The directory, made if it is missing.
    pub(super) fn open(path: PathBuf) -> std::io::Result<Directory> {
        std::fs::create_dir_all(&path)?;
        Ok(Directory { path })
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
                let name = name.to_str()?;
                // A writer that was killed before it had written one for the first time has
                // left a file, too, that has to go with its pod.
                let name = name.strip_suffix(UNFINISHED).unwrap_or(name);
                let uid = name.strip_suffix(SUFFIX)?;
                pod::identity::check_uid(uid).ok()?;
                Some(uid.to_owned())
            })
            .take(MAX_RECORDS)
            .scan(0, |total, uid| {
                let path = self.file(&uid).path().to_owned();
                *total += std::fs::metadata(path).map_or(0, |it| it.len().min(MAX_RECORD_BYTES));
                Some((uid, *total <= MAX_TOTAL_BYTES))
            })
            .map(|(uid, has_room)| {
                let content = if has_room {
                    self.content(&uid)
                } else {
                    tracing::warn!(uid, "kills are not resumed: too many bytes of records");
                    None
                };
                (uid, content)
            })
            .collect()
    }

    /// What the file of a pod says, as far as it can be true.
    fn content(&self, uid: &str) -> Option<Content> {
        let content = self.file(uid).load::<Content>().unwrap_or_else(|error| {
            let error = telemetry::chain(&error);
            tracing::warn!(uid, error, "kills are not resumed");
            None
        })?;
        let checked = content.checked(uid);
        if checked.is_none() {
            tracing::warn!(uid, "kills are not resumed: the record is of no pod");
        }
        checked
    }

    /// Brings the file of a pod to this content, or removes it.
    pub(super) fn change(
        &self,
        uid: &str,
        content: Option<&Content>,
    ) -> Result<(), StateFileError> {
        let file = match self.outlives_the_machine(uid, content) {
            true => self.file(uid),
            // One disk write a kill would be many at once, when a node's pods are
            // stopped together.
            false => self.file(uid).without_sync(),
        };
        match content {
            Some(content) => file.save(content),
            None => file.remove(),
        }
    }

    /// Whether a change to this content is of use after a crash of the machine: that a pod
    /// was evicted, and that it has begun anew since.
    pub(super) fn outlives_the_machine(&self, uid: &str, content: Option<&Content>) -> bool {
        let outlives = |content: &Content| content.record.outlives_the_machine();
        let before = || self.file(uid).load::<Content>().ok().flatten();
        content.is_some_and(outlives) || before().as_ref().is_some_and(outlives)
    }

    fn file(&self, uid: &str) -> StateFile {
        StateFile::new(self.path.join(format!("{uid}{SUFFIX}")), VERSION).at_most(MAX_RECORD_BYTES)
    }
}
