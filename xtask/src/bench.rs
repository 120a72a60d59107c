//! `cargo xtask bench`.

use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use test_support::binaries;

use crate::build::{self, Profile};
use crate::packages;

/// Arguments of `bench`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Handed on to the bench program; `-- --help` lists them
    #[arg(last = true)]
    bench_arguments: Vec<String>,
}

/// Builds everything in the release profile and runs `tests/bench`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::require_root()?;
    packages::install_missing()?;
    build::programs(Profile::Release, &["bench", "e2e"])?;
    let program = binaries::target_directory()?.join("release/bench");
    let status = Command::new(&program)
        .args(&arguments.bench_arguments)
        .env(binaries::BUILT_VARIABLE, "1")
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
