//! Ctrl-C and its like: a process that is told to end removes its nodes
//! first. One that wants to end in its own order asks for an [`Interrupt`].

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::Duration;

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::disk;
use crate::interrupt_request;
use crate::slot::Slot;

static NODES: Mutex<BTreeMap<u8, Weak<Slot>>> = Mutex::new(BTreeMap::new());
static LISTENER: Mutex<Option<SyncSender<()>>> = Mutex::new(None);
static WATCHER: Once = Once::new();

/// Has the slot destroyed when the process is told to end.
pub(crate) fn register(slot: &Arc<Slot>) -> Result<()> {
    lock(&NODES).insert(slot.index, Arc::downgrade(slot));
    watch()
}

/// The opposite of [`register`].
pub(crate) fn unregister(slot: &Slot) {
    lock(&NODES).remove(&slot.index);
}

/// Takes the first request to end; the second one acts as usual. Until it is
/// acknowledged every `wait_for` gives up.
#[derive(Debug)]
pub struct Interrupt(Receiver<()>);

impl Interrupt {
    /// Takes the place of the usual end from now on.
    ///
    /// # Errors
    /// When signal handlers cannot be installed.
    pub fn take() -> Result<Self> {
        let (sender, receiver) = sync_channel(1);
        *lock(&LISTENER) = Some(sender);
        watch()?;
        Ok(Self(receiver))
    }

    /// Waits for the request, but no longer than this; whether it came.
    pub fn wait_for(&self, time: Duration) -> bool {
        let came = self.0.recv_timeout(time) != Err(RecvTimeoutError::Timeout);
        if came {
            self.acknowledge();
        }
        came
    }

    /// Whether it was requested; what is waited for from now on is the end
    /// itself, so waiting works again.
    pub fn acknowledge(&self) -> bool {
        interrupt_request::withdraw()
    }
}

fn watch() -> Result<()> {
    let mut result = Ok(());
    WATCHER.call_once(|| {
        result = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .context("cannot handle signals")
            .map(|signals| drop(std::thread::spawn(move || act_on(signals))));
    });
    result
}

fn act_on(mut signals: Signals) {
    for signal in &mut signals {
        if let Some(listener) = lock(&LISTENER).take() {
            interrupt_request::make();
            if listener.try_send(()).is_ok() {
                continue;
            }
        }
        // The removal waits for conditions too.
        interrupt_request::withdraw();
        for slot in lock(&NODES).values().filter_map(Weak::upgrade) {
            // What cannot be removed now is removed by the next test node.
            if slot.destroy().is_ok() {
                slot.release();
            }
        }
        disk::unmount();
        // Ends the process the way the signal would have.
        let _ = emulate_default_handler(signal);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
