//! Sessions with containers through the node's own server: what they take on a node of Bulkhead
//! and on one of a kubelet, and what many connections without credentials cost those who have
//! some.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use cluster::kubelet::KubeletCluster;
use cluster::node_client::{NodeClient, ask};
use cluster::workload::{pod, template};
use cluster::{Cluster, ControlPlane, condition};
use futures_util::{StreamExt as _, stream};
use hyper::Method;
use remote_command::{Event, Input, Output, Streams};
use serde_json::json;
use test_support::images::BUSYBOX;
use test_support::node::TestNode;
use test_support::wait::pause_for;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::processes;
use crate::statistics::{Row, Samples};
use crate::world::poll;

const POD: &str = "sessions";

/// What the log has before its last line; it stays below the size at which a log is rotated.
const LOG_BYTES: u32 = 6_000_000;
const LAST_LINE: &str = "the end of the log";

/// What goes through a port.
const PORT: u16 = 8080;
const PORT_BYTES: u32 = 64 << 20;

/// How often a log and a file are read.
const READS: usize = 10;

/// Sessions that stay open and say nothing.
const IDLE_SESSIONS: u32 = 50;

/// Until memory is looked at.
const SETTLE: Duration = Duration::from_secs(5);

/// Connections without credentials, and how many at a time.
const ATTEMPTS: u32 = 10_000;
const ATTEMPTS_AT_A_TIME: usize = 256;

/// How long one that says nothing stays if nobody ends it.
const SILENCE: Duration = Duration::from_secs(1);

/// What one node was measured to take.
struct Measured {
    exec: Samples,
    log: Samples,
    port: Samples,
    /// For each session that is idle.
    idle_kib: f64,
    stormy: Stormy,
}

/// What connections without credentials cost.
struct Stormy {
    exec: Samples,
    /// More than before, at most.
    more_kib: u32,
    lasted: Duration,
}

/// A node, and the memory of what serves there.
struct Served<'a> {
    client: NodeClient,
    stranger: NodeClient,
    memory_kib: &'a dyn Fn() -> Result<u32>,
}

impl Served<'_> {
    /// Has a pod started there.
    fn start<'a>(
        node: &Arc<TestNode>,
        plane: &ControlPlane,
        memory_kib: &'a dyn Fn() -> Result<u32>,
    ) -> Result<Served<'a>> {
        start_pod(plane)?;
        Ok(Served {
            client: NodeClient::new(node, plane.directory())?,
            stranger: NodeClient::without_credentials(node)?,
            memory_kib,
        })
    }
}

/// The rows; none where there is no control plane.
pub(crate) fn measure(repetitions: usize) -> Result<Vec<Row>> {
    let Some(kubelet) = KubeletCluster::start()? else {
        return Ok(Vec::new());
    };
    let memory = || processes::proportional_set_kib(kubelet.pid());
    let served = Served::start(kubelet.containerd.node(), &kubelet.plane, &memory)?;
    let theirs = measure_one(&served, repetitions)?;
    drop(served);
    drop(kubelet);

    let cluster = Cluster::start()?;
    let memory = || {
        let all = processes::look(&cluster.ground.bulkhead)?;
        Ok(all.iter().map(|it| it.memory_kib).sum())
    };
    let served = Served::start(cluster.ground.containerd.node(), &cluster.plane, &memory)?;
    let own = measure_one(&served, repetitions)?;
    Ok(rows(&own, &theirs))
}

