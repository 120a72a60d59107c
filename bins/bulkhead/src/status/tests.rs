//! How the process table looks.

use super::*;

fn status() -> v1::SupervisorStatus {
    let process = |name: &str, state: v1::ProcessState, pid| v1::ProcessStatus {
        name: name.to_owned(),
        state: state.into(),
        pid,
        user: "u".to_owned(),
        uptime_millis: 61_000,
        restarts_last_hour: 1,
        restarts_total: 2,
        pss_bytes: 3 << 20,
        confinement: "caps 0, nnp".to_owned(),
        ..v1::ProcessStatus::default()
    };
    let mut failing = process("prober", v1::ProcessState::Backoff, 0);
    failing.next_start_in_millis = 3200;
    failing.last_ending = Some(v1::Ending {
        reason: "killed by SIGKILL".to_owned(),
        unix_nanos: 1_000_000_000,
        ..v1::Ending::default()
    });
    v1::SupervisorStatus {
        processes: vec![process("pleg", v1::ProcessState::Ready, 7), failing],
        degradations: vec!["no oom_score_adj".to_owned()],
        ..v1::SupervisorStatus::default()
    }
}

#[test]
fn the_table_tells_each_process_in_a_row() {
    let table = as_table(&status(), clock::UnixNanos(6_000_000_000));
    let lines: Vec<&str> = table.lines().collect();
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        words(lines[1]),
        "pleg ready 7 u 61s 1/2 - 3.0 MiB caps 0, nnp"
    );
    assert_eq!(
        words(lines[2]),
        "prober backoff 3.2s - u - 1/2 killed by SIGKILL (5s ago) - -"
    );
    assert_eq!(lines[3], "degraded: no oom_score_adj");
}

#[test]
fn json_says_whether_all_are_ready() {
    let mut status = status();
    assert_eq!(as_json(&status)["ready"], false);
    assert_eq!(as_json(&status)["processes"][1]["state"], "backoff");
    status.processes.pop();
    assert_eq!(as_json(&status)["ready"], true);
}
