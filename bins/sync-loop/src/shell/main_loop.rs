//! The loop: waits for the next event of any kind, hands it to the dispatcher, passes
//! on what is to be done. Between two events there is no I/O and no waiting.

use std::convert::Infallible;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::config_sourcer_client::ConfigSourcerClient;
use bulkhead_api::v1::pleg_client::PlegClient;
use bulkhead_api::v1::prober_client::ProberClient;
use clock::WallClock;
use ipc::{Subscription, SubscriptionEvent};
use process::{Context, Lifecycle};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use topology::Process;

use super::pool::Pool;
use super::records::Records;
use super::status_syncer::StatusSyncer;
use crate::dispatcher::{Action, Event, Now, SyncLoop};
use crate::peers::PeerBoard;
use crate::server::{LoopState, Query};

/// How often the work queue is looked at.
const SYNC_TICK: Duration = Duration::from_secs(1);

/// How often housekeeping is done: the kubelet's housekeepingPeriod.
const HOUSEKEEPING_TICK: Duration = Duration::from_secs(2);

/// So many of its ticks pass unused while all is as desired: 30 s in all. Each that is
/// used has the pool list everything that the runtime has, as pleg's relist does, which
/// tells of pods that nobody wants at once.
const SETTLED_TICKS: u32 = 14;

/// Largest message of pleg, as the interface says.
const MAX_LIFECYCLE_BYTES: usize = 256 << 10;

/// Largest message of the prober, as the interface says.
const MAX_RESULT_BYTES: usize = 4 << 10;

/// Where events come from.
pub(super) struct Inputs {
    config_sourcer: ConfigSourcerClient<ipc::Channel>,
    configuration: Subscription<v1::WatchPodsResponse>,
    lifecycle_events: Subscription<v1::WatchPodLifecycleEventsResponse>,
    probe_results: Subscription<v1::WatchResultsResponse>,
    answers: mpsc::Receiver<Event>,
    queries: mpsc::Receiver<Query>,
    sync_tick: Interval,
    housekeeping_tick: Interval,
}

impl Inputs {
    /// Opens the streams.
    pub(super) fn open(
        context: &Context,
        answers: mpsc::Receiver<Event>,
        queries: mpsc::Receiver<Query>,
    ) -> Inputs {
        let config_sourcer =
            ConfigSourcerClient::new(context.network.channel(Process::ConfigSourcer))
                .max_decoding_message_size(ipc::limits::MAX_POD_MESSAGE_BYTES);
        let pleg = PlegClient::new(context.network.channel(Process::Pleg))
            .max_decoding_message_size(MAX_LIFECYCLE_BYTES);
        let prober = ProberClient::new(context.network.channel(Process::Prober))
            .max_decoding_message_size(MAX_RESULT_BYTES);
        Inputs {
            configuration: watch_pods(&config_sourcer),
            config_sourcer,
            lifecycle_events: ipc::subscribe("pod lifecycle events", move || {
                let mut client = pleg.clone();
                async move {
                    client
                        .watch_events(v1::WatchPodLifecycleEventsRequest {})
                        .await
                }
            }),
            probe_results: ipc::subscribe("probe results", move || {
                let mut client = prober.clone();
                async move { client.watch_results(v1::WatchResultsRequest {}).await }
            }),
            answers,
            queries,
            sync_tick: tick(SYNC_TICK),
            housekeeping_tick: tick(HOUSEKEEPING_TICK),
        }
    }
}

fn watch_pods(
    config_sourcer: &ConfigSourcerClient<ipc::Channel>,
) -> Subscription<v1::WatchPodsResponse> {
    let config_sourcer = config_sourcer.clone();
    ipc::subscribe("pods", move || {
        let mut client = config_sourcer.clone();
        async move { client.watch_pods(v1::WatchPodsRequest {}).await }
    })
}

fn tick(period: Duration) -> Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Where actions go. None of them waits.
pub(super) struct Outputs {
    pub(super) pool: Pool,
    pub(super) status_syncer: StatusSyncer,
    pub(super) records: Records,
}

