//! Probe verdicts by container instance: what sync-loop last told.

use std::collections::BTreeMap;

use bulkhead_api::v1::{ProbeKind, ProbeResult, ProbeVerdict};
use ipc::limits::MAX_CONTAINER_ID_BYTES;

/// Verdicts that are kept: three kinds for each of ten containers of 250 pods,
/// and as many again of instances that were replaced.
pub const MAX_VERDICTS: usize = 15_000;

/// What is known, by container id and kind of probe.
#[derive(Debug, Default)]
pub struct Verdicts {
    known: BTreeMap<(String, i32), StoredVerdict>,
    /// Counts insertions, so that the oldest can be dropped when it is full.
    sequence: u64,
}

#[derive(Debug)]
struct StoredVerdict {
    pod_uid: String,
    success: bool,
    sequence: u64,
}

impl Verdicts {
    /// The verdict on a container instance, if there is one.
    #[must_use]
    pub fn get(&self, container_id: &str, kind: ProbeKind) -> Option<bool> {
        self.known
            .get(&(container_id.to_owned(), kind as i32))
            .map(|known| known.success)
    }

    /// Takes a verdict; returns whether it is news. One without a result says
    /// nothing and takes nothing back.
    pub fn set(&mut self, verdict: &ProbeVerdict) -> bool {
        let success = match verdict.result() {
            ProbeResult::Success => true,
            ProbeResult::Failure => false,
            ProbeResult::Unspecified => return false,
        };
        if verdict.kind() == ProbeKind::Unspecified
            || verdict.container_id.is_empty()
            || verdict.container_id.len() > MAX_CONTAINER_ID_BYTES
        {
            return false;
        }
        self.sequence += 1;
        let known = StoredVerdict {
            pod_uid: verdict.pod_uid.clone(),
            success,
            sequence: self.sequence,
        };
        let before = self
            .known
            .insert((verdict.container_id.clone(), verdict.kind), known);
        if self.known.len() > MAX_VERDICTS {
            self.drop_oldest();
        }
        before.is_none_or(|before| before.success != success)
    }

    /// Forgets a pod.
    pub fn remove_pod(&mut self, pod_uid: &str) {
        self.known.retain(|_, known| known.pod_uid != pod_uid);
    }

    /// Makes room for a tenth, so that this is rare.
    fn drop_oldest(&mut self) {
        let mut sequences: Vec<u64> = self.known.values().map(|known| known.sequence).collect();
        sequences.sort_unstable();
        if let Some(limit) = sequences.get(MAX_VERDICTS / 10).copied() {
            self.known.retain(|_, known| known.sequence > limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(id: &str, result: ProbeResult) -> ProbeVerdict {
        ProbeVerdict {
            pod_uid: "u".to_owned(),
            container_id: id.to_owned(),
            kind: ProbeKind::Readiness.into(),
            result: result.into(),
            ..ProbeVerdict::default()
        }
    }

    #[test]
    fn only_a_changed_verdict_is_news() {
        let mut verdicts = Verdicts::default();
        assert!(verdicts.set(&verdict("a", ProbeResult::Success)));
        assert!(!verdicts.set(&verdict("a", ProbeResult::Success)));
        assert!(verdicts.set(&verdict("a", ProbeResult::Failure)));
        assert_eq!(verdicts.get("a", ProbeKind::Readiness), Some(false));
        assert_eq!(verdicts.get("a", ProbeKind::Startup), None);
        assert_eq!(verdicts.get("b", ProbeKind::Readiness), None);
    }

    #[test]
    fn unknown_takes_nothing_back() {
        let mut verdicts = Verdicts::default();
        verdicts.set(&verdict("a", ProbeResult::Success));
        assert!(!verdicts.set(&verdict("a", ProbeResult::Unspecified)));
        assert_eq!(verdicts.get("a", ProbeKind::Readiness), Some(true));
    }

    #[test]
    fn the_oldest_go_when_it_is_full() {
        let mut verdicts = Verdicts::default();
        for number in 0..=MAX_VERDICTS {
            verdicts.set(&verdict(&format!("c{number}"), ProbeResult::Success));
        }
        assert!(verdicts.known.len() <= MAX_VERDICTS);
        assert_eq!(verdicts.get("c0", ProbeKind::Readiness), None);
        let newest = format!("c{MAX_VERDICTS}");
        assert_eq!(verdicts.get(&newest, ProbeKind::Readiness), Some(true));
    }

    #[test]
    fn a_hostile_verdict_is_dropped() {
        let mut verdicts = Verdicts::default();
        assert!(!verdicts.set(&verdict("", ProbeResult::Success)));
        let long = "x".repeat(MAX_CONTAINER_ID_BYTES + 1);
        assert!(!verdicts.set(&verdict(&long, ProbeResult::Success)));
        assert!(verdicts.known.is_empty());
    }
}
