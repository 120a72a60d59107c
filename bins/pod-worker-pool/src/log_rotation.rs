//! Rotates the logs of containers that run, as a kubelet does: a log that is too big is
//! renamed, and the runtime told to open it anew.
//!
//! Each round looks at what is there and remembers nothing, so a kill at any moment is
//! put right by a later round: a log that was renamed and not opened anew is not there,
//! and is opened; what a compression left is cleared away. Names and numbers of files
//! are decided in `logs::rotated`. What takes as long as a file is big, compressing it, is
//! done beside the rounds.

mod compressor;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use bulkhead_api::v1;
use clock::WallClock;
use cri::v1::ContainerState;
use cri::{RuntimeChanges, RuntimeError};
use futures_util::{StreamExt, stream};
use node_config::LogSettings;
use node_host::{LogChange, LogSize, LogTarget, NodeError, NodeHost};
use pod::PodIdentity;
use tokio::time::MissedTickBehavior;

use crate::logs::rotated;
use crate::publisher::Publisher;
use crate::relist::{Relister, RuntimePod};
use crate::servers::Shared;
use compressor::{Compressor, Queue};

/// What rotates logs.
pub(crate) struct LogRotation {
    runtime: Arc<dyn RuntimeChanges>,
    host: Arc<dyn NodeHost>,
    /// Knows which containers run of the pods that have workers.
    publisher: Publisher,
    /// Knows those of all others.
    relister: Relister,
    settings: LogSettings,
    /// Names rotated files.
    clock: WallClock,
    /// Files that are to be compressed.
    queue: Queue,
}

