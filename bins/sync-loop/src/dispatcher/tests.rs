//! Tests of the loop as a whole: events in, actions out. The harness here, the
//! claims in the modules.

mod additions;
mod cleanups;
mod configuration;
mod properties;
mod removes;
mod resizes;
mod syncs;
mod turned_away;

use std::collections::BTreeMap;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::watch_pod_lifecycle_events_response::Message as LifecycleMessage;
use bulkhead_api::v1::watch_pods_response::Message;
use bulkhead_api::v1::watch_results_response::Message as ProbeMessage;
use clock::UnixNanos;
use pod::{PodDocument, PodSource};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};
use v1::WorkerPhase;

use super::admission::{
    AdmissionRecord, AdmissionRecords, AdmissionState, Allocation, Kept, NodeDescription,
};
use super::outbox::{UpdateKind, UpdatedPod, WorkerUpdate};
use super::pod_facts::PodFacts;
use super::{Action, Event, Now, Settings, SyncLoop};

const START: i64 = 1_700_000_000_000_000_000;

pub(super) fn settings() -> Settings {
    Settings {
        node: NodeDescription {
            name: "node-1".into(),
            labels: BTreeMap::from([
                ("kubernetes.io/hostname".into(), "node-1".into()),
                ("kubernetes.io/os".into(), "linux".into()),
            ]),
            taints: Vec::new(),
            allowed_unsafe_sysctls: Vec::new(),
        },
        max_pods: 110,
        kept: Kept::default(),
        sync_frequency: Duration::from_secs(60),
    }
}

