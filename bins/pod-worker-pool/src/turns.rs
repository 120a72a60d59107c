//! Turns at the runtime: heavy calls wait until it is theirs to be made. Who is next
//! is decided by the crate of the same name; here is who waits, and what is known of pods.
//!
//! Nobody watches the clock for those who wait: each of them does, so that turns go
//! on as long as anybody wants one.

pub(crate) mod runtime;
mod status_line;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[cfg(test)]
use ::turns::Figures;
use ::turns::{Ask, Call, Purpose, Queue, Ticket};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// All turns at one runtime. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Turns(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    begun: Instant,
    state: Mutex<State>,
    /// Tells those who wait that the next look is earlier than they know.
    is_earlier: Notify,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    /// Those who wait. One whose sender is dropped has been withdrawn.
    waiting: HashMap<Ticket, oneshot::Sender<()>>,
    /// Pods with a worker, by UID.
    pods: HashMap<Arc<str>, Standing>,
    /// When to look again, as of the last look: those who wait all do then.
    next_look: Option<Duration>,
}

/// What is known of a pod.
#[derive(Clone, Copy, Debug)]
struct Standing {
    is_critical: bool,
    purpose: Purpose,
}

/// Nobody wants the call any more, so it was never made.
#[derive(Debug)]
pub(crate) struct Withdrawn;

impl Turns {
    /// Turns at a runtime on a machine with so many processors.
    pub(crate) fn new(processors: usize) -> Turns {
        Turns(Arc::new(Inner {
            begun: Instant::now(),
            state: Mutex::new(State {
                queue: Queue::new(processors),
                waiting: HashMap::new(),
                pods: HashMap::new(),
                next_look: None,
            }),
            is_earlier: Notify::new(),
        }))
    }

    /// A step of a pod begins. What an earlier step wanted to start and did not begin
    /// is not wanted any more: nobody is left who would hear the answer.
    pub(crate) fn step_begins(&self, uid: &str, is_critical: bool, purpose: Purpose) {
        let mut state = self.lock();
        let standing = Standing {
            is_critical,
            purpose,
        };
        state.pods.insert(uid.into(), standing);
        withdraw(&mut state, uid);
    }

    /// No step of a pod follows. What the last one wanted to start and did not begin is not
    /// wanted any more.
    pub(crate) fn steps_end(&self, uid: &str) {
        withdraw(&mut self.lock(), uid);
    }

    /// The pod has no worker any more.
    pub(crate) fn forget_pod(&self, uid: &str) {
        self.lock().pods.remove(uid);
    }

    /// How many calls wait and run.
    #[cfg(test)]
    pub(crate) fn figures(&self) -> Figures {
        self.lock().queue.figures()
    }

    /// A line for `bulkhead status`: the limit, and what runs and waits.
    #[must_use]
    pub(crate) fn status_line(&self) -> String {
        let state = self.lock();
        status_line::of(state.queue.figures(), &state.queue.by_call())
    }

    /// Waits for a turn. It is given back when the answer is dropped; dropping the
    /// future gives up the place in the queue.
    pub(crate) async fn take(
        &self,
        call: Call,
        uid: Option<&str>,
        purpose: Option<Purpose>,
    ) -> Result<Turn, Withdrawn> {
        let (turn, mut begins) = self.ask(call, uid, purpose);
        loop {
            // Before it is asked when, so that nothing is missed in between.
            let is_earlier = self.0.is_earlier.notified();
            let next_look = self.lock().next_look.map(|at| self.0.begun + at);
            tokio::select! {
                biased;
                begun = &mut begins => return begun.map(|()| turn).map_err(|_| Withdrawn),
                // Cancel-safe: what it tells is found at the next round too.
                () = is_earlier => {}
                // Cancel-safe: a sleep has no state that could be lost.
                () = clock::sleep_until(next_look) => self.admit(&mut self.lock()),
            }
        }
    }

    fn ask(
        &self,
        call: Call,
        uid: Option<&str>,
        purpose: Option<Purpose>,
    ) -> (Turn, oneshot::Receiver<()>) {
        let (begin, begins) = oneshot::channel();
        let mut state = self.lock();
        let known = uid.and_then(|uid| state.pods.get_key_value(uid));
        let ask = Ask {
            call,
            // What is done to a pod without a worker clears it away.
            purpose: purpose
                .or_else(|| known.map(|(_, standing)| standing.purpose))
                .unwrap_or(Purpose::End),
            pod: known.map(|(uid, _)| Arc::clone(uid)),
            is_critical: known.is_some_and(|(_, standing)| standing.is_critical),
        };
        let ticket = state.queue.ask(ask, self.now());
        state.waiting.insert(ticket, begin);
        let turn = Turn {
            turns: self.clone(),
            ticket,
        };
        self.admit(&mut state);
        (turn, begins)
    }

    fn admit(&self, state: &mut State) {
        let now = self.now();
        for ticket in state.queue.admit(now) {
            // One who is gone gives the turn back by himself.
            let begin = state.waiting.remove(&ticket);
            let _ = begin.map(|begin| begin.send(()));
        }
        let next_look = state.queue.next_look(now);
        if next_look.is_some_and(|at| state.next_look.is_none_or(|known| at < known)) {
            self.0.is_earlier.notify_waiters();
        }
        state.next_look = next_look;
    }

    fn now(&self) -> Duration {
        self.0.begun.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn withdraw(state: &mut State, uid: &str) {
    for ticket in state.queue.withdraw(uid) {
        state.waiting.remove(&ticket);
    }
}

/// A place in the queue, and later the turn itself.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Turns,
    ticket: Ticket,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        state.queue.leave(self.ticket);
        state.waiting.remove(&self.ticket);
        self.turns.admit(&mut state);
    }
}
