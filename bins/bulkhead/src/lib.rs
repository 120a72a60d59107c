//! The command line for people: what each process and each pod is doing and why.
//!
//! `arguments` is what can be typed, `connection` reaches the processes, and each command has a file of its own (`bundle` has those that systemd answers where it
//! supervises, in the words of `systemd`): it asks, and a pure function renders. It
//! holds no state and decides nothing about pods. What comes from elsewhere is shown on a
//! terminal by `escape` alone: each command escapes the words that it prints, and `output`
//! once more all that it is given.

mod api_server;
mod arguments;
mod bundle;
mod check;
mod connection;
mod container_choice;
mod copy;
mod describe;
mod escape;
mod events;
mod exec;
mod failure;
mod logs;
mod loop_status;
mod node;
mod output;
mod pod_list;
mod pod_row;
mod pods;
mod policy;
mod port_forward;
mod pulls;
mod sessions;
mod status;
mod systemd;
mod table;
mod terminal;
mod text;
mod top;
mod words;

pub use arguments::Arguments;
pub use failure::Failure;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use arguments::Command;
use connection::Connection;
use output::{Output, note};

/// Parses the command line, runs the command, and tells the exit code.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let connection = Connection::new(&arguments.run_dir);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(run(&arguments, &connection));
            // Whoever still waits for a connection is not waited for.
            runtime.shutdown_background();
            outcome
        }
        Err(source) => Err(Failure::Local {
            action: "start".to_owned(),
            source,
        }),
    };
    ended(outcome)
}

/// Says why it failed, and tells the exit code.
fn ended(outcome: Result<ExitCode, Failure>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(Failure::ReaderGone) => Failure::ReaderGone.exit_code(),
        Err(failure) => {
            note(&telemetry::chain(&failure));
            failure.exit_code()
        }
    }
}

async fn run(arguments: &Arguments, connection: &Connection) -> Result<ExitCode, Failure> {
    let output = Output::standard();
    if let Some(outcome) = bundle::answer(arguments, connection, output).await {
        return outcome;
    }
    match &arguments.command {
        Command::Status(options) => status::status(connection, options, output).await,
        Command::Node(options) => node::node(connection, options, output).await,
        Command::Pods(options) => pods::pods(connection, options, output).await,
        Command::Describe(options) => describe::describe(connection, options, output).await,
        Command::Top(options) => top::top(connection, options, output).await,
        Command::Logs(options) => logs::logs(connection, options, output).await,
        Command::Exec(options) => exec::exec(connection, options).await,
        Command::Attach(options) => exec::attach(connection, options).await,
        Command::PortForward(options) => {
            port_forward::port_forward(connection, options, output).await
        }
        Command::Cp(options) => copy::copy(connection, options).await,
        Command::Events(options) => events::events(connection, options, output).await,
        Command::Restart(options) => status::restart(connection, options, output).await,
        Command::Reload => status::reload(connection, output).await,
        Command::Crashes(options) => status::crashes(connection, options, output).await,
        Command::Loop(options) => loop_status::loop_status(connection, options, output).await,
        Command::Check(options) => {
            let given = options.policy.as_deref();
            let denials = policy::of_check(&arguments.run_dir, given, &options.files)?;
            check::check(&arguments.run_dir, options, denials, output)
        }
        Command::Policy(options) => {
            policy::policy(&arguments.run_dir, connection, options, output).await
        }
        Command::Completion(options) => {
            let mut script = Vec::new();
            let mut command = Arguments::command();
            clap_complete::generate(options.shell, &mut command, "bulkhead", &mut script);
            output.write(&script)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
