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
        boot_id: "b".to_owned(),
        processes: vec![process("pleg", v1::ProcessState::Ready, 7), failing],
        degradations: vec!["no oom_score_adj".to_owned()],
        ..v1::SupervisorStatus::default()
    }
}

#[test]
fn what_is_left_out_is_said() {
    let told = v1::SupervisorStatus {
        left_out: vec!["last log lines of crashes".to_owned()],
        ..status()
    };
    let table = as_table(&told, UnixNanos(0), false);
    let last = "\nleft out, which root sees: last log lines of crashes\n";
    assert!(table.ends_with(last), "{table}");
    assert_eq!(as_json(&told)["leftOut"][0], "last log lines of crashes");
}

#[test]
fn the_table_tells_each_process_in_a_row() {
    let table = as_table(&status(), UnixNanos(6_000_000_000), false);
    assert_eq!(
        table,
        "\
PROCESS   STATE            PID   USER   UPTIME   RESTARTS(1h/all)   LAST-EXIT                    MEMORY    CONFINEMENT
pleg      ready            7     u      61s      1/2                -                            3.0 MiB   caps 0, nnp
prober    backoff (3.2s)   -     u      -        1/2                killed by SIGKILL (5s ago)   -         -
degraded: no oom_score_adj
"
    );
}

#[test]
fn restarts_of_the_last_hour_are_not_told_as_none_where_nobody_counts_them() {
    let shown = "Id=bulkhead-pleg.service\nActiveState=active\nNRestarts=57\n";
    let told = crate::systemd::status(shown, "n", Duration::ZERO);
    let table = as_table(&told, UnixNanos(0), false);
    assert!(table.contains(" -/57 "), "{table}");
    let json = as_json(&told);
    assert_eq!(json["processes"][0]["restartsLastHour"], Value::Null);
    assert_eq!(json["processes"][0]["restartsTotal"], 57);
}

#[test]
fn what_is_wrong_is_red() {
    let table = as_table(&status(), UnixNanos(0), true);
    assert!(table.contains("\x1b[31mbackoff (3.2s)\x1b[0m"), "{table}");
    assert!(table.contains("\x1b[32mready\x1b[0m"), "{table}");
}

#[test]
fn json_says_whether_all_are_ready() {
    let mut status = status();
    assert_eq!(as_json(&status)["ready"], false);
    assert_eq!(as_json(&status)["processes"][1]["state"], "backoff");
    status.processes.pop();
    assert_eq!(as_json(&status)["ready"], true);
    status.processes.clear();
    assert_eq!(
        as_json(&status)["ready"],
        false,
        "a node without processes is not well"
    );
}

#[test]
fn a_reload_tells_what_is_restarted() {
    assert!(reloaded(&[]).contains("no process is restarted"));
    let names = ["pleg".to_owned(), "pro\x1bber".to_owned()];
    assert_eq!(
        reloaded(&names),
        "the configuration is read again; restarted: pleg, pro^[ber\n"
    );
}

#[test]
fn a_crash_is_told_with_its_last_lines() {
    let ending = v1::Ending {
        reason: "killed by SIGSEGV".to_owned(),
        pid: 9,
        unix_nanos: 60_000_000_000,
        uptime_millis: 5_000,
        last_log_lines: vec!["first\x1b[2J".to_owned(), "second".to_owned()],
        ..v1::Ending::default()
    };
    let crash = v1::Crash {
        name: "pleg".to_owned(),
        ending: Some(ending),
    };
    assert_eq!(
        crashes_as_text(&[crash], None, UnixNanos(70_000_000_000)),
        "pleg (pid 9): killed by SIGSEGV, 10s ago (1970-01-01T00:01:00Z), after 5s\n    first^[[2J\n    second\n"
    );
    let none = |of| crashes_as_text(&[], of, UnixNanos(0));
    assert_eq!(none(None), "No crash is remembered.\n");
    assert_eq!(none(Some("pleg")), "No crash of pleg is remembered.\n");
}
