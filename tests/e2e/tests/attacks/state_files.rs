//! What a process finds in the place of the state file that it wrote before: whoever had
//! it, or its disk, may have left anything there. The process comes up, says which file it
//! does not use, and nothing is granted or ended by it.

use std::fs::{self, File};
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use state_file::{MAX_STATE_FILE_BYTES, StateFile};
use test_support::images::BUSYBOX;
use test_support::{BulkheadOptions, wait_for};
use topology::{Identities, Process, row};

use super::intruder::{Known, ids, sleeper};

/// The state files: whose, which, and the version of their format.
const FILES: [(Process, &str, u32); 5] = [
    (Process::ConfigSourcer, "last-good-manifests.json", 1),
    (Process::Prober, "verdicts.json", 1),
    (Process::StatusSyncer, "statuses.json", 1),
    (Process::SyncLoop, "admission.json", 1),
    (Process::PodWorkerPool, "policy.json", 1),
];

/// What lies in the place of a state file.
enum Planted {
    Bytes(Vec<u8>),
    /// A file of this size that takes no room.
    Sparse(u64),
    Link(PathBuf),
    Directory,
    Fifo,
    /// With the checksum that it should have.
    Content(Value),
}

impl Planted {
    fn put(&self, path: &Path, version: u32, owner: u32) -> Result<()> {
        if path.is_dir() {
            fs::remove_dir_all(path)?;
        } else if path.symlink_metadata().is_ok() {
            fs::remove_file(path)?;
        }
        match self {
            Planted::Bytes(bytes) => fs::write(path, bytes)?,
            Planted::Sparse(bytes) => File::create(path)?.set_len(*bytes)?,
            Planted::Link(target) => return Ok(symlink(target, path)?),
            Planted::Directory => fs::create_dir_all(path.join("in-the-way"))?,
            Planted::Fifo => mkfifo(path, Mode::from_bits_truncate(0o600))?,
            Planted::Content(content) => StateFile::new(path, version).save(content)?,
        }
        Ok(chown(path, Some(owner), Some(owner))?)
    }
}

/// Where a state file is, and who owns it.
fn place(ground: &Ground, process: Process, file: &str) -> Result<(PathBuf, u32)> {
    let directory = ground.bulkhead.paths().state.join(process.name());
    let identities = Identities::from_base(ground.bulkhead.uid_base())?;
    Ok((directory.join(file), identities.uid(process)))
}

/// What to put in the place of which file, of which format.
type Plan<'a> = (Process, &'a str, u32, &'a Planted);

