//! Datagrams with descriptors, at the limits too.

use std::io::{IoSlice, Read as _, Write as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{ControlMessage, sendmsg, setsockopt, sockopt};

use super::*;

/// Most descriptors that the kernel lets one datagram carry (unix(7)).
const MAX_CARRIED: usize = 253;

/// Generous: it is only ever waited for when a test fails.
const PATIENCE: Duration = Duration::from_secs(10);

fn pair() -> (UnixDatagram, UnixDatagram) {
    let (sender, receiver) = UnixDatagram::pair().unwrap();
    setsockopt(&receiver, sockopt::PassCred, &true).unwrap();
    (sender, receiver)
}

fn send(sender: &UnixDatagram, carried: &[RawFd]) -> nix::Result<usize> {
    let rights = [ControlMessage::ScmRights(carried)];
    let parts = [IoSlice::new(b"FDSTORE=1")];
    sendmsg::<()>(sender.as_raw_fd(), &parts, &rights, MsgFlags::empty(), None)
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_datagram_comes_with_its_sender_and_what_it_carries() {
    let (sender, receiver) = pair();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    send(&sender, &[theirs.as_raw_fd()]).unwrap();
    drop(theirs);
    let mut buffer = [0; 32];
    let datagram = peek_datagram(&receiver, &mut buffer).unwrap();
    assert_eq!(&buffer[..datagram.bytes], b"FDSTORE=1");
    let own = i32::try_from(std::process::id()).unwrap();
    assert_eq!(datagram.sender.map(|sender| sender.pid()), Some(own));
    // It is the other end of ours, and lives as long as it is held.
    let Carried::One(kept) = datagram.carried else {
        panic!("{datagram:?}");
    };
    discard_datagram(&receiver).unwrap();
    let mut kept = UnixStream::from(kept);
    ours.write_all(b"x").unwrap();
    let mut byte = [0];
    kept.read_exact(&mut byte).unwrap();
    drop(kept);
    assert_eq!(ours.read(&mut byte).unwrap(), 0);
}

#[test]
fn what_a_datagram_carries_is_closed_with_it_and_not_before() {
    for count in [2, 3, MAX_CARRIED] {
        let (sender, receiver) = pair();
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        send(&sender, &vec![theirs.as_raw_fd(); count]).unwrap();
        drop(theirs);
        for _twice in 0..2 {
            let datagram = peek_datagram(&receiver, &mut [0; 32]).unwrap();
            assert!(matches!(datagram.carried, Carried::Other), "{count}");
            assert!(datagram.sender.is_some());
        }
        ours.set_nonblocking(true).unwrap();
        let error = ours.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "the queue has it");
        discard_datagram(&receiver).unwrap();
        // Waits: a process that another test has just forked has copies until its exec.
        ours.set_nonblocking(false).unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(ours.read(&mut [0]).unwrap(), 0, "none is left open");
    }
}

/// Set for the process of its own that changes the limit.
const ALONE: &str = "CONFINE_TEST_ALONE";

#[test]
fn nothing_is_left_open_when_the_limit_of_open_files_is_reached_midway() {
    if std::env::var_os(ALONE).is_none() {
        let name =
            "datagram::tests::nothing_is_left_open_when_the_limit_of_open_files_is_reached_midway";
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--test-threads=1"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("1 passed"), "{text}");
        return;
    }
    let (sender, receiver) = pair();
    send(&sender, &[0, 0]).unwrap();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let before = open_descriptors();
    // The lowest number that is free is the only one below the limit.
    let free = nix::unistd::dup(&receiver).unwrap();
    let limit = u64::try_from(free.as_raw_fd()).unwrap() + 1;
    drop(free);
    setrlimit(Resource::RLIMIT_NOFILE, limit, hard).unwrap();
    for _ in 0..3 {
        let datagram = peek_datagram(&receiver, &mut [0; 32]).unwrap();
        assert!(matches!(datagram.carried, Carried::Other), "{datagram:?}");
        assert!(datagram.sender.is_some());
    }
    discard_datagram(&receiver).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    assert_eq!(open_descriptors(), before);
}

#[test]
fn who_sends_descriptors_to_a_socket_that_refuses_them_gets_an_error() {
    let (sender, receiver) = pair();
    if !refuse_descriptors(&receiver).unwrap() {
        let told = "not tried here: a socket that refuses descriptors: this kernel has none";
        let mut output = io::stdout();
        writeln!(output, "{told}").unwrap();
        return;
    }
    assert_eq!(send(&sender, &[0]), Err(nix::Error::EPERM));
    sender.send(b"without").unwrap();
    let datagram = peek_datagram(&receiver, &mut [0; 32]).unwrap();
    assert!(matches!(datagram.carried, Carried::Nothing));
    assert_eq!(datagram.bytes, 7);
}

#[test]
fn a_long_datagram_is_told_and_none_is_an_error() {
    let (sender, receiver) = pair();
    sender.send(&[1; 64]).unwrap();
    let mut buffer = [0; 8];
    assert!(peek_datagram(&receiver, &mut buffer).unwrap().is_truncated);
    discard_datagram(&receiver).unwrap();
    let error = peek_datagram(&receiver, &mut buffer).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert!(discard_datagram(&receiver).is_err());
}
