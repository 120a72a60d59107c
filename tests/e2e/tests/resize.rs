//! Pods whose manifests pin their UID, and change the CPU and memory of containers that
//! run. What containers have is read from the kernel, on either version of cgroups.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use e2e::ground::{TIMEOUT, spec};
use e2e::workload::container;
use serde_json::{Value, json};
use test_support::observe::{container_id, container_status};
use test_support::{cgroup, wait_for};
use topology::Process;

const UID: &str = "5b0f9d61-5b1e-4b52-9f0e-7f1f3f6d2a10";

/// Thousandths of a core, and MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits(u64, u64);

fn resources(Limits(cpu, memory): Limits) -> Value {
    let amounts = json!({"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")});
    json!({"requests": amounts, "limits": amounts})
}

/// A pod with a container `app` that is resized in place, and one `db` that is restarted
/// for another share of the CPU.
fn apply(ground: &Ground, app: Limits, db: Limits, words: &[&str]) -> Result<()> {
    let mut containers = [container("app", "app", words), container("db", "db", &[])];
    containers[0]["resources"] = resources(app);
    containers[1]["resources"] = resources(db);
    containers[1]["resizePolicy"] =
        json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
    let mut spec = spec(ground, &containers);
    spec["terminationGracePeriodSeconds"] = json!(1);
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "sized", "uid": UID },
        "spec": spec,
    });
    ground
        .bulkhead
        .write_manifest("sized.json", &manifest.to_string())
}

/// The first number of that file of a cgroup which there is: one name is that of version
/// 2, the other of version 1.
fn number(cgroup: &str, files: [&str; 2]) -> Result<u64> {
    let directories = cgroup::existing(cgroup)?;
    let paths = directories
        .iter()
        .flat_map(|at| files.map(|file| at.join(file)));
    let path = paths.into_iter().find(|path| path.exists());
    let path = path.with_context(|| format!("{cgroup} has none of {files:?}"))?;
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let first = text.split_whitespace().next().context("empty")?;
    first.parse().with_context(|| text.clone())
}

/// What the kernel says of a cgroup.
fn of_cgroup(cgroup: &str) -> Result<Limits> {
    // Microseconds in 100 ms.
    let quota = number(cgroup, ["cpu.max", "cpu.cfs_quota_us"])?;
    let bytes = number(cgroup, ["memory.max", "memory.limit_in_bytes"])?;
    Ok(Limits(quota / 100, bytes >> 20))
}

fn pods_cgroup(ground: &Ground) -> String {
    format!("{}/kubepods/pod{UID}", ground.node().name())
}

fn container_cgroup(ground: &Ground, container: &str) -> Result<String> {
    let pod = ground.pod("sized")?;
    let id = container_id(&pod, container).context("no container")?;
    Ok(format!("{}/{id}", pods_cgroup(ground)))
}

fn limits(ground: &Ground, container: &str) -> Result<Limits> {
    of_cgroup(&container_cgroup(ground, container)?)
}

/// Waits until a container uses so much memory: one that has started has not yet
/// allocated what it is told to.
fn uses_memory(ground: &Ground, container: &str, mib: u64) -> Result<()> {
    let used = || {
        let cgroup = container_cgroup(ground, container)?;
        number(&cgroup, ["memory.current", "memory.usage_in_bytes"])
    };
    let what = format!("{container} to use {mib} MiB");
    Ok(wait_for(&what, TIMEOUT, || match used() {
        Ok(bytes) if bytes >= mib << 20 => Ok(()),
        other => Err(format!("{other:?}")),
    })?)
}

/// Waits until both containers and the pod have these limits.
fn have(ground: &Ground, app: Limits, db: Limits) -> Result<()> {
    let found = || -> Result<[Limits; 3]> {
        let of_pod = of_cgroup(&pods_cgroup(ground))?;
        Ok([limits(ground, "app")?, limits(ground, "db")?, of_pod])
    };
    let wanted = [app, db, Limits(app.0 + db.0, app.1 + db.1)];
    let have = wait_for(&format!("{wanted:?}"), TIMEOUT, || match found() {
        Ok(found) if found == wanted => Ok(()),
        Ok(found) => Err(format!("{found:?}")),
        // One that is being started again.
        Err(error) => Err(format!("{error:#}")),
    });
    have.with_context(|| ground.bulkhead.log_ends())
}

