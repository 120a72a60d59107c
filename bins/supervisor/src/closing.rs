//! Closing descriptors that another process chose, off the main thread.
//!
//! The last close of an open file can block for as long as its owner likes: a TCP
//! socket with `SO_LINGER` and a peer that does not read. Whoever sends one must
//! hold up nobody, least of all the thread that watches all processes. Each process
//! has its own thread for that, which exists only while there is work. One that is
//! stuck when the process starts again is left to itself, and the new run has
//! another.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use confine::discard_datagram;

/// Descriptors of one process that wait to be closed and still let it be heard. It
/// is reached only when a close blocks: then what the process sends stays in its
/// socket, so that at most what one burst displaced comes on top.
const MAX_WAITING: usize = 8;

/// Little is done there.
const STACK_BYTES: usize = 64 * 1024;

/// What may block.
#[derive(Debug)]
pub(crate) enum Work {
    /// Close it.
    Close(OwnedFd),
    /// Take the first datagram of this socket and close what it carries.
    Discard(Arc<UnixDatagram>),
    /// Close this socket, and with it what all its datagrams carry.
    Leave(Arc<UnixDatagram>),
}

/// The closing thread of one process.
#[derive(Debug, Default)]
pub(crate) struct Closer(Arc<Mutex<State>>);

impl Work {
    /// Of [`MAX_WAITING`]. The first datagram can only be discarded once, so the
    /// socket must be left alone until that is done.
    fn weight(&self) -> usize {
        match self {
            Work::Close(_) => 1,
            Work::Discard(_) | Work::Leave(_) => MAX_WAITING,
        }
    }
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Work>,
    /// Weight of these and of what is being done.
    unfinished: usize,
    runs: bool,
    /// The last try to start the thread failed, which is logged once.
    cannot_run: bool,
    /// What this process had open when it last handed something over.
    #[cfg(test)]
    open_files: Vec<std::path::PathBuf>,
}

impl Closer {
    /// Has it done; never waits.
    pub(crate) fn hand_over(&self, work: Work) {
        {
            let mut state = lock(&self.0);
            #[cfg(test)]
            {
                state.open_files = tests::open_files();
            }
            state.unfinished += work.weight();
            state.waiting.push_back(work);
        }
        self.run();
    }

    /// Whether the socket of the process must be left alone for now.
    pub(crate) fn is_behind(&self) -> bool {
        self.run();
        lock(&self.0).unfinished >= MAX_WAITING
    }

    /// Whether everything was done.
    pub(crate) fn is_idle(&self) -> bool {
        self.run();
        lock(&self.0).unfinished == 0
    }

    /// Starts the thread where there is work and none.
    fn run(&self) {
        let mut state = lock(&self.0);
        if state.runs || state.waiting.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new()
            .name("closing".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || work_off(&shared));
        // Detached: it ends with its work, or with the supervisor. If it cannot be
        // started everything waits; it is tried again when it is asked next.
        state.runs = thread.is_ok();
        if let Err(error) = &thread
            && !state.cannot_run
        {
            tracing::warn!(%error, "cannot start a thread that closes descriptors");
        }
        state.cannot_run = thread.is_err();
    }
}

fn work_off(shared: &Mutex<State>) {
    loop {
        let work = {
            let mut state = lock(shared);
            let Some(work) = state.waiting.pop_front() else {
                state.runs = false;
                return;
            };
            work
        };
        let weight = work.weight();
        match work {
            Work::Close(descriptor) => drop(descriptor),
            // If it failed there is nothing to discard.
            Work::Discard(socket) => drop(discard_datagram(&socket)),
            Work::Leave(socket) => drop(socket),
        }
        lock(shared).unfinished -= weight;
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Nothing panics while it is held.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    impl Closer {
        /// What this process had open when work was last handed over: of that, no
        /// close by the closing thread is the last.
        pub(crate) fn open_at_hand_over(&self) -> Vec<PathBuf> {
            lock(&self.0).open_files.clone()
        }
    }

    pub(super) fn open_files() -> Vec<PathBuf> {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap();
        entries
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .collect()
    }
}