/// A log that cannot be rotated now.
#[derive(Debug, thiserror::Error)]
enum RotationError {
    #[error("the log cannot be looked at")]
    Look(#[source] NodeError),
    #[error("the log's files cannot be changed")]
    Change(#[source] NodeError),
    #[error("the runtime does not open the log anew")]
    Reopen(#[source] RuntimeError),
}

/// The log of a container that runs.
struct Running {
    log: LogTarget,
    container_id: String,
}

/// What is to be done with a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Due {
    Nothing,
    /// It is not there: it was renamed, and then we or the runtime died.
    Reopen,
    Rotate,
}

fn due(size: Option<u64>, max_size: u64) -> Due {
    match size {
        None => Due::Reopen,
        Some(size) if size >= max_size => Due::Rotate,
        Some(_) => Due::Nothing,
    }
}

impl LogRotation {
    /// For the containers of a pool.
    pub(crate) fn new(pool: &Shared, settings: &LogSettings, clock: &WallClock) -> LogRotation {
        LogRotation {
            runtime: Arc::clone(&pool.runtime.changes),
            host: Arc::clone(&pool.host),
            publisher: pool.pool.publisher().clone(),
            relister: pool.relister.clone(),
            settings: settings.clone(),
            clock: clock.clone(),
            queue: Queue::default(),
        }
    }

    /// Rotates logs for ever.
    pub(crate) async fn run(self) {
        let compressor = Compressor::new(Arc::clone(&self.host), self.queue.clone());
        tokio::select! {
            biased;
            never = self.rounds() => match never {},
            never = compressor.run() => match never {},
        }
    }

    async fn rounds(&self) -> Infallible {
        let Some(max_size) = self.settings.max_size else {
            return std::future::pending().await;
        };
        let mut interval = tokio::time::interval(self.settings.monitor_interval);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failing = BTreeSet::new();
        loop {
            interval.tick().await;
            failing = self.round(max_size, &failing).await;
        }
    }

    /// Looks at all logs once. Answers with the containers whose log could not be
    /// rotated; those that could not in the round before are not told of again.
    async fn round(&self, max_size: u64, failing: &BTreeSet<String>) -> BTreeSet<String> {
        let running = self.running().await;
        let logs: Vec<LogTarget> = running.iter().map(|it| it.log.clone()).collect();
        let sizes = match self.host.log_sizes(&logs).await {
            Ok(sizes) => sizes,
            Err(error) => {
                let error = telemetry::chain(&error);
                tracing::warn!(error, "logs cannot be looked at");
                return failing.clone();
            }
        };
        let workers = usize::try_from(self.settings.max_workers).unwrap_or(1);
        let looks: Vec<_> = running
            .iter()
            .zip(sizes)
            .map(|(it, size)| self.look_after(it, size, max_size, failing))
            .collect();
        let looks = stream::iter(looks).buffer_unordered(workers.max(1));
        let failed: Vec<Option<String>> = looks.collect().await;
        failed.into_iter().flatten().collect()
    }

    /// Logs of containers that run. Others get no more lines. A pod whose source does not
    /// answer may run for weeks without anybody naming it to us: it is only in the list.
    async fn running(&self) -> Vec<Running> {
        let relist = self.relister.last().await;
        let observations = self.publisher.observations().snapshot();
        let is_looked_at = |uid: &str| {
            let observation = observations.get(uid);
            observation.is_some_and(|it| !it.containers.is_empty())
        };
        let listed = relist.iter().flat_map(|relist| relist.pods.values());
        let others = listed.filter(|pod| !is_looked_at(pod.identity.uid()));
        let observed = observations.values().flat_map(running_of);
        observed.chain(others.flat_map(listed_running)).collect()
    }

    /// Does what is due with one log; the container's id if that fails.
    async fn look_after(
        &self,
        running: &Running,
        size: LogSize,
        max_size: u64,
        failing: &BTreeSet<String>,
    ) -> Option<String> {
        let Running { log, container_id } = running;
        let done = match size.map(|size| due(size, max_size)) {
            Ok(Due::Nothing) => return None,
            Ok(Due::Reopen) => self.reopen(container_id).await,
            Ok(Due::Rotate) => self.rotate(log, container_id).await,
            Err(error) => Err(RotationError::Look(error)),
        };
        let (pod, container) = (&log.pod, &log.container);
        let Err(error) = done else {
            tracing::debug!(%pod, container, "log rotated");
            return None;
        };
        let error = telemetry::chain(&error);
        if failing.contains(container_id) {
            tracing::debug!(%pod, container, error, "log not rotated yet");
        } else {
            tracing::warn!(%pod, container, error, "log not rotated, tried again");
        }
        Some(container_id.clone())
    }

    async fn reopen(&self, container_id: &str) -> Result<(), RotationError> {
        let reopened = self.runtime.reopen_container_log(container_id).await;
        reopened.map_err(RotationError::Reopen)
    }

    async fn rotate(&self, log: &LogTarget, container_id: &str) -> Result<(), RotationError> {
        let found = self.host.rotated_logs(log).await;
        let found = found.map_err(RotationError::Look)?;
        let under_way = self.queue.of(log);
        let changes = rotated::preparation(&found, self.settings.max_files, &under_way);
        let mut compressions = Vec::new();
        for change in changes {
            if let LogChange::Compress(name) = change {
                compressions.push(name);
                continue;
            }
            let changed = self.host.change_log(log, change).await;
            changed.map_err(RotationError::Change)?;
        }
        let name = rotated::next_name(&found, self.clock.now());
        let aside = LogChange::SetAside(name.clone());
        let aside = self.host.change_log(log, aside).await;
        aside.map_err(RotationError::Change)?;
        // What is lost of these is found with the next rotation.
        for name in compressions {
            self.queue.push(log, name);
        }
        let Err(error) = self.reopen(container_id).await else {
            return Ok(());
        };
        // Readers find the log where they look for it. Should the runtime open it after
        // all, it goes on at the end of that file.
        if let Err(error) = self.host.change_log(log, LogChange::PutBack(name)).await {
            let error = telemetry::chain(&error);
            let (pod, container) = (&log.pod, &log.container);
            tracing::warn!(%pod, container, error, "rotated log not put back");
        }
        Err(error)
    }
}

/// The containers of a pod that run.
fn running_of(observation: &v1::PodObservation) -> Vec<Running> {
    let Some(Ok(pod)) = observation.pod.clone().map(PodIdentity::try_from) else {
        return Vec::new();
    };
    let containers = observation.containers.iter();
    containers
        .filter(|container| container.state() == v1::RuntimeState::Running)
        .map(|container| Running {
            log: LogTarget {
                pod: pod.clone(),
                container: container.name.clone(),
                attempt: container.restart_count,
            },
            container_id: container.id.clone(),
        })
        .collect()
}

/// The containers of a listed pod that run.
fn listed_running(pod: &RuntimePod) -> impl Iterator<Item = Running> {
    let containers = pod.containers.iter();
    let running = containers.filter(|it| it.state == ContainerState::ContainerRunning);
    running.map(|container| Running {
        log: LogTarget {
            pod: pod.identity.clone(),
            container: container.name.clone(),
            attempt: container.attempt,
        },
        container_id: container.id.clone(),
    })
}

#[cfg(test)]
mod tests;
