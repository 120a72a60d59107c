//! The process: hears which containers there are, makes the tries that are due
//! and tells what they add up to. Decisions live in `instance`, `worker`,
//! `agenda` and `ledger`.
//!
//! Verdicts are told once they are saved, so that a restart takes back nothing that
//! somebody knows. A disk that refuses or hangs holds them up for a bounded time only.
//!
//! All tries run inside the one task of this shell, so that they end with it.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::probe_targets_client::ProbeTargetsClient;
use bulkhead_api::v1::prober_server::ProberServer;
use bulkhead_api::v1::watch_probe_targets_response::Message;
use clock::WallClock;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ipc::limits::MAX_PROBE_TARGET_MESSAGE_BYTES;
use ipc::{Channel, SubscriptionEvent};
use node_config::NodeConfig;
use process::{Context, Lifecycle};
use rand::Rng;
use rand::rngs::SmallRng;
use state_file::{Saver, Saving, StateFileError};
use tokio::time::{Instant, MissedTickBehavior};
use tonic::service::Routes;
use topology::Process;

use crate::agenda::{Agenda, Key, Lane, Slots};
use crate::instance::{InstanceProbes, Situation};
use crate::ledger::{Ledger, Saved, SavedInstance};
use crate::network::ProbeNetwork;
use crate::probe::{Job, Prober};
use crate::server::Publication;
use crate::spec::{Action, MAX_SPEC_BYTES};
use crate::store::Store;
use crate::wire::Target;
use crate::worker::{Attempt, Outcome};
use crate::{Kind, Moment, hooks, wire};

/// Watchdog, expiry and the status line are looked after this often.
const TICK: Duration = Duration::from_secs(1);

/// Least time between two writes of the state file: verdicts that come close
/// together, as when many pods start, are written together.
const SAVE_GAP: Duration = Duration::from_millis(50);

