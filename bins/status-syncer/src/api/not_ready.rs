//! Why the node is not ready, beside what the runtime says of itself. Pure.
//!
//! sync-loop reports how pleg is, and that it reports says how it is itself. A restart of either, or of
//! this process, makes no Node unready: what was ready is given the time that a kubelet gives
//! its own relist.

use std::time::Duration;

use bulkhead_api::v1::SetNodeHealthRequest;
use pod_lifecycle::plan::go_duration;

/// What is not heard of for longer is not healthy (the kubelet's `genericPlegRelistThreshold`).
const THRESHOLD: Duration = Duration::from_secs(3 * 60);

/// A runtime that has not answered for longer is down (the kubelet's `baseRuntimeSyncThreshold`).
const RUNTIME_THRESHOLD: Duration = Duration::from_secs(30);

/// Whether a runtime that has not answered for so long is given more time, as one that is
/// restarted is. A Node that is not ready does not become so by its silence.
pub(crate) fn is_given_time(silent_for: Duration, was_ready: bool) -> bool {
    was_ready && silent_for < RUNTIME_THRESHOLD
}

/// What is known of the health of the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Health {
    /// What sync-loop reported last, and how long ago.
    pub(crate) reported: Option<(SetNodeHealthRequest, Duration)>,
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
        let reported = health.reported;
        let silent_for = reported.map_or(health.running_for, |(_, ago)| ago);
        let sync_loop =
            seen(silent_for).map(|text| format!("sync-loop is not healthy: sync-loop was {text}"));
        let has_time = health.was_ready && health.running_for <= THRESHOLD;
        let inactive = reported.and_then(|(reported, _)| reported.pleg_inactive_nanos);
        let pleg = match inactive {
            Some(nanos) => seen(Duration::from_nanos(nanos)).map(|text| format!("pleg was {text}")),
            None if has_time => None,
            None => Some("pleg has yet to be successful".to_owned()),
        };
        let pleg = pleg.map(|text| format!("PLEG is not healthy: {text}"));
        NotReady {
            unhealthy: pleg.into_iter().chain(sync_loop).collect(),
            shuts_down: reported.is_some_and(|(reported, _)| reported.shuts_down),
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
            reported: Some((
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
    fn a_runtime_that_is_silent_for_30_seconds_makes_a_ready_node_not_ready() {
        for (seconds, was_ready, expected) in [
            (0, true, true),
            (29, true, true),
            (30, true, false),
            (0, false, false),
        ] {
            let silent_for = Duration::from_secs(seconds);
            assert_eq!(is_given_time(silent_for, was_ready), expected, "{seconds}");
        }
    }

    #[test]
    fn a_node_that_was_ready_stays_so_while_processes_restart() {
        let nothing = SetNodeHealthRequest::default();
        for (reported, running_for, was_ready, is_ready) in [
            (false, 1, true, true),
            (true, 1, true, true),
            (true, 181, true, false),
            (false, 181, true, false),
            (false, 1, false, false),
            (true, 1, false, false),
        ] {
            let health = Health {
                reported: reported.then_some((nothing, Duration::ZERO)),
                running_for: Duration::from_secs(running_for),
                was_ready,
            };
            let found = NotReady::of(&health).unhealthy;
            assert_eq!(found.is_empty(), is_ready, "{health:?}");
        }
    }
}
