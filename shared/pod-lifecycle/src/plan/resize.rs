//! Containers that run with other CPU or memory than their pod has now, as in the kubelet
//! (`computePodResizeAction`): those that may be given it while they run, and those that
//! have to be started again for it.
//!
//! Of an instance that a kubelet made nobody knows what it runs with: its next instance
//! has what the pod says.

use pod::PodExt;
use pod::core::Container as ContainerSpec;
use pod::resources::{CPU, MEMORY};

use super::actions::{Resize, Work};
use super::facts::Inputs;
use crate::instance_resources::{InstanceResources, KnownResources};
use crate::observation::Container;

/// Puts the containers into the work that get other resources while they run.
pub(super) fn plan(inputs: &Inputs<'_>, work: &mut Work) {
    let sidecars = inputs.pod.init_containers().iter();
    let sidecars = sidecars.filter(|spec| pod::accessors::is_restartable(spec));
    for spec in inputs.pod.containers().iter().chain(sidecars) {
        let Some(newest) = inputs.observation.newest(&spec.name) else {
            continue;
        };
        let mut stops = work.stops.iter();
        let is_stopped = stops.any(|stop| stop.container_id == newest.id)
            || inputs.kill_of(newest).is_some()
            || inputs.is_where_the_stop_failed(newest);
        if is_stopped || !newest.state.is_running() {
            continue;
        }
        if let Some((known, to)) = change(inputs, spec, newest) {
            work.resizes.push(Resize {
                container_id: newest.id.clone(),
                name: spec.name.clone(),
                from: known.widest(),
                to,
            });
        }
    }
}

/// Whether a container that runs has to be started again for what it is to have: its
/// policy for what changes says so, or it loses a limit.
pub(super) fn needs_restart(
    inputs: &Inputs<'_>,
    spec: &ContainerSpec,
    container: &Container,
) -> bool {
    let Some((known, to)) = change(inputs, spec, container) else {
        return false;
    };
    let from = known.widest();
    let restarts = |resource: &str| {
        let mut policies = spec.resize_policy.iter().flatten();
        let policy = policies.find(|policy| policy.resource_name == resource);
        policy.is_some_and(|policy| policy.restart_policy == "RestartContainer")
    };
    known.may_keep_a_limit(&to)
        || (to.differs_in_cpu(&from) && restarts(CPU))
        || (to.memory_limit_bytes != from.memory_limit_bytes && restarts(MEMORY))
}

/// What is known of an instance that is to run with something else, and what that is.
fn change(
    inputs: &Inputs<'_>,
    spec: &ContainerSpec,
    container: &Container,
) -> Option<(KnownResources, InstanceResources)> {
    let known = inputs.facts.known.resources(container)?;
    let to = InstanceResources::of(inputs.pod, spec);
    (!known.are(&to)).then_some((known, to))
}
