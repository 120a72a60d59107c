//! Pods that have to go because the node is short of something, or because they have more
//! on its disk than they may; and pods that are kept out meanwhile.

use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use serde_json::{Value, json};
use test_support::images::BUSYBOX;
use test_support::observe::condition;
use test_support::{BulkheadOptions, wait_for};
use topology::Process;

/// A look each 10 s, the grace, and a machine that does other things too.
const EVICTION: Duration = Duration::from_secs(90);

/// A pod that writes so many KiB into its volume, and then does nothing.
fn writing(kibibytes: u32) -> Value {
    let script = format!(
        "trap 'exit 0' TERM; head -c {}  /dev/zero > /data/file; \
         while true; do sleep 1 & wait $!; done",
        u64::from(kibibytes) << 10
    );
    json!({
        "restartPolicy": "Always",
        "containers": [{
            "name": "app", "image": BUSYBOX, "command": ["sh", "-c", script],
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
        }],
        "volumes": [{ "name": "data", "emptyDir": {} }],
    })
}

/// The pod once it was evicted.
fn evicted(ground: &Ground, name: &str) -> Result<Value> {
    let pod = ground
        .bulkhead
        .wait_for_pod(name, "to be evicted", EVICTION, |pod| {
            match pod["status"]["reason"] == "Evicted" {
                true => Ok(pod.clone()),
                false => Err(pod["status"].to_string()),
            }
        });
    let pod = pod.with_context(|| ground.bulkhead.log_ends())?;
    ensure!(pod["status"]["phase"] == "Failed", "{}", pod["status"]);
    Ok(pod)
}

fn message(pod: &Value) -> &str {
    pod["status"]["message"].as_str().unwrap_or_default()
}

/// Fails if a container of the pod ended or was started again.
fn runs_untouched(ground: &Ground, name: &str) -> Result<()> {
    let pod = ground.pod(name)?;
    ensure!(pod["status"]["phase"] == "Running", "{}", pod["status"]);
    let status = &pod["status"]["containerStatuses"][0];
    ensure!(status["restartCount"] == 0, "{status}");
    ensure!(ground.running(name)? == 1, "{name} does not run");
    Ok(())
}

#[test]
fn pods_over_a_limit_of_the_nodes_disk_are_evicted_and_others_run_on() -> Result<()> {
    let mut ground = Ground::start(json!({ "volumeStatsAggPeriod": "1s" }))?;
    let mut over = writing(2048);
    over["volumes"][0]["emptyDir"]["sizeLimit"] = json!("1Mi");
    let mut within = writing(512);
    within["volumes"][0]["emptyDir"]["sizeLimit"] = json!("1Mi");
    let limited = |kibibytes| {
        let mut spec = writing(kibibytes);
        spec["containers"][0]["resources"] = json!({ "limits": { "ephemeral-storage": "3Mi" } });
        spec
    };
    // Its own layer counts as well.
    let mut layer = limited(1024);
    let script = "head -c 4000000 /dev/zero > /large; trap 'exit 0' TERM; \
                  while true; do sleep 1 & wait $!; done";
    layer["containers"][0]["command"] = json!(["sh", "-c", script]);
    for (name, spec) in [
        ("over", over),
        ("within", within),
        ("pod-over", limited(4096)),
        ("pod-within", limited(1024)),
        ("layer-over", layer),
    ] {
        ground.apply(name, spec)?;
    }
    for name in ["within", "pod-within"] {
        ground.ready(name)?;
    }
    assert_eq!(
        message(&evicted(&ground, "over")?),
        "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". "
    );
    for name in ["pod-over", "layer-over"] {
        assert_eq!(
            message(&evicted(&ground, name)?),
            "Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. "
        );
    }
    ground.event("over", "Evicted", "Usage of EmptyDir volume")?;
    // Nothing of it comes back, whatever is killed.
    ground.bulkhead.kill(Process::PodWorkerPool)?;
    ground.bulkhead.kill(Process::SyncLoop)?;
    ground.bulkhead.wait_until_ready()?;
    ground.apply("later", writing(1))?;
    ground.ready("later")?;
    for name in ["over", "pod-over", "layer-over"] {
        assert_eq!(ground.running(name)?, 0, "{name}");
        evicted(&ground, name)?;
    }
    for name in ["within", "pod-within"] {
        runs_untouched(&ground, name)?;
    }
    Ok(())
}

