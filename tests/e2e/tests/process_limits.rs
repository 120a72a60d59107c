//! Each process of Bulkhead in a cgroup of its own: its limits there are those of the
//! topology, and what is in there when it ends does not outlive it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use bulkhead_api::v1::{ProcessState, ProcessStatus};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_support::{cgroup, wait_for};
use topology::{Process, row};

/// What the first of these files says, whichever version of cgroups there is.
fn told(cgroups: &[PathBuf], files: &[&str]) -> Option<u64> {
    let texts = cgroups
        .iter()
        .flat_map(|cgroup| files.iter().map(move |file| cgroup.join(file)))
        .filter_map(|file| fs::read_to_string(file).ok());
    texts.filter_map(|text| text.trim().parse().ok()).next()
}

#[test]
fn each_process_is_limited_by_itself_as_the_topology_says() -> Result<()> {
    let ground = Ground::with_every_process()?;
    let pids: BTreeMap<Process, u32> = ground.bulkhead.pids()?;
    for process in Process::ALL {
        let pid = pids.get(&process).with_context(|| process.to_string())?;
        let cgroups = cgroup::own(process, *pid)?;
        let row = row(process);
        let memory = told(&cgroups, &["memory.max", "memory.limit_in_bytes"]);
        ensure!(
            memory == Some(row.memory_max_bytes),
            "{process}: {memory:?}"
        );
        let tasks = told(&cgroups, &["pids.max"]);
        ensure!(tasks == Some(row.tasks_max.into()), "{process}: {tasks:?}");
        let weight = u64::from(row.cpu_weight);
        let cpu = told(&cgroups, &["cpu.weight"]);
        let shares = told(&cgroups, &["cpu.shares"]);
        ensure!(
            cpu == Some(weight) || shares == Some(weight * 1024 / 100),
            "{process}: {cpu:?} {shares:?}"
        );
        // Nobody else is in there.
        for cgroup in cgroups {
            ensure!(
                cgroup::members(&cgroup)? == [*pid],
                "{process}: {}",
                cgroup.display()
            );
        }
    }
    Ok(())
}

fn status_of(ground: &Ground, process: Process) -> Result<ProcessStatus> {
    let all = ground.bulkhead.processes()?;
    let found = all.into_iter().find(|row| row.name == process.name());
    found.with_context(|| format!("no row of {process}"))
}

/// Stands for what a process has started and moved to another session: it is in the
/// cgroups of the process and has nothing else to do with it.
struct Stranger(Child);

impl Stranger {
    fn enter(cgroups: &[PathBuf]) -> Result<Stranger> {
        let mut command = Command::new("sleep");
        command.arg("infinity").stdin(Stdio::null());
        let stranger = Stranger(command.spawn().context("cannot start a program")?);
        for cgroup in cgroups {
            fs::write(cgroup.join("cgroup.procs"), stranger.0.id().to_string())?;
        }
        Ok(stranger)
    }

    fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        // It may have ended, as it should.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_a_process_leaves_in_its_cgroup_is_gone_before_its_next_run() -> Result<()> {
    let ground = Ground::with_every_process()?;
    for process in Process::ALL {
        if process == Process::Supervisor {
            continue;
        }
        let before = status_of(&ground, process)?;
        let cgroups = cgroup::own(process, before.pid)?;
        ensure!(!cgroups.is_empty(), "{process} has no cgroup");
        let mut strangers = Vec::new();
        for _ in 0..5 {
            strangers.push(Stranger::enter(&cgroups)?);
        }
        kill(Pid::from_raw(before.pid.cast_signed()), Signal::SIGKILL)?;
        wait_for("the process to be back", TIMEOUT, || {
            let now = status_of(&ground, process);
            let now = now.map_err(|error| format!("{error:#}"))?;
            let is_ready = now.state() == ProcessState::Ready;
            let is_back = is_ready && now.pid != before.pid;
            is_back.then_some(()).ok_or(format!("{now:?}"))
        })?;
        for stranger in &mut strangers {
            ensure!(stranger.has_ended()?, "one lives beside the next {process}");
        }
    }
    Ok(())
}
