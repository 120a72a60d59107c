//! Which of a pod's volumes have to be made before something is started, and which have to
//! be refreshed while the pod runs.
//!
//! Made are all of them, as in the kubelet: before its sandbox and before any container is
//! made. One that this sync has made from what the pod wants now is ready; one that was
//! made from something else is made again. Where nobody knows now what is to be in files
//! (their ConfigMap is gone, say), those that were written stay as they are, and keep no
//! container from being started again.
//!
//! Refreshed are those of files: when what they tell has changed (a label of the pod, a
//! ConfigMap), after a restart of the process that writes them, and every minute in any
//! case. Each time what is on the disk is compared, so a refresh that was cut short is
//! completed by the next one.

use std::time::Duration;

use pod_volumes::{Volume, VolumeSpec, wanted, wanted_files};

use super::actions::Plan;
use super::facts::Inputs;

/// After this time it is looked whether files are still there as they were written.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Puts the volumes that are missing into a plan that makes a sandbox or a container.
pub(super) fn before_starts(plan: &mut Plan, inputs: &Inputs<'_>) {
    match plan {
        Plan::NewSandbox { volumes, .. } => *volumes = missing(inputs),
        Plan::Work(work) if work.creates() => work.volumes = missing(inputs),
        _ => {}
    }
}

fn missing(inputs: &Inputs<'_>) -> Vec<Volume> {
    let mut volumes = wanted(inputs.pod, &inputs.facts.content);
    for volume in &mut volumes {
        let written = inputs.observation.files.get(&volume.name);
        if let (VolumeSpec::Impossible(_), Some(written)) = (&volume.spec, written) {
            volume.spec = written.spec.clone();
        }
    }
    volumes.retain(|volume| {
        let ready = inputs.observation.volumes.get(&volume.name);
        ready.is_none_or(|ready| ready.spec != volume.spec)
    });
    volumes
}

/// Puts the volumes whose files have to be looked at into a plan that has nothing else to
/// do, and says when the next look is due.
pub(super) fn refresh(plan: &mut Plan, inputs: &Inputs<'_>) {
    let Plan::Work(work) = plan else { return };
    if work.stops_starts_or_begins_hooks() {
        return;
    }
    for volume in wanted_files(inputs.pod, &inputs.facts.content) {
        let written = inputs.observation.files.get(&volume.name);
        let due = written
            .filter(|written| written.spec == volume.spec)
            .map(|written| written.seen_at.plus(LOOK_AGAIN));
        match due {
            // A time in the future is one of a clock that was put back.
            Some(due) if due > inputs.now() && due <= inputs.now().plus(LOOK_AGAIN) => {
                work.wake(due);
            }
            _ => work.refreshes.push(volume),
        }
    }
}
