//! Who may send what, and that no close holds anybody up.

use std::io::{IoSlice, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;

use nix::libc;
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};

use super::*;

#[test]
fn known_fields_are_read_and_others_left_out() {
    let message = parse(b"READY=1\nMAINPID=1\nSTATUS=12 pods\nFDSTORE=1\nWATCHDOG=1\n");
    assert_eq!(
        message,
        Message {
            ready: true,
            beat: true,
            status: Some("12 pods".to_owned()),
            keeps: true,
            ..Message::default()
        }
    );
    let lock = parse(b"FDSTOREREMOVE=1\nFDNAME=shutdown");
    assert!(lock.releases && lock.descriptor == DescriptorName::Shutdown);
    // Whichever run's it is: the store itself tells them apart.
    for name in ["runtime", "runtime-7"] {
        let connection = parse(format!("FDSTORE=1\nFDNAME={name}").as_bytes());
        assert!(connection.keeps && connection.descriptor == DescriptorName::Runtime);
    }
    for nothing in [
        &b""[..],
        b"READY=0",
        b"READY=10",
        b"WATCHDOG=trigger",
        b"\xff\n\0",
    ] {
        assert_eq!(parse(nothing), Message::default());
    }
}

#[test]
fn a_status_line_is_short_and_has_nothing_that_makes_it_look_like_another() {
    let long = format!(
        "STATUS=\x1b[31m\u{202e}\u{2066}\u{200b}{}",
        "\u{20ac}".repeat(1000)
    );
    let status = parse(long.as_bytes()).status.unwrap();
    assert!(status.len() <= MAX_STATUS_BYTES && status.starts_with("[31m\u{20ac}"));
}

/// Sockets of two processes that both are this one.
struct Fixture {
    sockets: NotifySockets,
    pid: i32,
    uid: u32,
    _directory: tempfile::TempDir,
}

const POOL: Process = Process::PodWorkerPool;
const OTHER: Process = Process::Prober;

impl Fixture {
    fn open() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let uid = nix::unistd::getuid().as_raw();
        let sockets = [POOL, OTHER].map(|process| {
            let path = directory.path().join(format!("{process}.notify"));
            (process, open(process, path, uid).unwrap())
        });
        Fixture {
            sockets: NotifySockets(sockets.into()),
            pid: i32::try_from(std::process::id()).unwrap(),
            uid,
            _directory: directory,
        }
    }

    fn send(&self, process: Process, text: &str, carried: &[RawFd]) -> nix::Result<usize> {
        let socket = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let address = UnixAddr::new(self.sockets.path(process).unwrap()).unwrap();
        let rights = [ControlMessage::ScmRights(carried)];
        let rights = if carried.is_empty() { &[][..] } else { &rights };
        let parts = [IoSlice::new(text.as_bytes())];
        let flags = MsgFlags::empty();
        sendmsg(socket.as_raw_fd(), &parts, rights, flags, Some(&address))
    }

    fn receive(&mut self, process: Process) -> Vec<(Message, Option<OwnedFd>)> {
        let pid = self.pid;
        self.sockets
            .receive(process, self.uid, |sender| sender == pid)
    }

    /// Waits until something of `process` counts.
    async fn next(&mut self, process: Process) -> (Message, Option<OwnedFd>) {
        loop {
            let mut messages = self.receive(process);
            if let Some(message) = messages.pop() {
                assert!(messages.is_empty());
                return message;
            }
            self.sockets.readable().await;
        }
    }
}

/// How long the close of a [`lingering`] socket blocks.
const LINGER_SECONDS: libc::c_int = 120;

/// A connection whose last close blocks, because the far end, the second one, does
/// not read what was sent to it.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nonblocking(true).unwrap();
    while near.write(&[0; 65536]).is_ok() {}
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: LINGER_SECONDS,
    };
    setsockopt(&near, sockopt::Linger, &linger).unwrap();
    (near, far)
}

