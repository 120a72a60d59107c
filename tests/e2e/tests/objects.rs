//! ConfigMaps and Secrets of the node: what pods see of them, when, and where their content
//! is and is not.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use serde_json::{Value, json};
use test_support::images::BUSYBOX;
use test_support::observe::container_status;
use test_support::wait_for;
use topology::Process;

const PASSWORD: &str = "correct-horse-battery";
const NEW_PASSWORD: &str = "staple-of-another-kind";

fn object(kind: &str, name: &str, data: &Value) -> String {
    let field = if kind == "Secret" {
        "stringData"
    } else {
        "data"
    };
    let metadata = json!({ "name": name });
    json!({ "apiVersion": "v1", "kind": kind, "metadata": metadata, field: data }).to_string()
}

fn shell(more: &Value) -> Value {
    let mut container = json!({
        "name": "shell", "image": BUSYBOX,
        "command": ["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 0.1; done"],
    });
    let fields = container.as_object_mut().expect("a container");
    fields.extend(more.as_object().expect("fields").clone());
    container
}

/// Waits until a script in the pod prints this.
fn prints(ground: &Ground, pod: &str, script: &str, expected: &str) -> Result<()> {
    let printed = wait_for(&format!("{script} to print {expected:?}"), TIMEOUT, || {
        let found = ground.exec(pod, "shell", &["sh", "-c", script]);
        let found = found.map_err(|error| format!("{error:#}"))?;
        (found == expected).then_some(()).ok_or(found)
    });
    printed.with_context(|| ground.bulkhead.log_ends())
}

/// The files below a directory that have one of these words in them.
fn files_with(directory: &Path, words: &[&str]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let kind = path.symlink_metadata()?.file_type();
        if kind.is_dir() {
            found.extend(files_with(&path, words)?);
        } else if kind.is_file() {
            let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
            if words.iter().any(|word| text.contains(word)) {
                found.push(path.display().to_string());
            }
        }
    }
    Ok(found)
}

/// A pod that has both objects as files of three volumes, and as variables.
fn reader_of_objects() -> Value {
    let mounts = json!([
        { "name": "settings", "mountPath": "/settings" },
        { "name": "login", "mountPath": "/login" },
        { "name": "all", "mountPath": "/all" },
    ]);
    let container = shell(&json!({
        "volumeMounts": mounts,
        "envFrom": [{ "prefix": "S_", "configMapRef": { "name": "settings" } }],
        "env": [
            { "name": "PASSWORD", "valueFrom": { "secretKeyRef": { "name": "login", "key": "password" } } },
            { "name": "NONE", "valueFrom": { "configMapKeyRef":
                { "name": "none", "key": "k", "optional": true } } },
        ],
    }));
    json!({
        "containers": [container],
        "volumes": [
            { "name": "settings", "configMap": { "name": "settings" } },
            { "name": "login", "secret": { "secretName": "login", "defaultMode": 0o400 } },
            { "name": "all", "projected": { "sources": [
                { "configMap": { "name": "settings", "items": [{ "key": "color", "path": "a/color" }] } },
                { "secret": { "name": "login" } },
                { "secret": { "name": "none", "optional": true } },
            ] } },
        ],
    })
}

/// None of these words is in a file of the node, or in an event of the pod.
fn keeps_to_itself(ground: &Ground, pod: &str, words: &[&str]) -> Result<()> {
    let paths = ground.bulkhead.paths();
    for directory in [&paths.state, &paths.run, &paths.log, &paths.root] {
        // The host does not see what is mounted in the node: in volumes on the disk is none.
        assert_eq!(
            files_with(directory, words)?,
            Vec::<String>::new(),
            "{directory:?}"
        );
    }
    for (reason, message) in ground.events_of(pod)? {
        assert!(
            !words.iter().any(|word| message.contains(word)),
            "{reason}: {message}"
        );
    }
    Ok(())
}

#[test]
fn objects_are_seen_as_files_and_variables_and_follow_their_manifests() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let settings = |color: &str| {
        object(
            "ConfigMap",
            "settings",
            &json!({ "color": color, "size": "4" }),
        )
    };
    let login = |password: &str| object("Secret", "login", &json!({ "password": password }));
    ground
        .bulkhead
        .write_object("settings.json", &settings("red"))?;
    ground
        .bulkhead
        .write_object("login.json", &login(PASSWORD))?;
    ground.apply("reader", reader_of_objects())?;
    ground.ready("reader")?;
    let sh = |script: &str| ground.exec("reader", "shell", &["sh", "-c", script]);
    assert_eq!(sh("cd /settings; grep . *")?, "color:red\nsize:4\n");
    assert_eq!(sh("cat /login/password /all/password")?, PASSWORD.repeat(2));
    assert_eq!(sh("cat /all/a/color")?, "red");
    assert_eq!(
        sh("stat -L -c %a /login/password /settings/size")?,
        "400\n644\n"
    );
    assert_eq!(
        sh("echo $S_color $S_size $PASSWORD ${NONE-unset}")?,
        format!("red 4 {PASSWORD} unset\n")
    );
    let in_memory = sh("grep -E ' /(login|all) tmpfs ro,' /proc/mounts | wc -l")?;
    assert_eq!(in_memory.trim(), "2");

    // The pool is killed right after the change, and config-sourcer after another one.
    let seen = "cat /settings/color /all/a/color /login/password";
    ground
        .bulkhead
        .write_object("settings.json", &settings("blue"))?;
    ground
        .bulkhead
        .write_object("login.json", &login(NEW_PASSWORD))?;
    ground.bulkhead.kill(Process::PodWorkerPool)?;
    prints(&ground, "reader", seen, &format!("blueblue{NEW_PASSWORD}"))?;
    ground
        .bulkhead
        .write_object("settings.json", &settings("green"))?;
    ground.bulkhead.kill(Process::ConfigSourcer)?;
    prints(
        &ground,
        "reader",
        seen,
        &format!("greengreen{NEW_PASSWORD}"),
    )?;

    let published = ground.pod("reader")?;
    let status = container_status(&published, "shell").context("no status")?;
    assert_eq!(status["restartCount"], 0);
    keeps_to_itself(&ground, "reader", &[PASSWORD, NEW_PASSWORD])
}

