//! The command line for people: what each process and each pod is doing and why.
//!
//! `arguments` is what can be typed, `connection` reaches the processes, and
//! each command has a file of its own: it asks, and a pure function renders. It
//! holds no state and decides nothing about pods.

mod arguments;
mod connection;
mod failure;
mod logs;
mod pod_row;
mod pods;
mod status;
mod table;
mod words;

pub use arguments::Arguments;
pub use failure::Failure;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use arguments::Command;
use connection::Connection;

/// Parses the command line, runs the command, and tells the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(run(&arguments)),
        Err(source) => Err(Failure::Local {
            action: "start",
            source,
        }),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            // Nobody is left to tell when this fails too.
            let _ = writeln!(std::io::stderr(), "bulkhead: {}", failure.text());
            failure.exit_code()
        }
    }
}

async fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let connection = Connection::new(&arguments.run_dir);
    match &arguments.command {
        Command::Status(options) => status::status(&connection, options).await,
        Command::Pods(options) => pods::pods(&connection, options).await,
        Command::Logs(options) => logs::logs(&connection, options).await,
        Command::Restart(options) => status::restart(&connection, options).await,
        Command::Crashes(options) => status::crashes(&connection, options).await,
    }
}
