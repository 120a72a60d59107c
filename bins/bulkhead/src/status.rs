//! `status`, `restart` and `crashes`: the processes, as the supervisor tells.

use std::process::ExitCode;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::supervisor_client::SupervisorClient;
use clock::WallClock;
use serde_json::{Value, json};
use tonic::transport::Channel;
use topology::Process;

use crate::arguments::{CrashesOptions, RestartOptions, StatusFormat, StatusOptions};
use crate::connection::{Connection, print};
use crate::failure::Failure;
use crate::table;
use crate::words::{age, mebibytes, plain};

fn client(connection: &Connection) -> Result<SupervisorClient<Channel>, Failure> {
    Ok(SupervisorClient::new(
        connection.channel(Process::Supervisor)?,
    ))
}

/// Prints the process table.
pub(crate) async fn status(
    connection: &Connection,
    options: &StatusOptions,
) -> Result<ExitCode, Failure> {
    let client = client(connection)?;
    if options.watch {
        let mut stream = connection
            .call(Process::Supervisor, || {
                let mut client = client.clone();
                async move { client.watch_status(v1::GetSupervisorStatusRequest {}).await }
            })
            .await?;
        while let Ok(Some(status)) = stream.message().await {
            print(&rendered(&status, options.output))?;
        }
        return Ok(ExitCode::FAILURE);
    }
    let status = connection
        .call(Process::Supervisor, || {
            let mut client = client.clone();
            async move { client.get_status(v1::GetSupervisorStatusRequest {}).await }
        })
        .await?;
    print(&rendered(&status, options.output))?;
    Ok(if all_ready(&status) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Restarts a process.
pub(crate) async fn restart(
    connection: &Connection,
    options: &RestartOptions,
) -> Result<ExitCode, Failure> {
    let client = client(connection)?;
    let request_id = format!("{}-{}", std::process::id(), WallClock::system().now().0);
    let request = v1::RestartProcessRequest {
        name: options.process.clone(),
        request_id,
    };
    let answer = connection
        .call(Process::Supervisor, || {
            let (mut client, request) = (client.clone(), request.clone());
            async move { client.restart_process(request).await }
        })
        .await?;
    print(&format!(
        "{} restarted (was pid {})\n",
        options.process, answer.old_pid
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints past endings.
pub(crate) async fn crashes(
    connection: &Connection,
    options: &CrashesOptions,
) -> Result<ExitCode, Failure> {
    let client = client(connection)?;
    let request = v1::ListCrashesRequest {
        name: options.process.clone().unwrap_or_default(),
    };
    let answer = connection
        .call(Process::Supervisor, || {
            let (mut client, request) = (client.clone(), request.clone());
            async move { client.list_crashes(request).await }
        })
        .await?;
    let now = WallClock::system().now();
    let mut text = String::new();
    for crash in &answer.crashes {
        let ending = crash.ending.clone().unwrap_or_default();
        let ago = age(now.since(clock::UnixNanos(ending.unix_nanos)));
        text += &format!(
            "{} (pid {}): {}, {ago} ago\n",
            crash.name, ending.pid, ending.reason
        );
        for line in &ending.last_log_lines {
            text += &format!("    {}\n", plain(line));
        }
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn all_ready(status: &v1::SupervisorStatus) -> bool {
    status
        .processes
        .iter()
        .all(|process| process.state() == v1::ProcessState::Ready)
}

fn rendered(status: &v1::SupervisorStatus, format: StatusFormat) -> String {
    match format {
        StatusFormat::Table => as_table(status, WallClock::system().now()),
        StatusFormat::Json => format!("{:#}\n", as_json(status)),
    }
}

fn state_words(process: &v1::ProcessStatus) -> String {
    let wait = Duration::from_millis(process.next_start_in_millis).as_secs_f64();
    match process.state() {
        v1::ProcessState::Unspecified => "unknown".to_owned(),
        v1::ProcessState::Starting => "starting".to_owned(),
        v1::ProcessState::Ready => "ready".to_owned(),
        v1::ProcessState::Backoff => format!("backoff {wait:.1}s"),
        v1::ProcessState::CrashLooping => format!("crash-looping {wait:.1}s"),
        v1::ProcessState::BadConfiguration => "bad-configuration".to_owned(),
        v1::ProcessState::Stopping => "stopping".to_owned(),
        v1::ProcessState::Stopped => "stopped".to_owned(),
    }
}

fn as_table(status: &v1::SupervisorStatus, now: clock::UnixNanos) -> String {
    let headings = [
        "PROCESS",
        "STATE",
        "PID",
        "USER",
        "UPTIME",
        "RESTARTS(1h/all)",
        "LAST-EXIT",
        "MEMORY",
        "CONFINEMENT",
    ];
    let rows: Vec<Vec<String>> = status
        .processes
        .iter()
        .map(|process| {
            let last_exit = process
                .last_ending
                .as_ref()
                .map_or("-".to_owned(), |ending| {
                    let ago = age(now.since(clock::UnixNanos(ending.unix_nanos)));
                    format!("{} ({ago} ago)", plain(&ending.reason))
                });
            let runs = process.pid != 0;
            let or_dash = |text: String| if runs { text } else { "-".to_owned() };
            vec![
                process.name.clone(),
                state_words(process),
                or_dash(process.pid.to_string()),
                process.user.clone(),
                or_dash(age(Duration::from_millis(process.uptime_millis))),
                format!("{}/{}", process.restarts_last_hour, process.restarts_total),
                last_exit,
                or_dash(mebibytes(process.pss_bytes)),
                or_dash(plain(&process.confinement)),
            ]
        })
        .collect();
    let mut text = table::render(&headings, &rows);
    for degradation in &status.degradations {
        text += &format!("degraded: {}\n", plain(degradation));
    }
    text
}

fn as_json(status: &v1::SupervisorStatus) -> Value {
    let processes: Vec<Value> = status
        .processes
        .iter()
        .map(|process| {
            json!({
                "name": process.name,
                "state": process.state().as_str_name().trim_start_matches("PROCESS_STATE_").to_lowercase(),
                "pid": process.pid,
                "uid": process.uid,
                "user": process.user,
                "uptimeMillis": process.uptime_millis,
                "restartsLastHour": process.restarts_last_hour,
                "restartsTotal": process.restarts_total,
                "lastEnding": process.last_ending.as_ref().map(|ending| json!({
                    "kind": ending.kind().as_str_name().trim_start_matches("ENDING_KIND_").to_lowercase(),
                    "code": ending.code,
                    "reason": ending.reason,
                    "pid": ending.pid,
                    "unixNanos": ending.unix_nanos,
                    "uptimeMillis": ending.uptime_millis,
                    "lastLogLines": ending.last_log_lines,
                })),
                "rssBytes": process.rss_bytes,
                "pssBytes": process.pss_bytes,
                "confinement": process.confinement,
                "statusText": process.status_text,
                "nextStartInMillis": process.next_start_in_millis,
            })
        })
        .collect();
    json!({
        "bootId": status.boot_id,
        "nodeName": status.node_name,
        "version": status.version,
        "ready": all_ready(status),
        "degradations": status.degradations,
        "processes": processes,
    })
}

#[cfg(test)]
mod tests;
