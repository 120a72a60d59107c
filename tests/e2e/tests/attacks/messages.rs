//! What somebody can do who has taken sync-loop over: calls as its user, with messages
//! that are valid. And what works while config-sourcer, which vouches for pods, is away.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use e2e::workload::script;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use test_support::images::BUSYBOX;
use test_support::observe::container_id;
use test_support::wait_for;
use topology::{Identities, Process};

const STRANGER: &str = "0c7f1f7e-6a1b-4a53-8d0e-1f0b7a8c9d10";

/// What is printed when `caller` calls `server`.
fn call(ground: &Ground, caller: Process, server: Process, words: &[&str]) -> Result<String> {
    let identities = Identities::from_base(ground.bulkhead.uid_base())?;
    let uid = identities.uid(caller).to_string();
    let paths = ground.bulkhead.paths();
    let socket = paths
        .run
        .join(server.socket_file_name())
        .display()
        .to_string();
    let program = paths.bin.join("call-as");
    if !program.exists() {
        fs::copy(env!("CARGO_BIN_EXE_call-as"), &program)?;
    }
    let program = program.display().to_string();
    let user = ["--reuid", &uid, "--regid", &uid, "--clear-groups"];
    let arguments = [&user[..], &[&program, &socket], words].concat();
    ground.node().output("setpriv", &arguments)
}

/// As sync-loop: has the pool bring a pod to this version.
fn update(ground: &Ground, kind: &str, pod: &Known, hash: &str) -> Result<String> {
    let words = ["update", kind, &pod.uid, "default", &pod.name, hash];
    call(ground, Process::SyncLoop, Process::PodWorkerPool, &words)
}

/// A pod that runs.
struct Known {
    uid: String,
    name: String,
    hash: String,
    container: String,
}

impl Known {
    fn of(ground: &Ground, name: &str) -> Result<Known> {
        let pod = ground.ready(name)?;
        let uid = pod["metadata"]["uid"].as_str().context("no uid")?;
        let pods = ["pods"];
        let pods = call(ground, Process::SyncLoop, Process::ConfigSourcer, &pods)?;
        let mut lines = pods.lines().filter_map(|line| line.split_once(' '));
        let (_, hash) = lines.find(|(it, _)| *it == uid).context("no hash")?;
        Ok(Known {
            uid: uid.to_owned(),
            name: ground.full_name(name),
            hash: hash.to_owned(),
            container: container_id(&pod, "app")
                .context("no container")?
                .to_owned(),
        })
    }
}

/// A pod whose container `app` can be probed or not.
fn sleeper(probe: Option<Value>) -> Value {
    let mut container = json!({
        "name": "app", "image": BUSYBOX, "command": ["sleep", "1000000"],
    });
    if let Some(probe) = probe {
        container["livenessProbe"] = probe;
    }
    json!({ "containers": [container] })
}

fn ids(ground: &Ground, name: &str) -> Result<Vec<String>> {
    let containers = ground.containers(name)?.into_iter();
    Ok(containers.map(|container| container.id).collect())
}

#[test]
fn who_owns_sync_loop_can_neither_invent_a_pod_nor_alter_one() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    ground.apply("one", sleeper(None))?;
    ground.apply("two", sleeper(None))?;
    let (one, two) = (Known::of(&ground, "one")?, Known::of(&ground, "two")?);
    // The calls themselves are good ones.
    let answer = update(&ground, "sync", &one, &one.hash)?;
    assert!(answer.starts_with("Ok Syncing"), "{answer}");

    let invented = Known {
        uid: STRANGER.to_owned(),
        name: "invented".to_owned(),
        hash: one.hash.clone(),
        container: String::new(),
    };
    let another_name = Known {
        uid: one.uid.clone(),
        name: two.name.clone(),
        hash: two.hash.clone(),
        container: String::new(),
    };
    let no_hash = "0".repeat(64);
    for kind in ["create", "update", "sync"] {
        for (pod, hash, code) in [
            (&invented, one.hash.as_str(), "NotFound"),
            (&invented, no_hash.as_str(), "NotFound"),
            (&one, no_hash.as_str(), "Aborted"),
            (&one, two.hash.as_str(), "Aborted"),
            (&one, "", "FailedPrecondition"),
            (&invented, "", "FailedPrecondition"),
            (&another_name, two.hash.as_str(), "InvalidArgument"),
            (&another_name, one.hash.as_str(), "InvalidArgument"),
        ] {
            let answer = update(&ground, kind, pod, hash)?;
            assert!(
                answer.starts_with(code),
                "{kind} {} {hash}: {answer}",
                pod.name
            );
        }
    }
    for pod in [("one", &one), ("two", &two)] {
        let (name, known) = pod;
        assert_eq!(
            ids(&ground, name)?,
            [known.container.as_str()],
            "not touched"
        );
    }
    assert!(ground.containers("invented")?.is_empty());
    let pods = ground.bulkhead.pods()?;
    assert_eq!(pods.len(), 2, "{pods:?}");
    Ok(())
}

#[test]
fn nobody_has_a_command_run_that_the_pod_does_not_define() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let probe = json!({ "exec": { "command": ["sh", "-c", "exit 0"] }, "periodSeconds": 1 });
    ground.apply("probed", sleeper(Some(probe)))?;
    ground.apply("plain", sleeper(None))?;
    let probed = Known::of(&ground, "probed")?;
    let plain = Known::of(&ground, "plain")?;
    let probe = |caller, uid: &str, container: &str, id: &str| {
        let words = ["probe", uid, container, id];
        call(&ground, caller, Process::PodWorkerPool, &words)
    };
    // The request names a probe; there is no place in it for a command.
    wait_for("the probe to be known", TIMEOUT, || {
        let answer = probe(Process::Prober, &probed.uid, "app", &probed.container);
        let answer = answer.map_err(|error| format!("{error:#}"))?;
        if answer.starts_with("Ok exit 0") {
            Ok(())
        } else {
            Err(answer)
        }
    })?;
    // Nobody else may ask.
    for caller in Process::ALL {
        if ![Process::Prober, Process::Supervisor, Process::PodWorkerPool].contains(&caller) {
            let answer = probe(caller, &probed.uid, "app", &probed.container)?;
            assert!(answer.starts_with("PermissionDenied"), "{caller}: {answer}");
        }
    }
    for (uid, container, id) in [
        // It has no probe.
        (&plain.uid, "app", &plain.container),
        // Its probe in the container of another pod, and the other way round.
        (&probed.uid, "app", &plain.container),
        (&plain.uid, "app", &probed.container),
        (&probed.uid, "other", &probed.container),
    ] {
        let answer = probe(Process::Prober, uid, container, id)?;
        assert!(
            answer.starts_with("NotFound"),
            "{uid} {container} {id}: {answer}"
        );
    }
    Ok(())
}

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
