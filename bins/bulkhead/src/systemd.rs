//! What `systemctl show` and `journalctl` print of the services of the bundle, in the words
//! of our own supervisor. Pure: `bundle` runs the two.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bulkhead_api::v1;
use nix::sys::signal::Signal;
use serde_json::Value;
use topology::Process;

/// The properties of a service that are asked for: org.freedesktop.systemd1(5).
pub(crate) const PROPERTIES: &str = "Id,ActiveState,SubState,Result,MainPID,NRestarts,User,\
     StatusText,MemoryCurrent,ExecMainStartTimestampMonotonic,LoadState";

/// The message with which systemd notes in the journal that the process of a unit has ended
/// (SD_MESSAGE_UNIT_PROCESS_EXIT, sd-messages.h).
const PROCESS_EXIT: &str = "MESSAGE_ID=98e322203f7a4ed290d09fe03c09fe15";

/// A field that the journal itself fills in: so only systemd tells of an ending, and not
/// everybody who writes to the journal.
const FROM_SYSTEMD: &str = "_PID=1";

/// Endings that are looked through for the last ones of each process.
const EXITS_MAX: &str = "--lines=1024";

/// Log lines that are looked through for the last ones before each ending.
const LINES_MAX: &str = "--lines=4096";

/// Crashes that are shown of each process, as many as our supervisor keeps.
const CRASHES_OF_EACH: usize = 6;

/// Log lines that are shown of each crash; as many as our supervisor keeps.
const LINES_OF_EACH: usize = 20;

/// What stands for a line that the journal does not print: it is too long.
const LONG_LINE: &str = "(a long line: see journalctl --all)";

/// What our supervisor's program is called, which a service runs once more after its end.
const SUPERVISOR_PROGRAM: &str = "supervisor";

/// What `journalctl` is asked for endings, of one process or of all.
pub(crate) fn ask_for_exits(of: Option<Process>) -> Vec<String> {
    let fields = "--output-fields=UNIT,EXIT_CODE,EXIT_STATUS,INVOCATION_ID";
    let mut words = vec![EXITS_MAX, fields, FROM_SYSTEMD, PROCESS_EXIT];
    words.extend(["--output=json", "--no-pager"]);
    of_units(&words, "UNIT", of)
}

/// What it is asked for the log lines of the same processes.
pub(crate) fn ask_for_lines(of: Option<Process>) -> Vec<String> {
    let fields = "--output-fields=MESSAGE,_PID,_COMM,_SYSTEMD_INVOCATION_ID";
    let words = [LINES_MAX, fields, "--output=json", "--no-pager"];
    of_units(&words, "_SYSTEMD_UNIT", of)
}

/// What asks journalctl for what the processes of a unit have said last. With `--unit` it
/// would tell what systemd says of the unit too, which is three lines for a reload that
/// fails, and the journal may have those after the reason.
pub(crate) fn ask_why(unit: &str) -> Vec<String> {
    let of_unit = format!("_SYSTEMD_UNIT={unit}");
    let words = ["--lines=3", "--output=cat", "--no-pager", &of_unit];
    words.map(str::to_owned).into()
}

fn of_units(words: &[&str], field: &str, of: Option<Process>) -> Vec<String> {
    let is_meant = |process: &Process| of.is_none_or(|of| of == *process);
    let processes = Process::ALL.into_iter().skip(1).filter(is_meant);
    let units = processes.map(|process| format!("{field}={}", unit(process)));
    let words = words.iter().map(|word| (*word).to_owned());
    words.chain(units).collect()
}

/// The unit of a process.
pub(crate) fn unit(process: Process) -> String {
    format!("bulkhead-{process}.service")
}

fn process_of(unit: &str) -> Option<Process> {
    let name = unit.strip_prefix("bulkhead-")?.strip_suffix(".service")?;
    name.parse().ok()
}

/// The process table, from the properties of all services; `since_boot` is now on the clock
/// that systemd counts by.
pub(crate) fn status(shown: &str, node_name: &str, since_boot: Duration) -> v1::SupervisorStatus {
    let services = shown.split("\n\n").map(properties);
    let processes = services.filter_map(|service| process(&service, since_boot));
    v1::SupervisorStatus {
        node_name: node_name.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        processes: processes.collect(),
        ..v1::SupervisorStatus::default()
    }
}