/// The ids of the containers, and how often they were started again.
fn instances(ground: &Ground) -> Result<[(String, u64); 2]> {
    let pod = ground.ready("sized")?;
    let of = |name: &str| -> Result<(String, u64)> {
        let id = container_id(&pod, name).context("no container")?;
        let status = container_status(&pod, name).context("no status")?;
        let restarts = status["restartCount"].as_u64().context("no count")?;
        Ok((id.to_owned(), restarts))
    };
    Ok([of("app")?, of("db")?])
}

#[test]
fn containers_of_a_pinned_pod_get_what_its_manifest_says_while_they_run() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let (app, db) = (Limits(100, 64), Limits(100, 64));
    apply(&ground, app, db, &[])?;
    let first = instances(&ground)?;
    have(&ground, app, db)?;

    // In place, more and less.
    for app in [Limits(300, 128), Limits(200, 96)] {
        apply(&ground, app, db, &[])?;
        have(&ground, app, db)?;
        assert_eq!(instances(&ground)?, first);
    }

    // While the pool is being killed, and while nobody watches.
    for app in [Limits(150, 72), Limits(250, 112), Limits(50, 60)] {
        apply(&ground, app, db, &[])?;
        ground.bulkhead.kill(Process::PodWorkerPool)?;
        have(&ground, app, db)?;
    }
    ground.bulkhead.kill_all()?;
    let (app, db) = (Limits(400, 160), Limits(100, 80));
    apply(&ground, app, db, &[])?;
    ground.bulkhead.start_again()?;
    have(&ground, app, db)?;
    assert_eq!(instances(&ground)?, first);

    // Only the container is restarted whose policy says so.
    let db = Limits(200, 80);
    apply(&ground, app, db, &[])?;
    have(&ground, app, db)?;
    let message = ground.event("sized", "Killing", "resize")?;
    assert_eq!(message, "Container db resize requires restart");
    let [app_now, (db_now, restarts)] = instances(&ground)?;
    assert_eq!(app_now, first[0]);
    ensure!(db_now != first[1].0, "db was not started again");
    assert_eq!(restarts, 1);
    assert_eq!(ground.noted("app", "started")?, 1);
    assert_eq!(ground.noted("db", "started")?, 2);
    assert_eq!(ground.sandboxes("sized")?.len(), 1);
    Ok(())
}

#[test]
fn a_container_keeps_the_memory_that_it_uses() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let words = ["--allocate-mib", "48"];
    let (app, db) = (Limits(100, 96), Limits(100, 64));
    apply(&ground, app, db, &words)?;
    let first = instances(&ground)?;
    have(&ground, app, db)?;
    uses_memory(&ground, "app", 48)?;
    let smaller = Limits(200, 32);
    apply(&ground, smaller, db, &words)?;
    let told = ground
        .bulkhead
        .wait_for_pod("sized", "to tell why", TIMEOUT, |pod| {
            let conditions = pod["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let told = conditions.find(|it| it["type"] == "PodResizeInProgress");
            let message = told.and_then(|it| it["message"].as_str());
            let is_told = message
                .is_some_and(|it| it.contains("memory limit (33554432) below current usage"));
            is_told.then_some(()).ok_or(pod["status"].to_string())
        });
    told.with_context(|| ground.bulkhead.log_ends())?;
    assert_eq!(limits(&ground, "app")?, app);
    assert_eq!(instances(&ground)?, first);
    let larger = Limits(200, 112);
    apply(&ground, larger, db, &words)?;
    have(&ground, larger, db)?;
    assert_eq!(instances(&ground)?, first);
    ground.event("sized", "ResizeCompleted", "112Mi")?;
    let done = ground
        .bulkhead
        .wait_for_pod("sized", "to be as wanted", TIMEOUT, |pod| {
            let status = container_status(pod, "app").ok_or("no status")?;
            let conditions = pod["status"]["conditions"].to_string();
            let is_done = status["resources"] == resources(larger)
                && !conditions.contains("PodResizeInProgress");
            is_done.then_some(()).ok_or(pod["status"].to_string())
        });
    Ok(done?)
}