#[test]
fn a_pod_waits_for_its_objects_and_goes_on_when_they_come() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let volume = json!([{ "name": "v", "configMap": { "name": "late" } }]);
    let mounts = json!([{ "name": "v", "mountPath": "/v" }]);
    let spec = json!({
        "containers": [shell(&json!({ "volumeMounts": mounts }))], "volumes": volume,
    });
    ground.apply("files", spec)?;
    let key = json!({ "secretKeyRef": { "name": "late", "key": "k" } });
    let env = json!([{ "name": "K", "valueFrom": key }]);
    ground.apply(
        "variable",
        json!({ "containers": [shell(&json!({ "env": env }))] }),
    )?;
    ground.event(
        "files",
        "FailedMount",
        "MountVolume.SetUp failed for volume \"v\" : configmap \"late\" not found",
    )?;
    ground.event("variable", "Failed", "Error: secret \"late\" not found")?;
    let what = "to wait for its Secret";
    ground
        .bulkhead
        .wait_for_pod("variable", what, TIMEOUT, |pod| {
            let status = container_status(pod, "shell").ok_or("no status")?;
            match status["state"]["waiting"]["reason"] == "CreateContainerConfigError" {
                true => Ok(()),
                false => Err(status.to_string()),
            }
        })?;

    ground.bulkhead.write_object(
        "map.json",
        &object("ConfigMap", "late", &json!({ "k": "1" })),
    )?;
    ground.bulkhead.write_object(
        "secret.json",
        &object("Secret", "late", &json!({ "other": "1" })),
    )?;
    ground.ready("files")?;
    prints(&ground, "files", "cat /v/k", "1")?;
    ground.event(
        "variable",
        "Failed",
        "Error: couldn't find key k in Secret default/late",
    )?;
    ground.bulkhead.write_object(
        "secret.json",
        &object("Secret", "late", &json!({ "k": "2" })),
    )?;
    ground.ready("variable")?;
    prints(&ground, "variable", "echo $K", "2\n")?;

    // Of a file that is not root's alone nothing is taken.
    let path = ground.bulkhead.paths().objects.join("map.json");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    fs::set_permissions(&path, mode)?;
    fs::write(
        &path,
        object("ConfigMap", "late", &json!({ "k": "forged" })),
    )?;
    let said = "others than its owner may write it";
    wait_for("config-sourcer to refuse it", TIMEOUT, || {
        let log = ground.bulkhead.log(Process::ConfigSourcer);
        log.contains(said)
            .then_some(())
            .ok_or("it has not".to_owned())
    })?;
    assert_eq!(ground.exec("files", "shell", &["cat", "/v/k"])?, "1");
    Ok(())
}

#[test]
fn a_pod_has_the_path_of_its_claim_once_a_volume_names_that_claim() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    let kept = ground.bulkhead.paths().shared.join("kept");
    fs::create_dir(&kept)?;
    fs::write(kept.join("before"), "written by the node")?;
    let container = shell(&json!({ "volumeMounts": [{ "name": "v", "mountPath": "/v" }] }));
    let spec = json!({
        "containers": [container],
        "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }],
    });
    ground.apply("keeper", spec)?;
    ground.event("keeper", "FailedMount", "data")?;
    assert_eq!(ground.running("keeper")?, 0);

    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "kept" },
        "spec": {
            "claimRef": { "namespace": "default", "name": "data" },
            "local": { "path": kept },
        },
    });
    ground
        .bulkhead
        .write_object("kept.json", &volume.to_string())?;
    ground.ready("keeper")?;
    prints(&ground, "keeper", "cat /v/before", "written by the node")?;
    prints(
        &ground,
        "keeper",
        "printf 'by the pod' > /v/after && cat /v/after",
        "by the pod",
    )?;

    ground.bulkhead.kill(Process::PodWorkerPool)?;
    ground.remove("keeper")?;
    ground.gone("keeper")?;
    for (file, content) in [("before", "written by the node"), ("after", "by the pod")] {
        assert_eq!(fs::read_to_string(kept.join(file))?, content);
    }
    Ok(())
}
