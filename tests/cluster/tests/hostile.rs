//! What an API server does that is broken or hostile touches no pod that runs.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use cluster::workload::{pod, web_template};
use cluster::{Cluster, ControlPlane, Grace};
use test_support::ApiServer;
use test_support::api_server::Fault;
use topology::Process;

/// What is not true, or not what was asked for, and what `bulkhead status` says of that which
/// would be wrong for good.
const LIES: [(Fault, Option<&str>); 7] = [
    (Fault::Expired, Some("too old resource version")),
    (
        Fault::ForeignPod,
        Some(r#"default/lie, which is bound to another node: "other""#),
    ),
    (
        Fault::PathAsUid,
        Some(r#"default/lie with a UID that is none: uid "../../up""#),
    ),
    (Fault::OtherKind, Some(r#""NodeList""#)),
    (Fault::Replay, Some("has gone back to version 1")),
    (Fault::HugePod, Some("cannot read the API server's answer")),
    (Fault::Garbage, Some("/api/v1/pods")),
];

/// The same of no answer to a request.
const REFUSALS: [(Fault, Option<&str>); 6] = [
    (Fault::ShortWatches, Some("ended at once")),
    (Fault::Redirect, Some(": 302")),
    (Fault::Unauthorized, Some(": 401 Unauthorized")),
    (Fault::ExpiredCertificate, Some("certificate expired")),
    (Fault::TooManyRequests, Some("too many requests")),
    (Fault::HungStatus, None),
];

/// Answers that are wrong before the next look.
const FAULTY_ANSWERS: u64 = 4;

/// The containers of a static pod and of one of the API server.
fn containers(cluster: &Cluster) -> Result<Vec<(String, bool)>> {
    let of_static = cluster.containers(&cluster.ground.full_name("static"))?;
    Ok([of_static, cluster.containers("steady")?].concat())
}

/// The process id of api-gateway, and the most memory that it has had, in bytes.
fn gateway(cluster: &Cluster) -> Result<(u32, u64)> {
    let pids = cluster.ground.bulkhead.pids()?;
    let pid = *pids.get(&Process::ApiGateway).context("it does not run")?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mut lines = status.lines();
    let most = lines.find_map(|line| line.strip_prefix("VmHWM:"));
    let most = most.and_then(|it| it.trim().strip_suffix(" kB"));
    let most: u64 = most.context("no VmHWM")?.parse()?;
    Ok((pid, most * 1024))
}

fn double(cluster: &mut Cluster) -> Result<&mut ApiServer> {
    cluster.plane.double_mut().context("it is real")
}

fn survives(cluster: &mut Cluster, fault: Fault, said: Option<&str>) -> Result<()> {
    let before = containers(cluster)?;
    let (pid, _) = gateway(cluster)?;
    double(cluster)?.set_fault(Some(fault))?;
    cluster.plane.apply(&pod("new", &web_template("new")))?;
    cluster.until("the API server to be broken", || {
        let enough = match fault {
            Fault::HungStatus => 1,
            _ => FAULTY_ANSWERS,
        };
        let double = cluster.plane.double().context("it is real")?;
        Ok(double.faulty_answers() >= enough)
    })?;
    if let Some(said) = said {
        cluster.until(&format!("the status to say {said:?}"), || {
            Ok(cluster.ground.printed(&["status"])?.contains(said))
        })?;
    }
    let (same_pid, most) = gateway(cluster)?;
    ensure!(pid == same_pid, "api-gateway ended");
    let limit = topology::row(Process::ApiGateway).memory_max_bytes;
    ensure!(most < limit, "api-gateway took {most} bytes");
    ensure!(containers(cluster)? == before, "pods that ran were touched");
    double(cluster)?.set_fault(None)?;
    cluster.until_ready("new", 1)?;
    ensure!(containers(cluster)? == before, "pods that ran were touched");
    ensure!(cluster.containers("lie")?.is_empty(), "a lie was believed");
    cluster.plane.delete("pod", "new", Grace::None)?;
    cluster.until("the new pod to have stopped", || {
        let mut containers = cluster.containers("new")?.into_iter();
        Ok(containers.all(|(_, is_running)| !is_running))
    })
}

fn all_survive(faults: &[(Fault, Option<&str>)]) -> Result<()> {
    if ControlPlane::assets().is_some() {
        test_support::not_tried("a hostile API server: this one is real");
        return Ok(());
    }
    let mut cluster = Cluster::start()?;
    let spec = cluster.ground.app("static", &["--http", "8080"]);
    cluster.ground.apply("static", spec)?;
    cluster.ground.ready("static")?;
    cluster
        .plane
        .apply(&pod("steady", &web_template("steady")))?;
    cluster.until_ready("steady", 1)?;
    for (fault, said) in faults {
        survives(&mut cluster, *fault, *said).with_context(|| format!("{fault:?}"))?;
        // Its waits between attempts begin anew.
        let killed = cluster.ground.bulkhead.kill(Process::ApiGateway)?;
        cluster.until("another api-gateway", || Ok(gateway(&cluster)?.0 != killed))?;
        cluster.ground.bulkhead.wait_until_ready()?;
    }
    Ok(())
}

#[test]
fn pods_run_on_when_the_api_server_lies() -> Result<()> {
    all_survive(&LIES)
}

#[test]
fn pods_run_on_when_the_api_server_refuses() -> Result<()> {
    all_survive(&REFUSALS)
}
