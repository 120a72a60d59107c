//! The listening sockets of all processes. They stay open as long as the supervisor
//! runs: callers queue while a process restarts.
//!
//! A process shares its socket with the supervisor and with its next run, and so can have
//! the kernel refuse all callers (`shutdown(2)`). So each socket is looked at before a start,
//! and made anew where nobody can connect any more.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use nix::sys::socket::{Backlog, listen};
use node_config::NodeConfig;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use topology::{Identities, Process, SOCKET_BACKLOG};

use crate::access;
use crate::failure::Failure;

/// Who may connect is root, and those of [`access`].
const SOCKET_MODE: u32 = 0o600;

/// Where the file system has no access lists everybody may connect: the server hangs up
/// on who may call nothing.
const MODE_WITHOUT_LISTS: u32 = 0o666;

#[derive(Debug)]
struct Listening {
    socket: UnixListener,
    path: PathBuf,
    /// The users beside root that may connect.
    callers: BTreeSet<u32>,
    /// Whether nobody else can.
    is_closed_to_others: bool,
    /// Device and inode of the file at its path.
    file: (u64, u64),
}

impl Listening {
    /// Makes it under another name first, so that no caller ever finds none.
    fn open(path: PathBuf, callers: BTreeSet<u32>) -> io::Result<Listening> {
        let mut new = path.clone().into_os_string();
        new.push(".new");
        let new = PathBuf::from(new);
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = UnixListener::bind(&new)?;
        listen(&socket, Backlog::new(SOCKET_BACKLOG.cast_signed())?)?;
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(SOCKET_MODE))?;
        let is_closed_to_others = access::permit(&new, &callers)?;
        if !is_closed_to_others {
            let mode = std::fs::Permissions::from_mode(MODE_WITHOUT_LISTS);
            std::fs::set_permissions(&new, mode)?;
        }
        std::fs::rename(&new, &path)?;
        let named = std::fs::symlink_metadata(&path)?;
        Ok(Listening {
            socket,
            path,
            callers,
            is_closed_to_others,
            file: (named.dev(), named.ino()),
        })
    }

    /// Whether callers can still connect: it was not shut down, and its path leads to it.
    fn accepts(&self) -> io::Result<bool> {
        let mut polled = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        poll(&mut polled, Some(&Timespec::default()))?;
        let ended = PollFlags::RDHUP | PollFlags::HUP;
        let file = match std::fs::symlink_metadata(&self.path) {
            Ok(file) => Some((file.dev(), file.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(!polled[0].revents().intersects(ended) && file == Some(self.file))
    }
}

/// The listening sockets of all processes, the supervisor's own included.
#[derive(Debug)]
pub(crate) struct Listeners(BTreeMap<Process, Listening>);

impl Listeners {
    /// Makes the sockets of all processes that the node runs, in place of those of an
    /// earlier supervisor.
    pub(crate) fn open(config: &NodeConfig, identities: &Identities) -> Result<Listeners, Failure> {
        let mut listeners = BTreeMap::new();
        for process in Process::ALL {
            if !config.runs(process) {
                continue;
            }
            let path = config.directories.socket(process);
            let callers = identities.callers(process);
            let listening =
                Listening::open(path.clone(), callers).map_err(|source| Failure::Io {
                    action: "create socket",
                    path,
                    source,
                })?;
            listeners.insert(process, listening);
        }
        Ok(Listeners(listeners))
    }

    /// What this machine does not give, for people.
    pub(crate) fn degradation(&self) -> Option<String> {
        let open = self.0.iter().filter(|(_, one)| !one.is_closed_to_others);
        let names: Vec<&str> = open.map(|(process, _)| process.name()).collect();
        (!names.is_empty()).then(|| {
            let names = names.join(", ");
            format!(
                "every local user can connect to the sockets of {names}: the file system of the \
                 run directory has no access lists"
            )
        })
    }

    /// The supervisor's own, for its server.
    pub(crate) fn own(&self) -> io::Result<UnixListener> {
        self.get(Process::Supervisor)?.try_clone()
    }

    /// That of a process.
    pub(crate) fn get(&self, process: Process) -> io::Result<&UnixListener> {
        let found = self.0.get(&process);
        found.map(|listening| &listening.socket).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("{process} has no socket"))
        })
    }

    /// Makes the socket of a process anew where nobody can connect to it any more; whether it
    /// was. Callers that queued in the old one are cut off and connect again, by the path.
    ///
    /// # Errors
    /// When it cannot be looked at, or made anew.
    pub(crate) fn repair(&mut self, process: Process) -> io::Result<bool> {
        let Some(listening) = self.0.get_mut(&process) else {
            return Ok(false);
        };
        if listening.accepts()? {
            return Ok(false);
        }
        *listening = Listening::open(listening.path.clone(), listening.callers.clone())?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::Shutdown;
    use std::os::unix::net::UnixStream;

    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};
    use nix::sys::socket::{self, shutdown};
    use std::os::fd::AsRawFd as _;
    use tempfile::TempDir;

    use std::path::Path;

    use super::*;

    /// One listener, as a process has it.
    fn one() -> (TempDir, Listeners) {
        let directory = tempfile::tempdir().unwrap();
        let listeners = one_in(directory.path());
        (directory, listeners)
    }

    fn one_in(directory: &Path) -> Listeners {
        let path = directory.join("pleg.sock");
        let listening = Listening::open(path, BTreeSet::from([64_000])).unwrap();
        Listeners(BTreeMap::from([(Process::Pleg, listening)]))
    }

    /// Mounts a file system without access lists there, for this thread alone.
    fn mount_without_lists(directory: &Path) -> nix::Result<()> {
        let none = None::<&str>;
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
        let kind = Some("ramfs");
        mount(kind, directory, kind, MsFlags::empty(), none)
    }

    fn shut_down(listeners: &Listeners, how: socket::Shutdown) {
        shutdown(listeners.get(Process::Pleg).unwrap().as_raw_fd(), how).unwrap();
    }

    /// A caller is accepted and heard.
    fn serves(directory: &TempDir, listeners: &Listeners) {
        let path = directory.path().join("pleg.sock");
        let caller = UnixStream::connect(path).unwrap();
        let listener = listeners.get(Process::Pleg).unwrap();
        listener.set_nonblocking(true).unwrap();
        listener.accept().unwrap();
        caller.shutdown(Shutdown::Both).unwrap();
    }

    #[test]
    fn a_socket_that_was_used_as_it_should_be_is_kept() {
        let (directory, mut listeners) = one();
        let _queued = UnixStream::connect(directory.path().join("pleg.sock")).unwrap();
        for is_set in [true, false] {
            let listener = listeners.get(Process::Pleg).unwrap();
            listener.set_nonblocking(is_set).unwrap();
            assert!(!listeners.repair(Process::Pleg).unwrap());
        }
        let listener = listeners.get(Process::Pleg).unwrap();
        let _accepted = listener.accept().unwrap();
        assert!(!listeners.repair(Process::Pleg).unwrap());
        serves(&directory, &listeners);
    }

    #[test]
    fn a_socket_that_is_made_anew_has_the_callers_of_before() {
        let (directory, mut listeners) = one();
        let path = directory.path().join("pleg.sock");
        let before = access::lists(&path);
        assert!(listeners.degradation().is_none());
        shut_down(&listeners, socket::Shutdown::Both);
        assert!(listeners.repair(Process::Pleg).unwrap());
        assert_eq!(access::lists(&path), before);
        assert!(before.is_some());
    }

    #[test]
    fn where_there_are_no_access_lists_everybody_can_connect_and_that_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let looked = || {
            if let Err(error) = mount_without_lists(directory.path()) {
                let told = "not tried here: a file system without access lists";
                return writeln!(io::stdout(), "{told}: {error}").unwrap();
            }
            let listeners = one_in(directory.path());
            let path = directory.path().join("pleg.sock");
            let mode = std::fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o666);
            let told = listeners.degradation().unwrap();
            assert!(told.contains("sockets of pleg:"), "{told}");
            serves(&directory, &listeners);
        };
        // The mounts of a thread of its own end with it.
        std::thread::scope(|scope| scope.spawn(looked).join().unwrap());
    }

    #[test]
    fn a_socket_that_was_shut_down_is_made_anew() {
        for how in [socket::Shutdown::Read, socket::Shutdown::Both] {
            let (directory, mut listeners) = one();
            shut_down(&listeners, how);
            assert!(listeners.repair(Process::Pleg).unwrap());
            serves(&directory, &listeners);
            assert!(!listeners.repair(Process::Pleg).unwrap());
        }
    }

    #[test]
    fn a_socket_that_was_shut_down_for_writing_alone_serves_on() {
        let (directory, mut listeners) = one();
        shut_down(&listeners, socket::Shutdown::Write);
        assert!(!listeners.repair(Process::Pleg).unwrap());
        serves(&directory, &listeners);
    }

    #[test]
    fn a_socket_whose_path_leads_elsewhere_is_made_anew() {
        let (directory, mut listeners) = one();
        let path = directory.path().join("pleg.sock");
        std::fs::remove_file(&path).unwrap();
        assert!(listeners.repair(Process::Pleg).unwrap());
        std::fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        assert!(listeners.repair(Process::Pleg).unwrap());
        serves(&directory, &listeners);
    }
}