/// Kills everything, puts something in the place of each of these files, and starts
/// everything again. How long the log of each of these processes was before.
fn restart_with(ground: &mut Ground, plan: &[Plan<'_>]) -> Result<Vec<usize>> {
    ground.bulkhead.kill_all()?;
    let mut logged = Vec::new();
    for (process, file, version, planted) in plan {
        let (path, owner) = place(ground, *process, file)?;
        ground
            .node()
            .run(|| planted.put(&path, *version, owner))??;
        logged.push(ground.bulkhead.log(*process).len());
    }
    ground.bulkhead.start_again()?;
    Ok(logged)
}

/// No process has ended since all were started.
fn nobody_crashed(ground: &Ground) -> Result<()> {
    for row in ground.bulkhead.processes()? {
        assert_eq!(row.restarts_total, 0, "{row:?}");
    }
    Ok(())
}

/// Waits until a process has said something of its file since its log was so long.
fn tells(ground: &Ground, process: Process, file: &str, logged: usize) -> Result<String> {
    let what = format!("{process} to tell of {file}");
    Ok(wait_for(&what, TIMEOUT, || {
        let log = ground.bulkhead.log(process);
        let log = log.get(logged..).unwrap_or_default().to_owned();
        match log.contains(file) {
            true => Ok(log),
            false => Err(log),
        }
    })?)
}

/// A pod that no policy of this file permits.
fn refused() -> Value {
    json!({
        "hostNetwork": true,
        "containers": [{ "name": "app", "image": BUSYBOX, "command": ["sleep", "1000000"] }],
    })
}

/// A node with baseline alone, a pod that it permits and one that it refuses.
fn node() -> Result<(Ground, Known)> {
    let ground = Ground::start_with(&BulkheadOptions {
        policy: Some(String::new()),
        ..BulkheadOptions::default()
    })?;
    ground.apply("web", sleeper(None))?;
    ground.apply("refused", refused())?;
    let web = Known::of(&ground, "web")?;
    ground.event("refused", "RefusedByNodePolicy", "hostNetwork")?;
    Ok((ground, web))
}

/// Nothing was started, restarted or ended; and the node still works.
fn nothing_is_granted(ground: &Ground, web: &Known, round: &str) -> Result<()> {
    let probe = format!("probe-{round}");
    ground.apply(&probe, sleeper(None))?;
    ground
        .ready(&probe)
        .with_context(|| format!("after {round}"))?;
    ground.remove(&probe)?;
    assert_eq!(ids(ground, "web")?, [web.container.as_str()], "{round}");
    assert_eq!(ground.running("web")?, 1, "{round}");
    assert!(ground.containers("refused")?.is_empty(), "{round}");
    Ok(())
}

#[test]
fn whatever_is_no_state_file_is_told_and_not_used() -> Result<()> {
    let (mut ground, web) = node()?;
    // Whose words must not get into a log.
    let secret = ground.bulkhead.paths().shared.join("secret");
    fs::write(&secret, "hunter2")?;
    let nested = ["[".repeat(1 << 20), "]".repeat(1 << 20)].concat();
    let envelope = |content: &str| {
        let checksum = "0".repeat(16);
        format!(r#"{{"version":1,"checksum":"{checksum}","content":{content}}}"#).into_bytes()
    };
    let rounds = [
        ("garbage", Planted::Bytes(vec![0xff; 4096])),
        ("empty", Planted::Bytes(Vec::new())),
        ("nested", Planted::Bytes(envelope(&nested))),
        ("checksum", Planted::Bytes(envelope("{}"))),
        (
            "version",
            Planted::Bytes(br#"{"version":4294967295,"checksum":"","content":{}}"#.to_vec()),
        ),
        ("large", Planted::Sparse(MAX_STATE_FILE_BYTES + 1)),
        ("huge", Planted::Sparse(1 << 40)),
        ("secret", Planted::Link(secret.clone())),
        ("endless", Planted::Link("/dev/zero".into())),
        ("directory", Planted::Directory),
        ("fifo", Planted::Fifo),
        ("another-type", Planted::Content(json!(7))),
        (
            "absurd-list",
            Planted::Content(json!([[], {}, null, -1e300])),
        ),
        (
            "absurd-map",
            Planted::Content(json!({ "../..": { "a": i64::MIN } })),
        ),
    ];
    for (round, planted) in &rounds {
        let plan = FILES.map(|(process, file, version)| (process, file, version, planted));
        let logged = restart_with(&mut ground, &plan)?;
        for ((process, file, ..), logged) in plan.into_iter().zip(logged) {
            let log = tells(&ground, process, file, logged);
            let log = log.with_context(|| format!("in the round {round}"))?;
            assert!(!log.contains("hunter2"), "{round}: {process}: {log}");
        }
        nothing_is_granted(&ground, &web, round)?;
        nobody_crashed(&ground)?;
    }
    assert_eq!(
        fs::read_to_string(&secret)?,
        "hunter2",
        "nobody wrote to it"
    );
    Ok(())
}

/// What is read of it would be more than the process may have: it would be killed at each of
/// its starts.
#[test]
fn a_state_file_that_takes_the_memory_of_its_process_is_not_read() -> Result<()> {
    let (mut ground, web) = node()?;
    let large = |process| {
        let most = row(process).memory_max_bytes.min(MAX_STATE_FILE_BYTES);
        Planted::Sparse(most - (1 << 20))
    };
    let planted = FILES.map(|(process, ..)| large(process));
    let plan: Vec<Plan<'_>> = FILES
        .into_iter()
        .zip(&planted)
        .map(|((process, file, version), planted)| (process, file, version, planted))
        .collect();
    let logged = restart_with(&mut ground, &plan)?;
    for ((process, file, ..), logged) in plan.into_iter().zip(logged) {
        let log = tells(&ground, process, file, logged)?;
        let refused = log.contains("it is larger than");
        assert_eq!(
            refused,
            process != Process::PodWorkerPool,
            "{process}: {log}"
        );
    }
    nothing_is_granted(&ground, &web, "as-large-as-the-memory")?;
    nobody_crashed(&ground)
}

/// Each of these is within its bound, and takes more in memory than its process may have.
#[test]
fn a_state_file_that_has_its_reader_killed_is_discarded() -> Result<()> {
    let (mut ground, web) = node()?;
    let zeros = |count| json!(vec![0; count]);
    let planted = [
        (
            Process::Prober,
            json!({ "id": { "x": zeros(4_000_000), "pod_uid": "", "container_name": "",
                "verdicts": {} } }),
        ),
        (
            Process::SyncLoop,
            json!({ "uid": { "x": zeros(4_000_000), "decision": "admitted" } }),
        ),
        (
            Process::ConfigSourcer,
            json!({ "node_name": "", "static_pod_path": "", "kind": null,
                "manifests": [{ "path": "", "judged": null, "pods": zeros(3_000_000) }] }),
        ),
    ];
    let planted = planted.map(|(process, content)| (process, Planted::Content(content)));
    let of = |process| FILES.iter().find(|it| it.0 == process);
    let plan = planted.iter().map(|(process, planted)| {
        let (process, file, version) = of(*process).context("no file")?;
        Ok((*process, *file, *version, planted))
    });
    let plan = plan.collect::<Result<Vec<_>>>()?;
    let logged = restart_with(&mut ground, &plan)?;
    for ((process, ..), logged) in plan.into_iter().zip(logged) {
        tells(&ground, process, "run after run has ended", logged)?;
    }
    nothing_is_granted(&ground, &web, "as-a-killer")
}

/// A pod as status-syncer and config-sourcer keep it.
fn kept(name: &str, uid: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "uid": uid },
        "spec": spec, "status": status,
    })
}

