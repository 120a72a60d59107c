//! Tests that hold together what the code does and the unit file that is shipped.

use topology::PROCESSES;

use crate::failure::EXIT_CODES;
use crate::policy::{STOP_GRACE, STOP_ORDER};

const UNIT: &str = include_str!("../../../systemd/bulkhead.service");
const PREPARE: &str = include_str!("../../../systemd/bundle/bulkhead-prepare.service");

/// What the unit file says of a setting.
fn setting(name: &str) -> &'static str {
    setting_of(UNIT, name)
}

fn setting_of(unit: &'static str, name: &str) -> &'static str {
    let mut values = unit
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let value = values.next().unwrap_or_else(|| panic!("no {name}="));
    assert_eq!(values.next(), None, "{name}= twice");
    value
}

#[test]
fn systemd_starts_it_again_unless_that_cannot_help() {
    let lasting: Vec<String> = EXIT_CODES
        .iter()
        .filter(|row| !row.may_pass)
        .map(|row| row.code.to_string())
        .collect();
    // What prepares the node ends well once it has.
    for (unit, restart) in [(UNIT, "always"), (PREPARE, "on-failure")] {
        let prevented = setting_of(unit, "RestartPreventExitStatus");
        assert_eq!(prevented, lasting.join(" "));
        assert_eq!(setting_of(unit, "Restart"), restart);
        // Never so often that systemd gives up on what does pass.
        assert_eq!(setting_of(unit, "StartLimitIntervalSec"), "0");
    }
}

#[test]
fn systemd_waits_for_a_stop_until_every_process_had_its_time() {
    let processes = u32::try_from(STOP_ORDER.len()).unwrap();
    let timeout: u64 = setting("TimeoutStopSec").parse().unwrap();
    assert!(timeout > (processes * STOP_GRACE).as_secs());
    assert_eq!(setting("KillMode"), "mixed");
}

#[test]
fn all_processes_together_get_what_the_topology_allows_each() {
    let bytes: u64 = PROCESSES.iter().map(|row| row.memory_max_bytes).sum();
    let mebibytes = setting("MemoryMax").strip_suffix('M').unwrap();
    assert_eq!(mebibytes.parse::<u64>().unwrap() << 20, bytes);
    let tasks: u32 = PROCESSES.iter().map(|row| u32::from(row.tasks_max)).sum();
    assert_eq!(setting("TasksMax").parse(), Ok(tasks));
    // Otherwise systemd would stop all when the kernel kills one.
    assert_eq!(setting("OOMPolicy"), "continue");
}

#[test]
fn systemd_lets_the_supervisor_make_cgroups_and_spare_processes() {
    assert_eq!(setting("Delegate"), "yes");
    let least = topology::row(topology::Process::Supervisor).oom_score_adj;
    assert_eq!(setting("OOMScoreAdjust"), least.to_string());
}
