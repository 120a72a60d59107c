//! [`Search`]: frees what no pod needs, and if that is not enough finds out what pods use.
//!
//! Both may take minutes on a slow disk. They go on beside the looks at the node, which
//! may be short of something more urgent by then.

use std::sync::Arc;
use std::time::Duration;

use eviction::{Candidate, PodUsage, Resource, Threshold};
use pod_lifecycle::DesiredPod;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::ingredients::{Ingredients, PERIOD};
use super::measure::Look;

/// How long dead containers and unused images may go without anything being freed.
const FREEING_MAY_TAKE: Duration = Duration::from_secs(60);

/// A search under way; it ends when this is dropped. What it has asked the garbage
/// collection for is done all the same.
pub(super) struct Search {
    deciding: Threshold,
    work: JoinSet<Option<Found>>,
}

/// What a search has found: not enough was freed.
pub(super) struct Found {
    /// What the node was short of when the search began; the first one decides.
    pub(super) starved: Vec<Threshold>,
    /// The look that said so.
    pub(super) look: Look,
    /// The pods that ran or were about to.
    pub(super) active: Vec<DesiredPod>,
    /// What each uses.
    pub(super) pods: Vec<(Candidate, Option<PodUsage>)>,
}

impl Search {
    /// Begins one for want of something.
    pub(super) fn begin(
        with: &Arc<Ingredients>,
        thresholds: &[Threshold],
        starved: Vec<Threshold>,
        look: Look,
    ) -> Option<Search> {
        let deciding = *starved.first()?;
        let (with, thresholds) = (Arc::clone(with), thresholds.to_vec());
        let mut work = JoinSet::new();
        work.spawn(async move { search(&with, &thresholds, starved, look).await });
        Some(Search { deciding, work })
    }

    /// Whether it goes on although the node is short of this now: only what is dealt with
    /// earlier and is another condition of the node makes it begin anew.
    pub(super) fn goes_on(&self, deciding: &Threshold) -> bool {
        let (own, other) = (self.deciding.signal, deciding.signal);
        own <= other || own.condition() == other.condition()
    }

    /// Waits for its end: what it has found, if a pod has to go.
    pub(super) async fn ended(&mut self) -> Option<Found> {
        match self.work.join_next().await? {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, "nobody knows which pod has to go");
                None
            }
        }
    }
}

async fn search(
    with: &Ingredients,
    thresholds: &[Threshold],
    starved: Vec<Threshold>,
    look: Look,
) -> Option<Found> {
    let signal = starved.first()?.signal;
    let resource = signal.resource();
    if freeing_was_enough(with, thresholds, signal, &look).await {
        tracing::info!(%resource, "enough was freed without evicting a pod");
        return None;
    }
    let active = with.active().await?;
    let Some(pods) = with.gauge.measure(&active, signal, look.layout).await else {
        tracing::warn!(%resource, "nobody knows what pods use: the runtime does not answer");
        return None;
    };
    Some(Found {
        starved,
        look,
        active,
        pods,
    })
}

/// Frees what no pod needs where that is on the disk in question, and says whether no
/// threshold is met any more, with its minimum reclaim. Waits for as long as more and more
/// is free.
async fn freeing_was_enough(
    with: &Ingredients,
    thresholds: &[Threshold],
    signal: eviction::Signal,
    look: &Look,
) -> bool {
    let resource = signal.resource();
    if !matches!(resource, Resource::EphemeralStorage | Resource::Inodes) {
        return false;
    }
    let left = |look: &Look| look.observations.get(signal).map(|found| found.available);
    let images = look.layout.is_freed_by_collection(signal);
    let mut freeing = std::pin::pin!(with.garbage.free_space(images));
    let (mut most, mut until) = (left(look), Instant::now() + FREEING_MAY_TAKE);
    loop {
        let freed = tokio::time::timeout(PERIOD, freeing.as_mut()).await;
        let after = with.gauge.look(thresholds).await;
        if after.observations.met(thresholds, true).is_empty() {
            return true;
        }
        if freed.is_ok() {
            return false;
        }
        if left(&after) > most {
            most = left(&after);
            until = Instant::now() + FREEING_MAY_TAKE;
        } else if Instant::now() >= until {
            tracing::warn!(%resource, "removing what no pod needs takes long and frees nothing");
            return false;
        }
    }
}
