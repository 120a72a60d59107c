//! Whether a pod that was admitted may have other CPU and memory: what is in force until
//! then, and the kubelet's decision in the kubelet's words (`canResizePod` in
//! pkg/kubelet/allocation). Pure.

use std::cmp::Reverse;

use ipc::limits::truncate;
use pod::Quantity;
use pod::quantity::Format;
use pod::resources::{CPU, MEMORY};
use serde::{Deserialize, Serialize};

use super::rejection::Rejection;
use super::resources::Allocatable;
use crate::dispatcher::pod_facts::PodFacts;

/// Longest text that is kept of a pod.
const MAX_TEXT_BYTES: usize = 1024;

/// What of the node's CPU and memory an admitted pod has, and whether it waits for other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    /// What it has.
    pub in_force: InForce,
    /// Why it does not get what it is to have.
    pub pending: Option<PendingResize>,
}

/// CPU and memory that a pod was admitted with, at first or by a resize.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InForce {
    /// `pod::update::resizable`: of all its containers.
    resizable: String,
    /// What it requests, in thousandths of a core.
    cpu_millis: i64,
    memory_bytes: i64,
}

/// Why a pod does not get the CPU and memory that it is to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingResize {
    /// The node will never have that much.
    pub is_infeasible: bool,
    /// The kubelet's sentence.
    pub message: String,
    /// `pod::update::resizable` of what it is to have.
    resizable: String,
    /// Since when it waits.
    since_unix_nanos: i64,
}

impl Allocation {
    /// That a pod has what it says.
    pub(crate) fn of(pod: &PodFacts) -> Allocation {
        let in_force = InForce {
            resizable: pod.size.resizable.clone(),
            cpu_millis: pod.requests.cpu_millis(),
            memory_bytes: pod.requests.memory_bytes(),
        };
        Allocation {
            in_force,
            pending: None,
        }
    }

    /// Makes of it one that this process could have written, whatever was read.
    pub(super) fn put_within_bounds(&mut self) {
        let in_force = &mut self.in_force;
        truncate(&mut in_force.resizable, MAX_TEXT_BYTES);
        in_force.cpu_millis = in_force.cpu_millis.max(0);
        in_force.memory_bytes = in_force.memory_bytes.max(0);
        if let Some(pending) = &mut self.pending {
            truncate(&mut pending.message, MAX_TEXT_BYTES);
            truncate(&mut pending.resizable, MAX_TEXT_BYTES);
        }
    }

    /// What a pod has that is to have something else.
    pub(super) fn resized<'a>(&'a self, pod: &PodFacts) -> Option<&'a InForce> {
        (self.in_force.resizable != pod.size.resizable).then_some(&self.in_force)
    }

    /// That a pod waits; since when is kept, and so is everything while nothing changes.
    pub(super) fn waiting(&self, pod: &PodFacts, why: Waits, now: i64) -> Allocation {
        let since = self.pending.as_ref().map(|it| it.since_unix_nanos);
        let pending = PendingResize {
            is_infeasible: why.is_infeasible,
            message: why.message,
            resizable: pod.size.resizable.clone(),
            since_unix_nanos: since.unwrap_or(now),
        };
        Allocation {
            pending: Some(pending),
            ..self.clone()
        }
    }

    /// Whether people were told the same of the pod before.
    pub(super) fn is_like(&self, before: &Allocation) -> bool {
        let gist = |it: &Allocation| {
            let pending = it.pending.as_ref()?;
            Some((pending.is_infeasible, pending.resizable.clone()))
        };
        gist(self) == gist(before)
    }
}

impl InForce {
    /// The pod with this in the place of what it requests now.
    pub(super) fn put_into(&self, pod: &PodFacts) -> PodFacts {
        let mut pod = pod.clone();
        let bytes = Quantity::from_whole(self.memory_bytes, Format::BinarySi);
        pod.requests
            .insert(CPU, Quantity::from_millis(self.cpu_millis));
        pod.requests.insert(MEMORY, bytes);
        pod
    }

    /// Whether the pod requests more now. One that does not needs no room.
    pub(super) fn is_exceeded_by(&self, pod: &PodFacts) -> bool {
        pod.requests.cpu_millis() > self.cpu_millis
            || pod.requests.memory_bytes() > self.memory_bytes
    }
}

/// Why a resize waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waits {
    pub(super) is_infeasible: bool,
    pub(super) message: String,
}

impl Waits {
    /// Until it can be decided.
    pub(super) fn undecided() -> Waits {
        Waits {
            is_infeasible: false,
            message: "it is not known yet what other pods need, and what the node has".to_owned(),
        }
    }
}

/// Decides whether a pod may have what it says, which is more than it has. `admit` checks
/// it beside all other pods, as one that is new.
///
/// # Errors
/// When it does not fit: never, or not now.
pub(super) fn decide(
    pod: &PodFacts,
    allocatable: &Allocatable,
    admit: impl FnOnce() -> Result<(), Rejection>,
) -> Result<(), Waits> {
    let memory = (MEMORY, pod.requests.memory_bytes());
    for (name, requested) in [memory, (CPU, pod.requests.cpu_millis())] {
        let capacity = allocatable.of(name);
        if requested > capacity {
            let message = format!(
                "Node didn't have enough capacity: {name}, requested: {requested}, \
                 capacity: {capacity}"
            );
            return Err(Waits {
                is_infeasible: true,
                message,
            });
        }
    }
    admit().map_err(|rejection| Waits {
        is_infeasible: false,
        message: rejection.message,
    })
}

/// Who is next of the pods that wait: those that request no more, then by priority, QoS
/// class, and for how long they wait. The least is first.
pub(super) fn rank(pod: &PodFacts, allocation: &Allocation) -> impl Ord + use<> {
    let grows = allocation
        .resized(pod)
        .is_some_and(|it| it.is_exceeded_by(pod));
    let since = allocation.pending.as_ref().map(|it| it.since_unix_nanos);
    (
        grows,
        Reverse(pod.size.priority),
        !pod.size.is_guaranteed,
        since.unwrap_or(i64::MAX),
    )
}
