//! What the containers of a pod may use together.

use std::collections::BTreeMap;

use pod::QosClass;
use pod::resources::{PodCgroupResources, pod_cgroup_resources};
use pod_lifecycle::instance_resources::with_resources;
use pod_lifecycle::plan::Resize;

use super::context::Steps;
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
    steps: &Steps,
    target: &Target<'_>,
    resources: PodCgroupResources,
    memory: &mut Memory,
) -> Result<(), StepError> {
    if memory.pod_cgroup.as_ref() == Some(&resources) {
        return Ok(());
    }
    set(steps, target, resources, memory).await
}

/// Makes the pod's cgroup, or gives it these limits.
pub(super) async fn set(
    steps: &Steps,
    target: &Target<'_>,
    resources: PodCgroupResources,
    memory: &mut Memory,
) -> Result<(), StepError> {
    let identity = target.identity;
    memory.pod_cgroup = None;
    let qos = QosClass::of(target.pod);
    let made = steps
        .host
        .ensure_pod_cgroup(identity.uid(), qos, resources.clone())
        .await;
    made.map_err(|error| {
        let message = format!(
            "unable to ensure pod container exists: {}",
            telemetry::chain(&error)
        );
        steps
            .events
            .warning(identity, "", "FailedCreatePodContainer", &message);
        StepError::new(message, Retry::LATER)
    })?;
    memory.pod_cgroup = Some(resources);
    Ok(())
}