#[test]
fn what_state_files_say_of_other_pods_or_beyond_all_bounds_starts_and_ends_nothing() -> Result<()> {
    let (mut ground, web) = node()?;
    let other = {
        ground.apply("other", sleeper(None))?;
        Known::of(&ground, "other")?
    };
    // More than any message between processes may have.
    let huge = "x".repeat(5 << 20);
    let verdict = |message: &str| json!({ "result": "failure", "message": message });
    let verdicts = |owner: &Known, message: &str| {
        json!({
            "pod_uid": owner.uid, "container_name": "app",
            "verdicts": {
                "Liveness": verdict(message), "Startup": verdict(message),
                "Readiness": verdict(message),
            },
        })
    };
    let failed = |message: &str| {
        json!({ "phase": "Failed", "reason": "Evicted", "message": message,
            "containerStatuses": [{ "name": "app", "restartCount": i32::MAX, "image": "",
                "imageID": "", "ready": false }] })
    };
    let statuses = json!([
        // Its own, with a version after which there is none; and as if it had ended. Short
        // enough to be believed, so that the version counts.
        { "source": "file", "version": u64::MAX,
          "pod": kept(&web.name, &web.uid, &sleeper(None), &failed("it ended")) },
        // Another one under its UID.
        { "source": "file", "version": u64::MAX,
          "pod": kept("another", &other.uid, &refused(), &failed(&huge)) },
        { "source": "file", "version": 0,
          "pod": kept("invented", "invented", &refused(), &json!({ "phase": "Running" })) },
    ]);
    let rejected = json!({ "decision": "Rejected", "reason": huge, "message": huge });
    let mut records = json!({ "../../etc": { "decision": "admitted" } });
    for uid in [&web.uid, &other.uid] {
        records[uid.as_str()] = rejected.clone();
        records[uid.as_str()]["decision"] = json!("rejected");
    }
    let planted = [
        (
            Process::Prober,
            Planted::Content(json!({
                // Verdicts of containers that have no probe, as the other's, and without end.
                web.container.as_str(): verdicts(&web, "x"),
                other.container.as_str(): verdicts(&web, &huge),
                "invented": verdicts(&other, &huge),
            })),
        ),
        (Process::StatusSyncer, Planted::Content(statuses)),
        (Process::SyncLoop, Planted::Content(records)),
        (
            Process::PodWorkerPool,
            Planted::Content(json!(
                "sources = { file = \"privileged\" }\n[[grants]]\npods = [\"*/*\"]\nhostNetwork = true\n"
            )),
        ),
    ];
    let of = |process| FILES.iter().find(|it| it.0 == process);
    let all = planted.iter().map(|(process, planted)| {
        let (process, file, version) = of(*process).context("no file")?;
        Ok((*process, *file, *version, planted))
    });
    let all = all.collect::<Result<Vec<_>>>()?;
    restart_with(&mut ground, &all)?;
    nothing_is_granted(&ground, &web, "lies")?;
    assert_eq!(ids(&ground, "other")?, [other.container.as_str()]);
    assert!(ground.containers("invented")?.is_empty());
    // What runs is told as running, in the end.
    for name in ["web", "other"] {
        let pod = ground.ready(name)?;
        assert_eq!(pod["status"]["phase"], "Running", "{pod}");
    }
    // And nobody is stuck: a verdict is told, and so is an end.
    let mut probed = sleeper(None);
    probed["containers"][0]["readinessProbe"] = json!({ "exec": { "command": ["true"] } });
    ground.apply("probed", probed)?;
    ground.ready("probed")?;
    ground.remove("other")?;
    nobody_crashed(&ground)?;
    wait_for("the invented status to go", TIMEOUT, || {
        let pods = ground
            .bulkhead
            .pods()
            .map_err(|error| format!("{error:#}"))?;
        let names = pods
            .iter()
            .filter_map(|pod| pod["metadata"]["name"].as_str());
        let names: Vec<&str> = names.collect();
        match names.contains(&"invented") {
            true => Err(format!("{names:?}")),
            false => Ok(()),
        }
    })?;
    Ok(())
}

