//! What the runtime has of one pod, as plain values: what the plan is made from.
//!
//! Asking the runtime is `observe`'s business.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clock::UnixNanos;
use pod_volumes::{ReadyVolume, WrittenFiles};

use crate::hook::Hook;
use crate::instance_resources::InstanceResources;

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
    /// Whether calls that make something of the pod were under way when the look began: what
    /// they make may be missing here, also when they have ended since.
    pub calls_under_way: bool,
    /// Its volumes that this sync has made or found made, by name. A sync that starts
    /// nothing does not look at them: a file system that hangs must not hold up a stop.
    pub volumes: BTreeMap<String, ReadyVolume>,
    /// Its volumes of files that this process has written or found written, by name.
    pub files: BTreeMap<String, WrittenFiles>,
    /// The round (`plan::round`) that the pod has begun with, as
    /// [`Observation::learn_former`] finds it. Instances of earlier ones are those that it
    /// had before it began anew.
    pub first_round: u32,
}

impl Observation {
    /// The sandbox that the pod lives in, or lived in last: the newest, unless only
    /// an older one is alive. One that was made too late, by a call of an earlier
    /// process, takes the place of none in which something runs.
    #[must_use]
    pub fn current_sandbox(&self) -> Option<&Sandbox> {
        // Of several that are alike the first.
        let worst_first = self.sandboxes.iter().rev();
        worst_first.max_by_key(|sandbox| (sandbox.ready, self.activity_in(sandbox)))
    }

    /// What makes a sandbox that is alive worth keeping.
    fn activity_in(&self, sandbox: &Sandbox) -> Activity {
        let containers = self.containers.iter();
        containers
            .filter(|container| sandbox.ready && container.sandbox_id == sandbox.id)
            .map(|container| match container.state {
                ContainerState::Running { .. } => Activity::Certain,
                ContainerState::Unknown => Activity::Possible,
                _ => Activity::Past,
            })
            .max()
            .unwrap_or(Activity::None)
    }

    /// Takes from the record which sandboxes the pod had before it began anew. Their
    /// instances are of earlier rounds than all others, also than those that a kubelet made
    /// meanwhile, which notes no rounds.
    pub fn learn_former(&mut self, former_sandboxes: &BTreeSet<String>) {
        let is_former = |it: &Container| former_sandboxes.contains(&it.sandbox_id);
        let former = self.containers.iter().filter(|it| is_former(it));
        let rounds = former.map(|it| it.round.saturating_add(1));
        self.first_round = rounds.max().unwrap_or(0);
        for container in self.containers.iter_mut().filter(|it| !is_former(it)) {
            container.round = container.round.max(self.first_round);
        }
    }

    /// The sandboxes that are shown, by id, those of instances among them.
    #[must_use]
    pub fn sandbox_ids(&self) -> BTreeSet<String> {
        let of_containers = self.containers.iter().map(|it| &it.sandbox_id);
        let sandboxes = self.sandboxes.iter().map(|it| &it.id);
        sandboxes.chain(of_containers).cloned().collect()
    }

    /// The sandboxes that run beside the pod's own.
    pub fn surplus_sandboxes(&self) -> impl Iterator<Item = &Sandbox> {
        let current = self.current_sandbox().map(|sandbox| &sandbox.id);
        self.sandboxes
            .iter()
            .filter(move |sandbox| sandbox.ready && Some(&sandbox.id) != current)
    }

