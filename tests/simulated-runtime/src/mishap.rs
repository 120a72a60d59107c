//! [`Mishap`]: what goes wrong with one effect, chosen by its number and not by chance: a
//! call to the runtime, or something that is done to the node.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// What goes wrong with one effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// It fails before it has an effect.
    Fails,
    /// It has its effect, and the answer is lost.
    LosesAnswer,
    /// Who called is killed before it has an effect.
    KillsCaller,
    /// Who called is killed when it has had its effect.
    KillsCallerLate,
    /// It has its effect only when mishaps are over.
    Hangs,
}

impl Mishap {
    /// All kinds.
    pub const ALL: [Mishap; 5] = [
        Mishap::Fails,
        Mishap::LosesAnswer,
        Mishap::KillsCaller,
        Mishap::KillsCallerLate,
        Mishap::Hangs,
    ];
}

/// What an effect meets that is not the runtime's own. A hang is over when it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// Nothing goes wrong.
    Nothing,
    /// It is to fail without being had.
    Failure,
    /// Its answer is to be lost.
    Loss,
    /// Who wanted it is to be killed before it is had.
    EarlyDeath,
    /// Who wanted it is to be killed once it is had.
    LateDeath,
}

/// The one effect that something goes wrong with.
#[derive(Default)]
pub(crate) struct Chosen {
    /// How many effects come before it.
    waits: Mutex<Option<(u64, Mishap)>>,
    has_met: AtomicBool,
    kill: Notify,
    is_over: AtomicBool,
    over: Notify,
}

impl Chosen {
    /// The effect that comes after so many from now on; or none any more.
    pub(crate) fn set(&self, mishap: Option<(u64, Mishap)>) {
        self.is_over.store(mishap.is_none(), Ordering::Relaxed);
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = mishap;
        self.over.notify_waiters();
    }

    /// Waits until mishaps are over.
    pub(crate) async fn until_over(&self) {
        loop {
            let changed = self.over.notified();
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            changed.await;
        }
    }

    /// What goes wrong with the effect that is wanted now.
    pub(crate) fn next(&self) -> Option<Mishap> {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, mishap) = (*waits)?;
        *waits = before.checked_sub(1).map(|before| (before, mishap));
        if waits.is_some() {
            return None;
        }
        self.has_met.store(true, Ordering::Relaxed);
        Some(mishap)
    }

    /// Whether that effect was wanted.
    pub(crate) fn has_met(&self) -> bool {
        self.has_met.load(Ordering::Relaxed)
    }

    /// Has the caller killed, who never hears of the call again.
    pub(crate) async fn kill_caller(&self) -> Infallible {
        self.kill.notify_one();
        std::future::pending().await
    }

    /// Waits until the caller is to be killed.
    pub(crate) async fn is_to_be_killed(&self) {
        self.kill.notified().await;
    }
}
