//! What can be typed.

use std::path::PathBuf;
use std::time::Duration;

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
    /// The pods, as kubectl shows them.
    #[command(alias = "pod", alias = "get")]
    Pods(PodsOptions),
    /// The log of a container.
    #[command(alias = "log")]
    Logs(LogsOptions),
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PodFormat {
    /// A table.
    Table,
    /// A table with more columns.
    Wide,
    /// JSON: a List of pods with their statuses.
    Json,
    /// YAML of the same.
    Yaml,
}

#[derive(Debug, Args)]
pub(crate) struct PodsOptions {
    /// How to print them.
    #[arg(short, long, value_enum, default_value_t = PodFormat::Table)]
    pub(crate) output: PodFormat,
    /// Only those of this namespace.
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LogsOptions {
    /// The pod: its name, namespace/name or UID.
    pub(crate) pod: String,
    /// The container; may be left out when there is only one.
    #[arg(short, long)]
    pub(crate) container: Option<String>,
    /// Go on with what the container writes.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// The instance before the newest, e.g. the one that crashed.
    #[arg(short, long)]
    pub(crate) previous: bool,
    /// Only the last so many lines.
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<u64>,
    /// Only lines younger than this: 30s, 5m, 2h.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) since: Option<Duration>,
    /// Begin each line with its time.
    #[arg(long)]
    pub(crate) timestamps: bool,
}

/// A number with a unit: s, m, h or d; several may follow one another.
fn duration(text: &str) -> Result<Duration, String> {
    let refused = || format!("{text:?} is no duration: write 30s, 5m, 2h or 1h30m");
    let mut total = Duration::ZERO;
    let mut number = String::new();
    for character in text.chars() {
        if character.is_ascii_digit() {
            number.push(character);
            continue;
        }
        let seconds = match character {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return Err(refused()),
        };
        let count: u32 = number.parse().map_err(|_| refused())?;
        let part = Duration::from_secs(seconds)
            .checked_mul(count)
            .ok_or_else(refused)?;
        total = total.checked_add(part).ok_or_else(refused)?;
        number.clear();
    }
    if !number.is_empty() || text.is_empty() {
        return Err(refused());
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        for bad in ["", "5", "m", "5x", "99999999999h"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }
}
