//! Each process as a malicious server of those who call it: a program in its place answers
//! in every manner of [`MANNERS`]. Its callers live, with the same pid, and within their
//! memory; no container is touched, the others answer, and when the true program is back
//! pods start.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bulkhead_api::v1::PodReference;
use cri::v1::ContainerState;
use e2e::Ground;
use e2e::bystanders::{self, Waits};
use e2e::credential_program;
use e2e::ground::TIMEOUT;
use e2e::hostile_answers::{MANNERS, Manner, Orders, RunningPod};
use serde_json::{Value, json};
use test_support::wait::holds_for;
use test_support::{BulkheadInstance, ContainerdOptions, PrivateContainerd, wait_for};
use topology::{Process, row};

use super::intruder::{Known, sleeper};
use super::taken_over::{install, process_of, status_when};

/// A node on which one process is replaced.
struct Scene {
    ground: Ground,
    server: Process,
    pods: Vec<RunningPod>,
    /// All processes but that one.
    pids: BTreeMap<Process, u32>,
    containers: Vec<(String, i32, u32)>,
    /// How long others wait for an answer when nobody attacks.
    waits: Vec<Duration>,
}

/// Whom others call meanwhile. sync-loop is not among them: it is who is attacked, and
/// answers when it has time, which is seen when the true program is back.
const CALLED: [(Process, &str); 2] = [
    (Process::Supervisor, "/bulkhead.v1.Supervisor/ListCrashes"),
    (Process::PodWorkerPool, "/bulkhead.v1.NodePolicy/GetPolicy"),
];

/// Methods of the pool that others call all the time, and one that they call for a new pod.
const METHODS_OF_POOL: u64 = 8;

/// Nobody calls it a delay, however short the usual one is: what a busy machine has in any
/// case.
const NO_DELAY: Duration = Duration::from_millis(50);

impl Scene {
    fn begin(ground: Ground, server: Process) -> Result<Scene> {
        for name in ["one", "two"] {
            ground.apply(name, sleeper(None))?;
        }
        let pods = ["one", "two"].map(|name| {
            let known = Known::of(&ground, name)?;
            Ok(RunningPod {
                reference: PodReference {
                    uid: known.uid,
                    namespace: "default".to_owned(),
                    name: known.name,
                },
                container_id: known.container,
            })
        });
        let mut scene = Scene {
            pods: pods.into_iter().collect::<Result<_>>()?,
            pids: BTreeMap::new(),
            containers: containers(&ground)?,
            waits: waits(&ground, server)?,
            ground,
            server,
        };
        scene.order(MANNERS[0].0)?;
        let program = &scene.ground.bulkhead.paths().bin.join(server.name());
        fs::copy(program, program.with_extension("real"))?;
        scene.pids = scene.others()?;
        install(
            &scene.ground.bulkhead,
            server,
            env!("CARGO_BIN_EXE_hostile-server"),
        )?;
        Ok(scene)
    }

    fn others(&self) -> Result<BTreeMap<Process, u32>> {
        let mut pids = self.ground.bulkhead.pids()?;
        pids.remove(&self.server);
        Ok(pids)
    }