fn rows(own: &Measured, theirs: &Measured) -> Vec<Row> {
    let read = |what: &str, bytes: u32, samples: &Samples| {
        let rate = f64::from(bytes) / 1e6 / samples.percentile(50).as_secs_f64();
        format!("sessions: {what} ({rate:.0} MB/s), against a kubelet")
    };
    let log = read("a log of 6 MB, followed", LOG_BYTES, &own.log);
    let port = read("64 MiB through a forwarded port", PORT_BYTES, &own.port);
    let idle = format!(
        "{:.1} KiB in all processes (a kubelet {:.1} KiB)",
        own.idle_kib, theirs.idle_kib
    );
    let memory = |stormy: &Stormy| {
        let more = processes::mebibytes(stormy.more_kib);
        format!("{more} in {:.1} s", stormy.lasted.as_secs_f64())
    };
    let attempts = format!(
        "{} (a kubelet {})",
        memory(&own.stormy),
        memory(&theirs.stormy)
    );
    let started = "connection -> output of a command";
    vec![
        Row::against(
            &format!("sessions: {started}, against a kubelet"),
            &own.exec,
            &theirs.exec,
            "",
        ),
        Row::against(&log, &own.log, &theirs.log, ""),
        Row::against(&port, &own.port, &theirs.port, ""),
        Row::text("sessions: memory of an idle one", &idle, ""),
        Row::text(
            "sessions: memory of 10,000 attempts without credentials",
            &attempts,
            "<= 8 MiB",
        ),
        Row::against(
            &format!("sessions: {started} meanwhile, against one before"),
            &own.stormy.exec,
            &own.exec,
            "<= 200 ms more",
        ),
        Row::against(
            &format!("sessions: {started} meanwhile, against a kubelet"),
            &own.stormy.exec,
            &theirs.stormy.exec,
            "",
        ),
    ]
}

/// A pod that has written its log, and serves a file.
fn start_pod(plane: &ControlPlane) -> Result<()> {
    let script = format!(
        "mkdir /tmp/www; head -c {PORT_BYTES} /dev/zero > /tmp/www/much; \
         yes $(printf %0199d 0) | head -c {LOG_BYTES}; echo {LAST_LINE}; \
         exec httpd -f -p {PORT} -h /tmp/www"
    );
    let mut template = template(POD, &[]);
    template["spec"]["containers"] = json!([{
        "name": "main", "image": BUSYBOX, "command": ["/bin/sh", "-c", script],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
    }]);
    plane.apply(&pod(POD, &template))?;
    poll("the pod to be ready", || {
        let pods = plane.pods(POD)?;
        let is_ready = |it| condition::condition(it, "Ready") == "True";
        Ok(pods.iter().any(is_ready).then_some(()))
    })
}

fn measure_one(served: &Served<'_>, repetitions: usize) -> Result<Measured> {
    let client = &served.client;
    // The first finds nothing prepared.
    client.block_on(start_command(client))?;
    let exec = repeat(repetitions, || client.block_on(start_command(client)))?;
    let log = repeat(READS, || client.block_on(read_log(client)))?;
    let port = repeat(READS, || client.block_on(read_port(client)))?;
    let idle_kib = memory_of_idle(served)?;
    let stormy = stormy(served)?;
    Ok(Measured {
        exec,
        log,
        port,
        idle_kib,
        stormy,
    })
}

fn repeat(times: usize, mut once: impl FnMut() -> Result<Duration>) -> Result<Samples> {
    let mut samples = Samples::default();
    for _ in 0..times {
        samples.push(once()?);
    }
    Ok(samples)
}

async fn open(client: &NodeClient, command: &str, stdin: bool) -> Result<(Input, Output)> {
    let streams = Streams {
        stdin,
        stdout: true,
        ..Streams::default()
    };
    let input = u8::from(stdin);
    let path = format!("/exec/default/{POD}/main?output=1&input={input}&{command}");
    Ok(remote_command::command(client.connect().await?, &path, streams).await?)
}

async fn start_command(client: &NodeClient) -> Result<Duration> {
    let begin = Instant::now();
    let (_input, mut output) = open(client, "command=echo&command=here", false).await?;
    let event = output.next().await?;
    let took = begin.elapsed();
    ensure!(event == Event::Stdout(b"here\n".into()), "{event:?}");
    while !matches!(output.next().await?, Event::Ended(_)) {}
    Ok(took)
}

