//! Graceful shutdown of the node, as a kubelet does it (KEP-2000, KEP-2712): logind is made
//! to wait, and when it tells of a shutdown, pods are ended group by group.
//!
//! The lock that makes logind wait is held by whoever supervises this process too, so a
//! restart of it lets no shutdown through; the next one goes on where this one was, with the
//! time that is left. Who is ended when is decided in [`plan`]; what became of a pod is in
//! its record, which counts until the node boots again.

mod delay;
mod plan;
mod seen;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bulkhead_api::v1::WorkerPhase;
use clock::WallClock;
use node_config::{LOGIN_MANAGER, NodeConfig, ShutdownGroup};
use pod::metadata::system_priority;
use pod::node_shutdown::{TERMINATED, TERMINATED_MESSAGE};
use pod_lifecycle::DesiredPod;
use process::{Context, Lifecycle};
use state_file::{SAVE_MAY_TAKE, StateFile};
use system_bus::{Error, Logind, ShutdownSignals};
use tokio::time::Instant;
use topology::Process;

use crate::events::Events;
use crate::pool::{PoolHandle, Startable};
use crate::relist::Relister;
use crate::servers::Shared;
use crate::shutdown_kills::{rejection, tell_rejection, termination};
use plan::Plan;
use seen::{Active, Look, Seen};

/// The name under which the lock is held for this process.
const LOCK: &str = "shutdown";

/// The file in the state directory, and the version of its content.
const BEGUN_FILE: &str = "shutdown";
const BEGUN_VERSION: u32 = 2;

/// Wait before logind is asked again that could not be.
const RETRY: Duration = Duration::from_secs(1);

/// The time that the runtime has to tell what runs: at least, when that was never known, also
/// where a process comes so late that all pods have had their time; and at most after that,
/// since the turns of groups come meanwhile.
const LIST_MAY_TAKE: Duration = Duration::from_secs(2);

/// How often logind is asked whether the shutdown goes on: one that was restarted knows of
/// none, and tells of no end of it.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// So often it is looked at whether pods have ended, and for new ones.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// For people, as long as this process runs.
const CANCELLED: &str = "a shutdown of the node was cancelled: its pods have ended";

/// Why nobody waits for a shutdown any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// It was cancelled.
    Cancelled,
    /// Nothing is heard from logind.
    BusLost,
}

/// What people are told in `bulkhead status`. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct StatusLine(Arc<Mutex<String>>);

impl StatusLine {
    pub(crate) fn status_line(&self) -> String {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Logs it where it is another one than before.
    fn set(&self, line: &str) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != line {
            tracing::info!(now = line, "shutdown of the node");
            line.clone_into(&mut told);
        }
    }
}

/// Delays a shutdown of the node until its pods have ended.
pub(crate) struct NodeShutdown {
    groups: Vec<ShutdownGroup>,
    login: Arc<dyn Logind>,
    pool: PoolHandle,
    relister: Relister,
    events: Events,
    clock: WallClock,
    lifecycle: Lifecycle,
    /// When the shutdown began that is under way.
    begun: StateFile,
    /// Held by who works on that file.
    note: Arc<tokio::sync::Mutex<()>>,
    line: StatusLine,
}

impl NodeShutdown {
    /// As the node is configured.
    pub(crate) fn new(
        config: &NodeConfig,
        shared: &Shared,
        context: &Context,
        login: Arc<dyn Logind>,
    ) -> NodeShutdown {
        let state = config.directories.state(Process::PodWorkerPool);
        NodeShutdown {
            groups: config.shutdown.clone(),
            login,
            pool: shared.pool.clone(),
            relister: shared.relister.clone(),
            events: shared.events.clone(),
            clock: context.clock.clone(),
            lifecycle: context.lifecycle.clone(),
            begun: StateFile::new(state.join(BEGUN_FILE), BEGUN_VERSION),
            note: Arc::default(),
            line: StatusLine::default(),
        }
    }

    /// What people are told of it.
    pub(crate) fn line(&self) -> StatusLine {
        self.line.clone()
    }

    /// Has no pod start until logind has told whether the node shuts down: one that came after
    /// that had begun would run for a moment, or count as one that was there before.
    pub(crate) async fn hold_starts(&self) {
        if !self.groups.is_empty() {
            // A pool that stops starts none.
            let _ = self.pool.set_startable(Startable::Unknown).await;
        }
    }