/// Whether any of these units is up, or on its way: a target is not while what it wants
/// starts, but has a job.
pub(crate) fn is_any_up(shown: &str) -> bool {
    let is_up = |unit: BTreeMap<&str, &str>| {
        let value = |name| unit.get(name).copied().unwrap_or_default();
        !matches!(value("ActiveState"), "inactive" | "failed" | "")
            || !matches!(value("Job"), "0" | "")
    };
    shown.split("\n\n").map(properties).any(is_up)
}

/// That nobody watches the processes, for people.
pub(crate) fn unwatched(error: &std::io::Error) -> String {
    format!(
        "nobody looks at what the processes keep and refuse to each other: bulkhead-watch.service has told nothing ({error})"
    )
}

/// That nothing starts because it cannot be prepared by this unit, for people.
pub(crate) fn unprepared(shown: &str, unit: &str) -> Option<String> {
    let mut services = shown.split("\n\n").map(properties);
    let own = services.find(|service| service.get("Id") == Some(&unit))?;
    let value = |name| own.get(name).copied().unwrap_or_default();
    let then = match (value("ActiveState"), value("SubState")) {
        ("failed", _) => "",
        ("activating", sub) if sub.starts_with("auto-restart") => ", and is tried again",
        _ => return None,
    };
    Some(format!(
        "nothing starts: {unit} has failed{then} (journalctl --unit={unit} says why)"
    ))
}

/// Whether something has changed that is worth a look: memory and times always do.
pub(crate) fn is_news(before: &v1::SupervisorStatus, now: &v1::SupervisorStatus) -> bool {
    let telling = |status: &v1::SupervisorStatus| {
        let mut status = status.clone();
        for process in &mut status.processes {
            process.uptime_millis = 0;
            process.rss_bytes = 0;
        }
        status
    };
    telling(before) != telling(now)
}

fn properties(block: &str) -> BTreeMap<&str, &str> {
    block
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect()
}

/// The row of one; none of a process that waits for its first caller, as one that the
/// node's configuration does not name does for ever.
fn process(service: &BTreeMap<&str, &str>, since_boot: Duration) -> Option<v1::ProcessStatus> {
    let text = |name: &str| service.get(name).copied().unwrap_or_default();
    let number = |name: &str| text(name).parse::<u64>().unwrap_or_default();
    let process = process_of(text("Id"))?;
    let state = state(text("ActiveState"), text("SubState"), text("Result"));
    let is_on_every_node = Process::ON_EVERY_NODE.contains(&process);
    if !is_on_every_node && state == v1::ProcessState::Stopped {
        return None;
    }
    let started = Duration::from_micros(number("ExecMainStartTimestampMonotonic"));
    let pid = u32::try_from(number("MainPID")).unwrap_or_default();
    let uptime = since_boot.saturating_sub(started).as_millis();
    Some(v1::ProcessStatus {
        name: process.name().to_owned(),
        state: state.into(),
        pid,
        user: text("User").to_owned(),
        uptime_millis: u64::try_from(uptime).unwrap_or_default(),
        restarts_total: number("NRestarts"),
        rss_bytes: number("MemoryCurrent"),
        confinement: "by its unit".to_owned(),
        status_text: text("StatusText").to_owned(),
        ..v1::ProcessStatus::default()
    })
}

fn state(active: &str, sub: &str, result: &str) -> v1::ProcessState {
    match (active, sub, result) {
        ("active", _, _) => v1::ProcessState::Ready,
        // Later versions of systemd have "auto-restart-queued" as well.
        ("activating", sub, _) if sub.starts_with("auto-restart") => v1::ProcessState::Backoff,
        ("activating", _, _) => v1::ProcessState::Starting,
        ("deactivating", _, _) => v1::ProcessState::Stopping,
        // Nothing else has systemd stop trying.
        ("failed", _, "exit-code") => v1::ProcessState::BadConfiguration,
        ("failed", _, _) => v1::ProcessState::CrashLooping,
        _ => v1::ProcessState::Stopped,
    }
}

