//! The main loop: takes observations and calls, and saves, then publishes, what
//! follows from them.
//!
//! A change is saved before anybody sees it, so that after a SIGKILL at any
//! instant nothing that was published is taken back. A disk that refuses or hangs holds
//! statuses up for a bounded time only: then they are published all the same, and saving
//! is tried again. Changes of a short window are saved together; the window grows with
//! the time that saving takes, so that a slow disk costs latency and is not kept busy.

use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::watch_observations_response::Message;
use clock::WallClock;
use ipc::Feed;
use node_config::NodeConfig;
use pod::PodDocument;
use process::{Context, Lifecycle};
use state_file::{Saver, Saving, StateFileError};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};
use topology::Process;

use crate::api::{self, AwaitedReports, Reporting};
use crate::command::{Command, RecentEvents};
use crate::events::EventLog;
use crate::observations::{News, Observations};
use crate::publication::{Change, LocalReaders, PublishedPod, Publisher};
use crate::registry::{KnownPods, Now, Registry};
use crate::service::Service;
use crate::store::Store;

/// Why status-syncer ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its socket cannot be served.
    #[error("status-syncer cannot serve")]
    Serve(#[source] ipc::ServeError),
}

/// Calls that wait for the main loop. Each answers within microseconds; callers
/// beyond wait in their connection.
const COMMAND_QUEUE: usize = 64;
/// Events that a reader may lag behind before its stream ends.
const EVENT_FEED: usize = 512;
/// Shortest wait between a change and its publication: a pod's start makes
/// several changes within a few milliseconds.
const SHORTEST_WINDOW: Duration = Duration::from_millis(10);
/// Longest, on a disk that is very slow.
const LONGEST_WINDOW: Duration = Duration::from_millis(250);
/// The window as a multiple of the time that the last save took: while pods change all
/// the time, no more than a fiftieth of the time goes into saving all of them.
const WINDOW_PER_SAVE: u32 = 49;
/// The watchdog wants a sign of life each second.
const TICK: Duration = Duration::from_secs(1);

/// What status-syncer opens before it is sealed.
#[derive(Debug)]
pub struct Opened {
    store: Store,
    /// The statuses that were saved before this process started.
    saved: Vec<PublishedPod>,
}

/// Opens the state file and reads it.
#[must_use]
pub fn open(config: &NodeConfig) -> Opened {
    let store = Store::new(&config.directories.state(Process::StatusSyncer));
    let saved = store.load();
    Opened { store, saved }
}

/// Serves until it is told to stop.
///
/// # Errors
/// When its socket cannot be served.
pub async fn serve(context: Context, Opened { store, saved }: Opened) -> Result<(), Error> {
    serve_saving(context, saved, move |pods| store.save(pods)).await
}

/// Goes on from what was saved, and has `save` save.
async fn serve_saving(
    context: Context,
    saved: Vec<PublishedPod>,
    save: impl Fn(&[PodDocument]) -> Result<(), StateFileError> + Send + Sync + 'static,
) -> Result<(), Error> {
    let (saver, writer) = Saver::new("statuses", move |(): &(), pods: &Vec<PodDocument>| {
        save(pods)
    });
    let readers = LocalReaders::default();
    let statuses = readers.hub().clone();
    let (commands, received) = mpsc::channel(COMMAND_QUEUE);
    let awaited = AwaitedReports::default();
    let (health, reported_health) = watch::channel(None);
    let service = Service {
        boot_id: context.boot_id.clone(),
        commands: commands.clone(),
        statuses,
        awaited: awaited.clone(),
        health,
    };
    let shutdown = context.lifecycle.shutdown();
    let observations = Observations::subscribe(&context);
    let mut syncer = Syncer::new(&context, vec![Box::new(readers.clone())], saver);
    let (events, known) = (syncer.feed.subscribe(), syncer.known.subscribe());
    let reporting = Reporting::of(&context, awaited, reported_health);
    let reporting = Box::pin(api::report(reporting, readers, events, known, commands));
    syncer.restore(saved);

    let serving = ipc::serve(
        context.process,
        context.identities,
        context.listener,
        service.routes(),
        shutdown,
    );
    context.lifecycle.ready();
    let working = async {
        tokio::select! {
            result = serving => result.map_err(Error::Serve)?,
            // Ends after the drain of the server at the latest, which is longer
            // than any call here takes.
            () = syncer.main_loop(received, observations) => {}
        }
        syncer.finish().await;
        Ok(())
    };
    tokio::select! {
        result = working => result,
        never = writer.run() => match never {},
        never = reporting => match never {},
    }
}

