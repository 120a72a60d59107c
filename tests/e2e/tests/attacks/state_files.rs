//! What a process finds in the place of the state file that it wrote before: whoever had
//! it, or its disk, may have left anything there. The process comes up, says which file it
//! does not use, and nothing is granted or ended by it.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use anyhow::Result;
use e2e::Ground;
use serde_json::{Value, json};
use state_file::StateFile;
use test_support::BulkheadOptions;
use test_support::images::BUSYBOX;
use topology::{Identities, Process};

use super::intruder::{Known, ids, sleeper};

/// The state files: whose, which, and the version of their format.
const FILES: [(Process, &str, u32); 4] = [
    (Process::Prober, "verdicts.json", 1),
    (Process::StatusSyncer, "statuses.json", 1),
    (Process::SyncLoop, "admission.json", 1),
    (Process::PodWorkerPool, "policy.json", 1),
];

/// What lies in the place of a state file.
enum Planted {
    Bytes(Vec<u8>),
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

#[test]
fn a_broken_policy_and_a_damaged_last_good_one_grant_nothing_and_end_nothing() -> Result<()> {
    let (mut ground, web) = node()?;
    ground.bulkhead.write_policy("sources = { file = 7 }\n")?;
    for planted in [
        Planted::Bytes(b"sources = { file = \"privileged\" }\n".to_vec()),
        Planted::Content(json!({ "sources": { "file": "privileged" } })),
        Planted::Content(json!("sources = { file = \"everything\" }\n")),
    ] {
        let (process, file, version) = FILES[3];
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
