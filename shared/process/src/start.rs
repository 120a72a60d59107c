//! Starting and ending a process.

use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clock::WallClock;
use ipc::{Listener, Network};
use listenfd::ListenFd;
use node_config::{NodeConfig, ReadError};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use topology::Process;

use crate::permitted::permitted;
use crate::{Context, Lifecycle, UsersError, identities};

/// The one argument: the resolved node configuration.
pub const NODE_CONFIG_FLAG: &str = "--node-config";

/// Exit code of a process whose configuration is wrong (EX_CONFIG of
/// sysexits.h): restarting it does not help.
pub const EXIT_BAD_CONFIGURATION: u8 = 78;

/// Exit code of any other failure.
const EXIT_FAILURE: u8 = 1;

/// What blocks on a thread of its own gets this long at the end; a file system
/// that hangs must not hold it up.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// How long a thread waits for more work that blocks before it ends. Work goes to the thread
/// that has waited longest, so with the usual 10 s, as many as there were in a burst would
/// live on as long as each gets something to do within that time.
const THREAD_KEEP_ALIVE: Duration = Duration::from_secs(1);

/// How often memory that is free is given back. The work of a burst of pods is over
/// long before; more often would only have the kernel give it out again.
const GIVE_BACK_PERIOD: Duration = Duration::from_secs(60);

