//! Pods that arrived and were turned away: there is no room for them, or another source has
//! them. config-sourcer sends each pod once. So the UID, size and reason of a pod that was
//! turned away are kept, without the pod. When it could be accepted, sync-loop opens the
//! stream again, and the snapshot brings it.

use std::collections::BTreeMap;

use pod::{PodIdentity, PodSource};

use super::desired_pods::{DesiredPods, MAX_BYTES, MAX_PODS, Uid};

/// Lines for people about one source; more say nothing new.
const MAX_LINES: usize = 32;

/// What the pods that are desired or being stopped take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// How many there are.
    pub pods: usize,
    /// Bytes of their JSON.
    pub bytes: usize,
}

impl Load {
    /// That of desired pods, and of so many departed ones with so many bytes: they count,
    /// too.
    pub(crate) fn of(pods: &DesiredPods, departed: (usize, usize)) -> Load {
        Load {
            pods: pods.len() + departed.0,
            bytes: pods.json_bytes() + departed.1,
        }
    }
}

/// Why a pod of a source, with so many bytes of JSON, cannot be taken now.
pub(crate) fn refusal(
    source: PodSource,
    uid: &str,
    bytes: usize,
    pods: &DesiredPods,
    load: Load,
) -> Option<String> {
    let known = pods.document(uid);
    let other = known.map(|known| known.source());
    if let Some(other) = other.filter(|other| *other != source) {
        Some(format!(
            "source {other} has this pod too, and had it first; that of source {source} waits"
        ))
    } else if known.is_none() && load.pods >= MAX_PODS {
        Some(format!("this node takes at most {MAX_PODS} pods"))
    } else if load.bytes + bytes - known.map_or(0, |known| known.json().len()) > MAX_BYTES {
        Some(format!("all pods together may have {MAX_BYTES} bytes"))
    } else {
        None
    }
}

/// A pod that was turned away.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    /// Which.
    pub identity: PodIdentity,
    /// Of its JSON.
    pub bytes: usize,
    /// Why, for people.
    pub reason: String,
}

/// Those of one source.
#[derive(Clone, Debug, Default)]
pub(crate) struct TurnedAway(BTreeMap<Uid, Refused>);

impl TurnedAway {
    /// Notes one; whether that is news.
    pub(crate) fn note(&mut self, refused: &Refused) -> bool {
        let uid = refused.identity.uid();
        if self.0.len() >= MAX_PODS && !self.0.contains_key(uid) {
            return false;
        }
        let before = self.0.insert(uid.into(), refused.clone());
        before.is_none_or(|before| before.reason != refused.reason)
    }

    /// Forgets one: it was taken, or its source has it no longer.
    pub(crate) fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// Forgets those that their source does not have.
    pub(crate) fn retain(&mut self, has: impl Fn(&str) -> bool) {
        self.0.retain(|uid, _| has(uid));
    }

    /// Whether one of them could be taken now.
    pub(crate) fn could_be_taken(&self, source: PodSource, pods: &DesiredPods, load: Load) -> bool {
        let mut all = self.0.iter();
        all.any(|(uid, it)| refusal(source, uid, it.bytes, pods, load).is_none())
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// They, a line each, for people.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let more = self.0.len().saturating_sub(MAX_LINES);
        let line = |it: &Refused| format!("pod {}: {}", it.identity, it.reason);
        let lines = self.0.values().take(MAX_LINES).map(line);
        lines.chain((more > 0).then(|| format!("{more} more pods are turned away")))
    }
}
