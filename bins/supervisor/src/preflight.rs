//! What must hold before anything is started, each with its own exit code.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, socket};
use node_config::{DirectoryLayout, NodeConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use topology::{Identities, PROCESSES, Process};

use crate::directories::check_passable;
use crate::failure::Failure;

/// Root, for everything that follows.
///
/// # Errors
/// When the effective user is another.
pub(crate) fn check_root() -> Result<(), Failure> {
    if nix::unistd::geteuid().is_root() {
        Ok(())
    } else {
        Err(Failure::NotRoot)
    }
}

/// Nobody else runs the processes in this run directory. Another supervisor holds its lock;
/// systemd, in `bulkhead.target`, has nothing but the sockets, on which its processes listen.
///
/// # Errors
/// When somebody does.
pub(crate) fn check_alone(directories: &DirectoryLayout) -> Result<(), Failure> {
    // Whom the node may not run, systemd starts when it is called.
    let mut processes = Process::ON_EVERY_NODE.into_iter();
    match processes.any(|process| is_served(&directories.socket(process))) {
        true => Err(Failure::SecondInstance {
            path: directories.run_dir.clone(),
        }),
        false => Ok(()),
    }
}

/// Whether a socket accepts callers for somebody who runs. A process that hangs on a disk
/// keeps its socket open when its supervisor has died, and then does not count.
fn is_served(socket: &Path) -> bool {
    // Where its queue is full, the others tell.
    let Ok(connection) = connect_at_once(socket) else {
        return false;
    };
    let Ok(listener) = getsockopt(&connection, PeerCredentials) else {
        return true;
    };
    // It has no number where it is in a container that is not seen from here.
    Pid::from_raw(listener.pid()).is_none_or(runs)
}

/// False also of one whose end is not noticed yet by who has started it.
fn runs(pid: Pid) -> bool {
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
        return false;
    };
    let mut polled = [PollFd::new(&process, PollFlags::IN)];
    matches!(poll(&mut polled, Some(&Timespec::default())), Ok(0))
}

/// Somebody listens on the container runtime's socket.
///
/// # Errors
/// When there is no socket, or one that is left over.
pub(crate) fn check_runtime(path: &Path) -> Result<(), Failure> {
    match connect_at_once(path) {
        Ok(_connection) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Failure::NoRuntimeSocket {
            path: path.to_owned(),
        }),
        Err(source) if source.kind() == ErrorKind::ConnectionRefused => {
            Err(Failure::StaleRuntimeSocket {
                path: path.to_owned(),
                source,
            })
        }
        // Its queue is full: somebody listens, and may be slow or stopped. That is
        // for pod-worker-pool to wait for.
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(source) => Err(Failure::Io {
            action: "connect to",
            path: path.to_owned(),
            source,
        }),
    }
}

/// Connects to a Unix socket, or fails with `WouldBlock` where the queue of the
/// listener is full: whoever does not accept must not hold up the start.
pub(crate) fn connect_at_once(path: &Path) -> io::Result<OwnedFd> {
    let address = UnixAddr::new(path)?;
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &address)?;
    Ok(socket)
}

/// The program of each process that the node runs exists and its user can run it.
///
/// # Errors
/// Names the first that is not so.
pub(crate) fn check_binaries(config: &NodeConfig, identities: &Identities) -> Result<(), Failure> {
    let supervised = PROCESSES
        .iter()
        .filter(|row| row.process != Process::Supervisor && config.runs(row.process));
    for row in supervised {
        let path = config.directories.bin_dir.join(row.process.name());
        let refused = |reason: String| Failure::Binary {
            process: row.process,
            path: path.clone(),
            reason,
        };
        let runnable = runnable(&path, identities.uid(row.process));
        runnable.map_err(refused)?;
        if !row.root {
            check_passable(&config.directories.bin_dir)?;
        }
    }
    Ok(())
}

fn runnable(path: &Path, uid: u32) -> Result<(), String> {
    let metadata = path.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a file".to_owned());
    }
    let mode = metadata.mode();
    if mode & 0o111 == 0 {
        return Err("it is not executable (chmod 0755)".to_owned());
    }
    if uid != 0 && uid != metadata.uid() && mode & 0o001 == 0 {
        return Err(format!("uid {uid} may not execute it (chmod 0755)"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;
    use nix::sys::socket::{Backlog, listen};

    #[test]
    fn who_has_ended_does_not_run_before_that_is_noticed_and_after() {
        let mut child = Command::new("sleep").arg("infinity").spawn().unwrap();
        let pid = Pid::from_raw(child.id().try_into().unwrap()).unwrap();
        assert!(runs(pid));
        child.kill().unwrap();
        // Nobody waits for its end yet.
        while runs(pid) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!runs(pid));
    }

    #[test]
    fn a_runtime_that_accepts_nobody_does_not_hold_up_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runtime.sock");
        let listener = UnixListener::bind(&path).unwrap();
        listen(&listener, Backlog::new(1).unwrap()).unwrap();
        let mut waiting = Vec::new();
        let refusal = loop {
            match connect_at_once(&path) {
                Ok(connection) => waiting.push(connection),
                Err(error) => break error,
            }
        };
        assert_eq!(refusal.kind(), ErrorKind::WouldBlock);
        check_runtime(&path).unwrap();
        drop(listener);
        let refusal = check_runtime(&path).unwrap_err();
        assert!(matches!(refusal, Failure::StaleRuntimeSocket { .. }));
    }
}
