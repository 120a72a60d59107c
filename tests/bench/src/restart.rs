//! How long a process is away when it is killed: from SIGKILL to the next
//! answer on its socket. A caller that it refuses has been answered too.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bulkhead_api::v1;
use topology::Process;

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

/// Calls until something answers that is not a broken connection.
fn answered(run_dir: &Path, process: Process) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime
        .block_on(async {
            let channel = ipc::Network::unix(run_dir).channel(process);
            let call = ipc::call(Duration::from_secs(20), || {
                // The process that serves this refuses root or answers; the others
                // do not know it: each is an answer.
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
