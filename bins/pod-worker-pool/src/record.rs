//! What must survive the death of this process and is nowhere else: kills that
//! were begun, starts that were refused, how far postStart hooks are, what CPU and memory
//! were changed or kept, since when a pod with a deadline counts, and which instances a pod
//! that began anew under its UID had before. One small file a pod, written before the first
//! signal is sent, so that whoever resumes the kill knows why, and gives neither more nor
//! less grace.
//!
//! Deleting any of the files at any time is safe for the node, and costs this: a
//! termination is asked for again and begins anew with its full grace; an instance
//! that was killed counts as one that ended by itself; and a pod that was evicted,
//! which nothing but its record tells of, starts again if its source has it still; a
//! container that the runtime refused to start may be started again, though its pod was
//! told as failed; a postStart hook that was due is not begun, one that failed stops
//! nothing; a container that was changed counts as having what it was made with; the
//! deadline of a pod that has no sandbox yet begins anew; and a pod that was to begin anew
//! counts as ended where it is not restarted for what it had ended with before.
//!
//! The files are read once, at the start. After that whoever asks is answered from
//! memory, and a [`state_file::Saver`] does what there is to do to the files, so that a
//! disk that hangs holds up only who has to know that something is written, and not
//! for long. No late removal takes a record away that was made after it. Only for the
//! record of an eviction, and for its end, it waits until the disk has it: the others are of
//! no use after a crash of the machine, and outlive one of this process all the same.

mod boot;
mod content;
mod directory;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pod::PodIdentity;
use pod_lifecycle::record::Record;
use state_file::{NotSaved, Saver, Saving, Writer};

pub(crate) use boot::KernelBoot;
use content::Content;
use directory::Directory;

/// Brings the files to what the records are, by UID. Once it is dropped no change begins.
pub(crate) type RecordWriter = Writer<String, Option<Content>>;

/// The records. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    /// By UID; `None` for one whose file cannot be read.
    known: Arc<Mutex<BTreeMap<String, Option<Content>>>>,
    saver: Saver<String, Option<Content>>,
}

impl Records {
    /// Reads the records below the state directory of this process. Blocks for that. Of
    /// those of pods that were ended for a shutdown of the node only what a pod needs that
    /// begins anew is of use after the next boot, whatever the disk says to that.
    ///
    /// # Errors
    /// When the directory cannot be made.
    pub(crate) fn open(
        state_directory: &Path,
        boot: &KernelBoot,
    ) -> std::io::Result<(Records, RecordWriter)> {
        let directory = Directory::open(state_directory.join("kills"))?;
        let mut known: BTreeMap<String, Option<Content>> = directory.read().into_iter().collect();
        let mut refused = Vec::new();
        boot.when_it_is_new(state_directory, || {
            known.retain(|uid, content| {
                let ended = content.as_ref().filter(|it| it.ends_with_the_boot());
                let Some(next) = ended.map(Content::after_the_boot) else {
                    return true;
                };
                if directory.change(uid, next.as_ref()).is_err() {
                    refused.push((uid.clone(), next.clone()));
                }
                *content = next;
                content.is_some()
            });
            refused.is_empty()
        });
        let change = move |uid: &String, content: &Option<Content>| {
            let content = content.as_ref();
            directory.change(uid, content)
        };
        let (saver, writer) = Saver::new("records of pods that are stopped", change);
        for (uid, content) in refused {
            drop(saver.put(uid, content));
        }
        let records = Records {
            known: Arc::new(Mutex::new(known)),
            saver,
        };
        Ok((records, writer))
    }

    /// The record of a pod; an empty one if there is none of it that can be read.
    #[must_use]
    pub(crate) fn load(&self, pod: &PodIdentity) -> Record {
        let known = self.lock();
        let content = known.get(pod.uid()).and_then(Option::as_ref);
        content
            .filter(|content| content.is_of(pod))
            .map(|content| content.record.clone())
            .unwrap_or_default()
    }

    /// All records; unreadable ones are left out.
    #[must_use]
    pub(crate) fn all(&self) -> Vec<(PodIdentity, Record)> {
        let known = self.lock();
        known
            .iter()
            .filter_map(|(uid, content)| {
                let content = content.clone()?;
                let pod = PodIdentity::new(uid.clone(), content.namespace, content.name).ok()?;
                Some((pod, content.record))
            })
            .collect()
    }

    /// The pods that have files.
    #[must_use]
    pub(crate) fn uids(&self) -> BTreeSet<String> {
        let mut uids: BTreeSet<String> = self.lock().keys().cloned().collect();
        uids.extend(self.saver.unsaved());
        uids
    }

    /// Writes the record of a pod, or removes the file when it is empty, and waits
    /// until that is done. Who gives up waiting changes nothing.
    ///
    /// # Errors
    /// When the file system refuses or takes too long. It is done later then.
    pub(crate) async fn save(&self, pod: &PodIdentity, record: &Record) -> Result<(), NotSaved> {
        match self.change(pod.uid(), Content::of(pod, record)) {
            Some(mut saving) => saving.finished().await,
            None => Ok(()),
        }
    }

    /// As [`Records::save`], for who need not know when it is done.
    pub(crate) fn save_later(&self, pod: &PodIdentity, record: &Record) {
        drop(self.change(pod.uid(), Content::of(pod, record)));
    }

    /// Removes the record of a pod; absent is fine. Its file goes a little later: one
    /// that is found after a restart is removed then, as this one would.
    pub(crate) fn remove(&self, uid: &str) {
        drop(self.change(uid, None));
    }

    /// `None` if the file is like that already.
    fn change(&self, uid: &str, content: Option<Content>) -> Option<Saving> {
        let known = &mut *self.lock();
        let uid = uid.to_owned();
        if !self.saver.is_unsaved(&uid) {
            let is_so = match (&content, known.get(&uid)) {
                (None, before) => before.is_none(),
                (Some(_), before) => before == Some(&content),
            };
            if is_so {
                return None;
            }
        }
        match &content {
            Some(_) => known.insert(uid.clone(), content.clone()),
            None => known.remove(&uid),
        };
        Some(self.saver.put(uid, content))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Option<Content>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
