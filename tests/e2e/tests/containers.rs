//! What a container finds: its environment, and the limits that hold for it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use e2e::Ground;
use e2e::ground::spec;
use e2e::ground::{TIMEOUT, address};
use e2e::workload::container;
use serde_json::{Value, json};
use test_support::observe::{container_id, container_status};
use test_support::{BulkheadOptions, OTHER_HANDLER, cgroup, http, wait_for};

/// A server that shows its environment, with variables of every kind.
fn server_with_environment() -> Value {
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let resource = |resource: &str, divisor: &str| json!({"resourceFieldRef": {"resource": resource, "divisor": divisor}});
    let mut server = container(
        "app",
        "app",
        &[
            "--http",
            "8080",
            "--print",
            "$(GREETING) $$(GREETING) $(NOBODY)",
        ],
    );
    server["env"] = json!([
        {"name": "PLAIN", "value": "a b"},
        {"name": "GREETING", "value": "hello $(PLAIN), $$(PLAIN), $(LATER), $(IP)"},
        {"name": "LATER", "value": "later"},
        {"name": "IP", "valueFrom": field("status.podIP")},
        {"name": "AFTER", "value": "at $(IP)"},
        {"name": "NAME", "valueFrom": field("metadata.name")},
        {"name": "NAMESPACE", "valueFrom": field("metadata.namespace")},
        {"name": "UID", "valueFrom": field("metadata.uid")},
        {"name": "LABEL", "valueFrom": field("metadata.labels['app']")},
        {"name": "NOTE", "valueFrom": field("metadata.annotations['example.org/note']")},
        {"name": "NODE", "valueFrom": field("spec.nodeName")},
        {"name": "HOST_IP", "valueFrom": field("status.hostIP")},
        {"name": "CPU", "valueFrom": resource("requests.cpu", "1m")},
        {"name": "MEMORY", "valueFrom": resource("limits.memory", "1Mi")},
    ]);
    server["resources"] = json!({
        "requests": {"cpu": "250m", "memory": "32Mi"},
        "limits": {"memory": "64Mi"},
    });
    server
}

#[test]
fn a_container_finds_what_its_environment_says() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let server = server_with_environment();
    let manifest = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web",
            "labels": {"app": "web"},
            "annotations": {"example.org/note": "kept"},
        },
        "spec": spec(&ground, &[server]),
    });
    ground
        .bulkhead
        .write_manifest("web.json", &manifest.to_string())?;
    let pod = ground.ready("web")?;
    let answer = wait_for("the environment", TIMEOUT, || {
        http::request(ground.node(), "GET", address(&pod, 8080)?, "/env")
    })?;
    let found: BTreeMap<&str, &str> = answer
        .body
        .lines()
        .filter_map(|line| line.split_once('='))
        .collect();
    let ip = text(&pod["status"]["podIP"]);
    let (name, uid) = (ground.full_name("web"), text(&pod["metadata"]["uid"]));
    let host_ip = ground.node().address().to_string();
    for (variable, value) in [
        ("PLAIN", "a b"),
        // Only what is defined before counts.
        ("GREETING", "hello a b, $(PLAIN), $(LATER), $(IP)"),
        ("LATER", "later"),
        ("IP", &ip),
        ("AFTER", &format!("at {ip}")),
        ("NAME", &name),
        ("NAMESPACE", "default"),
        ("UID", &uid),
        ("LABEL", "web"),
        ("NOTE", "kept"),
        ("NODE", ground.bulkhead.node_name()),
        ("HOST_IP", &host_ip),
        ("CPU", "250"),
        ("MEMORY", "64"),
    ] {
        assert_eq!(found.get(variable), Some(&value), "{variable} in {found:?}");
    }
    let line = "hello a b, $(PLAIN), $(LATER), $(IP) $(GREETING) $(NOBODY)\n";
    ground.logged(&["web"], line)?;
    Ok(())
}

#[test]
fn resources_reach_the_cgroups_and_hold() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let sized = |requests: Value, limits: Value| {
        let mut server = container("app", "app", &[]);
        server["resources"] = json!({"requests": requests, "limits": limits});
        spec(&ground, &[server])
    };
    let both = json!({"cpu": "100m", "memory": "48Mi"});
    ground.apply(
        "burstable",
        sized(
            json!({"cpu": "250m", "memory": "16Mi"}),
            json!({"memory": "64Mi"}),
        ),
    )?;
    ground.apply("guaranteed", sized(both.clone(), both))?;
    ground.apply("besteffort", sized(json!({}), json!({})))?;
    let mut hungry = container("app", "hungry", &["--allocate-mib", "200"]);
    hungry["resources"] = json!({"limits": {"memory": "64Mi"}});
    let mut hungry = spec(&ground, &[hungry]);
    hungry["restartPolicy"] = json!("Never");
    ground.apply("hungry", hungry)?;

    // Name, place of its class, CPU shares, CPU quota in microseconds of
    // 100000, memory in MiB.
    for (name, class, shares, quota, memory) in [
        ("burstable", "burstable/", 256, None, Some(64)),
        ("guaranteed", "", 102, Some(10_000), Some(48)),
        ("besteffort", "besteffort/", 2, None, None),
    ] {
        let pod = ground.ready(name)?;
        let id = container_id(&pod, "app").context("no container")?;
        let uid = text(&pod["metadata"]["uid"]);
        let of_pod = format!("{}/kubepods/{class}pod{uid}", ground.node().name());
        for place in [of_pod.clone(), format!("{of_pod}/{id}")] {
            let found = limits_of(&place)?;
            let expected = Limits {
                cpu: match found.cpu {
                    Cpu::Shares(_) => Cpu::Shares(shares),
                    Cpu::Weight(found) if place != of_pod && found == newer_weight(shares) => {
                        Cpu::Weight(found)
                    }
                    // As kubelets and runtimes compute it, rounded down.
                    Cpu::Weight(_) => Cpu::Weight(1 + (shares - 2) * 9_999 / 262_142),
                },
                quota,
                memory: memory.map(|memory: u64| memory << 20),
            };
            assert_eq!(found, expected, "{name}: {place}");
        }
    }
    let hungry = ground.phase("hungry", "Failed")?;
    let ended = &container_status(&hungry, "app").context("no status")?["state"]["terminated"];
    assert_eq!(ended["reason"], "OOMKilled", "{ended}");
    assert_eq!(ended["exitCode"], 137);
    Ok(())
}

