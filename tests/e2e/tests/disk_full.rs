//! The disk of the state directory is full: pods start, run and stop all the
//! same, parts may die, somebody says what is wrong, and nothing is lost once
//! there is room again.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use e2e::cast::{self, Cast, web};
use e2e::ground::TIMEOUT;
use e2e::witness::{Look, Witness};
use serde_json::json;
use test_support::{
    BulkheadInstance, BulkheadOptions, ContainerdOptions, PrivateContainerd, wait_for,
};
use topology::Process;

/// Room for the state of a few pods, and quickly filled.
const DISK_BYTES: u64 = 2 << 20;

/// Grace of the pods that insist on it: longer than a restart takes.
const GRACE: Duration = Duration::from_secs(6);

/// How much later than due something may be on a busy machine.
const LATE: Duration = Duration::from_secs(15);

#[test]
fn a_full_disk_is_told_of_and_stops_nothing() -> Result<()> {
    let mut ground = ground_on_a_small_disk()?;
    let cast = Cast::enter(&ground)?;
    for name in ["old", "old-killed"] {
        cast::stubborn(&ground, name, GRACE)?;
    }
    ground.apply("polite", web(&ground, "polite"))?;
    for name in ["old", "old-killed", "polite"] {
        ground.ready(name)?;
    }
    let witness = Witness::call(&ground.bulkhead, "web")?;
    fill(&ground)?;

    // Starts, updates and stops.
    ground.apply("new", web(&ground, "new"))?;
    let mut once = ground.app("new-done", &["--exit-after-ms", "100"]);
    once["restartPolicy"] = json!("Never");
    ground.apply("new-done", once)?;
    let mut rejected = ground.app("new-rejected", &[]);
    rejected["nodeSelector"] = json!({"no": "node"});
    ground.apply("new-rejected", rejected)?;
    ground.take_away("polite")?;
    cast::dismiss(&ground, "old")?;
    ground
        .ready("new")
        .with_context(|| ground.bulkhead.log_ends())?;
    ground.phase("new-done", "Succeeded")?;
    ground.phase("new-rejected", "Failed")?;
    ground.gone("polite")?;
    assert_eq!(ground.noted("polite", "exit 0")?, 1);
    cast::had_its_grace(&ground, "old", GRACE, LATE)?;
    says(&ground, true)?;

    // Parts that die find the disk full when they come back.
    cast::dismiss(&ground, "old-killed")?;
    for process in Process::ON_EVERY_NODE {
        if process != Process::Supervisor {
            ground.bulkhead.kill(process)?;
        }
    }
    ground.apply("newer", web(&ground, "newer"))?;
    ground
        .ready("newer")
        .with_context(|| ground.bulkhead.log_ends())?;
    ground.bulkhead.wait_until_ready()?;
    ground.bulkhead.kill_all()?;
    ground.bulkhead.start_again()?;
    // The time of the request could not be saved: what was left begins anew.
    cast::had_its_grace_over_a_kill(&ground, "old-killed", GRACE, 2 * LATE)?;
    let names = ["new", "newer", "new-done", "new-rejected"];
    let mut full = Vec::new();
    for name in names {
        full.push(ground.pod(name)?);
    }

    // With room again everything is saved, also what happened meanwhile.
    let ballast = ballast(&ground);
    ground.node().run(|| fs::remove_file(&ballast))??;
    says(&ground, false)?;
    ground.bulkhead.kill_all()?;
    ground.bulkhead.start_again()?;
    ground.apply("last", web(&ground, "last"))?;
    ground.ready("last")?;
    for (name, before) in names.iter().zip(&full) {
        assert_eq!(Look::of(&ground.pod(name)?), Look::of(before), "{name}");
        let starts = usize::from(*name != "new-rejected");
        assert_eq!(ground.noted(name, "started")?, starts, "{name}");
        assert_eq!(ground.noted(name, "SIGTERM")?, 0, "{name}");
    }
    assert_eq!(full[2]["status"]["phase"], "Succeeded");
    assert_eq!(full[3]["status"]["phase"], "Failed");
    cast.is_unharmed(&ground, &witness.hear()?)
}

#[test]
fn a_disk_that_is_full_from_the_start_keeps_no_pod_from_running() -> Result<()> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    let bulkhead = BulkheadInstance::prepare(&containerd, &options())?;
    let mut ground = Ground {
        bulkhead,
        containerd,
    };
    fill(&ground)?;
    ground.bulkhead.start_again()?;
    ground.apply("web", web(&ground, "web"))?;
    ground
        .ready("web")
        .with_context(|| ground.bulkhead.log_ends())?;
    says(&ground, true)?;
    ground.remove("web")?;
    assert_eq!(ground.noted("web", "exit 0")?, 1);
    Ok(())
}

fn options() -> BulkheadOptions {
    BulkheadOptions {
        state_disk_bytes: Some(DISK_BYTES),
        ..BulkheadOptions::default()
    }
}

fn ground_on_a_small_disk() -> Result<Ground> {
    let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
    Ok(Ground {
        bulkhead: BulkheadInstance::start(&containerd, &options())?,
        containerd,
    })
}

/// Leaves no room on the disk.
fn fill(ground: &Ground) -> Result<()> {
    let path = ballast(ground);
    let end = ground.node().run(|| -> std::io::Result<()> {
        let mut file = fs::File::create(&path)?;
        loop {
            file.write_all(&[1; 4096])?;
        }
    })?;
    let error = end.err().context("the disk has no end")?;
    ensure!(
        error.kind() == std::io::ErrorKind::StorageFull,
        "cannot fill the disk: {error}"
    );
    Ok(())
}

fn ballast(ground: &Ground) -> PathBuf {
    ground.bulkhead.paths().state.join("ballast")
}

/// Waits until the process table says, or no longer says, that state cannot be
/// saved.
fn says(ground: &Ground, is_full: bool) -> Result<()> {
    let what = format!(
        "the status to say {}",
        if is_full { "it" } else { "nothing" }
    );
    wait_for(&what, TIMEOUT, || {
        let table = ground.printed(&["status"]);
        let table = table.map_err(|error| format!("{error:#}"))?;
        let says_so = table.contains("cannot be saved") && table.contains("No space left");
        (says_so == is_full).then_some(()).ok_or(table)
    })?;
    Ok(())
}
