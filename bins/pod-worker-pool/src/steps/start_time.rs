//! From when on a pod with an `activeDeadlineSeconds` counts.
//!
//! A sandbox notes it (`annotations`), and the status that its source has. A pod that
//! has neither, because no sandbox can be made for it, counts from its first sync;
//! that is in its record, so that the next life goes on with it.

use std::time::Duration;

use clock::UnixNanos;
use pod::{Pod, PodExt, PodIdentity};

use super::sync::Target;
use super::{Memory, Steps};
use crate::observation::Observation;
use crate::plan;

impl Steps {
    /// A sync of a pod begins: notes its start where nobody else has done so yet.
    /// Answers with what is noted.
    pub(super) async fn note_start(
        &self,
        identity: &PodIdentity,
        pod: &Pod,
        memory: &mut Memory,
    ) -> Option<UnixNanos> {
        if memory.record.started_at.is_none() && notes_start(pod) && at_source(pod).is_none() {
            memory.record.started_at = Some(self.clock.now());
            self.save_record(identity, memory).await;
        }
        memory.record.started_at
    }

    /// How long a sync may take before it is cut off, so that not even a file system
    /// that hangs outlasts the pod's deadline. `None`: as long as it takes.
    pub(super) fn time_left(&self, target: &Target<'_>) -> Option<Duration> {
        let started_at = started_at(target, &Observation::default());
        let left = plan::deadline(target.pod, started_at)?.since(self.clock.now());
        (!left.is_zero()).then_some(left)
    }
}

/// When a pod was started: the earliest that is known of what its source says, what
/// was noted at its first sync, what its sandboxes note, and when they were made.
pub(super) fn started_at(target: &Target<'_>, observation: &Observation) -> Option<UnixNanos> {
    let sandboxes = observation.sandboxes.iter();
    let by_sandboxes = sandboxes.map(|it| it.pod_started_at.unwrap_or(it.created_at));
    at_source(target.pod)
        .into_iter()
        .chain(target.noted_start)
        .chain(by_sandboxes)
        .min()
}

/// Whether the pod's start is worth noting.
pub(super) fn notes_start(pod: &Pod) -> bool {
    pod.active_deadline_seconds().is_some()
}

fn at_source(pod: &Pod) -> Option<UnixNanos> {
    let time = pod.status.as_ref()?.start_time.as_ref()?;
    i64::try_from(time.0.as_nanosecond()).ok().map(UnixNanos)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::observation::{Sandbox, SandboxNetwork};
    use crate::worker::desired::testing::{manifest, pod};

    fn seconds(seconds: i64) -> UnixNanos {
        UnixNanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_earliest_known_start_counts() {
        let sandbox = |(created, noted): (i64, Option<i64>)| Sandbox {
            id: "s".into(),
            attempt: 0,
            ready: true,
            created_at: seconds(created),
            network: SandboxNetwork::Pod { ips: Vec::new() },
            pod_started_at: noted.map(seconds),
        };
        let identity = PodIdentity::new("u1", "default", "a").unwrap();
        for (at_source, noted_start, sandboxes, expected) in [
            (None, None, vec![], None),
            (None, Some(50), vec![], Some(50)),
            (Some(40), Some(50), vec![], Some(40)),
            (Some(60), Some(50), vec![], Some(50)),
            (None, None, vec![(90, Some(50)), (70, None)], Some(50)),
            (None, Some(80), vec![(90, None), (70, None)], Some(70)),
            (Some(75), Some(80), vec![(90, Some(80))], Some(75)),
        ] {
            let mut value = manifest("a", "u1");
            if let Some(at_source) = at_source {
                let time = format!("1970-01-01T00:{:02}:{:02}Z", at_source / 60, at_source % 60);
                value["status"] = json!({ "startTime": time });
            }
            let observation = Observation {
                sandboxes: sandboxes.into_iter().map(sandbox).collect(),
                ..Observation::default()
            };
            let target = Target {
                identity: &identity,
                pod: &pod(value),
                noted_start: noted_start.map(seconds),
            };
            let found = started_at(&target, &observation);
            assert_eq!(found, expected.map(seconds), "{observation:?}");
        }
    }
}
