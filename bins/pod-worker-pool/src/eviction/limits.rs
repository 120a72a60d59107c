//! Evictions of pods that have more on the node's disk than they may.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use eviction::Candidate;
use futures_util::StreamExt as _;
use pod_lifecycle::DesiredPod;

use super::ingredients::{IMMEDIATE_GRACE, Ingredients, PERIOD, kill};

/// Measures pods with limits, and ends those that have more, for ever.
pub(super) struct StorageLimits {
    with: Arc<Ingredients>,
    known: KnownLimits,
}

impl StorageLimits {
    pub(super) fn new(with: Arc<Ingredients>) -> StorageLimits {
        StorageLimits {
            with,
            known: KnownLimits::default(),
        }
    }

    pub(super) async fn run(mut self) -> Infallible {
        let settings = &self.with.settings;
        let period = settings.storage_look_period;
        let Some(period) = period.filter(|_| settings.local_storage_limits) else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(PERIOD).await;
            if self.enforce().await {
                tokio::time::sleep(period.saturating_sub(PERIOD)).await;
            }
        }
    }

    /// Ends every pod that has too much; whether there was one with limits.
    async fn enforce(&mut self) -> bool {
        let Some(active) = self.with.active().await else {
            return false;
        };
        let limited = self.known.of(&active);
        if limited.is_empty() {
            return false;
        }
        let layout = self.with.gauge.look(&[]).await.layout;
        let measured = self.with.gauge.measure_limited(limited).await;
        let mut measured = std::pin::pin!(measured);
        while let Some((pod, candidate, usage)) = measured.next().await {
            if candidate.is_spared {
                continue;
            }
            if let Some(message) = eviction::exceeded_limit(&candidate, &usage, layout) {
                let kill = kill(IMMEDIATE_GRACE, message, false);
                self.with.evict(&pod, kill).await;
            }
        }
        true
    }
}

/// Limits of pods by UID, of the version whose hash is beside them.
#[derive(Debug, Default)]
struct KnownLimits(HashMap<String, (String, Option<Candidate>)>);

impl KnownLimits {
    /// Those of these pods that have limits; forgets all others.
    fn of(&mut self, pods: &[DesiredPod]) -> Vec<(DesiredPod, Candidate)> {
        let mut before = std::mem::take(&mut self.0);
        let mut limited = Vec::new();
        for pod in pods {
            let (uid, hash) = (pod.identity().uid(), pod.document().hash());
            let known = before.remove(uid).filter(|(known, _)| known == hash);
            let candidate = match known {
                Some((_, candidate)) => candidate,
                None => pod.decode().ok().map(|pod| Candidate::of(&pod)),
            };
            let candidate = candidate.filter(Candidate::has_storage_limits);
            if let Some(candidate) = &candidate {
                limited.push((pod.clone(), candidate.clone()));
            }
            self.0.insert(uid.to_owned(), (hash.to_owned(), candidate));
        }
        limited
    }
}
