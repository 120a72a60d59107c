//! containerd dies or is restarted under running pods, and holds containers
//! that are not ours: what runs goes on running, what was asked for happens
//! afterwards, and nothing foreign is touched.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use cri::{RuntimeChanges as _, RuntimeReads as _, v1};
use e2e::Ground;
use e2e::cast::{self, Cast, web};
use e2e::ground::TIMEOUT;
use e2e::witness::{Look, Witness};
use serde_json::{Value, json};
use test_support::observe::{condition, container_id, container_status};
use test_support::wait::holds_for;
use test_support::{images, wait_for};
use topology::Process;

/// Grace of the pod that insists on it.
const GRACE: Duration = Duration::from_secs(6);

/// containerd is down for up to 20 s of it.
const LATE: Duration = Duration::from_secs(40);

/// Longer than every probe of the pods here needs to fail, and several rounds
/// of housekeeping.
const A_WHILE: Duration = Duration::from_secs(6);

#[test]
fn a_killed_containerd_delays_and_does_no_harm() -> Result<()> {
    without_containerd(|ground| ground.containerd.kill())
}

fn without_containerd(take_down: impl FnOnce(&mut Ground) -> Result<()>) -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let cast = Cast::enter(&ground)?;
    cast::stubborn(&ground, "old", GRACE)?;
    ground.apply("polite", web(&ground, "polite"))?;
    ground.ready("old")?;
    ground.ready("polite")?;
    let witness = Witness::call(&ground.bulkhead, "web")?;

    // It goes down while one pod starts and one stops.
    ground.apply("new", web(&ground, "new"))?;
    wait_for("the new pod's sandbox", TIMEOUT, || {
        let sandboxes = ground.sandboxes("new");
        let sandboxes = sandboxes.map_err(|error| format!("{error:#}"))?;
        (!sandboxes.is_empty())
            .then_some(())
            .ok_or("none".to_owned())
    })?;
    cast::dismiss(&ground, "old")?;
    take_down(&mut ground)?;
    ground.apply("unread", web(&ground, "unread"))?;
    ground.take_away("polite")?;
    let says_so = "the container runtime does not answer";
    wait_for("the status to say that it is down", TIMEOUT, || {
        let table = ground.printed(&["status"]);
        let table = table.map_err(|error| format!("{error:#}"))?;
        table.contains(says_so).then_some(()).ok_or(table)
    })?;
    assert!(ground.bulkhead.log(Process::SyncLoop).contains(says_so));
    holds_for(A_WHILE, || {
        let noted = ground.noted("shell", "SIGTERM")? + ground.noted("web", "SIGTERM")?;
        ensure!(noted == 0, "a pod that runs was asked to end");
        Ok(())
    })?;
    ground.containerd.start_again()?;

    for name in ["new", "unread"] {
        ground
            .ready(name)
            .with_context(|| ground.bulkhead.log_ends())?;
        assert_eq!(ground.noted(name, "started")?, 1, "{name}");
    }
    ground.gone("polite")?;
    assert_eq!(ground.noted("polite", "exit 0")?, 1);
    cast::had_its_grace(&ground, "old", GRACE, LATE)?;
    wait_for("the status to say that it is back", TIMEOUT, || {
        let table = ground.printed(&["status"]);
        let table = table.map_err(|error| format!("{error:#}"))?;
        (!table.contains(says_so)).then_some(()).ok_or(table)
    })?;
    // No part had to die for it.
    for row in ground.bulkhead.processes()? {
        assert_eq!(row.restarts_total, 0, "{}: {:?}", row.name, row.last_ending);
    }
    cast.is_unharmed(&ground, &witness.hear()?)
}

