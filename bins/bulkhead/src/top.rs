//! `top`: what pods and our own processes use, live.

mod live;
mod processes;
pub(crate) mod reading;
mod screen;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::supervisor_client::SupervisorClient;
use bulkhead_api::v1::usage_client::UsageClient;
use clock::WallClock;
use topology::Process;

use crate::arguments::TopOptions;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::Output;
use reading::Reading;

/// Between the two readings of plain rows.
const APART: Duration = Duration::from_secs(1);

/// Shows what is used: a screen that goes on where there is a terminal, else rows.
pub(crate) async fn top(
    connection: &Connection,
    options: &TopOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let is_live = output.terminal && std::io::stdin().is_terminal() && !options.once;
    if is_live {
        // What is wrong from the beginning is told as in every command.
        connection.channel(Process::PodWorkerPool)?;
        live::run(async || read(connection).await, options.sort, output).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let before = read(connection).await?;
    tokio::time::sleep(APART).await;
    let now = read(connection).await?;
    output.text(&screen::tables(
        Some(&before),
        &now,
        options.sort,
        output.colours,
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads all counters once.
async fn read(connection: &Connection) -> Result<Reading, Failure> {
    let (pool, supervisor) = (Process::PodWorkerPool, Process::Supervisor);
    let usage = UsageClient::new(connection.channel(pool)?)
        .max_decoding_message_size(ipc::limits::MAX_RELIST_BYTES);
    let status = SupervisorClient::new(connection.channel(supervisor)?);
    let usage = connection.call(pool, || {
        let mut client = usage.clone();
        async move { client.get_usage(v1::GetUsageRequest {}).await }
    });
    let processes = async {
        let status = connection.call(supervisor, || {
            let mut client = status.clone();
            async move { client.get_status(v1::GetSupervisorStatusRequest {}).await }
        });
        let status = status.await?;
        Ok::<_, Failure>(processes::read(&status, WallClock::system().now()))
    };
    let (usage, processes) = tokio::try_join!(usage, processes)?;
    Ok(Reading {
        pods: usage.pods,
        processes,
    })
}
