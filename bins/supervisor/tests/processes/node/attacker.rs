//! Supervised processes that do what somebody would who has broken into one.
#![expect(clippy::print_stderr, reason = "standard error is a process's log")]

use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::Command;

use listenfd::ListenFd;
use nix::sys::socket::{
    AddressFamily, Shutdown, SockFlag, SockType, UnixAddr, connect, shutdown, socket,
};
use nix::unistd::getpid;

use super::child::{exit, notify, serve};

/// One of these behaviours, until its end.
pub(super) async fn behave(process: &str, words: &[&str]) {
    match words {
        ["escape"] => {
            let escaped = Command::new("setsid").args(["sleep", "infinity"]).spawn();
            eprintln!("{} escaped {}", getpid(), escaped.unwrap().id());
            serve(process).await;
        }
        ["harm"] => {
            harm_listener();
            exit(1);
        }
        ["answer"] => {
            let listener = ListenFd::from_env().take_unix_listener(0).unwrap().unwrap();
            let name = process.to_owned();
            let process = name.clone();
            std::thread::spawn(move || {
                for caller in listener.incoming() {
                    // Who has gone meanwhile needs no answer.
                    drop(write!(caller.unwrap(), "an answer of {process}"));
                }
            });
            serve(&name).await;
        }
        ["fill", path] => {
            let fill = |_| connect_at_once(path);
            let callers: Vec<_> = (0..10_000).map_while(|number| fill(number).ok()).collect();
            // Another run before the end of the test finds it full.
            if !callers.is_empty() {
                eprintln!("callers queue {}", callers.len());
            }
            exit(1);
        }
        ["eat", mebibytes] => {
            notify("READY=1");
            let eaten = vec![1_u8; mebibytes.parse::<usize>().unwrap() << 20];
            eprintln!("{} bytes are eaten", eaten.len());
            std::future::pending().await
        }
        ["fork", "bomb"] => {
            // Without a limit the test fails and the machine goes on.
            let bomb = |_| Command::new("setsid").args(["sleep", "infinity"]).spawn();
            let started: Vec<_> = (0..1000).map_while(|number| bomb(number).ok()).collect();
            eprintln!("no more children than {}", started.len());
            serve(process).await;
        }
        other => panic!("unknown behaviour {other:?}"),
    }
}

/// What the kernel lets a process do to the socket that it shares with its next run.
fn harm_listener() {
    let listener = ListenFd::from_env().take_unix_listener(0).unwrap().unwrap();
    shutdown(listener.as_raw_fd(), Shutdown::Both).unwrap();
}

/// A connection that is queued, or an error where the queue is full.
fn connect_at_once(path: &str) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK;
    let caller = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(caller.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(caller)
}
