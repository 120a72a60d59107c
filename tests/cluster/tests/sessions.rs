//! What people ask a node for through the API server: logs, commands, ports, files.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use cluster::Cluster;
use cluster::kubectl::{self, Ended, Running};
use cluster::workload::{pod, template};
use serde_json::{Value, json};
use test_support::http;
use test_support::images::{BUSYBOX, TESTAPP};

/// Five lines, then it says how often it hears TERM, which is never.
const TALKER: &str = "for i in 1 2 3 4 5; do echo line $i; done; exec sleep 1000";

struct Person<'a>(&'a Cluster);

impl Person<'_> {
    /// What kubectl comes to; none where there is no kubectl.
    fn kubectl(&self, words: &[&str], input: &str) -> Result<Ended> {
        let command = self.0.plane.kubectl_command(words).context("no kubectl")?;
        kubectl::run(self.0.ground.containerd.node(), command, input.as_bytes())
    }

    fn start(&self, words: &[&str]) -> Result<Running> {
        let command = self.0.plane.kubectl_command(words).context("no kubectl")?;
        Running::start(self.0.ground.containerd.node(), command)
    }

    /// Standard output of what ends well.
    fn says(&self, words: &[&str]) -> Result<String> {
        let ended = self.kubectl(words, "")?;
        anyhow::ensure!(ended.code == Some(0), "{words:?}: {ended:?}");
        Ok(ended.stdout)
    }
}

fn busybox(name: &str, command: &[&str]) -> Value {
    json!({"name": name, "image": BUSYBOX, "command": command})
}

fn start(cluster: &Cluster, name: &str, containers: Value) -> Result<()> {
    let mut template = template(name, &[]);
    template["spec"]["containers"] = containers;
    cluster.plane.apply(&pod(name, &template))?;
    cluster.until_ready(name, 1).map(drop)
}

#[test]
fn a_person_reaches_containers_through_the_api_server() -> Result<()> {
    if cluster::ControlPlane::assets().is_none() {
        test_support::not_tried("kubectl: KUBEBUILDER_ASSETS is not set");
        return Ok(());
    }
    let cluster = Cluster::start()?;
    let talker = ["/bin/sh", "-c", TALKER];
    let echo = [
        "/bin/sh",
        "-c",
        "while read -r line; do echo heard $line; done",
    ];
    let mut listener = busybox("listener", &echo);
    listener["stdin"] = json!(true);
    let web = json!({"name": "web", "image": TESTAPP, "args": ["--http", "8080"]});
    let containers = json!([busybox("talker", &talker), listener, web]);
    start(&cluster, "many", containers)?;
    let person = Person(&cluster);
    logs(&person)?;
    commands(&person)?;
    attach(&person)?;
    files(&person)?;
    ports(&person)?;
    debug(&person)?;
    statistics(&person)
}

fn logs(person: &Person<'_>) -> Result<()> {
    let logs = |words: &[&str]| {
        let all = ["logs", "many", "-c", "talker"].iter().chain(words);
        person.says(&all.copied().collect::<Vec<_>>())
    };
    let all = "line 1\nline 2\nline 3\nline 4\nline 5\n";
    assert_eq!(logs(&[])?, all);
    assert_eq!(logs(&["--since=1h"])?, all);
    assert_eq!(logs(&["--tail=2"])?, "line 4\nline 5\n");
    assert_eq!(logs(&["--limit-bytes=3"])?, "lin");
    let with_times = logs(&["--timestamps", "--tail=1"])?;
    let (time, text) = with_times.split_once(' ').context("no time")?;
    assert_eq!(text, "line 5\n");
    assert!(
        time.len() == "2026-01-01T00:00:00.000000000Z".len(),
        "{time}"
    );
    let mut following = person.start(&["logs", "-f", "many", "-c", "listener"])?;
    let mut attached = person.start(&["attach", "-i", "many", "-c", "listener"])?;
    attached.write("there\n")?;
    following.read_until("heard there\n")?;
    let previous = person.kubectl(&["logs", "--previous", "many", "-c", "talker"], "")?;
    assert_eq!(previous.code, Some(1));
    let expected = "previous terminated container \"talker\" in pod \"many\" not found";
    assert!(previous.stderr.contains(expected), "{}", previous.stderr);
    let unknown = person.kubectl(&["logs", "many", "-c", "nobody"], "")?;
    assert_eq!(unknown.code, Some(1));
    Ok(())
}

