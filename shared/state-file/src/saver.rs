//! The one way in which a process saves its state while it goes on working: the
//! newest value of each key is written on a thread that may hang, and who has to
//! know that a value is in its file waits for that, for a bounded time.
//!
//! One write is under way at a time: a disk that hangs gets no second thread. The writer
//! goes round all keys that are not saved, so a value that is replaced before its turn is
//! never written, and a key that changes all the time holds up no other. What the disk
//! refuses is tried again in the next round, after [`RETRY_PAUSE`] at the latest.
//!
//! What is saved, when, and what may be told only after that, is decided by the owner.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::StateFileError;

/// How long a value may take to its file while somebody waits for it. Who waits goes on
/// then: a disk that hangs must not hold up what the node has to do. Once a disk is known
/// to hang, nobody begins to wait for it until it answers again.
pub const SAVE_MAY_TAKE: Duration = Duration::from_secs(5);

/// Wait before what the disk refused is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// Why a value is not known to be in its file.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NotSaved {
    /// The file system refused. It is tried again.
    #[error("the file system refuses to save it")]
    Refused(#[source] Arc<StateFileError>),
    /// The file system has not answered yet. The write goes on.
    #[error("the file system has not saved it in time")]
    Late,
}

/// Takes the values that are to be saved. Clones share them.
#[derive(Debug)]
pub struct Saver<K, V>(Arc<Shared<K, V>>);

/// Writes them. Once it is dropped no write begins.
#[derive(Debug)]
pub struct Writer<K, V>(Arc<Shared<K, V>>);

/// Who waits for a value is told here.
type Waiting = oneshot::Sender<Result<(), NotSaved>>;

/// A value on its way to its file.
#[derive(Debug)]
pub struct Saving {
    result: oneshot::Receiver<Result<(), NotSaved>>,
    until: Instant,
}

/// Brings the value of a key to its file.
type Write<K, V> = dyn Fn(&K, &V) -> Result<(), StateFileError> + Send + Sync;

struct Shared<K, V> {
    /// What is saved, for people: "verdicts", "admission records".
    what: &'static str,
    write: Box<Write<K, V>>,
    state: Mutex<State<K, V>>,
    /// Wakes the writer.
    changed: Notify,
}

struct State<K, V> {
    unsaved: BTreeMap<K, Unsaved<V>>,
    /// The write that is under way takes too long.
    hangs: bool,
    /// Why something is not saved, for people.
    trouble: Option<String>,
    is_writer_gone: bool,
}

/// The newest value of a key, which is not known to be in its file.
struct Unsaved<V> {
    value: Arc<V>,
    waiting: Vec<Waiting>,
}

impl<K: Ord + Clone + Send + 'static, V: Send + Sync + 'static> Saver<K, V> {
    /// `what` names in logs what is saved; `write` brings the value of a key to its file
    /// and may block.
    pub fn new(
        what: &'static str,
        write: impl Fn(&K, &V) -> Result<(), StateFileError> + Send + Sync + 'static,
    ) -> (Saver<K, V>, Writer<K, V>) {
        let shared = Arc::new(Shared {
            what,
            write: Box::new(write),
            state: Mutex::new(State {
                unsaved: BTreeMap::new(),
                hangs: false,
                trouble: None,
                is_writer_gone: false,
            }),
            changed: Notify::new(),
        });
        (Saver(Arc::clone(&shared)), Writer(shared))
    }

    /// Has this value saved in the place of every earlier one of its key. Never waits;
    /// dropping what it returns changes nothing.
    pub fn put(&self, key: K, value: V) -> Saving {
        let (waiting, result) = oneshot::channel();
        let state = &mut *self.0.lock();
        let before = state.unsaved.remove(&key);
        let mut all = before.map_or_else(Vec::new, |before| before.waiting);
        all.retain(|waiting| !waiting.is_closed());
        if !state.hangs {
            all.push(waiting);
        }
        let unsaved = Unsaved {
            value: Arc::new(value),
            waiting: all,
        };
        state.unsaved.insert(key, unsaved);
        self.0.changed.notify_one();
        Saving {
            result,
            until: Instant::now() + SAVE_MAY_TAKE,
        }
    }

    /// Whether the newest value of this key is not known to be in its file.
    #[must_use]
    pub fn is_unsaved(&self, key: &K) -> bool {
        self.0.lock().unsaved.contains_key(key)
    }

    /// The keys whose newest value is not known to be in its file.
    #[must_use]
    pub fn unsaved(&self) -> Vec<K> {
        self.0.lock().unsaved.keys().cloned().collect()
    }

    /// What keeps values from being saved, for people; `None` while all goes well.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let why = self.0.lock().trouble.clone()?;
        Some(format!("{} cannot be saved: {why}", self.0.what))
    }
}

