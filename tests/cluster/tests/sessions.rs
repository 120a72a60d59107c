//! What people ask a node for through the API server: logs, commands, ports, files.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use cluster::Cluster;
use cluster::node_client::NodeClient;
use cluster::person::{Container, Person};
use cluster::workload::{pod, template};
use remote_command::{Event, Size, Streams};
use serde_json::{Value, json};
use test_support::images::{BUSYBOX, TESTAPP};
use topology::Process;

/// What one container writes before it waits.
const LINES: &str = "line 1\nline 2\nline 3\nline 4\nline 5\n";
const TALKER: &str = "for i in 1 2 3 4 5; do echo line $i; done; exec sleep 1000";

const POD: &str = "many";

fn container(name: &str) -> Container<'_> {
    Container { pod: POD, name }
}

#[test]
fn a_person_reaches_containers_through_the_api_server() -> Result<()> {
    let cluster = Cluster::start()?;
    let echo = "while read -r line; do echo heard $line; done";
    let mut listener = busybox("listener", echo);
    listener["stdin"] = json!(true);
    let web = json!({"name": "web", "image": TESTAPP, "args": ["--http", "8080"]});
    let mut template = template(POD, &[]);
    let again = "test -e /tmp/again && exec sleep 1000; echo before; sleep 1; exit 1";
    template["spec"]["volumes"] = json!([{"name": "tmp", "emptyDir": {}}]);
    let mut restarted = busybox("restarted", &again.replace("sleep 1;", "touch /tmp/again;"));
    restarted["volumeMounts"] = json!([{"name": "tmp", "mountPath": "/tmp"}]);
    template["spec"]["containers"] = json!([busybox("talker", TALKER), listener, restarted, web]);
    cluster.plane.apply(&pod(POD, &template))?;
    cluster.until_ready(POD, 1)?;
    let person = Person::new(&cluster)?;
    logs(&cluster, &person)?;
    commands(&person)?;
    person.ask_port(POD, 8080)?;
    debug(&cluster, &person)?;
    statistics(&cluster, &person)?;
    match person.has_kubectl() {
        true => files(&cluster, &person),
        false => Ok(()),
    }
}

/// Commands that run while node-api is killed.
const OPEN: usize = 50;

#[test]
fn sessions_end_with_node_api_and_nothing_else_does() -> Result<()> {
    let mut cluster = Cluster::start()?;
    let mut template = template(POD, &[]);
    template["spec"]["containers"] = json!([busybox("talker", TALKER)]);
    cluster.plane.apply(&pod(POD, &template))?;
    cluster.until_ready(POD, 1)?;
    let node = cluster.ground.containerd.node();
    let client = NodeClient::new(node, cluster.plane.directory())?;
    let streams = Streams {
        stdin: true,
        stdout: true,
        ..Streams::default()
    };
    let path = format!("/exec/default/{POD}/talker?input=1&output=1&command=cat");
    let mut opened = Vec::new();
    for _ in 0..OPEN {
        opened.push(client.block_on(async {
            let connection = client.connect().await?;
            let (input, mut output) = remote_command::command(connection, &path, streams).await?;
            input.send(b"here").await;
            assert_eq!(output.next().await?, Event::Stdout(b"here".into()));
            anyhow::Ok((input, output))
        })?);
    }
    let others = |cluster: &Cluster| -> Result<_> {
        let mut pids = cluster.ground.bulkhead.pids()?;
        pids.remove(&Process::NodeApi);
        Ok((pids, cluster.containers(POD)?))
    };
    let before = others(&cluster)?;
    cluster.ground.bulkhead.kill(Process::NodeApi)?;
    for (_input, mut output) in opened {
        assert!(client.block_on(output.next()).is_err());
    }
    let person = Person::new(&cluster)?;
    let talker = container("talker");
    let count = ["/bin/sh", "-c", "pgrep -x cat | wc -l"];
    cluster.until("all commands to have ended", || {
        let ended = person.exec(talker, &count, None)?;
        Ok(ended.stdout == "0\n")
    })?;
    assert_eq!(others(&cluster)?, before);
    Ok(())
}

fn busybox(name: &str, script: &str) -> Value {
    json!({"name": name, "image": BUSYBOX, "command": ["/bin/sh", "-c", script]})
}

fn logs(cluster: &Cluster, person: &Person<'_>) -> Result<()> {
    let logs = |options: &[(&str, &str)]| -> Result<String> {
        let ended = person.logs(container("talker"), options)?;
        ensure!(ended.code == Some(0), "{options:?}: {ended:?}");
        Ok(ended.stdout)
    };
    let tail = ("tail=2", "tailLines=2");
    assert_eq!(logs(&[])?, LINES);
    assert_eq!(logs(&[("since=1h", "sinceSeconds=3600")])?, LINES);
    assert_eq!(logs(&[tail])?, "line 4\nline 5\n");
    assert_eq!(logs(&[("limit-bytes=3", "limitBytes=3")])?, "lin");
    let with_times = logs(&[("timestamps", "timestamps=true"), tail])?;
    let (time, text) = with_times.split_once(' ').context("no time")?;
    assert!(text.starts_with("line 4\n"), "{with_times}");
    assert_eq!(time.len(), "2026-01-01T00:00:00.000000000Z".len(), "{time}");
    let previous = ("previous", "previous=true");
    cluster.until("a container to be started again", || {
        let ended = person.logs(container("restarted"), &[previous])?;
        Ok(ended.stdout == "before\n")
    })?;
    let refused = person.logs(container("talker"), &[previous])?;
    let reason = format!("previous terminated container \"talker\" in pod \"{POD}\" not found");
    assert!(refused.stderr.contains(&reason), "{refused:?}");
    let unknown = person.logs(container("nobody"), &[])?;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    person.follow(container("listener"), "heard there\n", || {
        person.attach(container("listener"), "there\n", "heard there\n")
    })
}

