//! Pods from the first look at their manifest to the last trace of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use cri::{RuntimeReads as _, v1};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use e2e::ground::spec;
use e2e::workload::container;
use serde_json::{Value, json};
use test_support::observe::{container_id, container_status};
use test_support::{cgroup, wait_for};

/// How much later than due something may be on a machine that is busy with
/// other tests.
const LATE: Duration = Duration::from_secs(10);

#[test]
fn a_pod_is_to_the_runtime_what_a_kubelet_makes_of_it() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    put_web(&ground)?;
    let pod = ground.ready("web")?;
    let uid = text(&pod["metadata"]["uid"]);
    let name = ground.full_name("web");

    let sandboxes = ground.sandboxes("web")?;
    ensure!(sandboxes.len() == 1, "one sandbox: {sandboxes:?}");
    let client = ground.containerd.client();
    let sandbox = ground
        .containerd
        .block_on(client.pod_sandbox_status(&sandboxes[0].id))?;
    assert_eq!(
        sandbox.metadata,
        Some(v1::PodSandboxMetadata {
            name: name.clone(),
            uid: uid.clone(),
            namespace: "default".to_owned(),
            attempt: 0,
        })
    );
    let labels = [
        ("app", "web"),
        ("io.kubernetes.pod.name", &*name),
        ("io.kubernetes.pod.namespace", "default"),
        ("io.kubernetes.pod.uid", &*uid),
    ];
    assert_eq!(sandbox.labels, owned(&labels));
    let annotations = sandbox.annotations;
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(annotations["kubernetes.io/config.hash"], uid);
    assert_eq!(annotations["example.org/note"], "kept");
    assert!(annotations.contains_key("kubernetes.io/config.seen"));
    let ip = sandbox.network.context("the sandbox's network")?.ip;
    assert_eq!(pod["status"]["podIP"], ip.as_str());

    let id = container_id(&pod, "app").context("the container's id")?;
    let status = ground.containerd.block_on(client.container_status(id))?;
    let labels = [
        ("io.kubernetes.container.name", "app"),
        ("io.kubernetes.pod.name", &*name),
        ("io.kubernetes.pod.namespace", "default"),
        ("io.kubernetes.pod.uid", &*uid),
    ];
    assert_eq!(status.labels, owned(&labels));
    let annotations = status.annotations;
    for (key, value) in [
        ("io.kubernetes.container.restartCount", "0"),
        (
            "io.kubernetes.container.terminationMessagePath",
            "/dev/termination-log",
        ),
        ("io.kubernetes.container.terminationMessagePolicy", "File"),
        ("io.kubernetes.pod.terminationGracePeriod", "1"),
    ] {
        assert_eq!(
            annotations.get(key).map(String::as_str),
            Some(value),
            "{key}"
        );
    }
    assert!(annotations.contains_key("io.kubernetes.container.hash"));

    its_log_is_where_a_kubelet_has_it(&ground, (&name, &uid), (id, &status.log_path))
}

fn its_log_is_where_a_kubelet_has_it(
    ground: &Ground,
    (name, uid): (&str, &str),
    (id, log_path): (&str, &str),
) -> Result<()> {
    let log_directory = &ground.bulkhead.paths().log;
    let directory = log_directory.join(format!("pods/default_{name}_{uid}"));
    assert_eq!(Path::new(log_path), directory.join("app/0.log"));
    // The runtime copies it from the container.
    let line = wait_for("a line in the log", TIMEOUT, || {
        let log = fs::read_to_string(log_path).map_err(|error| error.to_string())?;
        log.lines().next().map(str::to_owned).ok_or(log)
    })?;
    let words: Vec<&str> = line.splitn(4, ' ').collect();
    assert_eq!(words[1..], ["stdout", "F", "hello from the log"], "{line}");
    let link = log_directory.join(format!("containers/{name}_default_app-{id}.log"));
    let target = wait_for("a link to the log", TIMEOUT, || {
        fs::canonicalize(&link).map_err(|error| error.to_string())
    })?;
    assert_eq!(target, fs::canonicalize(log_path)?);
    Ok(())
}