    /// For ever. A node that is not configured to wait has nothing to do.
    pub(crate) async fn run(self) -> Infallible {
        if self.groups.is_empty() {
            // An earlier process may have been configured to wait.
            self.lifecycle.let_go(LOCK);
            return std::future::pending().await;
        }
        let mut was_cancelled = false;
        loop {
            match self.guard(was_cancelled).await {
                Ok(Over::Cancelled) => was_cancelled = true,
                Ok(Over::BusLost) => tokio::time::sleep(LOOK_AGAIN).await,
                Err(error) => {
                    self.let_all_start().await;
                    let error = telemetry::chain(&error);
                    let line =
                        format!("degraded: a shutdown of the node does not wait for pods: {error}");
                    self.line.set(&line);
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Waits for a shutdown with the lock, and carries it out. `was_cancelled` is for people:
    /// whether an earlier one was, whose pods stay ended.
    async fn guard(&self, was_cancelled: bool) -> Result<Over, Error> {
        let mut signals = self.login.signals().await?;
        // One that is under way was delayed by a process before this one.
        let lock = match self.login.is_shutting_down().await? {
            true => None,
            false => {
                self.let_all_start().await;
                self.forget_begun().await;
                let directory = Path::new(LOGIN_MANAGER);
                let limit = delay::raise(&*self.login, directory, self.total()).await?;
                let why = "pods are ended gracefully";
                let lock = self.login.delay_shutdown("bulkhead", why).await?;
                // systemd would keep that of an earlier process beside it.
                self.lifecycle.let_go(LOCK);
                self.lifecycle.keep_lock(LOCK, lock.as_fd());
                let cancelled = was_cancelled.then(|| CANCELLED.to_owned());
                let lines: Vec<String> = limit.into_iter().chain(cancelled).collect();
                self.line.set(&lines.join("; "));
                Some(lock)
            }
        };
        while !self.login.is_shutting_down().await? {
            if !signals.next().await {
                return Ok(Over::BusLost);
            }
        }
        let mut seen = Seen::default();
        self.end_pods(&mut seen).await;
        drop(lock);
        self.lifecycle.let_go(LOCK);
        self.line
            .set("the node shuts down: all pods have ended, or had their time");
        self.refuse_new_pods(&mut seen, &mut signals).await;
        Ok(Over::Cancelled)
    }

    async fn let_all_start(&self) {
        // A pool that stops starts none.
        let _ = self.pool.set_startable(Startable::All).await;
    }

    /// The time that all groups have together.
    fn total(&self) -> Duration {
        self.groups.iter().map(|group| group.grace).sum()
    }

    /// Ends pods until the node may go down.
    async fn end_pods(&self, seen: &mut Seen) {
        let begun = self.note_begun().await;
        loop {
            let elapsed = self.clock.since_boot().saturating_sub(begun);
            let Some(plan) = self.look(elapsed, seen).await else {
                // This process stops. The lock is kept for the next run, which goes on.
                return std::future::pending().await;
            };
            let Some((group, left)) = plan.waits_for else {
                return;
            };
            self.line.set(&format!(
                "the node shuts down: group {} of {}, {left} pods have not ended",
                group + 1,
                self.groups.len()
            ));
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Nothing starts any more, until the shutdown is cancelled.
    async fn refuse_new_pods(&self, seen: &mut Seen, signals: &mut ShutdownSignals) {
        let mut asked_at = Instant::now();
        loop {
            self.look(self.total(), seen).await;
            let goes_on = match tokio::time::timeout(LOOK_AGAIN, signals.next()).await {
                Ok(true) => self.login.is_shutting_down().await.ok(),
                Ok(false) => None,
                Err(_elapsed) if asked_at.elapsed() < ASK_AGAIN => Some(true),
                Err(_elapsed) => {
                    asked_at = Instant::now();
                    // One that is down goes down with the node.
                    Some(self.login.is_shutting_down().await.unwrap_or(true))
                }
            };
            let goes_on = match goes_on {
                Some(goes_on) => goes_on,
                None => {
                    // The bus goes down with the node, or is there again.
                    tokio::time::sleep(LOOK_AGAIN).await;
                    self.goes_on_at_new_bus(signals).await.unwrap_or(true)
                }
            };
            if !goes_on {
                self.let_all_start().await;
                return;
            }
        }
    }

    /// Whether the shutdown goes on, of which an earlier connection tells nothing any more.
    async fn goes_on_at_new_bus(&self, signals: &mut ShutdownSignals) -> Result<bool, Error> {
        let new = self.login.signals().await?;
        let goes_on = self.login.is_shutting_down().await?;
        *signals = new;
        Ok(goes_on)
    }

    /// Looks at all pods, and ends those whose turn it is. Nothing when the pool stops.
    async fn look(&self, elapsed: Duration, seen: &mut Seen) -> Option<Plan> {
        let asked_at = Instant::now();
        let is_first = seen.first().is_none();
        let left = self.total().saturating_sub(elapsed);
        let alive = match is_first {
            true => self.alive(left.max(LIST_MAY_TAKE)).await,
            false => self.alive(left.min(LIST_MAY_TAKE)).await,
        };
        let elapsed = elapsed + asked_at.elapsed();
        let active = self.pool.active().await.ok()?;
        let workers = self.pool.summaries().await.ok()?.into_iter();
        let (living, rejected) = seen.look(&Look {
            active: active
                .iter()
                .map(|pod| Active {
                    uid: pod.identity().uid().to_owned(),
                    priority: priority(pod),
                    grace: pod.spec_grace(),
                })
                .collect(),
            workers: workers
                .map(|(uid, worker)| (uid, worker.phase == WorkerPhase::Finished))
                .collect(),
            alive,
        });
        if is_first && let Some(first) = seen.first() {
            let only = Startable::Only(first.clone());
            self.pool.set_startable(only).await.ok()?;
        }
        let plan = plan::plan(elapsed, &self.groups, &living);
        for pod in &active {
            let uid = pod.identity().uid();
            let turn = plan.ends.iter().find(|(end, _)| end == uid);
            if rejected.contains(uid) {
                // It came just before the pool was told to start none.
                if matches!(self.pool.evict(uid, rejection()).await, Ok(true)) {
                    tell_rejection(&self.events, pod.identity());
                }
            } else if let Some((_, grace)) = turn {
                self.end(pod, *grace).await;
            }
        }
        Some(plan)
    }

    /// The pods that run in the runtime. One that does not answer is asked again within this
    /// time: without it nobody knows what runs.
    async fn alive(&self, within: Duration) -> Option<BTreeSet<String>> {
        let answered = tokio::time::timeout(within, async {
            let mut is_told = false;
            loop {
                match self.relister.all().await {
                    Ok(relist) => return relist,
                    Err(_) if is_told => {}
                    Err(error) => {
                        is_told = true;
                        tracing::warn!(
                            error = telemetry::chain(&error),
                            "the runtime does not tell what runs while the node shuts down"
                        );
                    }
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        });
        let relist = answered.await.ok()?;
        let alive = relist.pods.iter().filter(|(_, pod)| pod.is_alive());
        Some(alive.map(|(uid, _)| uid.clone()).collect())
    }

    async fn end(&self, pod: &DesiredPod, grace: Duration) {
        let kill = termination(grace);
        let identity = pod.identity();
        if matches!(self.pool.evict(identity.uid(), kill).await, Ok(true)) {
            tracing::info!(pod = %identity, ?grace, "the pod ends with the node");
            self.events
                .warning(identity, "", TERMINATED, TERMINATED_MESSAGE);
        }
    }

    /// When the shutdown began, as time since the node's boot: an earlier process may have
    /// noted it.
    async fn note_begun(&self) -> Duration {
        let now = self.clock.since_boot();
        let noting = self.with_note(move |file| match file.load() {
            Ok(Some(begun)) if begun <= now => Ok(begun),
            _ => file.save(&now).map(|()| now),
        });
        match noting.await {
            Some(Ok(begun)) => begun,
            Some(Err(error)) => {
                let error = telemetry::chain(&error);
                tracing::warn!(error, "a restart would begin the shutdown of the node anew");
                now
            }
            None => now,
        }
    }

    async fn forget_begun(&self) {
        if let Some(Err(error)) = self.with_note(StateFile::remove).await {
            let error = telemetry::chain(&error);
            tracing::warn!(
                error,
                "the begin of a shutdown that is over cannot be forgotten"
            );
        }
    }

    /// What comes of the file in which the begin of a shutdown is noted; `None` when the disk
    /// hangs, for which no shutdown waits.
    async fn with_note<T: Send + 'static>(
        &self,
        work: impl FnOnce(&StateFile) -> T + Send + 'static,
    ) -> Option<T> {
        let (file, note) = (self.begun.clone(), Arc::clone(&self.note));
        // In its turn even where nobody waits for it any more: what is noted late is
        // forgotten after that.
        let working = tokio::spawn(async move {
            let _turn = note.lock().await;
            blocking::spawn(move || work(&file)).await
        });
        match tokio::time::timeout(SAVE_MAY_TAKE, working).await {
            Ok(done) => done.ok()?.ok(),
            Err(_elapsed) => {
                tracing::warn!(
                    "the disk of the state directory hangs: a restart would begin a shutdown of the node anew"
                );
                None
            }
        }
    }
}

/// A class of the system counts for a static pod whose manifest names no number.
fn priority(pod: &DesiredPod) -> i32 {
    let spec = pod.decode().ok().and_then(|pod| pod.spec);
    let spec = spec.unwrap_or_default();
    let of_class = || system_priority(spec.priority_class_name.as_deref());
    spec.priority.or_else(of_class).unwrap_or(0)
}
