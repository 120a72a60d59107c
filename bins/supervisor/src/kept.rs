//! Connections that outlive the process that made them, so that what was asked for
//! over them is carried out although nobody waits for the answer.
//!
//! Only of pod-worker-pool: containerd kills a container that it just started, or
//! loses a SIGTERM, when the connection of its caller is closed in that moment.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use tokio::time::{Duration, Instant};
use topology::Process;

/// Lives whose connections are kept: one that crashes again and again must not
/// collect descriptors.
const MAX_KEPT: usize = 4;

/// How long after the next life has a connection the last one is kept: longer than
/// any call but the pull of an image takes.
const KEPT_FOR: Duration = Duration::from_secs(300);

/// The connections, those of the newest life last.
#[derive(Debug, Default)]
pub(crate) struct Kept(VecDeque<Connection>);

#[derive(Debug)]
struct Connection {
    pid: i32,
    /// When a later life had its own.
    succeeded_at: Option<Instant>,
    /// Never used, only held.
    _descriptor: OwnedFd,
}

impl Kept {
    /// Takes a connection of the life `pid` of a process. One that the same life
    /// had before is of no use any more.
    pub(crate) fn keep(
        &mut self,
        process: Process,
        pid: Option<i32>,
        descriptor: OwnedFd,
        now: Instant,
    ) {
        let Some(pid) = pid.filter(|_| process == Process::PodWorkerPool) else {
            return;
        };
        self.0.retain(|connection| connection.pid != pid);
        for connection in &mut self.0 {
            connection.succeeded_at.get_or_insert(now);
        }
        self.0.push_back(Connection {
            pid,
            succeeded_at: None,
            _descriptor: descriptor,
        });
        if self.0.len() > MAX_KEPT {
            self.0.pop_front();
        }
    }

    /// Lets go of those that were kept long enough.
    pub(crate) fn expire(&mut self, now: Instant) {
        self.0.retain(|connection| {
            let succeeded_at = connection.succeeded_at;
            succeeded_at.is_none_or(|at| now.duration_since(at) < KEPT_FOR)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// The far end of a connection that was given to be kept.
    fn keep(kept: &mut Kept, process: Process, pid: i32, now: Instant) -> UnixStream {
        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        kept.keep(process, Some(pid), near.into(), now);
        far
    }

    fn is_open(far: &mut UnixStream) -> bool {
        match far.read(&mut [0]) {
            Ok(bytes) => bytes > 0,
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }

    #[test]
    fn the_connection_of_a_life_outlives_it_for_a_while() {
        let (mut kept, begun) = (Kept::default(), Instant::now());
        let mut first = keep(&mut kept, Process::PodWorkerPool, 1, begun);
        kept.expire(begun + 10 * KEPT_FOR);
        assert!(is_open(&mut first), "no other life has come");
        let later = begun + 10 * KEPT_FOR;
        let mut second = keep(&mut kept, Process::PodWorkerPool, 2, later);
        kept.expire(later + KEPT_FOR / 2);
        assert!(is_open(&mut first) && is_open(&mut second));
        kept.expire(later + KEPT_FOR);
        assert!(!is_open(&mut first) && is_open(&mut second));
    }

    #[test]
    fn one_life_has_one_connection_and_only_some_lives_have() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        let mut broken = keep(&mut kept, Process::PodWorkerPool, 1, now);
        let mut first = keep(&mut kept, Process::PodWorkerPool, 1, now);
        assert!(!is_open(&mut broken) && is_open(&mut first));
        for pid in 2..=4 {
            keep(&mut kept, Process::PodWorkerPool, pid, now);
        }
        assert!(is_open(&mut first));
        keep(&mut kept, Process::PodWorkerPool, 5, now);
        assert!(!is_open(&mut first));
        assert!(!is_open(&mut keep(&mut kept, Process::Pleg, 6, now)));
    }
}
