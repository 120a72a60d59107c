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
use test_support::{cgroup, http, wait_for};

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
