//! `cargo xtask sim-teeth`: faults are put into a copy of the product, and the simulation has
//! to find each. What it does not find, it would not find if we made it.
//!
//! All are built at once. A function with a fault has its body twice, and a variable of the
//! environment says which fault counts:
//!
//! ```text
//! fn restarts(...) -> bool {          fn restarts(...) -> bool {
//!     as it is                 -->        if (is it fault 7?) { with the fault } else { as it is }
//! }                                   }
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use test_support::binaries::{cargo_command, workspace};

use crate::{report, sim};

const FAULTS: &str = "tests/simulation/teeth.toml";

/// Says to the faulty product which fault counts, by its number.
const VARIABLE: &str = "BULKHEAD_FAULT";

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
    /// A seed that has found it, where few do; it is played first.
    seed: Option<u64>,
}

/// A line of the product, and what it becomes.
#[derive(Debug, Deserialize)]
struct Change {
    file: PathBuf,
    from: String,
    to: String,
}

/// A function with what becomes of it under each fault that it has.
struct Bodies {
    sound: String,
    faulty: Vec<(usize, String)>,
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
    let faults = faults(&root)?;
    copy(&root, &tree, &with_faults(&root, &faults)?)?;
    let binary = build(&tree)?;
    let filter = arguments.filter.as_deref().unwrap_or_default();
    let mut missed = 0;
    let mut tried = 0;
    for (number, fault) in faults.iter().enumerate() {
        if !fault.name.contains(filter) {
            continue;
        }
        tried += 1;
        let began = Instant::now();
        let how = found(&binary, number, fault, arguments.seeds)?;
        let (name, seconds) = (&fault.name, began.elapsed().as_secs());
        match how {
            Some(how) => report::line(&format!("found   {name} ({seconds} s): {how}")),
            None => {
                report::line(&format!("missed  {name} ({seconds} s)"));
                missed += 1;
            }
        }
    }
    report::line(&format!("{} of {tried} faults found", tried - missed));
    Ok(match missed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Each file that a fault changes, with all of its faults.
fn with_faults(root: &Path, faults: &[Fault]) -> Result<BTreeMap<PathBuf, String>> {
    let mut files: BTreeMap<&Path, BTreeMap<usize, Bodies>> = BTreeMap::new();
    for (number, fault) in faults.iter().enumerate() {
        for change in std::iter::once(&fault.change).chain(&fault.also) {
            let text = std::fs::read_to_string(root.join(&change.file))?;
            let (name, file) = (&fault.name, change.file.display());
            let found = text.matches(&change.from).count();
            ensure!(found == 1, "fault {name:?} fits {file} {found} times");
            let place = text.find(&change.from).unwrap_or_default();
            let (begin, end) = body_around(&text, place)
                .with_context(|| format!("fault {name:?} is in no function of {file}"))?;
            let sound = text[begin..end].to_owned();
            let faulty = sound.replace(&change.from, &change.to);
            ensure!(sound != faulty, "fault {name:?} changes nothing of {file}");
            let bodies = files.entry(&change.file).or_default();
            let bodies = bodies.entry(begin).or_insert(Bodies {
                sound,
                faulty: Vec::new(),
            });
            bodies.faulty.push((number, faulty));
        }
    }
    let written = files.into_iter().map(|(file, functions)| {
        let mut text = std::fs::read_to_string(root.join(file))?;
        // From the last one, since the places of those before it stay.
        for (begin, bodies) in functions.into_iter().rev() {
            text.replace_range(begin..begin + bodies.sound.len(), &bodies.text());
        }
        Ok((file.to_owned(), text))
    });
    written.collect()
}

impl Bodies {
    fn text(&self) -> String {
        let faulty = self.faulty.iter().map(|(number, body)| {
            format!(
                "if {{ static COUNTS: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| \
                 std::env::var_os({VARIABLE:?}).is_some_and(|it| it == \"{number}\")); \
                 *COUNTS }} {{\n{body}}} else "
            )
        });
        format!("{}{{\n{}}}\n", faulty.collect::<String>(), self.sound)
    }
}

/// Where the body of the innermost function begins and ends that has this place, in a file
/// that is formatted: its signature, and the brace that ends it, stand equally far to the right.
fn body_around(text: &str, place: usize) -> Option<(usize, usize)> {
    // How far to the right the signature stands that is being read.
    let mut signature = None;
    // Functions that have begun: the same, and where the body begins.
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        let end = begin + line.len();
        let code = line.trim();
        let indent = line.len() - line.trim_start().len();
        if is_signature(code) {
            signature = Some(indent);
        }
        if signature == Some(indent) && code.ends_with(['{', '}', ';']) {
            signature = None;
            if code.ends_with('{') {
                open.push((indent, end));
            }
        } else if code == "}"
            && let Some((_, body)) = open.pop_if(|(at, _)| *at == indent)
            && (body..begin).contains(&place)
        {
            return Some((body, begin));
        }
        begin = end;
    }
    None
}

/// Whether a function begins with this line.
fn is_signature(code: &str) -> bool {
    let mut words = code.split_whitespace();
    let modifier = |word: &&str| word.starts_with("pub") || ["async", "const"].contains(word);
    let first = words.find(|word| !modifier(word));
    first == Some("fn")
}

/// Makes the copy equal to the tree, as far as git knows that, but for some files.
fn copy(root: &Path, tree: &Path, others: &BTreeMap<PathBuf, String>) -> Result<()> {
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
        let to = tree.join(name);
        let text = match others.get(name) {
            Some(text) => text.clone().into_bytes(),
            None => std::fs::read(&from)?,
        };
        // What has not changed keeps its time, and is not built again.
        if std::fs::read(&to).is_ok_and(|there| there == text) {
            continue;
        }
        std::fs::create_dir_all(to.parent().context("a file has a directory")?)?;
        std::fs::write(&to, text)?;
    }
    Ok(())
}

