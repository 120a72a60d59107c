//! The pool: owner of all workers, and the handle by which servers reach it.
//!
//! One actor holds every worker's state and decides; steps run beside it, at most
//! one for each pod, so that a pod that hangs or fails never delays another.

pub(crate) mod actor;
mod entry;
mod finish;
mod room;
mod schedule;
mod startable;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bulkhead_api::v1;
use clock::UnixNanos;
use pod::PodSource;
use pod_lifecycle::{DesiredPod, KillRequest, Refusal, TerminationCause, Update};
use tokio::sync::{mpsc, oneshot};

pub(crate) use startable::Startable;

use crate::publisher::Publisher;
use crate::relist::Relist;

/// Commands that wait for the actor, before callers are held up: each takes it
/// microseconds.
const COMMAND_QUEUE: usize = 256;

/// Why a command came to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PoolError {
    /// The process is stopping.
    #[error("the pool is stopping")]
    Stopping,
    /// There are more pods than any node has.
    #[error("there are {0} pods already, more than a node can have")]
    Full(usize),
    /// All pods together would be larger than this process has memory for.
    #[error("all pods together may have {} bytes here", room::MAX_POOL_BYTES)]
    TooLarge,
    /// The update makes no sense for this pod.
    #[error("refused: {0:?}")]
    Refused(Refusal),
}

/// What garbage collection needs to know of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkerSummary {
    /// Its phase.
    pub phase: v1::WorkerPhase,
    /// Why it is or was terminated.
    pub cause: Option<TerminationCause>,
}

/// What sync-loop tells of a pod with each update.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpdateExtras {
    /// All verdicts that are known of its probes.
    pub verdicts: Vec<v1::ProbeVerdict>,
    /// Why it does not get the CPU and memory that it is to have, if it has to wait.
    pub pending_resize: Option<v1::PendingResize>,
}

pub(crate) enum Command {
    Update {
        update: Box<Update>,
        extras: UpdateExtras,
        reply: oneshot::Sender<Result<v1::WorkerPhase, PoolError>>,
    },
    SyncKnown {
        desired: HashSet<String>,
        delivered: HashSet<PodSource>,
        runtime: Option<Arc<Relist>>,
        reply: oneshot::Sender<Vec<v1::WorkerState>>,
    },
    RuntimeEvent {
        uid: String,
    },
    Summaries {
        reply: oneshot::Sender<BTreeMap<String, WorkerSummary>>,
    },
    Desired {
        uid: String,
        reply: oneshot::Sender<Option<DesiredPod>>,
    },
    Active {
        reply: oneshot::Sender<Vec<DesiredPod>>,
    },
    Evict {
        uid: String,
        kill: KillRequest,
        reply: oneshot::Sender<bool>,
    },
    Start {
        startable: Startable,
    },
    ShutsDown {
        reply: oneshot::Sender<bool>,
    },
}

/// Reaches the pool. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct PoolHandle {
    commands: mpsc::Sender<Command>,
    publisher: Publisher,
}

impl PoolHandle {
    fn new(publisher: Publisher) -> (PoolHandle, mpsc::Receiver<Command>) {
        let (commands, receiver) = mpsc::channel(COMMAND_QUEUE);
        let handle = PoolHandle {
            commands,
            publisher,
        };
        (handle, receiver)
    }

    /// Hands an update to its worker; answers with the phase that it is in then.
    ///
    /// # Errors
    /// When the update is refused or the pool is full.
    pub(crate) async fn update(
        &self,
        update: Update,
        extras: UpdateExtras,
    ) -> Result<v1::WorkerPhase, PoolError> {
        let update = Box::new(update);
        self.ask(|reply| Command::Update {
            update,
            extras,
            reply,
        })
        .await?
    }

    /// Forgets finished workers that nothing wants and tells of the others.
    /// `runtime` is what the runtime had before this call, if that is known.
    ///
    /// # Errors
    /// When the pool is stopping.
    pub(crate) async fn sync_known(
        &self,
        desired: HashSet<String>,
        delivered: HashSet<PodSource>,
        runtime: Option<Arc<Relist>>,
    ) -> Result<Vec<v1::WorkerState>, PoolError> {
        self.ask(|reply| Command::SyncKnown {
            desired,
            delivered,
            runtime,
            reply,
        })
        .await
    }

    /// The runtime told that something happened to a pod: its worker looks at it again.
    /// Lost when the pool is busy beyond measure, which costs latency only.
    pub(crate) fn look(&self, uid: &str) {
        let uid = uid.to_owned();
        drop(self.commands.try_send(Command::RuntimeEvent { uid }));
    }

    /// All workers, for garbage collection.
    ///
    /// # Errors
    /// When the pool is stopping.
    pub(crate) async fn summaries(&self) -> Result<BTreeMap<String, WorkerSummary>, PoolError> {
        self.ask(|reply| Command::Summaries { reply }).await
    }

    /// The pod as admitted, if it has a worker and somebody wanted it.
    ///
    /// # Errors
    /// When the pool is stopping.
    pub(crate) async fn desired(&self, uid: &str) -> Result<Option<DesiredPod>, PoolError> {
        let uid = uid.to_owned();
        self.ask(|reply| Command::Desired { uid, reply }).await
    }

    /// The pods that run or are about to, as admitted.
    ///
    /// # Errors
    /// When the pool is stopping.
    pub(crate) async fn active(&self) -> Result<Vec<DesiredPod>, PoolError> {
        self.ask(|reply| Command::Active { reply }).await
    }

    /// Ends a pod that runs or is about to, for a reason of the node's; whether it did.
    ///
    /// # Errors
    /// When the pool is stopping.
    pub(crate) async fn evict(&self, uid: &str, kill: KillRequest) -> Result<bool, PoolError> {
        let uid = uid.to_owned();
        self.ask(|reply| Command::Evict { uid, kill, reply }).await
    }

    /// From now on starts only these pods, as far as a shutdown of the node is concerned;
    /// where there is one, others are rejected.
    ///
    /// # Errors
    /// When the pool is stopping.
    pub(crate) async fn set_startable(&self, startable: Startable) -> Result<(), PoolError> {
        let command = Command::Start { startable };
        let sent = self.commands.send(command).await;
        sent.map_err(|_stopping| PoolError::Stopping)
    }

    /// Whether pods end for a shutdown of the node.
    ///
    /// # Errors
    /// When the pool is stopping.
    pub(crate) async fn shuts_down(&self) -> Result<bool, PoolError> {
        self.ask(|reply| Command::ShutsDown { reply }).await
    }

    /// What is published.
    #[must_use]
    pub(crate) fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, PoolError> {
        let (reply, answer) = oneshot::channel();
        self.commands
            .send(command(reply))
            .await
            .map_err(|_| PoolError::Stopping)?;
        answer.await.map_err(|_| PoolError::Stopping)
    }
}

/// When a point in wall time comes, as seen from now; at once for the past.
fn until(at: UnixNanos, now: UnixNanos) -> std::time::Duration {
    at.since(now)
}

#[cfg(test)]
mod tests;
