//! Logs are rotated: their size and number are bounded, no line is lost, whoever dies
//! meanwhile, and all of it goes with the container.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::Ground;
use e2e::ground::TIMEOUT;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use test_support::{wait_for, wait_until};
use topology::Process;

/// The shortest interval that a kubelet takes.
const INTERVAL: Duration = Duration::from_secs(3);

/// Files of a log at most.
const MAX_FILES: usize = 4;

/// Longest time until files of a log are as they are to be.
const ROUNDS: Duration = Duration::from_secs(60);

fn ground() -> Result<Ground> {
    Ground::start(json!({
        "containerLogMaxSize": "1Ki",
        "containerLogMaxFiles": MAX_FILES,
        "containerLogMonitorInterval": format!("{}s", INTERVAL.as_secs()),
    }))
}

/// Where the logs of a pod's container `app` are.
fn log_directory(ground: &Ground, pod: &Value) -> Result<PathBuf> {
    let metadata = &pod["metadata"];
    let text = |key: &str| metadata[key].as_str().context("the pod has no name");
    let name = format!("{}_{}_{}", text("namespace")?, text("name")?, text("uid")?);
    Ok(ground
        .bulkhead
        .paths()
        .log
        .join("pods")
        .join(name)
        .join("app"))
}

/// The files of a log, oldest first, the one that is written last.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?;
    let paths: std::io::Result<Vec<_>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths?;
    // The log itself has the shortest name and is the newest.
    paths.sort();
    paths.rotate_left(1);
    Ok(paths)
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// The numbers of the lines that the test program wrote to these files.
fn numbers(paths: &[PathBuf]) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for path in paths {
        let mut text = String::new();
        let mut file = File::open(path)?;
        match is_compressed(path) {
            true => GzDecoder::new(file).read_to_string(&mut text)?,
            false => file.read_to_string(&mut text)?,
        };
        // What follows the last line end is still being written.
        let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
        for line in whole.lines() {
            if let Some((_, number)) = line.split_once(" stdout F line ") {
                numbers.push(number.parse()?);
            }
        }
    }
    Ok(numbers)
}

/// The numbers of the lines in a log's files, once there are `count` files: all rotated
/// ones but the newest are compressed then.
fn kept_numbers(directory: &Path, count: usize) -> Result<Vec<u64>> {
    let kept = wait_for("the files of a log", ROUNDS, || {
        let look = || -> Result<_> {
            let before = files(directory)?;
            let numbers = numbers(&before)?;
            // A round may have come in between.
            Ok((files(directory)? == before, before, numbers))
        };
        let (is_steady, files, numbers) = look().map_err(|error| format!("{error:#}"))?;
        let compressed = files.iter().filter(|path| is_compressed(path)).count();
        match is_steady && files.len() == count && compressed + 2 == count {
            true => Ok(numbers),
            false => Err(format!("{files:?}")),
        }
    })?;
    Ok(kept)
}

#[test]
fn logs_are_rotated_without_a_line_lost_though_the_pool_is_killed() -> Result<()> {
    let mut ground = ground()?;
    ground.apply("chatty", ground.app("chatty", &["--print-every-ms", "5"]))?;
    let pod = ground.ready("chatty")?;
    let directory = log_directory(&ground, &pod)?;

    // Before any is removed: every line from the first on is in some file.
    let first = kept_numbers(&directory, 3).with_context(|| ground.bulkhead.log_ends())?;
    ensure!(first.first() == Some(&0), "{first:?}");
    is_unbroken(&first)?;

    // Kills at any moment of a round.
    for _ in 0..2 {
        // The last file may have come in its last moment before the kill: then it is on
        // its way back.
        wait_for("pod-worker-pool to be killed", TIMEOUT, || {
            let killed = ground.bulkhead.kill(Process::PodWorkerPool);
            killed.map_err(|error| format!("{error:#}"))
        })?;
        let before: BTreeSet<_> = files(&directory)?.into_iter().collect();
        wait_until("a rotation", ROUNDS, || {
            let now = files(&directory).unwrap_or_default();
            now.iter().any(|path| !before.contains(path))
        })?;
    }
    let kept = kept_numbers(&directory, MAX_FILES).with_context(|| ground.bulkhead.log_ends())?;
    is_unbroken(&kept)?;
    ensure!(kept.first() > Some(&0), "nothing was removed: {kept:?}");
    assert_eq!(ground.noted("chatty", "started")?, 1);

    // All of it goes with the pod.
    ground.remove("chatty")?;
    ground.collect_garbage_soon()?;
    wait_until("the logs to go", TIMEOUT, || !directory.exists())?;
    Ok(())
}

/// That no number is missing and none is there twice.
fn is_unbroken(numbers: &[u64]) -> Result<()> {
    let broken = numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]);
    ensure!(broken.is_none(), "{broken:?} in {numbers:?}");
    Ok(())
}

#[test]
fn a_log_that_is_not_there_is_opened_anew_and_a_quiet_one_is_left_alone() -> Result<()> {
    let ground = ground()?;
    ground.apply("quiet", ground.app("quiet", &["--print", "a word"]))?;
    ground.apply("robbed", ground.app("robbed", &["--print-every-ms", "500"]))?;
    let quiet = log_directory(&ground, &ground.ready("quiet")?)?;
    let robbed = log_directory(&ground, &ground.ready("robbed")?)?;
    // As a kill between the renaming and the opening leaves it.
    fs::rename(robbed.join("0.log"), robbed.join("0.log.20200101-000000"))?;
    wait_until("the log to be opened anew", ROUNDS, || {
        robbed.join("0.log").exists()
    })
    .with_context(|| ground.bulkhead.log_ends())?;
    let both = wait_for("a line in the new file", ROUNDS, || {
        let files = files(&robbed).map_err(|error| format!("{error:#}"))?;
        let newest = numbers(&files[1..]).map_err(|error| format!("{error:#}"))?;
        match newest.is_empty() {
            true => Err("there is none yet".to_owned()),
            false => Ok(files),
        }
    })?;
    is_unbroken(&numbers(&both)?)?;
    assert_eq!(files(&quiet)?, [quiet.join("0.log")]);
    Ok(())
}