#[tokio::test]
async fn only_one_descriptor_that_the_pool_wants_kept_gets_in() {
    for (text, count, is_own, kept) in [
        ("FDSTORE=1", 1, true, true),
        ("FDSTORE=1", 2, true, false),
        ("FDSTORE=1", 253, true, false),
        ("WATCHDOG=1", 1, true, false),
        ("FDSTORE=1", 1, false, false),
    ] {
        let mut fixture = Fixture::open();
        let (near, mut far) = UnixStream::pair().unwrap();
        let carried = vec![near.as_raw_fd(); count];
        fixture.send(POOL, text, &carried).unwrap();
        drop(near);
        let pid = fixture.pid + i32::from(!is_own);
        let received = fixture
            .sockets
            .receive(POOL, fixture.uid, |sender| sender == pid);
        let descriptors = received.into_iter().filter_map(|(_, kept)| kept);
        assert_eq!(descriptors.count(), usize::from(kept), "{text} {count}");
        // Nothing else has it; this waits for the closing thread.
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
        // What comes after it counts.
        fixture.send(POOL, "READY=1", &[]).unwrap();
        assert!(fixture.next(POOL).await.0.ready);
    }
}

#[tokio::test]
async fn no_other_process_can_send_a_descriptor() {
    let mut fixture = Fixture::open();
    let (near, mut far) = UnixStream::pair().unwrap();
    match fixture.send(OTHER, "FDSTORE=1", &[near.as_raw_fd()]) {
        // From Linux 6.16 on.
        Err(error) => assert_eq!(error, nix::Error::EPERM),
        Ok(_sent) => assert!(fixture.receive(OTHER).is_empty()),
    }
    drop(near);
    assert_eq!(far.read(&mut [0]).unwrap(), 0);
    fixture.send(OTHER, "READY=1", &[]).unwrap();
    assert!(fixture.next(OTHER).await.0.ready);
}

#[tokio::test]
async fn the_last_close_of_what_is_discarded_is_left_to_the_closing_thread() {
    for (text, count) in [("WATCHDOG=1", 1), ("FDSTORE=1", 2)] {
        let mut fixture = Fixture::open();
        let (near, mut far) = UnixStream::pair().unwrap();
        let sent = std::fs::read_link(format!("/proc/self/fd/{}", near.as_raw_fd())).unwrap();
        let carried = vec![near.as_raw_fd(); count];
        fixture.send(POOL, text, &carried).unwrap();
        drop(near);
        assert!(fixture.receive(POOL).is_empty());
        let open = fixture.sockets.0[&POOL].closer.open_at_hand_over();
        assert!(!open.is_empty() && !open.contains(&sent), "{text} {count}");
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
    }
}

#[tokio::test]
async fn a_close_that_blocks_holds_up_nobody_but_its_sender() {
    for (text, count) in [("WATCHDOG=1", 1), ("FDSTORE=1", 2)] {
        let begun = std::time::Instant::now();
        let mut fixture = Fixture::open();
        let (near, far) = lingering();
        let carried = vec![near.as_raw_fd(); count];
        fixture.send(POOL, text, &carried).unwrap();
        drop(near);
        fixture.send(POOL, "WATCHDOG=1", &[]).unwrap();
        assert!(fixture.receive(POOL).is_empty());
        fixture.send(OTHER, "WATCHDOG=1", &[]).unwrap();
        assert!(fixture.next(OTHER).await.0.beat);
        assert!(fixture.receive(POOL).is_empty(), "it is being closed");
        // The far end goes away, and nothing is left to wait for.
        drop(far);
        assert!(fixture.next(POOL).await.0.beat);
        let patience = Duration::from_secs(LINGER_SECONDS.unsigned_abs().into()) / 2;
        assert!(begun.elapsed() < patience, "{text} {count}");
    }
}

#[tokio::test]
async fn what_was_kept_is_closed_without_waiting_and_nothing_grows() {
    let begun = std::time::Instant::now();
    let mut fixture = Fixture::open();
    let mut far_ends = Vec::new();
    let mut handed_over = 0;
    loop {
        let (near, far) = lingering();
        far_ends.push(far);
        fixture
            .send(POOL, "FDSTORE=1", &[near.as_raw_fd()])
            .unwrap();
        drop(near);
        let Some((_, Some(kept))) = fixture.receive(POOL).pop() else {
            break;
        };
        handed_over += 1;
        assert!(handed_over < 100);
        fixture.sockets.close(POOL, vec![kept]);
    }
    fixture.send(OTHER, "WATCHDOG=1", &[]).unwrap();
    assert!(fixture.next(OTHER).await.0.beat);
    drop(far_ends);
    assert!(fixture.next(POOL).await.1.is_some());
    let patience = Duration::from_secs(LINGER_SECONDS.unsigned_abs().into()) / 2;
    assert!(begun.elapsed() < patience);
}

impl Fixture {
    /// A close that blocks until the far end, which it returns, goes away.
    fn block(&mut self, process: Process) -> TcpStream {
        let (near, far) = lingering();
        let carried = [near.as_raw_fd()];
        self.send(process, "WATCHDOG=1", &carried).unwrap();
        drop(near);
        assert!(self.receive(process).is_empty());
        far
    }

