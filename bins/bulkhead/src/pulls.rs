//! Pulls of images, as events tell of them: when each began and ended. Pure.
//!
//! The runtime does not say how far a pull has come, so nothing here does.

use bulkhead_api::v1;
use clock::UnixNanos;
use pod::core::{Container, ContainerStatus, PodStatus};
use pod::{Pod, PodExt as _, PodPhase};

/// One pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pull {
    pub(crate) begin: UnixNanos,
    /// Absent: no event tells of its end.
    pub(crate) end: Option<UnixNanos>,
    pub(crate) failed: bool,
    /// What the last event said.
    pub(crate) message: String,
}

enum Happened {
    Began,
    Ended { failed: bool },
}

/// The pulls for one container, the earliest first. Of a repeated event only the first
/// and the last time are known, so of many equal pulls only two are told.
pub(crate) fn of_container(events: &[v1::Event], container: &str) -> Vec<Pull> {
    let of_container = events.iter().filter(|event| event.container == container);
    let mut points: Vec<(i64, Happened, &str)> = Vec::new();
    for event in of_container {
        for at in times(event) {
            if let Some(what) = what_happened(event) {
                points.push((at.0, what, &event.message));
            }
        }
    }
    points.sort_by_key(|(at, ..)| *at);
    let mut pulls: Vec<Pull> = Vec::new();
    for (at, what, message) in points {
        let under_way = pulls.last_mut().filter(|pull| pull.end.is_none());
        match (what, under_way) {
            (Happened::Began, before) => {
                // Nobody waits for it any more: that process was restarted.
                if let Some(before) = before {
                    before.end = Some(UnixNanos(at));
                    before.failed = true;
                }
                pulls.push(Pull {
                    begin: UnixNanos(at),
                    end: None,
                    failed: false,
                    message: message.to_owned(),
                });
            }
            (Happened::Ended { failed }, Some(pull)) => {
                pull.end = Some(UnixNanos(at));
                pull.failed = failed;
                message.clone_into(&mut pull.message);
            }
            // The image was there already, or nobody knows when this pull began.
            (Happened::Ended { .. }, None) => {}
        }
    }
    pulls
}

/// A pull that goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnderWay {
    pub(crate) container: String,
    pub(crate) image: String,
    pub(crate) since: UnixNanos,
}

/// The pulls of a pod that go on. `events` are those of the pod.
pub(crate) fn under_way(pod: &Pod, status: &PodStatus, events: &[v1::Event]) -> Vec<UnderWay> {
    let pull = |container: &Container| {
        let own = status_of(status, &container.name);
        if !may_be_under_way(pod, status, own) {
            return None;
        }
        let last = of_container(events, &container.name).pop()?;
        last.end.is_none().then(|| UnderWay {
            container: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            since: last.begin,
        })
    };
    let containers = pod.all_containers().map(|(_, container)| container);
    containers.filter_map(pull).collect()
}

/// Whether a container's image may be pulled now: it waits, and its pod is not on its
/// way out. The event of a pull's end may have been lost.
pub(crate) fn may_be_under_way(
    pod: &Pod,
    status: &PodStatus,
    own: Option<&ContainerStatus>,
) -> bool {
    let state = own.and_then(|own| own.state.as_ref());
    let waits = state.is_none_or(|state| state.running.is_none() && state.terminated.is_none());
    let phase = status.phase.as_deref().and_then(PodPhase::parse);
    let is_over = phase.is_some_and(PodPhase::is_terminal);
    waits && !is_over && pod.metadata.deletion_timestamp.is_none()
}

fn status_of<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let init = status.init_container_statuses.iter().flatten();
    let mut all = init.chain(status.container_statuses.iter().flatten());
    all.find(|status| status.name == name)
}

/// When an event was seen first, and last if that is another time.
pub(crate) fn times(event: &v1::Event) -> impl Iterator<Item = UnixNanos> {
    let (first, last) = (event.first_unix_nanos, event.unix_nanos);
    let first = (event.count > 1 && first > 0 && first < last).then_some(first);
    first.into_iter().chain([last]).map(UnixNanos)
}

