//! The upstream project's own tests of a node, `[NodeConformance]` of its end-to-end tests.
//!
//! `BULKHEAD_CONFORMANCE` names a directory with the test program `e2e.test`, the runner `ginkgo`
//! of the same sources, and the images that the tests use, `images/*.tar`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use test_support::Containerd;

use crate::control_plane::ControlPlane;

/// Names the directory of the program.
const PROGRAM: &str = "BULKHEAD_CONFORMANCE";
/// Names a pattern of the tests to run, else all.
const FOCUS: &str = "BULKHEAD_CONFORMANCE_FOCUS";

/// Names of the tests that cannot pass on a test node, each with a tab and the reason.
const EXCLUDED: &str = include_str!("../data/node-conformance-excluded.txt");
/// Most lines of [`EXCLUDED`].
const MAX_EXCLUDED: usize = 10;

/// How many run at a time: most of them wait most of the time.
const PROCESSES: &str = "6";

/// What became of the tests that ran, by name: `passed`, or another word and why.
pub type Outcomes = BTreeMap<String, String>;

/// The program on this machine.
#[derive(Debug)]
pub struct Program {
    directory: PathBuf,
    focus: Option<String>,
}

impl Program {
    /// The one that [`PROGRAM`] names, if there is a control plane for it.
    #[must_use]
    pub fn find() -> Option<Program> {
        let directory = PathBuf::from(std::env::var_os(PROGRAM)?);
        let focus = std::env::var(FOCUS).ok();
        ControlPlane::assets().map(|_| Program { directory, focus })
    }

    /// Those of the names that do not pass; where only some tests are run, of these.
    #[must_use]
    pub fn not_passed<'a>(&self, names: &BTreeSet<&'a str>, outcomes: &Outcomes) -> Vec<&'a str> {
        let names = names
            .iter()
            .copied()
            .filter(|name| match outcomes.get(*name) {
                Some(outcome) => outcome != "passed",
                None => self.focus.is_none(),
            });
        names.collect()
    }

    /// Runs the tests against a control plane whose node has this runtime, and leaves the report
    /// in a directory that must be there.
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
        let excluded: Vec<&str> = excluded().keys().copied().collect();
        ensure!(excluded.len() <= MAX_EXCLUDED, "too many are excluded");
        let focus = self.focus.as_deref().unwrap_or(r"\[NodeConformance\]");
        let kubeconfig = reports.join("kubeconfig");
        fs::write(&kubeconfig, plane.admin_kubeconfig()?)?;
        let node = containerd.node();
        let mut command = node.command(self.directory.join("ginkgo"));
        command
            .args(["--procs", PROCESSES, "--no-color", "--timeout=2h"])
            .args(
                excluded
                    .iter()
                    .map(|name| format!("--skip={}", pattern(name))),
            )
            .args([
                format!("--focus={focus}"),
                "--json-report=report.json".to_owned(),
            ])
            .arg(format!("--output-dir={}", reports.display()))
            .arg(self.directory.join("e2e.test"))
            .args(["--", "--provider=skeleton", "--disable-log-dump"])
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .current_dir(reports);
        let log = File::create(reports.join("output.log"))?;
        command.stdout(log.try_clone()?).stderr(log);
        // How it ended says only that some failed; the report says which.
        node.spawn(command)?.wait()?;
        let report = fs::read(reports.join("report.json")).context("it left no report")?;
        let outcomes = outcomes(&serde_json::from_slice(&report)?);
        ensure!(!outcomes.is_empty(), "none ran: see {}", reports.display());
        Ok(outcomes)
    }
}

/// Why tests of these names do not run.
fn excluded() -> BTreeMap<&'static str, &'static str> {
    EXCLUDED
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .collect()
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
fn outcomes(report: &Value) -> Outcomes {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let specs = list(report)
        .into_iter()
        .flat_map(|it| list(&it["SpecReports"]));
    let ran = specs.filter_map(|spec| {
        let text = |pointer: &str| {
            spec.pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let state = text("/State");
        if text("/LeafNodeType") != "It" || ["skipped", "pending"].contains(&state) {
            return None;
        }
        let mut name: Vec<String> = list(&spec["ContainerHierarchyTexts"])
            .iter()
            .filter_map(|it| it.as_str().map(str::to_owned))
            .collect();
        name.push(text("/LeafNodeText").to_owned());
        let outcome = match state {
            "passed" => state.to_owned(),
            other => format!("{other}: {}", text("/Failure/Message")),
        };
        Some((name.join(" "), outcome))
    });
    ran.collect()
}

/// The names that passed.
#[must_use]
pub fn passed(outcomes: &Outcomes) -> BTreeSet<&str> {
    let passed = outcomes.iter().filter(|(_, outcome)| *outcome == "passed");
    passed.map(|(name, _)| name.as_str()).collect()
}