    /// Waits until the closing threads of earlier runs are done.
    fn wait_for_left(&self, process: Process, count: usize) {
        let is_stuck = |closer: &&Closer| !closer.is_idle();
        while self.sockets.0[&process]
            .left
            .iter()
            .filter(is_stuck)
            .count()
            > count
        {
            std::thread::yield_now();
        }
    }
}

/// Which socket the pool's is; whoever may use it is checked.
fn inode(fixture: &Fixture) -> u64 {
    let metadata = std::fs::metadata(fixture.sockets.path(POOL).unwrap()).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(metadata.uid(), fixture.uid);
    metadata.ino()
}

#[tokio::test]
async fn a_close_that_blocks_does_not_keep_the_next_run_from_being_heard() {
    let mut fixture = Fixture::open();
    let (path, first) = (
        fixture.sockets.path(POOL).unwrap().to_owned(),
        inode(&fixture),
    );
    fixture.sockets.renew(POOL, fixture.uid);
    assert_eq!(inode(&fixture), first, "nothing blocks");

    let far = fixture.block(POOL);
    // Nobody reads this any more; its close blocks as well.
    let (near, second_far) = lingering();
    fixture.send(POOL, "READY=1", &[near.as_raw_fd()]).unwrap();
    drop(near);
    fixture.sockets.renew(POOL, fixture.uid);
    assert_ne!(inode(&fixture), first);
    assert_eq!(fixture.sockets.path(POOL).unwrap(), path);
    let new_run = "READY=1\nSTATUS=new run";
    fixture.send(POOL, new_run, &[]).unwrap();
    let heard = fixture.next(POOL).await.0;
    assert_eq!(heard, parse(new_run.as_bytes()));
    let begun = std::time::Instant::now();
    drop((far, second_far));
    fixture.wait_for_left(POOL, 0);
    let patience = Duration::from_secs(LINGER_SECONDS.unsigned_abs().into()) / 2;
    assert!(begun.elapsed() < patience);
}

#[tokio::test]
async fn what_a_dead_run_left_unread_is_not_before_what_the_next_one_says() {
    let mut fixture = Fixture::open();
    let first = inode(&fixture);
    let (near, far) = lingering();
    fixture
        .send(POOL, "WATCHDOG=1", &[near.as_raw_fd()])
        .unwrap();
    drop(near);
    fixture.sockets.renew(POOL, fixture.uid);
    assert_ne!(inode(&fixture), first);
    fixture.send(POOL, "READY=1", &[]).unwrap();
    assert!(fixture.next(POOL).await.0.ready);
    drop(far);
}

#[tokio::test]
async fn only_some_sockets_are_left_with_a_close_that_blocks() {
    let mut fixture = Fixture::open();
    let mut far_ends = Vec::new();
    for _ in 0..MAX_LEFT {
        far_ends.push(fixture.block(POOL));
        fixture.sockets.renew(POOL, fixture.uid);
    }
    let last = fixture.block(POOL);
    fixture.sockets.renew(POOL, fixture.uid);
    fixture.send(POOL, "READY=1", &[]).unwrap();
    assert!(fixture.receive(POOL).is_empty(), "too many are stuck");
    // One is done, so that the run after that is heard.
    far_ends.pop();
    fixture.wait_for_left(POOL, MAX_LEFT - 1);
    fixture.sockets.renew(POOL, fixture.uid);
    assert_eq!(fixture.sockets.0[&POOL].left.len(), MAX_LEFT);
    fixture.send(POOL, "READY=1", &[]).unwrap();
    assert!(fixture.next(POOL).await.0.ready);
    drop((last, far_ends));
}

#[tokio::test]
async fn a_renewed_socket_refuses_descriptors_as_the_first_did() {
    let mut fixture = Fixture::open();
    let (near, _far) = UnixStream::pair().unwrap();
    let carried = [near.as_raw_fd()];
    let first = fixture.send(OTHER, "WATCHDOG=1", &carried);
    let path = fixture.sockets.path(OTHER).unwrap().to_owned();
    let new = open_instead(OTHER, &path, fixture.uid).unwrap();
    fixture.sockets.0.insert(OTHER, new);
    assert_eq!(fixture.send(OTHER, "WATCHDOG=1", &carried), first);
    fixture.send(OTHER, "WATCHDOG=1", &[]).unwrap();
}
