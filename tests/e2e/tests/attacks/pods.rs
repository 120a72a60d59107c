//! Pods that would make their owner a part of the agent or of the runtime: each as a
//! manifest, and as what sync-loop asks the pool for after somebody took it over.

use std::path::Path;

use anyhow::{Context as _, Result};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use serde_json::{Value, json};
use test_support::images::{AGENT_USER, BUSYBOX, TESTAPP_AGENT_NAME, TESTAPP_AGENT_NUMBER};
use test_support::{BulkheadOptions, wait_for};
use topology::{Identities, Process};

use super::intruder::{Known, call, hashes, sleeper, update};

/// A pod with this path of the node.
fn with_host_path(path: &Path, read_only: bool) -> Value {
    json!({
        "containers": [{
            "name": "app", "image": BUSYBOX, "command": ["sleep", "1000000"],
            "volumeMounts": [{ "name": "v", "mountPath": "/v", "readOnly": read_only }],
        }],
        "volumes": [{ "name": "v", "hostPath": { "path": path } }],
    })
}

/// A pod whose container is of this image and has this security context.
fn with_user(image: &str, context: &Value) -> Value {
    let mut container = json!({ "name": "app", "image": image, "securityContext": context });
    if image == BUSYBOX {
        container["command"] = json!(["sleep", "1000000"]);
    }
    json!({ "containers": [container] })
}

/// The pods, by name, and a word of the rule that refuses each.
fn hostile(ground: &Ground) -> Result<Vec<(&'static str, Value, String)>> {
    let paths = ground.bulkhead.paths();
    let socket = ground.containerd.endpoint().replace("unix://", "");
    let socket = Path::new(&socket);
    let parent = socket.parent().context("the socket is in no directory")?;
    let identities = Identities::from_base(ground.bulkhead.uid_base())?;
    let user = identities.uid(Process::ConfigSourcer);
    let own = paths.state.join(Process::ConfigSourcer.name());
    let path_word = |path: &Path| path.display().to_string();
    Ok(vec![
        (
            "socket",
            with_host_path(socket, false),
            "the container runtime's socket".to_owned(),
        ),
        (
            "socket-directory",
            with_host_path(parent, true),
            path_word(parent),
        ),
        (
            "state",
            with_host_path(&paths.state, false),
            path_word(&paths.state),
        ),
        ("state-of-one", with_host_path(&own, true), path_word(&own)),
        (
            "run",
            with_host_path(&paths.run, true),
            path_word(&paths.run),
        ),
        (
            "user-by-number",
            with_user(BUSYBOX, &json!({ "runAsUser": user })),
            "runAsUser".to_owned(),
        ),
        (
            "group-by-number",
            with_user(BUSYBOX, &json!({ "runAsUser": 1000, "runAsGroup": user })),
            "runAs".to_owned(),
        ),
        (
            "image-by-number",
            with_user(TESTAPP_AGENT_NUMBER, &json!({})),
            format!("user {AGENT_USER}"),
        ),
        (
            "image-by-name",
            with_user(TESTAPP_AGENT_NAME, &json!({})),
            format!("user {AGENT_USER}"),
        ),
    ])
}

/// Why a pod is not run: as its container tells, or as its manifest was refused.
fn refusal(ground: &Ground, name: &str) -> Result<String, String> {
    let pod = ground.bulkhead.pod(name);
    let pod = pod.map_err(|error| format!("{error:#}"))?;
    if let Some(pod) = pod {
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        let reason = waiting["reason"].as_str().unwrap_or_default();
        return match ["RefusedByNodePolicy", "CreateContainerError"].contains(&reason) {
            true => Ok(waiting["message"].as_str().unwrap_or_default().to_owned()),
            false => Err(pod["status"].to_string()),
        };
    }
    let status = ground.printed(&["loop"]);
    let status = status.map_err(|error| format!("{error:#}"))?;
    let file = format!("{name}.json");
    let line = status.lines().find(|line| line.contains(&file));
    line.map(str::to_owned).ok_or(status)
}

