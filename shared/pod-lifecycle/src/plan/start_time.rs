//! From when on a pod with an `activeDeadlineSeconds` counts.
//!
//! A sandbox notes it (`annotations`), and the status that its source has. A pod that
//! has neither, because no sandbox can be made for it, counts from its first sync;
//! that is in its record, so that the next process goes on with it.

use std::time::Duration;

use clock::UnixNanos;
use pod::{Pod, PodExt};

use crate::observation::{Observation, Sandbox};

/// When a pod was started: the earliest that is known of what its source says, what
/// was noted at its first sync, what its sandboxes note, and when they were made. A pod
/// that its source took back and has again begins anew beside the sandboxes that it had.
#[must_use]
pub fn started_at(
    pod: &Pod,
    noted_start: Option<UnixNanos>,
    observation: &Observation,
) -> Option<UnixNanos> {
    let sandboxes = observation.sandboxes.iter();
    let sandboxes = sandboxes.filter(|it| !is_of_former_run(it, noted_start));
    let by_sandboxes = sandboxes.map(|it| it.pod_started_at.unwrap_or(it.created_at));
    started_at_source(pod)
        .into_iter()
        .chain(noted_start)
        .chain(by_sandboxes)
        .min()
}

/// Whether a sandbox was left when the pod's source took it back. pod-worker-pool notes the
/// start in the record before it makes a sandbox that notes it too; one of a kubelet's notes
/// none and is older, and one that is ready has outlived a record that was lost.
fn is_of_former_run(sandbox: &Sandbox, noted_start: Option<UnixNanos>) -> bool {
    let is_older = noted_start.is_some_and(|noted| sandbox.created_at < noted);
    is_older && !sandbox.ready && sandbox.pod_started_at.is_some()
}

/// Whether the pod's start is worth noting.
#[must_use]
pub fn notes_start(pod: &Pod) -> bool {
    pod.active_deadline_seconds().is_some()
}

/// When the pod was started, as its source says.
#[must_use]
pub fn started_at_source(pod: &Pod) -> Option<UnixNanos> {
    let time = pod.status.as_ref()?.start_time.as_ref()?;
    i64::try_from(time.0.as_nanosecond()).ok().map(UnixNanos)
}

/// When a pod that was started then has to be at its end.
#[must_use]
pub fn deadline(pod: &Pod, started_at: Option<UnixNanos>) -> Option<UnixNanos> {
    let seconds = u64::try_from(pod.active_deadline_seconds()?).ok()?;
    Some(started_at?.plus(Duration::from_secs(seconds)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::observation::SandboxNetwork;
    use crate::testing::{manifest, pod};

    fn seconds(seconds: i64) -> UnixNanos {
        UnixNanos(seconds * 1_000_000_000)
    }

    fn sandbox(ready: bool, created: i64, noted: Option<i64>) -> Sandbox {
        Sandbox {
            id: "s".into(),
            attempt: 0,
            ready,
            created_at: seconds(created),
            network: SandboxNetwork::Pod { ips: Vec::new() },
            pod_started_at: noted.map(seconds),
            started_with: None,
        }
    }

    #[test]
    fn the_earliest_known_start_counts() {
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
                sandboxes: sandboxes
                    .into_iter()
                    .map(|(created, noted)| sandbox(true, created, noted))
                    .collect(),
                ..Observation::default()
            };
            let noted_start = noted_start.map(seconds);
            let found = started_at(&pod(value), noted_start, &observation);
            assert_eq!(found, expected.map(seconds), "{observation:?}");
        }
    }

    #[test]
    fn a_dead_sandbox_of_a_former_run_does_not_count() {
        let of_former_run = sandbox(false, 50, Some(40));
        let of_this_run = sandbox(false, 81, Some(60));
        let of_a_kubelet = sandbox(false, 50, None);
        let lives = sandbox(true, 50, Some(40));
        for (sandbox, noted_start, expected) in [
            (&of_former_run, Some(80), 80),
            (&of_former_run, None, 40),
            (&of_this_run, Some(80), 60),
            (&of_a_kubelet, Some(80), 50),
            (&lives, Some(80), 40),
        ] {
            let observation = Observation {
                sandboxes: vec![sandbox.clone()],
                ..Observation::default()
            };
            let noted_start = noted_start.map(seconds);
            let found = started_at(&pod(manifest("a", "u1")), noted_start, &observation);
            assert_eq!(
                found,
                Some(seconds(expected)),
                "{sandbox:?} {noted_start:?}"
            );
        }
    }
}
