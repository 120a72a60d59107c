//! [`SimulatedLogind`]: asked for a shutdown, it waits as long as anybody holds a lock.

use std::io::{ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use system_bus::{Error, Logind, ShutdownSignals};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;

/// How long it waits at most: longer than the pods of any test may take, or pod-worker-pool
/// would write to the configuration of the logind of this machine.
const LONGEST_DELAY: Duration = Duration::from_secs(120);

/// The logind of a simulated node. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct SimulatedLogind(Arc<State>);

#[derive(Debug)]
struct State {
    /// Another one for each bus.
    is_shutting_down: Mutex<watch::Sender<bool>>,
    /// Our end of each lock: it reads the end of the stream once nobody has the other end
    /// open any more.
    locks: Mutex<Vec<UnixStream>>,
    /// Whether the next question is not answered.
    is_silent: AtomicBool,
    /// How long it takes to answer.
    answers_after: Mutex<Duration>,
}

impl Default for State {
    fn default() -> State {
        State {
            is_shutting_down: Mutex::new(watch::Sender::new(false)),
            locks: Mutex::default(),
            is_silent: AtomicBool::new(false),
            answers_after: Mutex::default(),
        }
    }
}

impl SimulatedLogind {
    /// A shutdown is asked for, or cancelled.
    pub fn shut_down(&self, is_wanted: bool) {
        self.sender().send_replace(is_wanted);
    }

    /// The next question whether the node shuts down is not answered.
    pub fn leave_a_question_unanswered(&self) {
        self.0.is_silent.store(true, Ordering::Relaxed);
    }

    /// From now on it takes so long to answer whether the node shuts down.
    pub fn answer_after(&self, delay: Duration) {
        let answers_after = self.0.answers_after.lock();
        *answers_after.unwrap_or_else(PoisonError::into_inner) = delay;
    }

    /// It begins anew: it knows of no shutdown, and tells nobody.
    pub fn restart(&self) {
        self.sender().send_if_modified(|is_wanted| {
            *is_wanted = false;
            false
        });
    }

    /// The bus begins anew: who listens is told nothing more.
    pub fn restart_bus(&self) {
        let mut sender = self.sender();
        let is_wanted = *sender.borrow();
        *sender = watch::Sender::new(is_wanted);
    }

    fn sender(&self) -> MutexGuard<'_, watch::Sender<bool>> {
        let sender = self.0.is_shutting_down.lock();
        sender.unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a shutdown would wait: somebody holds a lock.
    #[must_use]
    pub fn is_delayed(&self) -> bool {
        let mut locks = self.0.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain_mut(|lock| {
            let read = lock.read(&mut [0]);
            read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        });
        !locks.is_empty()
    }
}

#[async_trait]
impl Logind for SimulatedLogind {
    #[expect(
        clippy::unwrap_used,
        reason = "a test cannot go on without its descriptors"
    )]
    async fn delay_shutdown(&self, _who: &str, _why: &str) -> Result<OwnedFd, Error> {
        let (own, lock) = UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        let mut locks = self.0.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.push(own);
        Ok(lock.into())
    }

    async fn longest_delay(&self) -> Result<Duration, Error> {
        Ok(LONGEST_DELAY)
    }

    async fn is_shutting_down(&self) -> Result<bool, Error> {
        let answers_after = self.0.answers_after.lock();
        let delay = *answers_after.unwrap_or_else(PoisonError::into_inner);
        tokio::time::sleep(delay).await;
        if self.0.is_silent.swap(false, Ordering::Relaxed) {
            return Err(Error::NotStarted {
                unit: "systemd-logind.service".to_owned(),
                state: "inactive".to_owned(),
            });
        }
        Ok(*self.sender().borrow())
    }

    async fn signals(&self) -> Result<ShutdownSignals, Error> {
        let changes = WatchStream::from_changes(self.sender().subscribe());
        Ok(ShutdownSignals::new(changes.map(|_| true)))
    }

    async fn reload(&self) -> Result<(), Error> {
        Ok(())
    }
}
