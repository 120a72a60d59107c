//! `top`: what pods use.

pub(crate) mod reading;
mod screen;

use std::process::ExitCode;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::usage_client::UsageClient;
use topology::Process;

use crate::arguments::TopOptions;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::Output;

/// Between the two readings.
const APART: Duration = Duration::from_secs(1);

/// Prints what is used between two readings.
pub(crate) async fn top(
    connection: &Connection,
    options: &TopOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let before = read(connection).await?;
    tokio::time::sleep(APART).await;
    let now = read(connection).await?;
    let table = screen::table(&before, &now, options.sort, output.colours);
    output.text(&table)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads all counters once.
async fn read(connection: &Connection) -> Result<Vec<v1::PodUsage>, Failure> {
    let pool = Process::PodWorkerPool;
    let usage = UsageClient::new(connection.channel(pool)?)
        .max_decoding_message_size(ipc::limits::MAX_USAGE_BYTES);
    let usage = connection.call(pool, || {
        let mut client = usage.clone();
        async move { client.get_usage(v1::GetUsageRequest {}).await }
    });
    Ok(usage.await?.pods)
}
