//! Between messages and plain values. Targets come from a peer: what makes no
//! sense is made harmless or left out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use clock::UnixNanos;
use ipc::limits::{MAX_CONTAINER_ID_BYTES, MAX_CONTAINER_NAME_BYTES};
use pod::identity::check_uid;

use crate::Kind;
use crate::instance::Situation;
use crate::ledger::Owner;
use crate::spec::{Action, ProbeSpec, Timing, decode_ports};
use crate::text::for_people;
use crate::worker::{Outcome, ProbeResult, Verdict};

/// Longest address of a pod that is accepted; IPv6 has 45 characters, and a scope.
const MAX_ADDRESS_BYTES: usize = 128;

/// A container instance and its probes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    pub(crate) container_id: String,
    pub(crate) owner: Owner,
    pub(crate) pod_ip: String,
    pub(crate) started_at: UnixNanos,
    pub(crate) situation: Situation,
    pub(crate) specs: BTreeMap<Kind, Arc<ProbeSpec>>,
}

impl Target {
    /// Whether this is the instance that `other` is about, probed alike: only
    /// what happens to it may differ.
    pub(crate) fn is_same_instance(&self, other: &Target) -> bool {
        self.container_id == other.container_id
            && self.owner == other.owner
            && self.started_at == other.started_at
            && self.specs == other.specs
    }

    /// What its probes take in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.specs.values().map(|spec| spec.bytes()).sum()
    }

    pub(crate) fn timings(&self) -> BTreeMap<Kind, Timing> {
        let specs = self.specs.iter();
        specs.map(|(kind, spec)| (*kind, spec.timing)).collect()
    }

    /// How long the container runs.
    pub(crate) fn age(&self, now: UnixNanos) -> Duration {
        match self.started_at.0 {
            ..=0 => Duration::ZERO,
            _ => now.since(self.started_at),
        }
    }
}

/// What readers are told of a try; nothing of one that simply succeeded.
pub(crate) fn attempt(owner: &Owner, outcome: &Outcome, at: UnixNanos) -> Option<v1::ProbeTry> {
    let (kind, message) = match outcome {
        Outcome::Success(warning) if warning.is_empty() => return None,
        Outcome::Success(warning) => (v1::ProbeTryOutcome::Warning, warning),
        Outcome::Failure(reason) => (v1::ProbeTryOutcome::Failure, reason),
        Outcome::Error(reason) => (v1::ProbeTryOutcome::Error, reason),
    };
    Some(v1::ProbeTry {
        pod_uid: owner.pod_uid.clone(),
        container_name: owner.container_name.clone(),
        outcome: kind.into(),
        message: message.clone(),
        unix_nanos: at.0,
    })
}

/// Decodes a target. A probe that cannot be decoded stays as one that cannot be
/// done, so that the container has the verdict of a probe that was never made.
///
/// # Errors
/// When the target names no container.
pub(crate) fn target(target: v1::ProbeTarget) -> Result<Target, String> {
    let pod = target.pod.unwrap_or_default();
    let (name, id) = (&target.container_name, &target.container_id);
    for (what, usable) in [
        ("pod uid", check_uid(&pod.uid).is_ok()),
        (
            "container name",
            (1..=MAX_CONTAINER_NAME_BYTES).contains(&name.len()),
        ),
        (
            "container id",
            (1..=MAX_CONTAINER_ID_BYTES).contains(&id.len()),
        ),
        ("pod address", target.pod_ip.len() <= MAX_ADDRESS_BYTES),
    ] {
        if !usable {
            return Err(format!("a probe target without a usable {what}"));
        }
    }
    let ports = decode_ports(&target.ports_json);
    let probes = [
        (Kind::Liveness, &target.liveness_json),
        (Kind::Readiness, &target.readiness_json),
        (Kind::Startup, &target.startup_json),
    ];
    let specs = probes
        .into_iter()
        .filter(|(_, json)| !json.is_empty())
        .map(|(kind, json)| {
            let spec = ProbeSpec::decode(json, &ports).unwrap_or_else(|error| ProbeSpec {
                action: Action::Impossible(for_people(&telemetry::chain(&error))),
                timing: Timing::default(),
            });
            (kind, Arc::new(spec))
        })
        .collect();
    Ok(Target {
        owner: Owner {
            pod_uid: pod.uid,
            container_name: target.container_name,
        },
        container_id: target.container_id,
        pod_ip: target.pod_ip,
        started_at: UnixNanos(target.started_at_unix_nanos),
        situation: match (target.running, target.terminating) {
            (false, _) => Situation::NotRunning,
            (true, false) => Situation::Running,
            (true, true) => Situation::Terminating,
        },
        specs,
    })
}

pub(crate) fn verdict(
    container_id: &str,
    owner: &Owner,
    kind: Kind,
    verdict: &Verdict,
) -> v1::ProbeVerdict {
    let result = match verdict.result {
        ProbeResult::Unknown => v1::ProbeResult::Unspecified,
        ProbeResult::Success => v1::ProbeResult::Success,
        ProbeResult::Failure => v1::ProbeResult::Failure,
    };
    v1::ProbeVerdict {
        pod_uid: owner.pod_uid.clone(),
        container_name: owner.container_name.clone(),
        container_id: container_id.to_owned(),
        kind: kind_to_wire(kind).into(),
        result: result.into(),
        message: verdict.message.clone(),
    }
}

pub(crate) fn kind_to_wire(kind: Kind) -> v1::ProbeKind {
    match kind {
        Kind::Liveness => v1::ProbeKind::Liveness,
        Kind::Readiness => v1::ProbeKind::Readiness,
        Kind::Startup => v1::ProbeKind::Startup,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> v1::ProbeTarget {
        v1::ProbeTarget {
            pod: Some(v1::PodReference {
                uid: "u".to_owned(),
                ..Default::default()
            }),
            container_name: "c".to_owned(),
            container_id: "id".to_owned(),
            liveness_json: br#"{"tcpSocket":{"port":"web"}}"#.to_vec(),
            readiness_json: b"garbage".to_vec(),
            ports_json: br#"[{"name":"web","containerPort":80}]"#.to_vec(),
            running: true,
            ..Default::default()
        }
    }

    #[test]
    fn a_probe_that_cannot_be_decoded_does_not_stop_the_others() {
        let target = target(message()).unwrap();
        assert_eq!(target.situation, Situation::Running);
        let kinds: Vec<Kind> = target.specs.keys().copied().collect();
        assert_eq!(kinds, [Kind::Liveness, Kind::Readiness]);
        assert!(matches!(
            target.specs[&Kind::Liveness].action,
            Action::Tcp(_)
        ));
        assert!(matches!(
            target.specs[&Kind::Readiness].action,
            Action::Impossible(_)
        ));
    }

    #[test]
    fn a_target_that_names_nothing_is_refused() {
        for broken in [
            v1::ProbeTarget::default(),
            v1::ProbeTarget {
                container_id: String::new(),
                ..message()
            },
            v1::ProbeTarget {
                container_id: "x".repeat(MAX_CONTAINER_ID_BYTES + 1),
                ..message()
            },
            v1::ProbeTarget {
                container_name: "x".repeat(MAX_CONTAINER_NAME_BYTES + 1),
                ..message()
            },
            v1::ProbeTarget {
                pod_ip: "1".repeat(MAX_ADDRESS_BYTES + 1),
                ..message()
            },
            v1::ProbeTarget {
                pod: Some(v1::PodReference {
                    uid: "../u".to_owned(),
                    ..Default::default()
                }),
                ..message()
            },
        ] {
            assert!(target(broken).is_err());
        }
    }
}
