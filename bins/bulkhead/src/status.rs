//! `status`, `restart`, `reload` and `crashes`: the processes, as the supervisor tells.

use std::process::ExitCode;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::supervisor_client::SupervisorClient;
use clock::{UnixNanos, WallClock};
use ipc::Channel;
use serde_json::{Value, json};
use topology::Process;

use crate::api_server;
use crate::arguments::{CrashesOptions, RestartOptions, StatusOptions, TableOrJson};
use crate::connection::{Connection, Next, REOPEN, next};
use crate::escape::plain;
use crate::failure::Failure;
use crate::output::{Output, beside_verdict};
use crate::table::{self, Cell, Tone};
use crate::words::{age, mebibytes, timestamp};

fn client(connection: &Connection) -> Result<SupervisorClient<Channel>, Failure> {
    Ok(SupervisorClient::new(
        connection.channel(Process::Supervisor)?,
    ))
}

/// Prints the process table, and how the connection to the API server stands.
pub(crate) async fn status(
    connection: &Connection,
    options: &StatusOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let client = client(connection)?;
    if options.watch {
        return watch(connection, client, options.output, output).await;
    }
    let status = connection
        .call(Process::Supervisor, || {
            let mut client = client.clone();
            async move { client.get_status(v1::GetSupervisorStatusRequest {}).await }
        })
        .await?;
    let api_server = api_server::ask(connection, &status).await;
    let printed = print(&status, api_server.as_ref(), options.output, output);
    beside_verdict(printed)?;
    Ok(readiness(&status))
}

