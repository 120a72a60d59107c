//! Readiness, watchdog and shutdown: the `NOTIFY_SOCKET` protocol of sd_notify(3),
//! the same under the supervisor and under plain systemd.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::notify_socket::NotifySocket;

/// Least time between two watchdog messages. The supervisor waits 5 s, and
/// sd_notify(3) recommends half of that: each message costs both sides a few system
/// calls, which is much of what an idle process does.
pub const BEAT_INTERVAL: Duration = Duration::from_secs(2);

/// Longest status line: room for some sentences with a path each. A message that is much
/// longer is ignored.
pub const MAX_STATUS_BYTES: usize = 1000;

/// Where systemd names what it hands to a process, with colons between: what it keeps too.
const KEPT_VARIABLE: &str = "LISTEN_FDNAMES";

/// Connections of earlier runs that are kept beside the one of this run. With a lock that is
/// kept too they are less than what systemd keeps (`FileDescriptorStoreMax`): it keeps the
/// oldest, and refuses the newest, which is the one that counts.
const RUNS_KEPT: usize = 5;

/// Descriptors that outlive a process, by name: what its supervisor keeps of it. Cloning
/// shares them.
#[derive(Clone, Debug, Default)]
pub struct KeptOpen(Arc<Mutex<BTreeMap<String, OwnedFd>>>);

impl KeptOpen {
    /// Closes all, as the end of the supervisor does.
    pub fn close_all(&self) {
        lock(&self.0).clear();
    }
}

/// A process's side of its supervision. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Lifecycle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    supervisor: Option<NotifySocket>,
    shutdown: CancellationToken,
    last_beat: Mutex<Option<Instant>>,
    untold: Mutex<Untold>,
    ready: CancellationToken,
    /// What is kept open where nobody supervises.
    kept: KeptOpen,
}

/// What the supervisor has to be told yet. It goes with each message until one arrives: a
/// supervisor that hangs has a full queue.
#[derive(Debug, Default)]
struct Untold {
    ready: bool,
    status: Option<String>,
    /// What is to be kept open under a name, or else to be closed, in this order.
    kept: Vec<(String, Option<Kept>)>,
}

/// What is to be kept open.
#[derive(Debug)]
struct Kept {
    descriptor: OwnedFd,
    /// Whether systemd is to keep it though its far end is closed.
    is_lock: bool,
}

impl Untold {
    /// What is kept or closed under this name instead of what was not told yet.
    fn keep(&mut self, name: &str, descriptor: Option<Kept>) {
        let is_kept = descriptor.is_some();
        self.kept
            .retain(|(other, before)| other != name || (is_kept && before.is_none()));
        self.kept.push((name.to_owned(), descriptor));
    }

    /// Tells what is to be kept, each in a message of its own, as far as there is room.
    fn tell_kept(&mut self, supervisor: &NotifySocket) {
        while let Some((name, kept)) = self.kept.first() {
            let mut states = match kept {
                Some(_) => vec![NotifyState::FdStore],
                None => vec![NotifyState::FdStoreRemove],
            };
            if kept.as_ref().is_some_and(|kept| kept.is_lock) {
                states.push(NotifyState::Custom("FDPOLL=0"));
            }
            states.push(NotifyState::FdName(name));
            let descriptors: Vec<BorrowedFd<'_>> =
                kept.iter().map(|kept| kept.descriptor.as_fd()).collect();
            match supervisor.send(&states, &descriptors) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!(%error, name, "cannot have a descriptor kept or closed")
                }
            }
            self.kept.remove(0);
        }
    }
}

impl Lifecycle {
    /// Reports to `NOTIFY_SOCKET`, when there is one.
    #[must_use]
    pub fn supervised(shutdown: CancellationToken) -> Lifecycle {
        Lifecycle::new(
            NotifySocket::of_environment("NOTIFY_SOCKET"),
            shutdown,
            KeptOpen::default(),
        )
    }

    /// Reports to nobody: for the simulation and for tests.
    #[must_use]
    pub fn unsupervised(shutdown: CancellationToken) -> Lifecycle {
        Lifecycle::unsupervised_keeping(shutdown, KeptOpen::default())
    }

