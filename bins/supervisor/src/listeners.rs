//! The listening sockets of all processes. They stay open as long as the supervisor
//! runs: callers queue while a process restarts.
//!
//! A process shares its socket with the supervisor and with its next run, and so can
//! harm it for good: `shutdown(2)` makes the kernel refuse all callers, `listen(2)`
//! makes the queue short, and flags of the open file hold for everybody. So each
//! socket is looked at when a run has ended, and made anew where it is not as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{Backlog, getsockopt, listen, sockopt};
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

/// What a run of a process has done to its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// `shutdown(2)`.
    ShutDown,
    /// `listen(2)`, which also says how many callers may queue.
    Backlog,
    /// `fcntl(2)`: for example `O_ASYNC`, which sends signals to later runs.
    Flags,
    /// The file at its path is gone, or another one.
    Path,
}

impl fmt::Display for Harm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Harm::ShutDown => "was shut down",
            Harm::Backlog => "had its queue changed",
            Harm::Flags => "had its flags changed",
            Harm::Path => "was gone from its path",
        })
    }
}

/// What can be seen of a listening socket without using it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    /// Whether callers are refused since it was shut down.
    is_shut_down: bool,
    /// Who last called `listen(2)`.
    listened_by: i32,
    /// Flags of the open file that last over a restart and mean something.
    flags: OFlag,
    /// Device and inode of the file at its path.
    file: Option<(u64, u64)>,
}

impl Look {
    /// In what it differs from one that was harmless, worst first.
    fn harm_since(&self, made: &Look) -> Option<Harm> {
        if self.is_shut_down {
            Some(Harm::ShutDown)
        } else if self.listened_by != made.listened_by {
            Some(Harm::Backlog)
        } else if self.flags != made.flags {
            Some(Harm::Flags)
        } else if self.file != made.file {
            Some(Harm::Path)
        } else {
            None
        }
    }
}

#[derive(Debug)]
struct Listening {
    socket: UnixListener,
    path: PathBuf,
    /// The users beside root that may connect.
    callers: BTreeSet<u32>,
    /// Whether nobody else can.
    is_closed_to_others: bool,
    /// As it was when it was made.
    made: Look,
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
        let made = look(&socket, &path)?;
        Ok(Listening {
            socket,
            path,
            callers,
            is_closed_to_others,
            made,
        })
    }
}

fn look(socket: &UnixListener, path: &Path) -> io::Result<Look> {
    let mut polled = [PollFd::new(socket, PollFlags::RDHUP)];
    poll(&mut polled, Some(&Timespec::default()))?;
    let seen = polled[0].revents();
    let listener = getsockopt(socket, sockopt::PeerCredentials)?;
    // Each run sets this one for itself.
    let flags = OFlag::from_bits_retain(fcntl(socket, FcntlArg::F_GETFL)?) - OFlag::O_NONBLOCK;
    let file = match std::fs::symlink_metadata(path) {
        Ok(file) => Some((file.dev(), file.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    Ok(Look {
        is_shut_down: seen.intersects(PollFlags::RDHUP | PollFlags::HUP),
        listened_by: listener.pid(),
        flags,
        file,
    })
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

    /// Makes the socket of a process anew where a run has harmed it, and says how. Who
    /// queued in the old one is cut off and connects again, by the path.
    ///
    /// # Errors
    /// When it cannot be looked at, or made anew.
    pub(crate) fn repair(&mut self, process: Process) -> io::Result<Option<Harm>> {
        let Some(listening) = self.0.get_mut(&process) else {
            return Ok(None);
        };
        let found = look(&listening.socket, &listening.path)?;
        let harm = found.harm_since(&listening.made);
        if harm.is_some() {
            *listening = Listening::open(listening.path.clone(), listening.callers.clone())?;
        }
        Ok(harm)
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
        let before = listeners.0[&Process::Pleg].made;
        let _queued = UnixStream::connect(directory.path().join("pleg.sock")).unwrap();
        for is_set in [true, false] {
            let listener = listeners.get(Process::Pleg).unwrap();
            listener.set_nonblocking(is_set).unwrap();
            assert_eq!(listeners.repair(Process::Pleg).unwrap(), None);
        }
        let listener = listeners.get(Process::Pleg).unwrap();
        let _accepted = listener.accept().unwrap();
        assert_eq!(listeners.repair(Process::Pleg).unwrap(), None);
        assert_eq!(listeners.0[&Process::Pleg].made, before);
        serves(&directory, &listeners);
    }

    #[test]
    fn a_socket_that_is_made_anew_has_the_callers_of_before() {
        let (directory, mut listeners) = one();
        let path = directory.path().join("pleg.sock");
        let before = access::lists(&path);
        assert!(listeners.degradation().is_none());
        shut_down(&listeners, socket::Shutdown::Both);
        assert!(listeners.repair(Process::Pleg).unwrap().is_some());
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
            assert_eq!(
                listeners.repair(Process::Pleg).unwrap(),
                Some(Harm::ShutDown)
            );
            serves(&directory, &listeners);
            assert_eq!(listeners.repair(Process::Pleg).unwrap(), None);
        }
    }

    #[test]
    fn a_socket_that_was_shut_down_for_writing_alone_serves_on() {
        let (directory, mut listeners) = one();
        shut_down(&listeners, socket::Shutdown::Write);
        assert_eq!(listeners.repair(Process::Pleg).unwrap(), None);
        serves(&directory, &listeners);
    }

    #[test]
    fn a_socket_with_other_flags_is_made_anew() {
        let (directory, mut listeners) = one();
        let listener = listeners.get(Process::Pleg).unwrap();
        fcntl(listener, FcntlArg::F_SETFL(OFlag::O_ASYNC)).unwrap();
        assert_eq!(listeners.repair(Process::Pleg).unwrap(), Some(Harm::Flags));
        serves(&directory, &listeners);
        assert_eq!(listeners.repair(Process::Pleg).unwrap(), None);
    }

    #[test]
    fn a_socket_whose_path_leads_elsewhere_is_made_anew() {
        let (directory, mut listeners) = one();
        let path = directory.path().join("pleg.sock");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(listeners.repair(Process::Pleg).unwrap(), Some(Harm::Path));
        std::fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        assert_eq!(listeners.repair(Process::Pleg).unwrap(), Some(Harm::Path));
        serves(&directory, &listeners);
    }

    #[test]
    fn who_called_listen_last_is_harm_unless_it_was_the_supervisor() {
        let made = Look {
            is_shut_down: false,
            listened_by: 7,
            flags: OFlag::O_RDWR,
            file: Some((1, 2)),
        };
        let of_another = Look {
            listened_by: 8,
            ..made
        };
        assert_eq!(made.harm_since(&made), None);
        assert_eq!(of_another.harm_since(&made), Some(Harm::Backlog));
    }
}
