//! Running one program: its request on standard input, its answer from standard output.
//! It ends with all that it has started when its time is over, when it writes too much,
//! when nobody waits for it any more, and with this process.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use node_config::CredentialProvider;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use topology::Process;
use trusted_path::PathError;

use crate::exchange::MAX_ANSWER_BYTES;

/// A kubelet's, too.
const DEADLINE: Duration = Duration::from_secs(60);

/// Programs that run at once: the topology's figures for memory and tasks count with them.
const MAX_AT_ONCE: usize = 4;

/// Of one program: one that hangs leaves a place to the others.
const MAX_OF_ONE: usize = MAX_AT_ONCE - 1;

/// How much of a program's standard error goes to the log.
const MAX_LOGGED_BYTES: usize = 2 << 10;

/// Why a program gave no answer. Nothing of what it printed is in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// It cannot be looked at.
    #[error("{path} cannot be run: {source}", path = path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Somebody else than root could have put something else there.
    #[error("{path} is not run: {reason}", path = path.display())]
    Untrusted {
        /// The program, or a directory or link that leads to it.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It took too long.
    #[error("it gave no answer in time ({} s)", DEADLINE.as_secs())]
    Deadline,
    /// Its time was over before it was run.
    #[error("it was not run: {MAX_AT_ONCE} others, or {MAX_OF_ONE} of it, ran for {} s", DEADLINE.as_secs())]
    NoTurn,
    /// It printed too much.
    #[error("its answer has more than {MAX_ANSWER_BYTES} bytes")]
    TooLarge,
    /// Reading what it printed failed.
    #[error("its answer cannot be read: {0}")]
    Read(io::Error),
    /// It failed.
    #[error("it ended with {0}")]
    Failed(ExitStatus),
}

/// Runs programs of a directory.
#[derive(Debug)]
pub(crate) struct Runner {
    directory: PathBuf,
    /// Whose, beside root's, the programs may be: nobody's but in tests.
    owner: u32,
    environment: Vec<(OsString, OsString)>,
    places: Semaphore,
}

/// The places of one program.
#[derive(Debug)]
pub(crate) struct OwnPlaces(Semaphore);

impl Default for OwnPlaces {
    fn default() -> Self {
        OwnPlaces(Semaphore::new(MAX_OF_ONE))
    }
}

/// A program may run while this is held, until its time is over.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    _places: [SemaphorePermit<'a>; 2],
    deadline: Instant,
}

impl Runner {
    /// For the programs of this directory, which are root's or `owner`'s.
    pub(crate) fn new(directory: PathBuf, owner: u32) -> Runner {
        let variables = topology::row(Process::CredentialProvider).environment;
        let own = |name: &&str| Some((OsString::from(name), std::env::var_os(name)?));
        Runner {
            directory,
            owner,
            environment: variables.iter().filter_map(own).collect(),
            places: Semaphore::new(MAX_AT_ONCE),
        }
    }

    /// Waits until a program with these places may run. Takes a minute at most, the
    /// program's run included.
    pub(crate) async fn turn<'a>(&'a self, own: &'a OwnPlaces) -> Result<Turn<'a>, RunError> {
        let deadline = Instant::now() + DEADLINE;
        let places = async {
            // Those of the program first: who waits for one of them takes none of the others'.
            let own = own.0.acquire().await;
            Some([own.ok()?, self.places.acquire().await.ok()?])
        };
        // The semaphores are never closed.
        match tokio::time::timeout_at(deadline, places).await {
            Ok(Some(_places)) if Instant::now() < deadline => Ok(Turn { _places, deadline }),
            _ => Err(RunError::NoTurn),
        }
    }

    /// What the program answers to the request.
    pub(crate) async fn run(
        &self,
        turn: Turn<'_>,
        provider: &CredentialProvider,
        request: &[u8],
    ) -> Result<Vec<u8>, RunError> {
        let running = async {
            let path = self.directory.join(&provider.name);
            let child = self.start(provider, &path)?;
            exchange(&provider.name, child, request).await
        };
        let outcome = tokio::time::timeout_at(turn.deadline, running).await;
        outcome.unwrap_or(Err(RunError::Deadline))
    }

    /// To be called on the thread that lives as long as the process: the kernel ends the
    /// program with the thread that started it.
    fn start(&self, provider: &CredentialProvider, path: &Path) -> Result<Child, RunError> {
        let failed = |source| RunError::Start {
            path: path.to_owned(),
            source,
        };
        let real = trusted_path::follow(path, self.owner)?;
        let mut command = Command::new(&real);
        command
            .args(&provider.args)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .envs(&provider.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.as_std_mut().arg0(path).process_group(0);
        confine::follow_starter(command.as_std_mut());
        command.spawn().map_err(failed)
    }
}

impl From<PathError> for RunError {
    fn from(error: PathError) -> RunError {
        match error {
            PathError::Io { path, source } => RunError::Start { path, source },
            PathError::Untrusted { path, reason } => RunError::Untrusted { path, reason },
        }
    }
}

/// Kills a process group when it is dropped; tokio reaps its leader. What has left the group
/// ends with the cgroup of this process. Nobody else gets the number while a process of the group is left, or its leader is not
/// reaped; and when that is over, the group is killed in the same poll that saw the end.
struct Started(Pid);

impl Drop for Started {
    fn drop(&mut self) {
        // There may be nobody left.
        let _ = killpg(self.0, Signal::SIGKILL);
    }
}

async fn exchange(name: &str, mut child: Child, request: &[u8]) -> Result<Vec<u8>, RunError> {
    let id = child.id().map(u32::cast_signed);
    let _started = id.map(|id| Started(Pid::from_raw(id)));
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        return Err(RunError::Read(io::ErrorKind::BrokenPipe.into()));
    };
    let ask = async move {
        // A program need not read what it does not want to know.
        let _ = stdin.write_all(request).await;
        drop(stdin);
        Ok(())
    };
    let ((), answer, complaint) = tokio::try_join!(ask, whole(stdout), beginning(stderr))?;
    let status = child.wait().await.map_err(RunError::Read)?;
    if !complaint.is_empty() {
        let said = String::from_utf8_lossy(&complaint);
        tracing::info!(
            provider = name,
            said = said.trim(),
            "a program wrote to standard error"
        );
    }
    match status.success() {
        true => Ok(answer),
        false => Err(RunError::Failed(status)),
    }
}

async fn whole(output: impl AsyncRead + Unpin) -> Result<Vec<u8>, RunError> {
    let mut answer = Vec::new();
    let mut output = output.take(MAX_ANSWER_BYTES as u64 + 1);
    output
        .read_to_end(&mut answer)
        .await
        .map_err(RunError::Read)?;
    match answer.len() > MAX_ANSWER_BYTES {
        true => Err(RunError::TooLarge),
        false => Ok(answer),
    }
}

/// Reads to the end and keeps the beginning.
async fn beginning(mut output: impl AsyncRead + Unpin) -> Result<Vec<u8>, RunError> {
    let mut kept = Vec::new();
    let mut buffer = vec![0; MAX_LOGGED_BYTES];
    loop {
        let count = output.read(&mut buffer).await.map_err(RunError::Read)?;
        if count == 0 {
            return Ok(kept);
        }
        let room = MAX_LOGGED_BYTES - kept.len();
        kept.extend(buffer.iter().take(count.min(room)));
    }
}

#[cfg(test)]
mod tests;
