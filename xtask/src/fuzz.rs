//! `cargo xtask fuzz`: readers of what strangers write, with many more changed inputs than
//! the other tests give them.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use test_support::binaries::cargo_command;

/// What each test reads for its number of inputs (proptest's own variable).
const CASES: &str = "PROPTEST_CASES";

/// What these tests are called where a reader is private to its crate.
const PRIVATE: &str = "fuzz_tests::";

/// Arguments of `fuzz`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Inputs for each reader
    #[arg(long, default_value_t = 100_000, value_name = "NUMBER")]
    cases: u32,
}

/// Runs the tests of all readers, all of them even if one fails.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let public: &[&str] = &["-p", "fuzz"];
    let private: &[&str] = &[
        "-p",
        "cri-requests",
        "-p",
        "pod-worker-pool",
        "--lib",
        PRIVATE,
    ];
    let mut outcome = ExitCode::SUCCESS;
    for tests in [public, private] {
        let mut command = cargo_command();
        command.args(["test", "--no-fail-fast"]).args(tests);
        command.env(CASES, arguments.cases.to_string());
        if !command.status().context("cannot run cargo")?.success() {
            outcome = ExitCode::FAILURE;
        }
    }
    Ok(outcome)
}
