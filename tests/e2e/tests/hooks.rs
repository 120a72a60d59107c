//! Lifecycle hooks, seen by what they do in the container, and when.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use e2e::ground::{TIMEOUT, spec};
use e2e::workload::script;
use serde_json::{Value, json};
use test_support::wait::pause_for;
use test_support::wait_for;
use topology::Process;

/// How much later than due something may be on a machine that is busy with other tests.
const LATE: Duration = Duration::from_secs(8);

/// Writes a line with the time to a file that the test reads.
fn says(pod: &str, word: &str) -> String {
    format!("echo {word} $(date +%s) >> /journals/{pod}")
}

fn exec(script: &str) -> Value {
    json!({"exec": {"command": ["sh", "-c", script]}})
}

/// A container that says when it was asked to end, and then takes its time.
fn polite(pod: &str, name: &str, lifecycle: Value) -> Value {
    let term = says(pod, &format!("{name}-term"));
    let text = format!("trap '{term}; exit 0' TERM; while :; do sleep 0.1; done");
    let mut container = script(name, &text);
    container["lifecycle"] = lifecycle;
    container
}

/// What was said, in order, and when.
fn said(ground: &Ground, pod: &str) -> Vec<(String, u64)> {
    let path = ground.bulkhead.paths().shared.join(pod);
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| {
        let (word, at) = line.split_once(' ')?;
        Some((word.to_owned(), at.parse().ok()?))
    });
    lines.collect()
}

fn at(ground: &Ground, pod: &str, word: &str) -> Result<u64> {
    wait_for(&format!("{pod} to say {word}"), TIMEOUT, || {
        let said = said(ground, pod);
        let found = said.iter().find(|(said, _)| said == word);
        found.map(|(_, at)| *at).ok_or(format!("{said:?}"))
    })
    .with_context(|| ground.bulkhead.log_ends())
}

fn times(ground: &Ground, pod: &str, word: &str) -> usize {
    let said = said(ground, pod);
    said.iter().filter(|(said, _)| said == word).count()
}

#[test]
fn hooks_run_in_their_container_after_its_start_and_before_its_sigterm() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let post = format!("{}; sleep 3; {}", says("p", "post"), says("p", "post-done"));
    let pre = format!("{}; sleep 3; {}", says("p", "pre"), says("p", "pre-done"));
    let first = polite(
        "p",
        "a",
        json!({"postStart": exec(&post), "preStop": exec(&pre)}),
    );
    let mut second = polite("p", "b", json!({"preStop": {"sleep": {"seconds": 2}}}));
    let text = second["command"][2]
        .as_str()
        .context("a script")?
        .to_owned();
    second["command"][2] = json!(format!("{}; {text}", says("p", "b-starts")));
    let mut pod = spec(&ground, &[first, second]);
    pod["terminationGracePeriodSeconds"] = json!(30);
    ground.apply("p", pod)?;
    ground.ready("p")?;
    let (done, next) = (
        at(&ground, "p", "post-done")?,
        at(&ground, "p", "b-starts")?,
    );
    ensure!(
        next >= done,
        "the next container waits for the hook: {done} {next}"
    );
    ground.remove("p")?;
    ground.gone("p")?;
    let (begun, ended) = (at(&ground, "p", "pre")?, at(&ground, "p", "pre-done")?);
    let (a, b) = (at(&ground, "p", "a-term")?, at(&ground, "p", "b-term")?);
    ensure!(a >= ended && ended >= begun + 2, "{:?}", said(&ground, "p"));
    ensure!(
        b > begun && b <= begun + 2 + LATE.as_secs(),
        "{:?}",
        said(&ground, "p")
    );
    Ok(())
}

#[test]
fn a_pre_stop_hook_is_begun_once_though_the_worker_pool_is_killed() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let pre = format!("{}; sleep 5; {}", says("p", "pre"), says("p", "pre-done"));
    let mut pod = spec(&ground, &[polite("p", "a", json!({"preStop": exec(&pre)}))]);
    pod["terminationGracePeriodSeconds"] = json!(40);
    ground.apply("p", pod)?;
    ground.ready("p")?;
    ground.take_away("p")?;
    let begun = at(&ground, "p", "pre")?;
    for _ in 0..2 {
        ground.bulkhead.kill(Process::PodWorkerPool)?;
        ground.bulkhead.wait_until_ready()?;
        pause_for(Duration::from_secs(1));
    }
    ground.gone("p")?;
    let said = said(&ground, "p");
    ensure!(times(&ground, "p", "pre") == 1, "{said:?}");
    let (ended, term) = (at(&ground, "p", "pre-done")?, at(&ground, "p", "a-term")?);
    ensure!(
        ended <= term && term <= begun + 5 + LATE.as_secs(),
        "{said:?}"
    );
    Ok(())
}

/// A caller that is asked to end, unlike one that is killed, could still take back what it
/// has asked the runtime for.
#[test]
fn hooks_go_on_while_the_worker_pool_is_restarted() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let hook = |name: &str| {
        let (begun, done) = (says("p", name), says("p", &format!("{name}-done")));
        exec(&format!("{begun}; sleep 4; {done}"))
    };
    let hooks = json!({"postStart": hook("post"), "preStop": hook("pre")});
    let mut pod = spec(&ground, &[polite("p", "a", hooks)]);
    pod["terminationGracePeriodSeconds"] = json!(30);
    ground.apply("p", pod)?;
    at(&ground, "p", "post")?;
    ground.printed(&["restart", Process::PodWorkerPool.name()])?;
    at(&ground, "p", "post-done")?;
    ground.ready("p")?;
    ground.remove("p")?;
    at(&ground, "p", "pre")?;
    ground.printed(&["restart", Process::PodWorkerPool.name()])?;
    let done = at(&ground, "p", "pre-done")?;
    ground.gone("p")?;
    for word in ["post", "post-done", "pre", "pre-done", "a-term"] {
        let times = times(&ground, "p", word);
        ensure!(times == 1, "{word}: {times}, {:?}", said(&ground, "p"));
    }
    ensure!(
        at(&ground, "p", "a-term")? >= done,
        "{:?}",
        said(&ground, "p")
    );
    Ok(())
}

#[test]
fn http_hooks_reach_their_pod() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    // Its web server tells of each request, and speaks no TLS.
    let serve = "trap 'exit 0' TERM; httpd -f -vv -p 8080 -h / 2> /journals/requests & wait";
    let mut server = script("a", serve);
    server["ports"] = json!([{"name": "web", "containerPort": 8080}]);
    server["lifecycle"] = json!({
        "preStop": {"httpGet": {"port": "web", "path": "/down", "scheme": "HTTPS"}},
    });
    server["readinessProbe"] = json!({"tcpSocket": {"port": "web"}, "periodSeconds": 1});
    let mut pod = spec(&ground, &[server]);
    pod["terminationGracePeriodSeconds"] = json!(30);
    ground.apply("p", pod)?;
    ground.ready("p")?;
    ground.remove("p")?;
    ground.gone("p")?;
    let requests = ground.bulkhead.paths().shared.join("requests");
    let requests = std::fs::read_to_string(requests)?;
    ensure!(requests.matches("url:/down").count() == 1, "{requests}");
    Ok(())
}
