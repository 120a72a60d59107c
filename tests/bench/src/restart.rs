//! How long a process is away when it is killed: from SIGKILL to the next
//! answer on its socket. A caller that it refuses, or hangs up on, has been answered too.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bulkhead_api::v1;
use topology::{Caller, Process, row};

use crate::statistics::{Row, Samples};
use crate::world::World;

/// Each round starts all processes anew, so that no back-off is due.
pub(crate) fn each_part(rounds: usize) -> Result<Vec<Row>> {
    let mut world = World::create()?;
    let mut all = Samples::default();
    let mut rows = Vec::new();
    for process in Process::ON_EVERY_NODE
        .into_iter()
        .filter(|process| *process != Process::Supervisor)
    {
        let mut samples = Samples::default();
        for _ in 0..rounds {
            world.bulkhead.stop()?;
            world.bulkhead.start_again()?;
            let run_dir = world.bulkhead.paths().run.clone();
            answered(&run_dir, process)?;
            let begin = Instant::now();
            world.bulkhead.kill(process)?;
            answered(&run_dir, process)?;
            samples.push(begin.elapsed());
            all.push(begin.elapsed());
        }
        rows.push(Row::alone(
            &format!("{process} killed -> answers"),
            &samples,
            "p99 < 100 ms",
        ));
    }
    rows.insert(
        0,
        Row::alone("any process killed -> answers", &all, "p99 < 100 ms"),
    );
    Ok(rows)
}

/// A process that is away for longer does not come back.
const PATIENCE: Duration = Duration::from_secs(20);

/// Calls until the process answers, however it does.
pub(crate) fn answered(run_dir: &Path, process: Process) -> Result<()> {
    let services = row(process).services.iter();
    let mut callers = services.flat_map(|service| service.callers);
    let serves_root = callers.any(|caller| match caller {
        Caller::Operator => true,
        Caller::Process(process) => row(*process).root,
    });
    if serves_root {
        return has_answered(run_dir, process);
    }
    has_hung_up(&run_dir.join(format!("{process}.sock")))
        .with_context(|| format!("after a kill: {process}"))
}

/// Of who serves nothing for a user like ours, which is root: it hangs up as soon as it accepts. Until then a
/// connection waits in the queue.
fn has_hung_up(socket: &Path) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let mut connection = UnixStream::connect(socket)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        // An error is that of a run that was killed with the connection.
        if matches!(connection.read(&mut [0]), Ok(0)) {
            return Ok(());
        }
    }
    bail!("it does not answer")
}

/// Of others: any answer to a call that is not a broken connection.
fn has_answered(run_dir: &Path, process: Process) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime
        .block_on(async {
            let channel = ipc::Network::unix(run_dir).channel(process);
            let call = ipc::call(PATIENCE, || {
                // None of them knows it, and to say so is an answer.
                let mut client = v1::pleg_client::PlegClient::new(channel.clone());
                async move {
                    client
                        .watch_events(v1::WatchPodLifecycleEventsRequest {})
                        .await
                }
            });
            match call.await {
                Err(ipc::CallError::Deadline { .. }) => bail!("{process} does not answer"),
                Ok(_) | Err(ipc::CallError::Refused(_)) => Ok(()),
            }
        })
        .context("after a kill")
}