/// Whether all are ready, as an exit code.
pub(crate) fn readiness(status: &v1::SupervisorStatus) -> ExitCode {
    match all_ready(status) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Prints the table again whenever it changes, until interrupted.
async fn watch(
    connection: &Connection,
    client: SupervisorClient<Channel>,
    format: TableOrJson,
    output: Output,
) -> Result<ExitCode, Failure> {
    loop {
        let mut stream = connection
            .call(Process::Supervisor, || {
                let mut client = client.clone();
                async move { client.watch_status(v1::GetSupervisorStatusRequest {}).await }
            })
            .await?;
        // A stream that breaks is opened again: the supervisor was restarted.
        while let Next::Message(status) = next(Process::Supervisor, &mut stream).await? {
            let api_server = api_server::ask(connection, &status).await;
            print(&status, api_server.as_ref(), format, output)?;
        }
        tokio::time::sleep(REOPEN).await;
    }
}

/// Prints the process table, and below it the connection to the API server.
pub(crate) fn print(
    status: &v1::SupervisorStatus,
    api_server: Option<&v1::GetApiConnectionResponse>,
    format: TableOrJson,
    output: Output,
) -> Result<(), Failure> {
    let now = WallClock::system().now();
    match format {
        TableOrJson::Table => {
            let mut text = as_table(status, now, output.colours);
            text.extend(api_server.map(|it| api_server::as_text(it, now, output.colours)));
            output.text(&text)
        }
        TableOrJson::Json => {
            let mut value = as_json(status);
            value["apiServer"] = json!(api_server.map(|it| api_server::as_json(it, now)));
            output.json(&value)
        }
    }
}

/// Restarts a process.
pub(crate) async fn restart(
    connection: &Connection,
    options: &RestartOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let client = client(connection)?;
    let request = v1::RestartProcessRequest {
        name: options.process.clone(),
    };
    let answer = connection
        .call(Process::Supervisor, || {
            let (mut client, request) = (client.clone(), request.clone());
            async move { client.restart_process(request).await }
        })
        .await?;
    let before = match answer.old_pid {
        0 => "it did not run".to_owned(),
        pid => format!("was pid {pid}"),
    };
    output.text(&format!("{} restarted ({before})\n", options.process))?;
    Ok(ExitCode::SUCCESS)
}

/// Has the configuration read again, and tells what that has changed.
pub(crate) async fn reload(connection: &Connection, output: Output) -> Result<ExitCode, Failure> {
    let client = client(connection)?;
    let answer = connection
        .call(Process::Supervisor, || {
            let mut client = client.clone();
            async move { client.reload(v1::ReloadRequest {}).await }
        })
        .await?;
    output.text(&reloaded(&answer.restarted))?;
    Ok(ExitCode::SUCCESS)
}

fn reloaded(restarted: &[String]) -> String {
    if restarted.is_empty() {
        return "the configuration says nothing new; no process is restarted\n".to_owned();
    }
    let names = restarted.iter().map(|name| plain(name));
    let names: Vec<String> = names.collect();
    format!(
        "the configuration is read again; restarted: {}\n",
        names.join(", ")
    )
}

/// Prints past endings.
pub(crate) async fn crashes(
    connection: &Connection,
    options: &CrashesOptions,
    output: Output,
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
    let of = options.process.as_deref();
    print_crashes(&answer.crashes, of, options.output, output)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints past endings, `of` one process or of all.
pub(crate) fn print_crashes(
    crashes: &[v1::Crash],
    of: Option<&str>,
    format: TableOrJson,
    output: Output,
) -> Result<(), Failure> {
    match format {
        TableOrJson::Table => output.text(&crashes_as_text(crashes, of, WallClock::system().now())),
        TableOrJson::Json => {
            let crash = |crash: &v1::Crash| {
                let ending = crash.ending.as_ref().map(ending_as_json);
                json!({"process": crash.name, "ending": ending})
            };
            output.json(&crashes.iter().map(crash).collect::<Vec<_>>())
        }
    }
}

fn crashes_as_text(crashes: &[v1::Crash], of: Option<&str>, now: UnixNanos) -> String {
    if crashes.is_empty() {
        let of = of.map(|process| format!(" of {}", plain(process)));
        return format!("No crash{} is remembered.\n", of.unwrap_or_default());
    }
    let mut text = String::new();
    for crash in crashes {
        let ending = crash.ending.clone().unwrap_or_default();
        let at = UnixNanos(ending.unix_nanos);
        // systemd does not tell how long it ran, nor the pid of one that wrote nothing.
        let pid = match ending.pid {
            0 => String::new(),
            pid => format!(" (pid {pid})"),
        };
        let after = match ending.uptime_millis {
            0 => String::new(),
            millis => format!(", after {}", age(Duration::from_millis(millis))),
        };
        text += &format!(
            "{}{pid}: {}, {} ago ({}){after}\n",
            plain(&crash.name),
            plain(&ending.reason),
            age(now.since(at)),
            timestamp(at),
        );
        for line in &ending.last_log_lines {
            text += &format!("    {}\n", plain(line));
        }
    }
    text
}

fn all_ready(status: &v1::SupervisorStatus) -> bool {
    let is_ready = |process: &v1::ProcessStatus| process.state() == v1::ProcessState::Ready;
    !status.processes.is_empty() && status.processes.iter().all(is_ready)
}

/// The state in one word, in tables and in JSON.
fn state_word(state: v1::ProcessState) -> (&'static str, Tone) {
    match state {
        v1::ProcessState::Unspecified => ("unknown", Tone::Bad),
        v1::ProcessState::Starting => ("starting", Tone::Notable),
        v1::ProcessState::Ready => ("ready", Tone::Good),
        v1::ProcessState::Backoff => ("backoff", Tone::Bad),
        v1::ProcessState::CrashLooping => ("crash-looping", Tone::Bad),
        v1::ProcessState::BadConfiguration => ("bad-configuration", Tone::Bad),
        v1::ProcessState::Stopping => ("stopping", Tone::Notable),
        v1::ProcessState::Stopped => ("stopped", Tone::Bad),
    }
}

fn state_cell(process: &v1::ProcessStatus) -> Cell {
    let (word, tone) = state_word(process.state());
    let wait = Duration::from_millis(process.next_start_in_millis).as_secs_f64();
    if wait > 0.0 {
        Cell::toned(format!("{word} ({wait:.1}s)"), tone)
    } else {
        Cell::toned(word, tone)
    }
}

const HEADINGS: [&str; 9] = [
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

fn as_table(status: &v1::SupervisorStatus, now: UnixNanos, colours: bool) -> String {
    let row = |process: &v1::ProcessStatus| -> Vec<Cell> {
        let last_exit = process.last_ending.as_ref().map(|ending| {
            let ago = age(now.since(UnixNanos(ending.unix_nanos)));
            format!("{} ({ago} ago)", plain(&ending.reason))
        });
        let while_running = |text: String| match process.pid {
            0 => "-".to_owned(),
            _ => text,
        };
        let last_hour = restarts_last_hour(status, process);
        let last_hour = last_hour.map_or_else(|| "-".to_owned(), |count| count.to_string());
        // What is shared between processes counts once in the proportional size.
        let memory = match process.pss_bytes {
            0 => process.rss_bytes,
            bytes => bytes,
        };
        vec![
            plain(&process.name).into(),
            state_cell(process),
            while_running(process.pid.to_string()).into(),
            plain(&process.user).into(),
            while_running(age(Duration::from_millis(process.uptime_millis))).into(),
            format!("{last_hour}/{}", process.restarts_total).into(),
            last_exit.unwrap_or_else(|| "-".to_owned()).into(),
            while_running(mebibytes(memory)).into(),
            while_running(plain(&process.confinement)).into(),
        ]
    };
    let rows: Vec<Vec<Cell>> = status.processes.iter().map(row).collect();
    let mut text = table::render(&HEADINGS, &rows, colours);
    for process in &status.processes {
        if !process.status_text.is_empty() {
            text += &format!(
                "{}: {}\n",
                plain(&process.name),
                plain(&process.status_text)
            );
        }
    }
    for degradation in &status.degradations {
        let line = format!("degraded: {}", plain(degradation));
        text += &format!("{}\n", Tone::Notable.paint(&line, colours));
    }
    if !status.left_out.is_empty() {
        let left_out: Vec<String> = status.left_out.iter().map(|it| plain(it)).collect();
        text += &format!("left out, which root sees: {}\n", left_out.join(", "));
    }
    text
}

/// The restarts that are counted; systemd, which has no run of a supervisor to tell of, does
/// not say when its restarts were.
fn restarts_last_hour(status: &v1::SupervisorStatus, process: &v1::ProcessStatus) -> Option<u32> {
    (!status.boot_id.is_empty()).then_some(process.restarts_last_hour)
}

fn ending_as_json(ending: &v1::Ending) -> Value {
    let kind = ending.kind().as_str_name();
    json!({
        "kind": kind.trim_start_matches("ENDING_KIND_").to_lowercase().replace('_', "-"),
        "code": ending.code,
        "reason": ending.reason,
        "pid": ending.pid,
        "unixNanos": ending.unix_nanos,
        "uptimeMillis": ending.uptime_millis,
        "lastLogLines": ending.last_log_lines,
    })
}

fn as_json(status: &v1::SupervisorStatus) -> Value {
    let process = |process: &v1::ProcessStatus| {
        json!({
            "name": process.name,
            "state": state_word(process.state()).0,
            "pid": process.pid,
            "uid": process.uid,
            "user": process.user,
            "uptimeMillis": process.uptime_millis,
            "restartsLastHour": restarts_last_hour(status, process),
            "restartsTotal": process.restarts_total,
            "lastEnding": process.last_ending.as_ref().map(ending_as_json),
            "rssBytes": process.rss_bytes,
            "pssBytes": process.pss_bytes,
            "confinement": process.confinement,
            "statusText": process.status_text,
            "nextStartInMillis": process.next_start_in_millis,
        })
    };
    json!({
        "bootId": status.boot_id,
        "nodeName": status.node_name,
        "version": status.version,
        "ready": all_ready(status),
        "degradations": status.degradations,
        "leftOut": status.left_out,
        "processes": status.processes.iter().map(process).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
