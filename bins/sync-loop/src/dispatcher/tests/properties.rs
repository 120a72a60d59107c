//! Random histories of a small node: a source, the loop, its outbox and a model
//! of the worker pool, with every one of them restarting at any moment.
//!
//! - Safety, at every step: nothing that a source is known to want is killed, and
//!   nothing is created that no source wants.
//! - Liveness, after the faults have stopped: workers and desired pods agree.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::dispatcher::outbox::{Delivery, Outbox};

/// Pods of the model; few, so that histories cross.
const PODS: usize = 5;

/// Rounds after which everything must have come to rest.
const ROUNDS: usize = 12;

fn uid(index: usize) -> String {
    format!("pod-{index}")
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Want(usize),
    Drop(usize),
    ChangeSpec(usize),
    SourceRestarts,
    SourceBecomesReady,
    PoolRestarts,
    LoopRestarts,
    Deliver { lost: bool },
    Housekeeping { late: bool },
    AnswerLate,
    ContainersStop(usize),
    PodEnds(usize),
    Doorbell(usize),
    RuntimeDown,
    RuntimeUp,
    SecondsPass(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let pod = 0..PODS;
    prop_oneof![
        4 => pod.clone().prop_map(Step::Want),
        3 => pod.clone().prop_map(Step::Drop),
        2 => pod.clone().prop_map(Step::ChangeSpec),
        1 => Just(Step::SourceRestarts),
        2 => Just(Step::SourceBecomesReady),
        1 => Just(Step::PoolRestarts),
        1 => Just(Step::LoopRestarts),
        8 => any::<bool>().prop_map(|lost| Step::Deliver { lost }),
        4 => any::<bool>().prop_map(|late| Step::Housekeeping { late }),
        3 => Just(Step::AnswerLate),
        4 => pod.clone().prop_map(Step::ContainersStop),
        1 => pod.clone().prop_map(Step::PodEnds),
        2 => pod.prop_map(Step::Doorbell),
        1 => Just(Step::RuntimeDown),
        1 => Just(Step::RuntimeUp),
        2 => (1_u64..40).prop_map(Step::SecondsPass),
    ]
}

/// A worker of the model: what matters of the pool's own state machine.
#[derive(Clone, Debug)]
struct Worker {
    phase: WorkerPhase,
    restart_requested: bool,
    /// It ended by itself: created again, it stays as it is.
    completed: bool,
}

#[derive(Debug, Default)]
struct Pool {
    workers: BTreeMap<String, Worker>,
    running: BTreeSet<String>,
    completed: BTreeSet<String>,
    runtime_down: bool,
}

impl Pool {
    fn update(&mut self, update: &WorkerUpdate) -> WorkerPhase {
        let uid = update.uid.to_string();
        let fresh = !self.workers.contains_key(&uid);
        let worker = self.workers.entry(uid.clone()).or_insert(Worker {
            phase: WorkerPhase::Syncing,
            restart_requested: false,
            completed: false,
        });
        match update.kind {
            UpdateKind::Kill { .. } => {
                if worker.phase == WorkerPhase::Syncing {
                    worker.phase = WorkerPhase::Terminating;
                }
                worker.restart_requested &= worker.phase == WorkerPhase::Finished;
            }
            UpdateKind::Create if worker.phase != WorkerPhase::Syncing => {
                worker.restart_requested |= !worker.completed;
            }
            UpdateKind::Create | UpdateKind::Update | UpdateKind::Sync => {
                if fresh && self.completed.contains(&uid) {
                    *worker = Worker {
                        phase: WorkerPhase::Finished,
                        restart_requested: false,
                        completed: true,
                    };
                } else if worker.phase == WorkerPhase::Syncing {
                    self.running.insert(uid);
                }
            }
        }
        worker.phase
    }

    fn containers_stop(&mut self, uid: &str) {
        if let Some(worker) = self.workers.get_mut(uid)
            && worker.phase == WorkerPhase::Terminating
        {
            worker.phase = WorkerPhase::Finished;
            self.running.remove(uid);
        }
    }

    fn pod_ends(&mut self, uid: &str) {
        if let Some(worker) = self.workers.get_mut(uid)
            && worker.phase == WorkerPhase::Syncing
        {
            *worker = Worker {
                phase: WorkerPhase::Finished,
                restart_requested: false,
                completed: true,
            };
            self.running.remove(uid);
            self.completed.insert(uid.to_owned());
        }
    }

    fn sync_known_pods(
        &mut self,
        desired: &[String],
        sources_ready: bool,
    ) -> v1::SyncKnownPodsResponse {
        self.workers.retain(|uid, worker| {
            let wanted = desired.contains(uid);
            let forgotten = worker.restart_requested || (sources_ready && !wanted);
            let keep = worker.phase != WorkerPhase::Finished || !forgotten;
            if !keep {
                self.completed.remove(uid);
            }
            keep
        });
        let workers = self.workers.iter().map(|(uid, worker)| v1::WorkerState {
            restart_requested: worker.restart_requested,
            ..super::worker(uid, worker.phase)
        });
        let running = self
            .running
            .iter()
            .map(|uid| runtime_pod(uid, "file", true));
        v1::SyncKnownPodsResponse {
            boot_id: String::new(),
            workers: workers.collect(),
            runtime_pods: if self.runtime_down {
                Vec::new()
            } else {
                running.collect()
            },
            runtime_error: if self.runtime_down {
                "down".into()
            } else {
                String::new()
            },
        }
    }
}

struct Node {
    harness: Harness,
    outbox: Outbox,
    pool: Pool,
    pool_runs: u32,
    /// What the source wants, with a version of its spec.
    wanted: BTreeMap<usize, u32>,
    source_ready: bool,
    /// What the source has shown while it was ready, in this run of the loop.
    last_shown: Option<BTreeSet<usize>>,
    late_answer: Option<(u64, v1::SyncKnownPodsResponse, String)>,
    version: u32,
}

impl Node {
    fn new() -> Node {
        let mut node = Node {
            harness: Harness::new(),
            outbox: Outbox::default(),
            pool: Pool::default(),
            pool_runs: 1,
            wanted: BTreeMap::new(),
            source_ready: false,
            last_shown: None,
            late_answer: None,
            version: 0,
        };
        node.start_loop();
        node
    }

    fn start_loop(&mut self) {
        self.outbox = Outbox::default();
        self.late_answer = None;
        self.last_shown = None;
        let now = self.harness.now.wall;
        let records = self.harness.records.clone();
        self.harness = Harness::with_records(records);
        self.harness.now.wall = now;
        self.harness.boot_id = format!("pool-{}", self.pool_runs);
        self.harness.configure(&["file"]);
        self.show_snapshot();
        let actions = self.harness.capacity(64_000);
        self.carry_out(actions);
    }

    fn pod(&self, index: usize) -> Value {
        let mut pod = plain(&uid(index));
        let version = self.wanted.get(&index).copied().unwrap_or(0);
        pod["metadata"]["labels"] = json!({"version": version.to_string()});
        pod
    }

    fn show_snapshot(&mut self) {
        // A source that is not ready has nothing to show yet.
        let indices: Vec<usize> = if self.source_ready {
            self.wanted.keys().copied().collect()
        } else {
            Vec::new()
        };
        let pods: Vec<Value> = indices.iter().map(|index| self.pod(*index)).collect();
        if self.source_ready {
            self.last_shown = Some(indices.into_iter().collect());
        }
        let actions = self
            .harness
            .snapshot(PodSource::File, self.source_ready, &pods);
        self.carry_out(actions);
    }

    /// Takes actions in, and checks that none of them may harm a pod.
    fn carry_out(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::UpdatePod(update) => {
                    self.check(&update);
                    self.outbox.push(update);
                }
                Action::RejectPod(_) => panic!("there is room for all"),
                _ => {}
            }
        }
    }

    fn check(&self, update: &WorkerUpdate) {
        let shown_wanted = self.last_shown.as_ref();
        let wanted =
            (0..PODS).filter(|index| shown_wanted.is_some_and(|shown| shown.contains(index)));
        let wanted = wanted.map(uid).any(|wanted| *wanted == *update.uid);
        match update.kind {
            UpdateKind::Kill { .. } => {
                assert!(
                    shown_wanted.is_some(),
                    "{} killed before its source was ready",
                    update.uid
                );
                assert!(!wanted, "{} killed although it is wanted", update.uid);
            }
            _ => assert!(
                wanted,
                "{} {:?} although nobody wants it",
                update.uid, update.kind
            ),
        }
    }

    /// The source says of a pod what it wants now.
    fn tell(&mut self, index: usize) {
        if !self.source_ready {
            return;
        }
        let (pod, wanted) = (self.pod(index), self.wanted.contains_key(&index));
        if let Some(shown) = &mut self.last_shown {
            if wanted {
                shown.insert(index);
            } else {
                shown.remove(&index);
            }
        }
        let actions = match wanted {
            true => self.harness.deliver(&pod),
            false => self.harness.remove(&pod),
        };
        self.carry_out(actions);
    }

    fn deliver(&mut self, lost: bool) {
        let Some(update) = self.outbox.take() else {
            return;
        };
        let phase = self.pool.update(&update);
        if lost {
            self.outbox.done(&update.uid, Delivery::Failed);
            return;
        }
        self.outbox.done(&update.uid, Delivery::Settled);
        let actions = self.harness.handle(Event::WorkerAcknowledged {
            uid: update.uid,
            sequence: update.sequence,
            phase,
            boot_id: format!("pool-{}", self.pool_runs),
        });
        self.carry_out(actions);
    }

    fn housekeeping(&mut self, late: bool) {
        let actions = self.harness.tick_housekeeping();
        let asked = actions.into_iter().find_map(|action| match action {
            Action::SyncKnownPods {
                question,
                desired,
                delivered,
            } => Some((question, desired, delivered)),
            _ => None,
        });
        let (question, desired, delivered) = asked.unwrap();
        let source_ready = delivered.contains(&PodSource::File);
        let response = self.pool.sync_known_pods(&desired, source_ready);
        self.late_answer = Some((question, response, format!("pool-{}", self.pool_runs)));
        if !late {
            self.answer();
        }
    }

    fn answer(&mut self) {
        let Some((question, mut response, boot_id)) = self.late_answer.take() else {
            return;
        };
        response.boot_id = boot_id;
        let actions = self.harness.handle(Event::KnownPods { question, response });
        self.carry_out(actions);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Want(index) => {
                if self.wanted.contains_key(&index) {
                    return;
                }
                self.version += 1;
                self.wanted.insert(index, self.version);
                self.tell(index);
            }
            Step::Drop(index) => {
                if self.wanted.remove(&index).is_some() {
                    self.tell(index);
                }
            }
            Step::ChangeSpec(index) => {
                self.version += 1;
                if let Some(version) = self.wanted.get_mut(&index) {
                    *version = self.version;
                    self.tell(index);
                }
            }
            Step::SourceRestarts => {
                self.source_ready = false;
                self.harness.configure(&["file"]);
                self.show_snapshot();
            }
            Step::SourceBecomesReady => {
                self.source_ready = true;
                self.show_snapshot();
            }
            Step::PoolRestarts => {
                self.pool_runs += 1;
                self.pool.workers.clear();
                self.harness.boot_id = format!("pool-{}", self.pool_runs);
            }
            Step::LoopRestarts => self.start_loop(),
            Step::Deliver { lost } => self.deliver(lost),
            Step::Housekeeping { late } => self.housekeeping(late),
            Step::AnswerLate => self.answer(),
            Step::ContainersStop(index) => self.pool.containers_stop(&uid(index)),
            Step::PodEnds(index) => self.pool.pod_ends(&uid(index)),
            Step::Doorbell(index) => {
                let actions = self
                    .harness
                    .lifecycle(&uid(index), v1::PodLifecycleEventType::PodSync);
                self.carry_out(actions);
            }
            Step::RuntimeDown => self.set_runtime(true),
            Step::RuntimeUp => self.set_runtime(false),
            Step::SecondsPass(seconds) => {
                self.harness.wait(Duration::from_secs(seconds));
                let actions = self.harness.handle(Event::SyncTick);
                self.carry_out(actions);
            }
        }
    }

    fn set_runtime(&mut self, down: bool) {
        self.pool.runtime_down = down;
        let error = if down { "down" } else { "" };
        let actions = self.harness.capacity_with_error(64_000, error);
        self.carry_out(actions);
    }

    /// Lets everything work without faults for a while.
    fn calm(&mut self) {
        self.set_runtime(false);
        self.step(Step::SourceBecomesReady);
        for _ in 0..ROUNDS {
            self.harness.wait(Duration::from_secs(2));
            self.housekeeping(false);
            while !self.outbox.is_empty() {
                self.deliver(false);
            }
            for index in 0..PODS {
                self.pool.containers_stop(&uid(index));
            }
        }
    }

    fn check_agreement(&self) {
        for index in 0..PODS {
            let uid = uid(index);
            let worker = self.pool.workers.get(&uid);
            let running = self.pool.running.contains(&uid);
            if self.wanted.contains_key(&index) {
                let worker = worker.unwrap_or_else(|| panic!("{uid} is wanted and has no worker"));
                assert!(
                    running || worker.completed,
                    "{uid} is wanted and does not run: {worker:?}"
                );
            } else {
                assert!(worker.is_none(), "{uid} is not wanted and has {worker:?}");
                assert!(!running, "{uid} is not wanted and runs");
            }
        }
        let departed = self.harness.sync_loop.workers.departed_uids();
        assert!(departed.is_empty(), "{departed:?} are never forgotten");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_history_ends_in_agreement_and_harms_no_pod(
        steps in proptest::collection::vec(any_step(), 1..80)
    ) {
        let mut node = Node::new();
        for step in steps {
            node.step(step);
        }
        node.calm();
        node.check_agreement();
    }
}