    /// Tells the program how to answer from now on.
    fn order(&self, manner: Manner) -> Result<()> {
        let orders = Orders {
            manner,
            pods: self.pods.clone(),
        };
        let program = self.ground.bulkhead.paths().bin.join(self.server.name());
        let (new, path) = (
            program.with_extension("orders.new"),
            program.with_extension("orders"),
        );
        fs::write(&new, orders.to_text())?;
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644))?;
        Ok(fs::rename(new, path)?)
    }

    /// Has it answer in one manner, until it has sent so much that its callers have had
    /// enough of it; `stir` makes them call.
    fn play(&self, manner: Manner, stir: impl Fn(&Ground, &str) -> Result<()>) -> Result<()> {
        let name = manner.name();
        self.order(manner)?;
        stir(&self.ground, name)?;
        let what = format!("{} to have answered {name}", self.server);
        let status = status_when(&self.ground.bulkhead, &what, |status| {
            let (said, numbers) = self.said(status);
            said == name && has_had_enough(self.server, manner, &numbers)
        })?;
        self.nobody_was_harmed(&status)
            .with_context(|| format!("{name}: {}", self.ground.bulkhead.log_ends()))?;
        let waits = self.waits.iter().zip(waits(&self.ground, self.server)?);
        for ((usual, now), (who, _)) in waits.zip(called(self.server)) {
            let most = (*usual * 2).max(NO_DELAY);
            ensure!(
                now <= most,
                "{name}: {who} answers within {now:?}, usually {usual:?}"
            );
        }
        Ok(())
    }

    /// In which manner it answers, how often it was called, and what it has sent.
    fn said(&self, status: &Value) -> (String, Vec<u64>) {
        let said = process_of(status, self.server)["statusText"].as_str();
        let mut words = said.unwrap_or_default().split(' ');
        let manner = words.next().unwrap_or_default().to_owned();
        (manner, words.filter_map(|word| word.parse().ok()).collect())
    }

    fn nobody_was_harmed(&self, status: &Value) -> Result<()> {
        ensure!(self.others()? == self.pids, "not all live on: {status}");
        for process in self.pids.keys() {
            let rss = process_of(status, *process)["rssBytes"].as_u64();
            let most = row(*process).memory_max_bytes;
            ensure!(
                rss.is_some_and(|rss| (1..most).contains(&rss)),
                "{process}: {rss:?} of {most}"
            );
        }
        let containers = containers(&self.ground)?;
        ensure!(containers == self.containers, "{containers:?}");
        ensure!(status["refused"] == json!([]), "{status}");
        Ok(())
    }

    /// Puts the true program back. The node is as it should be.
    fn end(self) -> Result<()> {
        let bulkhead = &self.ground.bulkhead;
        let real = bulkhead.paths().bin.join(self.server.name());
        let real = real.with_extension("real").display().to_string();
        install(bulkhead, self.server, &real)?;
        self.ground.apply("new", sleeper(None))?;
        self.ground
            .ready("new")
            .with_context(|| bulkhead.log_ends())?;
        wait_for("the three pods and no other", TIMEOUT, || {
            let pods = bulkhead.pods().map_err(|error| error.to_string())?;
            let names = pods.iter().map(|pod| pod["metadata"]["name"].to_string());
            match pods.len() {
                3 => Ok(()),
                _ => Err(names.collect::<Vec<_>>().join(" ")),
            }
        })?;
        let status = status_when(bulkhead, "all to be ready", |it| it["ready"] == true)?;
        self.ground.remove("new")?;
        self.nobody_was_harmed(&status)
    }
}

/// Whether in so many calls and messages of this manner there is all of it.
fn has_had_enough(server: Process, manner: Manner, numbers: &[u64]) -> bool {
    let &[calls, messages, methods] = numbers else {
        return false;
    };
    // Who sends no HTTP/2 hears of no method.
    let is_of_pool = server == Process::PodWorkerPool && manner != Manner::NoHttp;
    if is_of_pool && methods < METHODS_OF_POOL {
        return false;
    }
    match manner {
        // As large in each of several ways.
        Manner::AtTheBound if is_of_pool => messages >= 64 && calls >= 24,
        Manner::Endless | Manner::Unfinished => messages >= 1_000,
        // A call for each pod that is pulled or not admitted, and some answers are final.
        _ if [Process::CredentialProvider, Process::StatusSyncer].contains(&server) => calls >= 1,
        Manner::OfOthers => messages >= 1_000,
        Manner::AtTheBound => messages >= 5,
        Manner::BeyondTheBound | Manner::Malformed | Manner::Resets | Manner::NoHttp => calls >= 5,
        Manner::Silent => calls >= 1,
    }
}

/// Those of [`CALLED`] that are not replaced.
fn called(replaced: Process) -> impl Iterator<Item = (Process, &'static str)> {
    let called = CALLED.into_iter();
    called.filter(move |(process, _)| *process != replaced)
}

/// The median of how long their answers take.
fn waits(ground: &Ground, replaced: Process) -> Result<Vec<Duration>> {
    let program = Path::new(env!("CARGO_BIN_EXE_call-as"));
    let median = |(server, method)| {
        let mut waits = Waits::default();
        let of_root = (0, method, server, 10);
        bystanders::wait(&ground.bulkhead, program, of_root, &mut waits)?;
        Ok(waits.median())
    };
    called(replaced).map(median).collect()
}

