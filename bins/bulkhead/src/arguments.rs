//! What can be typed.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::copy::place::Place;
use crate::logs::selector::Selector;
use crate::port_forward::ports::Ports;
use crate::top::reading::SortBy;

const AFTER_HELP: &str = "\
Examples:
  bulkhead status                    is every process well?
  bulkhead node                      what does the API server have of this node?
  bulkhead pods -o wide              what runs here, and where?
  bulkhead describe web              why is this pod as it is?
  bulkhead top                       what uses how much?
  bulkhead logs -f --tail 20 web     what does its container say?
  bulkhead exec -it web -- sh        a shell in its container
  bulkhead events --watch            what happens now?
  bulkhead check web.yaml            would this manifest be accepted?
  bulkhead policy check web.yaml     would the node policy allow its pods?

POD is a pod's name, NAMESPACE/NAME, its UID, or for a static pod the name in
its manifest (`web` for `web-NODE`).

Colours are used on a terminal only, and not when NO_COLOR is set.

Exit codes:
  0  done; for `status`: all processes are ready; for `check`: all is accepted;
     for `exec` and `attach`: whatever code the command ended with
  1  it failed; for `status`: a process is not ready; for `check`: not accepted;
     for `policy check`: not allowed
  2  the command line is wrong
  3  a process of Bulkhead, or systemd where that supervises, does not answer
  4  not permitted: run as root
  5  there is no such pod, container or process";

/// Shows and steers a node that runs Bulkhead.
#[derive(Debug, Parser)]
#[command(name = "bulkhead", version, about, after_help = AFTER_HELP, propagate_version = true)]
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
    /// The processes: state, restarts, last ending, memory, confinement; the connection to
    /// the API server.
    Status(StatusOptions),
    /// The Node as the API server has it.
    Node(NodeOptions),
    /// The pods of this node and their state.
    Pods(PodsOptions),
    /// One pod in full: spec, status, recent events, and why it is so.
    Describe(DescribeOptions),
    /// What pods use: CPU, memory, disk, network.
    Top(TopOptions),
    /// What a container wrote.
    Logs(LogsOptions),
    /// Runs a command in a container.
    Exec(ExecOptions),
    /// Attaches to the process of a container.
    Attach(AttachOptions),
    /// Carries connections to this machine to ports of a pod.
    PortForward(PortForwardOptions),
    /// Copies files and directories to and from a container, which needs tar for that.
    Cp(CopyOptions),
    /// What happened lately.
    Events(EventsOptions),
    /// Restarts a process; containers do not notice.
    Restart(RestartOptions),
    /// Has the configuration read again, as SIGHUP does, and says what is restarted.
    Reload,
    /// The last crashes of processes, with their last log lines.
    Crashes(CrashesOptions),
    /// The sync loop: its sources and their problems, whom it hears, what waits.
    Loop(LoopOptions),
    /// Validates manifests as the node would, without a node.
    Check(CheckOptions),
    /// The node policy: what pods may be on this node.
    Policy(PolicyOptions),
    /// Prints a completion script for a shell.
    Completion(CompletionOptions),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableOrJson {
    /// A table.
    Table,
    /// JSON, for programs.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = TableOrJson::Table)]
    pub(crate) output: TableOrJson,
    /// Print again whenever a process changes its state.
    #[arg(short, long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NodeOptions {
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = TableOrJson::Table)]
    pub(crate) output: TableOrJson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PodsFormat {
    /// A table.
    Table,
    /// The table with addresses and the node.
    Wide,
    /// The pods as JSON, status included.
    Json,
    /// The same as YAML.
    Yaml,
    /// NAMESPACE/NAME alone, a line each.
    Name,
}

