//! What can be typed.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

const EXIT_CODES: &str = "\
Exit codes:
  0  done; for `status`: all processes are ready
  1  it failed; for `status`: a process is not ready
  2  the command line is wrong
  3  a process of Bulkhead cannot be reached
  4  not permitted: run as root
  5  there is no such pod, container or process";

/// Shows and steers a node that runs Bulkhead.
#[derive(Debug, Parser)]
#[command(name = "bulkhead", version, about, after_help = EXIT_CODES, propagate_version = true)]
pub struct Arguments {
    /// Where the node's sockets are: the supervisor's --run-dir.
    #[arg(
        long,
        global = true,
        env = "BULKHEAD_RUN_DIR",
        default_value = "/run/bulkhead"
    )]
    pub(crate) run_dir: PathBuf,

    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The processes: state, restarts, last ending, memory, confinement.
    Status(StatusOptions),
    /// Restarts a process; containers do not notice.
    Restart(RestartOptions),
    /// The last endings of processes, with their last log lines.
    Crashes(CrashesOptions),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StatusFormat {
    /// A table.
    Table,
    /// JSON, for programs.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = StatusFormat::Table)]
    pub(crate) output: StatusFormat,
    /// Print again whenever a process changes its state.
    #[arg(short, long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestartOptions {
    /// Name of the process, as `bulkhead status` shows it.
    pub(crate) process: String,
}

#[derive(Debug, Args)]
pub(crate) struct CrashesOptions {
    /// Only those of this process.
    pub(crate) process: Option<String>,
}