    /// The same, of a process whose descriptors the next one of its kind finds kept open.
    #[must_use]
    pub fn unsupervised_keeping(shutdown: CancellationToken, kept: KeptOpen) -> Lifecycle {
        Lifecycle::new(None, shutdown, kept)
    }

    fn new(
        supervisor: Option<NotifySocket>,
        shutdown: CancellationToken,
        kept: KeptOpen,
    ) -> Lifecycle {
        Lifecycle(Arc::new(Shared {
            supervisor,
            shutdown,
            last_beat: Mutex::default(),
            untold: Mutex::default(),
            ready: CancellationToken::new(),
            kept,
        }))
    }

    /// Cancelled when the process is to stop. Containers keep running.
    #[must_use]
    pub fn shutdown(&self) -> CancellationToken {
        self.0.shutdown.clone()
    }

    /// Serving has begun: call it once the listener accepts.
    pub fn ready(&self) {
        self.0.ready.cancel();
        lock(&self.0.untold).ready = true;
        self.tell(Some(NotifyState::Watchdog));
    }

    /// Waits until [`Lifecycle::ready`] was called.
    pub async fn until_ready(&self) {
        self.0.ready.cancelled().await;
    }

    /// The main loop is alive. To be called from that loop, at least once a
    /// second; more often costs nothing.
    pub fn beat(&self) {
        let now = Instant::now();
        {
            let mut last = lock(&self.0.last_beat);
            // A little early is fine: the second of two ticks a second apart must count.
            if last.is_some_and(|last| now.duration_since(last) < BEAT_INTERVAL.mul_f64(0.9)) {
                return;
            }
            *last = Some(now);
        }
        self.tell(Some(NotifyState::Watchdog));
    }

    /// Beats for ever, for a main loop that is one task: a beat proves that nothing in it
    /// blocks.
    pub async fn keep_beating(&self) -> Infallible {
        let mut tick = tokio::time::interval(Duration::from_secs(1));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.beat();
        }
    }

    /// When the main loop last told that it is alive; for who supervises it without
    /// a socket, as the simulation does.
    #[must_use]
    pub fn last_beat(&self) -> Option<Instant> {
        *lock(&self.0.last_beat)
    }

    /// A line for `bulkhead status`; at most [`MAX_STATUS_BYTES`] are shown.
    pub fn set_status(&self, text: &str) {
        lock(&self.0.untold).status = Some(status_line(text));
        self.tell(None);
    }

    /// Has a lock kept open beyond the death of this process, by whoever supervises it
    /// (`FDSTORE=1` of sd_notify(3)), and also where who gave it is restarted: with
    /// `FDPOLL=0` systemd does not look whether its far end is closed. Only the last one of a
    /// name is kept.
    pub fn keep_lock(&self, name: &str, lock: BorrowedFd<'_>) {
        self.keep_open(name, lock, true);
    }

    fn keep_open(&self, name: &str, descriptor: BorrowedFd<'_>, is_lock: bool) {
        let descriptor = match descriptor.try_clone_to_owned() {
            Ok(descriptor) => descriptor,
            Err(error) => {
                tracing::warn!(%error, name, "cannot have a descriptor kept");
                return;
            }
        };
        match &self.0.supervisor {
            Some(supervisor) => {
                let kept = Kept {
                    descriptor,
                    is_lock,
                };
                self.tell_kept(supervisor, name, Some(kept));
            }
            None => drop(lock(&self.0.kept.0).insert(name.to_owned(), descriptor)),
        }
    }

    /// Has the connection of this run kept open beyond its death, beside those of a few runs
    /// before: who serves it goes on with what was asked for. systemd keeps each until its far
    /// end closes it, so this run lets go of those that are too old; our supervisor does so by
    /// itself, whatever their names.
    pub fn keep_open_of_run(&self, name: &str, connection: BorrowedFd<'_>) {
        let kept = std::env::var(KEPT_VARIABLE).unwrap_or_default();
        self.keep_open_beside(&kept, name, connection);
    }

    fn keep_open_beside(&self, kept: &str, name: &str, connection: BorrowedFd<'_>) {
        let (own, too_old) = names_of_runs(name, kept);
        for name in too_old {
            self.let_go(name);
        }
        // One that this run had before is of no use any more.
        self.let_go(&own);
        self.keep_open(&own, connection, false);
    }

    /// Has a descriptor closed that is kept open under this name (`FDSTOREREMOVE=1`).
    pub fn let_go(&self, name: &str) {
        let Some(supervisor) = &self.0.supervisor else {
            lock(&self.0.kept.0).remove(name);
            return;
        };
        self.tell_kept(supervisor, name, None);
    }

    fn tell_kept(&self, supervisor: &NotifySocket, name: &str, descriptor: Option<Kept>) {
        let mut untold = lock(&self.0.untold);
        untold.keep(name, descriptor);
        untold.tell_kept(supervisor);
    }

    /// Tells this, and what could not be told before.
    fn tell(&self, state: Option<NotifyState<'_>>) {
        let Some(supervisor) = &self.0.supervisor else {
            return;
        };
        let mut untold = lock(&self.0.untold);
        untold.tell_kept(supervisor);
        let ready = untold.ready.then_some(NotifyState::Ready);
        let status = untold.status.as_deref().map(NotifyState::Status);
        let all: Vec<NotifyState<'_>> = ready.into_iter().chain(status).chain(state).collect();
        match supervisor.send(&all, &[]) {
            Ok(()) => (untold.ready, untold.status) = (false, None),
            // Whoever supervises it hangs, and is told once it does not.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => tracing::warn!(%error, "cannot report to NOTIFY_SOCKET"),
        }
    }
}

