//! The actor: takes commands, runs steps, applies what they come to.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bulkhead_api::v1;
use ipc::limits::MAX_PODS;
use pod::PodSource;
use pod_lifecycle::forgotten::is_forgotten;
use pod_lifecycle::static_pods::StaticPods;
use pod_lifecycle::{
    Decision, KillRequest, Subject, Transition, Update, UpdateKind, Worker, WorkerState,
};
use rand::rngs::SmallRng;
use tokio::sync::mpsc;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::entry::{Entry, Requeue, RunningStep, StepEnd, how_it_ended};
use super::finish::{UnderWay, finish_calls};
use super::schedule::Schedule;
use super::startable::{Start, Startable};
use super::{Command, PoolError, PoolHandle, UpdateExtras, room, until};
use crate::locks::PodLocks;
use crate::relist::{Relist, Relister};
use crate::shutdown_kills::{rejection, tell_rejection};
use crate::steps::{self, Outcome, Retry, StepContext, StepError};

/// A wait after an error is at most so much longer, so that not all pods come back at once.
const JITTER: f64 = 0.5;

/// What the actor is made from.
pub(crate) struct ActorConfig {
    /// What steps work with.
    pub context: Arc<StepContext>,
    /// Lists the runtime at the start.
    pub relister: Relister,
    /// For the jitter of retries.
    pub random: SmallRng,
    /// Set once the runtime has been listed.
    pub listed: Arc<AtomicBool>,
    /// Keeps steps and removals of one pod apart.
    pub locks: PodLocks,
}

/// Owner of all workers.
pub(crate) struct Actor {
    context: Arc<StepContext>,
    random: SmallRng,
    listed: Arc<AtomicBool>,
    locks: PodLocks,
    commands: mpsc::Receiver<Command>,
    workers: BTreeMap<String, Entry>,
    static_pods: StaticPods,
    startable: Startable,
    schedule: Schedule,
    /// Each tells what it came to, and when it last began to look at the runtime.
    running: JoinSet<StepEnd>,
    /// Which pod a running step is of.
    tasks: HashMap<Id, String>,
    first_list: JoinSet<Arc<Relist>>,
}

impl std::fmt::Debug for Actor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Actor")
            .field("workers", &self.workers.len())
            .finish_non_exhaustive()
    }
}

impl Actor {
    /// An actor and its handle. Terminations that an earlier process began go on.
    #[must_use]
    pub(crate) fn new(config: ActorConfig) -> (Actor, PoolHandle) {
        let (handle, commands) = PoolHandle::new(config.context.publisher.clone());
        let mut first_list = JoinSet::new();
        let relister = config.relister;
        first_list.spawn(async move { relister.first().await });
        let mut actor = Actor {
            context: config.context,
            random: config.random,
            listed: config.listed,
            locks: config.locks,
            commands,
            workers: BTreeMap::new(),
            static_pods: StaticPods::default(),
            startable: Startable::default(),
            schedule: Schedule::default(),
            running: JoinSet::new(),
            tasks: HashMap::new(),
            first_list,
        };
        actor.resume();
        (actor, handle)
    }

    fn resume(&mut self) {
        for (identity, record) in self.context.records.all() {
            let Some(termination) = record.termination.clone() else {
                continue;
            };
            tracing::info!(pod = %identity, "a termination that was begun goes on");
            let uid = identity.uid().to_owned();
            let worker = Worker::resume(identity, termination);
            let entry = Entry::new(worker, record, UpdateExtras::default());
            self.workers.insert(uid.clone(), entry);
            self.changed(&uid);
            self.due_now(&uid);
        }
    }

