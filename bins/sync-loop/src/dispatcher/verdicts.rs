//! What prober says: the verdicts of probes, by pod and container instance, and
//! tries that did not simply succeed.
//!
//! A verdict stays until the prober takes it back: missing from a snapshot means
//! "not known yet". All of a pod's verdicts travel with each of its updates.

use std::collections::BTreeMap;

use bulkhead_api::v1::watch_results_response::Message;
use bulkhead_api::v1::{
    Event, EventType, PodReference, ProbeKind, ProbeResult, ProbeTry, ProbeTryOutcome, ProbeVerdict,
};
use ipc::limits::{
    MAX_CONTAINER_ID_BYTES, MAX_CONTAINER_NAME_BYTES, MAX_PROBE_TEXT_BYTES, truncate,
};

use super::cause::Cause;
use super::desired_pods::Uid;

/// Instances of one container whose verdicts of one kind are kept: the present
/// one, and the one before for a verdict that comes late.
const INSTANCES_KEPT: usize = 2;

/// Verdicts of one pod: 20 containers with three probes and two instances each.
const MAX_VERDICTS_PER_POD: usize = 120;

/// Pods that may have verdicts, desired or not.
const MAX_PODS: usize = ipc::limits::MAX_PODS;

/// All verdicts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdicts {
    /// Oldest first within a pod.
    by_pod: BTreeMap<Uid, Vec<ProbeVerdict>>,
}

/// What a verdict means for what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recorded {
    /// It says something new.
    Changed,
    /// It was known.
    Unchanged,
    /// It is malformed, or there is no room.
    Refused,
}

/// What a message leads to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ProbeEffect {
    /// status-syncer is told a verdict that says something new.
    Changed(ProbeVerdict),
    /// A pod is to be looked at, if it is desired.
    Sync {
        /// The pod.
        pod_uid: String,
        /// Why.
        cause: Cause,
    },
    /// A desired pod has this event; the event has the pod's uid alone.
    Event(Event),
}

impl Verdicts {
    /// Takes a message in.
    pub(crate) fn on(&mut self, message: Message) -> Vec<ProbeEffect> {
        match message {
            Message::Verdict(verdict) => {
                if self.record(verdict.clone()) != Recorded::Changed {
                    return Vec::new();
                }
                let sync = sync_for(&verdict);
                let told = std::iter::once(ProbeEffect::Changed(verdict));
                told.chain(sync).collect()
            }
            Message::Attempt(attempt) => event_of(attempt)
                .map(ProbeEffect::Event)
                .into_iter()
                .collect(),
            Message::Removed(removed) => {
                self.remove(&removed.container_id, removed.kind());
                Vec::new()
            }
            // What is missing from a snapshot is not known yet, so there is
            // nothing to do at its begin or end.
            Message::SnapshotBegin(_) | Message::SnapshotEnd(_) => Vec::new(),
        }
    }

    /// Takes a verdict in.
    fn record(&mut self, mut verdict: ProbeVerdict) -> Recorded {
        if !is_well_formed(&verdict) {
            return Recorded::Refused;
        }
        truncate(&mut verdict.message, MAX_PROBE_TEXT_BYTES);
        if !self.by_pod.contains_key(verdict.pod_uid.as_str()) && self.by_pod.len() >= MAX_PODS {
            return Recorded::Refused;
        }
        let known = self
            .by_pod
            .entry(verdict.pod_uid.as_str().into())
            .or_default();
        let same = |other: &ProbeVerdict| {
            other.container_id == verdict.container_id && other.kind == verdict.kind
        };
        if let Some(known) = known.iter_mut().find(|other| same(other)) {
            let changed = known.result != verdict.result;
            *known = verdict;
            return if changed {
                Recorded::Changed
            } else {
                Recorded::Unchanged
            };
        }
        make_room(known, &verdict);
        known.push(verdict);
        Recorded::Changed
    }

    /// Forgets what is known of one probe of a container instance.
    fn remove(&mut self, container_id: &str, kind: ProbeKind) {
        for verdicts in self.by_pod.values_mut() {
            verdicts
                .retain(|verdict| verdict.container_id != container_id || verdict.kind() != kind);
        }
        self.by_pod.retain(|_, verdicts| !verdicts.is_empty());
    }

    /// Keeps only the pods that `keep` names.
    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.by_pod.retain(|uid, _| keep(uid));
    }

    /// What is known of a pod.
    #[must_use]
    pub(crate) fn of(&self, uid: &str) -> Vec<ProbeVerdict> {
        self.by_pod.get(uid).cloned().unwrap_or_default()
    }

    /// Everything that is known.
    #[must_use]
    pub(crate) fn all(&self) -> Vec<ProbeVerdict> {
        self.by_pod.values().flatten().cloned().collect()
    }
}

/// The pod of a verdict is looked at, unless the verdict says that a container is
/// alive: everybody assumes that.
fn sync_for(verdict: &ProbeVerdict) -> Option<ProbeEffect> {
    let success = verdict.result() == ProbeResult::Success;
    let probe = match verdict.kind() {
        ProbeKind::Readiness => "readiness",
        ProbeKind::Startup => "startup",
        ProbeKind::Liveness | ProbeKind::Unspecified if success => return None,
        ProbeKind::Liveness | ProbeKind::Unspecified => "liveness",
    };
    Some(ProbeEffect::Sync {
        pod_uid: verdict.pod_uid.clone(),
        cause: Cause::Probe {
            probe,
            container: verdict.container_name.clone(),
            success,
        },
    })
}