/// State of the main loop.
struct Syncer {
    clock: WallClock,
    lifecycle: Lifecycle,
    registry: Registry,
    events: EventLog,
    feed: Feed<v1::Event>,
    /// The pods that sync-loop knows, since it has said so.
    known: watch::Sender<Option<Arc<KnownPods>>>,
    saver: Saver<(), Vec<PodDocument>>,
    publishers: Vec<Box<dyn Publisher>>,
    progress: Progress,
    /// How long further changes may join the first before they are saved.
    window: Duration,
    /// What was last told of this process.
    told: String,
}

/// How far changes are on their way to who reads them.
#[derive(Debug)]
enum Progress {
    /// Nothing has changed.
    Clean,
    /// Something changed; it is saved at `due`.
    Waiting { due: Instant },
    /// These changes are being saved; then they are published.
    Saving {
        saving: Saving,
        begun: Instant,
        changes: Vec<Change>,
    },
}

impl Progress {
    /// Waits until it goes on; for ever if nothing has changed. Cancel-safe: nothing is
    /// taken.
    async fn goes_on(&mut self) {
        match self {
            Progress::Clean => std::future::pending().await,
            Progress::Waiting { due } => tokio::time::sleep_until(*due).await,
            // A disk that refuses or hangs holds no status back: the saver says so, and
            // goes on trying.
            Progress::Saving { saving, .. } => drop(saving.finished().await),
        }
    }
}

impl Syncer {
    fn new(
        context: &Context,
        publishers: Vec<Box<dyn Publisher>>,
        saver: Saver<(), Vec<PodDocument>>,
    ) -> Syncer {
        Syncer {
            clock: context.clock.clone(),
            lifecycle: context.lifecycle.clone(),
            registry: Registry::default(),
            events: EventLog::default(),
            feed: Feed::new(EVENT_FEED),
            known: watch::Sender::new(None),
            saver,
            publishers,
            progress: Progress::Clean,
            window: SHORTEST_WINDOW,
            told: String::new(),
        }
    }

    /// Takes back and publishes what was saved.
    fn restore(&mut self, saved: Vec<PublishedPod>) {
        self.registry.restore(saved, self.clock.since_boot());
        let changes = self.registry.take_changes();
        self.publish(&changes);
    }

