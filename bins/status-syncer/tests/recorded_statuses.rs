//! Our statuses agree with those that a real kubelet 1.26.1 reported for the
//! same pods (`tests/data/kubelet-cri-requests.jsonl`).
//!
//! An observation is written from the facts about containers in each recorded
//! status (ids, times, exit codes), the pod's story is replayed step by step,
//! and what is computed must equal what was recorded, field by field. What
//! differs on purpose is in one table with its reasons.
#![expect(clippy::unwrap_used, reason = "a test: what is missing fails it")]

use bulkhead_api::v1::{
    ContainerObservation, ContainerWaiting, PodObservation, ProbeKind, ProbeResult, ProbeVerdict,
    RuntimeState, SandboxObservation, WorkerPhase,
};
use clock::UnixNanos;
use pod::PodExt;
use pod::core::{ContainerState, ContainerStatus, Pod, PodStatus};
use pod::meta::Time;
use serde_json::{Value, json};
use status_syncer::status::{StatusInput, pod_status};
use status_syncer::verdicts::Verdicts;

/// Address of the node on which the kubelet ran.
const HOST_IP: &str = "10.123.0.1";

/// Where we differ on purpose.
struct Difference {
    /// A field of the status.
    field: &'static str,
    /// In which pods.
    applies: fn(&Pod) -> bool,
    reason: &'static str,
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        field: "hostIP",
        applies: |_| true,
        reason: "without an API server the kubelet leaves out the node's address; we say it",
    },
    Difference {
        field: "hostIPs",
        applies: |_| true,
        reason: "as hostIP; a kubelet reports it since 1.28",
    },
    Difference {
        field: "podIP",
        applies: PodExt::host_network,
        reason: "a pod of the node's network has the node's address, as in a cluster",
    },
    Difference {
        field: "podIPs",
        applies: PodExt::host_network,
        reason: "as podIP",
    },
];

#[test]
fn statuses_agree_with_a_real_kubelet() {
    let recorded = recorded();
    assert_eq!(recorded.len(), 53);
    let mut used = vec![false; DIFFERENCES.len()];
    let mut told_mounts = 0;
    for (pod, expected) in &recorded {
        let name = pod.metadata.name.as_deref().unwrap();
        let story = Story::of(pod, expected);
        let status = story.replay();
        let mut ours = serde_json::to_value(&status).unwrap();
        let mut theirs = serde_json::to_value(expected).unwrap();
        // A condition that a kubelet tells since 1.29, as the first.
        let conditions = ours["conditions"].as_array_mut().unwrap();
        let newer = conditions.remove(0);
        assert_eq!(newer["type"], "PodReadyToStartContainers", "{name}");
        take_started_of_init_containers(&mut ours);
        told_mounts += take_volume_mounts(&mut ours);
        for (index, difference) in DIFFERENCES.iter().enumerate() {
            if (difference.applies)(pod) {
                let left = ours.as_object_mut().unwrap().remove(difference.field);
                let right = theirs.as_object_mut().unwrap().remove(difference.field);
                used[index] |= left != right;
            }
        }
        assert_eq!(ours, theirs, "{name}");

        // Computing it again, later, changes nothing.
        let again = story.last_step(Some(&status), story.end + 60);
        assert_eq!(again, status, "{name} again");
    }
    assert_ne!(told_mounts, 0);
    for (used, Difference { field, reason, .. }) in used.iter().zip(DIFFERENCES) {
        assert!(
            used,
            "{field} agrees by now, drop it from the table: {reason}"
        );
    }
}

#[test]
fn a_lost_record_of_statuses_loses_no_fact_of_a_running_pod() {
    for (pod, expected) in &recorded() {
        let story = Story::of(pod, expected);
        let status = story.last_step(None, story.end);
        let expected = story.replay();
        assert_eq!(status.phase, expected.phase);
        assert_eq!(status.container_statuses, expected.container_statuses);
        assert_eq!(
            status.init_container_statuses,
            expected.init_container_statuses
        );
        assert_eq!(status.pod_ip, expected.pod_ip);
    }
}

