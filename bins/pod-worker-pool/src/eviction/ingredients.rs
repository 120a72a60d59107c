//! What both loops of evictions work with, and how they end a pod.

use std::time::Duration;

use clock::WallClock;
use node_config::EvictionSettings;
use pod::EVICTED;
use pod_lifecycle::{DesiredPod, KillRequest};

use super::conditions::NodeConditions;
use super::measure::Gauge;
use crate::events::Events;
use crate::garbage::GarbageCollector;
use crate::pool::PoolHandle;
use crate::record::Records;

/// How often the node is looked at (the kubelet's monitoring interval). For so long after
/// its start a run ends no pod: it does not know all of them yet.
pub(super) const PERIOD: Duration = Duration::from_secs(10);

/// Grace of a pod that goes at once (the kubelet's `immediateEvictionGracePeriod`).
pub(super) const IMMEDIATE_GRACE: Duration = Duration::from_secs(1);

/// What evictions work with.
pub(crate) struct Ingredients {
    pub(crate) settings: EvictionSettings,
    pub(crate) gauge: Gauge,
    pub(crate) pool: PoolHandle,
    pub(crate) records: Records,
    pub(crate) garbage: GarbageCollector,
    pub(crate) events: Events,
    pub(crate) clock: WallClock,
    pub(crate) conditions: NodeConditions,
}

impl Ingredients {
    /// The pods that run or are about to.
    pub(super) async fn active(&self) -> Option<Vec<DesiredPod>> {
        self.pool.active().await.ok()
    }

    pub(super) async fn evict(&self, pod: &DesiredPod, kill: KillRequest) -> bool {
        let identity = pod.identity();
        let (reason, message) = kill
            .eviction
            .as_ref()
            .map(|it| (it.reason.clone(), it.message.clone()))
            .unwrap_or_default();
        let is_evicted = self.pool.evict(identity.uid(), kill).await;
        if !matches!(is_evicted, Ok(true)) {
            return false;
        }
        tracing::warn!(pod = %identity, message, "the pod is evicted");
        self.events.warning(identity, "", &reason, &message);
        true
    }
}

/// How a pod is ended that is evicted.
pub(super) fn kill(grace: Duration, message: String, is_disruption: bool) -> KillRequest {
    let eviction = pod_lifecycle::EvictionRequest {
        reason: EVICTED.to_owned(),
        message,
        is_disruption,
    };
    KillRequest::evict(grace, eviction)
}
