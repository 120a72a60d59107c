//! `top`: what pods and our own processes use.

mod processes;
pub(crate) mod reading;
mod screen;

use std::process::ExitCode;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::supervisor_client::SupervisorClient;
use bulkhead_api::v1::usage_client::UsageClient;
use clock::WallClock;
use topology::Process;

use crate::arguments::{Arguments, Command, TopOptions};
use crate::bundle::{self, Asked};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::Output;
use reading::{ProcessReading, Reading};

/// Between the two readings.
const APART: Duration = Duration::from_secs(1);

/// Who tells which processes of ours there are.
pub(crate) enum Supervision {
    /// Our supervisor.
    Ours,
    /// systemd, asked by this.
    Systemd(fn() -> Result<Asked, Failure>),
}

impl Supervision {
    /// Of the processes that this command line is about.
    pub(crate) fn of(arguments: &Arguments) -> Supervision {
        let ask = bundle::ask_for_processes;
        let is_wanted = matches!(arguments.command, Command::Top(_));
        if !is_wanted || !bundle::is_supervised_by_systemd(&arguments.run_dir) {
            return Supervision::Ours;
        }
        Supervision::Systemd(ask)
    }

    /// The processes that run.
    async fn processes(&self, connection: &Connection) -> Result<Vec<ProcessReading>, Failure> {
        let now = || WallClock::system().now();
        match self {
            Supervision::Ours => {
                let process = Process::Supervisor;
                let client = SupervisorClient::new(connection.channel(process)?);
                let status = connection.call(process, || {
                    let mut client = client.clone();
                    async move { client.get_status(v1::GetSupervisorStatusRequest {}).await }
                });
                Ok(processes::read(&status.await?, now()))
            }
            Supervision::Systemd(ask) => {
                let ask = *ask;
                let shown = tokio::task::spawn_blocking(move || ask()?.answer()).await;
                let shown = shown.map_err(|error| Failure::Local {
                    action: "ask systemd".to_owned(),
                    source: error.into(),
                })?;
                Ok(processes::read(&bundle::processes(&shown?), now()))
            }
        }
    }
}

/// Prints what is used between two readings.
pub(crate) async fn top(
    connection: &Connection,
    supervision: Supervision,
    options: &TopOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let before = read(connection, &supervision).await?;
    tokio::time::sleep(APART).await;
    let now = read(connection, &supervision).await?;
    output.text(&screen::tables(&before, &now, options.sort, output.colours))?;
    Ok(ExitCode::SUCCESS)
}

/// Reads all counters once.
async fn read(connection: &Connection, supervision: &Supervision) -> Result<Reading, Failure> {
    let pool = Process::PodWorkerPool;
    let usage = UsageClient::new(connection.channel(pool)?)
        .max_decoding_message_size(ipc::limits::MAX_USAGE_BYTES);
    let usage = connection.call(pool, || {
        let mut client = usage.clone();
        async move { client.get_usage(v1::GetUsageRequest {}).await }
    });
    let processes = supervision.processes(connection);
    let (usage, processes) = tokio::try_join!(usage, processes)?;
    Ok(Reading {
        pods: usage.pods,
        processes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::{ANSWER_WAIT, asked};

    #[tokio::test]
    async fn where_systemd_supervises_it_tells_the_processes() {
        let nowhere = tempfile::tempdir().unwrap();
        let connection = Connection::new(nowhere.path());
        let ours = Supervision::Ours.processes(&connection).await;
        assert!(matches!(ours, Err(Failure::NotRunning { .. })));
        let systemd = Supervision::Systemd(|| {
            let words = ["Id=bulkhead-pleg.service\nMainPID=1".to_owned()];
            asked("printf", &words, ANSWER_WAIT)
        });
        let read = systemd.processes(&connection).await.unwrap();
        let names: Vec<_> = read.iter().map(|it| (it.name.as_str(), it.pid)).collect();
        assert_eq!(names, [("pleg", 1)]);
    }
}