    async fn main_loop(
        &mut self,
        mut commands: mpsc::Receiver<Command>,
        mut observations: Observations,
    ) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.note_changes();
            tokio::select! {
                // Cancel-safe: it receives from a channel.
                command = commands.recv() => match command {
                    Some(command) => self.obey(command),
                    // The server is gone, and with it everything to do.
                    None => return,
                },
                // Cancel-safe, see there.
                news = observations.next() => self.take(news, &mut observations),
                // Cancel-safe, see there.
                () = self.progress.goes_on() => self.go_on(),
                // Cancel-safe: a tick that is not taken stays due.
                _ = tick.tick() => {
                    self.lifecycle.beat();
                    self.tell_status();
                }
            }
        }
    }

    /// Now, by each clock.
    fn now(&self) -> Now {
        Now {
            wall: self.clock.now(),
            since_boot: self.clock.since_boot(),
        }
    }

    fn obey(&mut self, command: Command) {
        let now = self.now();
        // A caller that is gone does not need its answer.
        match command {
            Command::SetVerdicts(verdicts, answer) => {
                self.registry.set_verdicts(&verdicts, now.wall);
                let _ = answer.send(());
            }
            Command::Reject(request, answer) => {
                let _ = answer.send(self.registry.reject(*request, now));
            }
            Command::ReportEvents(request, answer) => {
                let events = request.events.into_iter();
                let news = events.filter_map(|event| self.events.record(event, now.wall));
                news.for_each(|event| self.feed.push(&event));
                let _ = answer.send(());
            }
            Command::Retain(known, answer) => {
                let retained = self.registry.retain(&known, now.since_boot);
                if retained.is_ok() {
                    self.known.send_replace(Some(Arc::new(known)));
                }
                let _ = answer.send(retained);
            }
            Command::SetHeld(uid, conditions) => {
                self.registry.set_held(&uid, conditions, now.wall);
            }
            Command::RecentEvents(pod_uid, answer) => {
                let recent = self.events.recent(pod_uid.as_deref());
                let following = self.feed.subscribe();
                let _ = answer.send(RecentEvents { recent, following });
            }
        }
    }

    fn take(&mut self, news: News, observations: &mut Observations) {
        let now = self.now();
        let response = match news {
            News::Message(response) => *response,
            News::Pod(observation, pod) => return self.observe(*observation, pod),
        };
        match response.message {
            Some(Message::SnapshotBegin(_)) => self.registry.begin_snapshot(&response.boot_id),
            Some(Message::SnapshotEnd(_)) => self.registry.end_snapshot(now.wall),
            Some(Message::RemovedPodUid(uid)) => self.registry.let_go(&uid, now.wall),
            Some(Message::Observation(observation)) if self.registry.lacks(&observation) => {
                observations.ask_for_pod(observation);
            }
            Some(Message::Observation(observation)) => self.observe(observation, None),
            Some(Message::Event(event)) => {
                if let Some(event) = self.events.record(event, now.wall) {
                    self.feed.push(&event);
                }
            }
            None => tracing::warn!("the pool sent an empty message; it is left out"),
        }
    }

    fn observe(&mut self, observation: v1::PodObservation, pod: Option<PodDocument>) {
        let now = self.now();
        if let Err(refusal) = self.registry.observe(observation, pod, now) {
            let error = telemetry::chain(&refusal);
            tracing::warn!(error, "an observation is left out");
        }
    }

    /// Starts the window in which further changes join the first.
    fn note_changes(&mut self) {
        if matches!(self.progress, Progress::Clean) && self.registry.has_changes() {
            let due = Instant::now() + self.window;
            self.progress = Progress::Waiting { due };
        }
    }

    /// Has what changed saved, or publishes what was.
    fn go_on(&mut self) {
        match std::mem::replace(&mut self.progress, Progress::Clean) {
            Progress::Clean => {}
            Progress::Waiting { .. } => {
                let changes = self.registry.take_changes();
                if !self.registry.is_unsaved() {
                    self.publish(&changes);
                    return;
                }
                let pods = self.registry.to_save();
                let documents = pods.map(|pod| pod.document.clone());
                let saving = self.saver.put((), documents.collect());
                self.registry.saved();
                self.progress = Progress::Saving {
                    saving,
                    begun: Instant::now(),
                    changes,
                };
            }
            Progress::Saving { begun, changes, .. } => {
                let window = begun.elapsed() * WINDOW_PER_SAVE;
                self.window = window.clamp(SHORTEST_WINDOW, LONGEST_WINDOW);
                self.publish(&changes);
            }
        }
    }

    /// Has everything saved and published that is known.
    async fn finish(&mut self) {
        self.note_changes();
        while !matches!(self.progress, Progress::Clean) {
            self.progress.goes_on().await;
            self.go_on();
            self.note_changes();
        }
    }

    /// Tells people how it stands, when that has changed.
    fn tell_status(&mut self) {
        let trouble = self.saver.trouble();
        let status =
            trouble.unwrap_or_else(|| format!("{} pods have a status", self.registry.len()));
        if status != self.told {
            self.lifecycle.set_status(&status);
            self.told = status;
        }
    }

    fn publish(&mut self, changes: &[Change]) {
        for change in changes {
            for publisher in &mut self.publishers {
                publisher.publish(change);
            }
        }
    }
}

#[cfg(test)]
mod tests;
