//! Evictions: looks at memory, disks and process ids of the node, and at what pods with
//! limits have on its disk; frees what no pod needs when the node is short of something;
//! and ends one pod if that is not enough.
//!
//! What is too little, and which pod goes first, is decided in the crate `eviction`. A pod
//! that goes is ended by its worker like any other, with its reason in its record, so
//! another run of this process neither forgets that nor ends a second pod for it: what
//! the records tell is under way ([`under_way`]). What a run has seen of the node is lost
//! with it: grace of soft thresholds and transitions of conditions begin anew, as in a
//! kubelet.

mod conditions;
mod ingredients;
mod limits;
mod measure;
#[cfg(test)]
mod tests;
mod under_way;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1::WorkerPhase;
use eviction::{NodeCondition, Pressure, Resource, Threshold};
use node_config::EvictionSettings;
use pod_lifecycle::DesiredPod;
use tokio::time::Instant;

use ingredients::{IMMEDIATE_GRACE, PERIOD, kill};
use limits::StorageLimits;
use measure::Look;
use under_way::is_under_way;

pub(crate) use conditions::NodeConditions;
pub(crate) use ingredients::Ingredients;
pub(crate) use measure::Gauge;

/// How often it is looked at while a pod is on its way out.
const PERIOD_UNDER_WAY: Duration = Duration::from_secs(1);

/// Longest time that is waited for dead containers and unused images to go.
const FREEING_MAY_TAKE: Duration = Duration::from_secs(60);

/// Looks at the node for ever.
pub(crate) struct Evictions {
    with: Arc<Ingredients>,
    thresholds: Vec<Threshold>,
    pressure: Pressure,
    began: Instant,
}

impl std::fmt::Debug for Evictions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Evictions").finish_non_exhaustive()
    }
}

impl Evictions {
    pub(crate) fn new(with: Ingredients) -> Evictions {
        let thresholds = eviction::thresholds(&with.settings).unwrap_or_else(|error| {
            // The supervisor refuses such a configuration.
            tracing::error!(%error, field = error.field, "no pod is evicted for want of anything");
            Vec::new()
        });
        Evictions {
            thresholds,
            pressure: Pressure::default(),
            began: Instant::now(),
            with: Arc::new(with),
        }
    }

    /// Looks, frees and evicts, again and again. Measuring files takes its time, and does
    /// not hold up the look at what the node has left.
    pub(crate) async fn run(self) -> Infallible {
        let limits = StorageLimits::new(Arc::clone(&self.with));
        tokio::join!(self.watch_node(), limits.run()).0
    }

    async fn watch_node(mut self) -> Infallible {
        loop {
            let pause = self.synchronize().await;
            tokio::time::sleep(pause).await;
        }
    }

    /// One look, and what follows from it. Answers with when to look again.
    async fn synchronize(&mut self) -> Duration {
        let look = self.with.gauge.look(&self.thresholds).await;
        let starved = self.pressure.look(
            self.began.elapsed(),
            &look.observations,
            &self.thresholds,
            self.with.settings.pressure_transition_period,
        );
        self.tell_conditions();
        if self.began.elapsed() < PERIOD {
            return PERIOD;
        }
        let Some(deciding) = starved.first() else {
            return PERIOD;
        };
        let now = self.with.clock.now();
        let Some(finished) = self.finished().await else {
            return PERIOD;
        };
        if is_under_way(&self.with.records.all(), &finished, now) {
            return PERIOD_UNDER_WAY;
        }
        let resource = deciding.signal.resource();
        let what = format!("Attempting to reclaim {resource}");
        self.with.events.node_warning("EvictionThresholdMet", &what);
        if self.freeing_was_enough(deciding, &look).await {
            tracing::info!(%resource, "enough was freed without evicting a pod");
            return PERIOD;
        }
        match self.evict_one(&starved, &look).await {
            true => PERIOD_UNDER_WAY,
            false => PERIOD,
        }
    }

    fn tell_conditions(&self) {
        let conditions = self.pressure.conditions().to_vec();
        let before = self.with.conditions.replace(conditions.clone());
        if before != conditions {
            let names = |conditions: &[NodeCondition]| {
                let names: Vec<&str> = conditions.iter().map(|it| it.name()).collect();
                names.join(" ")
            };
            tracing::warn!(
                now = names(&conditions),
                before = names(&before),
                "the node's conditions changed"
            );
        }
    }

    /// Frees what no pod needs where that is on the disk in question, and says whether no
    /// threshold is met any more, with its minimum reclaim.
    async fn freeing_was_enough(&self, deciding: &Threshold, look: &Look) -> bool {
        let resource = deciding.signal.resource();
        if !matches!(resource, Resource::EphemeralStorage | Resource::Inodes) {
            return false;
        }
        let images = look.layout.is_freed_by_collection(deciding.signal);
        let freeing = self.with.garbage.free_space(images);
        if tokio::time::timeout(FREEING_MAY_TAKE, freeing)
            .await
            .is_err()
        {
            tracing::warn!(%resource, "removing what no pod needs takes long");
        }
        let after = self.with.gauge.look(&self.thresholds).await;
        after.observations.met(&self.thresholds, true).is_empty()
    }

    /// Ends the pod that has to go first; whether there was one.
    async fn evict_one(&self, starved: &[Threshold], look: &Look) -> bool {
        let Some(deciding) = starved.first() else {
            return false;
        };
        let resource = deciding.signal.resource();
        let Some(active) = self.with.active().await else {
            return false;
        };
        let Some(mut pods) = self.with.gauge.measure(&active, deciding.signal).await else {
            tracing::warn!(%resource, "nobody knows what pods use: the runtime does not answer");
            return false;
        };
        // Measuring takes a while on a slow disk, and what a pod loses is for good.
        let after = self.with.gauge.look(&self.thresholds).await;
        if after.observations.met(starved, true).is_empty() {
            tracing::info!(%resource, "there was enough again before a pod was chosen");
            return false;
        }
        eviction::rank(&mut pods, deciding.signal, look.layout);
        for (candidate, usage) in &pods {
            if candidate.is_spared {
                continue;
            }
            let Some(pod) = active
                .iter()
                .find(|it| it.identity().uid() == candidate.uid)
            else {
                continue;
            };
            let message =
                eviction::low_on_resource(starved, &look.observations, candidate, usage.as_ref());
            let kill = kill(grace(deciding, &self.with.settings, pod), message, true);
            if self.with.evict(pod, kill).await {
                return true;
            }
        }
        tracing::warn!(%resource, pods = pods.len(), "no pod can be evicted");
        false
    }

    /// UIDs of workers that have nothing left to do.
    async fn finished(&self) -> Option<BTreeSet<String>> {
        let workers = self.with.pool.summaries().await.ok()?.into_iter();
        let finished = workers.filter(|(_, worker)| worker.phase == WorkerPhase::Finished);
        Some(finished.map(|(uid, _)| uid).collect())
    }
}

/// A pod that goes at once has a moment; for a soft threshold it has its own grace, within
/// what is configured.
fn grace(threshold: &Threshold, settings: &EvictionSettings, pod: &DesiredPod) -> Duration {
    if threshold.is_hard() {
        return IMMEDIATE_GRACE;
    }
    let own = pod.spec_grace();
    settings.max_pod_grace.map_or(own, |most| own.min(most))
}
