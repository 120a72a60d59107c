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
mod images_at;
mod ingredients;
mod limits;
mod measure;
mod search;
#[cfg(test)]
mod tests;
mod under_way;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1::WorkerPhase;
use eviction::{NodeCondition, Pressure, Threshold};
use node_config::EvictionSettings;
use pod_lifecycle::DesiredPod;
use tokio::time::Instant;

use ingredients::{IMMEDIATE_GRACE, PERIOD, kill};
use limits::StorageLimits;
use search::{Found, Search};
use under_way::{CLEAN_UP_MAY_TAKE, is_under_way};

pub(crate) use conditions::NodeConditions;
pub(crate) use images_at::{ImagesAt, ask as ask_where_images_are};
pub(crate) use ingredients::Ingredients;
pub(crate) use measure::Gauge;

/// How often it is looked at while a pod is on its way out.
const PERIOD_UNDER_WAY: Duration = Duration::from_secs(1);

/// Looks at the node for ever.
pub(crate) struct Evictions {
    with: Arc<Ingredients>,
    thresholds: Vec<Threshold>,
    pressure: Pressure,
    began: Instant,
    /// What is done for what the node is short of.
    search: Option<Search>,
    /// The last pod that this process evicted, and until when no other goes for it.
    evicted: Option<(String, Instant)>,
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
            search: None,
            evicted: None,
            with: Arc::new(with),
        }
    }

    /// Looks, frees and evicts, again and again. Freeing and measuring files take their
    /// time, and do not hold up the look at what the node has left.
    pub(crate) async fn run(self) -> Infallible {
        let limits = StorageLimits::new(Arc::clone(&self.with));
        tokio::join!(self.watch_node(), limits.run()).0
    }

    async fn watch_node(mut self) -> Infallible {
        loop {
            let pause = self.synchronize().await;
            let mut next = Instant::now() + pause;
            if let Some(search) = &mut self.search
                && let Ok(found) = tokio::time::timeout_at(next, search.ended()).await
            {
                self.search = None;
                if let Some(found) = found
                    && self.evict_one(found).await
                {
                    next = Instant::now() + PERIOD_UNDER_WAY;
                }
            }
            tokio::time::sleep_until(next).await;
        }
    }

    /// One look, and what follows from it at once. Answers with when to look again.
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
            self.search = None;
            return PERIOD;
        };
        if self.search.as_ref().is_some_and(|it| it.goes_on(deciding)) {
            return PERIOD;
        }
        let now = self.with.clock.now();
        let Ok(workers) = self.with.pool.summaries().await else {
            return PERIOD;
        };
        let in_phases = |phases: &[WorkerPhase]| -> BTreeSet<String> {
            let found = workers.iter().filter(|it| phases.contains(&it.1.phase));
            found.map(|(uid, _)| uid.clone()).collect()
        };
        let finished = in_phases(&[WorkerPhase::Finished]);
        let ending = in_phases(&[WorkerPhase::Terminating, WorkerPhase::Terminated]);
        // By the records another process goes on, whose clock may have been set since.
        let has_time =
            |(uid, until): &(String, Instant)| Instant::now() < *until && ending.contains(uid);
        let is_own_under_way = self.evicted.as_ref().is_some_and(has_time);
        if is_own_under_way || is_under_way(&self.with.records.all(), &finished, now) {
            return PERIOD_UNDER_WAY;
        }
        let resource = deciding.signal.resource();
        let what = format!("Attempting to reclaim {resource}");
        self.with.events.node_warning("EvictionThresholdMet", &what);
        self.search = Search::begin(&self.with, &self.thresholds, starved, look);
        PERIOD
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

    /// Ends the pod that has to go first; whether there was one.
    async fn evict_one(&mut self, found: Found) -> bool {
        let Found {
            starved,
            look,
            active,
            mut pods,
        } = found;
        let Some(deciding) = starved.first() else {
            return false;
        };
        let resource = deciding.signal.resource();
        // Measuring takes a while on a slow disk, and what a pod loses is for good. What else
        // is short may need another pod to go: the next look searches for that.
        let after = self.with.gauge.look(&self.thresholds).await;
        let measured_for = std::slice::from_ref(deciding);
        if after.observations.met(measured_for, true).is_empty() {
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
                eviction::low_on_resource(&starved, &look.observations, candidate, usage.as_ref());
            let grace = grace(deciding, &self.with.settings, pod);
            if self.with.evict(pod, kill(grace, message, true)).await {
                let until = Instant::now() + grace + CLEAN_UP_MAY_TAKE;
                self.evicted = Some((candidate.uid.clone(), until));
                return true;
            }
        }
        tracing::warn!(%resource, pods = pods.len(), "no pod can be evicted");
        false
    }
}

/// A pod that goes at once has a moment, so also for a soft threshold where no longest grace
/// is configured, as with a kubelet; else it has its own grace, within that.
fn grace(threshold: &Threshold, settings: &EvictionSettings, pod: &DesiredPod) -> Duration {
    if threshold.is_hard() {
        return IMMEDIATE_GRACE;
    }
    let most = settings.max_pod_grace.unwrap_or(IMMEDIATE_GRACE);
    pod.spec_grace().min(most)
}
