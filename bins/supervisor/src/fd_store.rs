//! The descriptor store of sd_notify(3) (`FDSTORE=1`), as far as it is needed:
//! connections that outlive the process that made them, so that what was asked for
//! over them is carried out although nobody waits for the answer.
//!
//! Only of pod-worker-pool. One is its lock that delays a shutdown of the node, which must
//! not end with a run of it. The others are connections to the runtime: containerd kills a
//! container that it just started, or loses a SIGTERM, when the connection of its caller is
//! closed in that moment.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use tokio::time::{Duration, Instant};
use topology::Process;

use crate::notify::DescriptorName;

/// Runs whose connections are kept: one that crashes again and again must not
/// collect descriptors.
const MAX_CONNECTIONS: usize = 4;

/// How long after the next run has a connection the last one is kept: longer than
/// any call but the pull of an image takes.
const KEPT_FOR: Duration = Duration::from_secs(300);

/// What is held for pod-worker-pool.
#[derive(Debug, Default)]
pub(crate) struct FdStore {
    /// Those of the newest run last.
    connections: VecDeque<Connection>,
    /// The lock that delays a shutdown of the node.
    shutdown: Option<OwnedFd>,
}

#[derive(Debug)]
struct Connection {
    pid: i32,
    /// When a later run had its own.
    succeeded_at: Option<Instant>,
    /// Never used, only held.
    descriptor: OwnedFd,
}

impl FdStore {
    /// Takes a connection of the run `pid` of a process. One that the same run
    /// had before is of no use any more. Returns what is not to be kept: its close
    /// may block, so the caller chooses where.
    pub(crate) fn store(
        &mut self,
        process: Process,
        pid: Option<i32>,
        (name, descriptor): (DescriptorName, OwnedFd),
        now: Instant,
    ) -> Vec<OwnedFd> {
        let Some(pid) = pid.filter(|_| process == Process::PodWorkerPool) else {
            return vec![descriptor];
        };
        if name == DescriptorName::Shutdown {
            return self.shutdown.replace(descriptor).into_iter().collect();
        }
        let mut released = self.release(|connection| connection.pid == pid);
        for connection in &mut self.connections {
            connection.succeeded_at.get_or_insert(now);
        }
        self.connections.push_back(Connection {
            pid,
            succeeded_at: None,
            descriptor,
        });
        if self.connections.len() > MAX_CONNECTIONS {
            released.extend(self.connections.pop_front().map(|oldest| oldest.descriptor));
        }
        released
    }

    /// Lets go of the lock that delays a shutdown; to be closed by the caller.
    pub(crate) fn release_shutdown(&mut self, process: Process) -> Vec<OwnedFd> {
        let is_owner = process == Process::PodWorkerPool;
        let lock = is_owner.then(|| self.shutdown.take()).flatten();
        lock.into_iter().collect()
    }

    /// Lets go of those that were kept long enough; to be closed by the caller.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<OwnedFd> {
        self.release(|connection| {
            let succeeded_at = connection.succeeded_at;
            succeeded_at.is_some_and(|at| now.duration_since(at) >= KEPT_FOR)
        })
    }

    fn release(&mut self, which: impl Fn(&Connection) -> bool) -> Vec<OwnedFd> {
        let (released, held) = self
            .connections
            .drain(..)
            .partition(|connection| which(connection));
        self.connections = held;
        let released: VecDeque<Connection> = released;
        released
            .into_iter()
            .map(|released| released.descriptor)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// The far end of a connection that was given to be kept.
    fn store(fd_store: &mut FdStore, process: Process, pid: i32, now: Instant) -> UnixStream {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let named = (DescriptorName::Runtime, near.into());
        drop(fd_store.store(process, Some(pid), named, now));
        far
    }

    fn is_open(far: &mut UnixStream) -> bool {
        match far.read(&mut [0]) {
            Ok(bytes) => bytes > 0,
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }

    #[test]
    fn the_connection_of_a_run_outlives_it_for_a_while() {
        let (mut fd_store, begun) = (FdStore::default(), Instant::now());
        let mut first = store(&mut fd_store, Process::PodWorkerPool, 1, begun);
        drop(fd_store.expire(begun + 10 * KEPT_FOR));
        assert!(is_open(&mut first), "no other run has come");
        let later = begun + 10 * KEPT_FOR;
        let mut second = store(&mut fd_store, Process::PodWorkerPool, 2, later);
        drop(fd_store.expire(later + KEPT_FOR / 2));
        assert!(is_open(&mut first) && is_open(&mut second));
        drop(fd_store.expire(later + KEPT_FOR));
        assert!(!is_open(&mut first) && is_open(&mut second));
    }

    #[test]
    fn one_run_has_one_connection_and_only_some_runs_have() {
        let (mut fd_store, now) = (FdStore::default(), Instant::now());
        let mut broken = store(&mut fd_store, Process::PodWorkerPool, 1, now);
        let mut first = store(&mut fd_store, Process::PodWorkerPool, 1, now);
        assert!(!is_open(&mut broken) && is_open(&mut first));
        for pid in 2..=4 {
            store(&mut fd_store, Process::PodWorkerPool, pid, now);
        }
        assert!(is_open(&mut first));
        store(&mut fd_store, Process::PodWorkerPool, 5, now);
        assert!(!is_open(&mut first));
        assert!(!is_open(&mut store(&mut fd_store, Process::Pleg, 6, now)));
    }

    #[test]
    fn the_lock_of_a_shutdown_is_held_over_restarts_until_it_is_released() {
        let (mut fd_store, now) = (FdStore::default(), Instant::now());
        let hold = |fd_store: &mut FdStore, process, pid| {
            let (near, far) = UnixStream::pair().unwrap();
            far.set_nonblocking(true).unwrap();
            let named = (DescriptorName::Shutdown, near.into());
            drop(fd_store.store(process, Some(pid), named, now));
            far
        };
        let mut first = hold(&mut fd_store, Process::PodWorkerPool, 1);
        for pid in 2..10 {
            store(&mut fd_store, Process::PodWorkerPool, pid, now);
        }
        drop(fd_store.expire(now + 10 * KEPT_FOR));
        assert!(is_open(&mut first));
        // Nobody else has such a lock, nor ends it.
        assert!(!is_open(&mut hold(&mut fd_store, Process::Pleg, 11)));
        drop(fd_store.release_shutdown(Process::Pleg));
        assert!(is_open(&mut first));
        let mut second = hold(&mut fd_store, Process::PodWorkerPool, 10);
        assert!(!is_open(&mut first));
        drop(fd_store.release_shutdown(Process::PodWorkerPool));
        assert!(!is_open(&mut second));
    }
}