/// Builds the simulation of the faulty product.
fn build(tree: &Path) -> Result<PathBuf> {
    let target = tree.with_file_name("build");
    let mut command = cargo_command();
    command.args(["build", "--quiet", "--profile", sim::PROFILE]);
    command.args(["--package", "simulation", "--bin", "simulate"]);
    command.current_dir(tree).env("CARGO_TARGET_DIR", &target);
    command.env("RUSTFLAGS", sim::FLAGS);
    let built = command.output().context("cannot run cargo")?;
    let said = String::from_utf8_lossy(&built.stderr);
    ensure!(built.status.success(), "{said}");
    Ok(target.join(sim::PROFILE).join("simulate"))
}

/// How the simulation finds this fault, if it does.
fn found(binary: &Path, number: usize, fault: &Fault, seeds: u64) -> Result<Option<String>> {
    let known = fault.seed.map(|seed| (seed, 1));
    for (from, seeds) in known.into_iter().chain([(0, seeds)]) {
        let mut command = Command::new(binary);
        command.args(["--from", &from.to_string(), "--seeds", &seeds.to_string()]);
        command.arg("--until-failure");
        command.env(VARIABLE, number.to_string());
        let output = command.output().context("cannot play")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let mut lines = said.lines();
        let played = lines.any(|line| line.contains("scenarios from seed"));
        ensure!(played, "{}", String::from_utf8_lossy(&output.stderr));
        let mut lines = said.lines();
        if let Some(how) = lines.find(|line| line.starts_with("seed ")) {
            return Ok(Some(how.chars().take(160).collect()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_fits_the_product() {
        let root = workspace();
        let faults = faults(&root).unwrap();
        for (file, text) in with_faults(&root, &faults).unwrap() {
            let sound = std::fs::read_to_string(root.join(&file)).unwrap();
            assert_ne!(sound, text, "{}", file.display());
        }
    }

    #[test]
    fn a_fault_is_put_into_the_innermost_function() {
        let text = "impl A {\n    pub(crate) async fn b(\n        c: C,\n    ) -> D {\n        \
                    fn e() {\n            f\n        }\n        g\n    }\n\n    fn h();\n}\n\
                    fn i() {\n    j\n}\n";
        for (place, body) in [
            ("f\n", Some("            f\n")),
            (
                "g\n",
                Some("        fn e() {\n            f\n        }\n        g\n"),
            ),
            ("j\n", Some("    j\n")),
            ("c: C", None),
        ] {
            let found = body_around(text, text.find(place).unwrap());
            assert_eq!(found.map(|(begin, end)| &text[begin..end]), body, "{place}");
        }
    }
}