/// What the runtime has of the two pods.
fn containers(ground: &Ground) -> Result<Vec<(String, i32, u32)>> {
    let mut found = Vec::new();
    for name in ["one", "two"] {
        let containers = ground.containers(name)?.into_iter();
        found.extend(containers.map(|it| {
            let attempt = it.metadata.unwrap_or_default().attempt;
            (it.id, it.state, attempt)
        }));
    }
    let running = i32::from(ContainerState::ContainerRunning);
    ensure!(found.len() == 2 && found.iter().all(|it| it.1 == running));
    Ok(found)
}

fn nothing(_: &Ground, _: &str) -> Result<()> {
    Ok(())
}

/// A pod that the node does not admit: status-syncer is told.
fn reject_a_pod(ground: &Ground, name: &str) -> Result<()> {
    let mut spec = sleeper(None);
    spec["nodeSelector"] = json!({ "no": "such-node" });
    ground.apply(name, spec)
}

/// A pod whose image may need credentials.
fn pull_an_image(ground: &Ground, name: &str) -> Result<()> {
    let mut spec = sleeper(None);
    spec["containers"][0]["image"] = format!("a.io/{name}:1").into();
    ground.apply(name, spec)
}

#[test]
fn sync_loop_outlives_a_hostile_pleg() -> Result<()> {
    let scene = Scene::begin(Ground::start(json!({}))?, Process::Pleg)?;
    for (manner, _) in MANNERS {
        scene.play(manner, nothing)?;
    }
    scene.end()
}

#[test]
fn sync_loop_outlives_a_hostile_prober() -> Result<()> {
    let scene = Scene::begin(Ground::start(json!({}))?, Process::Prober)?;
    for (manner, _) in MANNERS {
        scene.play(manner, nothing)?;
    }
    scene.end()
}

#[test]
fn sync_loop_and_pool_outlive_a_hostile_config_sourcer() -> Result<()> {
    let scene = Scene::begin(Ground::start(json!({}))?, Process::ConfigSourcer)?;
    for (manner, _) in MANNERS {
        scene.play(manner, nothing)?;
    }
    scene.end()
}

#[test]
fn sync_loop_outlives_a_hostile_status_syncer() -> Result<()> {
    let scene = Scene::begin(Ground::start(json!({}))?, Process::StatusSyncer)?;
    for (manner, name) in MANNERS {
        scene.play(manner, reject_a_pod)?;
        scene.ground.take_away(name)?;
    }
    // Each answer is of another run, to whom sync-loop tells everything again, and has the
    // pool list what the runtime has. It does not do so as fast as it is answered.
    scene.play(Manner::OfOthers, reject_a_pod)?;
    scene.ground.take_away(Manner::OfOthers.name())?;
    holds_for(Duration::from_secs(2), || {
        let status = scene.ground.bulkhead.command_line_json(&["status"])?;
        let (_, numbers) = scene.said(&status);
        ensure!(numbers[0] < 20, "called {numbers:?}");
        Ok(())
    })?;
    scene.end()
}

/// A pod that sync-loop tells the pool of; and status-syncer answers.
fn start_a_pod(ground: &Ground, name: &str) -> Result<()> {
    ground.bulkhead.pods()?;
    ground.apply(name, sleeper(None))
}

#[test]
fn the_others_outlive_a_hostile_pool() -> Result<()> {
    let scene = Scene::begin(Ground::start(json!({}))?, Process::PodWorkerPool)?;
    for (manner, name) in MANNERS {
        scene.play(manner, start_a_pod)?;
        scene.ground.take_away(name)?;
    }
    scene.end()
}

#[test]
fn the_pool_outlives_a_hostile_credential_provider() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let directory = containerd.node().directory_of(0);
    let options = credential_program::install(&directory, "exit 1", &["a.io".to_owned()])?;
    let bulkhead = BulkheadInstance::start(&containerd, &options)?;
    let ground = Ground {
        bulkhead,
        containerd,
    };
    let scene = Scene::begin(ground, Process::CredentialProvider)?;
    for (manner, name) in MANNERS {
        scene.play(manner, pull_an_image)?;
        scene.ground.take_away(name)?;
    }
    scene.end()
}
