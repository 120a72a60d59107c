//! What `systemctl show` and `journalctl` print of the services of the bundle, in the words
//! of our own supervisor. Pure: `bundle` runs the two.

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_api::v1;
use clock::UnixNanos;
use nix::sys::signal::Signal;
use serde_json::Value;
use topology::Process;

/// The properties of a service that are asked for: org.freedesktop.systemd1(5).
pub(crate) const PROPERTIES: &str = "Id,ActiveState,SubState,Result,MainPID,NRestarts,User,\
     StatusText,MemoryCurrent,ExecMainStartTimestampMonotonic,LoadState";

/// The message with which systemd notes in the journal that the process of a unit has ended
/// (SD_MESSAGE_UNIT_PROCESS_EXIT, sd-messages.h).
pub(crate) const PROCESS_EXIT: &str = "MESSAGE_ID=98e322203f7a4ed290d09fe03c09fe15";

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
        ("activating", "auto-restart", _) => v1::ProcessState::Backoff,
        ("activating", _, _) => v1::ProcessState::Starting,
        ("deactivating", _, _) => v1::ProcessState::Stopping,
        // Nothing else has systemd stop trying.
        ("failed", _, "exit-code") => v1::ProcessState::BadConfiguration,
        ("failed", _, _) => v1::ProcessState::CrashLooping,
        _ => v1::ProcessState::Stopped,
    }
}

/// The endings that the journal tells of, one JSON object a line, oldest first; of one
/// process or all.
pub(crate) fn crashes(journal: &str, of: Option<Process>) -> Vec<v1::Crash> {
    let entries = journal
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let crashes = entries.filter_map(|entry| crash(&entry));
    crashes
        .filter(|crash| of.is_none_or(|process| crash.name == process.name()))
        .collect()
}

fn crash(entry: &Value) -> Option<v1::Crash> {
    let text = |name: &str| entry[name].as_str().unwrap_or_default();
    let process = process_of(text("UNIT"))?;
    let micros: i128 = text("__REALTIME_TIMESTAMP").parse().ok()?;
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
    let at = UnixNanos(i64::try_from(micros * 1000).ok()?);
    let ending = v1::Ending {
        kind: kind.into(),
        code,
        unix_nanos: at.0,
        reason,
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
    fn states_have_the_words_of_our_supervisor() {
        for (active, sub, result, expected) in [
            ("active", "running", "success", v1::ProcessState::Ready),
            ("activating", "start", "success", v1::ProcessState::Starting),
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

    #[test]
    fn endings_come_from_the_journal() {
        let line = |unit: &str, code: &str, status: &str| {
            format!(
                "{{\"UNIT\":\"{unit}\",\"EXIT_CODE\":\"{code}\",\"EXIT_STATUS\":\"{status}\",\
                 \"__REALTIME_TIMESTAMP\":\"1700000000000001\"}}"
            )
        };
        let journal = [
            line("bulkhead-pleg.service", "killed", "9"),
            line("bulkhead-prober.service", "exited", "78"),
            line("bulkhead-prober.service", "exited", "0"),
            line("ssh.service", "exited", "1"),
            "no JSON".to_owned(),
        ]
        .join("\n");
        let told = crashes(&journal, None);
        let told: Vec<(&str, &str)> = told
            .iter()
            .map(|crash| (&*crash.name, &*crash.ending.as_ref().unwrap().reason))
            .collect();
        assert_eq!(
            told,
            [
                ("pleg", "killed by SIGKILL"),
                ("prober", "exit code 78"),
                ("prober", "exit code 0")
            ]
        );
        let of_pleg = crashes(&journal, Some(Process::Pleg));
        assert_eq!(of_pleg.len(), 1);
        let at = of_pleg[0].ending.as_ref().unwrap().unix_nanos;
        assert_eq!(at, 1_700_000_000_000_001_000);
    }
}
