//! Entry point: flags, logging, the run, the exit code.

use std::process::ExitCode;

use clap::Parser;
use supervisor::{Flags, StandardError};

fn main() -> ExitCode {
    let flags = Flags::parse();
    telemetry::start_on(|| StandardError);
    match supervisor::run(flags) {
        Ok(()) => {
            tracing::info!("stopped");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            tracing::error!(error = telemetry::chain(&failure), "ended with an error");
            ExitCode::from(failure.exit_code())
        }
    }
}