/// Takes away what a kubelet tells of init containers since sidecars are some of them.
fn take_started_of_init_containers(status: &mut Value) {
    let containers = status
        .get_mut("initContainerStatuses")
        .and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        let started = container.as_object_mut().unwrap().remove("started");
        let runs = !container["state"]["running"].is_null();
        assert_eq!(started, Some(json!(runs)));
    }
}

/// Takes away what a kubelet tells of a container since 1.31; in how many containers.
fn take_volume_mounts(status: &mut Value) -> usize {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let mut taken = 0;
    for list in lists {
        let containers = status.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let mounts = container.as_object_mut().unwrap().remove("volumeMounts");
            taken += usize::from(mounts.is_some());
        }
    }
    taken
}

fn recorded() -> Vec<(Pod, PodStatus)> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/data/kubelet-cri-requests.jsonl"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        let mut pod: Value = record["manifest"].clone();
        pod["metadata"]["name"] = record["metadata"]["name"].clone();
        pod["metadata"]["uid"] = record["metadata"]["uid"].clone();
        pod["metadata"]["annotations"] = record["metadata"]["annotations"].clone();
        if pod["metadata"]["namespace"].is_null() {
            pod["metadata"]["namespace"] = json!("default");
        }
        let mut pod: Pod = serde_json::from_value(pod).unwrap();
        pod_validation::apply_defaults(&mut pod);
        (
            pod,
            serde_json::from_value(record["status"].clone()).unwrap(),
        )
    };
    text.lines().map(line).collect()
}

/// What happened to one recorded pod, as far as its status tells.
struct Story<'a> {
    pod: &'a Pod,
    recorded: &'a PodStatus,
    verdicts: Verdicts,
    /// When it was seen first, and when its last condition changed (seconds).
    start: i64,
    end: i64,
}

impl<'a> Story<'a> {
    fn of(pod: &'a Pod, recorded: &'a PodStatus) -> Story<'a> {
        let mut verdicts = Verdicts::default();
        for status in recorded.container_statuses.iter().flatten() {
            let Some(id) = &status.container_id else {
                continue;
            };
            for (kind, success) in [
                (ProbeKind::Readiness, status.ready),
                (ProbeKind::Startup, status.started == Some(true)),
            ] {
                let result = if success {
                    ProbeResult::Success
                } else {
                    ProbeResult::Failure
                };
                verdicts.set(&ProbeVerdict {
                    container_id: id.trim_start_matches("containerd://").to_owned(),
                    kind: kind.into(),
                    result: result.into(),
                    ..ProbeVerdict::default()
                });
            }
        }
        let start = seconds(recorded.start_time.as_ref().unwrap());
        let changes = recorded.conditions.iter().flatten();
        let changes =
            changes.map(|condition| seconds(condition.last_transition_time.as_ref().unwrap()));
        Story {
            pod,
            recorded,
            verdicts,
            start,
            end: changes.max().unwrap(),
        }
    }

    /// Seen, initialized, (running,) and as recorded, each when it happened.
    fn replay(&self) -> PodStatus {
        let seen = self.step(&self.observation(|_, _| None), None, self.start);
        let initialized = self.since("Initialized");
        let init_only = self.observation(|init, state| init.then_some(state));
        let mut status = self.step(&init_only, Some(&seen), initialized);
        if !self.ready() && self.since("Ready") > initialized {
            // It was ready once and is not any more.
            let mut running = self.observation(|_, state| Some(state));
            for container in &mut running.containers {
                container.set_state(RuntimeState::Running);
            }
            status = self.step(&running, Some(&status), self.since("Ready") - 1);
            assert_eq!(status.conditions.as_ref().unwrap()[1].status, "True");
        }
        self.last_step(Some(&status), self.since("Ready"))
    }

    fn last_step(&self, published: Option<&PodStatus>, at: i64) -> PodStatus {
        let mut observation = self.observation(|_, state| Some(state));
        let ended = matches!(self.recorded.phase.as_deref(), Some("Succeeded" | "Failed"));
        if ended {
            observation.set_phase(WorkerPhase::Terminated);
            observation.sandboxes[0].ready = false;
            observation.sandboxes[0].ips = self.ips();
        }
        observation.failed_reason = self.recorded.reason.clone().unwrap_or_default();
        observation.failed_message = self.recorded.message.clone().unwrap_or_default();
        self.step(&observation, published, at)
    }

    fn step(
        &self,
        observation: &PodObservation,
        published: Option<&PodStatus>,
        at: i64,
    ) -> PodStatus {
        pod_status(StatusInput {
            pod: self.pod,
            observation,
            verdicts: &self.verdicts,
            published,
            held: None,
            now: UnixNanos(at * 1_000_000_000 + 999),
        })
    }

    fn condition(&self, type_: &str) -> &pod::core::PodCondition {
        let mut conditions = self.recorded.conditions.iter().flatten();
        conditions
            .find(|condition| condition.type_ == type_)
            .unwrap()
    }

    fn since(&self, type_: &str) -> i64 {
        seconds(self.condition(type_).last_transition_time.as_ref().unwrap())
    }

    fn ready(&self) -> bool {
        self.condition("Ready").status == "True"
    }

    fn ips(&self) -> Vec<String> {
        let ips = self.recorded.pod_ips.iter().flatten();
        ips.map(|ip| ip.ip.clone()).collect()
    }

    /// The observation with those containers that `choose` lets through.
    fn observation(
        &self,
        choose: impl Fn(bool, &'static str) -> Option<&'static str>,
    ) -> PodObservation {
        let mut observation = PodObservation {
            phase: WorkerPhase::Syncing.into(),
            is_observed: true,
            host_ip: HOST_IP.to_owned(),
            sandboxes: vec![SandboxObservation {
                id: "sandbox".to_owned(),
                ready: true,
                ips: self.ips(),
                created_at_unix_nanos: (self.start + 1) * 1_000_000_000,
            }],
            ..PodObservation::default()
        };
        let lists = [
            (true, &self.recorded.init_container_statuses),
            (false, &self.recorded.container_statuses),
        ];
        for (init, statuses) in lists {
            for status in statuses.iter().flatten() {
                if choose(init, "as recorded").is_some() {
                    observe(&mut observation, status);
                }
            }
        }
        observation
    }
}

