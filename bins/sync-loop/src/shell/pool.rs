//! The way to pod-worker-pool: updates of pods, the question about known pods,
//! clean-up, garbage, capacity. A task each, so that a slow answer of one kind
//! delays no other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use backoff::{Backoff, Curve};
use bulkhead_api::v1;
use bulkhead_api::v1::pod_workers_client::PodWorkersClient;
use ipc::{CallError, Channel};
use pod::PodSource;
use process::Context;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::Code;
use topology::Process;

use super::mailbox::Mailbox;
use crate::dispatcher::Event;
use crate::dispatcher::outbox::{Delivery, Outbox, WorkerUpdate};
use crate::peers::PeerBoard;

/// Updates under way at once. Each is answered as soon as the pool has queued it, or
/// within 2 s where the pool has to ask config-sourcer and that does not answer.
const MAX_UPDATES_IN_FLIGHT: usize = 32;

/// KILLs under way beside them: the pool never waits for anybody with those.
const MAX_MORE_KILLS_IN_FLIGHT: usize = 16;

/// Deadline of the short calls, as the interface says.
const CALL_DEADLINE: Duration = Duration::from_secs(5);

/// Deadline of the question about known pods, as the interface says.
const KNOWN_PODS_DEADLINE: Duration = Duration::from_secs(30);

/// Housekeeping that takes longer is worth a line in the log: the kubelet's
/// housekeepingWarningDuration.
const SLOW_HOUSEKEEPING: Duration = Duration::from_secs(15);

/// Wait after a refusal that may pass (the pool is busy) before trying again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// How often the runtime's health is asked for while it is up: the kubelet's
/// updateRuntimeUp.
const HEALTH_PERIOD: Duration = Duration::from_secs(5);

/// How often while it is down: the kubelet's back-off of its sync loop.
const RUNTIME_DOWN: Curve = Curve {
    base: Duration::from_millis(100),
    cap: Duration::from_secs(5),
    immediate: 0,
};

/// Pods with dead containers to clean up that are remembered; garbage collection
/// finds the others.
const MAX_CLEAN_UPS: usize = ipc::limits::MAX_PODS;

/// A question about known pods.
#[derive(Clone, Debug)]
struct Question {
    number: u64,
    request: v1::SyncKnownPodsRequest,
}

/// The way to the pool. Dropping it ends all its tasks.
pub(super) struct Pool {
    outbox: Mailbox<Outbox>,
    question: Mailbox<Option<Question>>,
    clean_ups: Mailbox<BTreeSet<String>>,
    garbage: Mailbox<Option<v1::CollectGarbageRequest>>,
    health: Mailbox<()>,
    tasks: JoinSet<()>,
}

impl Pool {
    /// Starts the tasks; what the pool answers goes to `answers`.
    pub(super) fn start(context: &Context, answers: mpsc::Sender<Event>, peers: PeerBoard) -> Pool {
        let client = PodWorkersClient::new(context.network.channel(Process::PodWorkerPool));
        let link = Link {
            lists: client.clone(),
            client: client.max_decoding_message_size(ipc::limits::MAX_ANSWER_BYTES),
            answers,
            peers,
        };
        let mut pool = Pool {
            outbox: Mailbox::default(),
            question: Mailbox::default(),
            clean_ups: Mailbox::default(),
            garbage: Mailbox::default(),
            health: Mailbox::default(),
            tasks: JoinSet::new(),
        };
        pool.tasks
            .spawn(link.clone().send_updates(pool.outbox.clone()));
        pool.tasks
            .spawn(link.clone().ask_known_pods(pool.question.clone()));
        pool.tasks
            .spawn(link.clone().clean_up(pool.clean_ups.clone()));
        pool.tasks
            .spawn(link.clone().collect_garbage(pool.garbage.clone()));
        pool.tasks.spawn(link.watch_health(pool.health.clone()));
        pool
    }

    pub(super) fn update_pod(&self, update: WorkerUpdate) {
        self.outbox.fill(|outbox| outbox.push(update));
    }

    pub(super) fn ask_known_pods(
        &self,
        number: u64,
        desired: Vec<String>,
        delivered: &[PodSource],
    ) {
        let request = v1::SyncKnownPodsRequest {
            desired_pod_uids: desired,
            delivered_sources: delivered.iter().map(ToString::to_string).collect(),
        };
        self.question
            .fill(|question| *question = Some(Question { number, request }));
    }

