//! Starting a process as another user with exactly the capabilities,
//! descriptors and environment that are named.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use nix::unistd::{Pid, getpid};

use crate::capabilities::CapabilitySet;
pub use crate::child::{FIRST_LISTENER_DESCRIPTOR, MAX_CGROUPS, MAX_LISTENERS};
use crate::child::{OomScore, Plan, close_at_exec_from, follow};
use crate::namespaces::OwnNamespace;

/// A process to be started.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The program, an absolute path.
    pub binary: &'a Path,
    /// Its arguments without the program's name.
    pub arguments: &'a [OsString],
    /// Its whole environment, apart from `LISTEN_FDS` and `LISTEN_FDNAMES`,
    /// which follow from `listeners`. Nothing is inherited.
    pub environment: &'a [(OsString, OsString)],
    /// The user.
    pub uid: u32,
    /// The group; there are no supplementary ones.
    pub gid: u32,
    /// What it may do beside its user's rights. Must be available to the caller.
    pub capabilities: CapabilitySet,
    /// Most open files; the caller's own hard limit is the highest possible.
    pub open_files: Option<u64>,
    /// Files of cgroups that list their processes or threads, open for writing: it puts
    /// itself into each of them before anything else.
    pub cgroups: &'a [BorrowedFd<'a>],
    /// The namespaces that it is put into; the others it shares with the caller. One of
    /// mounts must show the program.
    pub namespaces: &'a [OwnNamespace],
    /// How likely the kernel is to kill it when memory is short (`oom_score_adj`);
    /// absent leaves it as the caller has it.
    pub oom_score: Option<i16>,
    /// Listening sockets with their names, in the order of their descriptors.
    pub listeners: &'a [(&'a str, BorrowedFd<'a>)],
    /// Where its standard output and standard error go.
    pub output: BorrowedFd<'a>,
}

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// More listeners than [`MAX_LISTENERS`].
    #[error("{binary} would get {count} listeners, at most {MAX_LISTENERS} are possible", binary = binary.display())]
    TooManyListeners {
        /// The program.
        binary: PathBuf,
        /// How many.
        count: usize,
    },
    /// More cgroups than [`MAX_CGROUPS`].
    #[error("{binary} would be in {count} cgroups, at most {MAX_CGROUPS} are possible", binary = binary.display())]
    TooManyCgroups {
        /// The program.
        binary: PathBuf,
        /// How many.
        count: usize,
    },
    /// Descriptors could not be made ready for it.
    #[error("cannot prepare the descriptors of {binary}", binary = binary.display())]
    Descriptors {
        /// The program.
        binary: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The fork, a step of its confinement, or the exec failed. A failed step is
    /// named in the process's output.
    #[error("cannot start {binary}", binary = binary.display())]
    Start {
        /// The program.
        binary: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Starts the process and returns its pid; the caller reaps it.
///
/// In the child, in this order: own session, cgroups, score, namespaces, umask 0077, no
/// core dumps, listeners from descriptor 3 on, groups, bounding set, secure bits, user,
/// capabilities, SIGKILL at the end of its parent, `no_new_privs`, exec. The
/// kernel means the parent *thread*: call this from one that lives as long as
/// the process. No other thread may close a descriptor with a number below
/// 3 + [`MAX_LISTENERS`] meanwhile.
///
/// # Errors
/// When it does not get as far as running the program.
pub fn spawn(launch: &Launch<'_>) -> Result<Pid, SpawnError> {
    let binary = || launch.binary.to_owned();
    if launch.listeners.len() > MAX_LISTENERS {
        return Err(SpawnError::TooManyListeners {
            binary: binary(),
            count: launch.listeners.len(),
        });
    }
    if launch.cgroups.len() > MAX_CGROUPS {
        return Err(SpawnError::TooManyCgroups {
            binary: binary(),
            count: launch.cgroups.len(),
        });
    }
    let descriptors = |source| SpawnError::Descriptors {
        binary: binary(),
        source,
    };
    reserve_descriptors().map_err(descriptors)?;
    let output = || launch.output.try_clone_to_owned().map(Stdio::from);
    let mut command = Command::new(launch.binary);
    command
        .args(launch.arguments)
        .env_clear()
        .envs(launch.environment.iter().map(|(key, value)| (key, value)))
        .envs(listener_environment(launch.listeners))
        .stdin(Stdio::null())
        .stdout(output().map_err(descriptors)?)
        .stderr(output().map_err(descriptors)?);
    let plan = plan(launch);
    // SAFETY: `Plan::apply` makes only async-signal-safe calls, and captures
    // plain numbers.
    unsafe { command.pre_exec(move || plan.apply()) };
    let child = command.spawn().map_err(|source| SpawnError::Start {
        binary: binary(),
        source,
    })?;
    Ok(Pid::from_raw(child.id().cast_signed()))
}

/// Has `command` run as what this process is, with its standard streams and no other
/// descriptor of this process, and die with the *thread* that starts it.
pub fn follow_starter(command: &mut Command) {
    let parent = getpid().as_raw();
    let prepare = move || {
        close_at_exec_from(FIRST_LISTENER_DESCRIPTOR)?;
        follow(parent)
    };
    // SAFETY: both make only async-signal-safe calls, and capture a plain number.
    unsafe { command.pre_exec(prepare) };
}

fn plan(launch: &Launch<'_>) -> Plan {
    let mut listeners = [-1; MAX_LISTENERS];
    for (slot, (_name, listener)) in listeners.iter_mut().zip(launch.listeners) {
        *slot = listener.as_raw_fd();
    }
    let mut cgroups = [-1; MAX_CGROUPS];
    for (slot, cgroup) in cgroups.iter_mut().zip(launch.cgroups) {
        *slot = cgroup.as_raw_fd();
    }
    Plan {
        uid: launch.uid,
        gid: launch.gid,
        capabilities: launch.capabilities,
        open_files: launch.open_files,
        listeners,
        listener_count: launch.listeners.len(),
        cgroups,
        cgroup_count: launch.cgroups.len(),
        namespaces: launch
            .namespaces
            .iter()
            .map(OwnNamespace::entrance)
            .collect(),
        oom_score: launch.oom_score.map(OomScore::new),
        parent: getpid().as_raw(),
    }
}

/// Occupies, for the rest of this process's life, every free descriptor number
/// that a listener may get in a child: the standard library's own pipe to the
/// child would be lost if a listener were put in its place.
fn reserve_descriptors() -> io::Result<()> {
    static RESERVED: Mutex<Vec<File>> = Mutex::new(Vec::new());
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let file = File::open("/dev/null")?;
        if file.as_raw_fd() >= FIRST_LISTENER_DESCRIPTOR + MAX_LISTENERS as i32 {
            return Ok(());
        }
        reserved.push(file);
    }
}

fn listener_environment(listeners: &[(&str, BorrowedFd<'_>)]) -> Vec<(&'static OsStr, OsString)> {
    if listeners.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = listeners.iter().map(|(name, _socket)| *name).collect();
    // LISTEN_PID is left out: the pid is not known before the fork, and our
    // processes do not ask for it.
    vec![
        (OsStr::new("LISTEN_FDS"), listeners.len().to_string().into()),
        (OsStr::new("LISTEN_FDNAMES"), names.join(":").into()),
    ]
}
