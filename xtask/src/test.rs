//! `cargo xtask test`: every check that CI makes, with one closing line.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use test_support::{binaries, images, node};

use crate::build::{self, Profile};
use crate::failures::Failures;
use crate::{packages, report};

/// Tests with a containerd of their own that run at a time: each keeps a processor busy
/// now and then, and CI has two. With three a test ran out of time.
const E2E_THREADS: &str = "2";

/// What a test writes before the rest of a line, past the capture of its output, when this
/// machine lacks what it needs. The line may have begun with the test's name.
const NOT_TRIED: &str = "not tried here: ";

/// Arguments of `test`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these steps, in their usual order (default: all)
    #[arg(long, value_enum, value_delimiter = ',', value_name = "STEP")]
    only: Vec<Step>,
    /// Only tests whose name contains this
    filter: Option<String>,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Formatting
    Fmt,
    /// Lints, warnings being errors
    Clippy,
    /// Unit tests of all crates
    Unit,
    /// The whole node in one process under a simulated clock
    Simulation,
    /// The real programs on a real containerd, by themselves and in a cluster
    E2e,
}

const ALL_STEPS: [Step; 5] = [
    Step::Fmt,
    Step::Clippy,
    Step::Unit,
    Step::Simulation,
    Step::E2e,
];

/// What the test programs report.
#[derive(Debug, Default)]
struct Results {
    totals: Totals,
    failures: Failures,
    /// What tests passed without, for want of something on this machine.
    not_tried: BTreeSet<String>,
}

/// Sums of what the test programs report.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    ignored: u64,
}

/// Runs the steps, all of them even if one fails.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::require_root()?;
    packages::install_missing()?;
    node::reap_dead_owners()?;

    let mut results = Results::default();
    let mut failed_steps = Vec::new();
    for step in ALL_STEPS {
        if !arguments.only.is_empty() && !arguments.only.contains(&step) {
            continue;
        }
        report::step(title(step));
        if !run_step(step, arguments.filter.as_deref(), &mut results)? {
            failed_steps.push(title(step));
        }
    }
    let Results {
        totals,
        failures,
        not_tried,
    } = results;
    for what in &not_tried {
        report::line(what);
    }
    // Said again at the end: there are thousands of lines above.
    for failure in failures.summaries() {
        report::line(&failure);
    }
    for title in &failed_steps {
        report::line(&format!("failed: {title}"));
    }
    report::line(&format!("\n{totals}"));
    let success = failed_steps.is_empty() && totals.failed == 0;
    Ok(if success {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn title(step: Step) -> &'static str {
    match step {
        Step::Fmt => "format",
        Step::Clippy => "lints",
        Step::Unit => "unit tests",
        Step::Simulation => "simulation",
        Step::E2e => "end-to-end tests",
    }
}

/// Whether the step succeeded.
fn run_step(step: Step, filter: Option<&str>, results: &mut Results) -> Result<bool> {
    // Of the whole workspace, always: its dependencies have the same features then, and are
    // compiled once for all steps.
    let test = |targets: &[&str]| {
        let mut command = cargo(&["test", "--no-fail-fast", "--workspace"]);
        command.args(targets);
        command.args(filter);
        command
    };
    match step {
        Step::Fmt => succeeds(&mut cargo(&["fmt", "--all", "--check"])),
        Step::Clippy => {
            let what = [
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ];
            succeeds(&mut cargo(&what))
        }
        Step::Unit => {
            let others = ["e2e", "cluster", "simulation"];
            let others = others.iter().flat_map(|package| ["--exclude", package]);
            let with_own_programs: Vec<_> = others.chain(["--test", "*"]).collect();
            // Documents have no examples, and to look for them takes a second for each crate.
            let in_crates = count(&mut test(&["--lib", "--bins"]), results)?;
            Ok(count(&mut test(&with_own_programs), results)? && in_crates)
        }
        Step::Simulation => {
            let what = ["--test", "exhaustive", "--test", "seeds"];
            count(&mut test(&what), results)
        }
        Step::E2e => {
            if let Err(error) = build::programs(Profile::Development, &[]) {
                report::failure(&error);
                return Ok(false);
            }
            images::archives()?;
            let mut command = test(&["--test", "e2e", "--test", "cluster"]);
            command.env(binaries::BUILT_VARIABLE, "1");
            command.args(["--", "--test-threads", E2E_THREADS]);
            count(&mut command, results)
        }
    }
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = binaries::cargo_command();
    command.args(arguments);
    command
}

fn succeeds(command: &mut Command) -> Result<bool> {
    Ok(command.status().context("cannot run cargo")?.success())
}

/// Runs `cargo test`, showing its output as it comes and noting the results.
fn count(command: &mut Command, results: &mut Results) -> Result<bool> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run cargo")?;
    let output = child.stdout.take().context("no output to read")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("cannot read the tests' output")?;
        let line = String::from_utf8_lossy(&line);
        report::line(&line);
        results.totals.add(&line);
        results.not_tried.extend(not_tried(&line));
        results.failures.add(&line);
    }
    Ok(child.wait().context("cannot wait for cargo")?.success())
}

/// What a line says was not tried, with these words.
fn not_tried(line: &str) -> Option<String> {
    let begin = line.find(NOT_TRIED)?;
    Some(line[begin..].trim_end().to_owned())
}

impl Totals {
    /// Adds the closing line of one test program, e.g.
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; ...`; ignores others.
    pub(crate) fn add(&mut self, line: &str) {
        let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for part in counts.split("; ") {
            let Some((number, what)) = part.split_once(' ') else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals {
            passed,
            failed,
            ignored,
        } = self;
        write!(
            formatter,
            "{passed} passed, {failed} failed, {ignored} ignored"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_tried_is_found_in_whatever_line_it_is() {
        let told = Some("not tried here: quotas: no kernel".to_owned());
        for line in [
            "not tried here: quotas: no kernel",
            "test state::quotas ... not tried here: quotas: no kernel",
        ] {
            assert_eq!(not_tried(line), told, "{line}");
        }
        assert_eq!(not_tried("test state::quotas ... ok"), None);
    }

    #[test]
    fn results_of_several_programs_add_up() {
        let mut totals = Totals::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 2.26s",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 5 filtered out; finished in 0.01s",
            "test result: nonsense",
        ] {
            totals.add(line);
        }
        assert_eq!(
            totals,
            Totals {
                passed: 4,
                failed: 2,
                ignored: 1
            }
        );
    }
}