/// Why a process could not start.
#[derive(Debug, thiserror::Error)]
enum StartError {
    /// The arguments are wrong.
    #[error("usage: {process} {NODE_CONFIG_FLAG} FILE (normally started by the supervisor)")]
    Usage {
        /// Which process.
        process: Process,
    },
    /// The configuration cannot be used.
    #[error("the node's configuration cannot be used")]
    Config(#[source] ReadError),
    /// The users of the processes cannot be found.
    #[error("the users of the processes cannot be found")]
    Identities(#[source] UsersError),
    /// No listening socket was passed.
    #[error("no listening socket was passed: LISTEN_FDS must name one Unix socket")]
    NoSocket,
    /// The operating system refused.
    #[error("cannot {action}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// More threads than the first one run before the process is sealed.
    #[error("{threads} threads run before the process is sealed, and only one would be")]
    Threads {
        /// How many.
        threads: usize,
    },
    /// The process could not confine itself.
    #[error("cannot confine the process")]
    Confine(#[source] confine::SealError),
}

impl StartError {
    fn exit_code(&self) -> u8 {
        match self {
            StartError::Usage { .. }
            | StartError::Config(ReadError::Format { .. })
            | StartError::Identities(UsersError::Identity(_)) => EXIT_BAD_CONFIGURATION,
            // What cannot be read or looked up now may be the next time.
            StartError::Config(ReadError::Io { .. })
            | StartError::Identities(UsersError::LookUp { .. })
            | StartError::NoSocket
            | StartError::Io { .. }
            | StartError::Threads { .. }
            | StartError::Confine(_) => EXIT_FAILURE,
        }
    }
}

/// Runs a process to its end and tells its exit code: 0 after SIGTERM,
/// [`EXIT_BAD_CONFIGURATION`] when its configuration is wrong, 1 otherwise.
///
/// `open` opens what is needed once, and starts no thread. Then the process is sealed.
/// From there on, `serve` opens by path only what the process's row in the topology lists.
pub fn main<O, R, E>(
    process: Process,
    open: impl FnOnce(&NodeConfig, &Lifecycle) -> Result<O, E>,
    serve: impl FnOnce(Context, O) -> R,
) -> ExitCode
where
    R: Future<Output = Result<(), E>>,
    E: std::error::Error,
{
    telemetry::start();
    match start(process, open, serve) {
        Ok(Ok(())) => {
            tracing::info!(%process, "stopped");
            ExitCode::SUCCESS
        }
        Ok(Err(error)) => {
            tracing::error!(%process, error = telemetry::chain(&error), "ended with an error");
            ExitCode::from(EXIT_FAILURE)
        }
        Err(error) => {
            tracing::error!(%process, error = telemetry::chain(&error), "cannot start");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Closes what systemd keeps for a run before this one, and hands to each: that it is kept
/// is enough.
fn close_kept(inherited: &mut ListenFd) {
    for index in 1..inherited.len() {
        if let Ok(Some(descriptor)) = inherited.take_raw_fd(index) {
            let _ = nix::unistd::close(descriptor);
        }
    }
}

fn start<O, R, E>(
    process: Process,
    open: impl FnOnce(&NodeConfig, &Lifecycle) -> Result<O, E>,
    serve: impl FnOnce(Context, O) -> R,
) -> Result<Result<(), E>, StartError>
where
    R: Future<Output = Result<(), E>>,
{
    let failed = |action| move |source| StartError::Io { action, source };
    let path = config_path(std::env::args_os()).ok_or(StartError::Usage { process })?;
    let config = NodeConfig::read(&path).map_err(StartError::Config)?;
    let identities = identities(&config).map_err(StartError::Identities)?;
    let mut inherited = ListenFd::from_env();
    let socket = inherited
        .take_unix_listener(0)
        .map_err(failed("take the listening socket"))?
        .ok_or(StartError::NoSocket)?;
    close_kept(&mut inherited);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(topology::row(process).blocking_threads_max())
        .thread_keep_alive(THREAD_KEEP_ALIVE)
        .build()
        .map_err(failed("start the runtime"))?;
    let shutdown = CancellationToken::new();
    let lifecycle = Lifecycle::supervised(shutdown.clone());
    let (listener, opened) = {
        let _inside = runtime.enter();
        let listener = Listener::from_unix(socket).map_err(failed("use the listening socket"))?;
        match open(&config, &lifecycle) {
            Ok(opened) => (listener, opened),
            Err(error) => return Ok(Err(error)),
        }
    };
    seal(&config, process)?;

    let context = Context {
        process,
        network: Network::unix(&config.directories.run_dir),
        config: Arc::new(config),
        clock: WallClock::system(),
        listener,
        identities: Arc::new(identities),
        boot_id: format!("{:016x}", rand::random::<u64>()),
        seed: rand::random(),
        lifecycle,
    };
    let result = runtime.block_on(async {
        let terminate = signal(SignalKind::terminate()).map_err(failed("watch SIGTERM"))?;
        tracing::info!(%process, boot_id = context.boot_id, "started");
        Ok(run(serve(context, opened), terminate, &shutdown).await)
    });
    runtime.shutdown_timeout(DRAIN_TIME);
    result
}

/// What a process may is taken from each thread by itself, so there must be one only:
/// others would keep it.
fn seal(config: &NodeConfig, process: Process) -> Result<(), StartError> {
    let tasks = std::fs::read_dir("/proc/self/task").map_err(|source| StartError::Io {
        action: "count its threads",
        source,
    })?;
    match tasks.count() {
        1 => confine::seal(&permitted(config, process)).map_err(StartError::Confine),
        threads => Err(StartError::Threads { threads }),
    }
}

/// Serves to the end, and has it begin with SIGTERM.
async fn run<T>(
    serving: impl Future<Output = T>,
    mut terminate: Signal,
    shutdown: &CancellationToken,
) -> T {
    tokio::pin!(serving);
    let first = tokio::time::Instant::now() + GIVE_BACK_PERIOD;
    let mut give_back = tokio::time::interval_at(first, GIVE_BACK_PERIOD);
    give_back.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // Cancel-safe: the future is pinned outside the loop.
            result = &mut serving => return result,
            // Cancel-safe: a signal that is not received stays pending.
            _ = terminate.recv() => shutdown.cancel(),
            // Cancel-safe: a tick that is not taken stays due.
            _ = give_back.tick() => confine::give_back_memory(),
        }
    }
}

fn config_path(mut arguments: impl Iterator<Item = OsString>) -> Option<PathBuf> {
    arguments.next()?;
    let flag = arguments.next()?;
    let path = arguments.next()?;
    (flag == NODE_CONFIG_FLAG && arguments.next().is_none()).then(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(arguments: &[&str]) -> Option<PathBuf> {
        config_path(arguments.iter().map(OsString::from))
    }

    #[test]
    fn exactly_one_flag_is_understood() {
        assert_eq!(path(&["pleg", "--node-config", "/a"]), Some("/a".into()));
        assert_eq!(path(&["pleg"]), None);
        assert_eq!(path(&["pleg", "--config", "/a"]), None);
        assert_eq!(path(&["pleg", "--node-config", "/a", "b"]), None);
    }

    #[test]
    fn only_what_was_read_and_is_wrong_counts_as_a_bad_configuration() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node.json");
        let exit_code = || {
            let refused = NodeConfig::read(&path).map_err(StartError::Config);
            refused.unwrap_err().exit_code()
        };
        assert_eq!(exit_code(), EXIT_FAILURE);
        std::fs::write(&path, "{").unwrap();
        assert_eq!(exit_code(), EXIT_BAD_CONFIGURATION);
        let of_users = |error| StartError::Identities(error).exit_code();
        let missing = topology::IdentityError::MissingUser {
            user: "bulkhead-pleg",
            process: Process::Pleg,
        };
        assert_eq!(of_users(missing.into()), EXIT_BAD_CONFIGURATION);
        let failed = UsersError::LookUp {
            user: "bulkhead-pleg".to_owned(),
            source: nix::errno::Errno::EIO,
        };
        assert_eq!(of_users(failed), EXIT_FAILURE);
    }
}
