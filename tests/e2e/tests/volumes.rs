//! Volumes: what containers find in them, what stays, and what is taken away.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;

use anyhow::{Context as _, Result};
use e2e::Ground;
use e2e::ground::{TIMEOUT, address};
use e2e::volumes::{
    config_error, mounts_below, pod_directory, shell, wait_until_removed, with_volume,
};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::{Value, json};
use test_support::images::TESTAPP;
use test_support::observe::{condition, container_status};
use test_support::{http, wait_for};
use topology::Process;

#[test]
fn an_empty_dir_outlives_its_containers_and_goes_with_its_pod() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let mounts = json!([
        { "name": "disk", "mountPath": "/disk" },
        { "name": "memory", "mountPath": "/memory" },
    ]);
    let app = json!({
        "name": "app", "image": TESTAPP, "args": ["--http", "8080"], "volumeMounts": mounts,
    });
    let spec = json!({
        "containers": [app, shell("shell", &mounts)],
        "volumes": [
            { "name": "disk", "emptyDir": {} },
            { "name": "memory", "emptyDir": { "medium": "Memory", "sizeLimit": "3Mi" } },
        ],
    });
    ground.apply("keeper", spec)?;
    let pod = ground.ready("keeper")?;
    let sh =
        |container: &str, script: &str| ground.exec("keeper", container, &["sh", "-c", script]);

    assert_eq!(sh("shell", "ls -A /disk /memory | grep -v :")?.trim(), "");
    sh(
        "app",
        "echo of-app > /disk/app; echo in-memory > /memory/app",
    )?;
    sh("shell", "echo of-shell > /disk/shell")?;
    assert_eq!(
        sh("shell", "cat /disk/app /memory/app")?,
        "of-app\nin-memory\n"
    );
    // Anyone in the pod may write there.
    assert_eq!(sh("shell", "stat -c %a /disk")?, "777\n");
    let file_system = sh("shell", "grep ' /memory ' /proc/mounts")?;
    assert!(
        file_system.starts_with("tmpfs ") && file_system.contains("size=3072k"),
        "{file_system}"
    );
    assert!(sh("shell", "head -c 4000000 /dev/zero > /memory/large").is_err());
    sh("shell", "rm -f /memory/large")?;

    http::request(ground.node(), "POST", address(&pod, 8080)?, "/exit?code=1")?;
    wait_until_restarted(&ground, "keeper", "app")?;
    assert_eq!(
        sh("app", "cat /disk/app /disk/shell /memory/app")?,
        "of-app\nof-shell\nin-memory\n"
    );

    let directory = pod_directory(&ground, &pod)?;
    assert!(
        directory
            .join("volumes/kubernetes.io~empty-dir/disk/app")
            .exists()
    );
    assert_eq!(mounts_below(&ground, &directory)?.len(), 1);
    ground.remove("keeper")?;
    wait_until_removed(&directory)?;
    assert_eq!(mounts_below(&ground, &directory)?, Vec::<String>::new());
    Ok(())
}

/// A pod that sees its own labels in two volumes, its name and a limit.
fn pod_that_sees_itself(version: &str) -> Value {
    let mounts = json!([
        { "name": "pod", "mountPath": "/pod" },
        { "name": "all", "mountPath": "/all" },
    ]);
    let labels = json!({ "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } });
    let limit = json!({
        "path": "limits/cpu", "mode": 0o400, "user": 1234,
        "resourceFieldRef": { "containerName": "shell", "resource": "limits.cpu", "divisor": "1m" },
    });
    let mut shell = shell("shell", &mounts);
    shell["resources"] = json!({ "limits": { "cpu": "250m" } });
    let uid = "9d1f62c5-0d5b-4c35-9b7e-0d3f3a9c5b12";
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "told", "uid": uid, "labels": { "version": version } },
        "spec": {
            "containers": [shell],
            "volumes": [
                { "name": "pod", "downwardAPI": { "defaultMode": 0o440, "items": [labels, limit] } },
                { "name": "all", "projected": { "sources": [{ "downwardAPI": { "items": [
                    { "path": "name", "fieldRef": { "fieldPath": "metadata.name" } },
                    labels,
                ] } }] } },
            ],
        },
    })
}

