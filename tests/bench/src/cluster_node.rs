//! Pods of a cluster on a node of Bulkhead and on one of a kubelet of the control plane's
//! build: both on this machine, one after the other, by the times of the audit log.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use cluster::audit::{all_running, by_verb, life};
use cluster::kubelet::KubeletCluster;
use cluster::workload::{deployment, pod, template};
use cluster::{Cluster, ControlPlane, Grace};
use serde_json::Value;
use test_support::wait::{pause_for, wait_for_every};

use crate::burst;
use crate::processes::{self, Usage};
use crate::statistics::{Row, Samples};
use crate::world::World;

/// Pods that start at once.
const AT_ONCE: u64 = 20;
const ROUNDS: usize = 3;

/// Pods that direct calls start at a time: what is fastest on two processors.
const DIRECT_CALLS: usize = 4;

/// Time for what the last pods left to do, and over which the idle node is watched.
const SETTLE: Duration = Duration::from_secs(60);
const IDLE: Duration = Duration::from_secs(60);

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks, each of which is a program that starts and asks the same API server: the
/// audit log has the times, and what looks takes processors from what is measured.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What one node was measured to take.
#[derive(Default)]
struct Measured {
    start: Samples,
    end: Samples,
    at_once: Samples,
    requests: BTreeSet<usize>,
}

/// The rows; none where there is no control plane.
pub(crate) fn measure(repetitions: usize) -> Result<Vec<Row>> {
    let Some(kubelet) = KubeletCluster::start()? else {
        return Ok(Vec::new());
    };
    let of_kubelet = measure_one(&kubelet.plane, repetitions)?;
    drop(kubelet);
    let cluster = Cluster::start()?;
    let own = measure_one(&cluster.plane, repetitions)?;
    let by_verb = by_verb(&cluster.plane.audit_log()?);
    let idle = idle(&cluster)?;
    let requests = |measured: &Measured| {
        let of = |count: Option<&usize>| count.copied().unwrap_or_default();
        let counts = &measured.requests;
        format!("{} to {}", of(counts.first()), of(counts.last()))
    };
    let asked = format!("{} (a kubelet {})", requests(&own), requests(&of_kubelet));
    let rows = vec![
        Row::against(
            "cluster: bound -> Running, one pod, against a kubelet",
            &own.start,
            &of_kubelet.start,
            "<= 0.5, <= 0.3 s",
        ),
        Row::against(
            "cluster: 20 pods at once, all Running, against a kubelet",
            &own.at_once,
            &of_kubelet.at_once,
            "<= 0.5",
        ),
        Row::against(
            "cluster: 20 pods at once, all Running, against direct calls",
            &own.at_once,
            &directly()?,
            "<= 1.5",
        ),
        Row::against(
            "cluster: DELETE -> gone, against a kubelet",
            &own.end,
            &of_kubelet.end,
            "<= 0.5, <= 0.3 s",
        ),
        Row::text("cluster: requests in a pod's life", &asked, "<= 10"),
        Row::text("cluster: all requests", &format!("{by_verb:?}"), ""),
    ];
    Ok([rows, idle].concat())
}

/// As many pods at once by direct calls of the runtime.
fn directly() -> Result<Samples> {
    let world = World::create()?;
    let pods = usize::try_from(AT_ONCE)?;
    let mut samples = Samples::default();
    for round in 0..ROUNDS {
        let what = format!("at-once-{round}");
        samples.push(burst::last_by_direct_calls(
            &world,
            &what,
            pods,
            DIRECT_CALLS,
        )?);
    }
    Ok(samples)
}

/// A node of a cluster without pods.
fn idle(cluster: &Cluster) -> Result<Vec<Row>> {
    pause_for(SETTLE);
    let look = || processes::look(&cluster.ground.bulkhead);
    let requests = || cluster.plane.audit_log().map(|log| by_verb(&log));
    let (before, asked_before) = (look()?, requests()?);
    pause_for(IDLE);
    let (after, mut asked) = (look()?, requests()?);
    for (kind, count) in &mut asked {
        *count -= asked_before.get(kind).copied().unwrap_or_default();
    }
    asked.retain(|_, count| *count > 0);
    let seconds = |usages: &[Usage]| usages.iter().map(|it| it.processor_seconds).sum::<f64>();
    let cores = (seconds(&after) - seconds(&before)) / IDLE.as_secs_f64();
    let memory = after.iter().map(|it| it.memory_kib).sum();
    let row = |what: &str, measured: &str| Row::text(&format!("cluster: {what}"), measured, "");
    Ok(vec![
        row(
            "idle, no pods, processor",
            &format!("{:.1} millicores", cores * 1000.0),
        ),
        row("idle, no pods, PSS sum", &processes::mebibytes(memory)),
        row("idle for a minute, requests", &format!("{asked:?}")),
    ])
}

fn measure_one(plane: &ControlPlane, repetitions: usize) -> Result<Measured> {
    let mut measured = Measured::default();
    // It obeys SIGTERM.
    let template = template("one", &["--http", "8080"]);
    for repetition in 0..=repetitions {
        let name = format!("one-{repetition}");
        plane.apply(&pod(&name, &template))?;
        until(plane, "one", 1)?;
        plane.delete("pod", &name, Grace::Own)?;
        until(plane, "one", 0)?;
        // The first finds nothing prepared.
        if repetition > 0 {
            let life = life(&plane.audit_log()?, &name)?;
            measured.start.push(life.start);
            measured.end.push(life.end);
            measured.requests.insert(life.requests);
        }
    }
    for round in 0..ROUNDS {
        let app = format!("many-{round}");
        plane.apply(&deployment(&app, AT_ONCE))?;
        let pods = until(plane, &app, usize::try_from(AT_ONCE)?)?;
        let names = pods
            .iter()
            .filter_map(|pod| pod["metadata"]["name"].as_str());
        let names: Vec<String> = names.map(str::to_owned).collect();
        let took = all_running(&plane.audit_log()?, &names)?;
        measured.at_once.push(took);
        plane.apply(&deployment(&app, 0))?;
        until(plane, &app, 0)?;
    }
    Ok(measured)
}

/// Waits until there are so many pods of an app, all Running.
fn until(plane: &ControlPlane, app: &str, count: usize) -> Result<Vec<Value>> {
    let pods = wait_for_every(LOOK_INTERVAL, app, PATIENCE, || {
        let pods = plane.pods(app).map_err(|error| format!("{error:#}"))?;
        let running = pods.iter().filter(|it| it["status"]["phase"] == "Running");
        match running.count() == count && pods.len() == count {
            true => Ok(pods),
            false => Err(format!("{} pods", pods.len())),
        }
    })?;
    Ok(pods)
}
