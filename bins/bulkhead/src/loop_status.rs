//! `loop`: what the sync loop waits for and whom it hears. Each pod's own decision
//! is `describe`'s.

use std::process::ExitCode;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::sync_loop_client::SyncLoopClient;
use serde_json::{Value, json};
use topology::Process;

use crate::arguments::{LoopOptions, TableOrJson};
use crate::connection::Connection;
use crate::escape::plain;
use crate::failure::Failure;
use crate::output::Output;
use crate::table::{self, Cell, Tone};

/// Prints the state of the sync loop.
pub(crate) async fn loop_status(
    connection: &Connection,
    options: &LoopOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let client = SyncLoopClient::new(connection.channel(Process::SyncLoop)?);
    let status = connection
        .call(Process::SyncLoop, || {
            let mut client = client.clone();
            async move { client.get_loop_status(v1::GetLoopStatusRequest {}).await }
        })
        .await?;
    match options.output {
        TableOrJson::Table => output.text(&as_text(&status, output.colours))?,
        TableOrJson::Json => output.json(&as_json(&status))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn yes_or_no(yes: bool) -> Cell {
    match yes {
        true => Cell::toned("yes", Tone::Good),
        false => Cell::toned("no", Tone::Bad),
    }
}

fn or_dash(text: &str) -> Cell {
    match text {
        "" => "-".to_owned().into(),
        text => plain(text).into(),
    }
}

fn as_text(status: &v1::LoopStatus, colours: bool) -> String {
    let source = |source: &v1::SourceStatus| -> Vec<Cell> {
        vec![
            plain(&source.name).into(),
            yes_or_no(source.ready),
            source.pods.to_string().into(),
            source.problems.len().to_string().into(),
        ]
    };
    let peer = |peer: &v1::PeerStatus| -> Vec<Cell> {
        vec![
            plain(&peer.process).into(),
            yes_or_no(peer.connected),
            or_dash(&peer.last_error),
        ]
    };
    let sources: Vec<Vec<Cell>> = status.sources.iter().map(source).collect();
    let peers: Vec<Vec<Cell>> = status.peers.iter().map(peer).collect();
    let healthy = match (status.pleg_healthy, status.pleg_reason.as_str()) {
        (true, _) => "healthy".to_owned(),
        (false, reason) => format!("unhealthy: {}", plain(reason)),
    };
    let runtime = match status.runtime_error.as_str() {
        "" => "answers".to_owned(),
        error => format!("does not answer: {}", plain(error)),
    };
    let since = Duration::from_millis(status.millis_since_last_iteration).as_secs_f64();
    let mut text = table::render(&["SOURCE", "READY", "PODS", "PROBLEMS"], &sources, colours);
    text += "\n";
    text += &table::render(&["PEER", "CONNECTED", "LAST-ERROR"], &peers, colours);
    text += &format!(
        "\nRuntime:     {runtime}\nPLEG:        {healthy}\nWork queue:  {} pods\nIterations:  {}, the last {since:.1}s ago\n",
        status.work_queue_length, status.iterations,
    );
    for source in &status.sources {
        for problem in &source.problems {
            let line = format!("{}: {}", plain(&source.name), plain(problem));
            text += &format!("{}\n", Tone::Bad.paint(&line, colours));
        }
    }
    text
}

fn as_json(status: &v1::LoopStatus) -> Value {
    let source = |source: &v1::SourceStatus| {
        json!({
            "name": source.name,
            "ready": source.ready,
            "pods": source.pods,
            "problems": source.problems,
        })
    };
    let peer = |peer: &v1::PeerStatus| {
        json!({
            "process": peer.process,
            "connected": peer.connected,
            "bootId": peer.boot_id,
            "lastError": peer.last_error,
        })
    };
    json!({
        "bootId": status.boot_id,
        "sources": status.sources.iter().map(source).collect::<Vec<_>>(),
        "peers": status.peers.iter().map(peer).collect::<Vec<_>>(),
        "iterations": status.iterations,
        "millisSinceLastIteration": status.millis_since_last_iteration,
        "plegHealthy": status.pleg_healthy,
        "plegReason": status.pleg_reason,
        "runtimeError": status.runtime_error,
        "workQueueLength": status.work_queue_length,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> v1::LoopStatus {
        v1::LoopStatus {
            boot_id: "b".to_owned(),
            sources: vec![v1::SourceStatus {
                name: "file".to_owned(),
                ready: true,
                pods: 3,
                problems: vec!["bad.yaml: spec.containers: required\x1b[2J".to_owned()],
            }],
            peers: vec![v1::PeerStatus {
                process: "pleg".to_owned(),
                connected: false,
                last_error: "connection refused".to_owned(),
                ..v1::PeerStatus::default()
            }],
            iterations: 42,
            millis_since_last_iteration: 340,
            pleg_healthy: false,
            pleg_reason: "last relist was 4m ago".to_owned(),
            runtime_error: String::new(),
            work_queue_length: 2,
        }
    }

    #[test]
    fn everything_that_the_loop_waits_for_is_told() {
        let text = as_text(&status(), false);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in [
            "SOURCE READY PODS PROBLEMS file yes 3 1",
            "PEER CONNECTED LAST-ERROR pleg no connection refused",
            "Runtime: answers",
            "PLEG: unhealthy: last relist was 4m ago",
            "Work queue: 2 pods",
            "Iterations: 42, the last 0.3s ago",
            "file: bad.yaml: spec.containers: required",
        ] {
            assert!(words.contains(expected), "{expected} in {text}");
        }
        let mut down = status();
        down.pleg_healthy = true;
        down.runtime_error = "no socket".to_owned();
        let text = as_text(&down, false);
        assert!(text.contains("does not answer: no socket"), "{text}");
        assert!(text.contains("PLEG:        healthy\n"), "{text}");
    }

    #[test]
    fn nothing_that_is_told_steers_the_terminal() {
        assert!(!as_text(&status(), false).contains('\x1b'));
    }

    #[test]
    fn json_has_every_field() {
        let value = as_json(&status());
        assert_eq!(value["sources"][0]["pods"], 3);
        assert_eq!(value["peers"][0]["lastError"], "connection refused");
        assert_eq!(value["workQueueLength"], 2);
        assert_eq!(value.as_object().unwrap().len(), 9);
    }
}
