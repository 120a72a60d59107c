//! What `bulkhead` says of pods that do not start: what is waited for or failed.

use std::fs;

use anyhow::{Context as _, Result};
use cri::RuntimeReads as _;
use e2e::Ground;
use e2e::ground::TIMEOUT;
use serde_json::{Value, json};
use test_support::images::BUSYBOX;
use test_support::wait_for;

fn container(name: &str, more: &Value) -> Value {
    let mut container = json!({ "name": name, "image": BUSYBOX, "command": ["sleep", "1000"] });
    for (key, value) in more.as_object().into_iter().flatten() {
        container[key] = value.clone();
    }
    container
}

fn with_volume(source: &Value) -> Value {
    let mut volume = source.clone();
    volume["name"] = json!("v");
    let mounts = json!({ "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
    json!({ "containers": [container("c", &mounts)], "volumes": [volume] })
}

fn of_one(more: &Value) -> Value {
    json!({ "containers": [container("c", more)] })
}

/// Pods that do not start, with what is said of them: under Needs Attention, what to do,
/// and instead of a log; nothing of that where there is one.
const SITUATIONS: [(&str, [&str; 3]); 8] = [
    (
        "path",
        [
            "The pod:          FailedMount: ",
            "make what the message names",
            "is not a directory",
        ],
    ),
    (
        "map",
        [
            "The pod:          FailedMount: ",
            "make what the message names",
            "\"absent\" not found",
        ],
    ),
    (
        "claim",
        [
            "The pod:          FailedMount: ",
            "make what the message names",
            "the claim \"absent\"",
        ],
    ),
    (
        "users",
        [
            "The pod:          FailedCreatePodSandBox: ",
            "take hostUsers: false out",
            "user namespaces",
        ],
    ),
    (
        "sandbox",
        [
            "The pod:          FailedCreatePodSandBox: ",
            "network plugin",
            "ip_local_port_range",
        ],
    ),
    (
        "hook",
        [
            "d:                the postStart hook of c comes first",
            "wait for it",
            "",
        ],
    ),
    (
        "program",
        [
            "c:                CrashLoopBackOff: it could not be started (StartError): ",
            "check command",
            "stat /absent",
        ],
    ),
    (
        "root",
        [
            "c:                CreateContainerConfigError: ",
            "a runAsUser other than 0",
            "runAsNonRoot",
        ],
    ),
];

/// The spec of one of them.
fn spec(name: &str, file: &str) -> Value {
    let absent = json!({ "name": "absent" });
    match name {
        "path" => with_volume(&json!({ "hostPath": { "path": file, "type": "Directory" } })),
        "map" => with_volume(&json!({ "configMap": absent })),
        "claim" => with_volume(&json!({ "persistentVolumeClaim": { "claimName": "absent" } })),
        "users" => json!({ "hostUsers": false, "containers": [container("c", &json!({}))] }),
        "sandbox" => {
            let sysctl = json!({ "name": "net.ipv4.ip_local_port_range", "value": "none" });
            json!({
                "securityContext": { "sysctls": [sysctl] },
                "containers": [container("c", &json!({}))],
            })
        }
        "hook" => {
            let hook = json!({ "postStart": { "exec": { "command": ["sleep", "900"] } } });
            let first = container("c", &json!({ "lifecycle": hook }));
            json!({ "containers": [first, container("d", &json!({}))] })
        }
        "program" => of_one(&json!({ "command": ["/absent"] })),
        _ => of_one(&json!({ "securityContext": { "runAsNonRoot": true } })),
    }
}

#[test]
fn a_pod_that_does_not_start_says_why() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let file = ground.bulkhead.paths().shared.join("file");
    fs::write(&file, "")?;
    let client = ground.containerd.client();
    let status = ground.containerd.block_on(client.status(false))?;
    let mut handlers = status
        .runtime_handlers
        .into_iter()
        .filter_map(|it| it.features);
    let has_user_namespaces = handlers.any(|features| features.user_namespaces);
    let mut situations = SITUATIONS.to_vec();
    situations.retain(|(name, _)| *name != "users" || !has_user_namespaces);
    for (name, _) in &situations {
        ground.apply(name, spec(name, &file.display().to_string()))?;
    }
    for (name, [attention, remedy, instead_of_log]) in &situations {
        wait_for(&format!("{name} to say why"), TIMEOUT, || {
            let described = ground.printed(&["describe", name]);
            let described = described.map_err(|error| format!("{error:#}"))?;
            let (_, told) = described.split_once("Needs Attention:").unwrap_or_default();
            let (told, _) = told.split_once("\nContainers:").unwrap_or_default();
            let says_how_often = told.contains(" times, the last ") || *name == "hook";
            let says = [attention, remedy]
                .iter()
                .all(|words| told.contains(**words));
            let is_settled = !described.contains("the pod is as desired");
            match says && says_how_often && told.contains("Since:") && is_settled {
                true => Ok(()),
                false => Err(described),
            }
        })?;
        let log = ground.bulkhead.command_line(&["logs", name, "-c", "c"])?;
        assert_eq!(log.stdout, "", "{name}");
        assert!(
            log.stderr.contains(instead_of_log),
            "{name}: {}",
            log.stderr
        );
        assert_eq!(
            log.stderr.is_empty(),
            instead_of_log.is_empty(),
            "{name}: {}",
            log.stderr
        );
    }
    Ok(())
}

#[test]
fn pods_of_one_name_are_told_apart_while_one_of_them_ends() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let with_grace = |seconds: u32| {
        let mut spec = of_one(&json!({}));
        spec["terminationGracePeriodSeconds"] = json!(seconds);
        spec
    };
    ground.apply("twice", with_grace(600))?;
    ground.bulkhead.wait_until_pod_ready("twice", TIMEOUT)?;
    ground.apply("twice", with_grace(1))?;
    let ambiguous = wait_for("two pods of one name", TIMEOUT, || {
        let output = ground.bulkhead.command_line(&["describe", "twice"]);
        let output = output.map_err(|error| format!("{error:#}"))?;
        match output
            .stderr
            .contains("2 pods are called twice; give the UID of one: ")
        {
            true => Ok(output.stderr),
            false => Err(output.stdout + &output.stderr),
        }
    })?;
    let told: Vec<&str> = ambiguous.split(['(', ')']).skip(1).step_by(2).collect();
    let [one, other] = told[..] else {
        anyhow::bail!("{ambiguous}")
    };
    let is_new = |told: &&str| told.ends_with(" old, Pending");
    let new = [one, other].into_iter().find(is_new);
    let uid = new.and_then(|told| told.split(',').next());
    let uid = uid.with_context(|| ambiguous.clone())?;
    let waits = "it waits until the other pod that is called twice-node";
    let described = ground.printed(&["describe", uid])?;
    assert!(described.contains(waits), "{described}");
    let log = ground.bulkhead.command_line(&["logs", uid])?;
    assert!(log.stderr.contains(waits), "{}", log.stderr);
    Ok(())
}
