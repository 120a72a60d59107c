//! `policy`: what the node policy allows, told beforehand, and the grants that would
//! allow more. All of it reads the policy's file; `show` alone asks pod-worker-pool which
//! policy is in force.

mod file;
mod in_force;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bulkhead_api::v1;
use node_config::{DEFAULT_ROOT_DIR, DirectoryLayout, NODE_CONFIG_FILE, NodeConfig, ReadError};
use node_policy::{Grant, Mode, Policy, Protected, RunningPods, Subject, grants_for};
use pod::{Pod, PodSource};
use topology::{Account, Identities};

use crate::arguments::{PolicyCommand, PolicyOptions};
use crate::check::{self, PodsOfFile};
use crate::connection::Connection;
use crate::escape::plain;
use crate::failure::Failure;
use crate::output::{Output, beside_verdict, note};
use crate::table::Tone;

use file::PolicyFile;

/// Runs a subcommand.
pub(crate) async fn policy(
    run_dir: &Path,
    connection: &Connection,
    options: &PolicyOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let node = match &options.command {
        PolicyCommand::Check(files) | PolicyCommand::Grant(files) => {
            Node::here(run_dir, &files.files)
        }
        PolicyCommand::Show => Node::here(run_dir, &[]),
    };
    if matches!(options.command, PolicyCommand::Show) && options.policy.is_none() {
        match in_force::report(connection).await {
            Ok(report) => {
                output.text(&in_force::told(&report))?;
                output.text(&shown_report(&report, &node.protected))?;
                return Ok(ExitCode::SUCCESS);
            }
            Err(failure) => note(&format!(
                "this is the file, since nobody tells what is in force: {}",
                telemetry::chain(&failure)
            )),
        }
    }
    let path = options
        .policy
        .clone()
        .unwrap_or_else(|| node.config.policy_path.clone());
    let file = PolicyFile::read(&path)?;
    for warning in file.warnings() {
        note(&warning);
    }
    let policy = file.policy(node.protected.clone())?;
    match &options.command {
        PolicyCommand::Check(files) => {
            let mut accepted = true;
            for (path, pods) in check::pods(&files.files, &check::configured(&node.config)) {
                let verdicts = verdicts(&pods, &policy, &node.config.node_name);
                accepted &= verdicts.iter().all(Verdict::is_good);
                beside_verdict(output.text(&rendered(&path, &verdicts, output.colours)))?;
            }
            if policy.mode() == Mode::Audit {
                note("the policy's mode is audit: what it refuses is reported and runs");
            }
            Ok(exit_code(accepted))
        }
        PolicyCommand::Grant(files) => {
            let found = check::pods(&files.files, &check::configured(&node.config));
            let (text, problems) = grants(&found, &policy, &node.config.node_name);
            beside_verdict(output.text(&text))?;
            for problem in &problems {
                note(problem);
            }
            Ok(exit_code(problems.is_empty()))
        }
        PolicyCommand::Show => {
            output.text(&shown(&file.description(), &policy))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Why a policy does not let a pod run; empty where it does.
pub(crate) type Denials = Box<dyn Fn(&Pod) -> Vec<String>>;

/// What `bulkhead check` tells of the policy: that of a given file, else that of the node
/// where an agent has run here. Where nobody knows what the node permits, or this user may
/// not read it, that is said, and manifests are judged without it. `manifests` is what is
/// checked.
pub(crate) fn of_check(
    run_dir: &Path,
    given: Option<&Path>,
    manifests: &[PathBuf],
) -> Result<Denials, Failure> {
    if given.is_none() && !run_dir.join(NODE_CONFIG_FILE).exists() {
        note(&format!("{NEVER_RAN}: {WITHOUT_POLICY}"));
        return Ok(Box::new(|_| Vec::new()));
    }
    let Node { config, protected } = Node::here(run_dir, manifests);
    let policy = match policy_of(given.unwrap_or(&config.policy_path), protected) {
        Ok(policy) => policy,
        Err(failure) if given.is_none() => {
            let why = telemetry::chain(&failure);
            note(&format!("{why}: {WITHOUT_POLICY}"));
            return Ok(Box::new(|_| Vec::new()));
        }
        Err(failure) => return Err(failure),
    };
    if policy.mode() == Mode::Audit {
        note("the policy's mode is audit: what it refuses is reported and runs");
        return Ok(Box::new(|_| Vec::new()));
    }
    Ok(Box::new(move |pod| {
        denials(&policy, pod, &config.node_name)
    }))
}

/// What is in a policy's file.
fn policy_of(path: &Path, protected: Protected) -> Result<Policy, Failure> {
    let file = PolicyFile::read(path)?;
    for warning in file.warnings() {
        note(&warning);
    }
    file.policy(protected)
}

fn denials(policy: &Policy, pod: &Pod, node_name: &str) -> Vec<String> {
    let subject = subject(pod, node_name);
    let denials = policy.judge(&subject, pod).err().unwrap_or_default();
    let name = subject.full_name();
    let told = denials.iter();
    told.map(|denial| format!("the node policy does not allow {name}: {denial}"))
        .collect()
}

/// Why not all that a node's policy protects is known.
const NEVER_RAN: &str = "no node agent has run here since the machine booted";

/// That manifests are judged by themselves, and how they would be by a policy too.
const WITHOUT_POLICY: &str = "it is not looked at what the node policy allows (--policy FILE)";

/// Where static pods come from on a node that nobody has configured otherwise: the package
/// does so, and a kubelet of kubeadm has them there.
const USUAL_MANIFESTS: &str = "/etc/kubernetes/manifests";

/// The node that the command line runs on: its configuration where an agent has run,
/// else the defaults.
struct Node {
    config: NodeConfig,
    protected: Protected,
}

impl Node {
    /// Where no agent has run, the directories of `manifests` count as those where the node's
    /// pods come from, since that is what they are looked at for.
    fn here(run_dir: &Path, manifests: &[PathBuf]) -> Node {
        let mut sources = BTreeSet::new();
        let config = NodeConfig::read(&run_dir.join(NODE_CONFIG_FILE)).unwrap_or_else(|error| {
            note(&by_defaults(&error));
            sources = directories_of(manifests);
            let directories = DirectoryLayout {
                run_dir: run_dir.to_owned(),
                state_dir: "/var/lib/bulkhead".into(),
                root_dir: DEFAULT_ROOT_DIR.into(),
                log_dir: "/var/log".into(),
                bin_dir: "/usr/libexec/bulkhead".into(),
            };
            NodeConfig {
                static_pod_path: Some(USUAL_MANIFESTS.into()),
                ..NodeConfig::with_defaults(check::node(run_dir).name, directories)
            }
        });
        let (mut protected, problems) =
            node_config::protected(&config, identities(&config).as_ref());
        for problem in problems {
            note(&telemetry::chain(&problem));
        }
        for source in sources {
            let added = protected.add_path(&source, "where static pods come from");
            added.unwrap_or_else(|error| note(&telemetry::chain(&error)));
        }
        Node { config, protected }
    }
}

/// What is not known without the node's configuration.
fn by_defaults(error: &ReadError) -> String {
    let why = match error {
        ReadError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            NEVER_RAN.to_owned()
        }
        other => telemetry::chain(other),
    };
    format!(
        "{why}: this is by the defaults of a node, with static pods from {USUAL_MANIFESTS}; ask \
         again once it runs"
    )
}

/// The directories among these, also without the links on the way to them.
fn directories_of(paths: &[PathBuf]) -> BTreeSet<String> {
    let directories = paths.iter().filter(|path| path.is_dir());
    let names = directories.flat_map(|path| [std::path::absolute(path), path.canonicalize()]);
    let found = names.filter_map(Result::ok);
    found.map(|path| path.display().to_string()).collect()
}

/// The users of the processes; `None` on a machine that does not have them.
fn identities(config: &NodeConfig) -> Option<Identities> {
    let identities = match config.uid_base {
        Some(base) => Identities::from_base(base),
        None => Identities::from_users(|name| {
            let user = nix::unistd::User::from_name(name).ok().flatten()?;
            Some(Account {
                uid: user.uid.as_raw(),
                gid: user.gid.as_raw(),
            })
        }),
    };
    identities.ok()
}

fn subject(pod: &Pod, node_name: &str) -> Subject {
    Subject::of(PodSource::File, pod, node_name)
}

fn exit_code(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// What is said of one pod, or of a file without pods.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Allowed(String),
    Refused(String, Vec<String>),
    Unusable(Vec<String>),
}

impl Verdict {
    fn is_good(&self) -> bool {
        matches!(self, Verdict::Allowed(_))
    }
}

fn verdicts(
    pods: &Result<Vec<Pod>, Vec<String>>,
    policy: &Policy,
    node_name: &str,
) -> Vec<Verdict> {
    let pods = match pods {
        Ok(pods) => pods,
        Err(problems) => return vec![Verdict::Unusable(problems.clone())],
    };
    let verdicts = pods.iter().map(|pod| {
        let subject = subject(pod, node_name);
        match policy.judge(&subject, pod) {
            Ok(_) => Verdict::Allowed(subject.full_name()),
            Err(denials) => {
                let denials = denials.iter().map(ToString::to_string);
                Verdict::Refused(subject.full_name(), denials.collect())
            }
        }
    });
    verdicts.collect()
}

fn rendered(path: &Path, verdicts: &[Verdict], colours: bool) -> String {
    let path = plain(&path.display().to_string());
    let mut text = String::new();
    for verdict in verdicts {
        match verdict {
            Verdict::Allowed(pod) => {
                let word = Tone::Good.paint("allowed", colours);
                text += &format!("{path}: {}: {word}\n", plain(pod));
            }
            Verdict::Refused(pod, denials) => {
                let word = Tone::Bad.paint("refused", colours);
                for denial in denials {
                    text += &format!("{path}: {}: {word}: {}\n", plain(pod), plain(denial));
                }
            }
            Verdict::Unusable(problems) => {
                let word = Tone::Bad.paint("not accepted", colours);
                for problem in problems {
                    text += &format!("{path}: {word}: {}\n", plain(problem));
                }
            }
        }
    }
    text
}

/// The grants as TOML, and what keeps some pods from being granted what they ask for.
fn grants(found: &[PodsOfFile], policy: &Policy, node_name: &str) -> (String, Vec<String>) {
    let mut problems = Vec::new();
    let mut pods = Vec::new();
    for (path, content) in found {
        match content {
            Ok(found) => pods.extend(found.iter().map(|pod| (subject(pod, node_name), pod))),
            Err(reasons) => {
                let path = path.display();
                problems.extend(
                    reasons
                        .iter()
                        .map(|reason| plain(&format!("{path}: {reason}"))),
                );
            }
        }
    }
    let grants = grants_for(&pods, policy);
    let with_grants = policy.clone().with_grants(grants.iter().cloned());
    for (subject, pod) in &pods {
        let left = with_grants.judge(subject, pod).err().unwrap_or_default();
        problems.extend(left.iter().map(|denial| {
            plain(&format!(
                "no grant allows this to {}: {denial}",
                subject.full_name()
            ))
        }));
    }
    let blocks: Vec<String> = grants.iter().map(|grant| block(grant, policy)).collect();
    (blocks.join(""), problems)
}

/// A grant with a warning where it gives more than it seems to.
fn block(grant: &Grant, policy: &Policy) -> String {
    let mut text = "\n".to_owned();
    let mut warn = |warning: &str| text += &format!("# {warning}\n");
    let paths = &grant.host_paths;
    if paths.iter().any(|path| path.includes_protected) {
        warn("includesProtected gives what is protected below the path, too.");
    }
    if grant.names_protected(policy.protected()) {
        warn("This names something by which a pod can become the agent or the runtime.");
    }
    if grant.privileged {
        warn("A privileged container can do what root can do on this node.");
    }
    text + &grant.to_toml()
}

/// The policy that pod-worker-pool has in force, if it has one.
fn shown_report(report: &v1::PolicyReport, protected: &Protected) -> String {
    match Policy::parse(&report.text, protected.clone()) {
        Ok(policy) if report.mode != "none" => shown(&report.path, &policy),
        Ok(_) | Err(_) => format!("policy     {}\n", plain(&report.path)),
    }
}

fn shown(description: &str, policy: &Policy) -> String {
    let mut text = format!("policy     {}\n", plain(description));
    let mut line = |name: &str, value: &str| text += &format!("{name:<10} {value}\n");
    line(
        "mode",
        match policy.mode() {
            Mode::Enforce => "enforce: a pod that is refused does not run",
            Mode::Audit => "audit: what is refused is reported, and runs",
        },
    );
    line(
        "running",
        match policy.running_pods() {
            RunningPods::Keep => "keep: a new policy ends no pod that runs",
            RunningPods::End => "end: pods that a new policy refuses are ended",
        },
    );
    for source in PodSource::ALL {
        line(source.as_str(), policy.level(source).as_str());
    }
    line("grants", &policy.grants().len().to_string());
    for (path, what) in policy.protected().paths() {
        line("protected", &plain(&format!("{path}  {what}")));
    }
    for (user, what) in policy.protected().users() {
        line("protected", &format!("user {user}  {what}"));
    }
    for grant in policy.grants() {
        text += &format!("\n{}", grant.to_toml());
    }
    text
}

#[cfg(test)]
mod tests;
