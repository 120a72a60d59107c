//! Why the node is not ready, beside what the runtime says of itself. Pure.
//!
//! sync-loop tells how pleg is, and by telling it how it is itself. A restart of either, or of
//! this process, makes no Node unready: what was ready is given the time that a kubelet gives
//! its own relist.

use std::time::Duration;

use bulkhead_api::v1::SetNodeHealthRequest;
use pod_lifecycle::plan::go_duration;

/// What is not heard of for longer is not healthy (the kubelet's `genericPlegRelistThreshold`).
const THRESHOLD: Duration = Duration::from_secs(3 * 60);

/// What is known of the health of the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Health {
    /// What sync-loop told last, and how long ago.
    pub(crate) told: Option<(SetNodeHealthRequest, Duration)>,
    /// For how long this process has run.
    pub(crate) running_for: Duration,
    /// Whether the API server holds the Node as ready.
    pub(crate) was_ready: bool,
}

/// Why the node is not ready, in the kubelet's words where it has any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NotReady {
    /// What watches over pods is not healthy.
    pub(crate) unhealthy: Vec<String>,
    /// A shutdown is under way.
    pub(crate) shuts_down: bool,
}

impl NotReady {
    /// What follows from the health.
    pub(crate) fn of(health: &Health) -> NotReady {
        let told = health.told;
        let silent_for = told.map_or(health.running_for, |(_, ago)| ago);
        let sync_loop =
            seen(silent_for).map(|text| format!("sync-loop is not healthy: sync-loop was {text}"));
        let has_time = health.was_ready && health.running_for <= THRESHOLD;
        let inactive = told.and_then(|(told, _)| told.pleg_inactive_nanos);
        let pleg = match inactive {
            Some(nanos) => seen(Duration::from_nanos(nanos)).map(|text| format!("pleg was {text}")),
            None if has_time => None,
            None => Some("pleg has yet to be successful".to_owned()),
        };
        let pleg = pleg.map(|text| format!("PLEG is not healthy: {text}"));
        NotReady {
            unhealthy: pleg.into_iter().chain(sync_loop).collect(),
            shuts_down: told.is_some_and(|(told, _)| told.shuts_down),
        }
    }
}

fn seen(ago: Duration) -> Option<String> {
    let (ago_text, threshold) = (go_duration(ago), go_duration(THRESHOLD));
    (ago > THRESHOLD).then(|| format!("last seen active {ago_text} ago; threshold is {threshold}"))
}

/// Several reasons as one message.
pub(crate) fn message(reasons: &[String]) -> String {
    match reasons {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_that_is_bad_or_silent_for_three_minutes_makes_the_node_not_ready() {
        let health = |inactive: Option<u64>, ago: u64, shuts_down: bool| Health {
            told: Some((
                SetNodeHealthRequest {
                    pleg_inactive_nanos: inactive.map(|it| it * 1_000_000_000),
                    shuts_down,
                },
                Duration::from_secs(ago),
            )),
            running_for: Duration::from_secs(1000),
            was_ready: true,
        };
        let never = "PLEG is not healthy: pleg has yet to be successful";
        let stale = "PLEG is not healthy: pleg was last seen active 3m5s ago; threshold is 3m0s";
        let silent =
            "sync-loop is not healthy: sync-loop was last seen active 3m1s ago; threshold is 3m0s";
        for (health, unhealthy, shuts_down) in [
            (health(Some(0), 2, false), &[][..], false),
            (health(Some(180), 180, false), &[], false),
            (health(Some(185), 2, false), &[stale], false),
            (health(Some(0), 181, false), &[silent], false),
            (health(None, 1, true), &[never], true),
            (health(Some(0), 0, true), &[], true),
        ] {
            let found = NotReady::of(&health);
            assert_eq!(found.unhealthy, unhealthy, "{health:?}");
            assert_eq!(found.shuts_down, shuts_down, "{health:?}");
        }
    }

    #[test]
    fn a_node_that_was_ready_stays_so_while_processes_restart() {
        let nothing = SetNodeHealthRequest::default();
        for (told, running_for, was_ready, is_ready) in [
            (false, 1, true, true),
            (true, 1, true, true),
            (true, 181, true, false),
            (false, 181, true, false),
            (false, 1, false, false),
            (true, 1, false, false),
        ] {
            let health = Health {
                told: told.then_some((nothing, Duration::ZERO)),
                running_for: Duration::from_secs(running_for),
                was_ready,
            };
            let found = NotReady::of(&health).unhealthy;
            assert_eq!(found.is_empty(), is_ready, "{health:?}");
        }
    }
}