/// A try that begins so late because others took its place is logged.
const LATE: Duration = Duration::from_secs(1);

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket failed.
    #[error("cannot go on serving")]
    Serve(#[from] ipc::ServeError),
    /// TLS cannot be set up.
    #[error("cannot set up TLS for HTTPS probes")]
    Tls(#[source] tokio_rustls::rustls::Error),
}

/// What the prober opens before it is sealed.
#[derive(Debug)]
pub struct Opened {
    store: Store,
    /// The verdicts that were saved before this process started.
    saved: Saved,
}

/// Opens the state file and reads it.
#[must_use]
pub fn open(config: &NodeConfig) -> Opened {
    let store = Store::open(&config.directories.state(Process::Prober));
    let saved = store.load();
    Opened { store, saved }
}

/// Serves until shutdown. Probes go through `network`.
///
/// # Errors
/// When the listening socket fails.
pub async fn serve(
    context: Context,
    Opened { store, saved }: Opened,
    network: Arc<dyn ProbeNetwork>,
) -> Result<(), Error> {
    serve_saving(context, network, saved, move |all| store.save(all)).await
}

/// Goes on from what was saved, and has `save` save.
async fn serve_saving(
    context: Context,
    network: Arc<dyn ProbeNetwork>,
    saved: Saved,
    save: impl Fn(&Saved) -> Result<(), StateFileError> + Send + Sync + 'static,
) -> Result<(), Error> {
    let random = context.random(0);
    let pool = context.network.channel(Process::PodWorkerPool);
    let prober = Prober::new(network, pool.clone()).map_err(Error::Tls)?;
    let (saver, writer) = Saver::new("verdicts", move |(): &(), all: &Arc<Saved>| save(all));
    let publication = Publication::new(context.boot_id.clone());
    let prober = Arc::new(prober);
    let mut shell = Shell {
        prober: Arc::clone(&prober),
        publication: publication.clone(),
        ledger: Ledger::restore(saved),
        saver,
        clock: context.clock,
        lifecycle: context.lifecycle.clone(),
        started: Instant::now(),
        random,
        instances: BTreeMap::new(),
        agenda: Agenda::default(),
        slots: Slots::default(),
        tries: FuturesUnordered::new(),
        attempts: 0,
        snapshot: None,
        pool_is_complete: false,
        saves: Saves::default(),
        status: String::new(),
    };
    // What was known before a restart is told before anybody can ask.
    shell.publication.publish(&shell.ledger.take_snapshot());
    let serving = ipc::serve(
        context.process,
        context.identities,
        context.listener,
        Routes::new(ProberServer::new(publication)),
        context.lifecycle.shutdown(),
    );
    context.lifecycle.ready();
    tokio::select! {
        result = serving => Ok(result?),
        never = shell.run(pool.clone()) => match never {},
        never = hooks::run(prober, pool) => match never {},
        never = writer.run() => match never {},
    }
}

/// A container instance that is probed.
struct ProbedInstance {
    target: Target,
    probes: InstanceProbes,
    /// Probes whose last try could not be made.
    erring: BTreeSet<Kind>,
}

/// A try that ended.
struct Done {
    key: Key,
    attempt: Attempt,
    lane: Lane,
    pod_uid: String,
    outcome: Outcome,
}

type Try = Pin<Box<dyn Future<Output = Done> + Send>>;

/// What is being saved, and when more is.
#[derive(Default)]
struct Saves {
    /// When changes are handed to the saver.
    at: Option<Instant>,
    last: Option<Instant>,
    /// What is told once it is in its file.
    under_way: Option<(Saving, Arc<Saved>)>,
}

impl Saves {
    /// When more is to be saved; not before what is under way has been told.
    fn due(&self) -> Option<Instant> {
        self.at.filter(|_| self.under_way.is_none())
    }

    /// Waits until what is being saved may be told; for ever if nothing is.
    /// Cancel-safe: it stays under way until it is returned.
    async fn finished(&mut self) -> Arc<Saved> {
        let Some((saving, _)) = &mut self.under_way else {
            return std::future::pending().await;
        };
        // A disk that refuses or hangs keeps no verdict from being told: the saver says
        // so, and goes on trying.
        let _ = saving.finished().await;
        let told = self.under_way.take().map(|(_, all)| all);
        told.unwrap_or_default()
    }
}

struct Shell {
    prober: Arc<Prober>,
    publication: Publication,
    ledger: Ledger,
    saver: Saver<(), Arc<Saved>>,
    clock: WallClock,
    lifecycle: Lifecycle,
    started: Instant,
    random: SmallRng,
    instances: BTreeMap<String, ProbedInstance>,
    agenda: Agenda,
    slots: Slots,
    tries: FuturesUnordered<Try>,
    attempts: u64,
    /// Containers of the snapshot that is being received.
    snapshot: Option<BTreeSet<String>>,
    /// Whether this pool has looked at every pod that there is to be.
    pool_is_complete: bool,
    saves: Saves,
    status: String,
}

impl Shell {
    async fn run(mut self, pool: Channel) -> Infallible {
        let pool =
            ProbeTargetsClient::new(pool).max_decoding_message_size(MAX_PROBE_TARGET_MESSAGE_BYTES);
        let mut targets = ipc::subscribe("probe targets", move || {
            let mut pool = pool.clone();
            async move {
                let request = v1::WatchProbeTargetsRequest {};
                pool.watch_probe_targets(request).await
            }
        });
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.begin_due();
            self.save_when_due();
            let next_try = self.agenda.next_after(self.now());
            let next_try = next_try.map(|at| self.started + at);
            let wake = [next_try, self.saves.due()].into_iter().flatten().min();
            tokio::select! {
                // In this order, so that no flood of targets starves the rest.
                biased;
                // Cancel-safe: a tick that is not taken stays due.
                _ = tick.tick() => self.tick(),
                // Cancel-safe: a try stays in the set until it is returned.
                Some(done) = self.tries.next(), if !self.tries.is_empty() => self.finish(done),
                // Cancel-safe, see there.
                all = self.saves.finished() => self.publication.publish(&all),
                // Cancel-safe: the deadline is absolute.
                () = clock::sleep_until(wake) => {}
                // Cancel-safe: a subscription only receives from a channel.
                event = targets.next() => self.targets(event),
            }
        }
    }

    fn now(&self) -> Moment {
        self.started.elapsed()
    }

    fn tick(&mut self) {
        self.lifecycle.beat();
        if self.pool_is_complete {
            for container_id in self.ledger.expire(self.now()) {
                self.remove(&container_id);
            }
        }
        self.changed();
        let probes: usize = self.instances.values().map(|i| i.target.specs.len()).sum();
        let count = self.instances.len();
        let probing = || format!("{probes} probes of {count} containers");
        let status = self.saver.trouble().unwrap_or_else(probing);
        if status != self.status {
            self.lifecycle.set_status(&status);
            self.status = status;
        }
    }

    /// Begins every try that is due and finds a place.
    fn begin_due(&mut self) {
        // A try without a place stays due and is looked at again after each
        // event, so looking must be cheap.
        let due = self.agenda.due(self.now());
        let possible = due.filter(|(container_id, kind)| {
            let instance = self.instances.get(container_id);
            instance.is_none_or(|instance| {
                let owner = &instance.target.owner;
                self.slots.is_free(instance.lane(*kind), &owner.pod_uid)
            })
        });
        for key in possible.cloned().collect::<Vec<Key>>() {
            self.begin(key);
        }
    }

    /// Begins a try, if there is a place; else it stays due.
    fn begin(&mut self, key: Key) {
        let now = self.now();
        let (container_id, kind) = &key;
        let instance = self.instances.get_mut(container_id);
        let probed = instance.and_then(|instance| {
            let spec = instance.target.specs.get(kind).map(Arc::clone)?;
            Some((instance, spec))
        });
        let Some((instance, spec)) = probed else {
            self.agenda.plan(key, None);
            return;
        };
        let lane = instance.lane(*kind);
        let owner = &instance.target.owner;
        if !self.slots.take(lane, &owner.pod_uid) {
            return;
        }
        self.attempts += 1;
        let attempt = Attempt(self.attempts);
        let due_at = instance.probes.due_at(*kind);
        if !instance.probes.begin(*kind, attempt, now) {
            self.slots.give_back(lane, &owner.pod_uid);
            self.agenda.plan(key, due_at);
            return;
        }
        let late = due_at.map_or(Duration::ZERO, |at| now.saturating_sub(at));
        if late >= LATE {
            tracing::info!(
                container = container_id,
                ?kind,
                ?late,
                "a probe had to wait"
            );
        }
        let job = Job {
            kind: *kind,
            pod_uid: owner.pod_uid.clone(),
            container_name: owner.container_name.clone(),
            container_id: container_id.clone(),
            pod_ip: instance.target.pod_ip.clone(),
            spec,
        };
        self.agenda.plan(key.clone(), None);
        let prober = Arc::clone(&self.prober);
        self.tries.push(Box::pin(async move {
            let outcome = prober.attempt(&job).await;
            Done {
                key,
                attempt,
                lane,
                pod_uid: job.pod_uid,
                outcome,
            }
        }));
    }

    fn finish(&mut self, done: Done) {
        self.slots.give_back(done.lane, &done.pod_uid);
        let (container_id, kind) = done.key;
        let now = self.now();
        let Some(instance) = self.instances.get_mut(&container_id) else {
            return;
        };
        instance.log(kind, &done.outcome);
        let owner = &instance.target.owner;
        if let Some(attempt) = wire::attempt(owner, &done.outcome, self.clock.now()) {
            self.publication.tell(&attempt);
        }
        if instance
            .probes
            .finish(kind, done.attempt, done.outcome, now)
        {
            let verdict = instance.probes.verdicts().find(|(other, _)| *other == kind);
            if let Some((_, verdict)) = verdict {
                let (result, message) = (verdict.result, &verdict.message);
                let pod = &instance.target.owner.pod_uid;
                tracing::info!(
                    pod,
                    container = container_id,
                    ?kind,
                    ?result,
                    message,
                    "verdict"
                );
            }
            self.record(&container_id);
        }
        self.plan(&container_id);
    }

    /// Plans all tries of an instance anew.
    fn plan(&mut self, container_id: &str) {
        if let Some(instance) = self.instances.get(container_id) {
            for (kind, at) in instance.probes.due() {
                self.agenda.plan((container_id.to_owned(), kind), at);
            }
        }
    }

    /// Enters what is known of an instance; returns false when there are too many.
    fn record(&mut self, container_id: &str) -> bool {
        let Some(instance) = self.instances.get(container_id) else {
            return true;
        };
        let verdicts = instance.probes.verdicts();
        let saved = SavedInstance {
            owner: instance.target.owner.clone(),
            verdicts: verdicts.map(|(kind, v)| (kind, v.clone())).collect(),
        };
        let recorded = self.ledger.record(container_id, saved);
        self.changed();
        if let Ok(Some(forgotten)) = &recorded {
            self.remove(forgotten);
        }
        recorded.is_ok()
    }

    fn targets(&mut self, event: SubscriptionEvent<v1::WatchProbeTargetsResponse>) {
        let message = match event {
            SubscriptionEvent::Message(response) => response.message,
            // Until the next snapshot what is known stays valid.
            SubscriptionEvent::Connected | SubscriptionEvent::Lost { .. } => {
                self.snapshot = None;
                self.pool_is_complete = false;
                return;
            }
        };
        match message {
            Some(Message::SnapshotBegin(_)) => {
                self.snapshot = Some(BTreeSet::new());
            }
            Some(Message::Target(target)) => match wire::target(target) {
                Ok(target) => {
                    if let Some(snapshot) = &mut self.snapshot {
                        snapshot.insert(target.container_id.clone());
                    }
                    self.upsert(target);
                }
                Err(error) => tracing::warn!(error, "left out a probe target"),
            },
            Some(Message::SnapshotEnd(_)) => {
                let named = self.snapshot.take().unwrap_or_default();
                for container_id in self.ledger.snapshot_complete(&named, self.now()) {
                    self.pause(&container_id);
                }
            }
            Some(Message::Complete(_)) => {
                self.pool_is_complete = true;
                self.ledger.all_are_named(self.now());
            }
            Some(Message::RemovedContainerId(container_id)) => {
                self.remove(&container_id);
                self.ledger.forget(&container_id);
                self.changed();
            }
            None => {}
        }
    }

    /// A target is new, or may have changed.
    fn upsert(&mut self, target: Target) {
        let container_id = target.container_id.clone();
        let others = self.instances.iter().filter(|it| *it.0 != container_id);
        let others: usize = others.map(|it| it.1.target.bytes()).sum();
        if others + target.bytes() > MAX_SPEC_BYTES {
            self.remove(&container_id);
            return no_room(&container_id);
        }
        let now = self.now();
        let random = &mut self.random;
        let mut random = || random.random();
        match self.instances.get_mut(&container_id) {
            Some(instance) if instance.target.is_same_instance(&target) => {
                instance.probes.update(target.situation, now, &mut random);
                instance.target = target;
            }
            _ => {
                let known = self.ledger.known(&container_id, &target.owner);
                let known = known.cloned().unwrap_or_default();
                let probes = InstanceProbes::new(
                    &target.timings(),
                    &known,
                    target.age(self.clock.now()),
                    target.situation,
                    now,
                    &mut random,
                );
                self.remove(&container_id);
                let instance = ProbedInstance {
                    target,
                    probes,
                    erring: BTreeSet::new(),
                };
                self.instances.insert(container_id.clone(), instance);
            }
        }
        let recorded = self.record(&container_id);
        if recorded {
            self.plan(&container_id);
        } else {
            self.remove(&container_id);
            no_room(&container_id);
        }
    }

    /// The pool does not name an instance any more: its verdicts stand for a
    /// while, but there may be nothing left to probe.
    fn pause(&mut self, container_id: &str) {
        let now = self.now();
        if let Some(instance) = self.instances.get_mut(container_id) {
            instance
                .probes
                .update(Situation::NotRunning, now, &mut || 0.0);
            self.plan(container_id);
            tracing::info!(
                container = container_id,
                "the pool does not name it any more"
            );
        }
    }

    /// Stops probing an instance: it is gone, or the ledger has forgotten it.
    fn remove(&mut self, container_id: &str) {
        if let Some(instance) = self.instances.remove(container_id) {
            for (kind, _) in instance.probes.due() {
                self.agenda.plan((container_id.to_owned(), kind), None);
            }
        }
    }

    /// Something may have changed that has to be saved and told.
    fn changed(&mut self) {
        if self.ledger.has_changed() && self.saves.at.is_none() {
            let now = Instant::now();
            let earliest = self.saves.last.map_or(now, |last| last + SAVE_GAP);
            self.saves.at = Some(earliest.max(now));
        }
    }

    fn save_when_due(&mut self) {
        if self.saves.due().is_some_and(|at| at <= Instant::now()) {
            self.save();
        }
    }

    /// Has what is known now saved, and then told.
    fn save(&mut self) {
        let all = Arc::new(self.ledger.take_snapshot());
        let saving = self.saver.put((), Arc::clone(&all));
        self.saves = Saves {
            at: None,
            last: Some(Instant::now()),
            under_way: Some((saving, all)),
        };
    }
}

impl ProbedInstance {
    fn lane(&self, kind: Kind) -> Lane {
        match self.target.specs.get(&kind).map(|spec| &spec.action) {
            Some(Action::Exec) => Lane::Exec,
            _ => Lane::Network,
        }
    }

    /// Logs a try: one that could not be made when that begins, the others only
    /// for those who look closely.
    fn log(&mut self, kind: Kind, outcome: &Outcome) {
        let container = &self.target.container_id;
        match outcome {
            Outcome::Error(reason) if self.erring.insert(kind) => {
                let pod = &self.target.owner.pod_uid;
                tracing::warn!(pod, container, reason, "a probe cannot be made");
            }
            Outcome::Error(reason) => tracing::debug!(container, reason, "no probe"),
            Outcome::Failure(reason) => {
                self.erring.remove(&kind);
                tracing::debug!(container, reason, "a probe failed");
            }
            Outcome::Success(_) => {
                self.erring.remove(&kind);
            }
        }
    }
}

fn no_room(container_id: &str) {
    tracing::error!(
        container_id,
        "there are too many containers with probes: not probed"
    );
}

#[cfg(test)]
mod tests;