/// The loop.
pub(super) struct MainLoop {
    sync_loop: SyncLoop,
    inputs: Inputs,
    outputs: Outputs,
    clock: WallClock,
    lifecycle: Lifecycle,
    peers: PeerBoard,
    started: Instant,
    iterations: u64,
    last_iteration: Instant,
    status_line: String,
    /// Ticks of housekeeping that passed unused since the last that did not.
    unused_ticks: u32,
}

/// What an input brought.
enum Input {
    Configuration(SubscriptionEvent<v1::WatchPodsResponse>),
    Lifecycle(SubscriptionEvent<v1::WatchPodLifecycleEventsResponse>),
    ProbeResult(SubscriptionEvent<v1::WatchResultsResponse>),
    Event(Event),
    Query(Query),
}

impl MainLoop {
    pub(super) fn new(
        sync_loop: SyncLoop,
        inputs: Inputs,
        outputs: Outputs,
        context: &Context,
        peers: PeerBoard,
    ) -> MainLoop {
        MainLoop {
            sync_loop,
            inputs,
            outputs,
            clock: context.clock.clone(),
            lifecycle: context.lifecycle.clone(),
            peers,
            started: Instant::now(),
            iterations: 0,
            last_iteration: Instant::now(),
            status_line: String::new(),
            unused_ticks: 0,
        }
    }

    pub(super) async fn run(mut self) -> Infallible {
        loop {
            let input = self.inputs.next().await;
            self.take(input);
            self.iterations += 1;
            self.last_iteration = Instant::now();
            self.lifecycle.beat();
            // A flood of events must not keep the senders from running.
            tokio::task::consume_budget().await;
        }
    }

    fn take(&mut self, input: Input) {
        let event = match input {
            Input::Configuration(event) => self.configuration_event(event),
            Input::Lifecycle(event) => self.lifecycle_event(event),
            Input::ProbeResult(event) => self.probe_result(event),
            Input::Event(event) => Some(event),
            Input::Query(query) => {
                query.answer(LoopState {
                    sync_loop: &self.sync_loop,
                    iterations: self.iterations,
                    since_last_iteration: self.last_iteration.elapsed(),
                });
                None
            }
        };
        let Some(event) = event else { return };
        if matches!(event, Event::SyncTick) {
            self.show_status();
        }
        if matches!(event, Event::HousekeepingTick) {
            let health = self.sync_loop.node_health(self.started.elapsed());
            self.outputs.status_syncer.set_health(health);
            let unused = self.unused_ticks < SETTLED_TICKS && self.sync_loop.is_settled();
            self.unused_ticks = if unused { self.unused_ticks + 1 } else { 0 };
            if unused {
                return;
            }
        }
        let now = Now {
            elapsed: self.started.elapsed(),
            wall: self.clock.now(),
            since_boot: self.clock.since_boot(),
        };
        let is_of_health = matches!(event, Event::Lifecycle(_) | Event::NodeCapacity(_));
        let before = self.sync_loop.node_health(now.elapsed);
        let actions = self.sync_loop.handle(now, event);
        if is_of_health {
            let health = self.sync_loop.node_health(now.elapsed);
            if health != before {
                self.outputs.status_syncer.set_health(health);
            }
        }
        let is_anew = |action: &Action| matches!(action, Action::WatchPodsAnew);
        if actions.iter().any(is_anew) {
            // What waits of the former stream is in the snapshot of this one.
            self.inputs.configuration = watch_pods(&self.inputs.config_sourcer);
        }
        self.outputs.carry_out(actions);
    }

    fn configuration_event(
        &self,
        event: SubscriptionEvent<v1::WatchPodsResponse>,
    ) -> Option<Event> {
        match event {
            SubscriptionEvent::Connected => Some(Event::ConfigurationStreamBegan),
            SubscriptionEvent::Message(message) => {
                self.peers.reached(Process::ConfigSourcer, &message.boot_id);
                message.message.map(Event::Configuration)
            }
            SubscriptionEvent::Lost { reason } => self.lost(Process::ConfigSourcer, &reason),
        }
    }

