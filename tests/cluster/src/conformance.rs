//! The upstream project's own tests of a node, `[NodeConformance]` of its end-to-end tests.
//!
//! `BULKHEAD_CONFORMANCE` names a directory with the test program `e2e.test`, the runner `ginkgo`
//! of the same sources, and the images that the tests use, `images/*.tar`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use test_support::Containerd;

use crate::control_plane::ControlPlane;

/// Names the directory of the program.
const PROGRAM: &str = "BULKHEAD_CONFORMANCE";
/// `all`, or a pattern: the tests to run, else those that are known to pass.
const FOCUS: &str = "BULKHEAD_CONFORMANCE_FOCUS";

/// Names of the tests that pass, one a line.
const PASSED: &str = include_str!("../data/node-conformance-passed.txt");

/// Names of the tests that cannot pass on a test node, each with a tab and the reason.
const EXCLUDED: &str = include_str!("../data/node-conformance-excluded.txt");
/// Most lines of [`EXCLUDED`].
const MAX_EXCLUDED: usize = 10;

/// How many run at a time: most of them wait most of the time.
const PROCESSES: &str = "6";

/// The program on this machine.
#[derive(Debug)]
pub struct Program {
    directory: PathBuf,
    focus: Focus,
}

/// Which tests are run.
#[derive(Debug)]
enum Focus {
    Known,
    All,
    Pattern(String),
}

/// What became of the tests that ran, by name: `passed`, or another word and why.
#[derive(Debug)]
pub struct Outcomes {
    by_name: BTreeMap<String, String>,
    /// Of tests that are known to pass, those that were to run.
    known: BTreeSet<String>,
}

impl Program {
    /// The one that [`PROGRAM`] names, if there is a control plane for it.
    #[must_use]
    pub fn find() -> Option<Program> {
        let directory = PathBuf::from(std::env::var_os(PROGRAM)?);
        let focus = match std::env::var(FOCUS).ok() {
            None => Focus::Known,
            Some(all) if all == "all" => Focus::All,
            Some(pattern) => Focus::Pattern(pattern),
        };
        ControlPlane::assets().map(|_| Program { directory, focus })
    }

    /// Runs the tests against a control plane whose node has this runtime, and leaves what they
    /// said in a new directory.
    ///
    /// # Errors
    /// When they cannot be run.
    pub fn run(
        &self,
        plane: &ControlPlane,
        containerd: &Containerd,
        reports: &Path,
    ) -> Result<Outcomes> {
        for image in fs::read_dir(self.directory.join("images"))? {
            containerd.import(&image?.path())?;
        }
        // None may be there yet.
        let _ = fs::remove_dir_all(reports);
        fs::create_dir_all(reports)?;
        let kubeconfig = reports.join("kubeconfig");
        fs::write(&kubeconfig, plane.admin_kubeconfig()?)?;
        let skipped = excluded()?;
        let node = containerd.node();
        let mut command = node.command(self.directory.join("ginkgo"));
        command
            .args(["--procs", PROCESSES, "--no-color", "--timeout=2h"])
            .args(["--json-report=report.json", "--output-dir"])
            .arg(reports)
            .args(skipped.iter().map(|it| format!("--skip={}", pattern(it))))
            .args(self.patterns().map(|it| format!("--focus={it}")))
            .arg(self.directory.join("e2e.test"))
            .args(["--", "--provider=skeleton", "--disable-log-dump"])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .current_dir(reports);
        let log = File::create(reports.join("output.log"))?;
        command.stdout(log.try_clone()?).stderr(log);
        // How it ended says only that some failed; the report says which.
        node.spawn(command)?.wait()?;
        let report = fs::read(reports.join("report.json")).context("it left no report")?;
        let by_name = outcomes(&serde_json::from_slice(&report)?);
        ensure!(!by_name.is_empty(), "none ran: see {}", reports.display());
        let mut known: BTreeSet<String> = known().map(str::to_owned).collect();
        if let Focus::Pattern(_) = self.focus {
            known.retain(|name| by_name.contains_key(name));
        }
        Ok(Outcomes { by_name, known })
    }

    fn patterns(&self) -> Box<dyn Iterator<Item = String> + '_> {
        match &self.focus {
            Focus::Known => Box::new(known().map(pattern)),
            Focus::All => Box::new([r"\[NodeConformance\]".to_owned()].into_iter()),
            Focus::Pattern(pattern) => Box::new([pattern.clone()].into_iter()),
        }
    }
}

impl Outcomes {
    /// The known ones that did not pass.
    #[must_use]
    pub fn lost(&self) -> Vec<&str> {
        let passed = self.passed();
        let known = self.known.iter().map(String::as_str);
        known.filter(|name| !passed.contains(name)).collect()
    }

    /// The content of the file of known ones with those that passed.
    #[must_use]
    pub fn all_known(&self) -> String {
        let mut all: BTreeSet<&str> = known().collect();
        all.extend(self.passed());
        all.into_iter().map(|name| format!("{name}\n")).collect()
    }

    /// For people: how many passed, which of them are new, and why the others failed.
    #[must_use]
    pub fn summary(&self) -> String {
        let passed = self.passed();
        let mut said = format!("{} of {} pass\n", passed.len(), self.by_name.len());
        let known: BTreeSet<&str> = known().collect();
        for new in passed.difference(&known) {
            let _ = writeln!(said, "new: {new}");
        }
        for (name, outcome) in &self.by_name {
            if !passed.contains(name.as_str()) {
                let _ = writeln!(said, "{name}: {outcome}");
            }
        }
        said
    }

    fn passed(&self) -> BTreeSet<&str> {
        let passed = self.by_name.iter().filter(|(_, it)| *it == "passed");
        passed.map(|(name, _)| name.as_str()).collect()
    }
}

fn known() -> impl Iterator<Item = &'static str> {
    PASSED.lines().filter(|line| !line.is_empty())
}

/// Names of those that are not run.
fn excluded() -> Result<Vec<&'static str>> {
    let names = EXCLUDED.lines().map(|line| line.split_once('\t'));
    let names: Option<Vec<_>> = names.map(|row| row.map(|(name, _)| name)).collect();
    let names = names.context("one that is excluded has no reason")?;
    ensure!(names.len() <= MAX_EXCLUDED, "too many are excluded");
    Ok(names)
}

/// A pattern that this name alone has.
fn pattern(name: &str) -> String {
    let escaped = name.chars().map(|it| match it.is_ascii_punctuation() {
        true => format!("\\{it}"),
        false => it.to_string(),
    });
    escaped.collect()
}

/// The outcomes of a report in ginkgo's JSON.
fn outcomes(report: &Value) -> BTreeMap<String, String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let suites = list(report).into_iter();
    let specs = suites.flat_map(|suite| list(&suite["SpecReports"]));
    let ran = specs.filter_map(|spec| {
        let text = |pointer| spec.pointer(pointer)?.as_str();
        let state = text("/State").filter(|state| !["skipped", "pending"].contains(state))?;
        let leaf = text("/LeafNodeText").filter(|_| text("/LeafNodeType") == Some("It"))?;
        let containers = list(&spec["ContainerHierarchyTexts"]);
        let containers = containers.iter().filter_map(Value::as_str);
        let name: Vec<&str> = containers.chain([leaf]).collect();
        let outcome = match state {
            "passed" => state.to_owned(),
            other => format!("{other}: {}", text("/Failure/Message").unwrap_or_default()),
        };
        Some((name.join(" "), outcome))
    });
    ran.collect()
}