fn what_happened(event: &v1::Event) -> Option<Happened> {
    match event.reason.as_str() {
        "Pulling" => Some(Happened::Began),
        "Pulled" => Some(Happened::Ended { failed: false }),
        // `Failed` is also what a start that fails is called, which is after the pull.
        "Failed" | "BackOff" => Some(Happened::Ended { failed: true }),
        "Created" | "Started" => Some(Happened::Ended { failed: false }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Reason, first and last time, how often.
    fn event(reason: &str, first: i64, last: i64, count: u32) -> v1::Event {
        v1::Event {
            container: "c".to_owned(),
            reason: reason.to_owned(),
            message: format!("{reason} m"),
            first_unix_nanos: first,
            unix_nanos: last,
            count,
            ..v1::Event::default()
        }
    }

    /// Begin, end or -1, and whether it failed.
    fn told(events: &[v1::Event]) -> Vec<(i64, i64, bool)> {
        let told = |pull: Pull| (pull.begin.0, pull.end.map_or(-1, |end| end.0), pull.failed);
        of_container(events, "c").into_iter().map(told).collect()
    }

    #[test]
    fn pulls_are_told_from_their_events() {
        let once = |reason: &str, at: i64| event(reason, at, at, 1);
        for (events, expected) in [
            (vec![], vec![]),
            (vec![once("Pulling", 5)], vec![(5, -1, false)]),
            (
                vec![once("Pulling", 5), once("Pulled", 9)],
                vec![(5, 9, false)],
            ),
            // The order in which they come does not matter.
            (
                vec![once("Pulled", 9), once("Pulling", 5)],
                vec![(5, 9, false)],
            ),
            (
                vec![once("Pulling", 5), once("Failed", 9)],
                vec![(5, 9, true)],
            ),
            // The image was there.
            (vec![once("Pulled", 9)], vec![]),
            (
                vec![once("Pulled", 4), once("Pulling", 5)],
                vec![(5, -1, false)],
            ),
            // Seen twice: the first and the last are told.
            (
                vec![event("Pulling", 5, 20, 2), event("Failed", 9, 23, 2)],
                vec![(5, 9, true), (20, 23, true)],
            ),
            // Begun again before it ended: nobody waits for the first one.
            (
                vec![event("Pulling", 5, 20, 2)],
                vec![(5, 20, true), (20, -1, false)],
            ),
            // The event of its end was lost.
            (
                vec![once("Pulling", 5), once("Started", 30)],
                vec![(5, 30, false)],
            ),
        ] {
            assert_eq!(told(&events), expected, "{events:?}");
        }
    }

    #[test]
    fn a_pull_goes_on_while_its_container_waits_and_no_event_tells_its_end() {
        let pulling = vec![event("Pulling", 5, 5, 1)];
        let pulled = vec![event("Pulling", 5, 5, 1), event("Pulled", 6, 6, 1)];
        let waiting = json!({"waiting": {"reason": "ContainerCreating"}});
        for (events, phase, state, deletion, goes_on) in [
            (&pulling, "Pending", &waiting, None, true),
            (&pulling, "Running", &json!({}), None, true),
            (&pulled, "Pending", &waiting, None, false),
            (&pulling, "Running", &json!({"running": {}}), None, false),
            (
                &pulling,
                "Running",
                &json!({"terminated": {"exitCode": 0}}),
                None,
                false,
            ),
            (&pulling, "Failed", &waiting, None, false),
            (
                &pulling,
                "Pending",
                &waiting,
                Some("2026-01-01T00:00:00Z"),
                false,
            ),
        ] {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": "p", "deletionTimestamp": deletion},
                "spec": {"containers": [{"name": "c", "image": "web:1"}, {"name": "d"}]},
                "status": {"phase": phase, "containerStatuses": [{
                    "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": state,
                }]},
            }))
            .unwrap();
            let expected = goes_on.then(|| UnderWay {
                container: "c".to_owned(),
                image: "web:1".to_owned(),
                since: UnixNanos(5),
            });
            let found = under_way(&pod, pod.status.as_ref().unwrap(), events);
            assert_eq!(found, Vec::from_iter(expected), "{phase} {state}");
        }
    }
}