#[test]
fn the_command_line_shows_a_pod_that_runs() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    put_web(&ground)?;
    let pod = ground.ready("web")?;
    let (name, ip) = (ground.full_name("web"), text(&pod["status"]["podIP"]));

    let table = ground.printed(&["pods"])?;
    let row = row_of(&table, &name).with_context(|| table.clone())?;
    assert_eq!(row[..5], ["default", &*name, "1/1", "Running", "0"]);
    let wide = ground.printed(&["pods", "-o", "wide"])?;
    let row = row_of(&wide, &name).with_context(|| wide.clone())?;
    assert_eq!(row[6..], [&*ip, ground.bulkhead.node_name()]);
    assert_eq!(
        ground.printed(&["pods", "-o", "name"])?,
        format!("default/{name}\n")
    );
    let as_json = ground.bulkhead.command_line_json(&["pods", "web"])?;
    assert_eq!(as_json["status"]["podIP"], ip.as_str());

    for reason in ["Pulled", "Created", "Started"] {
        ground.event("web", reason, "")?;
    }
    let described = ground.printed(&["describe", "web"])?;
    for shown in [
        &*name,
        &*ip,
        "app=web",
        "example.org/note=kept",
        "localhost/testapp:test",
        "Running",
        "BestEffort",
        "Started",
    ] {
        assert!(described.contains(shown), "{shown} in {described}");
    }
    ground.logged(&["web"], "hello from the log\n")?;
    let tail = ground.printed(&["logs", "--tail", "1", "web", "-c", "app"])?;
    assert_eq!(tail.lines().count(), 1, "{tail}");

    let events = ground.printed(&["events", "web"])?;
    for shown in ["Pulled", "Created", "Started", &*format!("default/{name}")] {
        assert!(events.contains(shown), "{shown} in {events}");
    }
    let absent = ground.bulkhead.command_line(&["describe", "nobody"])?;
    assert!(!absent.status.success());
    assert!(absent.stderr.contains("nobody"), "{}", absent.stderr);
    Ok(())
}

#[test]
fn the_command_line_shows_what_a_pod_uses() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    put_web(&ground)?;
    ground.ready("web")?;
    let name = format!("default/{}", ground.full_name("web"));

    let usage = ground.printed(&["top"])?;
    let row = |name: &str| -> Option<Vec<String>> {
        let line = usage
            .lines()
            .find(|line| line.split_whitespace().next() == Some(name))?;
        // Columns are three blanks apart, a size and its unit one.
        let cells = line
            .split("   ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty());
        Some(cells.map(str::to_owned).collect())
    };
    let pod = row(&name).with_context(|| usage.clone())?;
    assert_eq!(pod.len(), 6, "{usage}");
    assert!(pod[1].ends_with('m') && pod[2].ends_with("iB"), "{usage}");
    assert!(pod[4..].iter().all(|cell| cell.ends_with('B')), "{usage}");
    Ok(())
}

#[test]
fn a_deleted_pod_has_its_grace_and_no_more() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    // Name, grace in the manifest, what the program does, seconds that it has.
    let pods = [
        ("polite", 40, &["--term-delay-ms", "300"][..], 0),
        ("stubborn", 4, &["--on-term", "ignore"][..], 4),
        ("short", 1, &["--on-term", "ignore"][..], 1),
        // Nobody gets less than a second.
        ("none", 0, &["--on-term", "ignore"][..], 1),
    ];
    for (name, grace, words, _) in pods {
        let mut spec = ground.app(name, words);
        spec["terminationGracePeriodSeconds"] = json!(grace);
        ground.apply(name, spec)?;
    }
    let mut running = BTreeMap::new();
    for (name, ..) in pods {
        let pod = ground.ready(name)?;
        let id = container_id(&pod, "app").context("no container")?;
        running.insert(name, id.to_owned());
    }
    let asked = unix_time()?;
    for (name, ..) in pods {
        ground.take_away(name)?;
    }
    let mut ended: BTreeMap<&str, Duration> = BTreeMap::new();
    wait_for("all pods to end", TIMEOUT, || {
        for (name, id) in &running {
            if !ended.contains_key(name)
                && let Some(at) = end_of(&ground, id).map_err(|error| format!("{error:#}"))?
            {
                ended.insert(name, at);
            }
        }
        let all = ended.len() == running.len();
        all.then_some(()).ok_or(format!("{ended:?}"))
    })
    .with_context(|| ground.bulkhead.log_ends())?;
    for (name, _, _, seconds) in pods {
        assert_eq!(ground.noted(name, "SIGTERM")?, 1, "{name} was asked once");
        let took = ended[name].saturating_sub(asked);
        let due = Duration::from_secs(seconds);
        assert!(took >= due, "{name} had {took:?} of {due:?}");
        assert!(took < due + LATE, "{name} had {took:?}, not {due:?}");
        ground.gone(name)?;
    }
    assert_eq!(ground.noted("polite", "exit 0")?, 1);
    assert_eq!(ground.noted("stubborn", "exit 0")?, 0);
    ground.event("stubborn", "Killing", "app")?;
    Ok(())
}