async fn read_log(client: &NodeClient) -> Result<Duration> {
    let begin = Instant::now();
    let mut connection = client.connect().await?;
    let path = format!("/containerLogs/default/{POD}/main?follow=true");
    let request = format!("GET {path} HTTP/1.1\r\nhost: node\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let last = LAST_LINE.as_bytes();
    let (mut read, mut buffer) = (0, vec![0; 256 << 10]);
    // The last line may come in two parts.
    let mut end: Vec<u8> = Vec::new();
    while !end.windows(last.len()).any(|part| part == last) {
        let count = connection.read(&mut buffer).await?;
        ensure!(count > 0, "the log ends after {read} bytes");
        read += count;
        let kept = end.len().saturating_sub(last.len());
        end.drain(..kept);
        end.extend(&buffer[..count]);
    }
    ensure!(
        read > usize::try_from(LOG_BYTES)?,
        "{read} bytes of the log"
    );
    Ok(begin.elapsed())
}

async fn read_port(client: &NodeClient) -> Result<Duration> {
    let begin = Instant::now();
    let path = format!("/portForward/default/{POD}");
    let (near, mut far) = tokio::io::duplex(256 << 10);
    let forwarding = remote_command::forward(client.connect().await?, &path, PORT, near);
    let reading = async {
        far.write_all(b"GET /much HTTP/1.0\r\n\r\n").await?;
        tokio::io::copy(&mut far, &mut tokio::io::sink()).await
    };
    let (forwarded, read) = tokio::join!(forwarding, reading);
    forwarded.context("the port is not forwarded")?;
    let read = read?;
    ensure!(read > u64::from(PORT_BYTES), "{read} bytes of the port");
    Ok(begin.elapsed())
}

fn memory_of_idle(served: &Served<'_>) -> Result<f64> {
    let client = &served.client;
    let before = (served.memory_kib)()?;
    let opened: Vec<(Input, Output)> = client.block_on(async {
        let mut opened = Vec::new();
        for _ in 0..IDLE_SESSIONS {
            let (input, mut output) = open(client, "command=cat", true).await?;
            ensure!(input.send(b"x").await, "a session ended");
            output.next().await?;
            opened.push((input, output));
        }
        Ok(opened)
    })?;
    pause_for(SETTLE);
    let after = (served.memory_kib)()?;
    drop(opened);
    Ok((f64::from(after) - f64::from(before)) / f64::from(IDLE_SESSIONS))
}

fn stormy(served: &Served<'_>) -> Result<Stormy> {
    let client = &served.client;
    let before = (served.memory_kib)()?;
    let begin = Instant::now();
    let (mut exec, mut most) = (Samples::default(), before);
    std::thread::scope(|scope| {
        let stranger = &served.stranger;
        let storm = scope.spawn(|| storm(stranger));
        while !storm.is_finished() {
            exec.push(client.block_on(start_command(client))?);
            most = most.max((served.memory_kib)()?);
        }
        let refused = storm.join().ok().context("the storm panicked")?;
        ensure!(refused > 0, "nobody was refused");
        Ok(())
    })?;
    Ok(Stormy {
        exec,
        more_kib: most - before,
        lasted: begin.elapsed(),
    })
}

/// Connects again and again; every other connection says nothing. How many were answered that
/// they need credentials.
fn storm(stranger: &NodeClient) -> usize {
    let attempts = stream::iter(0..ATTEMPTS).map(|number| async move {
        match number % 2 {
            0 => {
                if let Ok(mut silent) = stranger.connect_silently().await {
                    let reading = silent.read_u8();
                    // Whether the node hangs up before does not matter.
                    drop(tokio::time::timeout(SILENCE, reading).await);
                }
                false
            }
            _ => match stranger.connect().await {
                Ok(connection) => {
                    matches!(ask(connection, Method::GET, "/pods").await, Ok((401, _)))
                }
                // It had to make place for another.
                Err(_) => false,
            },
        }
    });
    let answered = attempts
        .buffer_unordered(ATTEMPTS_AT_A_TIME)
        .filter(|is_refused| std::future::ready(*is_refused));
    stranger.block_on(answered.count())
}
