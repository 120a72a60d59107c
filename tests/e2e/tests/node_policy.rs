//! The node policy: what is refused, what a grant allows, and what no level gives.

use anyhow::{Context as _, Result};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use serde_json::{Value, json};
use test_support::images::{AGENT_USER, BUSYBOX, TESTAPP_AGENT_NAME, TESTAPP_AGENT_NUMBER};
use test_support::{BulkheadOptions, wait_for};
use topology::Process;

const REASON: &str = "RefusedByNodePolicy";

fn with_policy(policy: &str) -> BulkheadOptions {
    BulkheadOptions {
        policy: Some(policy.to_owned()),
        ..BulkheadOptions::default()
    }
}

fn shell() -> Value {
    json!({ "name": "c", "image": BUSYBOX, "command": ["sleep", "1000000"] })
}

fn with_host_path(path: &str) -> Value {
    let mut container = shell();
    container["volumeMounts"] = json!([{ "name": "v", "mountPath": "/v" }]);
    json!({
        "containers": [container],
        "volumes": [{ "name": "v", "hostPath": { "path": path } }],
    })
}

/// Waits until a pod's container waits for this reason; the message.
fn waits(ground: &Ground, name: &str, reason: &str) -> Result<String> {
    let what = format!("to wait because of {reason}");
    let found = ground.bulkhead.wait_for_pod(name, &what, TIMEOUT, |pod| {
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        match waiting["reason"] == reason {
            true => Ok(waiting["message"].as_str().unwrap_or_default().to_owned()),
            false => Err(pod["status"].to_string()),
        }
    });
    found.with_context(|| ground.bulkhead.log_ends())
}

#[test]
fn a_grant_lets_a_refused_pod_run_without_a_restart() -> Result<()> {
    let ground = Ground::start_with(&with_policy(""))?;
    let shared = ground.bulkhead.paths().shared.display().to_string();
    let on_network = json!({ "containers": [shell()], "hostNetwork": true });
    ground.apply("plain", json!({ "containers": [shell()] }))?;
    ground.apply("network", on_network)?;
    ground.apply("path", with_host_path(&shared))?;
    ground.ready("plain")?;
    for (name, rule, grant) in [
        ("network", "spec.hostNetwork", "hostNetwork = true"),
        ("path", "spec.volumes[0].hostPath.path", "hostPaths = "),
    ] {
        let message = waits(&ground, name, REASON)?;
        assert!(
            message.contains(rule) && message.contains(grant),
            "{message}"
        );
        assert_eq!(ground.pod(name)?["status"]["phase"], "Pending");
        assert!(ground.containers(name)?.is_empty());
    }
    let pids = ground.bulkhead.pids()?;
    ground.bulkhead.write_policy(&format!(
        "[[grants]]\npods = [\"default/network\"]\nhostNetwork = true\n\
         [[grants]]\npods = [\"default/path\"]\nhostPaths = [{{ prefix = {shared:?} }}]\n"
    ))?;
    ground.ready("network")?;
    ground.ready("path")?;
    assert_eq!(ground.bulkhead.pids()?, pids);
    // A file that is broken changes nothing, and is shown.
    ground
        .bulkhead
        .write_policy("[[grants]]\nhostNetwork = 7\n")?;
    let shown = wait_for("the broken file to be shown", TIMEOUT, || {
        let output = ground.bulkhead.command_line(&["status"]);
        let output = output.map_err(|error| format!("{error:#}"))?;
        let is_shown = output.stdout.contains("policy.toml: line 2");
        if is_shown { Ok(()) } else { Err(output.stdout) }
    });
    shown?;
    let shown = ground.bulkhead.command_line(&["policy", "show"])?.stdout;
    for part in ["last good", "problem", "default/path"] {
        assert!(shown.contains(part), "{part:?} in {shown}");
    }
    ground.remove("network")?;
    ground.apply(
        "network",
        json!({ "containers": [shell()], "hostNetwork": true }),
    )?;
    ground.ready("network")?;
    Ok(())
}

#[test]
fn what_is_protected_needs_a_grant_that_names_it() -> Result<()> {
    let ground = Ground::start_with(&with_policy("sources = { file = \"privileged\" }\n"))?;
    let paths = ground.bulkhead.paths();
    let socket = ground.containerd.endpoint().replace("unix://", "");
    let protected = [
        ("socket", socket.clone()),
        ("root", "/".to_owned()),
        ("state", paths.state.display().to_string()),
        ("run", paths.run.display().to_string()),
        ("proc", "/proc/1".to_owned()),
        ("dev", "/dev".to_owned()),
        ("manifests", paths.manifests.display().to_string()),
    ];
    for (name, path) in &protected {
        ground.apply(name, with_host_path(path))?;
    }
    ground.apply("other", with_host_path("/usr/share"))?;
    ground.ready("other")?;
    for (name, path) in &protected {
        let message = waits(&ground, name, REASON)?;
        assert!(message.contains(path.as_str()), "{message}");
    }
    ground.bulkhead.write_policy(&format!(
        "[[grants]]\npods = [\"default/socket\"]\nhostPaths = [{{ prefix = {socket:?} }}]\n\
         [[grants]]\npods = [\"default/root\"]\nhostPaths = [{{ prefix = \"/\" }}]\n"
    ))?;
    ground.ready("socket")?;
    // A grant of what is above it does not give it.
    waits(&ground, "root", REASON)?;
    Ok(())
}

#[test]
fn a_user_of_the_agent_is_refused_whether_the_image_has_its_number_or_its_name() -> Result<()> {
    let policy = "sources = { file = \"privileged\" }\n";
    // The third user after the base is pleg's.
    let options = BulkheadOptions {
        uid_base: Some(AGENT_USER - 3),
        ..with_policy(policy)
    };
    let ground = Ground::start_with(&options)?;
    for (name, image) in [
        ("number", TESTAPP_AGENT_NUMBER),
        ("name", TESTAPP_AGENT_NAME),
    ] {
        let container = json!({ "name": "c", "image": image });
        ground.apply(name, json!({ "containers": [container] }))?;
        let message = waits(&ground, name, "CreateContainerError")?;
        assert!(message.contains("running as user 61003"), "{message}");
        assert!(ground.containers(name)?.is_empty());
    }
    let log = ground.bulkhead.log(Process::PodWorkerPool);
    assert!(
        log.contains("a request to the runtime was refused"),
        "{log}"
    );
    let grant = format!("[[grants]]\npods = [\"default/*\"]\nusers = [{AGENT_USER}]\n");
    ground
        .bulkhead
        .write_policy(&(policy.to_owned() + &grant))?;
    ground.ready("number")?;
    ground.ready("name")?;
    Ok(())
}

#[test]
fn a_policy_that_audits_reports_and_allows() -> Result<()> {
    let ground = Ground::start_with(&with_policy("mode = \"audit\"\n"))?;
    ground.apply(
        "pod",
        json!({ "containers": [shell()], "hostNetwork": true }),
    )?;
    ground.ready("pod")?;
    let events = ground.bulkhead.events()?;
    assert!(events.iter().any(|event| event.reason == REASON));
    let status = ground.bulkhead.command_line(&["status"])?;
    let shown = "degraded: node policy only audits";
    assert!(status.stdout.contains(shown), "{}", status.stdout);
    Ok(())
}
