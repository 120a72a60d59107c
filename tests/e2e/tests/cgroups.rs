//! What the kernel holds pods to beyond the limits of their containers, on either version
//! of cgroups.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use serde_json::{Value, json};
use test_support::cgroup;
use test_support::images::BUSYBOX;
use test_support::observe::container_status;

/// What all pods together get in these tests.
const ALL_PODS_BYTES: u64 = 256 << 20;

/// The first of these files that a cgroup has, in any hierarchy.
fn read(place: &str, files: &[&str]) -> Result<String> {
    let directories = cgroup::existing(place)?;
    let mut paths = directories
        .iter()
        .flat_map(|directory| files.iter().map(|file| directory.join(file)));
    let path = paths
        .find(|path| path.exists())
        .with_context(|| format!("{place} has none of {files:?}"))?;
    let content = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(content.trim().to_owned())
}

/// From a file with a number alone.
fn number(path: &str) -> Result<u64> {
    let text = fs::read_to_string(path).with_context(|| path.to_owned())?;
    text.trim().parse().context(path.to_owned())
}

fn memory_of_machine() -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes: u64 = line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .context("MemTotal")?
        .parse()?;
    Ok(kilobytes << 10)
}

/// The only container of a pod that ended.
fn terminated(ground: &Ground, name: &str) -> Result<Value> {
    let pod = ground.phase(name, "Failed")?;
    let status = container_status(&pod, "app").context("no status")?;
    Ok(status["state"]["terminated"].clone())
}

#[test]
fn all_pods_together_have_no_more_than_the_node_gives_them() -> Result<()> {
    let reserved = memory_of_machine()? - ALL_PODS_BYTES;
    let ground = Ground::start(json!({
        "systemReserved": { "memory": reserved.to_string(), "pid": "1000" },
    }))?;
    let all_pods = format!("{}/kubepods", ground.node().name());
    let memory = read(&all_pods, &["memory.max", "memory.limit_in_bytes"])?;
    assert_eq!(memory, ALL_PODS_BYTES.to_string());
    let processes =
        number("/proc/sys/kernel/pid_max")?.min(number("/proc/sys/kernel/threads-max")?);
    let limit = read(&all_pods, &["pids.max"])?;
    assert_eq!(limit, (processes - 1000).to_string());

    ground.apply("modest", ground.app("modest", &[]))?;
    ground.ready("modest")?;
    // Without a limit of its own.
    let mut hungry = ground.app("hungry", &["--allocate-mib", "400"]);
    hungry["restartPolicy"] = json!("Never");
    ground.apply("hungry", hungry)?;
    let ended = terminated(&ground, "hungry")?;
    assert_eq!(ended["exitCode"], 137, "{ended}");
    let modest = ground.pod("modest")?;
    let status = container_status(&modest, "app").context("no status")?;
    ensure!(status["restartCount"] == 0, "{status}");
    assert_eq!(ground.running("modest")?, 1);
    Ok(())
}

#[test]
fn a_pod_has_no_more_processes_than_the_node_allows() -> Result<()> {
    let ground = Ground::start(json!({ "podPidsLimit": 40 }))?;
    let forking = |processes: u32| {
        let script = format!(
            "for i in $(seq {processes}); do sleep 1000 & done; \
             echo all are there; trap 'exit 0' TERM; while true; do sleep 1 & wait $!; done"
        );
        json!({
            "restartPolicy": "Never",
            "containers": [{ "name": "app", "image": BUSYBOX, "command": ["sh", "-c", script] }],
        })
    };
    ground.apply("few", forking(10))?;
    ground.apply("many", forking(60))?;
    ground.logged(&["few"], "all are there")?;
    let ended = terminated(&ground, "many")?;
    ensure!(ended["exitCode"] != 0, "{ended}");
    ground.logged(&["many"], "sh: can't fork")?;

    let pod = ground.pod("few")?;
    let uid = pod["metadata"]["uid"].as_str().context("uid")?;
    let of_pod = format!("{}/kubepods/besteffort/pod{uid}", ground.node().name());
    assert_eq!(read(&of_pod, &["pids.max"])?, "40");
    assert_eq!(ground.running("few")?, 1);
    Ok(())
}
