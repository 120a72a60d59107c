//! Probes of every kind by every means, with their effects.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use e2e::ground::{TIMEOUT, address};
use serde_json::{Value, json};
use test_support::images::{BUSYBOX, TESTAPP};
use test_support::observe::{condition, container_id, container_status};
use test_support::wait::holds_for;
use test_support::{http, wait_for};
use topology::Process;

/// The four means of a probe.
const MEANS: [&str; 4] = ["exec", "http", "tcp", "grpc"];

#[test]
fn a_failing_liveness_probe_restarts_the_container_by_every_means() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    for means in MEANS {
        ground.apply(
            means,
            pod(means, "livenessProbe", &json!({ "failureThreshold": 2 })),
        )?;
    }
    for means in MEANS {
        ground.ready(means)?;
    }
    // Alive, nobody touches them.
    for means in MEANS {
        set_health(&ground, means, false)?;
    }
    for means in MEANS {
        let what = "to have its container replaced";
        let status = wait_for_container(&ground, means, what, |status| {
            status["restartCount"] == 1 && status["state"]["running"].is_object()
        })?;
        let last = &status["lastState"]["terminated"];
        assert!(last["containerID"].is_string(), "{status}");
        assert_ne!(last["containerID"], status["containerID"]);
        ground.event(means, "Unhealthy", "Liveness probe failed: ")?;
        ground.event(
            means,
            "Killing",
            "Container app failed liveness probe, will be restarted",
        )?;
    }
    // The new one is well: what was known of the old one does not count.
    holds_for(Duration::from_secs(3), || {
        for means in MEANS {
            let pod = ground.pod(means)?;
            let status = container_status(&pod, "app").context("no status")?;
            ensure!(status["restartCount"] == 1, "{means}: {status}");
        }
        Ok(())
    })
}

#[test]
fn readiness_follows_its_probe_and_nothing_is_restarted() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    for means in MEANS {
        ground.apply(
            means,
            pod(means, "readinessProbe", &json!({ "failureThreshold": 1 })),
        )?;
    }
    let mut ids = Vec::new();
    for means in MEANS {
        let pod = ground.ready(means)?;
        assert_eq!(condition(&pod, "ContainersReady"), Some(true));
        ids.push(container_id(&pod, "app").context("no id")?.to_owned());
    }
    for healthy in [false, true, false] {
        for means in MEANS {
            set_health(&ground, means, healthy)?;
        }
        for means in MEANS {
            wait_for_ready(&ground, means, healthy)?;
        }
    }
    for (means, id) in MEANS.iter().zip(&ids) {
        let pod = ground.pod(means)?;
        assert_eq!(container_id(&pod, "app"), Some(id.as_str()));
        assert_eq!(pod["status"]["phase"], "Running");
        assert_eq!(condition(&pod, "ContainersReady"), Some(false));
        let status = container_status(&pod, "app").context("no status")?;
        assert_eq!(
            (&status["ready"], &status["started"]),
            (&json!(false), &json!(true))
        );
        assert_eq!(status["restartCount"], 0);
        ground.event(means, "Unhealthy", "Readiness probe failed: ")?;
        let events = ground.events_of(means)?;
        assert!(
            events.iter().all(|(reason, _)| reason != "Killing"),
            "{events:?}"
        );
    }
    Ok(())
}

