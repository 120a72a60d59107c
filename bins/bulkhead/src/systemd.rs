//! What `systemctl show` prints of the services of the bundle, in the words of our own
//! supervisor. Pure: `bundle` runs it.

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_api::v1;
use topology::Process;

/// The properties of a service that are asked for: org.freedesktop.systemd1(5).
pub(crate) const PROPERTIES: &str = "Id,ActiveState,SubState,MainPID,NRestarts,User,\
     StatusText,MemoryCurrent,ExecMainStartTimestampMonotonic";

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
    let state = state(text("ActiveState"), text("SubState"));
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

fn state(active: &str, sub: &str) -> v1::ProcessState {
    match (active, sub) {
        ("active", _) => v1::ProcessState::Ready,
        // Later versions of systemd have "auto-restart-queued" as well.
        ("activating", sub) if sub.starts_with("auto-restart") => v1::ProcessState::Backoff,
        ("activating", _) => v1::ProcessState::Starting,
        ("deactivating", _) => v1::ProcessState::Stopping,
        // Whoever ends by itself is started again, so a failure is a bad end when stopped.
        _ => v1::ProcessState::Stopped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "Id=bulkhead-pleg.service\nActiveState=active\nSubState=running\n\
        MainPID=120\nNRestarts=3\nUser=bulkhead-pleg\n\
        StatusText=relist interval 1 s: 1=1\nMemoryCurrent=1300000\n\
        ExecMainStartTimestampMonotonic=4000000\n\n\
        Id=bulkhead-credential-provider.service\nActiveState=inactive\nSubState=dead\n\
        MainPID=0\n\n\
        Id=bulkhead-prober.service\nActiveState=activating\nSubState=auto-restart\n\
        MainPID=0\nMemoryCurrent=[not set]\n\nId=other.service\n";

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
    fn states_have_the_words_of_our_supervisor() {
        for (active, sub, expected) in [
            ("active", "running", v1::ProcessState::Ready),
            ("activating", "start", v1::ProcessState::Starting),
            (
                "activating",
                "auto-restart-queued",
                v1::ProcessState::Backoff,
            ),
            ("deactivating", "stop-sigterm", v1::ProcessState::Stopping),
            ("failed", "failed", v1::ProcessState::Stopped),
            ("inactive", "dead", v1::ProcessState::Stopped),
        ] {
            assert_eq!(state(active, sub), expected, "{active} {sub}");
        }
    }
}
