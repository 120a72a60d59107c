//! Supervision under fire: everything that can happen to a process, in every phase of the
//! node, and at random for a long time. What the node says, what the runtime has, and what
//! the containers themselves noted have to agree that no container noticed.
//!
//! `cargo xtask soak` and `cargo xtask soak --matrix` run both in full; the test command
//! runs a part.

use std::collections::BTreeMap;
use std::env;
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use e2e::cast::{self, Cast, web};
use e2e::fault::{self, FAULTS, Fault};
use e2e::ground::TIMEOUT;
use e2e::random::Random;
use e2e::runtime_watcher::RuntimeWatcher;
use e2e::witness::{Look, Witness};
use serde_json::{Value, json};
use test_support::wait::pause_for;
use test_support::wait_for;
use topology::Process;

/// How many kills, and how many pods beside the usual ones, the soak has.
const SOAK_KILLS: &str = "BULKHEAD_SOAK_KILLS";
const SOAK_PODS: &str = "BULKHEAD_SOAK_PODS";

/// `whole`, or how many cells of the matrix are tried, chosen at random.
const MATRIX: &str = "BULKHEAD_MATRIX";

/// The only process to which anything happens in the matrix; else all.
const MATRIX_PROCESS: &str = "BULKHEAD_MATRIX_PROCESS";

/// The longest that it may take until all processes are ready again.
const RECOVERY: Duration = Duration::from_secs(5);

/// After this, the log is shown beside how long it took.
const SLOW: Duration = Duration::from_secs(3);

/// Grace of the pods that are stopped while something happens.
const GRACE: Duration = Duration::from_secs(6);

/// How much later than due something may be on a machine that is busy with other tests.
const LATE: Duration = Duration::from_secs(12);

/// A stopped supervisor answers nobody for 30 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// The node's pods, all together.
const PODS_OF_THE_MATRIX: usize = 30;

/// What the node does while something happens to one of its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Idle,
    PodStarts,
    PodStops,
    ProbesFail,
    RuntimeIsDown,
}

const PHASES: [Phase; 5] = [
    Phase::Idle,
    Phase::PodStarts,
    Phase::PodStops,
    Phase::ProbesFail,
    Phase::RuntimeIsDown,
];

#[derive(Debug, Clone, Copy)]
struct Cell {
    process: Process,
    fault: Fault,
    phase: Phase,
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            process,
            fault,
            phase,
        } = self;
        write!(formatter, "{process}, {fault}, {phase:?}")
    }
}

