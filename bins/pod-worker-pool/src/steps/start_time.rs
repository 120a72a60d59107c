//! Notes in a pod's record when its first sync was, and cuts a sync off at the pod's
//! deadline.

use std::time::Duration;

use clock::UnixNanos;
use pod::{Pod, PodIdentity};
use pod_lifecycle::observation::Observation;
use pod_lifecycle::plan::{self, notes_start, started_at, started_at_source};

use super::context::StepContext;
use super::memory::Memory;
use super::target::Target;

/// A sync of a pod begins: notes its start where nobody else has done so yet.
/// Answers with what is noted.
pub(super) async fn note_start(
    context: &StepContext,
    identity: &PodIdentity,
    pod: &Pod,
    memory: &mut Memory,
) -> Option<UnixNanos> {
    let is_noted = memory.record.started_at.is_some();
    if !is_noted && notes_start(pod) && started_at_source(pod).is_none() {
        memory.record.started_at = Some(context.clock.now());
        context.save_record(identity, memory).await;
    }
    memory.record.started_at
}

/// How long a sync may take before it is cut off, so that not even a file system
/// that hangs outlasts the pod's deadline. `None`: as long as it takes.
pub(super) fn time_left(context: &StepContext, target: &Target<'_>) -> Option<Duration> {
    let nothing = Observation::default();
    let started_at = started_at(target.pod, target.noted_start, &nothing);
    let left = plan::deadline(target.pod, started_at)?.since(context.clock.now());
    (!left.is_zero()).then_some(left)
}