    /// The number of the next sandbox: none of the pod has had it.
    #[must_use]
    pub fn next_attempt(&self) -> u32 {
        let attempts = self.sandboxes.iter().map(|sandbox| sandbox.attempt);
        attempts.max().map_or(0, |last| last.saturating_add(1))
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Activity {
    /// No container.
    None,
    /// Containers that do not run, or not yet.
    Past,
    /// Containers of which the runtime does not know whether they run.
    Possible,
    /// Containers that run.
    Certain,
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
    /// What its pod was started with, where a sandbox of ours noted that.
    pub started_with: Option<String>,
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

/// As whom an instance was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUser {
    /// The user.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
    /// The other groups.
    pub groups: Vec<u32>,
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
    /// The signal that it is stopped with, where the runtime tells.
    pub stop_signal: Option<&'static str>,
    /// As whom it was started, where the runtime tells.
    pub user: Option<ContainerUser>,
    /// Whether a mount of it is read-only with all that is mounted below it.
    pub is_recursively_read_only: bool,
    /// `io.kubernetes.container.hash`.
    pub spec_hash: String,
    /// `io.kubernetes.pod.terminationGracePeriod`.
    pub termination_grace: Option<Duration>,
    /// How long the next start waits after this instance's exit; absent on
    /// instances that others made.
    pub restart_wait: Option<Duration>,
    /// What is run before its SIGTERM, as it was when the instance was made.
    pub pre_stop: Option<Hook>,
    /// Which of the pod's init containers it is, if it is a sidecar; absent on instances
    /// that others made.
    pub sidecar: Option<u32>,
    /// How often all containers of the pod had been started again when it was made.
    pub round: u32,
    /// What it was made with; absent on instances that others made.
    pub resources: Option<InstanceResources>,
}

/// What an instance of a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// Created, never started.
    Created,
    /// The runtime abandoned its start when the process that asked for it died, or its
    /// start failed because that process died during its creation: it never ran and
    /// cannot be started any more.
    StartAbandoned(Exit),
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

impl ContainerState {
    /// Whether a process of it runs, or may.
    #[must_use]
    pub fn may_run(&self) -> bool {
        matches!(self, Self::Running { .. } | Self::Unknown)
    }

    /// Whether a process of it ran, or may have.
    #[must_use]
    pub fn has_run(&self) -> bool {
        !matches!(self, Self::Created | Self::StartAbandoned(_))
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

    fn sandbox(attempt: u32, ready: bool) -> Sandbox {
        Sandbox {
            id: attempt.to_string(),
            attempt,
            ready,
            created_at: UnixNanos(1),
            network: SandboxNetwork::Host,
            pod_started_at: None,
            started_with: None,
        }
    }

    fn container(sandbox_id: &str, state: ContainerState) -> Container {
        Container {
            id: format!("c{sandbox_id}"),
            name: "c".to_owned(),
            sandbox_id: sandbox_id.to_owned(),
            restart_count: 0,
            created_at: UnixNanos(1),
            state,
            image: String::new(),
            image_id: String::new(),
            stop_signal: None,
            user: None,
            is_recursively_read_only: false,
            spec_hash: String::new(),
            termination_grace: None,
            restart_wait: None,
            pre_stop: None,
            sidecar: None,
            round: 0,
            resources: None,
        }
    }

    #[test]
    fn a_pod_lives_where_something_runs_and_else_in_its_current_sandbox() {
        use ContainerState::{Created, Unknown};
        let running = || ContainerState::Running {
            started_at: UnixNanos(1),
        };
        let (alive, dead) = (true, false);
        // Sandboxes 2, 1, 0; containers with their sandboxes; the pod's sandbox and
        // those that are too many.
        for (ready, containers, current, surplus) in [
            ([dead, dead, dead], vec![], "2", vec![]),
            ([dead, dead, dead], vec![("0", Created)], "2", vec![]),
            ([dead, alive, dead], vec![], "1", vec![]),
            ([alive, dead, dead], vec![("1", Unknown)], "2", vec![]),
            ([alive, alive, dead], vec![], "2", vec!["1"]),
            ([alive, alive, dead], vec![("1", Created)], "1", vec!["2"]),
            (
                [alive, alive, alive],
                vec![("1", running())],
                "1",
                vec!["2", "0"],
            ),
            (
                [alive, alive, alive],
                vec![("2", Created), ("1", Unknown), ("0", running())],
                "0",
                vec!["2", "1"],
            ),
            (
                [alive, alive, dead],
                vec![("2", running()), ("1", running())],
                "2",
                vec!["1"],
            ),
        ] {
            let sandboxes = [2, 1, 0].into_iter().zip(ready);
            let containers = containers.into_iter();
            let observation = Observation {
                sandboxes: sandboxes
                    .map(|(attempt, it)| sandbox(attempt, it))
                    .collect(),
                containers: containers.map(|(it, state)| container(it, state)).collect(),
                ..Observation::default()
            };
            let found = observation.current_sandbox().map(|it| it.id.as_str());
            assert_eq!(found, Some(current), "{observation:?}");
            let found: Vec<_> = observation.surplus_sandboxes().map(|it| &it.id).collect();
            assert_eq!(found, surplus, "{observation:?}");
            assert_eq!(observation.next_attempt(), 3);
        }
        let nothing = Observation::default();
        assert_eq!(nothing.current_sandbox(), None);
        assert_eq!(nothing.surplus_sandboxes().count(), 0);
        assert_eq!(nothing.next_attempt(), 0);
    }

    #[test]
    fn what_is_left_from_before_a_pod_began_anew_is_of_earlier_rounds_than_all_else() {
        let of_round = |sandbox: &str, round: u32| Container {
            round,
            ..container(sandbox, ContainerState::Unknown)
        };
        // Rounds as they were noted, in the sandboxes 1, 0; then as they count.
        for (former, noted, first_round, counted) in [
            (vec![], [0, 1], 0, [0, 1]),
            (vec!["0"], [1, 0], 1, [1, 0]),
            (vec!["0"], [3, 2], 3, [3, 2]),
            // A kubelet made what is in the newer one.
            (vec!["0"], [0, 2], 3, [3, 2]),
            (vec!["0", "1"], [1, 0], 2, [1, 0]),
            // What was there is gone.
            (vec!["gone"], [0, 0], 0, [0, 0]),
        ] {
            let containers = ["1", "0"].into_iter().zip(noted);
            let mut observation = Observation {
                containers: containers.map(|(id, it)| of_round(id, it)).collect(),
                ..Observation::default()
            };
            let former = former.into_iter().map(str::to_owned).collect();
            observation.learn_former(&former);
            assert_eq!(observation.first_round, first_round, "{former:?}");
            let found: Vec<u32> = observation.containers.iter().map(|it| it.round).collect();
            assert_eq!(found, counted, "{former:?}");
        }
    }
}
