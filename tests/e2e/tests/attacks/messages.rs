//! Calls as the user of sync-loop or prober, with messages that are valid.

use anyhow::Result;
use e2e::Ground;
use e2e::ground::TIMEOUT;
use serde_json::json;
use test_support::{BulkheadOptions, wait_for};
use topology::Process;

use super::intruder::{Known, call, ids, sleeper, update};

const STRANGER: &str = "0c7f1f7e-6a1b-4a53-8d0e-1f0b7a8c9d10";

#[test]
fn who_owns_sync_loop_can_neither_invent_a_pod_nor_alter_one() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    ground.apply("one", sleeper(None))?;
    ground.apply("two", sleeper(None))?;
    let (one, two) = (Known::of(&ground, "one")?, Known::of(&ground, "two")?);
    // The calls themselves are good ones.
    let answer = update(&ground, "sync", &one, &one.hash)?;
    assert!(answer.starts_with("Ok Syncing"), "{answer}");

    let invented = Known {
        uid: STRANGER.to_owned(),
        name: "invented".to_owned(),
        hash: one.hash.clone(),
        container: String::new(),
    };
    let another_name = Known {
        uid: one.uid.clone(),
        name: two.name.clone(),
        hash: two.hash.clone(),
        container: String::new(),
    };
    let no_hash = "0".repeat(64);
    for kind in ["create", "update", "sync"] {
        for (pod, hash, code) in [
            (&invented, one.hash.as_str(), "NotFound"),
            (&invented, no_hash.as_str(), "NotFound"),
            (&one, no_hash.as_str(), "Aborted"),
            (&one, two.hash.as_str(), "Aborted"),
            (&one, "", "FailedPrecondition"),
            (&invented, "", "FailedPrecondition"),
            (&another_name, two.hash.as_str(), "Aborted"),
            (&another_name, one.hash.as_str(), "InvalidArgument"),
        ] {
            let answer = update(&ground, kind, pod, hash)?;
            assert!(
                answer.starts_with(code),
                "{kind} {} {hash}: {answer}",
                pod.name
            );
        }
    }
    for pod in [("one", &one), ("two", &two)] {
        let (name, known) = pod;
        assert_eq!(
            ids(&ground, name)?,
            [known.container.as_str()],
            "not touched"
        );
    }
    assert!(ground.containers("invented")?.is_empty());
    let pods = ground.bulkhead.pods()?;
    assert_eq!(pods.len(), 2, "{pods:?}");
    Ok(())
}

#[test]
fn who_owns_node_api_enters_no_pod_that_the_policy_does_not_let_it_enter() -> Result<()> {
    let grant = "[[grants]]\npods = [\"default/wide\"]\nhostNetwork = true\n";
    let ground = Ground::start_with(&BulkheadOptions {
        policy: Some(grant.to_owned()),
        ..BulkheadOptions::default()
    })?;
    let mut wide = sleeper(None);
    wide["hostNetwork"] = json!(true);
    ground.apply("plain", sleeper(None))?;
    ground.apply("wide", wide)?;
    let run = |caller, pod: &str| {
        let name = ground.full_name(pod);
        let words = ["run", "default", &name, "app", "/bin/true"];
        call(&ground, caller, Process::PodWorkerPool, &words)
    };
    for pod in ["plain", "wide"] {
        Known::of(&ground, pod)?;
    }
    assert_eq!(run(Process::NodeApi, "plain")?, "Ok exit 0\n");
    let refused = run(Process::NodeApi, "wide")?;
    assert!(refused.starts_with("PermissionDenied"), "{refused}");
    assert!(refused.contains("exec = true"), "{refused}");
    // What it did stands in the log, with the caller that it named.
    let log = ground.bulkhead.log(Process::PodWorkerPool);
    assert!(log.contains("requester=\"somebody else\""), "{log}");
    // It can neither start, stop nor alter a pod.
    let pod = Known::of(&ground, "plain")?;
    let words = ["update", "kill", &pod.uid, "default", &pod.name, ""];
    let answer = call(&ground, Process::NodeApi, Process::PodWorkerPool, &words)?;
    assert!(answer.starts_with("PermissionDenied"), "{answer}");
    // Nor read what sources have.
    let answer = call(&ground, Process::NodeApi, Process::ConfigSourcer, &["pods"])?;
    assert!(answer.starts_with("PermissionDenied"), "{answer}");
    Ok(())
}

#[test]
fn nobody_has_a_command_run_that_the_pod_does_not_define() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let probe = json!({ "exec": { "command": ["sh", "-c", "exit 0"] }, "periodSeconds": 1 });
    ground.apply("probed", sleeper(Some(probe)))?;
    ground.apply("plain", sleeper(None))?;
    let probed = Known::of(&ground, "probed")?;
    let plain = Known::of(&ground, "plain")?;
    let probe = |caller, uid: &str, container: &str, id: &str| {
        let words = ["probe", uid, container, id];
        call(&ground, caller, Process::PodWorkerPool, &words)
    };
    // The request names a probe; there is no place in it for a command.
    wait_for("the probe to be known", TIMEOUT, || {
        let answer = probe(Process::Prober, &probed.uid, "app", &probed.container);
        let answer = answer.map_err(|error| format!("{error:#}"))?;
        if answer.starts_with("Ok exit 0") {
            Ok(())
        } else {
            Err(answer)
        }
    })?;
    // Nobody else may ask.
    for caller in Process::ALL {
        if ![Process::Prober, Process::Supervisor, Process::PodWorkerPool].contains(&caller) {
            let answer = probe(caller, &probed.uid, "app", &probed.container)?;
            assert!(answer.starts_with("PermissionDenied"), "{caller}: {answer}");
        }
    }
    for (uid, container, id) in [
        // It has no probe.
        (&plain.uid, "app", &plain.container),
        // Its probe in the container of another pod, and the other way round.
        (&probed.uid, "app", &plain.container),
        (&plain.uid, "app", &probed.container),
        (&probed.uid, "other", &probed.container),
    ] {
        let answer = probe(Process::Prober, uid, container, id)?;
        assert!(
            answer.starts_with("NotFound"),
            "{uid} {container} {id}: {answer}"
        );
    }
    Ok(())
}
