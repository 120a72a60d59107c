//! The rules of a status, one claim a test.

mod bounds;
mod conditions;
mod containers;
mod ephemeral;
mod phases;
mod restart_all;
mod sidecars;

use bulkhead_api::v1::{
    ContainerObservation, ContainerWaiting, PendingResize, ProbeKind, ProbeResult, ProbeVerdict,
    ResizeObservation, RuntimeState, SandboxObservation, WorkerPhase,
};
use pod::core::{ContainerState, ContainerStatus, PodCondition, Probe};
use serde_json::{Value, json};

use super::*;
use crate::verdicts::Verdicts;

const SECOND: i64 = 1_000_000_000;

/// A pod and what is seen of it, edited by a test and computed step by step.
struct Node {
    pod: Pod,
    observation: PodObservation,
    verdicts: Verdicts,
    published: Option<PodStatus>,
    held: Option<Vec<PodCondition>>,
    now: i64,
}

impl Node {
    fn new(spec: Value) -> Node {
        let pod = json!({
            "metadata": {
                "name": "p", "namespace": "default", "uid": "u",
                "annotations": {"kubernetes.io/config.source": "file"},
            },
            "spec": spec,
        });
        Node {
            pod: serde_json::from_value(pod).unwrap(),
            observation: PodObservation {
                phase: WorkerPhase::Syncing.into(),
                is_observed: true,
                ..PodObservation::default()
            },
            verdicts: Verdicts::default(),
            published: None,
            held: None,
            now: 100,
        }
    }

    fn with_policy(policy: &str) -> Node {
        Node::new(json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}))
    }

    fn with_init(policy: &str) -> Node {
        Node::new(json!({
            "restartPolicy": policy,
            "initContainers": [{"name": "i1"}, {"name": "i2"}],
            "containers": [{"name": "c"}],
        }))
    }

    fn api_pod(mut self) -> Node {
        self.pod.metadata.annotations = None;
        self
    }

    fn phase(&mut self, phase: WorkerPhase) -> &mut Node {
        self.observation.set_phase(phase);
        self
    }

    /// Adds an instance; a later one is newer.
    fn instance(&mut self, name: &str, id: &str, state: RuntimeState, exit_code: i32) -> &mut Node {
        let number = i64::try_from(self.observation.containers.len()).unwrap();
        let same = self
            .observation
            .containers
            .iter()
            .filter(|other| other.name == name)
            .count();
        self.observation.containers.push(ContainerObservation {
            name: name.to_owned(),
            id: id.to_owned(),
            state: state.into(),
            created_at_unix_nanos: (10 + number) * SECOND,
            started_at_unix_nanos: (11 + number) * SECOND,
            finished_at_unix_nanos: if state == RuntimeState::Exited {
                20 * SECOND
            } else {
                0
            },
            exit_code,
            reason: if exit_code == 0 { "Completed" } else { "Error" }.to_owned(),
            restart_count: u32::try_from(same).unwrap(),
            image: "i@runtime".to_owned(),
            ..ContainerObservation::default()
        });
        self
    }

    fn running(&mut self, name: &str, id: &str) -> &mut Node {
        self.instance(name, id, RuntimeState::Running, 0)
    }

    fn exited(&mut self, name: &str, id: &str, exit_code: i32) -> &mut Node {
        self.instance(name, id, RuntimeState::Exited, exit_code)
    }

    fn gone(&mut self) -> &mut Node {
        self.observation.containers.clear();
        self
    }

    fn waiting(&mut self, name: &str, reason: &str) -> &mut Node {
        self.observation.waiting.push(ContainerWaiting {
            name: name.to_owned(),
            reason: reason.to_owned(),
            message: "why".to_owned(),
        });
        self
    }

    fn verdict(&mut self, id: &str, kind: ProbeKind, result: ProbeResult) -> &mut Node {
        self.verdicts.set(&ProbeVerdict {
            container_id: id.to_owned(),
            kind: kind.into(),
            result: result.into(),
            ..ProbeVerdict::default()
        });
        self
    }

    /// Computes, publishes and lets ten seconds pass.
    fn compute(&mut self) -> PodStatus {
        let status = pod_status(StatusInput {
            pod: &self.pod,
            observation: &self.observation,
            verdicts: &self.verdicts,
            published: self.published.as_ref(),
            held: self.held.as_deref(),
            now: UnixNanos(self.now * SECOND),
        });
        self.now += 10;
        self.published = Some(status.clone());
        status
    }
}

fn container<'a>(status: &'a PodStatus, name: &str) -> &'a ContainerStatus {
    let init = status.init_container_statuses.iter().flatten();
    let mut all = init.chain(status.container_statuses.iter().flatten());
    all.find(|status| status.name == name).unwrap()
}

/// A state in a few words: `running`, `waiting Reason`, `terminated 1 Error`.
fn words(state: Option<&ContainerState>) -> String {
    let Some(state) = state else {
        return "absent".to_owned();
    };
    if state.running.is_some() {
        "running".to_owned()
    } else if let Some(waiting) = &state.waiting {
        format!("waiting {}", waiting.reason.as_deref().unwrap_or("-"))
    } else if let Some(ended) = &state.terminated {
        format!(
            "terminated {} {}",
            ended.exit_code,
            ended.reason.as_deref().unwrap_or("-")
        )
    } else {
        "empty".to_owned()
    }
}

fn state_of(status: &PodStatus, name: &str) -> String {
    words(container(status, name).state.as_ref())
}

fn last_of(status: &PodStatus, name: &str) -> String {
    words(container(status, name).last_state.as_ref())
}

fn condition<'a>(status: &'a PodStatus, type_: &str) -> &'a PodCondition {
    status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == type_)
        .unwrap()
}

fn since(status: &PodStatus, type_: &str) -> i64 {
    condition(status, type_)
        .last_transition_time
        .as_ref()
        .unwrap()
        .0
        .as_second()
}