/// What [`pod_that_sees_itself`] sees first: contents, modes, owners and mounts.
fn check_what_the_pod_sees(sh: impl Fn(&str) -> Result<String>, full_name: &str) -> Result<()> {
    assert_eq!(
        sh("cat /pod/labels /all/labels")?,
        "version=\"1\"".repeat(2)
    );
    assert_eq!(
        sh("cat /pod/limits/cpu /all/name")?,
        format!("250{full_name}")
    );
    let modes = sh("stat -L -c '%a %u' /pod/labels /pod/limits/cpu /all/name")?;
    assert_eq!(modes, "440 0\n400 1234\n644 0\n");
    assert!(
        sh("echo x > /pod/labels").is_err(),
        "it is mounted read-only"
    );
    let mounts = sh("grep -E ' /(pod|all) ' /proc/mounts")?;
    let in_memory = |line: &str| line.starts_with("tmpfs ") && line.contains(" ro,");
    assert!(mounts.lines().all(in_memory), "{mounts}");
    Ok(())
}

/// Labels of a running pod may change; what its containers see of them changes with it, all
/// files of a volume at once, also if pod-worker-pool is killed meanwhile.
/// As many bytes as pod-worker-pool may have in all, and more, from a small manifest.
#[test]
fn a_pod_with_all_its_annotations_in_a_thousand_files_does_not_end_the_pool() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let of_pool = || -> Result<u32> {
        let pids = ground.bulkhead.pids()?;
        pids.get(&Process::PodWorkerPool)
            .copied()
            .context("no pool")
    };
    let before = of_pool()?;
    let items = (0..1000).map(|file| {
        let field = json!({ "fieldPath": "metadata.annotations" });
        json!({ "path": file.to_string(), "fieldRef": field })
    });
    let items: Vec<Value> = items.collect();
    let mounts = json!([{ "name": "all", "mountPath": "/all" }]);
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "swollen", "annotations": { "a": "a".repeat(200 << 10) } },
        "spec": {
            "containers": [shell("shell", &mounts)],
            "volumes": [{ "name": "all", "downwardAPI": { "items": items } }],
        },
    });
    ground
        .bulkhead
        .write_manifest("swollen.json", &pod.to_string())?;
    ground.event("swollen", "FailedMount", "more than 16 MiB")?;
    ground.apply(
        "other",
        json!({ "containers": [shell("shell", &json!([]))] }),
    )?;
    ground.ready("other")?;
    assert_eq!(of_pool()?, before);
    Ok(())
}

#[test]
fn the_downward_api_is_seen_in_files_and_follows_the_pod() -> Result<()> {
    let mut ground = Ground::start(json!({}))?;
    ground
        .bulkhead
        .write_manifest("told.json", &pod_that_sees_itself("1").to_string())?;
    let pod = ground.ready("told")?;
    let run = |ground: &Ground, script: &str| ground.exec("told", "shell", &["sh", "-c", script]);
    let full_name = ground.full_name("told");
    check_what_the_pod_sees(|script| run(&ground, script), &full_name)?;

    for version in ["2", "3"] {
        ground
            .bulkhead
            .write_manifest("told.json", &pod_that_sees_itself(version).to_string())?;
        if version == "3" {
            ground.bulkhead.kill(Process::PodWorkerPool)?;
        }
        let expected = format!("version=\"{version}\"").repeat(2);
        wait_for("the files to follow", TIMEOUT, || {
            let found = run(&ground, "cat /pod/labels /all/labels");
            let found = found.map_err(|error| format!("{error:#}"))?;
            (found == expected).then_some(()).ok_or(found)
        })
        .with_context(|| ground.bulkhead.log_ends())?;
    }
    // What somebody has damaged is put right by the next process.
    let volume = pod_directory(&ground, &pod)?.join("volumes/kubernetes.io~downward-api/pod");
    let damage = || {
        fs::remove_file(volume.join("..data"))?;
        fs::write(volume.join("stray"), "")
    };
    ground.node().run(damage)??;
    ground.bulkhead.kill(Process::PodWorkerPool)?;
    wait_for("the files to be there again", TIMEOUT, || {
        let found = run(&ground, "cat /pod/labels; ls -A /pod");
        let found = found.map_err(|error| format!("{error:#}"))?;
        let is_right = found.starts_with("version=\"3\"") && !found.contains("stray");
        is_right.then_some(()).ok_or(found)
    })
    .with_context(|| ground.bulkhead.log_ends())?;
    let published = ground.pod("told")?;
    let status = container_status(&published, "shell");
    assert_eq!(status.context("no status")?["restartCount"], 0);
    let directory = pod_directory(&ground, &pod)?;
    ground.remove("told")?;
    wait_until_removed(&directory)?;
    assert_eq!(mounts_below(&ground, &directory)?, Vec::<String>::new());
    Ok(())
}

