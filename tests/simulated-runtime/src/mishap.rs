//! [`Mishap`]: what goes wrong with one call, chosen by its number and not by chance.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// What goes wrong with one call.
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
}

impl Mishap {
    /// All kinds.
    pub const ALL: [Mishap; 4] = [
        Mishap::Fails,
        Mishap::LosesAnswer,
        Mishap::KillsCaller,
        Mishap::KillsCallerLate,
    ];
}

/// The one call that something goes wrong with.
#[derive(Default)]
pub(crate) struct Chosen {
    /// How many calls come before it.
    waits: Mutex<Option<(u64, Mishap)>>,
    has_met: AtomicBool,
    kill: Notify,
}

impl Chosen {
    /// The call that comes after so many from now on; or none any more.
    pub(crate) fn set(&self, mishap: Option<(u64, Mishap)>) {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = mishap;
    }

    /// What goes wrong with the call that is made now.
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

    /// Whether that call was made.
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
