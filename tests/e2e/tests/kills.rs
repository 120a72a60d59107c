//! SIGKILL, SIGSTOP and SIGTERM to the parts, one by one and all at once, while
//! pods start, run and stop: no container is restarted, started twice or lost
//! for it, and whoever asks meanwhile is answered.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use e2e::cast::{self, Cast, web};
use e2e::ground::TIMEOUT;
use e2e::witness::Witness;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use test_support::wait::pause_for;
use test_support::wait_for;
use topology::Process;

/// Grace of the pods that insist on it: longer than a restart takes.
const GRACE: Duration = Duration::from_secs(6);

/// How much later than due something may be on a machine that is busy with
/// other tests, and whose parts are being killed.
const LATE: Duration = Duration::from_secs(12);

/// containerd gives up the calls of a caller whose connection is closed: it kills
/// what it has just started, or loses a SIGTERM that it was about to send.
#[test]
fn calls_in_flight_at_the_death_of_the_worker_pool_are_carried_out() -> Result<()> {
    calls_in_flight_are_carried_out(|ground| kill_and_wait(ground, Process::PodWorkerPool))
}

fn calls_in_flight_are_carried_out(replace: impl Fn(&mut Ground) -> Result<()>) -> Result<()> {
    // More would meet the supervisor's back-off.
    const ROUNDS: u64 = 7;
    let mut ground = Ground::start(json!({}))?;
    let name = |round: u64| format!("pod-{round}");
    ground.apply(&name(0), web(&ground, &name(0)))?;
    ground.ready(&name(0))?;
    for round in 1..=ROUNDS {
        // One starts and one stops; each round kills at another moment of both.
        let (new, old) = (name(round), name(round - 1));
        ground.apply(&new, web(&ground, &new))?;
        wait_for("the container to be created", TIMEOUT, || {
            let containers = ground.containers(&new);
            let containers = containers.map_err(|error| format!("{error:#}"))?;
            let is_created = !containers.is_empty();
            is_created.then_some(()).ok_or("it is not".to_owned())
        })?;
        ground.take_away(&old)?;
        pause_for(Duration::from_millis(round * 7));
        replace(&mut ground)?;
        ground
            .ready(&new)
            .with_context(|| ground.bulkhead.log_ends())?;
        ground.gone(&old)?;
    }
    for round in 0..ROUNDS {
        for event in ["started", "SIGTERM", "exit 0"] {
            let noted = ground.noted(&name(round), event)?;
            ensure!(noted == 1, "pod-{round}: {noted} times {event}");
        }
    }
    ensure!(ground.noted(&name(ROUNDS), "started")? == 1);
    let log = ground.containerd.log();
    ensure!(
        !log.contains("context canceled"),
        "containerd gave up a call"
    );
    Ok(())
}

#[test]
fn an_orderly_stop_leaves_the_containers_to_the_next_start() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let cast = Cast::enter(&ground)?;
    cast::stubborn(&ground, "old", GRACE)?;
    ground.ready("old")?;
    let witness = Witness::call(&ground.bulkhead, "web")?;
    cast::dismiss(&ground, "old")?;
    let status = ground.bulkhead.stop()?;
    assert!(status.success(), "the supervisor ended with {status}");
    assert_eq!(ground.bulkhead.pids()?, [].into(), "parts that stayed");
    for name in ["web", "shell", "plain"] {
        assert_eq!(ground.running(name)?, 1, "{name}");
    }
    ground.apply("new", web(&ground, "new"))?;
    ground.bulkhead.start_again()?;
    ground.ready("new")?;
    cast::had_its_grace_over_a_kill(&ground, "old", GRACE, LATE)?;
    cast.is_unharmed(&ground, &witness.hear()?)
}

