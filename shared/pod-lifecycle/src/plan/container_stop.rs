//! How one container is stopped.

use std::time::Duration;

use pod::accessors::sidecar_index;
use pod::{Pod, PodExt};

use super::actions::{ContainerStop, CreatedContainer, StopHow};
use crate::hook::{Hook, PreStop};
use crate::known::{InstanceKnown, Known};
use crate::observation::{Container, Observation};
use crate::stop::KillReason;

/// How an instance is stopped.
pub(super) fn how(known: &Known, container: &Container, is_unknown: bool) -> StopHow {
    match known.instance(&container.id) {
        Some(InstanceKnown::Unstoppable { .. }) => StopHow::Remove,
        _ if is_unknown => StopHow::StopUnknown,
        _ => StopHow::Stop,
    }
}

/// The stop of an instance whose sandbox is to go while its pod lives on.
pub(super) fn of_lost_sandbox(known: &Known, pod: &Pod, container: &Container) -> ContainerStop {
    for_reason(
        known,
        container,
        KillReason::SandboxLost,
        format!("Stopping container {}", container.name),
        pod_grace(pod),
    )
}

/// The stop of an instance while its pod lives on.
pub(super) fn for_reason(
    known: &Known,
    container: &Container,
    reason: KillReason,
    message: String,
    grace: Duration,
) -> ContainerStop {
    ContainerStop {
        container_id: container.id.clone(),
        name: container.name.clone(),
        reason: Some(reason),
        message,
        grace,
        how: how(known, container, reason == KillReason::StateUnknown),
        pre_stop: pre_stop(known, container),
        after: Vec::new(),
    }
}

/// Has sidecars stopped last, in reverse order, as in the kubelet: each after all that is
/// no sidecar, and after the sidecars that were started after it. An earlier process may have
/// asked for the start of what is only created: until that is removed, or runs and is to be
/// stopped too, no sidecar gets its SIGTERM.
pub(super) fn in_order(
    mut stops: Vec<ContainerStop>,
    created: &[CreatedContainer],
    observation: &Observation,
    pod: Option<&Pod>,
) -> Vec<ContainerStop> {
    let rank = |id: &str| sidecar(observation.container(id)?, pod);
    let ranks: Vec<Option<u32>> = stops.iter().map(|stop| rank(&stop.container_id)).collect();
    let ids: Vec<String> = stops.iter().map(|stop| stop.container_id.clone()).collect();
    for (stop, own) in stops.iter_mut().zip(&ranks) {
        let Some(own) = own else { continue };
        let others = ids.iter().zip(&ranks);
        let others = others.filter(|(_, other)| other.is_none_or(|other| other > *own));
        let others = others.map(|(id, _)| id);
        let created = created.iter().map(|it| &it.container_id);
        stop.after = others.chain(created).cloned().collect();
    }
    stops
}

/// Which of the pod's init containers an instance is, if it is a sidecar. Others note that
/// nowhere: of an instance that they made the pod tells it.
fn sidecar(container: &Container, pod: Option<&Pod>) -> Option<u32> {
    let is_made_by_others = container.restart_wait.is_none();
    let pod = pod.filter(|_| is_made_by_others);
    let told_by_pod = || sidecar_index(pod?, &container.name);
    container.sidecar.or_else(told_by_pod)
}

/// The preStop hook of an instance, until that has ended.
pub(super) fn pre_stop(known: &Known, container: &Container) -> Option<Hook> {
    match known.instance(&container.id) {
        Some(InstanceKnown::Unstoppable { .. }) => None,
        _ if known.pre_stop(&container.id) == Some(PreStop::Ended) => None,
        _ => container.pre_stop.clone(),
    }
}

/// The grace period of a container that is stopped while its pod lives on.
#[must_use]
pub fn pod_grace(pod: &Pod) -> Duration {
    whole_seconds(pod.termination_grace_period_seconds())
}

/// Always a moment between SIGTERM and SIGKILL, as in the kubelet.
pub(super) fn whole_seconds(seconds: i64) -> Duration {
    const MINIMUM: Duration = Duration::from_secs(2);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).max(MINIMUM)
}