#[test]
fn a_host_path_is_checked_or_made_as_its_type_says() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let at = |name: &str| ground.bulkhead.paths().shared.join(name);
    fs::create_dir(at("directory"))?;
    fs::write(at("directory/inside"), "content")?;
    fs::write(at("file"), "content")?;
    let _socket = UnixListener::bind(at("socket"))?;
    let loop_device = makedev(7, 250);
    mknod(&at("block"), SFlag::S_IFBLK, Mode::S_IRUSR, loop_device)?;
    mknod(
        &at("character"),
        SFlag::S_IFCHR,
        Mode::S_IRUSR,
        makedev(1, 3),
    )?;

    let volumes = [
        ("plain", "directory", ""),
        ("directory", "directory", "Directory"),
        ("kept", "directory", "DirectoryOrCreate"),
        ("made", "new/deep", "DirectoryOrCreate"),
        ("file", "file", "File"),
        ("keptfile", "file", "FileOrCreate"),
        ("madefile", "new-file", "FileOrCreate"),
        ("socket", "socket", "Socket"),
        ("character", "character", "CharDevice"),
        ("block", "block", "BlockDevice"),
        ("unchecked", "made-by-runtime", ""),
    ];
    let (mut mounts, mut sources) = (Vec::new(), Vec::new());
    for (name, path, kind) in volumes {
        mounts.push(json!({ "name": name, "mountPath": format!("/at/{name}") }));
        sources.push(json!({ "name": name, "hostPath": { "path": at(path), "type": kind } }));
    }
    let spec = json!({ "containers": [shell("shell", &json!(mounts))], "volumes": sources });
    ground.apply("all", spec)?;
    ground.ready("all")?;

    let listing = ground.exec("all", "shell", &["sh", "-c", "cd /at; stat -c '%n %F' *"])?;
    for (name, kind) in [
        ("plain", "directory"),
        ("directory", "directory"),
        ("kept", "directory"),
        ("made", "directory"),
        ("file", "regular file"),
        ("keptfile", "regular file"),
        ("madefile", "regular empty file"),
        ("socket", "socket"),
        ("character", "character special file"),
        ("block", "block special file"),
        ("unchecked", "directory"),
    ] {
        let line = format!("{name} {kind}");
        assert!(
            listing.lines().any(|found| found == line),
            "{line}: {listing}"
        );
    }
    let inside = ["cat", "/at/plain/inside", "/at/kept/inside", "/at/keptfile"];
    assert_eq!(ground.exec("all", "shell", &inside)?, "content".repeat(3));
    let mode =
        |name: &str| -> Result<u32> { Ok(fs::metadata(at(name))?.permissions().mode() & 0o777) };
    assert_eq!((mode("new/deep")?, mode("new-file")?), (0o755, 0o644));

    // What containers leave there is the node's, not the pod's.
    let write = "echo from-pod > /at/made/left; echo from-pod > /at/madefile";
    ground.exec("all", "shell", &["sh", "-c", write])?;
    ground.remove("all")?;
    assert_eq!(fs::read_to_string(at("new/deep/left"))?, "from-pod\n");
    assert_eq!(fs::read_to_string(at("new-file"))?, "from-pod\n");
    assert!(fs::metadata(at("socket"))?.file_type().is_socket());
    assert!(at("directory/inside").exists());
    Ok(())
}