impl Saving {
    /// Waits until this value or a newer one of the same key is in its file.
    /// Cancel-safe; not to be called again once it has returned.
    ///
    /// # Errors
    /// When the file system refuses, or has not answered [`SAVE_MAY_TAKE`] after the
    /// value was put. It is saved later then.
    pub async fn finished(&mut self) -> Result<(), NotSaved> {
        match timeout_at(self.until, &mut self.result).await {
            Ok(Ok(result)) => result,
            // Nobody will without a writer, nor soon on a disk that hangs.
            Ok(Err(_)) | Err(_) => Err(NotSaved::Late),
        }
    }
}

impl<K: Ord + Clone + Send + 'static, V: Send + Sync + 'static> Writer<K, V> {
    /// Writes what is put, for ever.
    pub async fn run(self) -> Infallible {
        let saver = Saver(Arc::clone(&self.0));
        loop {
            let changed = self.0.changed.notified();
            match saver.unsaved().is_empty() {
                true => changed.await,
                // Cancel-safe: a value that nobody was woken for is found all the same.
                false => drop(timeout(RETRY_PAUSE, changed).await),
            }
            for key in saver.unsaved() {
                self.save(key).await;
            }
        }
    }

    async fn save(&self, key: K) {
        let Some((value, waiting)) = self.0.newest(&key) else {
            return;
        };
        let (shared, of_key, newest) = (Arc::clone(&self.0), key.clone(), Arc::clone(&value));
        let mut writing = blocking::spawn(move || shared.write(&of_key, &newest));
        let result = match timeout(SAVE_MAY_TAKE, &mut writing).await {
            Ok(result) => result,
            Err(_) => {
                self.0.hangs();
                writing.await
            }
        };
        // It panicked, or the process is ending: nothing is known to be written.
        let interrupted = |error| {
            Err(StateFileError::Io {
                action: "write",
                path: self.0.what.into(),
                source: std::io::Error::other(error),
            })
        };
        let result = result.unwrap_or_else(interrupted).map_err(Arc::new);
        self.0.written(&key, &value, &result);
        for waiting in waiting {
            // Who waited may have gone on.
            drop(waiting.send(result.clone().map_err(NotSaved::Refused)));
        }
    }
}

impl<K, V> Drop for Writer<K, V> {
    fn drop(&mut self) {
        self.0.lock().is_writer_gone = true;
    }
}

impl<K: Ord, V> Shared<K, V> {
    /// The newest value of a key, and who waits for it.
    fn newest(&self, key: &K) -> Option<(Arc<V>, Vec<Waiting>)> {
        let state = &mut *self.lock();
        let unsaved = state.unsaved.get_mut(key)?;
        let waiting = std::mem::take(&mut unsaved.waiting);
        Some((Arc::clone(&unsaved.value), waiting))
    }

    /// A write ended. A value that was put meanwhile waits for its own.
    fn written(&self, key: &K, value: &Arc<V>, result: &Result<(), Arc<StateFileError>>) {
        let state = &mut *self.lock();
        state.hangs = false;
        if let Err(error) = result {
            return self.note_trouble(state, telemetry::chain(&**error));
        }
        let newest = state.unsaved.get(key);
        if newest.is_some_and(|newest| Arc::ptr_eq(&newest.value, value)) {
            state.unsaved.remove(key);
        }
        if state.unsaved.is_empty() && state.trouble.take().is_some() {
            tracing::info!("{} can be saved again", self.what);
        }
    }

    /// Nobody waits any more, not even who has just begun to.
    fn hangs(&self) {
        let state = &mut *self.lock();
        state.hangs = true;
        for unsaved in state.unsaved.values_mut() {
            unsaved.waiting.clear();
        }
        let seconds = SAVE_MAY_TAKE.as_secs();
        let why = format!("the disk has not answered for more than {seconds} s");
        self.note_trouble(state, why);
    }
}

impl<K, V> Shared<K, V> {
    fn write(&self, key: &K, value: &V) -> Result<(), StateFileError> {
        let is_writer_gone = self.lock().is_writer_gone;
        match is_writer_gone {
            true => Ok(()),
            false => (self.write)(key, value),
        }
    }

    /// Says once that values cannot be saved.
    fn note_trouble(&self, state: &mut State<K, V>, why: String) {
        if state.trouble.is_none() {
            let what = self.what;
            tracing::warn!(
                error = why,
                "cannot save {what}; the process goes on, and it is tried again"
            );
        }
        state.trouble = Some(why);
    }

    fn lock(&self) -> MutexGuard<'_, State<K, V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V> Clone for Saver<K, V> {
    fn clone(&self) -> Self {
        Saver(Arc::clone(&self.0))
    }
}

impl<K, V> fmt::Debug for Shared<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }
}

#[cfg(test)]
mod tests;