/// Adds the instances and the reason to wait from which `status` follows.
fn observe(observation: &mut PodObservation, status: &ContainerStatus) {
    for state in [&status.state, &status.last_state].into_iter().flatten() {
        if let Some(waiting) = &state.waiting {
            observation.waiting.push(ContainerWaiting {
                name: status.name.clone(),
                reason: waiting.reason.clone().unwrap_or_default(),
                message: waiting.message.clone().unwrap_or_default(),
            });
        } else if state.running.is_some() || state.terminated.is_some() {
            observation.containers.push(instance(status, state));
        }
    }
}

fn instance(status: &ContainerStatus, state: &ContainerState) -> ContainerObservation {
    let nanos = |time: &Option<Time>| {
        time.as_ref()
            .map_or(0, |time| seconds(time) * 1_000_000_000)
    };
    let mut instance = ContainerObservation {
        name: status.name.clone(),
        restart_count: u32::try_from(status.restart_count).unwrap(),
        image: status.image.clone(),
        image_id: status.image_id.clone(),
        state: RuntimeState::Running.into(),
        ..ContainerObservation::default()
    };
    let id = status.container_id.as_deref().unwrap_or_default();
    if let Some(running) = &state.running {
        instance.started_at_unix_nanos = nanos(&running.started_at);
    } else if let Some(ended) = &state.terminated {
        assert_eq!(
            ended.container_id.as_deref(),
            Some(id),
            "only the newest instance is recorded"
        );
        instance.set_state(RuntimeState::Exited);
        instance.started_at_unix_nanos = nanos(&ended.started_at);
        instance.finished_at_unix_nanos = nanos(&ended.finished_at);
        instance.exit_code = ended.exit_code;
        instance.reason = ended.reason.clone().unwrap_or_default();
        instance.message = ended.message.clone().unwrap_or_default();
    }
    id.trim_start_matches("containerd://")
        .clone_into(&mut instance.id);
    instance.created_at_unix_nanos = instance.started_at_unix_nanos;
    instance
}

fn seconds(time: &Time) -> i64 {
    time.0.as_second()
}