#[test]
fn a_part_that_hangs_is_replaced_and_nobody_else() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let cast = Cast::enter(&ground)?;
    let witness = Witness::call(&ground.bulkhead, "web")?;
    let before = ground.bulkhead.pids()?;
    for (process, pid) in &before {
        if *process != Process::Supervisor {
            kill(Pid::from_raw(i32::try_from(*pid)?), Signal::SIGSTOP)?;
        }
    }
    ground.apply("new", web(&ground, "new"))?;
    for (process, pid) in &before {
        if *process != Process::Supervisor {
            wait_for_another(&ground, *process, *pid)?;
        }
    }
    ground.bulkhead.wait_until_ready()?;
    for row in ground.bulkhead.processes()? {
        let name = row.name.clone();
        if name == Process::Supervisor.name() {
            assert_eq!(row.pid, before[&Process::Supervisor]);
            continue;
        }
        let ending = row
            .last_ending
            .with_context(|| format!("{name} never ended"))?;
        assert!(
            ending.reason.contains("watchdog"),
            "{name}: {}",
            ending.reason
        );
        assert_eq!(row.restarts_total, 1, "{name}");
    }
    ground.ready("new")?;
    assert_eq!(ground.noted("new", "started")?, 1);
    cast.is_unharmed(&ground, &witness.hear()?)
}

#[test]
fn what_changes_in_the_sources_while_their_reader_is_killed_is_not_missed() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let cast = Cast::enter(&ground)?;
    for name in ["changed", "removed", "broken"] {
        ground.apply(name, web(&ground, name))?;
    }
    let old = ground.ready("changed")?;
    ground.ready("removed")?;
    let broken = ground.ready("broken")?;
    let witness = Witness::call(&ground.bulkhead, "web")?;
    // Before, during and after its death; a second later it reads all again.
    let mut version = 0;
    for _ in 0..3 {
        ground.apply("changed", web(&ground, &format!("changed-{version}")))?;
        let pid = ground.bulkhead.kill(Process::ConfigSourcer)?;
        version += 1;
        ground.apply("changed", web(&ground, &format!("changed-{version}")))?;
        ground
            .bulkhead
            .write_manifest("broken.json", "{\"kind\": \"Pod\", ")?;
        wait_for_another(&ground, Process::ConfigSourcer, pid)?;
        ground.bulkhead.wait_until_ready()?;
    }
    // While a file is bad, only what its reader has seen go is removed, and it has seen little.
    assert_eq!(ground.noted("broken", "SIGTERM")?, 0);
    ground.apply("broken", web(&ground, "broken"))?;
    ground.bulkhead.kill(Process::ConfigSourcer)?;
    ground.take_away("removed")?;
    ground.gone("removed")?;
    assert_eq!(ground.noted("removed", "exit 0")?, 1);
    let last = format!("changed-{version}");
    ground.note(&last, "started", 1)?;
    let new = ground.ready("changed")?;
    assert_ne!(new["metadata"]["uid"], old["metadata"]["uid"]);
    assert_eq!(ground.noted("changed", "exit 0")?, 1, "the first one ended");
    wait_for("one version to run", TIMEOUT, || {
        match ground
            .running("changed")
            .map_err(|error| format!("{error:#}"))?
        {
            1 => Ok(()),
            other => Err(format!("{other} versions run")),
        }
    })?;
    for number in 0..=version {
        let name = format!("changed-{number}");
        assert!(ground.noted(&name, "started")? <= 1, "{name}");
    }
    let testimony = witness.hear()?;
    // The pod of a file that was bad while its reader was killed.
    testimony.never_changed(&broken)?;
    assert_eq!(ground.noted("broken", "started")?, 1);
    assert_eq!(ground.noted("broken", "SIGTERM")?, 0);
    cast.is_unharmed(&ground, &testimony)
}

/// Kills a part, and starts the supervisor again if it is that; returns when all
/// are ready.
fn kill_and_wait(ground: &mut Ground, process: Process) -> Result<()> {
    let old = ground.bulkhead.kill(process)?;
    if process == Process::Supervisor {
        wait_for("its children to die with it", TIMEOUT, || {
            let left = ground
                .bulkhead
                .pids()
                .map_err(|error| format!("{error:#}"))?;
            left.is_empty().then_some(()).ok_or(format!("{left:?}"))
        })?;
        ground.bulkhead.start_again()?;
    }
    wait_for_another(ground, process, old)?;
    ground.bulkhead.wait_until_ready()
}

/// Waits until a part has another process than `old`.
fn wait_for_another(ground: &Ground, process: Process, old: u32) -> Result<()> {
    wait_for(&format!("{process} to be replaced"), TIMEOUT, || {
        let pids = ground.bulkhead.pids();
        let pid = pids
            .map_err(|error| format!("{error:#}"))?
            .get(&process)
            .copied();
        match pid {
            Some(new) if new != old => Ok(()),
            other => Err(format!("pid {other:?} after {old}")),
        }
    })?;
    Ok(())
}