fn commands(person: &Person<'_>) -> Result<()> {
    let exec = |words: &[&str], input: &str| {
        let all = ["exec", "many", "-c", "talker"].iter().chain(words);
        person.kubectl(&all.copied().collect::<Vec<_>>(), input)
    };
    let script = "echo out; echo err >&2; exit 3";
    let ended = exec(&["--", "/bin/sh", "-c", script], "")?;
    assert_eq!(
        (ended.code, &*ended.stdout),
        (Some(3), "out\n"),
        "{ended:?}"
    );
    assert!(ended.stderr.starts_with("err\n"), "{ended:?}");
    let ended = exec(&["-i", "--", "/bin/sh", "-c", "cat; exit 0"], "through\n")?;
    assert_eq!(
        (ended.code, &*ended.stdout),
        (Some(0), "through\n"),
        "{ended:?}"
    );
    let ended = exec(&["--", "/is/not/there"], "")?;
    assert!(ended.code.is_some_and(|code| code != 0), "{ended:?}");
    Ok(())
}

fn attach(person: &Person<'_>) -> Result<()> {
    let mut attached = person.start(&["attach", "-i", "many", "-c", "listener"])?;
    attached.write("again\n")?;
    attached.read_until("heard again\n").map(drop)
}

fn files(person: &Person<'_>) -> Result<()> {
    let directory = person.0.ground.containerd.node().directory();
    let (from, to) = (directory.join("sent"), directory.join("received"));
    fs::write(&from, "some text\n")?;
    let (from, to) = (from.to_string_lossy(), to.to_string_lossy());
    person.says(&["cp", &from, "many:/tmp/sent", "-c", "talker"])?;
    person.says(&["cp", "many:/tmp/sent", &to, "-c", "talker"])?;
    assert_eq!(fs::read_to_string(&*to)?, "some text\n");
    Ok(())
}

fn ports(person: &Person<'_>) -> Result<()> {
    let mut forwarding = person.start(&["port-forward", "pod/many", "18080:8080"])?;
    forwarding.read_until("Forwarding from")?;
    let node = person.0.ground.containerd.node();
    let answer = http::request(node, "GET", SocketAddr::from(([127, 0, 0, 1], 18080)), "/")?;
    assert_eq!(answer.status, 200, "{answer:?}");
    Ok(())
}

fn debug(person: &Person<'_>) -> Result<()> {
    let image = format!("--image={BUSYBOX}");
    let words = [
        "debug",
        "many",
        &image,
        "-c",
        "debugger",
        "--image-pull-policy=Never",
    ];
    let command = [
        "--",
        "/bin/sh",
        "-c",
        "echo from a debugger; exec sleep 1000",
    ];
    person.says(&[&words[..], &command[..]].concat())?;
    person.0.until("the debugger to speak", || {
        let logs = person.kubectl(&["logs", "many", "-c", "debugger"], "")?;
        Ok(logs.stdout == "from a debugger\n")
    })
}

fn statistics(person: &Person<'_>) -> Result<()> {
    let name = person.0.node_name();
    let raw = |path: &str| {
        let path = format!("/api/v1/nodes/{name}/proxy/{path}");
        person.says(&["get", "--raw", &path])
    };
    let metrics = raw("metrics/resource")?;
    for metric in [
        "node_cpu_usage_seconds_total ",
        "node_memory_working_set_bytes ",
        "container_cpu_usage_seconds_total{container=\"web\",namespace=\"default\",pod=\"many\"} ",
        "container_memory_working_set_bytes{container=\"web\",namespace=\"default\",pod=\"many\"} ",
        "container_start_time_seconds{container=\"web\",namespace=\"default\",pod=\"many\"} ",
    ] {
        let has = metrics.lines().any(|line| line.starts_with(metric));
        assert!(has, "{metric}: {metrics}");
    }
    let json = |path: &str| -> Result<Value> { Ok(serde_json::from_str(&raw(path)?)?) };
    let summary = json("stats/summary")?;
    assert_eq!(summary["node"]["nodeName"], name);
    assert_eq!(summary["pods"][0]["podRef"]["name"], "many");
    assert_eq!(json("pods")?["items"][0]["status"]["phase"], "Running");
    assert_eq!(
        json("runningpods/")?["items"][0]["metadata"]["name"],
        "many"
    );
    assert!(json("configz")?["kubeletconfig"]["authentication"].is_object());
    assert_eq!(raw("healthz")?, "ok");
    Ok(())
}