fn commands(person: &Person<'_>) -> Result<()> {
    let talker = container("talker");
    let shell = |script: &'static str| ["/bin/sh", "-c", script];
    let ended = person.exec(talker, &shell("echo out; echo err >&2; exit 3"), None)?;
    assert_eq!(
        (ended.code, &*ended.stdout),
        (Some(3), "out\n"),
        "{ended:?}"
    );
    assert!(ended.stderr.starts_with("err\n"), "{ended:?}");
    let ended = person.exec(talker, &shell("cat; exit 0"), Some("through\n"))?;
    let found = (ended.code, &*ended.stdout);
    assert_eq!(found, (Some(0), "through\n"), "{ended:?}");
    for (of, command) in [
        (talker, "/is/not/there"),
        (container("nobody"), "/bin/true"),
    ] {
        let ended = person.exec(of, &[command], None)?;
        assert!(ended.code.is_some_and(|code| code != 0), "{ended:?}");
    }
    assert_eq!(
        person.run(talker, "echo without a session")?,
        "without a session\n"
    );
    let size = Size {
        width: 90,
        height: 33,
    };
    // Whether the size comes before the shell asks for it is a race that the shell repeats.
    let keys = "until [ \"$(stty size)\" = '33 90' ]; do sleep 0.1; done; echo si''ze; exit 5\r";
    let code = person.shell(talker, size, keys, "size")?;
    assert_eq!(code, Some(5));
    Ok(())
}

fn debug(cluster: &Cluster, person: &Person<'_>) -> Result<()> {
    let words = ["/bin/sh", "-c", "echo from a debugger; exec sleep 1000"];
    if person.has_kubectl() {
        let image = format!("--image={BUSYBOX}");
        let of_image = [&*image, "--image-pull-policy=Never"];
        let head = ["debug", POD, "-c", "debugger"];
        let all = [&head[..], &of_image, &["--"], &words].concat();
        let ended = person.kubectl(&all, "")?;
        ensure!(ended.code == Some(0), "{ended:?}");
    } else {
        let debugger = json!({"name": "debugger", "image": BUSYBOX, "command": words,
            "imagePullPolicy": "Never"});
        let double = cluster.plane.double().context("no double")?;
        let spec = json!({"spec": {"ephemeralContainers": [debugger]}});
        double.patch("pod", POD, "ephemeralcontainers", &spec)?;
    }
    cluster.until("the debugger to speak", || {
        let logs = person.logs(container("debugger"), &[])?;
        Ok(logs.stdout == "from a debugger\n")
    })
}

fn statistics(cluster: &Cluster, person: &Person<'_>) -> Result<()> {
    let metrics = person.raw("metrics/resource")?;
    let labels = format!("{{container=\"web\",namespace=\"default\",pod=\"{POD}\"}} ");
    for metric in [
        "node_cpu_usage_seconds_total ".to_owned(),
        "node_memory_working_set_bytes ".to_owned(),
        format!("container_cpu_usage_seconds_total{labels}"),
        format!("container_memory_working_set_bytes{labels}"),
        format!("container_start_time_seconds{labels}"),
    ] {
        let has = metrics.lines().any(|line| line.starts_with(&metric));
        assert!(has, "{metric}: {metrics}");
    }
    let json = |path: &str| -> Result<Value> { Ok(serde_json::from_str(&person.raw(path)?)?) };
    let summary = json("stats/summary")?;
    assert_eq!(summary["node"]["nodeName"], cluster.node_name());
    assert_eq!(summary["pods"][0]["podRef"]["name"], POD);
    assert_eq!(json("pods")?["items"][0]["status"]["phase"], "Running");
    assert_eq!(json("runningpods/")?["items"][0]["metadata"]["name"], POD);
    assert!(json("configz")?["kubeletconfig"]["authentication"].is_object());
    assert_eq!(person.raw("healthz")?, "ok");
    Ok(())
}

fn files(cluster: &Cluster, person: &Person<'_>) -> Result<()> {
    let directory = cluster.ground.containerd.node().directory();
    let (from, to) = (directory.join("sent"), directory.join("received"));
    fs::write(&from, "some text\n")?;
    let (from, to) = (from.to_string_lossy(), to.to_string_lossy());
    let there = format!("{POD}:/tmp/sent");
    for (from, to) in [(&*from, &*there), (&there, &to)] {
        let ended = person.kubectl(&["cp", from, to, "-c", "talker"], "")?;
        ensure!(ended.code == Some(0), "{ended:?}");
    }
    assert_eq!(fs::read_to_string(&*to)?, "some text\n");
    Ok(())
}
