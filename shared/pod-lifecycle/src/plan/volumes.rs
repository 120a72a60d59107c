//! Which of a pod's volumes have to be made before something is started.
//!
//! All of them, as in the kubelet: before its sandbox and before any container is made. One
//! that this sync has made from what the pod wants now is ready; one that was made from
//! something else is made again, which is how content of another version gets there.

use pod_volumes::{Volume, wanted};

use super::facts::Inputs;
use super::step::{Plan, StartHow, Work};

/// Puts the volumes that are missing into a plan that makes a sandbox or a container.
pub(super) fn before_starts(plan: &mut Plan, inputs: &Inputs<'_>) {
    match plan {
        Plan::NewSandbox { volumes, .. } => *volumes = missing(inputs),
        Plan::Work(work) if creates(work) => work.volumes = missing(inputs),
        _ => {}
    }
}

/// Stops come first, and are looked at before anything is started. An instance that was
/// made already has its volumes.
fn creates(work: &Work) -> bool {
    let mut starts = work.starts.iter();
    work.stops.is_empty() && starts.any(|start| matches!(start.how, StartHow::Create(_)))
}

fn missing(inputs: &Inputs<'_>) -> Vec<Volume> {
    let mut volumes = wanted(inputs.pod);
    volumes.retain(|volume| {
        let ready = inputs.observation.volumes.get(&volume.name);
        ready.is_none_or(|ready| ready.spec != volume.spec)
    });
    volumes
}
