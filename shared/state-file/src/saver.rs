//! The one way in which a process saves its state while it goes on working: the
//! newest value of each key is written on a thread that may hang, and who has to
//! know that a value is in its file waits for that, for a bounded time.
//!
//! ```text
//!   (saved) --put--> Waits --the thread takes it--> under way --written--> (saved)
//!                      ^                              |   |
//!                      +--a newer value was put-------+   | refused
//!                      |                                  v
//!                      +----RETRY_PAUSE, or a put----- Refused
//! ```
//!
//! One write is under way at a time: a disk that hangs gets no second thread. A value
//! that is replaced before its turn is never written, and its turn goes to the newer
//! one. What the disk refuses is tried again until it is written or replaced. Trouble
//! is logged once when it begins and once when it is over.
//!
//! What is saved, when, and what may be told only after that, is decided by the owner.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::task::JoinError;
use tokio::time::Instant;

use crate::error::StateFileError;

/// How long a value may take to its file while somebody waits for it. Who waits goes on
/// then: a disk that hangs must not hold up what the node has to do. Once a disk is known
/// to hang, nobody waits for it any more until it answers again.
pub const SAVE_MAY_TAKE: Duration = Duration::from_secs(5);

/// Wait before what the disk refused is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

/// So long the end of a [`Writer`] waits for the write that is under way: whoever reads
/// the file next, in the same process, shall find it whole. A disk that hangs must not
/// hold up the end of the process.
const LAST_WRITE_MAY_TAKE: Duration = Duration::from_secs(2);

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
pub struct Saver<K, V>(Arc<Shared<K, V>>);

/// Writes them. Once it is dropped no write begins, and none is under way unless the
/// disk hangs.
pub struct Writer<K, V> {
    shared: Arc<Shared<K, V>>,
    disk: Arc<Disk<K, V>>,
}

/// A value on its way to its file.
#[derive(Debug)]
pub struct Saving {
    result: oneshot::Receiver<Result<(), NotSaved>>,
    until: Instant,
}

struct Shared<K, V> {
    /// What is saved, for people: "verdicts", "admission records".
    what: &'static str,
    state: Mutex<State<K, V>>,
    /// Wakes the writer.
    changed: Notify,
}

struct State<K, V> {
    unsaved: BTreeMap<K, Unsaved<V>>,
    puts: u64,
    trouble: Option<Trouble>,
}

/// What keeps values from being saved.
#[derive(Clone, Debug)]
enum Trouble {
    Refused(Arc<StateFileError>),
    Hangs,
}

/// The newest value of a key, which is not known to be in its file.
struct Unsaved<V> {
    value: Arc<V>,
    /// Number of the put that brought it.
    number: u64,
    /// Number of the put that it has its turn from.
    turn: u64,
    is_refused: bool,
    waiting: Vec<(u64, oneshot::Sender<Result<(), NotSaved>>)>,
}