/// What a run of a process wrote last.
#[derive(Default)]
struct LastLines {
    pid: u32,
    lines: VecDeque<String>,
}

/// The last endings of each process, newest first, each with the last lines of that run,
/// from the journal's answers to [`ask_for_exits`] and [`ask_for_lines`].
pub(crate) fn crashes(exits: &str, lines: &str) -> Vec<v1::Crash> {
    let runs = last_lines(lines);
    let mut shown: BTreeMap<String, usize> = BTreeMap::new();
    let newest_first = entries(exits).rev();
    let crashes = newest_first.filter_map(|entry| crash(&entry, &runs));
    crashes
        .filter(|crash| {
            let shown = shown.entry(crash.name.clone()).or_default();
            *shown += 1;
            *shown <= CRASHES_OF_EACH
        })
        .collect()
}

/// The entries of an answer, one JSON object a line, oldest first.
fn entries(journal: &str) -> impl DoubleEndedIterator<Item = Value> {
    let lines = journal.lines();
    lines.filter_map(|line| serde_json::from_str(line).ok())
}

/// The last lines of each run, by its invocation.
fn last_lines(journal: &str) -> BTreeMap<String, LastLines> {
    let mut runs: BTreeMap<String, LastLines> = BTreeMap::new();
    for entry in entries(journal) {
        let text = |name: &str| entry[name].as_str().unwrap_or_default();
        if text("_COMM") == SUPERVISOR_PROGRAM {
            continue;
        }
        let run = runs.entry(text("_SYSTEMD_INVOCATION_ID").to_owned());
        let run = run.or_default();
        run.pid = text("_PID").parse().unwrap_or_default();
        run.lines.push_back(message(&entry["MESSAGE"]));
        if run.lines.len() > LINES_OF_EACH {
            run.lines.pop_front();
        }
    }
    runs
}

/// A line; the journal has the bytes of one that is no text, and nothing of a long one.
fn message(value: &Value) -> String {
    let bytes = |values: &Vec<Value>| -> Vec<u8> {
        let bytes = values.iter().filter_map(Value::as_u64);
        bytes.filter_map(|it| u8::try_from(it).ok()).collect()
    };
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => String::from_utf8_lossy(&bytes(values)).into_owned(),
        _ => LONG_LINE.to_owned(),
    }
}