#[test]
fn a_probe_that_takes_too_long_has_failed() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let probed = |probe: Value| {
        let mut container = json!({ "name": "app", "image": TESTAPP, "args": ["--http", "8080"] });
        container["readinessProbe"] = probe;
        container["env"] = json!([{ "name": "SHORT", "value": "0.1" }]);
        for (field, value) in [
            ("periodSeconds", 1),
            ("timeoutSeconds", 1),
            ("failureThreshold", 1),
        ] {
            container["readinessProbe"][field] = json!(value);
        }
        json!({ "containers": [container] })
    };
    let sleep = |seconds: &str| json!({ "exec": { "command": ["sleep", seconds] } });
    let slow = |milliseconds: u32| json!({ "httpGet": { "path": format!("/slow?ms={milliseconds}"), "port": 8080 } });
    for (name, probe) in [
        ("exec-late", sleep("30")),
        ("http-late", slow(30_000)),
        ("exec-in-time", sleep("$(SHORT)")),
        ("http-in-time", slow(100)),
    ] {
        ground.apply(name, probed(probe))?;
    }
    for name in ["exec-in-time", "http-in-time"] {
        ground.ready(name)?;
    }
    let said = ground.event("exec-late", "Unhealthy", "Readiness probe failed: ")?;
    assert!(said.contains("did not end within 1s"), "{said}");
    ground.event("http-late", "Unhealthy", "Readiness probe failed: ")?;
    for name in ["exec-late", "http-late"] {
        assert_eq!(condition(&ground.pod(name)?, "Ready"), Some(false));
    }
    // The commands do not pile up.
    let processes = ground.exec("exec-late", "app", &["ps", "-o", "args"])?;
    let sleeping = processes
        .lines()
        .filter(|line| line.starts_with("sleep 30"));
    assert!(sleeping.count() <= 2, "{processes}");
    Ok(())
}

#[test]
fn a_command_whose_child_goes_on_fails_its_probe_soon_after_the_timeout() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    // The runtime kills the shell, and waits for what its children may still print.
    let hangs = json!({
        "exec": { "command": ["sh", "-c", "sleep 300 & sleep 300"] },
        "periodSeconds": 1, "timeoutSeconds": 1, "failureThreshold": 2,
    });
    let container = json!({
        "name": "app", "image": TESTAPP, "args": ["--http", "8080"], "livenessProbe": hangs,
    });
    ground.apply("hangs", json!({ "containers": [container] }))?;
    ground.ready("hangs")?;
    let ready_at = Instant::now();
    let said = ground.event("hangs", "Unhealthy", "Liveness probe failed: ")?;
    assert!(said.contains("did not end within 1s"), "{said}");
    ground.event(
        "hangs",
        "Killing",
        "failed liveness probe, will be restarted",
    )?;
    // Two tries.
    let took = ready_at.elapsed();
    assert!(took < Duration::from_secs(25), "{took:?}");
    Ok(())
}

#[test]
fn no_verdict_flips_while_the_prober_is_killed_again_and_again() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let ready = json!({ "failureThreshold": 1 });
    for means in MEANS {
        let mut spec = pod(means, "readinessProbe", &ready);
        let container = &mut spec["containers"][0];
        for kind in ["livenessProbe", "startupProbe"] {
            container[kind] = container["readinessProbe"].clone();
            container[kind]["failureThreshold"] = json!(10);
        }
        ground.apply(means, spec)?;
    }
    ground.apply("unready", pod("http", "readinessProbe", &ready))?;
    ground.ready("unready")?;
    set_health(&ground, "unready", false)?;
    wait_for_ready(&ground, "unready", false)?;
    let mut ids = Vec::new();
    for means in MEANS {
        let pod = ground.ready(means)?;
        ids.push(container_id(&pod, "app").context("no id")?.to_owned());
    }
    let steady = |ground: &Ground| -> Result<()> {
        for (means, id) in MEANS.iter().zip(&ids) {
            let pod = ground.pod(means)?;
            let status = container_status(&pod, "app").context("no status")?;
            let as_before = condition(&pod, "Ready") == Some(true)
                && status["ready"] == true
                && status["started"] == true
                && status["restartCount"] == 0
                && container_id(&pod, "app") == Some(id);
            let events = || ground.events_of(means);
            ensure!(as_before, "{means}: {} {:?}", pod["status"], events());
        }
        let unready = ground.pod("unready")?;
        ensure!(
            condition(&unready, "Ready") == Some(false),
            "{}",
            unready["status"]
        );
        Ok(())
    };
    for _ in 0..4 {
        let old = ground.bulkhead.kill(Process::Prober)?;
        wait_for("another prober", TIMEOUT, || {
            steady(&ground).map_err(|error| format!("{error:#}"))?;
            match ground.bulkhead.pids() {
                Ok(pids) if pids.get(&Process::Prober).is_some_and(|pid| *pid != old) => Ok(()),
                other => Err(format!("{other:?} after {old}")),
            }
        })?;
        holds_for(Duration::from_secs(2), || steady(&ground))?;
    }
    // It probes on: both ways round.
    set_health(&ground, "unready", true)?;
    wait_for_ready(&ground, "unready", true)?;
    set_health(&ground, "http", false)?;
    wait_for_ready(&ground, "http", false)
}