#[test]
fn no_pod_gets_the_runtime_or_the_agent_however_it_is_asked_for() -> Result<()> {
    // All that a level gives, and no grant: what is refused here is refused to everybody.
    let options = BulkheadOptions {
        policy: Some("sources = { file = \"privileged\" }\n".to_owned()),
        // The third user after the base is pleg's; images of the tests have it.
        uid_base: Some(AGENT_USER - 3),
        ..BulkheadOptions::default()
    };
    let ground = Ground::start_with(&options)?;
    ground.apply("plain", sleeper(None))?;
    let plain = Known::of(&ground, "plain")?;
    let hostile = hostile(&ground)?;
    for (name, spec, _) in &hostile {
        ground.apply(name, spec.clone())?;
    }
    for (name, _, word) in &hostile {
        let what = format!("{name} to be refused because of {word:?}");
        wait_for(&what, TIMEOUT, || match refusal(&ground, name) {
            Ok(message) if message.contains(word) => Ok(()),
            Ok(other) | Err(other) => Err(other),
        })
        .with_context(|| ground.bulkhead.log_ends())?;
    }
    // Whoever has sync-loop may ask for any of them as often as it likes.
    let hashes = hashes(&ground)?;
    let mut asked = 0;
    for (name, ..) in &hostile {
        let Some(pod) = ground.bulkhead.pod(name)? else {
            continue;
        };
        let uid = pod["metadata"]["uid"].as_str().context("no uid")?;
        let hash = hashes.get(uid).context("no hash")?;
        let pod = Known {
            uid: uid.to_owned(),
            name: ground.full_name(name),
            hash: hash.clone(),
            container: String::new(),
        };
        for kind in ["create", "update", "sync", "kill", "create"] {
            let answer = update(&ground, kind, &pod, hash)?;
            assert!(answer.starts_with("Ok "), "{name} {kind}: {answer}");
            asked += 1;
        }
        // As another pod, which is permitted.
        let answer = update(&ground, "create", &plain, hash)?;
        assert!(!answer.starts_with("Ok "), "{name} as plain: {answer}");
        // And a probe of its command.
        let words = ["probe", &pod.uid, "app", &plain.container];
        let answer = call(&ground, Process::Prober, Process::PodWorkerPool, &words)?;
        assert!(answer.starts_with("NotFound"), "{name}: {answer}");
    }
    assert!(asked > 0, "sync-loop could ask for none of them");
    // By now the pool has done what it was asked for: a pod that came last runs.
    ground.apply("last", sleeper(None))?;
    ground.ready("last")?;
    for (name, ..) in &hostile {
        let containers = ground.containers(name)?;
        assert!(containers.is_empty(), "{name}: {containers:?}");
    }
    assert_eq!(ground.running("plain")?, 1);
    Ok(())
}

/// Pods that are small as text: beyond the bound for items of lists, or as large as that
/// lets them be where each item costs most.
fn large() -> Vec<(String, Value)> {
    let container = |name: usize| json!({"name": format!("c{name}"), "image": "absent:1", "imagePullPolicy": "Never"});
    let mut many_ports = sleeper(None);
    let mut many_demands = sleeper(None);
    let mut many_media = sleeper(None);
    let add = vec!["A"; 9_900];
    many_demands["containers"][0]["securityContext"] = json!({"capabilities": {"add": add}});
    let volume =
        |name: usize| json!({"name": format!("v{name}"), "emptyDir": {"medium": "Memory"}});
    many_media["volumes"] = (0..500).map(volume).collect();
    let mut containers = many_media["containers"].take();
    let limited = (0..480).map(|name| {
        let mut container = container(name);
        container["resources"] = json!({"limits": {"memory": "1"}});
        container
    });
    containers
        .as_array_mut()
        .into_iter()
        .for_each(|all| all.extend(limited.clone()));
    many_media["containers"] = containers;
    let mut pods = vec![
        (
            "volumes".to_owned(),
            json!({"containers": [], "volumes": vec![json!({}); 60_000]}),
        ),
        ("demands".to_owned(), many_demands),
        ("media".to_owned(), many_media),
    ];
    for pod in 0..10 {
        let first = 1 + pod % 6 * 9_900;
        let protocol = if pod < 6 { "TCP" } else { "UDP" };
        let port = |port: i32| json!({"containerPort": 1, "hostPort": port, "protocol": protocol});
        many_ports["containers"][0]["ports"] = (first..first + 9_900).map(port).collect();
        pods.push((format!("ports-{pod}"), many_ports.clone()));
    }
    pods
}

#[test]
fn pods_that_are_large_only_as_typed_ones_keep_no_process_from_its_work() -> Result<()> {
    let options = BulkheadOptions {
        policy: Some("sources = { file = \"baseline\" }\n".to_owned()),
        ..BulkheadOptions::default()
    };
    let ground = Ground::start_with(&options)?;
    for (name, spec) in large() {
        ground.apply(&name, spec)?;
    }
    for (name, words) in [
        ("volumes", "more than 100000 items in lists"),
        ("demands", "capability"),
        ("ports-9", "hostPort"),
    ] {
        let what = format!("{name} to be refused because of {words:?}");
        wait_for(&what, TIMEOUT, || match refusal(&ground, name) {
            Ok(message) if message.contains(words) => Ok(()),
            Ok(other) | Err(other) => Err(other),
        })
        .with_context(|| ground.bulkhead.log_ends())?;
    }
    ground.apply("last", sleeper(None))?;
    ground.ready("last")?;
    let processes = ground.bulkhead.processes()?;
    let restarts: u64 = processes.iter().map(|each| each.restarts_total).sum();
    assert_eq!(restarts, 0, "{processes:?}");
    Ok(())
}