    pub(super) fn clean_up_containers(&self, uid: String) {
        self.clean_ups.fill(|clean_ups| {
            if clean_ups.len() < MAX_CLEAN_UPS {
                clean_ups.insert(uid);
            }
        });
    }

    pub(super) fn collect_garbage(&self, desired: Vec<String>, sources_ready: bool) {
        let request = v1::CollectGarbageRequest {
            desired_pod_uids: desired,
            sources_ready,
        };
        self.garbage.fill(|garbage| *garbage = Some(request));
    }

    pub(super) fn check_runtime(&self) {
        self.health.fill(|()| {});
    }
}

/// What each task needs.
#[derive(Clone)]
struct Link {
    client: PodWorkersClient<Channel>,
    /// For the one answer that may be large: many others come at once.
    lists: PodWorkersClient<Channel>,
    answers: mpsc::Sender<Event>,
    peers: PeerBoard,
}

impl Link {
    async fn send_updates(self, outbox: Mailbox<Outbox>) {
        let mut in_flight = JoinSet::new();
        loop {
            while in_flight.len() < MAX_UPDATES_IN_FLIGHT
                && let Some(update) = outbox.with(Outbox::take)
            {
                in_flight.spawn(self.clone().send_update(update, outbox.clone()));
            }
            while in_flight.len() < MAX_UPDATES_IN_FLIGHT + MAX_MORE_KILLS_IN_FLIGHT
                && let Some(kill) = outbox.with(Outbox::take_kill)
            {
                in_flight.spawn(self.clone().send_update(kill, outbox.clone()));
            }
            tokio::select! {
                // Cancel-safe: a wake-up that is not taken stays.
                () = outbox.filled() => {}
                // Cancel-safe: a result that is not taken stays in the set.
                Some(_) = in_flight.join_next() => {}
            }
        }
    }

