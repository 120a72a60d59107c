//! What the containers of a pod may use together.

use std::collections::BTreeMap;

use pod::resources::{PodCgroupResources, pod_cgroup_resources};
use pod::{PodExt, QosClass};
use pod_lifecycle::instance_resources::{InstanceResources, with_resources};
use pod_lifecycle::observation::Observation;
use pod_lifecycle::plan::Resize;

use super::context::StepContext;
use super::error::{Retry, StepError};
use super::memory::Memory;
use super::target::Target;

/// What holds the containers of a pod before and after these changes.
pub(super) fn around(target: &Target<'_>, resizes: &[Resize]) -> PodCgroupResources {
    let after = pod_cgroup_resources(target.pod);
    if resizes.is_empty() {
        return after;
    }
    let from = resizes.iter().map(|it| (it.name.as_str(), it.from));
    let before: BTreeMap<_, _> = from.collect();
    after.widest(&pod_cgroup_resources(&with_resources(target.pod, &before)))
}

/// Gives the pod's cgroup these limits, unless it is known to have them.
pub(super) async fn ensure(
    context: &StepContext,
    target: &Target<'_>,
    resources: PodCgroupResources,
    memory: &mut Memory,
) -> Result<(), StepError> {
    if memory.pod_cgroup.as_ref() == Some(&resources) {
        return Ok(());
    }
    set(context, target, resources, memory).await
}

/// Gives the pod's cgroup exactly what the pod says, unless this process has done so. A
/// kill of the pool may have cut a resize short, and its container may have ended since, or
/// the manifest may say the former values again. Only once all that runs is known to have
/// what the pod says.
pub(super) async fn settle(
    context: &StepContext,
    target: &Target<'_>,
    observation: &Observation,
    memory: &mut Memory,
) -> Result<(), StepError> {
    let mut sandboxes = observation.sandboxes.iter();
    let has_one = sandboxes.any(|sandbox| sandbox.ready);
    if !has_one || !all_are_as_wanted(target, observation, memory) {
        return Ok(());
    }
    let own = around(target, &[]);
    ensure(context, target, own, memory).await
}

/// Whether each container that may run is known to run with what the pod says.
fn all_are_as_wanted(target: &Target<'_>, observation: &Observation, memory: &Memory) -> bool {
    observation.possibly_running().all(|shown| {
        let mut specs = target.pod.all_containers().map(|(_, spec)| spec);
        let spec = specs.find(|spec| spec.name == shown.name);
        let wanted = spec.map(|spec| InstanceResources::of(target.pod, spec));
        let known = memory.known.resources(shown);
        matches!((known, wanted), (Some(known), Some(wanted)) if known.are(&wanted))
    })
}

/// Makes the pod's cgroup, or gives it these limits.
pub(super) async fn set(
    context: &StepContext,
    target: &Target<'_>,
    resources: PodCgroupResources,
    memory: &mut Memory,
) -> Result<(), StepError> {
    let identity = target.identity;
    memory.pod_cgroup = None;
    let qos = QosClass::of(target.pod);
    let made = context
        .host
        .ensure_pod_cgroup(identity.uid(), qos, resources.clone())
        .await;
    made.map_err(|error| {
        let message = format!(
            "unable to ensure pod container exists: {}",
            telemetry::chain(&error)
        );
        context
            .events
            .warning(identity, "", "FailedCreatePodContainer", &message);
        StepError::new(message, Retry::LATER)
    })?;
    memory.pod_cgroup = Some(resources);
    Ok(())
}
