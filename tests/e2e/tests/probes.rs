//! Probes of every kind by every means, with their effects, and what admission
//! refuses.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use e2e::ground::{TIMEOUT, address};
use serde_json::{Value, json};
use test_support::images::{BUSYBOX, TESTAPP};
use test_support::observe::{condition, container_id, container_status};
use test_support::wait::holds_for;
use test_support::{ManifestServer, http, wait_for};
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
fn a_startup_probe_holds_the_others_until_it_succeeds_by_every_means() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    for means in MEANS {
        let mut spec = pod(means, "startupProbe", &json!({ "failureThreshold": 60 }));
        let container = &mut spec["containers"][0];
        // Both would have their effect in the first second.
        let fails = json!({ "exec": { "command": ["false"] }, "periodSeconds": 1 });
        let succeeds = json!({ "exec": { "command": ["true"] }, "periodSeconds": 1 });
        container["livenessProbe"] = fails;
        container["livenessProbe"]["failureThreshold"] = json!(1);
        container["readinessProbe"] = succeeds;
        begin_unhealthy(means, container);
        ground.apply(means, spec)?;
    }
    for means in MEANS {
        wait_for_container(&ground, means, "to run", |status| {
            status["state"]["running"].is_object()
        })?;
        ground.event(means, "Unhealthy", "Startup probe failed: ")?;
    }
    holds_for(Duration::from_secs(3), || {
        for means in MEANS {
            let pod = ground.pod(means)?;
            let status = container_status(&pod, "app").context("no status")?;
            ensure!(
                status["started"] == false && status["ready"] == false,
                "{means}: {status}"
            );
            ensure!(status["restartCount"] == 0, "{means}: {status}");
        }
        anyhow::Ok(())
    })?;
    for means in MEANS {
        set_health(&ground, means, true)?;
    }
    // The liveness probe is let loose and ends what the startup probe let pass.
    for means in MEANS {
        wait_for_container(&ground, means, "to be killed for its liveness", |status| {
            status["restartCount"].as_u64() >= Some(1)
        })?;
        ground.event(means, "Killing", "Container app failed liveness probe")?;
    }
    Ok(())
}