    /// Works until `shutdown`, or every handle is dropped. Then no step begins, and the
    /// runtime may finish what it was asked to make or start.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> UnderWay {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            // Cancel-safe: it loses its place in a loop, and nothing else.
            () = self.work() => {}
        }
        self.running.shutdown().await;
        finish_calls(self.workers, &self.context.turns).await
    }

    async fn work(&mut self) {
        loop {
            self.start_due_steps();
            let next = self.next_due();
            tokio::select! {
                // In this order, so that no flood of updates keeps results waiting;
                // each step gives one result, so the reverse cannot happen.
                biased;
                // Cancel-safe: joining takes nothing until it returns.
                Some(result) = self.running.join_next_with_id() => self.step_ended(result),
                // Cancel-safe, likewise.
                Some(listed) = self.first_list.join_next() => {
                    if let Ok(relist) = listed {
                        self.runtime_listed(&relist);
                    }
                }
                // Cancel-safe: it takes a pod only as it answers.
                uid = self.context.doorbell.rung() => self.wake(&uid, Requeue::Happened),
                // Cancel-safe: receiving takes nothing until it returns.
                command = self.commands.recv() => match command {
                    Some(command) => self.command(command),
                    None => return,
                },
                // Cancel-safe: a sleep has no state that could be lost.
                () = clock::sleep_until(next) => {}
            }
        }
    }

    fn is_listed(&self) -> bool {
        self.listed.load(Ordering::Relaxed)
    }

    /// Before the runtime was listed no step runs: a static pod that runs already
    /// must be known to hold its name before another one of that name starts. One
    /// with containers, first those that run, has it rather than a sandbox that showed
    /// too late.
    fn runtime_listed(&mut self, relist: &Relist) {
        let mut alive: Vec<_> = relist.pods.values().collect();
        alive.retain(|pod| pod.is_static() && pod.is_alive());
        alive.sort_by_key(|pod| (!pod.has_running_container(), pod.containers.is_empty()));
        for pod in alive {
            self.static_pods
                .request(&pod.identity.full_name(), pod.identity.uid());
        }
        self.listed.store(true, Ordering::Relaxed);
        self.request_starts();
        tracing::info!(pods = relist.pods.len(), "the runtime has been listed");
    }

    fn next_due(&self) -> Option<Instant> {
        if self.is_listed() {
            self.schedule.next()
        } else {
            None
        }
    }

    // ---- commands

    fn command(&mut self, command: Command) {
        match command {
            Command::Update {
                update,
                extras,
                reply,
            } => {
                // Who asked may be gone: the update counts all the same.
                let _ = reply.send(self.update(*update, extras));
            }
            Command::SyncKnown {
                desired,
                delivered,
                runtime,
                reply,
            } => {
                if let Some(runtime) = &runtime {
                    self.release_names_of_the_dead(runtime);
                    self.look_at_waiting_pods(runtime);
                }
                let _ = reply.send(self.sync_known(&desired, &delivered));
            }
            Command::RuntimeEvent { uid } => {
                self.wake(&uid, Requeue::SeenAtRuntime(Instant::now()))
            }
            Command::Summaries { reply } => {
                let of_each = |(uid, entry): (&String, &Entry)| (uid.clone(), entry.summary());
                let _ = reply.send(self.workers.iter().map(of_each).collect());
            }
            Command::Desired { uid, reply } => {
                let entry = self.workers.get(&uid);
                let _ = reply.send(entry.and_then(|entry| entry.worker.desired().cloned()));
            }
            Command::Active { reply } => {
                let active = self.workers.values().filter_map(Entry::active);
                let _ = reply.send(active.cloned().collect());
            }
            Command::Evict { uid, kill, reply } => drop(reply.send(self.evict(&uid, kill))),
            Command::Start { startable } => {
                self.startable = startable;
                self.request_starts();
            }
            Command::ShutsDown { reply } => drop(reply.send(self.startable.is_of_shutdown())),
        }
    }

    /// Only a pod that is active still: it may have ended since somebody chose it.
    fn evict(&mut self, uid: &str, kill: KillRequest) -> bool {
        let Some(pod) = self.workers.get(uid).and_then(Entry::active) else {
            return false;
        };
        let update = Update {
            kind: UpdateKind::Kill,
            subject: Subject::RuntimeOnly(pod.identity().clone()),
            kill: Some(kill),
        };
        self.update(update, UpdateExtras::default()).is_ok()
    }

    fn update(
        &mut self,
        update: Update,
        extras: UpdateExtras,
    ) -> Result<v1::WorkerPhase, PoolError> {
        let now = self.context.clock.now();
        let uid = update.subject.identity().uid().to_owned();
        let is_kill = update.kind == UpdateKind::Kill;
        if !room::is_there_for(&update, &self.workers) {
            return Err(PoolError::TooLarge);
        }
        let Some(entry) = self.workers.get_mut(&uid) else {
            return self.first_update(update, extras);
        };
        let has_news = entry.take(extras, is_kill);
        let requeue = match update.kind {
            // The running step does not know of it.
            UpdateKind::Sync if has_news => Requeue::Changed,
            UpdateKind::Sync => Requeue::SeenAtRuntime(Instant::now()),
            UpdateKind::Create | UpdateKind::Update | UpdateKind::Kill => Requeue::Changed,
        };
        let name_of = |worker: &Worker| worker.identity().full_name();
        let waited_for = entry.worker.is_waiting().then(|| name_of(&entry.worker));
        let decision = entry.worker.update(now, update);
        let former = waited_for.filter(|name| *name != name_of(&entry.worker));
        tracing::trace!(uid, ?decision, "update");
        match decision {
            Decision::Ignored(refusal) => return Err(PoolError::Refused(refusal)),
            Decision::RestartNoted | Decision::Waits => {}
            Decision::Wake => self.wake(&uid, requeue),
            Decision::Interrupt => self.interrupt(&uid),
        }
        // It waits for its new name, which may be free.
        if let Some(former) = former {
            self.release_name(&former, &uid);
            self.request_start(&uid);
        }
        self.changed(&uid);
        Ok(self.phase(&uid))
    }

    fn first_update(
        &mut self,
        update: Update,
        extras: UpdateExtras,
    ) -> Result<v1::WorkerPhase, PoolError> {
        if self.workers.len() >= MAX_PODS {
            return Err(PoolError::Full(self.workers.len()));
        }
        let identity = update.subject.identity().clone();
        let uid = identity.uid().to_owned();
        let now = self.context.clock.now();
        let record = self.context.records.load(&identity);
        let worker = match &record.termination {
            // It was stopped before anybody told this process of the pod.
            Some(termination) if termination.cause.is_known_by_record_alone() => {
                let mut worker = Worker::resume(identity.clone(), termination.clone());
                worker.update(now, update);
                worker
            }
            _ => Worker::new(now, update).map_err(PoolError::Refused)?,
        };
        self.workers
            .insert(uid.clone(), Entry::new(worker, record, extras));
        self.request_start(&uid);
        self.changed(&uid);
        self.due_now(&uid);
        Ok(self.phase(&uid))
    }

    /// Starts the workers that wait, where nothing is in their way any more.
    fn request_starts(&mut self) {
        let waiting = self.workers.iter().filter(|it| it.1.worker.is_waiting());
        let waiting: Vec<String> = waiting.map(|(uid, _)| uid.clone()).collect();
        for uid in waiting {
            self.request_start(&uid);
            self.changed(&uid);
            self.due_now(&uid);
        }
    }

    /// Starts a waiting worker unless a static pod of its full name or a shutdown is in the way.
    fn request_start(&mut self, uid: &str) {
        let start = self.startable.of(uid);
        if start == Start::Later || !self.is_listed() {
            return;
        }
        let Some(entry) = self.workers.get_mut(uid) else {
            return;
        };
        let WorkerState::Waiting { pod } = entry.worker.state() else {
            return;
        };
        let may_start =
            !pod.is_static() || self.static_pods.request(&pod.identity().full_name(), uid);
        if may_start {
            entry.worker.start();
            if start == Start::Never {
                self.reject(uid);
            }
            self.changed(uid);
            self.due_now(uid);
        }
    }

    /// Ends a pod that came while the node shuts down, before anything of it is made.
    fn reject(&mut self, uid: &str) {
        if self.evict(uid, rejection())
            && let Some(entry) = self.workers.get(uid)
        {
            tell_rejection(&self.context.events, entry.worker.identity());
        }
    }

    fn sync_known(
        &mut self,
        desired: &HashSet<String>,
        delivered: &HashSet<PodSource>,
    ) -> Vec<v1::WorkerState> {
        let entries = self.workers.iter();
        let forgotten = entries.filter(|(_, it)| is_forgotten(&it.worker, desired, delivered));
        let forgotten: Vec<String> = forgotten.map(|(uid, _)| uid.clone()).collect();
        for uid in forgotten {
            if let Some(entry) = self.workers.get(&uid) {
                let (identity, record) = (entry.worker.identity(), entry.record_if_begun_anew());
                self.context.records.save_later(identity, &record);
                match entry.worker.restart_requested() {
                    true => self.context.removed_pods.remove(&uid),
                    false => self.context.removed_pods.insert(&uid),
                }
            }
            self.forget(&uid);
        }
        self.workers.values().map(Entry::state).collect()
    }

    /// A static pod that an earlier process started may have ended without a worker;
    /// its name is free then.
    fn release_names_of_the_dead(&mut self, runtime: &Relist) {
        let holders = self.static_pods.holders();
        let dead: Vec<(String, String)> = holders
            .filter(|(_, uid)| !self.workers.contains_key(*uid))
            .filter(|(_, uid)| !runtime.pods.get(*uid).is_some_and(|pod| pod.is_alive()))
            .map(|(name, uid)| (name.to_owned(), uid.to_owned()))
            .collect();
        for (full_name, uid) in dead {
            self.release_name(&full_name, &uid);
        }
    }

    /// What an earlier process had begun of a pod may show after another one got its
    /// name.
    fn look_at_waiting_pods(&mut self, runtime: &Relist) {
        let alive = runtime.pods.iter().filter(|(_, pod)| pod.is_alive());
        for (uid, _) in alive {
            let entry = self.workers.get(uid);
            if entry.is_some_and(|entry| entry.worker.is_waiting()) {
                self.wake(uid, Requeue::Happened);
            }
        }
    }

    // ---- scheduling

    fn due_now(&mut self, uid: &str) {
        self.schedule.at_latest(uid, Instant::now());
    }

    /// Runs a step as soon as none runs.
    fn wake(&mut self, uid: &str, requeue: Requeue) {
        match self.workers.get_mut(uid) {
            Some(Entry {
                step: Some(step), ..
            }) => step.requeue = step.requeue.max(requeue),
            Some(_) => self.due_now(uid),
            None => {}
        }
    }

    /// Ends the running step and runs another.
    fn interrupt(&mut self, uid: &str) {
        self.wake(uid, Requeue::Changed);
        if let Some(step) = self.workers.get(uid).and_then(|entry| entry.step.as_ref()) {
            step.abort.abort();
        }
    }

    fn start_due_steps(&mut self) {
        if !self.is_listed() {
            return;
        }
        while let Some(uid) = self.schedule.take_due(Instant::now()) {
            self.start_step(&uid);
        }
    }

    fn start_step(&mut self, uid: &str) {
        let Some(entry) = self.workers.get_mut(uid) else {
            return;
        };
        if let Some(step) = &mut entry.step {
            step.requeue = step.requeue.max(Requeue::Happened);
            return;
        }
        // A step of a pod that waits stops what an earlier process may have begun of it.
        if entry.worker.is_waiting() && self.startable.of(uid) == Start::Later {
            return;
        }
        let Some(job) = entry.job() else {
            return;
        };
        let context = Arc::clone(&self.context);
        let memory = Arc::clone(&entry.memory);
        let (locks, key) = (self.locks.clone(), uid.to_owned());
        let abort = self.running.spawn(async move {
            let _lock = locks.lock(&key).await;
            let mut memory = memory.lock().await;
            let outcome = steps::run(&context, &job, &mut memory).await;
            (outcome, memory.looked_at())
        });
        self.tasks.insert(abort.id(), uid.to_owned());
        entry.step = Some(RunningStep {
            abort,
            requeue: Requeue::No,
        });
    }

    // ---- results

    fn step_ended(&mut self, result: Result<(Id, StepEnd), JoinError>) {
        let (id, (outcome, looked_at)) = how_it_ended(result);
        let Some(uid) = self.tasks.remove(&id) else {
            return;
        };
        let Some(entry) = self.workers.get_mut(&uid) else {
            return;
        };
        let mut requeue = entry.step_ended();
        if let Some(Outcome::Settled { .. }) = outcome {
            requeue = requeue.after_look(looked_at);
        }
        match (requeue, outcome) {
            (Requeue::Happened | Requeue::SeenAtRuntime(_), Some(Outcome::Failed(error))) => {
                let retry = error.retry.or(Retry::SOON);
                self.retry(&uid, &StepError { retry, ..error });
            }
            (requeue, outcome) => {
                if requeue != Requeue::No || outcome.is_none() {
                    self.due_now(&uid);
                }
                if let Some(outcome) = outcome {
                    self.apply(&uid, outcome);
                }
            }
        }
    }

    fn apply(&mut self, uid: &str, outcome: Outcome) {
        let now = self.context.clock.now();
        let Some(entry) = self.workers.get_mut(uid) else {
            return;
        };
        let transition = match outcome {
            Outcome::Settled { wake_at } => {
                if let Some(at) = wake_at {
                    let wait = until(at, now);
                    self.schedule.at_latest(uid, Instant::now() + wait);
                }
                return;
            }
            Outcome::Failed(error) => {
                self.retry(uid, &error);
                return;
            }
            Outcome::Ended(cause) => entry.worker.sync_ended(now, cause),
            Outcome::Stopped => entry.worker.terminating_done(),
            Outcome::CleanedUp => entry.worker.terminated_done(),
        };
        match transition {
            Transition::None => {}
            Transition::Advanced => {
                let finished = entry.worker.is_finished();
                let identity = entry.worker.identity().clone();
                self.changed(uid);
                if finished {
                    self.startable.has_ended(uid);
                    self.release_name(&identity.full_name(), uid);
                } else {
                    self.due_now(uid);
                }
            }
            Transition::Forget => self.forget(uid),
        }
    }

    fn retry(&mut self, uid: &str, error: &StepError) {
        tracing::debug!(uid, error = error.message, retry = ?error.retry, "a step failed");
        let Retry { pause, at } = error.retry;
        if let Some(at) = at {
            let wait = until(at, self.context.clock.now());
            self.schedule.at_latest(uid, Instant::now() + wait);
        }
        if let Some(pause) = pause {
            let wait = backoff::lengthened(pause.length(), JITTER, &mut self.random);
            self.schedule.at_latest(uid, Instant::now() + wait);
        }
    }

    fn forget(&mut self, uid: &str) {
        let Some(entry) = self.workers.remove(uid) else {
            return;
        };
        if let Some(step) = entry.step {
            step.abort.abort();
        }
        self.schedule.cancel(uid);
        self.context.publisher.remove(uid);
        self.context.policy.release(uid);
        self.context.images.forget_pod(uid);
        self.context.turns.forget_pod(uid);
        self.release_name(&entry.worker.identity().full_name(), uid);
    }

    fn release_name(&mut self, full_name: &str, uid: &str) {
        let workers = &self.workers;
        let is_waiting = |uid: &str| workers.get(uid).is_some_and(|it| it.worker.is_waiting());
        let next = self.static_pods.release(full_name, uid, is_waiting);
        if let Some(next) = next {
            self.request_start(&next);
        }
    }

    // ---- telling

    fn phase(&self, uid: &str) -> v1::WorkerPhase {
        let entry = self.workers.get(uid);
        entry.map_or(v1::WorkerPhase::Unspecified, |it| it.worker.phase())
    }

    fn changed(&self, uid: &str) {
        let Some(entry) = self.workers.get(uid) else {
            return;
        };
        // Until the runtime is listed, and logind was asked, everybody waits, and that says
        // nothing of the pods.
        let all_wait = self.startable.of(uid) == Start::Later || !self.is_listed();
        if entry.worker.is_waiting() && all_wait {
            return;
        }
        self.context.publisher.worker(entry.view());
    }
}