#[derive(Debug, Args)]
pub(crate) struct PodsOptions {
    /// Only these pods.
    #[arg(value_name = "POD")]
    pub(crate) pods: Vec<String>,
    /// How to print them.
    #[arg(short, long, value_enum, default_value_t = PodsFormat::Table)]
    pub(crate) output: PodsFormat,
    /// Only pods of this namespace.
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DescribeOptions {
    /// Which pod.
    pub(crate) pod: String,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Counters are read twice, one second apart.

CPU is in thousandths of a processor. DISK is what containers wrote in their own layers.
Pods on the node's own network have no network of their own to tell of.")]
pub(crate) struct TopOptions {
    /// What comes first: who uses most of this.
    #[arg(short, long, value_enum, default_value_t = SortBy::Cpu)]
    pub(crate) sort: SortBy,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bulkhead logs web                        all of the newest instance's log
  bulkhead logs -f --tail 10 web -c app    follow one of several containers
  bulkhead logs -f --all-containers web    follow all of them together
  bulkhead logs -f -l app=web              of all pods with this label
  bulkhead logs --previous web             of the instance before
  bulkhead logs --since 15m --timestamps web

On a terminal nothing in a log can steer it: colours are kept, other control characters
are shown.")]
pub(crate) struct LogsOptions {
    /// Which pods.
    #[arg(required_unless_present = "selector", value_name = "POD")]
    pub(crate) pods: Vec<String>,
    /// All pods with these labels: app=web,tier!=front.
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "pods")]
    pub(crate) selector: Option<Selector>,
    /// Which container, may be given often; else the one that the annotation
    /// kubectl.kubernetes.io/default-container names, else the first.
    #[arg(short, long = "container", value_name = "CONTAINER")]
    pub(crate) containers: Vec<String>,
    /// All containers of each pod, init containers first.
    #[arg(long, conflicts_with = "containers")]
    pub(crate) all_containers: bool,
    /// Put [POD/CONTAINER] before each line, as is done for several on a terminal.
    #[arg(long)]
    pub(crate) prefix: bool,
    /// Go on as the container writes.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// The instance before the newest: what it said before it crashed.
    #[arg(short, long)]
    pub(crate) previous: bool,
    /// Only so many of the last lines of each container.
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<u64>,
    /// Only what is newer than this: 30s, 15m, 2h.
    #[arg(long, value_name = "DURATION")]
    pub(crate) since: Option<Since>,
    /// The time before each line.
    #[arg(long)]
    pub(crate) timestamps: bool,
}

/// A span of time back from now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since(pub(crate) Duration);

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Since, String> {
        let duration: Option<jiff::SignedDuration> = text.parse().ok();
        let duration = duration.and_then(|duration| Duration::try_from(duration).ok());
        duration
            .map(Since)
            .ok_or_else(|| "a duration like 30s, 15m or 1h30m is needed".to_owned())
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bulkhead exec web -- ls -l             what it prints, and its exit code
  bulkhead exec -it web -c app -- sh     a shell with a terminal
  bulkhead exec -i web -- sh < script

What a command writes goes to the terminal as it is. A pod that is beyond the level
baseline needs exec = true in a grant of the node policy.")]
pub(crate) struct ExecOptions {
    /// Which pod.
    pub(crate) pod: String,
    /// Which container; else the one that the annotation
    /// kubectl.kubernetes.io/default-container names, else the first.
    #[arg(short, long)]
    pub(crate) container: Option<String>,
    /// The command reads standard input.
    #[arg(short = 'i', long)]
    pub(crate) stdin: bool,
    /// The command has a terminal.
    #[arg(short, long)]
    pub(crate) tty: bool,
    /// What to run, with its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AttachOptions {
    /// Which pod.
    pub(crate) pod: String,
    /// Which container; else the one that the annotation
    /// kubectl.kubernetes.io/default-container names, else the first.
    #[arg(short, long)]
    pub(crate) container: Option<String>,
    /// The process reads standard input, if its container has that.
    #[arg(short = 'i', long)]
    pub(crate) stdin: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bulkhead port-forward web 8080:80      127.0.0.1:8080 to port 80 of the pod
  bulkhead port-forward web 80 443       the same ports on both sides
  bulkhead port-forward web :80          any free port")]
pub(crate) struct PortForwardOptions {
    /// Which pod.
    pub(crate) pod: String,
    /// Where to listen.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub(crate) address: IpAddr,
    /// From which port to which.
    #[arg(required = true, value_name = "[LOCAL:]REMOTE")]
    pub(crate) ports: Vec<Ports>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bulkhead cp web:/etc/nginx ./nginx     a directory of a container
  bulkhead cp site.conf web:/etc/nginx/  a file into one

A container is asked for nothing but what is named, and nothing that it sends is written
elsewhere: links and special files are left out.")]
pub(crate) struct CopyOptions {
    /// From where: a path of this machine, or POD:PATH.
    pub(crate) from: Place,
    /// To where: one of both is POD:PATH.
    pub(crate) to: Place,
    /// Which container; else the one that the annotation
    /// kubectl.kubernetes.io/default-container names, else the first.
    #[arg(short, long)]
    pub(crate) container: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct EventsOptions {
    /// Only those about this pod.
    pub(crate) pod: Option<String>,
    /// Go on as they happen.
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// How to print them; JSON is one object a line.
    #[arg(short, long, value_enum, default_value_t = TableOrJson::Table)]
    pub(crate) output: TableOrJson,
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
    /// How to print them.
    #[arg(short, long, value_enum, default_value_t = TableOrJson::Table)]
    pub(crate) output: TableOrJson,
}

#[derive(Debug, Args)]
pub(crate) struct LoopOptions {
    /// How to print it.
    #[arg(short, long, value_enum, default_value_t = TableOrJson::Table)]
    pub(crate) output: TableOrJson,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bulkhead check web.yaml                  one manifest
  bulkhead check /etc/bulkhead/manifests   every manifest in a directory
  generate | bulkhead check -              standard input

A file is accepted or refused as a whole, as on the node. The node policy is looked at
where an agent has run, or --policy names its file. Whether a node has room for the pod
is not looked at: that is the node's own admission.")]
pub(crate) struct CheckOptions {
    /// Judge by this policy file and not by the node's.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Manifests, directories of manifests, or `-` for standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  bulkhead policy check web.yaml           what of it is not allowed, and why
  bulkhead policy grant /etc/kubernetes/manifests >> /etc/bulkhead/policy.toml
  bulkhead policy show                     levels, grants and what is protected

Pods of manifests are judged as pods of the source `file`. Their names are those of
the manifests, without the node's name.")]
pub(crate) struct PolicyOptions {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
    /// Use this policy file and not the node's.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Says of each pod whether the policy allows it, and the grants that would.
    Check(PolicyFiles),
    /// Prints the smallest grants that pods need beyond the policy, to be appended to it.
    Grant(PolicyFiles),
    /// The policy in force, the pods that it refuses, and what no level gives.
    Show,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyFiles {
    /// Manifests, directories of manifests, or `-` for standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionOptions {
    /// Which shell.
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_since_is_a_duration() {
        let seconds = |text: &str| text.parse::<Since>().map(|since| since.0.as_secs()).ok();
        assert_eq!(seconds("30s"), Some(30));
        assert_eq!(seconds("1h30m"), Some(5400));
        assert_eq!(seconds("-5s"), None);
        assert_eq!(seconds("soon"), None);
    }

    #[test]
    fn every_exit_code_is_in_the_help() {
        for code in 0..=5 {
            assert!(AFTER_HELP.contains(&format!("\n  {code}  ")), "{code}");
        }
    }
}