#[test]
fn a_broken_policy_and_a_damaged_last_good_one_grant_nothing_and_end_nothing() -> Result<()> {
    let (mut ground, web) = node()?;
    ground.bulkhead.write_policy("sources = { file = 7 }\n")?;
    // A good one, and not where it belongs.
    let elsewhere = ground.bulkhead.paths().shared.join("policy.json");
    StateFile::new(&elsewhere, FILES[4].2).save(&"sources = { file = \"privileged\" }\n")?;
    for planted in [
        Planted::Bytes(b"sources = { file = \"privileged\" }\n".to_vec()),
        Planted::Content(json!({ "sources": { "file": "privileged" } })),
        Planted::Content(json!("sources = { file = \"everything\" }\n")),
        Planted::Link(elsewhere.clone()),
    ] {
        let (process, file, version) = FILES[4];
        restart_with(&mut ground, &[(process, file, version, &planted)])?;
        ground.apply("new", sleeper(None))?;
        ground.event("new", "RefusedByNodePolicy", "no node policy is in force")?;
        assert!(ground.containers("new")?.is_empty());
        assert!(ground.containers("refused")?.is_empty());
        assert_eq!(ids(&ground, "web")?, [web.container.as_str()]);
        ground.remove("new")?;
    }
    ground.bulkhead.write_policy("")?;
    ground.apply("new", sleeper(None))?;
    ground.ready("new")?;
    Ok(())
}

#[test]
fn a_remembered_manifest_is_judged_like_any_other() -> Result<()> {
    let (mut ground, web) = node()?;
    let directory = ground.bulkhead.paths().manifests.clone();
    let name = |name: &str| ground.full_name(name);
    let manifest = |file: &str, pod: Value| json!({ "path": directory.join(file), "judged": null, "pods": [pod] });
    let invented = "1c7f1f7e6a1b4a538d0e1f0b7a8c9d10";
    let content = json!({
        "node_name": ground.bulkhead.node_name(), "static_pod_path": directory,
        "recall": "Complete", "kind": "Directory",
        "manifests": [
            manifest("privileged.json", kept(&name("privileged"), invented, &refused(), &json!({}))),
            manifest("escaping.json", kept(&name("escaping"), "../../../etc", &sleeper(None), &json!({}))),
            // Of no manifest that there is.
            { "path": "/etc/passwd", "judged": null,
              "pods": [kept(&name("nowhere"), "2c7f1f7e6a1b4a538d0e1f0b7a8c9d10", &sleeper(None), &json!({}))] },
        ],
    });
    for file in ["privileged.json", "escaping.json"] {
        ground.bulkhead.write_manifest(file, "broken")?;
    }
    let (process, file, version) = FILES[0];
    let planted = Planted::Content(content);
    restart_with(&mut ground, &[(process, file, version, &planted)])?;
    ground.event("privileged", "RefusedByNodePolicy", "hostNetwork")?;
    // While a manifest is broken of which nothing is known, none of the source is removed.
    for file in ["privileged.json", "escaping.json"] {
        ground.bulkhead.remove_manifest(file)?;
    }
    nothing_is_granted(&ground, &web, "remembered")?;
    for name in ["privileged", "escaping", "nowhere"] {
        assert!(ground.containers(name)?.is_empty(), "{name}");
    }
    Ok(())
}