fn number_of(variable: &str, otherwise: u64) -> u64 {
    let value = env::var(variable).ok();
    value
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

fn cells() -> Vec<Cell> {
    let mut all = Vec::new();
    for process in Process::ALL {
        for fault in FAULTS.into_iter().filter(|it| it.concerns(process)) {
            all.extend(PHASES.map(|phase| Cell {
                process,
                fault,
                phase,
            }));
        }
    }
    all
}

/// The cells that this run tries, and in which order.
fn chosen_cells(random: &mut Random) -> Result<Vec<Cell>> {
    let mut all = cells();
    if let Ok(name) = env::var(MATRIX_PROCESS) {
        let process: Process = name.parse()?;
        all.retain(|cell| cell.process == process);
    }
    if env::var(MATRIX).is_ok_and(|value| value == "whole") {
        return Ok(all);
    }
    let wanted = usize::try_from(number_of(MATRIX, 12)).unwrap_or(usize::MAX);
    Ok(some_of(all, wanted, random))
}

/// So many of the cells at random. Of the few in which a process forks and may, one for
/// each such process is always among them.
fn some_of(mut left: Vec<Cell>, wanted: usize, random: &mut Random) -> Vec<Cell> {
    let mut chosen = Vec::new();
    for process in Process::ALL.into_iter().filter(|it| fault::may_fork(*it)) {
        let is_bomb = |cell: &Cell| cell.process == process && cell.fault == Fault::Fork;
        let bombs: Vec<usize> = (0..left.len()).filter(|it| is_bomb(&left[*it])).collect();
        if !bombs.is_empty() {
            chosen.push(left.swap_remove(random.choose(&bombs)));
        }
    }
    while chosen.len() < wanted && !left.is_empty() {
        let index = usize::try_from(random.below(left.len() as u64)).unwrap_or_default();
        chosen.push(left.swap_remove(index));
    }
    chosen
}

#[test]
fn a_fork_bomb_is_played_whatever_else_is() {
    for _ in 0..100 {
        let chosen = some_of(cells(), 12, &mut Random::new());
        assert_eq!(chosen.len(), 12);
        let mut bombs = chosen.iter().filter(|cell| cell.fault == Fault::Fork);
        let by_who_may = bombs.any(|cell| cell.process == Process::CredentialProvider);
        assert!(by_who_may, "{chosen:?}");
    }
}

#[test]
fn whatever_happens_to_a_process_no_container_notices() -> Result<()> {
    let mut ground = Ground::with_every_process()?;
    let cast = Cast::enter(&ground)?;
    let steady = steady_pods(&ground, PODS_OF_THE_MATRIX - Cast::PODS)?;
    let witness = Witness::call_with_patience(&ground.bulkhead, "web", PATIENCE)?;
    let watcher = RuntimeWatcher::begin(&ground, &running_names(&steady))?;
    let mut random = Random::new();
    let mut failures = Vec::new();
    let mut played = Vec::new();
    let chosen = chosen_cells(&mut random)?;
    for (number, cell) in chosen.iter().enumerate() {
        let recovered = play(&mut ground, *cell, number).and_then(in_time);
        if let Ok(took) = &recovered {
            let is_slow = *took >= SLOW;
            let logs = is_slow.then(|| ground.bulkhead.log_ends());
            println!(
                "{cell}: all ready after {took:.2?} {}",
                logs.unwrap_or_default()
            );
        }
        played.push((*cell, recovered.as_ref().ok().copied()));
        if let Err(error) = recovered {
            let logs = ground.bulkhead.log_ends();
            println!("{cell}: {error:#}\n{logs}");
            failures.push(format!("{cell}: {error:#}"));
            // The next cell begins with a whole node.
            ground.bulkhead.wait_until_ready().context(logs)?;
        }
    }
    println!("{}", table(&played, |cell| cell.process.to_string()));
    println!("{}", table(&played, |cell| cell.fault.to_string()));
    ensure!(
        failures.is_empty(),
        "{} of {} cells failed: {failures:#?}",
        failures.len(),
        chosen.len()
    );
    let looks = watcher.saw_nothing_wrong()?;
    let testimony = witness.hear()?;
    println!(
        "{} cells, {looks} looks at the runtime, longest answer {:.1?}",
        chosen.len(),
        testimony.longest
    );
    for pod in &steady {
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        let lines = || cast::lines_about(&ground, uid);
        testimony.never_changed(pod).with_context(lines)?;
    }
    cast.is_unharmed(&ground, &testimony)
}

fn in_time(took: Duration) -> Result<Duration> {
    ensure!(took <= RECOVERY, "all were ready after {took:.2?}");
    Ok(took)
}

/// How many cells of each kind were played, how many held, and how long it took in these.
fn table(played: &[(Cell, Option<Duration>)], kind: impl Fn(&Cell) -> String) -> String {
    let mut kinds: BTreeMap<String, Vec<Option<Duration>>> = BTreeMap::new();
    for (cell, took) in played {
        kinds.entry(kind(cell)).or_default().push(*took);
    }
    let line = |(name, spans): (&String, &Vec<Option<Duration>>)| {
        let mut good: Vec<Duration> = spans.iter().flatten().copied().collect();
        good.sort();
        let (all, passed) = (spans.len(), good.len());
        let half = good.get(passed / 2).copied().unwrap_or_default();
        let longest = good.last().copied().unwrap_or_default();
        format!(
            "{name}: {all} cells, {passed} passed, {} failed; all ready after {half:.2?}, \
             at most {longest:.2?}\n",
            all - passed
        )
    };
    kinds.iter().map(line).collect()
}

/// Has one thing happen in one phase, and looks what became of the pod of that phase.
fn play(ground: &mut Ground, cell: Cell, number: usize) -> Result<Duration> {
    let Cell {
        process,
        fault,
        phase,
    } = cell;
    let name = format!("guest-{number}");
    fault::has_run_for_a_while(ground, process)?;
    match phase {
        Phase::Idle => fault.strike(ground, process, |_| Ok(())),
        Phase::RuntimeIsDown => {
            ground.containerd.kill()?;
            let struck = fault.strike(ground, process, |ground| ground.containerd.start_again());
            if ground.containerd.pid().is_none() {
                ground.containerd.start_again()?;
            }
            struck
        }
        Phase::PodStarts => {
            ground.apply(&name, web(ground, &name))?;
            wait_for("the pod's sandbox", TIMEOUT, || {
                let sandboxes = ground.sandboxes(&name);
                let sandboxes = sandboxes.map_err(|error| format!("{error:#}"))?;
                (!sandboxes.is_empty())
                    .then_some(())
                    .ok_or("none".to_owned())
            })?;
            let took = fault.strike(ground, process, |_| Ok(()))?;
            ground.ready(&name)?;
            cast::started_once_over_a_kill(ground, &name)?;
            ensure!(ground.noted(&name, "SIGTERM")? == 0, "it was asked to end");
            ground.take_away(&name)?;
            Ok(took)
        }
        Phase::PodStops => {
            cast::stubborn(ground, &name, GRACE)?;
            ground.ready(&name)?;
            cast::dismiss(ground, &name)?;
            let took = fault.strike(ground, process, |_| Ok(()))?;
            cast::had_its_grace_over_a_kill(ground, &name, GRACE, LATE + longest_pause(fault))?;
            Ok(took)
        }
        Phase::ProbesFail => {
            ground.apply(&name, failing(ground, &name))?;
            let started = ground.note(&name, "started", 1)?;
            let took = fault.strike(ground, process, |_| Ok(()))?;
            ground.phase(&name, "Succeeded")?;
            ensure!(ground.noted(&name, "started")? == 1, "it started again");
            let asked = ground.note(&name, "SIGTERM", 1)?;
            let lived = asked.saturating_sub(started);
            ensure!(
                lived >= LEAST_LIFE_OF_FAILING.as_nanos(),
                "it was ended after {lived} ns"
            );
            ground.take_away(&name)?;
            Ok(took)
        }
    }
}

/// How much later a deadline may be noticed because of the fault itself.
fn longest_pause(fault: Fault) -> Duration {
    match fault {
        Fault::LongStop => Duration::from_secs(30),
        _ => Duration::ZERO,
    }
}

/// Three failures, one a second, the first after 0 to 1 s; what is noted is cut to ms.
const LEAST_LIFE_OF_FAILING: Duration = Duration::from_millis(1900);

/// A pod whose container its liveness probe has ended after three failures, for good.
fn failing(ground: &Ground, name: &str) -> Value {
    let mut pod = ground.app(name, &[]);
    pod["restartPolicy"] = json!("Never");
    pod["containers"][0]["livenessProbe"] = json!({
        "exec": { "command": ["false"] },
        "periodSeconds": 1,
        "failureThreshold": 3,
        "timeoutSeconds": 30,
    });
    pod
}

/// Starts so many pods that stay as they are.
fn steady_pods(ground: &Ground, count: usize) -> Result<Vec<Value>> {
    let names: Vec<String> = (0..count).map(|number| format!("pod-{number}")).collect();
    for name in &names {
        ground.apply(name, web(ground, name))?;
    }
    names.iter().map(|name| ground.ready(name)).collect()
}

/// The names of all pods that have to run on: those of the cast, and these.
fn running_names(steady: &[Value]) -> Vec<String> {
    let count = steady.len();
    let own = (0..count).map(|number| format!("pod-{number}"));
    let of_cast = Cast::RUNNING.map(str::to_owned);
    own.chain(of_cast).collect()
}

/// What happens at random; those that take long or end in a wait for an operator are for
/// the matrix.
const FAULTS_OF_THE_SOAK: [Fault; 6] = [
    Fault::Kill,
    Fault::Kill,
    Fault::Kill,
    Fault::Abort,
    Fault::OutOfMemory,
    Fault::ExitZero,
];

#[test]
fn a_storm_of_kills_blows_over() -> Result<()> {
    let mut random = Random::new();
    let seed = random.seed();
    let told = storm(&mut random).with_context(|| format!("with seed {seed}"))?;
    println!("{told}");
    Ok(())
}

/// Returns what was done and seen.
fn storm(random: &mut Random) -> Result<String> {
    let mut ground = Ground::with_every_process()?;
    let cast = Cast::enter(&ground)?;
    let pods = usize::try_from(number_of(SOAK_PODS, 8))?;
    let running = steady_pods(&ground, pods)?;
    let witness = Witness::call_with_patience(&ground.bulkhead, "web", PATIENCE)?;
    let watcher = RuntimeWatcher::begin(&ground, &running_names(&running))?;
    let begin = Instant::now();
    let raged = rage(&mut ground, random, number_of(SOAK_KILLS, 100));
    let raged = raged.with_context(|| ground.bulkhead.log_ends())?;
    let spent = begin.elapsed();
    came_and_went(&ground, raged.guests)?;
    let looks = watcher.saw_nothing_wrong()?;
    let testimony = witness.hear()?;
    let told = format!(
        "{:?} in {spent:.0?} over {pods} pods and {} guests; {looks} looks at the runtime, \
         {} calls, longest answer {:.1?}",
        raged.faults,
        raged.guests,
        testimony.calls.values().sum::<usize>(),
        testimony.longest
    );
    for pod in &running {
        testimony.never_changed(pod)?;
    }
    for (number, before) in running.iter().enumerate() {
        let name = format!("pod-{number}");
        cast::started_once_over_a_kill(&ground, &name)?;
        assert_eq!(ground.noted(&name, "SIGTERM")?, 0, "{name}");
        assert_eq!(Look::of(&ground.pod(&name)?), Look::of(before));
    }
    // It was started after a wait, too, whatever happened meanwhile.
    ground.note("looping", "started", 3)?;
    cast.is_unharmed(&ground, &testimony)?;
    Ok(told)
}

/// What was done to the node.
#[derive(Debug, Default)]
struct Raged {
    /// How many pods came; each but the last went.
    guests: u64,
    /// How often something happened to each process.
    faults: BTreeMap<Process, u64>,
}

/// Has things happen at random while guests come and go. In the end all processes are
/// ready.
fn rage(ground: &mut Ground, random: &mut Random, kills: u64) -> Result<Raged> {
    let mut raged = Raged::default();
    while raged.faults.values().sum::<u64>() < kills {
        pause_for(Duration::from_millis(100 + random.below(400)));
        match random.below(10) {
            // A pod comes; the one before it, started or not, goes.
            0 => {
                let name = format!("guest-{}", raged.guests);
                ground.apply(&name, web(ground, &name))?;
                if let Some(before) = raged.guests.checked_sub(1) {
                    ground.take_away(&format!("guest-{before}"))?;
                }
                raged.guests += 1;
            }
            1 if random.below(4) == 0 => {
                ground.bulkhead.kill_all()?;
                for process in Process::ALL {
                    *raged.faults.entry(process).or_default() += 1;
                }
            }
            _ => strike_at_random(ground, random, &mut raged)?,
        }
        if !ground.bulkhead.has_supervisor() {
            ground.bulkhead.spawn()?;
        }
    }
    ground.bulkhead.wait_until_ready()?;
    Ok(raged)
}

fn strike_at_random(ground: &mut Ground, random: &mut Random, raged: &mut Raged) -> Result<()> {
    let pids: Vec<(Process, u32)> = ground.bulkhead.pids()?.into_iter().collect();
    if pids.is_empty() {
        return Ok(());
    }
    let (process, pid) = random.choose(&pids);
    let fault = random.choose(&FAULTS_OF_THE_SOAK);
    if let Err(error) = fault.happen_to(process, pid) {
        return missed(ground, process, pid)
            .with_context(|| format!("{fault} to {process}: {error:#}"));
    }
    *raged.faults.entry(process).or_default() += 1;
    if process == Process::Supervisor {
        ground.bulkhead.wait_until_gone()?;
    }
    Ok(())
}

/// What did not happen to a process: it may have ended before, with its supervisor. A
/// supervisor that starts has no limit of memory yet, and may end since a system call
/// failed.
fn missed(ground: &mut Ground, process: Process, pid: u32) -> Result<()> {
    if process == Process::Supervisor {
        if ground.bulkhead.take_end().is_none() {
            ground.bulkhead.kill(process)?;
        }
        return Ok(());
    }
    let lives = ground.bulkhead.pids()?.get(&process) == Some(&pid);
    ensure!(!lives, "it goes on");
    Ok(())
}

/// The last guest runs; each one before it is gone as it should be.
fn came_and_went(ground: &Ground, guests: u64) -> Result<()> {
    for number in 0..guests {
        let name = format!("guest-{number}");
        if number + 1 == guests {
            ground
                .ready(&name)
                .with_context(|| ground.bulkhead.log_ends())?;
        } else {
            cast::web_came_and_went(ground, &name)?;
        }
    }
    Ok(())
}