#[test]
fn what_is_mounted_read_only_cannot_be_written() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let shared = ground.bulkhead.paths().shared.join("volume");
    fs::create_dir(&shared)?;
    fs::write(shared.join("file"), "content")?;
    let mounts = json!([
        { "name": "host", "mountPath": "/host", "readOnly": true },
        { "name": "host", "mountPath": "/writable" },
        { "name": "own", "mountPath": "/own", "readOnly": true },
    ]);
    let writer = json!([{ "name": "own", "mountPath": "/own" }]);
    let spec = json!({
        "containers": [shell("shell", &mounts), shell("writer", &writer)],
        "volumes": [
            { "name": "host", "hostPath": { "path": shared, "type": "Directory" } },
            { "name": "own", "emptyDir": {} },
        ],
    });
    ground.apply("reader", spec)?;
    ground.ready("reader")?;
    ground.exec("reader", "writer", &["sh", "-c", "echo theirs > /own/file"])?;
    assert_eq!(
        ground.exec("reader", "shell", &["cat", "/host/file", "/own/file"])?,
        "contenttheirs\n"
    );
    for command in [
        "echo no > /host/file",
        "touch /host/new",
        "rm /host/file",
        "touch /own/new",
    ] {
        let refusal = ground.exec("reader", "shell", &["sh", "-c", command]);
        let refusal = format!("{:#}", refusal.expect_err(command));
        assert!(
            refusal.contains("Read-only file system"),
            "{command}: {refusal}"
        );
    }
    ground.exec("reader", "shell", &["touch", "/writable/new"])?;
    assert!(shared.join("new").exists());
    Ok(())
}

#[test]
fn later_mounts_of_the_node_reach_containers_that_ask_for_them() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let shared = ground.bulkhead.paths().shared.join("volume");
    fs::create_dir_all(shared.join("disk"))?;
    let mounts = |propagation: &str| json!([{ "name": "v", "mountPath": "/v", "mountPropagation": propagation }]);
    let spec = json!({
        "containers": [
            shell("follows", &mounts("HostToContainer")),
            shell("ignores", &mounts("None")),
        ],
        "volumes": [{ "name": "v", "hostPath": { "path": shared, "type": "Directory" } }],
    });
    ground.apply("pod", spec)?;
    ground.ready("pod")?;
    ground
        .node()
        .mount_small_disk(&shared.join("disk"), 1 << 20)?;
    let file = shared.join("disk/file");
    ground.node().run(|| fs::write(&file, "later"))??;
    assert_eq!(
        ground.exec("pod", "follows", &["cat", "/v/disk/file"])?,
        "later"
    );
    assert!(
        ground
            .exec("pod", "ignores", &["cat", "/v/disk/file"])
            .is_err()
    );

    // Mounting into the node is for privileged containers: refused in words.
    let back = json!({ "hostPath": { "path": shared, "type": "Directory" } });
    let how = json!({ "mountPropagation": "Bidirectional" });
    ground.apply("back", with_volume(&back, &how))?;
    let words = "Bidirectional needs a privileged container";
    let refused = wait_for("the refusal", TIMEOUT, || {
        let events = ground
            .bulkhead
            .events()
            .map_err(|error| format!("{error:#}"))?;
        let found = events.iter().any(|event| event.message.contains(words));
        if found {
            Ok(())
        } else {
            Err(format!("{events:?}"))
        }
    });
    refused?;
    assert!(ground.bulkhead.pod("back")?.is_none());
    Ok(())
}