/// The name for the connection of this run, and which of those that are kept are too old.
/// They are numbered.
fn names_of_runs<'a>(name: &str, kept: &'a str) -> (String, Vec<&'a str>) {
    let number =
        |kept: &str| -> Option<u64> { kept.strip_prefix(name)?.strip_prefix('-')?.parse().ok() };
    let numbered = |kept: &'a str| Some((number(kept)?, kept));
    let mut runs: Vec<(u64, &str)> = kept.split(':').filter_map(numbered).collect();
    runs.sort_unstable();
    let newest = runs.last().map_or(0, |(number, _)| *number);
    runs.truncate(runs.len().saturating_sub(RUNS_KEPT));
    runs.dedup();
    let own = format!("{name}-{}", newest.saturating_add(1));
    (own, runs.into_iter().map(|(_, name)| name).collect())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As much of `text` as a status line may have, without control characters and what turns or
/// hides text.
fn status_line(text: &str) -> String {
    let characters = text.chars();
    let line: String = characters.filter(|it| !telemetry::misleads(*it)).collect();
    shortened(&line, MAX_STATUS_BYTES)
}

/// A text of at most so many bytes, with a mark where the rest is left out.
#[must_use]
pub fn shortened(text: &str, max_bytes: usize) -> String {
    const MARK: char = '…';
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(max_bytes.saturating_sub(MARK.len_utf8()));
    format!("{}{MARK}", &text[..end])
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;
    use crate::notify_socket::tests::{read, unread};

    /// A supervisor that reads nothing, until there is no room for more.
    async fn hanging() -> (tempfile::TempDir, UnixDatagram, Lifecycle) {
        let (directory, receiver, socket) = unread();
        let lifecycle = Lifecycle::new(Some(socket), CancellationToken::new(), KeptOpen::default());
        for _ in 0..1000 {
            lifecycle.beat();
            tokio::time::advance(BEAT_INTERVAL).await;
        }
        (directory, receiver, lifecycle)
    }

    #[tokio::test(start_paused = true)]
    async fn a_supervisor_that_hangs_delays_nobody_and_is_told_all_of_it_later() {
        let (_directory, receiver, lifecycle) = hanging().await;
        lifecycle.ready();
        lifecycle.set_status("3 pods");
        // It reads again.
        assert_eq!(read(&receiver), "WATCHDOG=1\n");
        lifecycle.beat();
        receiver.set_nonblocking(true).unwrap();
        let mut last = String::new();
        let mut bytes = [0; 512];
        while let Ok(length) = receiver.recv(&mut bytes) {
            last = String::from_utf8_lossy(&bytes[..length]).into_owned();
        }
        assert_eq!(last, "READY=1\nSTATUS=3 pods\nWATCHDOG=1\n");
        // Once is enough.
        tokio::time::advance(BEAT_INTERVAL).await;
        lifecycle.beat();
        assert_eq!(read(&receiver), "WATCHDOG=1\n");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_to_be_kept_open_is_kept_once_a_supervisor_that_hung_reads_again() {
        let (_directory, receiver, lifecycle) = hanging().await;
        let mut waiting = 0;
        receiver.set_nonblocking(true).unwrap();
        let (mut far, lock) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let mut is_open = || far.read(&mut [0]).is_err();
        lifecycle.keep_open("runtime-1", receiver.as_fd(), false);
        lifecycle.let_go("runtime-1");
        lifecycle.let_go("shutdown");
        lifecycle.keep_lock("shutdown", lock.as_fd());
        drop(lock);
        while receiver.recv(&mut [0; 512]).is_ok() {
            waiting += 1;
        }
        assert!(waiting > 0 && is_open());
        lifecycle.beat();
        assert_eq!(read(&receiver), "FDSTOREREMOVE=1\nFDNAME=runtime-1\n");
        assert_eq!(read(&receiver), "FDSTOREREMOVE=1\nFDNAME=shutdown\n");
        assert!(is_open(), "it goes with the message");
        assert_eq!(read(&receiver), "FDSTORE=1\nFDPOLL=0\nFDNAME=shutdown\n");
        assert!(!is_open(), "nobody took it out of the message");
        // Once is enough.
        assert_eq!(read(&receiver), "WATCHDOG=1\n");
        assert!(receiver.recv(&mut [0; 512]).is_err());
    }

    #[test]
    fn each_run_names_its_connection_anew_and_only_the_newest_of_earlier_runs_stay() {
        let none: &[&str] = &[];
        let cases = [
            ("", "runtime-1", none),
            ("pod-worker-pool:shutdown", "runtime-1", none),
            ("pod-worker-pool:runtime-7:shutdown", "runtime-8", none),
            (
                "runtime-8:runtime-9:runtime-10:runtime-11:runtime-7",
                "runtime-12",
                none,
            ),
            (
                "runtime-8:runtime-9:runtime-10:runtime-11:runtime-7:runtime-12:shutdown",
                "runtime-13",
                &["runtime-7"],
            ),
            ("runtimes-3:runtime-x:runtime-", "runtime-1", none),
        ];
        for (kept, own, too_old) in cases {
            let found = names_of_runs("runtime", kept);
            assert_eq!(found, (own.to_owned(), too_old.to_vec()), "{kept}");
        }
    }

    #[test]
    fn however_often_a_process_starts_there_is_room_for_its_newest_connection() {
        let (_directory, supervisor, socket) = unread();
        let run = Lifecycle::new(Some(socket), CancellationToken::new(), KeptOpen::default());
        // As systemd does it. It keeps 8, and one of them is the shutdown lock.
        let mut store = vec!["shutdown".to_owned()];
        for number in 1..50 {
            let kept = format!("pod-worker-pool:{}", store.join(":"));
            run.keep_open_beside(&kept, "runtime", supervisor.as_fd());
            let own = format!("runtime-{number}");
            let stored = format!("FDSTORE=1\nFDNAME={own}\n");
            loop {
                let message = read(&supervisor);
                if message == stored {
                    break;
                }
                let gone = message.strip_prefix("FDSTOREREMOVE=1\nFDNAME=").unwrap();
                store.retain(|name| *name != gone.trim_end());
            }
            assert!(store.len() < 8, "{store:?}");
            store.push(own);
        }
        assert_eq!(store.len(), 2 + RUNS_KEPT);
    }

    #[test]
    fn a_status_line_is_cut_by_bytes_between_characters() {
        assert_eq!(status_line("3 pods\n\u{1b}[2J\u{202e}"), "3 pods[2J");
        assert_eq!(status_line(&"x".repeat(5000)).len(), MAX_STATUS_BYTES);
        assert_eq!(shortened("abcdefg", 6), "abc…");
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("äöü", 5), "ä…");
        // Three bytes each, the mark too.
        let long = status_line(&"\u{20ac}".repeat(MAX_STATUS_BYTES));
        assert_eq!(long.chars().count(), MAX_STATUS_BYTES / 3);
    }
}