#[test]
fn a_failing_startup_probe_kills_within_its_own_grace_and_the_restart_policy_decides() -> Result<()>
{
    let ground = Ground::start(json!({}))?;
    for (name, policy) in [("always", "Always"), ("never", "Never")] {
        let spec = json!({
            "restartPolicy": policy,
            "terminationGracePeriodSeconds": 600,
            "containers": [{
                "name": "app",
                "image": TESTAPP,
                "args": ["--http", "8080", "--on-term", "ignore"],
                "startupProbe": {
                    "httpGet": { "path": "/nowhere", "port": 8080 },
                    "periodSeconds": 1,
                    "failureThreshold": 2,
                    "terminationGracePeriodSeconds": 1,
                },
            }],
        });
        ground.apply(name, spec)?;
    }
    wait_for_container(&ground, "always", "to be restarted", |status| {
        status["restartCount"].as_u64() >= Some(1)
    })?;
    let status = wait_for_container(&ground, "never", "to have ended", |status| {
        status["state"]["terminated"].is_object()
    })?;
    assert_eq!(status["state"]["terminated"]["exitCode"], 137);
    assert_eq!(status["restartCount"], 0);
    assert_eq!(ground.pod("never")?["status"]["phase"], "Failed");
    for (name, words) in [
        (
            "always",
            "Container app failed startup probe, will be restarted",
        ),
        ("never", "Container app failed startup probe"),
    ] {
        ground.event(name, "Killing", words)?;
        // Refused connections at first, perhaps, while the server begins.
        ground.event(name, "Unhealthy", "Startup probe failed: ")?;
    }
    // The server that ignores SIGTERM is killed by the test node's end, but its
    // manifest should not stand in the way of that for ten minutes.
    ground.bulkhead.remove_manifest("always.json")?;
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
fn an_http_probe_asks_as_its_fields_say() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    // On the node's loopback interface, where only a probe with a host goes; by its name,
    // which the prober looks up in its confinement.
    let server = ManifestServer::start(ground.bulkhead.node(), 200, "fine")?;
    let url = server.url();
    let port = url
        .rsplit(':')
        .next()
        .and_then(|rest| rest.split('/').next());
    let port: u16 = port.context("no port")?.parse()?;
    let elsewhere = json!({
        "host": "localhost", "port": port, "path": "http://elsewhere:1/probe?a=b",
        "httpHeaders": [
            { "name": "X-Token", "value": "first" },
            { "name": "X-Token", "value": "second" },
            { "name": "Host", "value": "shop.example" },
        ],
    });
    let named = json!({ "port": "web", "path": "/headers" });
    let redirected = json!({ "port": "web", "path": "/redirect?to=/healthz" });
    for (name, get) in [
        ("elsewhere", elsewhere),
        ("named", named),
        ("redirected", redirected),
    ] {
        let spec = json!({
            "containers": [{
                "name": "app",
                "image": TESTAPP,
                "args": ["--http", "8099"],
                "ports": [{ "name": "web", "containerPort": 8099 }],
                "readinessProbe": { "httpGet": get, "periodSeconds": 1, "failureThreshold": 1 },
            }],
        });
        ground.apply(name, spec)?;
    }
    for name in ["elsewhere", "named", "redirected"] {
        ground.ready(name)?;
    }
    let head = server.last_head();
    let lines: Vec<&str> = head.split("\r\n").collect();
    assert_eq!(lines[0], "GET /probe?a=b HTTP/1.1");
    let lower: Vec<String> = lines.iter().map(|line| line.to_lowercase()).collect();
    for line in [
        "host: shop.example",
        "x-token: first",
        "x-token: second",
        "connection: close",
    ] {
        assert!(lower.iter().any(|found| found == line), "{line}: {head}");
    }
    assert!(
        lower
            .iter()
            .any(|line| line.starts_with("user-agent: kube-probe/")),
        "{head}"
    );
    // 200 to 399 is well, everything else is not.
    for (status, ready) in [(400, false), (399, true), (500, false), (204, true)] {
        server.answer(status, "answer");
        wait_for_ready(&ground, "elsewhere", ready)?;
    }
    ground.event(
        "elsewhere",
        "Unhealthy",
        "HTTP probe failed with statuscode: 500",
    )?;
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

#[test]
fn admission_refuses_in_the_kubelets_words_and_never_touches_what_runs() -> Result<()> {
    let mut ground = Ground::start(json!({ "maxPods": 3 }))?;
    ground.apply("runs", asking(json!({ "cpu": "10m", "memory": "1Mi" })))?;
    let runs = ground.ready("runs")?;
    each_reason_has_its_words(&ground)?;
    // Those that were refused take no room.
    let mut here = asking(json!({}));
    let node = ground.bulkhead.node_name();
    here["nodeSelector"] = json!({ "kubernetes.io/hostname": node, "kubernetes.io/os": "linux" });
    ground.apply("second", here)?;
    ground.ready("second")?;
    ground.apply("third", asking(json!({})))?;
    ground.ready("third")?;
    ground.apply("fourth", asking(json!({})))?;
    refused(
        &ground,
        "fourth",
        "OutOfpods",
        "didn't have enough resource: pods, requested: 1",
    )?;

    // All parts come back to a configuration under which nothing would be
    // admitted: what runs goes on, what was refused stays refused.
    let path = &ground.bulkhead.paths().config;
    let mut configuration: Value = serde_json::from_slice(&std::fs::read(path)?)?;
    configuration["maxPods"] = json!(1);
    std::fs::write(path, configuration.to_string())?;
    ground.bulkhead.kill_all()?;
    ground.bulkhead.start_again()?;
    ground.apply("fifth", asking(json!({})))?;
    refused(&ground, "fifth", "OutOfpods", "pods")?;
    refused(&ground, "cpu", "OutOfcpu", "cpu")?;
    for name in ["runs", "second", "third"] {
        let pod = ground.ready(name)?;
        let status = container_status(&pod, "app").context("no status")?;
        assert_eq!(status["restartCount"], 0, "{name}");
    }
    assert_eq!(
        container_id(&ground.pod("runs")?, "app"),
        container_id(&runs, "app")
    );
    Ok(())
}

/// A pod of one container that requests these resources.
fn asking(requests: Value) -> Value {
    json!({ "containers": [idle(&json!({ "requests": requests }))] })
}

/// Pods that the node cannot take are refused, each with its reason.
fn each_reason_has_its_words(ground: &Ground) -> Result<()> {
    let mut elsewhere = asking(json!({}));
    elsewhere["nodeSelector"] = json!({ "disk": "ssd" });
    let mut other_system = asking(json!({}));
    other_system["os"] = json!({ "name": "windows" });
    for (name, spec, reason, words) in [
        (
            "cpu",
            asking(json!({ "cpu": "1000" })),
            "OutOfcpu",
            "didn't have enough resource: cpu",
        ),
        (
            "memory",
            asking(json!({ "memory": "1000Ti" })),
            "OutOfmemory",
            "didn't have enough resource: memory",
        ),
        (
            "storage",
            asking(json!({ "ephemeral-storage": "100000Ti" })),
            "OutOfephemeral-storage",
            "didn't have enough resource: ephemeral-storage",
        ),
        (
            "selector",
            elsewhere,
            "NodeAffinity",
            "Predicate NodeAffinity failed",
        ),
        (
            "system",
            other_system,
            "PodOSNotSupported",
            "doesn't match node OS",
        ),
    ] {
        ground.apply(name, spec)?;
        refused(ground, name, reason, words)?;
        ground.event(name, reason, words)?;
    }
    Ok(())
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

/// Makes a container of [`pod`] begin without health.
fn begin_unhealthy(means: &str, container: &mut Value) {
    match means {
        "exec" => container["args"] = json!(["--http", "8080"]),
        "tcp" => container["command"] = json!(["sh", "-c", tcp_script(false)]),
        _ => {
            container["args"] = json!([
                "--http",
                "8080",
                "--grpc",
                "9091",
                "--healthy-after-ms",
                "9999999"
            ])
        }
    }
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

fn idle(resources: &Value) -> Value {
    json!({ "name": "app", "image": TESTAPP, "resources": resources })
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

/// Waits until a pod is refused for this reason, and checks that it never ran.
fn refused(ground: &Ground, name: &str, reason: &str, words: &str) -> Result<()> {
    let pod = ground
        .bulkhead
        .wait_for_pod(name, "to be refused", TIMEOUT, |pod| {
            if pod["status"]["phase"] == "Failed" {
                Ok(pod.clone())
            } else {
                Err(String::new())
            }
        })?;
    assert_eq!(pod["status"]["reason"], reason, "{name}: {pod}");
    let message = pod["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains(words), "{name}: {message}");
    assert_eq!(container_id(&pod, "app"), None, "{name}: {pod}");
    Ok(())
}
