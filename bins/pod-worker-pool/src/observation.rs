//! What the runtime has of one pod, as plain values: what the plan is made from.
//!
//! Asking the runtime is `observe`'s business.

use std::collections::BTreeMap;
use std::time::Duration;

use clock::UnixNanos;

/// All sandboxes and containers of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Newest first.
    pub sandboxes: Vec<Sandbox>,
    /// Newest first within a name.
    pub containers: Vec<Container>,
    /// For containers without any instance: how often they were started before,
    /// as the names of their log files tell.
    pub starts_in_logs: BTreeMap<String, u32>,
}

impl Observation {
    /// The newest sandbox.
    #[must_use]
    pub fn newest_sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first()
    }

    /// The newest instance of a container.
    #[must_use]
    pub fn newest(&self, name: &str) -> Option<&Container> {
        self.containers
            .iter()
            .find(|container| container.name == name)
    }

    /// The newest instance of a container of which a process runs or ran.
    #[must_use]
    pub fn newest_that_ran(&self, name: &str) -> Option<&Container> {
        self.containers
            .iter()
            .find(|container| container.name == name && container.state.has_run())
    }

    /// The newest instance of a container within one sandbox.
    #[must_use]
    pub fn newest_in(&self, sandbox_id: &str, name: &str) -> Option<&Container> {
        self.containers
            .iter()
            .find(|container| container.name == name && container.sandbox_id == sandbox_id)
    }

    /// The instance with this id.
    #[must_use]
    pub fn container(&self, id: &str) -> Option<&Container> {
        self.containers.iter().find(|container| container.id == id)
    }

    /// Containers that run, or that may: the runtime does not know.
    pub fn possibly_running(&self) -> impl Iterator<Item = &Container> {
        self.containers
            .iter()
            .filter(|container| container.state.may_run())
    }

    /// Whether anything of the pod is alive: a sandbox or a container.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.possibly_running().next().is_some()
            || self.sandboxes.iter().any(|sandbox| sandbox.ready)
    }
}

/// One sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sandbox {
    /// The runtime's id.
    pub id: String,
    /// Number of this sandbox among those of its pod, from 0.
    pub attempt: u32,
    /// Whether it runs.
    pub ready: bool,
    /// When it was made.
    pub created_at: UnixNanos,
    /// How it is connected.
    pub network: SandboxNetwork,
    /// When its pod was started, where a sandbox of ours noted that.
    pub pod_started_at: Option<UnixNanos>,
}

/// How a sandbox is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SandboxNetwork {
    /// Not asked for: the sandbox does not run.
    Unknown,
    /// It uses the node's network.
    Host,
    /// It has its own, with these addresses; the runtime may have lost them.
    Pod {
        /// Primary address first.
        ips: Vec<String>,
    },
}

impl SandboxNetwork {
    /// Its addresses; none on the node's network.
    #[must_use]
    pub fn ips(&self) -> &[String] {
        match self {
            SandboxNetwork::Pod { ips } => ips,
            SandboxNetwork::Unknown | SandboxNetwork::Host => &[],
        }
    }
}

/// One instance of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The runtime's id.
    pub id: String,
    /// The container's name in the pod.
    pub name: String,
    /// Its sandbox.
    pub sandbox_id: String,
    /// How often the container was started before this instance.
    pub restart_count: u32,
    /// When it was created.
    pub created_at: UnixNanos,
    /// What it does.
    pub state: ContainerState,
    /// The image as the runtime names it.
    pub image: String,
    /// The image's reference with a digest, or its id.
    pub image_id: String,
    /// `io.kubernetes.container.hash`.
    pub spec_hash: String,
    /// `io.kubernetes.pod.terminationGracePeriod`.
    pub termination_grace: Option<Duration>,
    /// How long the next start waits after this instance's exit; absent on
    /// instances that others made.
    pub restart_wait: Option<Duration>,
}

/// What an instance of a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Created, never started.
    Created,
    /// Its start was cut short when the one who asked for it died: it never ran
    /// and cannot be started any more.
    Interrupted(Exit),
    /// Running.
    Running {
        /// Since when.
        started_at: UnixNanos,
    },
    /// Ended.
    Exited(Exit),
    /// The runtime does not know: it may run.
    Unknown,
}

/// How an instance of a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// When it was started; 0 when it never was.
    pub started_at: UnixNanos,
    /// When it ended.
    pub finished_at: UnixNanos,
    /// Its exit code.
    pub exit_code: i32,
    /// Completed, Error, OOMKilled ...
    pub reason: String,
    /// The termination message.
    pub message: String,
}

/// What a runtime says of a start whose caller went away. containerd's words are
/// Go's; the second ones are of a program of its own that it killed for that.
const CALLER_WENT_AWAY: [&str; 2] = ["context canceled", "signal: killed"];

impl Exit {
    /// Whether this is the end of a start whose caller went away, and not of a
    /// process. Only its message tells that from a program that cannot be run.
    #[must_use]
    pub fn is_interrupted_start(&self) -> bool {
        self.started_at.0 == 0
            && self.reason == "StartError"
            && CALLER_WENT_AWAY
                .iter()
                .any(|words| self.message.contains(words))
    }
}

impl ContainerState {
    /// Whether a process of it runs, or may.
    #[must_use]
    pub fn may_run(&self) -> bool {
        matches!(self, Self::Running { .. } | Self::Unknown)
    }

    /// Whether a process of it ran, or may have.
    #[must_use]
    pub fn has_run(&self) -> bool {
        !matches!(self, Self::Created | Self::Interrupted(_))
    }

    /// Whether it runs for certain.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self, Self::Running { .. })
    }

    /// How it ended, if it did.
    #[must_use]
    pub fn exit(&self) -> Option<&Exit> {
        match self {
            Self::Exited(exit) => Some(exit),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_start_that_was_cut_short_counts_as_interrupted() {
        const CANCELED: &str = "failed to create containerd task: context canceled: unknown";
        for (started_at, reason, message, expected) in [
            (0, "StartError", CANCELED, true),
            (
                0,
                "StartError",
                "start failed: : signal: killed: unknown",
                true,
            ),
            (
                0,
                "StartError",
                "exec: \"x\": executable file not found",
                false,
            ),
            (5, "StartError", CANCELED, false),
            (0, "Error", CANCELED, false),
        ] {
            let exit = Exit {
                started_at: UnixNanos(started_at),
                finished_at: UnixNanos(9),
                exit_code: 128,
                reason: reason.into(),
                message: message.into(),
            };
            assert_eq!(exit.is_interrupted_start(), expected, "{reason} {message}");
        }
    }
}