#[test]
fn clean_up_stays_in_the_pods_directory_whatever_links_are_there() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let canary = ground.bulkhead.paths().shared.join("canary");
    fs::create_dir_all(canary.join("nest"))?;
    fs::write(canary.join("egg"), "alive")?;
    fs::write(canary.join("nest/egg"), "alive")?;
    let permissions = fs::metadata(&canary)?.permissions().mode();

    let mounts = json!([
        { "name": "disk", "mountPath": "/disk" },
        { "name": "memory", "mountPath": "/memory" },
    ]);
    let spec = json!({
        "containers": [shell("shell", &mounts)],
        "volumes": [
            { "name": "disk", "emptyDir": {} },
            { "name": "memory", "emptyDir": { "medium": "Memory" } },
        ],
    });
    ground.apply("evil", spec)?;
    let pod = ground.ready("evil")?;
    let directory = pod_directory(&ground, &pod)?;
    let up = "../".repeat(20);
    let canary_path = canary.display();
    for volume in ["/disk", "/memory"] {
        let script = format!(
            "cd {volume} && mkdir -p deep/er && \
             ln -s {canary_path} absolute && ln -s {canary_path}/nest deep/er/nest && \
             ln -s {up}{canary_path} relative && ln -s {canary_path}/egg egg && \
             ln -s . self && ln -s / root && \
             i=0; d=.; while [ $i -lt 60 ]; do d=$d/level; mkdir $d; i=$((i+1)); done; \
             mkdir closed && touch closed/file && chmod 0 closed"
        );
        ground.exec("evil", "shell", &["sh", "-c", &script])?;
    }
    ground.remove("evil")?;
    wait_until_removed(&directory)?;
    assert_eq!(mounts_below(&ground, &directory)?, Vec::<String>::new());
    for egg in ["egg", "nest/egg"] {
        assert_eq!(fs::read_to_string(canary.join(egg))?, "alive", "{egg}");
    }
    assert_eq!(fs::metadata(&canary)?.permissions().mode(), permissions);
    Ok(())
}

fn wait_until_restarted(ground: &Ground, pod: &str, container: &str) -> Result<()> {
    let what = "to run again after a restart";
    let restarted = ground.bulkhead.wait_for_pod(pod, what, TIMEOUT, |pod| {
        let status = container_status(pod, container).ok_or("no status")?;
        let count = status["restartCount"].as_u64();
        if count == Some(1) && condition(pod, "Ready") == Some(true) {
            Ok(())
        } else {
            Err(format!("restarted {count:?} times"))
        }
    });
    Ok(restarted?)
}

#[test]
fn variables_come_from_a_file_that_an_init_container_wrote() -> Result<()> {
    let ground = Ground::start(json!({}))?;
    let of_file = |key: &str, optional: bool| {
        json!({ "fileKeyRef": { "volumeName": "v", "path": "d/env", "key": key,
            "optional": optional } })
    };
    let with = |script: &str, env: Value| {
        let mut main = shell("shell", &json!([]));
        main["env"] = env;
        let mut init = shell("init", &json!([{ "name": "v", "mountPath": "/v" }]));
        init["command"] = json!(["sh", "-c", script]);
        json!({
            "initContainers": [init], "containers": [main],
            "volumes": [{ "name": "v", "emptyDir": {} }],
            "hostnameOverride": "told.example.org", "subdomain": "ignored",
        })
    };
    let script = "mkdir /v/d; printf \"# ours\\nA='1 \\$x'\\nB = 'two\\nlines'\\n\" > /v/d/env";
    let env = json!([
        { "name": "A", "valueFrom": of_file("A", false) },
        { "name": "B", "valueFrom": of_file("B", false) },
        { "name": "NONE", "valueFrom": of_file("NONE", true) },
        { "name": "BOTH", "value": "<$(A)>" },
    ]);
    ground.apply("told", with(script, env))?;
    let missing = json!([{ "name": "A", "valueFrom": of_file("NONE", false) }]);
    ground.apply("missing", with(script, missing.clone()))?;
    ground.apply(
        "malformed",
        with("mkdir /v/d; echo A=1 > /v/d/env", missing.clone()),
    )?;
    let out = "mkdir /v/d; ln -s /etc/passwd /v/d/env";
    ground.apply("out", with(out, missing))?;
    ground.ready("told")?;
    let sh = |script: &str| ground.exec("told", "shell", &["sh", "-c", script]);
    let seen = sh("echo \"$A|$B|${NONE-unset}|$BOTH\"; hostname")?;
    assert_eq!(seen, "1 $x|two\nlines|unset|<1 $x>\ntold.example.org\n");
    // The container that has the variables does not have the volume.
    assert!(sh("ls /v").is_err());
    for (pod, words) in [
        (
            "missing",
            "environment variable key \"NONE\" not found in file \"d/env\"",
        ),
        (
            "malformed",
            "couldn't parse env file \"d/env\": line 1: the value is not in single quotes",
        ),
        ("out", "it leads out of the volume"),
    ] {
        let message = config_error(&ground, pod, "shell")?;
        assert!(message.contains(words), "{message}");
    }
    Ok(())
}