/// A try is an event of its pod, as the kubelet records it; only verdicts lead to
/// anything.
fn event_of(attempt: ProbeTry) -> Option<Event> {
    let reason = match attempt.outcome() {
        ProbeTryOutcome::Warning => "ProbeWarning",
        ProbeTryOutcome::Failure | ProbeTryOutcome::Error => "Unhealthy",
        ProbeTryOutcome::Unspecified => return None,
    };
    let (mut container, mut message) = (attempt.container_name, attempt.message);
    truncate(&mut container, MAX_CONTAINER_NAME_BYTES);
    truncate(&mut message, MAX_PROBE_TEXT_BYTES);
    Some(Event {
        pod: Some(PodReference {
            uid: attempt.pod_uid,
            ..PodReference::default()
        }),
        container,
        r#type: EventType::Warning.into(),
        reason: reason.to_owned(),
        message,
        unix_nanos: attempt.unix_nanos,
        reporter: topology::Process::Prober.name().to_owned(),
        count: 1,
        ..Event::default()
    })
}

/// Drops the oldest instance of the same container and probe, and the oldest
/// verdict of a pod that has far too many.
fn make_room(known: &mut Vec<ProbeVerdict>, verdict: &ProbeVerdict) {
    let same_probe = |other: &ProbeVerdict| {
        other.container_name == verdict.container_name && other.kind == verdict.kind
    };
    if known.iter().filter(|other| same_probe(other)).count() >= INSTANCES_KEPT
        && let Some(oldest) = known.iter().position(same_probe)
    {
        known.remove(oldest);
    }
    if known.len() >= MAX_VERDICTS_PER_POD {
        known.remove(0);
    }
}

fn is_well_formed(verdict: &ProbeVerdict) -> bool {
    (1..=MAX_CONTAINER_ID_BYTES).contains(&verdict.container_id.len())
        && (1..=MAX_CONTAINER_NAME_BYTES).contains(&verdict.container_name.len())
        && pod::identity::check_uid(&verdict.pod_uid).is_ok()
        && verdict.kind() != ProbeKind::Unspecified
        && verdict.result() != ProbeResult::Unspecified
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(
        pod: &str,
        container: &str,
        id: &str,
        kind: ProbeKind,
        result: ProbeResult,
    ) -> ProbeVerdict {
        ProbeVerdict {
            pod_uid: pod.into(),
            container_name: container.into(),
            container_id: id.into(),
            kind: kind.into(),
            result: result.into(),
            message: String::new(),
        }
    }

    #[test]
    fn only_a_new_result_is_a_change() {
        let mut verdicts = Verdicts::default();
        let failure = verdict("u1", "c", "id1", ProbeKind::Readiness, ProbeResult::Failure);
        assert_eq!(verdicts.record(failure.clone()), Recorded::Changed);
        assert_eq!(verdicts.record(failure), Recorded::Unchanged);
        let success = verdict("u1", "c", "id1", ProbeKind::Readiness, ProbeResult::Success);
        assert_eq!(verdicts.record(success.clone()), Recorded::Changed);
        assert_eq!(verdicts.of("u1"), [success]);
    }

    #[test]
    fn verdicts_are_forgotten_only_when_the_prober_removes_them() {
        let mut verdicts = Verdicts::default();
        verdicts.record(verdict(
            "u1",
            "c",
            "id1",
            ProbeKind::Startup,
            ProbeResult::Success,
        ));
        verdicts.record(verdict(
            "u1",
            "c",
            "id1",
            ProbeKind::Liveness,
            ProbeResult::Failure,
        ));
        verdicts.remove("id1", ProbeKind::Startup);
        assert_eq!(verdicts.of("u1").len(), 1);
        verdicts.remove("id1", ProbeKind::Liveness);
        assert_eq!(verdicts.all(), []);
    }

    #[test]
    fn old_instances_do_not_pile_up() {
        let mut verdicts = Verdicts::default();
        for instance in 0..100 {
            let id = format!("id{instance}");
            verdicts.record(verdict(
                "u1",
                "c",
                &id,
                ProbeKind::Liveness,
                ProbeResult::Failure,
            ));
        }
        let ids: Vec<_> = verdicts
            .of("u1")
            .into_iter()
            .map(|verdict| verdict.container_id)
            .collect();
        assert_eq!(ids, ["id98", "id99"]);
        for container in 0..1000 {
            let name = format!("c{container}");
            verdicts.record(verdict(
                "u1",
                &name,
                &name,
                ProbeKind::Liveness,
                ProbeResult::Failure,
            ));
        }
        assert_eq!(verdicts.of("u1").len(), MAX_VERDICTS_PER_POD);
    }

    #[test]
    fn malformed_verdicts_are_refused() {
        let mut verdicts = Verdicts::default();
        let good = verdict("u1", "c", "id1", ProbeKind::Liveness, ProbeResult::Failure);
        for bad in [
            ProbeVerdict {
                pod_uid: "../x".into(),
                ..good.clone()
            },
            ProbeVerdict {
                container_id: String::new(),
                ..good.clone()
            },
            ProbeVerdict {
                container_name: "n".repeat(257),
                ..good.clone()
            },
            ProbeVerdict {
                kind: 0,
                ..good.clone()
            },
            ProbeVerdict {
                kind: 77,
                ..good.clone()
            },
            ProbeVerdict {
                result: 0,
                ..good.clone()
            },
        ] {
            assert_eq!(verdicts.record(bad), Recorded::Refused);
        }
        let long = ProbeVerdict {
            message: "x".repeat(5000),
            ..good
        };
        verdicts.record(long);
        assert_eq!(verdicts.of("u1")[0].message.len(), MAX_PROBE_TEXT_BYTES);
    }
}
