//! `cargo xtask sim`: plays many scenarios on the simulated node, with the processes' real
//! code in an optimised build that keeps its checks.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use test_support::binaries::cargo_command;

/// With this flag tokio can be told its seed, so that a seed of ours gives the same history
/// each time.
pub(crate) const FLAGS: &str = "--cfg tokio_unstable";

/// Optimised, with the checks that a debug build makes.
pub(crate) const PROFILE: &str = "simulation";

/// Arguments of `sim`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What to play; `cargo xtask sim -- --help` tells
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    what: Vec<String>,
}

/// Builds the simulation and plays.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut command = cargo_command();
    command.args(["run", "--quiet", "--profile", PROFILE]);
    command.args(["--package", "simulation", "--bin", "simulate", "--"]);
    command.args(&arguments.what);
    command.env("RUSTFLAGS", FLAGS);
    let status = command.status().context("cannot run cargo")?;
    Ok(match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
