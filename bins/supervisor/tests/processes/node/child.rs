//! The processes that the tests supervise: this same test program, told by a
//! file how to behave.
#![expect(clippy::print_stderr, reason = "standard error is a process's log")]

use std::io::{ErrorKind, IoSlice, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use confine::{Carried, peek_datagram};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt, sockopt};
use nix::unistd::getpid;
use node_config::NodeConfig;
use tokio::signal::unix::{SignalKind, signal};

/// Names the process and makes the test program act as one.
pub(crate) const PROCESS_VARIABLE: &str = "SUPERVISOR_TEST_PROCESS";

/// Directory with a file of behaviour for each process.
pub(crate) const BEHAVIOUR_VARIABLE: &str = "SUPERVISOR_TEST_BEHAVIOUR";

/// The path that the supervisor gave as `--node-config`.
pub(crate) const CONFIG_VARIABLE: &str = "SUPERVISOR_TEST_CONFIG";

/// Set for a child of a process that poses as it.
const IMPOSTOR_VARIABLE: &str = "SUPERVISOR_TEST_IMPOSTOR";

const BEAT: Duration = Duration::from_millis(500);

pub(super) fn notify(text: &str) {
    let path = std::env::var_os("NOTIFY_SOCKET").expect("NOTIFY_SOCKET is set");
    let socket = UnixDatagram::unbound().unwrap();
    socket.send_to(text.as_bytes(), path).unwrap();
}

#[expect(
    clippy::exit,
    reason = "the test harness would turn every code into its own"
)]
pub(super) fn exit(code: i32) -> ! {
    std::process::exit(code)
}

/// Acts as the process that the environment names, if it names one, and then
/// does not return.
pub(crate) fn act() {
    let Ok(process) = std::env::var(PROCESS_VARIABLE) else {
        return;
    };
    if std::env::var_os(IMPOSTOR_VARIABLE).is_some() {
        notify("READY=1\nSTATUS=impostor");
        exit(0);
    }
    let directory = PathBuf::from(std::env::var_os(BEHAVIOUR_VARIABLE).unwrap());
    let behaviour = match std::fs::read_to_string(directory.join(&process)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => "serve".to_owned(),
        Err(error) => panic!("{error}"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let words: Vec<&str> = behaviour.split_whitespace().collect();
    runtime.unwrap().block_on(behave(&process, &words));
    exit(0);
}

async fn behave(process: &str, words: &[&str]) {
    match words {
        ["serve"] => serve(process).await,
        ["exit", code] => {
            eprint!("first line\nlast words of {process}");
            exit(code.parse().unwrap());
        }
        ["die", number] => {
            let signal = Signal::try_from(number.parse::<i32>().unwrap()).unwrap();
            eprintln!("last words of {process}");
            kill(getpid(), signal).unwrap();
            std::future::pending().await
        }
        ["exit", code, "unless", "max-pods", pods] => {
            let config = std::env::var_os(CONFIG_VARIABLE).unwrap();
            let config = NodeConfig::read(config.as_ref()).unwrap();
            if config.max_pods != pods.parse::<u32>().unwrap() {
                exit(code.parse().unwrap());
            }
            serve(process).await;
        }
        ["hang"] => {
            notify("READY=1");
            std::future::pending().await
        }
        ["hang", "deaf"] => {
            let mut abort = signal(SignalKind::from_raw(6)).unwrap();
            notify("READY=1");
            loop {
                abort.recv().await;
                eprintln!("SIGABRT is not obeyed");
            }
        }
        ["impostor"] => {
            let program = std::env::current_exe().unwrap();
            let arguments = std::env::args_os().skip(1);
            let status = Command::new(program)
                .args(arguments)
                .env(IMPOSTOR_VARIABLE, "1")
                .status();
            eprintln!("the impostor ended: {}", status.unwrap());
            std::future::pending().await
        }
        ["leave", "orphan"] => {
            // A child in the same process group that would run for ever.
            let orphan = Command::new("sleep").arg("infinity").spawn();
            eprintln!("orphan {}", orphan.unwrap().id());
            exit(1);
        }
        ["hand", "over", path] => hand_over_and_die(path),
        ["linger", path] => linger_and_die(path),
        ["pass", "on", path] => tokio::select! {
            () = serve(process) => {}
            () = pass_on(Path::new(path)) => {}
        },
        ["flood"] => {
            notify("READY=1");
            // The socket blocks when its queue is full: no busy loop for ever.
            loop {
                notify("WATCHDOG=1");
            }
        }
        other => super::attacker::behave(process, other).await,
    }
}

/// Sends each message that somebody puts at `path`.
async fn pass_on(path: &Path) {
    loop {
        if let Ok(text) = std::fs::read_to_string(path) {
            std::fs::remove_file(path).unwrap();
            notify(&text);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Connects to `path`, waits for a byte, gives the connection to be kept and is dead
/// at once.
fn hand_over_and_die(path: &str) -> ! {
    let mut connection = UnixStream::connect(path).unwrap();
    notify("READY=1");
    connection.read_exact(&mut [0]).unwrap();
    notify_with("FDSTORE=1", connection.as_raw_fd());
    kill(getpid(), Signal::SIGKILL).unwrap();
    unreachable!("SIGKILL ends it");
}

/// Gets a TCP connection at `path`, since it has no network to make one; waits for a
/// byte, sends the connection, whose last close blocks until the far end goes away, and
/// is dead at once.
fn linger_and_die(path: &str) -> ! {
    let mut connection = TcpStream::from(received(path));
    connection.set_nonblocking(false).unwrap();
    connection.read_exact(&mut [0]).unwrap();
    connection.set_nonblocking(true).unwrap();
    while connection.write(&[0; 65536]).is_ok() {}
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 600,
    };
    setsockopt(&connection, sockopt::Linger, &linger).unwrap();
    notify_with("WATCHDOG=1", connection.as_raw_fd());
    kill(getpid(), Signal::SIGKILL).unwrap();
    unreachable!("SIGKILL ends it");
}

/// The descriptor that somebody at `path` has for it.
fn received(path: &str) -> OwnedFd {
    let socket = UnixStream::connect(path).unwrap();
    let readable = PollFd::new(socket.as_fd(), PollFlags::POLLIN);
    poll(&mut [readable], PollTimeout::NONE).unwrap();
    match peek_datagram(&socket, &mut [0]).unwrap().carried {
        Carried::One(descriptor) => descriptor,
        other => panic!("{other:?}"),
    }
}

fn notify_with(text: &str, descriptor: RawFd) {
    let socket = UnixDatagram::unbound().unwrap();
    let path = std::env::var_os("NOTIFY_SOCKET").expect("NOTIFY_SOCKET is set");
    socket.connect(path).unwrap();
    send_with(&socket, text, descriptor);
}

/// Sends a text and a descriptor to who is at the other end.
pub(crate) fn send_with(socket: &impl AsRawFd, text: &str, descriptor: RawFd) {
    sendmsg::<()>(
        socket.as_raw_fd(),
        &[IoSlice::new(text.as_bytes())],
        &[ControlMessage::ScmRights(&[descriptor])],
        MsgFlags::empty(),
        None,
    )
    .unwrap();
}

/// Ready, alive, and gone at SIGTERM with its name in the order of the stop.
pub(super) async fn serve(process: &str) {
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    notify("READY=1\nWATCHDOG=1\nSTATUS=serving");
    loop {
        tokio::select! {
            _ = terminate.recv() => {
                eprintln!("{process} stops");
                return;
            }
            () = tokio::time::sleep(BEAT) => notify("WATCHDOG=1"),
        }
    }
}
