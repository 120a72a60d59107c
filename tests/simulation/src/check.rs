//! What must hold: in the end (the node is as desired) and all along (no
//! container stopped, restarted or started twice without a reason).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use clock::UnixNanos;
use rand::Rng;
use simulated_runtime::{Entry, Happening, SimulatedRuntime};

use crate::host::MemoryHost;
use crate::scenario::VERSION_LABEL;

/// Least time between SIGTERM and SIGKILL, unless the whole grace is shorter.
const SIGTERM_GRACE: Duration = Duration::from_secs(2);

/// A pod as a scenario wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    name: String,
    version: u32,
    kind: Kind,
    grace_seconds: u32,
    pulled: bool,
    /// When its manifest went, or became another one.
    dismissed_at: Option<UnixNanos>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One container that runs for ever.
    Server,
    /// Two containers that run for ever, one with a readiness probe.
    Pair,
    /// An init container before a server.
    WithInit,
    /// Ends by itself, well or badly, and is never restarted.
    Job,
    /// Ignores SIGTERM.
    Stubborn,
}

impl Desired {
    pub(crate) fn random(name: &str, version: u32, random: &mut impl Rng) -> Desired {
        let kind = match random.random_range(0..5) {
            0 => Kind::Pair,
            1 => Kind::WithInit,
            2 => Kind::Job,
            3 => Kind::Stubborn,
            _ => Kind::Server,
        };
        Desired {
            name: name.to_owned(),
            version,
            kind,
            grace_seconds: random.random_range(1..=5),
            pulled: random.random_bool(0.2),
            dismissed_at: None,
        }
    }

    /// Its number among all versions of all pods.
    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// Notes when its manifest went, or became another one.
    pub(crate) fn dismiss(&mut self, at: UnixNanos) {
        self.dismissed_at = Some(at);
    }

    /// Value of the label that tells this version from all others.
    pub(crate) fn version_label(&self) -> String {
        format!("v{}", self.version)
    }

    /// Names of the containers that are to run in the end.
    pub(crate) fn servers(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Server | Kind::WithInit | Kind::Stubborn => &["main"],
            Kind::Pair => &["main", "second"],
            Kind::Job => &[],
        }
    }

    /// Names of the containers that run once.
    pub(crate) fn once(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::WithInit => &["prepare"],
            Kind::Job => &["main"],
            _ => &[],
        }
    }

    /// The manifest, as JSON.
    pub(crate) fn manifest(&self) -> String {
        let image = if self.pulled {
            "localhost/pulled:test"
        } else {
            "localhost/busybox:test"
        };
        let container = |name: &str, command: &str, more: &str| {
            let words: Vec<String> = command.split(' ').map(|word| format!("{word:?}")).collect();
            format!(
                r#"{{"name":"{name}","image":"{image}","command":[{}]{more}}}"#,
                words.join(",")
            )
        };
        let probe = r#","readinessProbe":{"httpGet":{"port":80},"periodSeconds":1}"#;
        let (init, containers, restart) = match self.kind {
            Kind::Server => (String::new(), container("main", "serve", probe), "Always"),
            Kind::Pair => {
                let both = [
                    container("main", "serve", probe),
                    container("second", "serve", ""),
                ];
                (String::new(), both.join(","), "Always")
            }
            Kind::WithInit => {
                let init = container("prepare", "exit 0 150", "");
                (init, container("main", "serve", ""), "Always")
            }
            Kind::Job => {
                // Every other one fails.
                let command = format!("exit {} 400", self.version % 2);
                (String::new(), container("main", &command, ""), "Never")
            }
            Kind::Stubborn => (
                String::new(),
                container("main", "ignore-term", ""),
                "Always",
            ),
        };
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{}","labels":{{"{VERSION_LABEL}":"v{}"}}}},
"spec":{{"restartPolicy":"{restart}","terminationGracePeriodSeconds":{},"initContainers":[{init}],"containers":[{containers}]}}}}"#,
            self.name, self.version, self.grace_seconds
        )
    }
}

impl fmt::Display for Desired {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} v{} {:?}, grace {} s{}",
            self.name,
            self.version,
            self.kind,
            self.grace_seconds,
            if self.pulled { ", pulled" } else { "" }
        )
    }
}

/// UID of the pod of each version, from the labels of its sandboxes.
pub(crate) fn uids_by_version(history: &[Entry]) -> BTreeMap<String, String> {
    let mut uids = BTreeMap::new();
    for entry in history {
        if let Happening::Created { labels, .. } = &entry.happening
            && let Some(version) = labels.get(VERSION_LABEL)
        {
            uids.insert(version.clone(), entry.pod_uid.clone());
        }
    }
    uids
}

fn count(history: &[Entry], uid: &str, container: &str, what: &Happening) -> usize {
    history
        .iter()
        .filter(|entry| {
            entry.pod_uid == uid && entry.container == container && entry.happening == *what
        })
        .count()
}

