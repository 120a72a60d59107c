//! What works while config-sourcer, which vouches for pods, is away or hangs.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use e2e::workload::script;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use test_support::wait_for;
use topology::Process;

use super::intruder::{Known, ids, sleeper, update};

/// config-sourcer is kept down: without its program it cannot be started.
struct Away {
    program: PathBuf,
    aside: PathBuf,
}

impl Away {
    fn take(ground: &Ground) -> Result<Away> {
        let paths = ground.bulkhead.paths();
        let program = paths.bin.join(Process::ConfigSourcer.name());
        let aside = program.with_extension("aside");
        // It is known by its program, which is another one then.
        let pid = ground.bulkhead.pids()?[&Process::ConfigSourcer];
        fs::rename(&program, &aside)?;
        kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL)?;
        Ok(Away { program, aside })
    }

    fn give_back(self, ground: &Ground) -> Result<()> {
        let pids = ground.bulkhead.pids()?;
        assert!(!pids.contains_key(&Process::ConfigSourcer), "{pids:?}");
        Ok(fs::rename(&self.aside, &self.program)?)
    }
}

#[test]
fn while_config_sourcer_is_away_only_pods_that_are_new_to_the_pool_wait() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    ground.apply("web", sleeper(None))?;
    let crashing = "echo >> /tmp/x; sleep 1; exit 1";
    ground.apply(
        "crashing",
        json!({ "containers": [script("app", crashing)], "volumes": [
        { "name": "journals", "hostPath": { "path": ground.bulkhead.paths().shared } } ] }),
    )?;
    let web = Known::of(&ground, "web")?;
    wait_for("it to crash", TIMEOUT, || restarts(&ground, "crashing", 1))?;

    let away = Away::take(&ground)?;
    // What crashes is started again, and so is what is killed.
    wait_for("it to be started again", TIMEOUT, || {
        restarts(&ground, "crashing", 2)
    })?;
    let words = ["task", "kill", "-s", "SIGKILL", &web.container];
    ground
        .containerd
        .ctr(&words)
        .context("cannot kill the container")?;
    wait_for("the killed one to be started again", TIMEOUT, || {
        restarts(&ground, "web", 1)
    })?;
    ground.apply("new", sleeper(None))?;
    assert!(
        ground.containers("new")?.is_empty(),
        "nobody vouches for it"
    );
    away.give_back(&ground)?;
    ground.ready("new")?;
    Ok(())
}

fn restarts(ground: &Ground, name: &str, least: u64) -> Result<(), String> {
    let pod = ground.pod(name).map_err(|error| format!("{error:#}"))?;
    let app = &pod["status"]["containerStatuses"][0];
    let count = app["restartCount"].as_u64().unwrap_or(0);
    (count >= least)
        .then_some(())
        .ok_or_else(|| app.to_string())
}

#[test]
fn a_pool_that_restarts_while_config_sourcer_is_away_leaves_what_runs_alone() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    ground.apply("web", sleeper(None))?;
    let web = Known::of(&ground, "web")?;
    let killed = ground.bulkhead.pids()?[&Process::PodWorkerPool];
    let away = Away::take(&ground)?;
    ground.bulkhead.kill(Process::PodWorkerPool)?;
    wait_for("another pool", TIMEOUT, || {
        let pids = ground
            .bulkhead
            .pids()
            .map_err(|error| format!("{error:#}"))?;
        let now = pids.get(&Process::PodWorkerPool);
        now.filter(|now| **now != killed)
            .map(drop)
            .ok_or(format!("{pids:?}"))
    })?;
    // It does not know the version, and says so.
    wait_for("a sync to be put off", TIMEOUT, || {
        let answer = update(&ground, "sync", &web, &web.hash);
        let answer = answer.map_err(|error| format!("{error:#}"))?;
        if answer.starts_with("Unavailable") {
            Ok(())
        } else {
            Err(answer)
        }
    })?;
    assert_eq!(ids(&ground, "web")?, [web.container.as_str()]);
    assert_eq!(ground.running("web")?, 1);
    away.give_back(&ground)?;
    wait_for("the pool to take the pod", TIMEOUT, || {
        let answer = update(&ground, "sync", &web, &web.hash);
        let answer = answer.map_err(|error| format!("{error:#}"))?;
        if answer.starts_with("Ok Syncing") {
            Ok(())
        } else {
            Err(answer)
        }
    })?;
    assert_eq!(ids(&ground, "web")?, [web.container.as_str()]);
    Ok(())
}