    fn lifecycle_event(
        &self,
        event: SubscriptionEvent<v1::WatchPodLifecycleEventsResponse>,
    ) -> Option<Event> {
        match event {
            // The snapshot that follows says what there is to say.
            SubscriptionEvent::Connected => None,
            SubscriptionEvent::Message(message) => {
                self.peers.reached(Process::Pleg, &message.boot_id);
                message.message.map(Event::Lifecycle)
            }
            SubscriptionEvent::Lost { reason } => {
                self.peers.failed(Process::Pleg, &reason);
                Some(Event::LifecycleLost)
            }
        }
    }

    fn probe_result(&self, event: SubscriptionEvent<v1::WatchResultsResponse>) -> Option<Event> {
        match event {
            SubscriptionEvent::Connected => {
                self.peers.reached(Process::Prober, "");
                None
            }
            SubscriptionEvent::Message(message) => {
                self.peers.reached(Process::Prober, &message.boot_id);
                message.message.map(Event::ProbeResult)
            }
            SubscriptionEvent::Lost { reason } => self.lost(Process::Prober, &reason),
        }
    }

    fn lost(&self, process: Process, reason: &str) -> Option<Event> {
        self.peers.failed(process, reason);
        None
    }

    fn show_status(&mut self) {
        let summary = self.sync_loop.summary();
        let pods: usize = summary.sources.iter().map(|source| source.pods).sum();
        let mut line = format!("{pods} pods desired");
        if !summary.sources.iter().all(|source| source.ready) {
            line += ", sources not ready";
        }
        if !summary.runtime_error.is_empty() {
            line += ", the container runtime does not answer";
        }
        if line != self.status_line {
            self.lifecycle.set_status(&line);
            self.status_line = line;
        }
    }
}

impl Inputs {
    /// The next event. `select!` begins with another arm each time, so none of
    /// them starves another. Cancel-safe in every arm: each receives from a
    /// channel, and a tick that is not taken stays due.
    async fn next(&mut self) -> Input {
        tokio::select! {
            event = self.configuration.next() => Input::Configuration(event),
            event = self.lifecycle_events.next() => Input::Lifecycle(event),
            event = self.probe_results.next() => Input::ProbeResult(event),
            Some(event) = self.answers.recv() => Input::Event(event),
            Some(query) = self.queries.recv() => Input::Query(query),
            _ = self.sync_tick.tick() => Input::Event(Event::SyncTick),
            _ = self.housekeeping_tick.tick() => Input::Event(Event::HousekeepingTick),
        }
    }
}

impl Outputs {
    fn carry_out(&self, actions: Vec<Action>) {
        let mut rejections = Vec::new();
        let mut records = None;
        for action in actions {
            match action {
                Action::UpdatePod(update) => self.pool.update_pod(update),
                Action::SyncKnownPods {
                    question,
                    desired,
                    delivered,
                } => {
                    self.pool.ask_known_pods(question, desired, &delivered);
                }
                Action::CleanUpContainers { uid } => self.pool.clean_up_containers(uid),
                Action::CollectGarbage {
                    desired,
                    sources_ready,
                } => {
                    self.pool.collect_garbage(desired, sources_ready);
                }
                // It is about an input.
                Action::WatchPodsAnew => {}
                Action::CheckRuntime => self.pool.check_runtime(),
                Action::SetProbeVerdicts(verdicts) => self.status_syncer.set_verdicts(verdicts),
                Action::RejectPod(rejection) => rejections.push(rejection),
                Action::ReportEvent(event) => self.status_syncer.report(event),
                Action::RemoveOrphanedStatuses {
                    known,
                    delivered,
                    listed_at,
                } => {
                    self.records.retain(&known);
                    self.status_syncer.retain(known, &delivered, listed_at);
                }
                Action::SaveAdmissionRecords(newest) => records = Some(newest),
            }
        }
        self.records.save(records, rejections);
    }
}