#[test]
fn containers_of_others_are_never_touched() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let root = ground.node().cgroup_root();
    let cgroup = format!("{root}/foreign");
    ground.containerd.ctr(&[
        "run",
        "--detach",
        "--null-io",
        "--cgroup",
        &cgroup,
        images::BUSYBOX,
        "foreign",
        "sleep",
        "3600",
    ])?;
    let partial = labels(&[("io.kubernetes.pod.name", "somebody")]);
    for (name, labels) in [("unlabelled", BTreeMap::new()), ("partly", partial)] {
        let uid = format!("uid-{name}");
        let mut config = sandbox_config(&ground, name, &uid, labels, BTreeMap::new());
        // Below the pods' cgroup everything is ours.
        config.linux.get_or_insert_default().cgroup_parent = format!("{cgroup}-{name}");
        let sandbox = run_sandbox(&ground, &config)?;
        for (name, words) in [("runs", &[][..]), ("ended", &["--exit-after-ms", "1"])] {
            run_container(
                &ground,
                &sandbox,
                config.clone(),
                plain_container(name, words),
            )?;
        }
    }
    let before = wait_for("the containers to have ended", TIMEOUT, || {
        let all = everything(&ground).map_err(|error| format!("{error:#}"))?;
        let ended = all.values().filter(|state| **state == Some(false)).count();
        (ended == 2)
            .then_some(all.clone())
            .ok_or(format!("{all:?}"))
    })?;
    assert_eq!(before.len(), 7, "{before:?}");

    ground.apply("guest", web(&ground, "guest"))?;
    ground.ready("guest")?;
    ground.remove("guest")?;
    ground.bulkhead.kill_all()?;
    ground.bulkhead.start_again()?;
    ground.containerd.stop()?;
    ground.containerd.start_again()?;
    ground.apply("guest", web(&ground, "guest"))?;
    ground.ready("guest")?;
    ground.remove("guest")?;
    holds_for(A_WHILE, || {
        let now = everything(&ground)?;
        for (id, state) in &before {
            ensure!(now.get(id) == Some(state), "{id} was {state:?}: {now:?}");
        }
        Ok(())
    })?;
    assert_eq!(ground.bulkhead.pods()?, [Value::Null; 0]);
    Ok(())
}

#[test]
fn a_pod_of_a_kubelet_is_adopted_as_it_runs() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    ground.apply("web", web(&ground, "web"))?;
    let uid = ground.ready("web")?["metadata"]["uid"].clone();
    let uid = uid.as_str().context("a UID")?;
    ground.remove("web")?;
    ground.bulkhead.stop()?;
    // What is left of it would be collected some day.
    for sandbox in ground.sandboxes("web")? {
        let client = ground.containerd.client();
        let call = client.remove_pod_sandbox(&sandbox.id);
        ground.containerd.block_on(call)?;
    }

    let (id, sandbox) = as_a_kubelet(&ground, uid)?;
    ground.note("kubelet", "started", 1)?;
    ground.apply("web", web(&ground, "web"))?;
    ground.bulkhead.start_again()?;
    let adopted = ground
        .ready("web")
        .with_context(|| ground.bulkhead.log_ends())?;
    assert_eq!(adopted["metadata"]["uid"], uid);
    let witness = Witness::call(&ground.bulkhead, "web")?;
    let is_the_same = |ground: &Ground, restarts: u64| -> Result<()> {
        let pod = ground.pod("web")?;
        let status = container_status(&pod, "app").context("no status")?;
        ensure!(container_id(&pod, "app") == Some(&*id), "{status}");
        ensure!(status["restartCount"] == restarts, "{status}");
        let sandboxes = ground.sandboxes("web")?;
        ensure!(
            sandboxes.len() == 1 && sandboxes[0].id == sandbox,
            "{sandboxes:?}"
        );
        ensure!(
            ground.noted("kubelet", "SIGTERM")? == 0,
            "it was asked to end"
        );
        Ok(())
    };
    holds_for(A_WHILE, || is_the_same(&ground, 0))?;
    ground.bulkhead.kill_all()?;
    ground.bulkhead.start_again()?;
    holds_for(A_WHILE, || is_the_same(&ground, 0))?;
    let testimony = witness.hear()?;
    testimony.never_changed(&adopted)?;
    assert_eq!(Look::of(&ground.pod("web")?), Look::of(&adopted));

    // It is ours now: restarted when it ends, ended when it is not wanted.
    let pid = ground
        .containerd
        .block_on(ground.containerd.client().stop_container(&id, GRACE));
    pid.context("cannot stop the container")?;
    ground.note("web", "started", 1 + 1)?;
    let restarted = "to be ready again, as the same pod";
    ground
        .bulkhead
        .wait_for_pod("web", restarted, TIMEOUT, |pod| {
            let status = container_status(pod, "app").ok_or("no status")?;
            let count = &status["restartCount"];
            match (count.as_u64(), condition(pod, "Ready")) {
                (Some(1), Some(true)) => Ok(()),
                other => Err(format!("restarts and readiness are {other:?}")),
            }
        })?;
    assert_eq!(ground.sandboxes("web")?[0].id, sandbox, "the sandbox stays");
    ground.remove("web")
}

