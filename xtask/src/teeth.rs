//! `cargo xtask sim-teeth`: faults are put into a copy of the product one by one, and the
//! simulation has to find each. What it does not find, it would not find if we made it.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use test_support::binaries::{cargo_command, workspace};

use crate::{report, sim};

const FAULTS: &str = "tests/simulation/teeth.toml";

/// Arguments of `sim-teeth`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Scenarios to play at most for each fault
    #[arg(long, default_value_t = 2000, value_name = "NUMBER")]
    seeds: u64,
    /// Only faults whose name contains this
    filter: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Faults {
    fault: Vec<Fault>,
}

/// A change of the product, or several where one mechanism makes good what another omits.
#[derive(Debug, Deserialize)]
struct Fault {
    name: String,
    #[serde(flatten)]
    change: Change,
    /// In other files.
    #[serde(default)]
    also: Vec<Change>,
}

/// A line of the product, and what it becomes.
#[derive(Debug, Deserialize)]
struct Change {
    file: PathBuf,
    from: String,
    to: String,
}

impl Fault {
    /// Each file that it changes, as it is below `tree` and with the fault.
    fn files(&self, tree: &Path) -> Result<Vec<(PathBuf, String, String)>> {
        let changes = std::iter::once(&self.change).chain(&self.also);
        let texts = changes.map(|change| {
            let place = tree.join(&change.file);
            let sound = std::fs::read_to_string(&place)?;
            let found = sound.matches(&change.from).count();
            let (name, file) = (&self.name, change.file.display());
            ensure!(found == 1, "fault {name:?} fits {file} {found} times");
            let faulty = sound.replace(&change.from, &change.to);
            Ok((place, sound, faulty))
        });
        texts.collect()
    }
}

fn faults(root: &Path) -> Result<Vec<Fault>> {
    let text = std::fs::read_to_string(root.join(FAULTS)).context(FAULTS)?;
    let faults: Faults = toml::from_str(&text).context(FAULTS)?;
    Ok(faults.fault)
}

/// Tries them all.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let root = workspace();
    let tree = root.join("target/teeth/tree");
    copy(&root, &tree)?;
    let mut missed = Vec::new();
    let mut tried = 0;
    for fault in faults(&root)? {
        let filter = arguments.filter.as_deref().unwrap_or_default();
        if !fault.name.contains(filter) {
            continue;
        }
        tried += 1;
        let files = fault.files(&tree)?;
        for (place, _, faulty) in &files {
            std::fs::write(place, faulty)?;
        }
        let how = found(&tree, arguments.seeds);
        for (place, sound, _) in &files {
            std::fs::write(place, sound)?;
        }
        match how? {
            Some(how) => report::line(&format!("found   {}: {how}", fault.name)),
            None => {
                report::line(&format!("missed  {}", fault.name));
                missed.push(fault.name);
            }
        }
    }
    let found = tried - missed.len();
    report::line(&format!("{found} of {tried} faults found"));
    Ok(match missed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Makes the copy equal to the tree, as far as git knows that.
fn copy(root: &Path, tree: &Path) -> Result<()> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root)
        .output()
        .context("cannot run git")?;
    for name in listed.stdout.split(|byte| *byte == 0) {
        let name = Path::new(std::str::from_utf8(name)?);
        let from = root.join(name);
        if !from.is_file() {
            continue;
        }
        let (to, text) = (tree.join(name), std::fs::read(&from)?);
        // What has not changed keeps its time, and is not built again.
        if std::fs::read(&to).is_ok_and(|there| there == text) {
            continue;
        }
        std::fs::create_dir_all(to.parent().context("a file has a directory")?)?;
        std::fs::write(&to, text)?;
    }
    Ok(())
}

/// How the simulation found the fault in this tree, if it did.
fn found(tree: &Path, seeds: u64) -> Result<Option<String>> {
    let build = tree.with_file_name("build");
    let mut command = cargo_command();
    command.args(["run", "--quiet", "--profile", sim::PROFILE]);
    command.args(["--package", "simulation", "--bin", "simulate", "--"]);
    command.args([
        "--from",
        "0",
        "--seeds",
        &seeds.to_string(),
        "--until-failure",
    ]);
    command.current_dir(tree).env("CARGO_TARGET_DIR", build);
    command.env("RUSTFLAGS", sim::FLAGS);
    // Most of each build is as the one before.
    command.env("CARGO_INCREMENTAL", "1");
    let output = command.output().context("cannot run cargo")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let played = said
        .lines()
        .any(|line| line.contains("scenarios from seed"));
    ensure!(played, "{}", String::from_utf8_lossy(&output.stderr));
    let how = said.lines().find(|line| line.starts_with("seed "));
    Ok(how.map(|line| line.chars().take(160).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_fits_the_product() {
        let root = workspace();
        for fault in faults(&root).unwrap() {
            for (_, sound, faulty) in fault.files(&root).unwrap() {
                assert_ne!(sound, faulty, "{}", fault.name);
            }
        }
    }
}