    /// Sends one update until it is settled or has to queue again.
    async fn send_update(self, update: WorkerUpdate, outbox: Mailbox<Outbox>) {
        let request = update.to_request();
        let uid = Arc::clone(&update.uid);
        let sequence = update.sequence;
        let result = ipc::call(CALL_DEADLINE, || {
            let mut client = self.client.clone();
            let request = request.clone();
            async move { client.update_pod(request).await }
        })
        .await;
        let (delivery, event) = match result {
            Ok(response) => {
                self.peers
                    .reached(Process::PodWorkerPool, &response.boot_id);
                let phase = response.phase();
                let boot_id = response.boot_id;
                let event = Event::WorkerAcknowledged {
                    uid: Arc::clone(&uid),
                    sequence,
                    phase,
                    boot_id,
                };
                (Delivery::Settled, Some(event))
            }
            Err(error) if error.is_final() => {
                let reason = telemetry::chain(&error);
                let event = Event::WorkerRefused {
                    uid: Arc::clone(&uid),
                    sequence,
                    reason,
                };
                (Delivery::Settled, Some(event))
            }
            Err(error) if error.code() == Some(Code::Aborted) => {
                // config-sourcer has told of the other version by then, or will.
                tokio::time::sleep(RETRY_PAUSE).await;
                (Delivery::Outdated, Some(Event::WorkerOutdated(update)))
            }
            Err(error) if error.code() == Some(Code::Unavailable) => {
                // The pool says itself what it waits for, once for all pods.
                let error = telemetry::chain(&error);
                tracing::debug!(%uid, error, "the worker pool cannot get a pod yet");
                tokio::time::sleep(RETRY_PAUSE).await;
                (Delivery::Failed, None)
            }
            Err(error) => {
                self.failed("UpdatePod", &error);
                if error.code().is_some() {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                (Delivery::Failed, None)
            }
        };
        if let Some(event) = event {
            self.tell(event).await;
        }
        outbox.fill(|outbox| outbox.done(&uid, delivery));
    }

    /// Always asks the newest question: an old one names pods that are desired
    /// no longer, or not those that are since.
    async fn ask_known_pods(self, questions: Mailbox<Option<Question>>) {
        let mut backoff = Backoff::new(Curve::RECONNECT);
        loop {
            let Some(question) = questions.with(|question| question.clone()) else {
                questions.filled().await;
                continue;
            };
            let mut client = self.lists.clone();
            let asked = Instant::now();
            let asking = client.sync_known_pods(question.request);
            let answer = tokio::time::timeout(KNOWN_PODS_DEADLINE, asking).await;
            if asked.elapsed() > SLOW_HOUSEKEEPING {
                let seconds = asked.elapsed().as_secs();
                tracing::warn!(seconds, "housekeeping takes long");
            }
            match answer {
                Ok(Ok(response)) => {
                    backoff.reset();
                    let response = response.into_inner();
                    self.peers
                        .reached(Process::PodWorkerPool, &response.boot_id);
                    self.tell(Event::KnownPods {
                        question: question.number,
                        response,
                    })
                    .await;
                }
                Ok(Err(status)) if ipc::is_broken_connection(&status) => {
                    tokio::time::sleep(backoff.failed()).await;
                    continue;
                }
                Ok(Err(status)) => {
                    let error = CallError::Refused(Box::new(status));
                    self.failed("SyncKnownPods", &error);
                }
                Err(_) => {
                    let deadline = KNOWN_PODS_DEADLINE;
                    let error = CallError::Deadline {
                        deadline,
                        last_failure: None,
                    };
                    self.failed("SyncKnownPods", &error);
                }
            }
            // The next tick asks again, unless it already has.
            questions.with(|newest| {
                if newest
                    .as_ref()
                    .is_some_and(|newest| newest.number == question.number)
                {
                    *newest = None;
                }
            });
        }
    }

    async fn clean_up(self, clean_ups: Mailbox<BTreeSet<String>>) {
        loop {
            let Some(pod_uid) = clean_ups.with(BTreeSet::pop_first) else {
                clean_ups.filled().await;
                continue;
            };
            let request = v1::CleanUpContainersRequest { pod_uid };
            let result = ipc::call(CALL_DEADLINE, || {
                let mut client = self.client.clone();
                let request = request.clone();
                async move { client.clean_up_containers(request).await }
            })
            .await;
            // Not tried again: garbage collection finds what was left.
            if let Err(error) = result {
                self.failed("CleanUpContainers", &error);
            }
        }
    }

    async fn collect_garbage(self, garbage: Mailbox<Option<v1::CollectGarbageRequest>>) {
        loop {
            let Some(request) = garbage.with(Option::take) else {
                garbage.filled().await;
                continue;
            };
            let result = ipc::call(CALL_DEADLINE, || {
                let mut client = self.client.clone();
                let request = request.clone();
                async move { client.collect_garbage(request).await }
            })
            .await;
            // Not tried again: the next round comes within a minute.
            if let Err(error) = result {
                self.failed("CollectGarbage", &error);
            }
        }
    }

    /// Asks for the node's capacity and the runtime's health, again and again.
    async fn watch_health(self, sooner: Mailbox<()>) {
        let mut down = Backoff::new(RUNTIME_DOWN);
        loop {
            let result = ipc::call(CALL_DEADLINE, || {
                let mut client = self.client.clone();
                async move {
                    client
                        .get_node_capacity(v1::GetNodeCapacityRequest {})
                        .await
                }
            })
            .await;
            let wait = match result {
                Ok(capacity) => {
                    self.peers
                        .reached(Process::PodWorkerPool, &capacity.boot_id);
                    let healthy = capacity.runtime_error.is_empty();
                    self.tell(Event::NodeCapacity(capacity)).await;
                    if healthy {
                        down.reset();
                        HEALTH_PERIOD
                    } else {
                        down.failed()
                    }
                }
                Err(error) => {
                    self.failed("GetNodeCapacity", &error);
                    RETRY_PAUSE
                }
            };
            tokio::select! {
                // Cancel-safe: made anew each time.
                () = tokio::time::sleep(wait) => {}
                // Cancel-safe: a wake-up that is not taken stays. Only a runtime
                // that seemed up is asked sooner; the back-off stands.
                () = sooner.filled(), if wait == HEALTH_PERIOD => {}
            }
        }
    }

    async fn tell(&self, event: Event) {
        // Without a loop there is nobody to tell, and this task ends with it.
        drop(self.answers.send(event).await);
    }

    fn failed(&self, call: &'static str, error: &CallError) {
        let error = telemetry::chain(error);
        tracing::warn!(call, error, "the worker pool did not take a call");
        self.peers.failed(Process::PodWorkerPool, &error);
    }
}