#[test]
fn nothing_is_left_of_a_deleted_pod_and_it_can_come_back() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let mut pod = ground.app("web", &["--term-delay-ms", "1000"]);
    pod["terminationGracePeriodSeconds"] = json!(20);
    let volumes = pod["volumes"].as_array_mut().context("volumes")?;
    volumes.push(json!({"name": "scratch", "emptyDir": {}}));
    ground.apply("web", pod.clone())?;
    let first = ground.ready("web")?;
    let uid = text(&first["metadata"]["uid"]);
    assert!(
        traces(&ground, "web", &uid)?.len() >= 5,
        "the search finds what is there"
    );

    ground.take_away("web")?;
    ground.gone("web")?;
    // Logs and dead containers go at the next round of garbage collection.
    ground.collect_garbage_soon()?;
    wait_for("all traces to be gone", 2 * TIMEOUT, || {
        let left = traces(&ground, "web", &uid).map_err(|error| format!("{error:#}"))?;
        left.is_empty().then_some(()).ok_or(format!("{left:?}"))
    })
    .with_context(|| ground.bulkhead.log_ends())?;

    ground.apply("web", pod.clone())?;
    let second = ground.ready("web")?;
    assert_eq!(second["metadata"]["uid"], uid.as_str(), "the same content");
    assert_eq!(
        container_status(&second, "app").context("no status")?["restartCount"],
        0
    );
    ground.note("web", "started", 2)?;

    // Put back while the old one is still ending.
    ground.take_away("web")?;
    ground.note("web", "SIGTERM", 2)?;
    ground.apply("web", pod)?;
    ground.note("web", "started", 3)?;
    let third = ground.ready("web")?;
    assert_eq!(third["metadata"]["uid"], uid.as_str());
    let life = ["web started", "web SIGTERM", "web exit 0"];
    let lives = [&life[..], &life[..], &life[..1]].concat();
    assert_eq!(story(&ground)?, lives);
    assert_eq!(ground.running("web")?, 1);
    Ok(())
}

fn put_web(ground: &Ground) -> Result<()> {
    let mut spec = spec(
        ground,
        &[container(
            "app",
            "web",
            &["--http", "8080", "--print", "hello from the log"],
        )],
    );
    spec["terminationGracePeriodSeconds"] = json!(1);
    let manifest = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web",
            "labels": {"app": "web"},
            "annotations": {"example.org/note": "kept"},
        },
        "spec": spec,
    });
    ground
        .bulkhead
        .write_manifest("web.json", &manifest.to_string())
}

/// Names and events of the journal, in order.
fn story(ground: &Ground) -> Result<Vec<String>> {
    let entries = ground.journal()?.into_iter();
    Ok(entries
        .map(|entry| format!("{} {}", entry.name, entry.event))
        .collect())
}

/// When a container ended, as Unix time; nothing while it runs.
fn end_of(ground: &Ground, id: &str) -> Result<Option<Duration>> {
    let client = ground.containerd.client();
    let status = ground.containerd.block_on(client.container_status(id));
    match status {
        Ok(status) if status.finished_at > 0 => Ok(Some(Duration::from_nanos(u64::try_from(
            status.finished_at,
        )?))),
        Ok(_) => Ok(None),
        // Removed between two looks.
        Err(error) if error.is_not_found() => unix_time().map(Some),
        Err(error) => Err(error.into()),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "compared with times of real containers"
)]
fn unix_time() -> Result<Duration> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?)
}

/// Everything on the node and in the runtime that belongs to a pod.
fn traces(ground: &Ground, name: &str, uid: &str) -> Result<Vec<String>> {
    let paths = ground.bulkhead.paths();
    let full_name = ground.full_name(name);
    let mut found: Vec<String> = [
        paths.root.join("pods").join(uid),
        paths.log.join(format!("pods/default_{full_name}_{uid}")),
    ]
    .into_iter()
    .chain(
        ["", "besteffort/", "burstable/"]
            .map(|class| format!("{}/kubepods/{class}pod{uid}", ground.node().name()))
            .iter()
            .map(|place| cgroup::existing(place))
            .collect::<Result<Vec<_>>>()?
            .concat(),
    )
    .filter(|path| path.exists())
    .map(|path| path.display().to_string())
    .collect();
    for entry in fs::read_dir(paths.log.join("containers"))? {
        let link = entry?.file_name().to_string_lossy().into_owned();
        if link.starts_with(&full_name) {
            found.push(link);
        }
    }
    let containers = ground.containers(name)?.into_iter();
    found.extend(containers.map(|container| format!("container {}", container.id)));
    let sandboxes = ground.sandboxes(name)?.into_iter();
    found.extend(sandboxes.map(|sandbox| format!("sandbox {}", sandbox.id)));
    Ok(found)
}

/// The words of the line that begins with a namespace and this name.
fn row_of<'a>(table: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let mut rows = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.find(|row| row.get(1) == Some(&name))
}

fn owned(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