/// Makes the pod `web` as a kubelet of another version would have: its labels
/// and annotations, and a hash of the container that is not ours. Returns the
/// ids of container and sandbox.
fn as_a_kubelet(ground: &Ground, uid: &str) -> Result<(String, String)> {
    let name = ground.full_name("web");
    let of_pod = [
        ("io.kubernetes.pod.name", &*name),
        ("io.kubernetes.pod.namespace", "default"),
        ("io.kubernetes.pod.uid", uid),
    ];
    let annotations = labels(&[
        ("kubernetes.io/config.hash", uid),
        (
            "kubernetes.io/config.seen",
            "2026-11-20T09:32:30.356901143Z",
        ),
        ("kubernetes.io/config.source", "file"),
    ]);
    let sandbox_config = sandbox_config(ground, &name, uid, labels(&of_pod), annotations);
    let sandbox = run_sandbox(ground, &sandbox_config)?;
    let mut of_container = of_pod.to_vec();
    of_container.push(("io.kubernetes.container.name", "app"));
    let shared = ground
        .bulkhead
        .paths()
        .shared
        .to_string_lossy()
        .into_owned();
    let config = v1::ContainerConfig {
        labels: labels(&of_container),
        annotations: labels(&[
            ("io.kubernetes.container.hash", "194f884f"),
            ("io.kubernetes.container.restartCount", "0"),
            (
                "io.kubernetes.container.terminationMessagePath",
                "/dev/termination-log",
            ),
            ("io.kubernetes.container.terminationMessagePolicy", "File"),
            ("io.kubernetes.pod.terminationGracePeriod", "20"),
        ]),
        mounts: vec![v1::Mount {
            container_path: "/journals".to_owned(),
            host_path: shared,
            ..v1::Mount::default()
        }],
        log_path: "app/0.log".to_owned(),
        ..plain_container(
            "app",
            &[
                "--http",
                "8080",
                "--journal",
                "/journals/journal",
                "--name",
                "kubelet",
            ],
        )
    };
    let logs = std::path::Path::new(&sandbox_config.log_directory).join("app");
    std::fs::create_dir_all(logs)?;
    let id = run_container(ground, &sandbox, sandbox_config, config)?;
    Ok((id, sandbox))
}

/// The ids of all sandboxes and containers that the runtime knows, with whether
/// they run; nothing for those of which only the name is known.
fn everything(ground: &Ground) -> Result<BTreeMap<String, Option<bool>>> {
    let client = ground.containerd.client();
    let (sandboxes, containers) = ground.containerd.block_on(async {
        let sandboxes = client.list_pod_sandboxes(v1::PodSandboxFilter::default());
        let containers = client.list_containers(v1::ContainerFilter::default());
        anyhow::Ok((sandboxes.await?, containers.await?))
    })?;
    let sandboxes = sandboxes.into_iter().map(|it| {
        let runs = it.state() == v1::PodSandboxState::SandboxReady;
        (it.id, Some(runs))
    });
    let containers = containers.into_iter().map(|it| {
        let runs = it.state() == v1::ContainerState::ContainerRunning;
        (it.id, Some(runs))
    });
    let mut all: BTreeMap<String, Option<bool>> = sandboxes.chain(containers).collect();
    let tasks = ground.containerd.ctr(&["tasks", "list"])?;
    let foreign = tasks.lines().find(|line| line.starts_with("foreign "));
    all.extend(foreign.map(|line| ("foreign".to_owned(), Some(line.contains("RUNNING")))));
    Ok(all)
}

fn sandbox_config(
    ground: &Ground,
    name: &str,
    uid: &str,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
) -> v1::PodSandboxConfig {
    let root = ground.node().cgroup_root();
    let logs = &ground.bulkhead.paths().log;
    v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: name.to_owned(),
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            attempt: 0,
        }),
        hostname: name.to_owned(),
        log_directory: format!("{}/pods/default_{name}_{uid}", logs.display()),
        labels,
        annotations,
        linux: Some(v1::LinuxPodSandboxConfig {
            cgroup_parent: format!("{root}/kubepods/besteffort/pod{uid}"),
            ..v1::LinuxPodSandboxConfig::default()
        }),
        ..v1::PodSandboxConfig::default()
    }
}

fn run_sandbox(ground: &Ground, config: &v1::PodSandboxConfig) -> Result<String> {
    let client = ground.containerd.client();
    let call = client.run_pod_sandbox(config.clone(), "");
    Ok(ground.containerd.block_on(call)?)
}

/// The test program without logs, labels and mounts.
fn plain_container(name: &str, words: &[&str]) -> v1::ContainerConfig {
    v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: name.to_owned(),
            attempt: 0,
        }),
        image: Some(v1::ImageSpec {
            image: images::TESTAPP.to_owned(),
            ..v1::ImageSpec::default()
        }),
        args: words.iter().map(|&word| word.to_owned()).collect(),
        ..v1::ContainerConfig::default()
    }
}

fn run_container(
    ground: &Ground,
    sandbox: &str,
    sandbox_config: v1::PodSandboxConfig,
    config: v1::ContainerConfig,
) -> Result<String> {
    let client = ground.containerd.client();
    ground.containerd.block_on(async {
        let id = client
            .create_container(sandbox, config, sandbox_config)
            .await?;
        client.start_container(&id).await?;
        Ok(id)
    })
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