/// A pod's JSON; `spec` is merged into an empty one.
pub(super) fn manifest(uid: &str, name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "metadata": {"uid": uid, "namespace": "default", "name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    pod
}

pub(super) fn plain(uid: &str) -> Value {
    manifest(uid, uid, json!({}))
}

/// A pod that requests so many thousandths of a core.
pub(super) fn needs_cpu(uid: &str, millis: u32) -> Value {
    let requests = json!({"cpu": format!("{millis}m")});
    let container = json!({"name": "c", "image": "i", "resources": {"requests": requests}});
    manifest(uid, uid, json!({"containers": [container]}))
}

pub(super) fn message(pod: &Value, source: PodSource) -> v1::Pod {
    let json = serde_json::to_vec(pod).unwrap();
    PodDocument::from_json(json, source).unwrap().0.to_message()
}

/// The record of a pod that was admitted as it is.
pub(super) fn admitted(pod: &Value) -> AdmissionRecord {
    let pod = PodFacts::of(&serde_json::from_value(pod.clone()).unwrap());
    AdmissionRecord::Admitted(Allocation::of(&pod))
}

/// What an action says, short enough for a table.
pub(super) fn brief(action: &Action) -> String {
    match action {
        Action::UpdatePod(update) => {
            format!(
                "{} {}",
                update
                    .kind
                    .update_type()
                    .as_str_name()
                    .trim_start_matches("UPDATE_TYPE_"),
                update.uid
            )
        }
        Action::SyncKnownPods { .. } => "known-pods".into(),
        Action::CleanUpContainers { uid } => format!("clean-up {uid}"),
        Action::CollectGarbage { .. } => "collect-garbage".into(),
        Action::WatchPodsAnew => "watch-pods-anew".into(),
        Action::CheckRuntime => "check-runtime".into(),
        Action::SetProbeVerdicts(verdicts) => format!("verdicts {}", verdicts.len()),
        Action::RejectPod(request) => {
            format!(
                "reject {} {}",
                request
                    .pod
                    .as_ref()
                    .unwrap()
                    .reference
                    .as_ref()
                    .unwrap()
                    .uid,
                request.reason
            )
        }
        Action::ReportEvent(event) => format!("event {} {}", event.reason, event.subject),
        Action::RemoveOrphanedStatuses { known, .. } => format!("statuses {}", known.join(",")),
        Action::SaveAdmissionRecords(records) => format!("save {}", records.len()),
    }
}

pub(super) struct Harness {
    pub(super) sync_loop: SyncLoop,
    pub(super) now: Now,
    pub(super) boot_id: String,
    pub(super) records: AdmissionRecords,
    last_question: u64,
}

impl Harness {
    /// A loop that knows nothing yet.
    pub(super) fn new() -> Harness {
        Harness::with_records(AdmissionRecords::default())
    }

    pub(super) fn with_records(records: AdmissionRecords) -> Harness {
        Harness {
            sync_loop: SyncLoop::new(settings(), records.clone(), SmallRng::seed_from_u64(1)),
            now: Now {
                elapsed: Duration::ZERO,
                wall: UnixNanos(START),
                since_boot: Duration::from_secs(500),
            },
            boot_id: "pool-1".into(),
            records,
            last_question: 0,
        }
    }

    /// A loop with one ready source and a pool without pods.
    pub(super) fn running() -> Harness {
        let mut harness = Harness::new();
        harness.configure(&["file"]);
        harness.snapshot(PodSource::File, true, &[]);
        harness.capacity(4000);
        harness.tick_housekeeping();
        harness.answer(&[], &[]);
        harness
    }

    pub(super) fn handle(&mut self, event: Event) -> Vec<Action> {
        let actions = self.sync_loop.handle(self.now, event);
        for action in &actions {
            if let Action::SyncKnownPods { question, .. } = action {
                self.last_question = *question;
            }
            if let Action::SaveAdmissionRecords(records) = action {
                self.records = records.clone();
            }
        }
        actions
    }

    pub(super) fn wait(&mut self, duration: Duration) {
        self.now.elapsed += duration;
        self.now.since_boot += duration;
        self.now.wall = self.now.wall.plus(duration);
    }

    pub(super) fn configure(&mut self, names: &[&str]) -> Vec<Action> {
        self.handle(Event::ConfigurationStreamBegan);
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        self.handle(Event::Configuration(Message::Sources(
            v1::ConfiguredSources { names },
        )))
    }

    pub(super) fn snapshot(
        &mut self,
        source: PodSource,
        ready: bool,
        pods: &[Value],
    ) -> Vec<Action> {
        let name = source.as_str().to_owned();
        let begin = v1::SourceSnapshotBegin {
            source: name.clone(),
            ready,
        };
        let mut actions = self.handle(Event::Configuration(Message::SnapshotBegin(begin)));
        for pod in pods {
            let pod = v1::SourcePod {
                source: name.clone(),
                pod: Some(message(pod, source)),
            };
            actions.extend(self.handle(Event::Configuration(Message::Pod(pod))));
        }
        let end = v1::SourceSnapshotEnd { source: name };
        actions.extend(self.handle(Event::Configuration(Message::SnapshotEnd(end))));
        actions
    }

    /// The source says in one breath which pods are gone, and how others are now.
    pub(super) fn change(&mut self, gone: &[Value], pods: &[Value]) -> Vec<Action> {
        let source = PodSource::File.as_str().to_owned();
        let begin = v1::SourceChangesBegin {
            source: source.clone(),
        };
        let mut actions = self.handle(Event::Configuration(Message::ChangesBegin(begin)));
        for pod in gone {
            actions.extend(self.remove(pod));
        }
        for pod in pods {
            actions.extend(self.deliver(pod));
        }
        assert_eq!(briefs(&actions), [""; 0], "before the end");
        let end = v1::SourceSnapshotEnd { source };
        self.handle(Event::Configuration(Message::SnapshotEnd(end)))
    }

    /// The source says how a pod is now.
    pub(super) fn deliver(&mut self, pod: &Value) -> Vec<Action> {
        self.deliver_in(PodSource::File, pod)
    }

    pub(super) fn deliver_in(&mut self, source: PodSource, pod: &Value) -> Vec<Action> {
        self.handle(Event::Configuration(Message::Pod(v1::SourcePod {
            source: source.as_str().to_owned(),
            pod: Some(message(pod, source)),
        })))
    }

    /// The source says that a pod is gone.
    pub(super) fn remove(&mut self, pod: &Value) -> Vec<Action> {
        self.remove_in(PodSource::File, pod)
    }

    pub(super) fn remove_in(&mut self, source: PodSource, pod: &Value) -> Vec<Action> {
        self.handle(Event::Configuration(Message::Gone(v1::SourcePodGone {
            source: source.as_str().to_owned(),
            uid: pod["metadata"]["uid"].as_str().unwrap().to_owned(),
        })))
    }

    /// config-sourcer says what the API server holds of the Node.
    pub(super) fn node(&mut self, node: v1::ApiNode) -> Vec<String> {
        briefs(&self.handle(Event::Configuration(Message::Node(node))))
    }

    pub(super) fn verdict(&mut self, verdict: v1::ProbeVerdict) -> Vec<Action> {
        self.handle(Event::ProbeResult(ProbeMessage::Verdict(verdict)))
    }

    pub(super) fn capacity(&mut self, cpu_millis: u64) -> Vec<Action> {
        self.capacity_with_error(cpu_millis, "")
    }

    pub(super) fn capacity_with_error(&mut self, cpu_millis: u64, error: &str) -> Vec<Action> {
        self.handle(Event::NodeCapacity(v1::NodeCapacity {
            boot_id: self.boot_id.clone(),
            cpu_millis,
            memory_bytes: 1 << 30,
            ephemeral_storage_bytes: 1 << 30,
            runtime_error: error.to_owned(),
            ..v1::NodeCapacity::default()
        }))
    }

    pub(super) fn tick_housekeeping(&mut self) -> Vec<Action> {
        self.handle(Event::HousekeepingTick)
    }

    /// The pool answers the last question with these workers and runtime pods.
    pub(super) fn answer(
        &mut self,
        workers: &[v1::WorkerState],
        runtime_pods: &[v1::RuntimePodState],
    ) -> Vec<Action> {
        self.answer_to(self.last_question, workers, runtime_pods)
    }

    pub(super) fn answer_to(
        &mut self,
        question: u64,
        workers: &[v1::WorkerState],
        runtime_pods: &[v1::RuntimePodState],
    ) -> Vec<Action> {
        let response = v1::SyncKnownPodsResponse {
            boot_id: self.boot_id.clone(),
            workers: workers.to_vec(),
            runtime_pods: runtime_pods.to_vec(),
            runtime_error: String::new(),
        };
        self.handle(Event::KnownPods { question, response })
    }

    /// Asks and answers.
    pub(super) fn housekeeping(
        &mut self,
        workers: &[v1::WorkerState],
        runtime_pods: &[v1::RuntimePodState],
    ) -> Vec<Action> {
        self.tick_housekeeping();
        self.answer(workers, runtime_pods)
    }

    /// The pool takes every update among these actions.
    pub(super) fn acknowledge(&mut self, actions: &[Action], phase: WorkerPhase) -> Vec<Action> {
        let mut caused = Vec::new();
        for update in updates(actions) {
            caused.extend(self.handle(Event::WorkerAcknowledged {
                uid: update.uid.clone(),
                sequence: update.sequence,
                phase,
                boot_id: self.boot_id.clone(),
            }));
        }
        caused
    }

    /// Adds a pod whose worker then runs it.
    pub(super) fn add_running(&mut self, pod: &Value) {
        let actions = self.deliver(pod);
        assert_eq!(updates(&actions).len(), 1, "{:?}", briefs(&actions));
        self.acknowledge(&actions, WorkerPhase::Syncing);
    }

    pub(super) fn lifecycle(&mut self, uid: &str, kind: v1::PodLifecycleEventType) -> Vec<Action> {
        self.handle(Event::Lifecycle(LifecycleMessage::Event(
            v1::PodLifecycleEvent {
                pod_uid: uid.to_owned(),
                r#type: kind.into(),
                container_id: "id".to_owned(),
            },
        )))
    }

    pub(super) fn admission(&self, uid: &str) -> AdmissionState {
        self.sync_loop.admission.state(uid).clone()
    }

    pub(super) fn decision(&self, uid: &str) -> String {
        self.sync_loop.describe(uid).unwrap().last_decision
    }
}

pub(super) fn reference(uid: &str) -> v1::PodReference {
    v1::PodReference {
        uid: uid.into(),
        namespace: "default".into(),
        name: uid.into(),
    }
}

pub(super) fn worker(uid: &str, phase: WorkerPhase) -> v1::WorkerState {
    v1::WorkerState {
        pod: Some(reference(uid)),
        phase: phase.into(),
        ..v1::WorkerState::default()
    }
}

pub(super) fn runtime_pod(uid: &str, source: &str, runs: bool) -> v1::RuntimePodState {
    v1::RuntimePodState {
        pod: Some(reference(uid)),
        source: source.into(),
        has_running_container: runs,
        has_ready_sandbox: runs,
    }
}

pub(super) fn briefs(actions: &[Action]) -> Vec<String> {
    actions.iter().map(brief).collect()
}

/// The updates for workers, as briefs.
pub(super) fn sent(actions: &[Action]) -> Vec<String> {
    let updates = actions
        .iter()
        .filter(|action| matches!(action, Action::UpdatePod(_)));
    updates.map(brief).collect()
}

pub(super) fn updates(actions: &[Action]) -> Vec<WorkerUpdate> {
    let updates = actions.iter().filter_map(|action| match action {
        Action::UpdatePod(update) => Some(update.clone()),
        _ => None,
    });
    updates.collect()
}

/// Since when the one KILL among the actions asks for it, and of what.
pub(super) fn kill(actions: &[Action]) -> (UnixNanos, UpdatedPod) {
    let kills = updates(actions)
        .into_iter()
        .filter_map(|update| match update.kind {
            UpdateKind::Kill { requested_at } => Some((requested_at, update.pod)),
            _ => None,
        });
    let kills: Vec<_> = kills.collect();
    assert_eq!(kills.len(), 1, "{:?}", briefs(actions));
    kills.into_iter().next().unwrap()
}