fn crash(entry: &Value, runs: &BTreeMap<String, LastLines>) -> Option<v1::Crash> {
    let text = |name: &str| entry[name].as_str().unwrap_or_default();
    let process = process_of(text("UNIT"))?;
    let micros: i64 = text("__REALTIME_TIMESTAMP").parse().ok()?;
    let (how, status) = (text("EXIT_CODE"), text("EXIT_STATUS"));
    let code: i32 = status.parse().unwrap_or_default();
    let (kind, reason) = match (how, code) {
        ("exited", 0) => (v1::EndingKind::ExitZero, "exit code 0".to_owned()),
        ("exited", _) => (v1::EndingKind::ExitNonZero, format!("exit code {status}")),
        _ => {
            let signal = Signal::try_from(code).map_or("a signal", Signal::as_str);
            (v1::EndingKind::Signal, format!("killed by {signal}"))
        }
    };
    let run = runs.get(text("INVOCATION_ID"));
    let ending = v1::Ending {
        kind: kind.into(),
        code,
        unix_nanos: micros.checked_mul(1000)?,
        reason,
        pid: run.map(|run| run.pid).unwrap_or_default(),
        last_log_lines: run.into_iter().flat_map(|run| run.lines.clone()).collect(),
        ..v1::Ending::default()
    };
    Some(v1::Crash {
        name: process.name().to_owned(),
        ending: Some(ending),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "Id=bulkhead-pleg.service\nActiveState=active\nSubState=running\n\
        Result=success\nMainPID=120\nNRestarts=3\nUser=bulkhead-pleg\n\
        StatusText=relist interval 1 s: 1=1\nMemoryCurrent=1300000\n\
        ExecMainStartTimestampMonotonic=4000000\nLoadState=loaded\n\n\
        Id=bulkhead-credential-provider.service\nActiveState=inactive\nSubState=dead\n\
        Result=success\nMainPID=0\n\n\
        Id=bulkhead-prober.service\nActiveState=activating\nSubState=auto-restart\n\
        Result=signal\nMainPID=0\nMemoryCurrent=[not set]\n\nId=other.service\n";

    #[test]
    fn a_service_is_a_row_of_the_table() {
        let status = status(SHOWN, "node-a", Duration::from_secs(10));
        let names: Vec<&str> = status.processes.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["pleg", "prober"], "the idle one is not shown");
        let pleg = &status.processes[0];
        assert_eq!(pleg.state(), v1::ProcessState::Ready);
        assert_eq!((pleg.pid, pleg.restarts_total), (120, 3));
        assert_eq!(pleg.uptime_millis, 6000);
        assert_eq!(pleg.status_text, "relist interval 1 s: 1=1");
        assert_eq!(status.processes[1].state(), v1::ProcessState::Backoff);
        assert_eq!(status.processes[1].rss_bytes, 0);
    }

    #[test]
    fn what_is_on_its_way_is_up() {
        let target = |state: &str, prepare: &str| {
            is_any_up(&format!("ActiveState={state}\n\nActiveState={prepare}\n"))
        };
        assert!(target("active", "failed"), "nothing could be prepared");
        assert!(
            target("inactive\nJob=812", "inactive"),
            "the network comes first"
        );
        assert!(target("inactive", "activating"));
        assert!(target("inactive", "active"));
        assert!(!target("inactive", "failed"));
        assert!(!target("inactive\nJob=0", "inactive\nJob="));
        assert!(!is_any_up(""));
    }

    #[test]
    fn that_nothing_could_be_prepared_is_told() {
        let shown =
            |state| format!("Id=bulkhead-pleg.service\n\nId=p.service\nActiveState={state}\n");
        assert_eq!(unprepared(&shown("active"), "p.service"), None);
        assert_eq!(unprepared(&shown("failed"), "q.service"), None);
        let told = unprepared(&shown("failed"), "p.service").unwrap();
        assert!(told.contains("journalctl --unit=p.service"), "{told}");
        assert!(!told.contains("again"), "{told}");
        let told = unprepared(&shown("activating\nSubState=auto-restart"), "p.service");
        assert!(told.unwrap().contains("has failed, and is tried again"));
        let first = unprepared(&shown("activating\nSubState=start"), "p.service");
        assert_eq!(first, None);
    }

    #[test]
    fn a_watched_status_is_shown_again_when_more_than_time_has_passed() {
        let shown = |pid: u32, memory: u32| {
            format!(
                "Id=bulkhead-pleg.service\nActiveState=active\nMainPID={pid}\nMemoryCurrent={memory}\n"
            )
        };
        let at = |shown: &str, seconds| status(shown, "n", Duration::from_secs(seconds));
        let before = at(&shown(7, 1), 1);
        assert!(!is_news(&before, &at(&shown(7, 2), 9)));
        assert!(is_news(&before, &at(&shown(8, 1), 1)));
        let mut degraded = before.clone();
        degraded.degradations.push("x".to_owned());
        assert!(is_news(&before, &degraded));
    }

    #[test]
    fn states_have_the_words_of_our_supervisor() {
        for (active, sub, result, expected) in [
            ("active", "running", "success", v1::ProcessState::Ready),
            ("activating", "start", "success", v1::ProcessState::Starting),
            (
                "activating",
                "auto-restart-queued",
                "signal",
                v1::ProcessState::Backoff,
            ),
            (
                "deactivating",
                "stop-sigterm",
                "success",
                v1::ProcessState::Stopping,
            ),
            (
                "failed",
                "failed",
                "exit-code",
                v1::ProcessState::BadConfiguration,
            ),
            ("failed", "failed", "signal", v1::ProcessState::CrashLooping),
            ("inactive", "dead", "success", v1::ProcessState::Stopped),
        ] {
            assert_eq!(state(active, sub, result), expected, "{active} {sub}");
        }
    }

    fn exit(unit: &str, code: &str, status: &str, invocation: &str) -> String {
        format!(
            "{{\"UNIT\":\"{unit}\",\"EXIT_CODE\":\"{code}\",\"EXIT_STATUS\":\"{status}\",\
             \"INVOCATION_ID\":\"{invocation}\",\"__REALTIME_TIMESTAMP\":\"1700000000000001\"}}"
        )
    }

    fn line(invocation: &str, command: &str, message: &str) -> String {
        format!(
            "{{\"_SYSTEMD_INVOCATION_ID\":\"{invocation}\",\"_PID\":\"120\",\
             \"_COMM\":\"{command}\",\"MESSAGE\":{message}}}"
        )
    }

    #[test]
    fn endings_are_told_newest_first() {
        let journal = [
            exit("bulkhead-pleg.service", "killed", "9", "a"),
            exit("bulkhead-prober.service", "exited", "78", "b"),
            exit("bulkhead-prober.service", "exited", "0", "c"),
            exit("ssh.service", "exited", "1", "d"),
            "no JSON".to_owned(),
        ]
        .join("\n");
        let told = crashes(&journal, "");
        let reasons: Vec<(&str, &str)> = told
            .iter()
            .map(|crash| (&*crash.name, &*crash.ending.as_ref().unwrap().reason))
            .collect();
        assert_eq!(
            reasons,
            [
                ("prober", "exit code 0"),
                ("prober", "exit code 78"),
                ("pleg", "killed by SIGKILL")
            ]
        );
        let at = told[0].ending.as_ref().unwrap().unix_nanos;
        assert_eq!(at, 1_700_000_000_000_001_000);
    }

    #[test]
    fn one_that_ends_often_pushes_out_no_other() {
        let mut journal = exit("bulkhead-pleg.service", "killed", "9", "a");
        for _ in 0..100 {
            journal += "\n";
            journal += &exit("bulkhead-prober.service", "exited", "1", "b");
        }
        let told = crashes(&journal, "");
        assert_eq!(told.len(), CRASHES_OF_EACH + 1);
        assert_eq!(told.last().unwrap().name, "pleg");
    }

    #[test]
    fn an_ending_has_the_last_lines_of_its_own_run() {
        let exits = exit("bulkhead-pleg.service", "killed", "9", "a");
        let mut lines: Vec<String> = (0..30)
            .map(|number| line("a", "pleg", &format!("\"line {number}\"")))
            .collect();
        lines.push(line("b", "pleg", "\"of the next run\""));
        lines.push(line("a", "supervisor", "\"of who looks at the socket\""));
        lines.push(line("a", "pleg", "[104, 255, 105]"));
        lines.push(line("a", "pleg", "null"));
        let told = crashes(&exits, &lines.join("\n"));
        let ending = told[0].ending.as_ref().unwrap();
        assert_eq!(ending.pid, 120);
        assert_eq!(ending.last_log_lines.len(), LINES_OF_EACH);
        assert_eq!(ending.last_log_lines[0], "line 12");
        assert_eq!(
            ending.last_log_lines[17..],
            ["line 29", "h\u{fffd}i", LONG_LINE]
        );
    }

    #[test]
    fn only_what_systemd_says_of_an_ending_is_asked_for() {
        for of in [None, Some(Process::Pleg)] {
            assert!(ask_for_exits(of).iter().any(|word| word == FROM_SYSTEMD));
        }
        let units = |words: Vec<String>| {
            let units = words.into_iter().filter(|word| word.contains("UNIT=bulk"));
            units.collect::<Vec<String>>()
        };
        let one = ask_for_exits(Some(Process::Pleg));
        assert_eq!(units(one), ["UNIT=bulkhead-pleg.service"]);
        let one = ask_for_lines(Some(Process::Pleg));
        assert_eq!(units(one), ["_SYSTEMD_UNIT=bulkhead-pleg.service"]);
        let all = Process::ALL.len() - 1;
        assert_eq!(units(ask_for_exits(None)).len(), all);
        assert_eq!(units(ask_for_lines(None)).len(), all);
    }
}