/// What a pod states for itself as a whole, and what its runtime class costs.
#[test]
fn a_pod_as_a_whole_is_limited_by_what_it_states_and_what_its_runtime_class_costs() -> Result<()> {
    let mut options = BulkheadOptions::default();
    options.bulkhead_configuration.insert(
        "runtimeClasses".to_owned(),
        json!({"heavy": {
            "handler": OTHER_HANDLER,
            "overhead": {"cpu": "100m", "memory": "16Mi"},
        }}),
    );
    let ground = Ground::start_with(&options)?;
    let mut whole = spec(&ground, &[container("app", "app", &[])]);
    whole["runtimeClassName"] = json!("heavy");
    whole["resources"] = json!({
        "requests": {"cpu": "200m", "memory": "32Mi"},
        "limits": {"cpu": "500m", "memory": "64Mi"},
    });
    ground.apply("whole", whole.clone())?;
    let pod = ground.ready("whole")?;
    assert_eq!(pod["spec"]["overhead"]["memory"], "16Mi");
    assert_eq!(pod["status"]["qosClass"], "Burstable");

    let uid = text(&pod["metadata"]["uid"]);
    let id = container_id(&pod, "app").context("no container")?;
    let of_pod = format!("{}/kubepods/burstable/pod{uid}", ground.node().name());
    for (place, quota, mebibytes) in [
        (of_pod.clone(), 60_000, 80_u64),
        (format!("{of_pod}/{id}"), 50_000, 64),
    ] {
        let found = limits_of(&place)?;
        let expected = (Some(quota), Some(mebibytes << 20));
        assert_eq!((found.quota, found.memory), expected, "{place}");
    }

    let sandboxes = ground.sandboxes("whole")?;
    let handlers: Vec<&str> = sandboxes.iter().map(|it| &*it.runtime_handler).collect();
    assert_eq!(handlers, [OTHER_HANDLER]);

    // A class that nobody has configured.
    whole["runtimeClassName"] = json!("light");
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "light"}, "spec": whole,
    });
    let file = ground.bulkhead.paths().shared.join("light.json");
    fs::write(&file, manifest.to_string())?;
    let checked = ground
        .bulkhead
        .command_line(&["check", &file.to_string_lossy()])?;
    assert!(!checked.status.success(), "{checked:?}");
    let reason = r#"spec.runtimeClassName: Not found: "light""#;
    assert!(checked.stdout.contains(reason), "{checked:?}");
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Limits {
    cpu: Cpu,
    quota: Option<u64>,
    memory: Option<u64>,
}

/// How much of the CPU a cgroup has beside others, by the version of cgroups.
#[derive(Debug, PartialEq, Eq)]
enum Cpu {
    Shares(u64),
    Weight(u64),
}

/// The weight that newer runtimes (runc 1.3.2, crun 1.23) make of a container's shares: a
/// parabola through (2, 1), (1024, 100) and (262144, 10000), by the logarithms.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small positive numbers"
)]
fn newer_weight(shares: u64) -> u64 {
    let log = (shares as f64).log2();
    let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
    10_f64.powf(exponent).ceil() as u64
}

/// What the kernel holds a cgroup to, on either version.
fn limits_of(place: &str) -> Result<Limits> {
    let directories: Vec<PathBuf> = cgroup::existing(place)?;
    let read = |file: &str| -> Result<Option<String>> {
        let paths = directories.iter().map(|directory| directory.join(file));
        let Some(path) = paths.into_iter().find(|path| path.exists()) else {
            return Ok(None);
        };
        let content = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Some(content.trim().to_owned()))
    };
    let number = |text: String| text.parse::<u64>().ok();
    if let Some(shares) = read("cpu.shares")? {
        // No limit reads as a number that no machine reaches.
        let memory = read("memory.limit_in_bytes")?.and_then(number);
        return Ok(Limits {
            cpu: Cpu::Shares(shares.parse()?),
            quota: read("cpu.cfs_quota_us")?.and_then(number),
            memory: memory.filter(|&bytes| bytes < 1 << 60),
        });
    }
    let weight: u64 = read("cpu.weight")?.context("cpu.weight")?.parse()?;
    let maximum = read("cpu.max")?.context("cpu.max")?;
    let quota = maximum.split(' ').next().map(str::to_owned);
    Ok(Limits {
        cpu: Cpu::Weight(weight),
        quota: quota.and_then(number),
        memory: read("memory.max")?.and_then(number),
    })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
