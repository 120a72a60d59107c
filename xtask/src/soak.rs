//! `cargo xtask soak`: the tests of supervision under fire in full, of which the test command
//! runs a part.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use test_support::binaries::cargo_command;
use test_support::node;

use crate::packages;

/// Arguments of `soak`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Faults at random
    #[arg(long, default_value_t = 1000, value_name = "NUMBER")]
    kills: u32,
    /// Pods that have to go on meanwhile, beside the usual ones
    #[arg(long, default_value_t = 50, value_name = "NUMBER")]
    pods: u32,
    /// Instead: every fault to every process in every phase of the node, once
    #[arg(long)]
    matrix: bool,
    /// Instead: pods that come for four minutes while a process is killed every five seconds
    #[arg(long, conflicts_with = "matrix")]
    arrivals: bool,
    /// Of the matrix: only what happens to this process
    #[arg(long, requires = "matrix", value_name = "NAME")]
    process: Option<String>,
}

/// Runs one of the three.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::require_root()?;
    packages::install_missing()?;
    node::reap_dead_owners()?;
    let test = match (arguments.matrix, arguments.arrivals) {
        (true, _) => "fire::whatever_happens_to_a_process_no_container_notices",
        (false, true) => "arrivals::pods_that_come_while_processes_are_killed_start_in_time",
        (false, false) => "fire::a_storm_of_kills_blows_over",
    };
    let mut command = cargo_command();
    command.args([
        "test",
        "--workspace",
        "--test",
        "e2e",
        "--",
        "--exact",
        test,
    ]);
    command.arg("--nocapture");
    command.env("BULKHEAD_MATRIX", "whole");
    if let Some(process) = &arguments.process {
        command.env("BULKHEAD_MATRIX_PROCESS", process);
    }
    command.env("BULKHEAD_ARRIVALS_SECONDS", "240");
    command.env("BULKHEAD_SOAK_KILLS", arguments.kills.to_string());
    command.env("BULKHEAD_SOAK_PODS", arguments.pods.to_string());
    let status = command.status().context("cannot run cargo")?;
    Ok(match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