/// The files of the node that every container may write to, whatever its security context
/// says: that for its termination message, and the pod's hosts file.
#[test]
fn a_termination_message_or_a_hosts_file_that_fills_the_disk_has_its_pod_evicted() -> Result<()> {
    let ground = Ground::start(json!({ "volumeStatsAggPeriod": "1s" }))?;
    let container = |name: &str, script: &str| {
        let then = "trap 'exit 0' TERM; while true; do sleep 1 & wait $!; done";
        json!({
            "name": name, "image": BUSYBOX, "command": ["sh", "-c", format!("{script}; {then}")],
            "securityContext": { "readOnlyRootFilesystem": true },
            "resources": { "limits": { "ephemeral-storage": "5Mi" } },
            "volumeMounts": [{ "name": "marks", "mountPath": "/marks" }],
        })
    };
    let marks = json!([{ "name": "marks", "emptyDir": {} }]);
    let spec = |containers: Value| json!({ "containers": containers, "volumes": marks });
    let over = container("app", "head -c 12m /dev/zero > /dev/termination-log");
    let within = container("app", "head -c 2m /dev/zero > /dev/termination-log");
    // The other container starts again once the file says something else: so the pool has
    // written it anew before this one goes on.
    let hosts = container(
        "app",
        "echo mine >> /etc/hosts; touch /marks/changed; \
         until [ -e /marks/second ]; do sleep 0.2; done; head -c 12m /dev/zero >> /etc/hosts",
    );
    let mut other = container(
        "other",
        "until [ -e /marks/changed ]; do sleep 0.2; done; \
         [ -e /marks/first ] && touch /marks/second || { touch /marks/first; exit 1; }",
    );
    other["resources"] = json!({});
    for (name, containers) in [
        ("message", json!([over])),
        ("within", json!([within])),
        ("hosts", json!([hosts, other])),
    ] {
        ground.apply(name, spec(containers))?;
    }
    ground.ready("within")?;
    for name in ["message", "hosts"] {
        let pod = evicted(&ground, name)?;
        assert_eq!(
            message(&pod),
            "Pod ephemeral local storage usage exceeds the total limit of containers 5Mi. "
        );
        let uid = pod["metadata"]["uid"].as_str().context("uid")?;
        let pods = ground.bulkhead.paths().root.join("pods");
        let file = match name {
            "hosts" => pods.join(uid).join("etc-hosts"),
            _ => pods.join(uid).join("containers/app/00000000"),
        };
        wait_for("what it wrote to go", EVICTION, || {
            let size = ground.node().run(|| file.metadata().map(|it| it.len()));
            match size {
                Ok(Err(error)) if error.kind() == ErrorKind::NotFound => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })?;
    }
    runs_untouched(&ground, "within")
}

/// A pool that has just started may tell of the pressure once more, and a rejection is for
/// good: so pods are added until one is accepted.
fn starts_once_the_pressure_is_over(ground: &Ground) -> Result<()> {
    for number in 0..10 {
        let name = format!("after-{number}");
        ground.apply(&name, writing(1))?;
        let what = "to be ready or rejected";
        let is_ready = ground.bulkhead.wait_for_pod(&name, what, EVICTION, |pod| {
            match (condition(pod, "Ready"), &pod["status"]["phase"]) {
                (Some(true), _) => Ok(true),
                (_, phase) if phase == "Failed" => Ok(false),
                (_, phase) => Err(phase.to_string()),
            }
        })?;
        if is_ready {
            return Ok(());
        }
    }
    anyhow::bail!("every new pod is rejected")
}

#[test]
fn on_a_full_disk_the_largest_pod_goes_once_though_the_pool_is_killed() -> Result<()> {
    let mut options = BulkheadOptions {
        root_disk_bytes: Some(64 << 20),
        ..BulkheadOptions::default()
    };
    let config = &mut options.kubelet_configuration;
    config.insert("evictionHard".into(), json!({ "nodefs.available": "20Mi" }));
    config.insert("evictionPressureTransitionPeriod".into(), json!("5s"));
    let mut ground = Ground::start_with(&options)?;
    let mut important = writing(12 << 10);
    important["priority"] = json!(1000);
    ground.apply("important", important)?;
    ground.apply("small", writing(2 << 10))?;
    ground.apply("large", writing(26 << 10))?;
    for name in ["important", "small", "large"] {
        ground.ready(name)?;
    }
    // 40 of 64 MiB are in use; with these it is short.
    ground.apply("last", writing(8 << 10))?;
    ground.ready("last")?;
    ground.event("large", "Evicted", "low on resource: ephemeral-storage")?;
    ground.bulkhead.kill(Process::PodWorkerPool)?;
    let large = evicted(&ground, "large")?;
    assert!(
        message(&large).starts_with(
            "The node was low on resource: ephemeral-storage. Threshold quantity: 20Mi, available: "
        ),
        "{large}"
    );
    assert_eq!(condition(&large, "DisruptionTarget"), Some(true), "{large}");
    let data = ground.bulkhead.paths().root.join("pods");
    let uid = large["metadata"]["uid"].as_str().context("uid")?;
    let file = data
        .join(uid)
        .join("volumes/kubernetes.io~empty-dir/data/file");
    wait_for("its volume to go", EVICTION, || {
        let is_there = ground.node().run(|| file.exists());
        match is_there {
            Ok(false) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })?;
    // The pressure is over, so a new pod may start, and nobody else has gone.
    wait_for("the pressure to be over", EVICTION, || {
        let table = ground
            .printed(&["status"])
            .map_err(|error| format!("{error:#}"))?;
        match table.contains("DiskPressure") {
            true => Err(table),
            false => Ok(()),
        }
    })?;
    starts_once_the_pressure_is_over(&ground)?;
    for name in ["important", "small", "last"] {
        runs_untouched(&ground, name)?;
    }
    assert_eq!(ground.running("large")?, 0);
    Ok(())
}

#[test]
fn short_of_memory_pods_go_by_priority_and_best_effort_pods_stay_out() -> Result<()> {
    // No node has so much left.
    let ground = Ground::start(json!({ "evictionHard": { "memory.available": "99.99%" } }))?;
    wait_for("the node to be short of memory", EVICTION, || {
        let table = ground
            .printed(&["status"])
            .map_err(|error| format!("{error:#}"))?;
        match table.contains("MemoryPressure") {
            true => Ok(()),
            false => Err(table),
        }
    })?;
    let requesting = |fields: Value| {
        let mut spec = writing(1);
        spec["containers"][0]["resources"] = json!({ "requests": { "memory": "1Ki" } });
        for (name, value) in fields.as_object().into_iter().flatten() {
            spec[name] = value.clone();
        }
        spec
    };
    let spared = json!({ "priorityClassName": "system-node-critical" });
    ground.apply("spared", requesting(spared))?;
    ground.apply("high", requesting(json!({ "priority": 100 })))?;
    ground.apply("low", requesting(json!({ "priority": -100 })))?;
    let (low, high) = (evicted(&ground, "low")?, evicted(&ground, "high")?);
    let ended = |pod: &Value| {
        let status = &pod["status"]["containerStatuses"][0];
        let at = &status["state"]["terminated"]["finishedAt"];
        at.as_str().map(str::to_owned).context(status.to_string())
    };
    assert!(ended(&low)? <= ended(&high)?, "{low} {high}");
    assert!(
        message(&high).starts_with("The node was low on resource: memory. Threshold quantity: "),
        "{high}"
    );
    // sync-loop has heard of the condition by now: the pool tells it within 5 s.
    ground.apply("best-effort", writing(1))?;
    assert_eq!(
        message(&evicted(&ground, "best-effort")?),
        "Pod was rejected: The node had condition: [MemoryPressure]. "
    );
    assert_eq!(ground.containers("best-effort")?.len(), 0);
    runs_untouched(&ground, "spared")
}
