//! Sandboxes beside the pod's own that could not be stopped in this sync.
//!
//! They are no reason to leave the pod's own alone: what runs there is looked after
//! as if they were stopped, the failure is told afterwards, and the next sync tries
//! them again. Only a container that may still run in one of them is not started
//! beside it.

use std::borrow::Cow;
use std::collections::BTreeSet;

use clock::UnixNanos;

use super::{Outcome, StepError};
use crate::observation::{Container, Observation};
use crate::plan::Plan;

/// What could not be stopped, and why. Pure.
#[derive(Debug, Default)]
pub(super) struct Unstopped {
    sandboxes: BTreeSet<String>,
    failure: Option<StepError>,
}

impl Unstopped {
    /// Stopping these sandboxes, or what is in them, failed.
    pub(super) fn note(&mut self, sandboxes: Vec<String>, error: StepError) {
        self.sandboxes.extend(sandboxes);
        self.failure = Some(match self.failure.take() {
            Some(other) => other.and(error),
            None => error,
        });
    }

    /// Why; empty if nothing failed.
    pub(super) fn message(&self) -> &str {
        self.failure.as_ref().map_or("", |failure| &failure.message)
    }

    /// What a sync has come to that has nothing else to do before then.
    pub(super) fn outcome(&self, wake_at: Option<UnixNanos>) -> Outcome {
        match self.failure.clone() {
            Some(failure) => Outcome::Failed(failure.at_latest(wake_at)),
            None => Outcome::Settled { wake_at },
        }
    }

    /// A failure of something else, with this one.
    pub(super) fn and(&self, error: StepError) -> StepError {
        match self.failure.clone() {
            Some(failure) => failure.and(error),
            None => error,
        }
    }

    /// The pod as it is looked after: these sandboxes do not count as alive, and
    /// what is in them comes after everything else of its name.
    pub(super) fn set_aside<'a>(&self, observation: &'a Observation) -> Cow<'a, Observation> {
        if self.sandboxes.is_empty() {
            return Cow::Borrowed(observation);
        }
        let mut observation = observation.clone();
        for sandbox in &mut observation.sandboxes {
            sandbox.ready &= !self.sandboxes.contains(&sandbox.id);
        }
        let containers = &mut observation.containers;
        containers.sort_by_key(|container| self.sandboxes.contains(&container.sandbox_id));
        Cow::Owned(observation)
    }

    /// The plan without stops of what is in them, since those were tried, and without
    /// starts of what may still run there.
    pub(super) fn leave_alone(&self, mut plan: Plan, observation: &Observation) -> Plan {
        if let Plan::Work(work) = &mut plan {
            let is_in_them =
                |container: &&Container| self.sandboxes.contains(&container.sandbox_id);
            work.kills.retain(|kill| {
                let container = observation.container(&kill.container_id);
                !container.as_ref().is_some_and(is_in_them)
            });
            work.starts.retain(|start| {
                let mut others = observation.possibly_running().filter(is_in_them);
                !others.any(|container| container.name == start.name)
            });
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use pod::accessors::ContainerKind;

    use super::*;
    use crate::observation::{ContainerState, Sandbox, SandboxNetwork};
    use crate::plan::{Kill, KillReason, Start, StartHow, Work};
    use crate::steps::Retry;

    fn container(id: &str, sandbox_id: &str) -> Container {
        Container {
            id: id.to_owned(),
            name: id.trim_end_matches(char::is_numeric).to_owned(),
            sandbox_id: sandbox_id.to_owned(),
            restart_count: 0,
            created_at: UnixNanos(0),
            state: ContainerState::Running {
                started_at: UnixNanos(0),
            },
            image: String::new(),
            image_id: String::new(),
            spec_hash: String::new(),
            termination_grace: None,
            restart_wait: None,
        }
    }

    fn observed() -> Observation {
        let sandbox = |id: &str, attempt| Sandbox {
            id: id.to_owned(),
            attempt,
            created_at: UnixNanos(0),
            ready: true,
            network: SandboxNetwork::Host,
            pod_started_at: None,
        };
        Observation {
            sandboxes: vec![sandbox("stray", 1), sandbox("own", 0)],
            containers: vec![
                container("c2", "stray"),
                container("c1", "own"),
                container("d1", "own"),
            ],
            ..Observation::default()
        }
    }

    fn unstopped() -> Unstopped {
        let mut unstopped = Unstopped::default();
        let error = StepError::new("it hangs", Retry::LATER);
        unstopped.note(vec!["stray".to_owned()], error);
        unstopped
    }

    #[test]
    fn what_could_not_be_stopped_is_not_the_pods_own() {
        let observed = observed();
        let nothing = Unstopped::default();
        assert_eq!(*nothing.set_aside(&observed), observed);
        let unstopped = unstopped();
        let considered = unstopped.set_aside(&observed);
        assert_eq!(considered.surplus_sandboxes().count(), 0);
        let newest = |name| considered.newest(name).map(|container| &*container.id);
        let own = considered.current_sandbox().map(|sandbox| &*sandbox.id);
        assert_eq!(
            (own, newest("c"), newest("d")),
            (Some("own"), Some("c1"), Some("d1"))
        );
        assert_eq!(considered.next_attempt(), 2, "its number is used up");
    }

    #[test]
    fn what_may_run_where_nothing_could_be_stopped_is_neither_stopped_nor_started_again() {
        let kill = |id: &str| Kill {
            container_id: id.to_owned(),
            name: String::new(),
            reason: KillReason::Superseded,
            message: String::new(),
            grace: std::time::Duration::ZERO,
        };
        let start = |name: &str| Start {
            name: name.to_owned(),
            kind: ContainerKind::Init,
            how: StartHow::Resume {
                container_id: String::new(),
                restart_count: 0,
            },
        };
        let work = |kills: &[&str], starts: &[&str]| {
            Plan::Work(Work {
                kills: kills.iter().map(|id| kill(id)).collect(),
                starts: starts.iter().map(|name| start(name)).collect(),
                ..Work::default()
            })
        };
        let all = || work(&["c2", "c1"], &["c", "d"]);
        let observed = observed();
        assert_eq!(
            unstopped().leave_alone(all(), &observed),
            work(&["c1"], &["d"])
        );
        assert_eq!(Unstopped::default().leave_alone(all(), &observed), all());
    }

    #[test]
    fn what_failed_is_told_with_whatever_else_fails() {
        let other = || StepError::new("no disk", Retry::SOON);
        let both = unstopped().and(other());
        assert_eq!(
            (&*both.message, both.retry),
            ("it hangs; no disk", Retry::SOON)
        );
        assert_eq!(Unstopped::default().and(other()).message, "no disk");
    }
}
