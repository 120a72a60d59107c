//! Ctrl-C and its like: a test process that is told to end removes its nodes
//! first.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

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

/// For programs that end in an orderly way by themselves: the first request
/// to end arrives here; the second one acts as usual.
///
/// # Errors
/// When signal handlers cannot be installed.
pub fn receive() -> Result<Receiver<()>> {
    let (sender, receiver) = sync_channel(1);
    *lock(&LISTENER) = Some(sender);
    watch()?;
    Ok(receiver)
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
        if let Some(listener) = lock(&LISTENER).take()
            && listener.try_send(()).is_ok()
        {
            continue;
        }
        for slot in lock(&NODES).values().filter_map(Weak::upgrade) {
            // What cannot be removed now is removed by the next test node.
            if slot.destroy().is_ok() {
                slot.release();
            }
        }
        // Ends the process the way the signal would have.
        let _ = emulate_default_handler(signal);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