/// A pod with one container that is probed by this means with these fields
/// more, and whose health [`set_health`] sets.
fn pod(means: &str, kind: &str, fields: &Value) -> Value {
    let action = match means {
        "exec" => json!({ "exec": { "command": ["cat", "/tmp/healthy"] } }),
        "http" => json!({ "httpGet": { "path": "/healthz", "port": 8080 } }),
        "tcp" => json!({ "tcpSocket": { "port": 9090 } }),
        _ => json!({ "grpc": { "port": 9091, "service": "testapp" } }),
    };
    let mut container = if means == "tcp" {
        // A port that can be closed and opened again.
        json!({ "name": "app", "image": BUSYBOX, "command": ["sh", "-c", tcp_script(true)] })
    } else {
        json!({
            "name": "app",
            "image": TESTAPP,
            "args": ["--http", "8080", "--grpc", "9091", "--write", "/tmp/healthy=yes"],
        })
    };
    container[kind] = action;
    container[kind]["periodSeconds"] = json!(1);
    // On a busy machine a command may take longer than the default of a second.
    container[kind]["timeoutSeconds"] = json!(20);
    for (field, value) in fields.as_object().into_iter().flatten() {
        container[kind][field] = value.clone();
    }
    json!({ "containers": [container] })
}

/// Serves the TCP port while a file says so.
fn tcp_script(healthy: bool) -> String {
    let begin = if healthy { "touch /tmp/healthy;" } else { "" };
    format!(
        "{begin} trap 'exit 0' TERM; \
         while true; do \
           if [ -e /tmp/healthy ]; then \
             [ -n \"$p\" ] || {{ httpd -f -p 9090 & p=$!; }}; \
           elif [ -n \"$p\" ]; then kill $p; wait $p; p=; fi; \
           sleep 0.1 & wait $!; \
         done"
    )
}

/// Makes a pod of [`pod`] well or ill by its own means; its name begins with
/// that of the means, or is another and it is probed by HTTP.
fn set_health(ground: &Ground, name: &str, healthy: bool) -> Result<()> {
    if name == "exec" || name == "tcp" {
        let command = if healthy { "touch" } else { "rm" };
        ground.exec(name, "app", &[command, "/tmp/healthy"])?;
    } else {
        let status = if healthy { 200 } else { 503 };
        let server = address(&ground.pod(name)?, 8080)?;
        let target = format!("/healthz?status={status}");
        wait_for("the health to be set", TIMEOUT, || {
            http::request(ground.node(), "POST", server, &target)
        })?;
    }
    Ok(())
}

fn wait_for_container(
    ground: &Ground,
    name: &str,
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Result<Value> {
    let found = ground.bulkhead.wait_for_pod(name, what, TIMEOUT, |pod| {
        let status = container_status(pod, "app").ok_or("no status")?;
        if is_so(status) {
            Ok(status.clone())
        } else {
            Err("not so".to_owned())
        }
    });
    Ok(found?)
}

fn wait_for_ready(ground: &Ground, name: &str, ready: bool) -> Result<()> {
    let what = if ready {
        "to be ready"
    } else {
        "to be unready"
    };
    let found =
        ground
            .bulkhead
            .wait_for_pod(name, what, TIMEOUT, |pod| match condition(pod, "Ready") {
                Some(found) if found == ready => Ok(()),
                other => Err(format!("Ready is {other:?}")),
            });
    Ok(found?)
}