/// What is not yet as desired; empty when the node has converged.
#[must_use]
pub fn not_converged(
    runtime: &SimulatedRuntime,
    host: &MemoryHost,
    desired: &BTreeMap<String, Desired>,
) -> Vec<String> {
    let history = runtime.history();
    let uids = uids_by_version(&history);
    let containers = runtime.containers();
    let sandboxes = runtime.sandboxes();
    let mut missing = Vec::new();
    let mut wanted = BTreeSet::new();
    for pod in desired.values() {
        let Some(uid) = uids.get(&pod.version_label()) else {
            missing.push(format!("{pod} has no sandbox"));
            continue;
        };
        wanted.insert(uid.clone());
        for name in pod.servers() {
            let running = containers
                .iter()
                .filter(|one| one.running && one.pod_uid == *uid && one.name == **name)
                .count();
            if running != 1 {
                missing.push(format!("{running} containers {name} of {pod} run"));
            }
        }
        for name in pod.once() {
            // A job that crashed has run too: it is never restarted.
            let ended = history.iter().any(|entry| {
                entry.pod_uid == *uid
                    && entry.container == **name
                    && matches!(entry.happening, Happening::Exited { killed: false, .. })
            });
            if !ended {
                missing.push(format!("{name} of {pod} has not run"));
            }
        }
        let ready = sandboxes
            .iter()
            .filter(|one| one.ready && one.pod_uid == *uid)
            .count();
        let expected = usize::from(!pod.servers().is_empty());
        if ready != expected {
            missing.push(format!("{ready} sandboxes of {pod} are ready"));
        }
    }
    for container in containers
        .iter()
        .filter(|one| !wanted.contains(&one.pod_uid))
    {
        missing.push(format!(
            "a container {} of {} is left",
            container.name, container.pod_uid
        ));
    }
    for sandbox in sandboxes
        .iter()
        .filter(|one| !wanted.contains(&one.pod_uid))
    {
        missing.push(format!("a sandbox of {} is left", sandbox.pod_uid));
    }
    for uid in host.pods().difference(&wanted) {
        missing.push(format!("a cgroup or directory of {uid} is left"));
    }
    missing
}

/// What happened that never may.
#[must_use]
pub fn broken_promises(
    runtime: &SimulatedRuntime,
    desired: &BTreeMap<String, Desired>,
    versions: &[Desired],
    crashes: &BTreeMap<String, u32>,
) -> Vec<String> {
    let history = runtime.history();
    let uids = uids_by_version(&history);
    let mut broken = runtime.violations();
    for pod in desired.values() {
        let Some(uid) = uids.get(&pod.version_label()) else {
            continue;
        };
        let of_pod = |entry: &&Entry| entry.pod_uid == *uid && !entry.container.is_empty();
        for entry in history.iter().filter(of_pod) {
            let stopped = matches!(
                entry.happening,
                Happening::Terminated | Happening::Exited { killed: true, .. }
            );
            if stopped {
                broken.push(format!(
                    "{} of {pod}, which is desired, was stopped",
                    entry.container
                ));
            }
        }
        for name in pod.servers().iter().chain(pod.once()) {
            let starts = count(&history, uid, name, &Happening::Started);
            let crashed = crashes.get(&format!("{uid}/{name}")).copied().unwrap_or(0) as usize;
            // A job that crashed is done; an init container that did is tried again.
            if starts > 1 + crashed {
                broken.push(format!("{name} of {pod} was started {starts} times"));
            }
        }
    }
    broken.extend(killed_before_their_time(&history, versions));
    broken
}

/// Containers that SIGKILL ended although their program would have had more
/// time, of all the pods that there ever were.
fn killed_before_their_time(history: &[Entry], versions: &[Desired]) -> Vec<String> {
    let uids = uids_by_version(history);
    let mut early = Vec::new();
    for pod in versions {
        let Some(uid) = uids.get(&pod.version_label()) else {
            continue;
        };
        let grace = Duration::from_secs(pod.grace_seconds.into());
        for killed in history.iter().filter(|entry| {
            entry.pod_uid == *uid
                && matches!(entry.happening, Happening::Exited { killed: true, .. })
        }) {
            let asked = history
                .iter()
                .find(|entry| entry.id == killed.id && entry.happening == Happening::Terminated);
            let waited = asked.map_or(Duration::ZERO, |asked| killed.at.since(asked.at));
            let dismissed = pod.dismissed_at.map(|at| killed.at.since(at));
            // Of an order that was cut off nobody knows whether the SIGTERM was
            // sent: the grace goes on from there, but some time after a SIGTERM
            // every program gets all the same.
            if waited < grace.min(SIGTERM_GRACE) || dismissed.unwrap_or_default() < grace {
                early.push(format!(
                    "{} of {pod} was killed after {waited:?}{}",
                    killed.container,
                    life_of(history, uid)
                ));
            }
        }
    }
    early
}

/// All that happened to a pod, for a report.
fn life_of(history: &[Entry], uid: &str) -> String {
    let of_pod = history.iter().filter(|entry| entry.pod_uid == uid);
    of_pod
        .map(|entry| {
            format!(
                "\n    {:?} {} {:?}",
                entry.at, entry.container, entry.happening
            )
        })
        .collect()
}