/// One value to be written.
struct Order<K, V> {
    key: K,
    value: Arc<V>,
    number: u64,
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
            state: Mutex::new(State {
                unsaved: BTreeMap::new(),
                puts: 0,
                trouble: None,
            }),
            changed: Notify::new(),
        });
        let writer = Writer {
            shared: Arc::clone(&shared),
            disk: Arc::new(Disk {
                write: Box::new(write),
                state: Mutex::default(),
                idle: Condvar::new(),
            }),
        };
        (Saver(shared), writer)
    }

    /// Has this value saved in the place of every earlier one of its key. Never waits;
    /// dropping what it returns changes nothing.
    pub fn put(&self, key: K, value: V) -> Saving {
        let (waiting, result) = oneshot::channel();
        let state = &mut *self.0.lock();
        state.puts += 1;
        let number = state.puts;
        let before = state.unsaved.remove(&key);
        let turn = before.as_ref().filter(|before| !before.is_refused);
        let turn = turn.map_or(number, |before| before.turn);
        let mut all = before.map(|before| before.waiting).unwrap_or_default();
        all.retain(|(_, waiting)| !waiting.is_closed());
        match state.trouble {
            // Who waited would not be told anything else later.
            Some(Trouble::Hangs) => drop(waiting.send(Err(NotSaved::Late))),
            _ => all.push((number, waiting)),
        }
        let unsaved = Unsaved {
            value: Arc::new(value),
            number,
            turn,
            is_refused: false,
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
        let what = self.0.what;
        Some(match self.0.lock().trouble.as_ref()? {
            Trouble::Refused(error) => {
                format!("{what} cannot be saved: {}", telemetry::chain(&**error))
            }
            Trouble::Hangs => format!("{what} cannot be saved: {}", hang()),
        })
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
        let result = tokio::time::timeout_at(self.until, &mut self.result).await;
        // Without a writer nobody ever will.
        result
            .unwrap_or(Ok(Err(NotSaved::Late)))
            .unwrap_or(Err(NotSaved::Late))
    }
}

impl<K: Ord + Clone + Send + 'static, V: Send + Sync + 'static> Writer<K, V> {
    /// Writes what is put, for ever.
    pub async fn run(self) -> Infallible {
        let mut retry_at = None;
        loop {
            if !self.shared.has_refused() {
                retry_at = None;
            } else if *retry_at.get_or_insert_with(|| Instant::now() + RETRY_PAUSE)
                <= Instant::now()
            {
                self.shared.try_refused_again();
                retry_at = None;
            }
            if let Some(order) = self.shared.next() {
                self.carry_out(order).await;
                continue;
            }
            let changed = self.shared.changed.notified();
            match retry_at {
                // Cancel-safe: a value that nobody was woken for is found all the same.
                Some(at) => drop(tokio::time::timeout_at(at, changed).await),
                None => changed.await,
            }
        }
    }

    async fn carry_out(&self, order: Order<K, V>) {
        let Order { key, value, number } = order;
        let (disk, of_thread) = (Arc::clone(&self.disk), key.clone());
        let mut writing = blocking::spawn(move || disk.write(&of_thread, &value));
        let result = match tokio::time::timeout(SAVE_MAY_TAKE, &mut writing).await {
            Ok(result) => result,
            Err(_) => {
                self.shared.hangs();
                writing.await
            }
        };
        // It panicked, or the process is ending: nothing is known to be written.
        let interrupted = |error: JoinError| {
            Err(StateFileError::Interrupted {
                what: self.shared.what,
                reason: error.to_string(),
            })
        };
        let result = result.unwrap_or_else(interrupted).map_err(Arc::new);
        self.shared.carried_out(&key, number, result);
    }
}

impl<K, V> Drop for Writer<K, V> {
    fn drop(&mut self) {
        self.disk.close();
    }
}

impl<K: Ord + Clone, V> Shared<K, V> {
    /// The value whose turn it is.
    fn next(&self) -> Option<Order<K, V>> {
        let state = self.lock();
        let waits = state.unsaved.iter().filter(|(_, it)| !it.is_refused);
        let (key, unsaved) = waits.min_by_key(|(_, unsaved)| unsaved.turn)?;
        Some(Order {
            key: key.clone(),
            value: Arc::clone(&unsaved.value),
            number: unsaved.number,
        })
    }

    /// A write ended. A value that was put meanwhile waits for its own.
    fn carried_out(&self, key: &K, number: u64, result: Result<(), Arc<StateFileError>>) {
        let state = &mut *self.lock();
        if let Some(unsaved) = state.unsaved.get_mut(key) {
            let (told, waiting) = std::mem::take(&mut unsaved.waiting)
                .into_iter()
                .partition(|(of, _)| *of <= number);
            unsaved.waiting = waiting;
            for (_, waiting) in told {
                // Who waited may have gone on.
                let _ = waiting.send(result.clone().map_err(NotSaved::Refused));
            }
            if unsaved.number == number {
                unsaved.is_refused = result.is_err();
                if result.is_ok() {
                    state.unsaved.remove(key);
                }
            } else {
                // Others have waited for longer than what came meanwhile.
                unsaved.turn = unsaved.number;
            }
        }
        self.note(state, result.err());
    }

