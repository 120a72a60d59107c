//! Parts of volumes that containers mount: what they find there, and what nobody who
//! changes links in a volume can make them find.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::Ground;
use e2e::ground::TIMEOUT;
use e2e::volumes::{config_error, mounts_below, pod_directory, shell, wait_until_removed};
use nix::fcntl::{RenameFlags, renameat2};
use serde_json::{Value, json};
use test_support::images::BUSYBOX;
use test_support::observe::container_status;
use topology::Process;

/// How long links are swapped, in seconds; a few by default.
const SECONDS: &str = "BULKHEAD_RENAMER_SECONDS";

/// Pods that are started at once while links are swapped.
const AT_ONCE: usize = 4;

/// A pod that mounts parts of three volumes.
fn pod_of_parts(shared: &Path) -> Value {
    let mut reader = shell(
        "shell",
        &json!([
            { "name": "own", "mountPath": "/all" },
            { "name": "own", "mountPath": "/new", "subPath": "new/deep" },
            { "name": "own", "mountPath": "/made", "subPath": "by-init" },
            { "name": "own", "mountPath": "/of-pod", "subPathExpr": "logs/$(POD)" },
            { "name": "node", "mountPath": "/conf", "subPath": "conf", "readOnly": true },
            { "name": "node", "mountPath": "/file", "subPath": "conf/file" },
            { "name": "settings", "mountPath": "/etc/color", "subPath": "color" },
        ]),
    );
    reader["env"] = json!([
        { "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
    ]);
    let init = json!({
        "name": "init", "image": BUSYBOX, "command": ["sh", "-c", "echo hello > /v/by-init"],
        "volumeMounts": [{ "name": "own", "mountPath": "/v" }],
    });
    json!({
        "initContainers": [init],
        "containers": [reader],
        "volumes": [
            { "name": "own", "emptyDir": {} },
            { "name": "node", "hostPath": { "path": shared, "type": "Directory" } },
            { "name": "settings", "configMap": { "name": "settings" } },
        ],
    })
}

#[test]
fn parts_of_volumes_are_found_where_the_pod_says_and_go_with_it() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let shared = ground.bulkhead.paths().shared.join("volume");
    fs::create_dir_all(shared.join("conf"))?;
    fs::write(shared.join("conf/file"), "of the node")?;
    let settings = json!({ "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "settings" }, "data": { "color": "red" } });
    ground
        .bulkhead
        .write_object("settings.json", &settings.to_string())?;
    ground.apply("parts", pod_of_parts(&shared))?;
    let pod = ground.ready("parts")?;
    let run = |ground: &Ground, script: &str| ground.exec("parts", "shell", &["sh", "-c", script]);
    let read = "cat /made /conf/file /file /etc/color";
    assert_eq!(run(&ground, read)?, "hello\nof the nodeof the nodered");
    run(
        &ground,
        "echo a > /new/a; echo b > /of-pod/b; echo changed > /file",
    )?;
    let full_name = ground.full_name("parts");
    let seen = run(
        &ground,
        &format!("cat /all/new/deep/a /all/logs/{full_name}/b"),
    )?;
    assert_eq!(seen, "a\nb\n");
    assert_eq!(
        run(&ground, "stat -c %a /new /of-pod /all/new")?,
        "777\n777\n777\n"
    );
    assert_eq!(fs::read_to_string(shared.join("conf/file"))?, "changed\n");
    assert!(
        run(&ground, "touch /conf/x").is_err(),
        "it is mounted read-only"
    );
    // Nothing of the host name of a subPath is told to the container but the part.
    assert_eq!(run(&ground, "ls -A /new")?, "a\n");

    // Another process finds what is bound, for a container that is started again.
    ground.bulkhead.kill(Process::PodWorkerPool)?;
    // The container may end before the command that ends it does; what counts is awaited.
    let _ = run(&ground, "kill -TERM 1");
    let what = "to run again after a restart";
    ground
        .bulkhead
        .wait_for_pod("parts", what, TIMEOUT, |pod| {
            let status = container_status(pod, "shell").ok_or("no status")?;
            let runs = status["state"]["running"].is_object() && status["restartCount"] == 1;
            runs.then_some(()).ok_or_else(|| status.to_string())
        })?;
    assert_eq!(
        run(&ground, "cat /new/a /made /etc/color")?,
        "a\nhello\nred"
    );

    let directory = pod_directory(&ground, &pod)?;
    let parts = directory.join("volume-subpaths");
    assert_eq!(mounts_below(&ground, &parts)?.len(), 6);
    ground.remove("parts")?;
    wait_until_removed(&directory)?;
    assert_eq!(mounts_below(&ground, &directory)?, Vec::<String>::new());
    assert_eq!(fs::read_to_string(shared.join("conf/file"))?, "changed\n");
    Ok(())
}

/// A pod whose container says by its exit code whether it found what it should: 0, or else
/// 3. It may take long to be made, and runs once.
fn looker() -> Value {
    let look = "test \"$(cat /v/mine)\" = mine && test ! -e /v/canary && test ! -e /v/proc \
                && exit 0; exit 3";
    json!({
        "restartPolicy": "Never",
        "containers": [{
            "name": "look", "image": BUSYBOX, "command": ["sh", "-c", look],
            "volumeMounts": [{ "name": "v", "mountPath": "/v", "subPath": "part" }],
        }],
    })
}

#[test]
fn a_link_out_of_its_volume_is_refused_in_words() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let pods = [
        ("root", "/"),
        ("up", "../../../../.."),
        ("proc", "/proc/1/root"),
    ];
    for (name, target) in pods {
        let mut spec = looker();
        let script = format!("ln -s {target} /v/part");
        spec["volumes"] = json!([{ "name": "v", "emptyDir": {} }]);
        spec["initContainers"] = json!([{
            "name": "init", "image": BUSYBOX, "command": ["sh", "-c", script],
            "volumeMounts": [{ "name": "v", "mountPath": "/v" }],
        }]);
        ground.apply(name, spec)?;
    }
    for (name, _) in pods {
        let message = config_error(&ground, name, "look")?;
        let words = "failed to prepare subPath for volumeMount \"v\" of container \"look\"";
        assert!(message.contains(words), "{message}");
        assert!(message.contains("it leads out of the volume"), "{message}");
    }
    Ok(())
}

/// What became of pods of [`looker`].
#[derive(Debug, Default)]
struct Outcomes {
    looked: usize,
    refused: usize,
}

/// Starts some pods and waits until each has looked, or has been refused.
fn look(ground: &Ground, round: usize, source: &Value, outcomes: &mut Outcomes) -> Result<()> {
    let names: Vec<String> = (0..AT_ONCE)
        .map(|it| format!("look-{round}-{it}"))
        .collect();
    for name in &names {
        let mut spec = looker();
        spec["volumes"] = json!([source]);
        ground.apply(name, spec)?;
    }
    for name in &names {
        let what = "to have looked or to be refused";
        let code = ground.bulkhead.wait_for_pod(name, what, TIMEOUT, |pod| {
            let status = container_status(pod, "look").ok_or("no status")?;
            let state = &status["state"];
            let refused = state["waiting"]["reason"] == "CreateContainerConfigError";
            let code = state["terminated"]["exitCode"].as_u64();
            match (code, refused) {
                (None, false) => Err(status.to_string()),
                (code, _) => Ok(code),
            }
        })?;
        match code {
            Some(code) => {
                assert_eq!(code, 0, "{name} saw something else than its volume");
                outcomes.looked += 1;
            }
            None => outcomes.refused += 1,
        }
    }
    for name in &names {
        ground.remove(name)?;
    }
    Ok(())
}

/// Somebody swaps the part of the volume for a link to the root of the node, and back, the
/// whole time.
#[test]
fn nobody_who_swaps_links_shows_a_container_the_node() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let volume = ground.bulkhead.paths().shared.join("volume");
    fs::create_dir_all(volume.join("part"))?;
    fs::set_permissions(&volume, fs::Permissions::from_mode(0o777))?;
    fs::write(volume.join("part/mine"), "mine")?;
    fs::write(volume.join("canary"), "of the volume, not of the part")?;
    symlink("/", volume.join("out"))?;
    let source = json!({ "name": "v", "hostPath": { "path": volume, "type": "Directory" } });
    let seconds = std::env::var(SECONDS).ok();
    let seconds = seconds.and_then(|it| it.parse().ok()).unwrap_or(4);
    let top = File::open(&volume)?;
    let (done, mut outcomes) = (AtomicBool::new(false), Outcomes::default());
    let result = thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat2(&top, "part", &top, "out", RenameFlags::RENAME_EXCHANGE)?;
                thread::yield_now();
            }
            Ok::<(), nix::Error>(())
        });
        let until = Instant::now() + Duration::from_secs(seconds);
        let mut round = 0;
        // Both have to be seen for the test to mean anything.
        let result = loop {
            if let Err(error) = look(&ground, round, &source, &mut outcomes) {
                break Err(error);
            }
            round += 1;
            let is_enough = outcomes.looked > 0 && outcomes.refused > 0;
            if Instant::now() >= until && (is_enough || round >= 50) {
                break Ok(());
            }
        };
        done.store(true, Ordering::Relaxed);
        swapper.join().expect("the swapper panicked")?;
        result
    });
    result?;
    assert!(outcomes.looked > 0 && outcomes.refused > 0, "{outcomes:?}");
    Ok(())
}