    /// Says once that values cannot be saved, and once that they are again.
    fn note(&self, state: &mut State<K, V>, error: Option<Arc<StateFileError>>) {
        let what = self.what;
        match (&state.trouble, error) {
            (Some(Trouble::Refused(_)), Some(_)) => {}
            (_, Some(error)) => {
                tracing::warn!(
                    error = telemetry::chain(&*error),
                    "cannot save {what}; the process goes on, and it is tried again"
                );
                state.trouble = Some(Trouble::Refused(error));
            }
            (Some(_), None) if state.unsaved.values().all(|it| !it.is_refused) => {
                tracing::info!("{what} can be saved again");
                state.trouble = None;
            }
            // The disk answers, and refuses something else.
            (Some(Trouble::Hangs), None) => state.trouble = None,
            (_, None) => {}
        }
    }

    /// The write that is under way takes too long: nobody waits for it any more.
    fn hangs(&self) {
        let state = &mut *self.lock();
        tracing::warn!(
            error = hang(),
            "cannot save {}; the process goes on",
            self.what
        );
        state.trouble = Some(Trouble::Hangs);
        for unsaved in state.unsaved.values_mut() {
            for (_, waiting) in unsaved.waiting.drain(..) {
                // Who waited may have gone on.
                let _ = waiting.send(Err(NotSaved::Late));
            }
        }
    }

    fn has_refused(&self) -> bool {
        self.lock().unsaved.values().any(|it| it.is_refused)
    }

    fn try_refused_again(&self) {
        for unsaved in self.lock().unsaved.values_mut() {
            unsaved.is_refused = false;
        }
    }
}

impl<K, V> Shared<K, V> {
    fn lock(&self) -> MutexGuard<'_, State<K, V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hang() -> String {
    let seconds = SAVE_MAY_TAKE.as_secs();
    format!("the disk has not answered for more than {seconds} s")
}

/// Brings the value of a key to its file.
type Write<K, V> = Box<dyn Fn(&K, &V) -> Result<(), StateFileError> + Send + Sync>;

/// What the thread that writes has of a [`Writer`].
struct Disk<K, V> {
    write: Write<K, V>,
    state: Mutex<DiskState>,
    idle: Condvar,
}

#[derive(Debug, Default)]
struct DiskState {
    is_closed: bool,
    is_busy: bool,
}

impl<K, V> Disk<K, V> {
    fn write(&self, key: &K, value: &V) -> Result<(), StateFileError> {
        {
            let mut state = self.lock();
            if state.is_closed {
                return Ok(());
            }
            state.is_busy = true;
        }
        let _idle = Idle(self);
        (self.write)(key, value)
    }

    /// Lets no write begin any more, and waits for the one that is under way.
    fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let waited = self
            .idle
            .wait_timeout_while(state, LAST_WRITE_MAY_TAKE, |state| state.is_busy);
        drop(waited);
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a write, be it with a panic.
struct Idle<'a, K, V>(&'a Disk<K, V>);

impl<K, V> Drop for Idle<'_, K, V> {
    fn drop(&mut self) {
        self.0.lock().is_busy = false;
        self.0.idle.notify_all();
    }
}

impl<K, V> Clone for Saver<K, V> {
    fn clone(&self) -> Self {
        Saver(Arc::clone(&self.0))
    }
}

impl<K, V> fmt::Debug for Saver<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Saver").field(&self.0.what).finish()
    }
}

impl<K, V> fmt::Debug for Writer<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Writer").field(&self.shared.what).finish()
    }
}

#[cfg(test)]
mod tests;
