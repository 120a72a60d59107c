//! A termination: why, since when, and how long each container may take.
//!
//! Until when one may take is `stop`'s business: that begins with its SIGTERM.

use std::time::Duration;

use clock::UnixNanos;
use serde::{Deserialize, Serialize};

use crate::desired::DesiredPod;

/// A grace period is never shorter: a container always gets a moment to see
/// its SIGTERM.
pub const MINIMUM_GRACE: Duration = Duration::from_secs(1);

/// A grace period is never longer; beyond this the arithmetic of deadlines ends.
pub const MAXIMUM_GRACE: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Longest reason and message of an eviction, in bytes.
pub const MAX_REASON_BYTES: usize = 64;
/// See [`MAX_REASON_BYTES`].
pub const MAX_MESSAGE_BYTES: usize = 1024;

/// Why a pod is being terminated. The first cause stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TerminationCause {
    /// Its source marked it for deletion.
    Deleted,
    /// sync-loop asked for it: it is no longer desired.
    Killed,
    /// It had to go for the node's sake: it becomes Failed.
    Evicted {
        /// Evicted, Preempting ...
        reason: String,
        /// For people.
        message: String,
        /// The node was short of something, which its condition `DisruptionTarget` tells.
        is_disruption: bool,
    },
    /// It was active for longer than `activeDeadlineSeconds`: it becomes Failed.
    DeadlineExceeded,
    /// All its containers are done and none is to be started again.
    Completed,
    /// Its source says that it has ended (phase Succeeded or Failed).
    EndedAtSource,
    /// Only the runtime had it.
    Orphaned,
}

impl TerminationCause {
    /// Reason and message with which the pod becomes Failed whatever its
    /// containers say.
    #[must_use]
    pub fn failure(&self) -> Option<(&str, &str)> {
        match self {
            Self::Evicted {
                reason, message, ..
            } => Some((reason, message)),
            Self::DeadlineExceeded => Some((
                "DeadlineExceeded",
                "Pod was active on the node longer than the specified deadline",
            )),
            _ => None,
        }
    }

    /// Whether the node ended the pod because it was short of something.
    #[must_use]
    pub fn is_disruption(&self) -> bool {
        matches!(
            self,
            Self::Evicted {
                is_disruption: true,
                ..
            }
        )
    }

    /// Whether the pod came to its end by itself.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(
            self,
            Self::DeadlineExceeded | Self::Completed | Self::EndedAtSource
        )
    }

    /// Whether nothing but our own record tells that the pod has ended: what ran of
    /// it did not end by itself, and its source wants it still.
    #[must_use]
    pub fn is_known_by_record_alone(&self) -> bool {
        matches!(self, Self::Evicted { .. })
    }

    /// Whether the pod was ended for a shutdown of the node, and starts again with its
    /// next boot.
    #[must_use]
    pub fn ends_with_the_boot(&self) -> bool {
        matches!(self, Self::Evicted { reason, .. } if pod::node_shutdown::is_reason(reason))
    }

    /// Whether its source wants the pod no more, so that the same UID, created again, is a
    /// new start.
    #[must_use]
    pub fn permits_recreation(&self) -> bool {
        matches!(self, Self::Deleted | Self::Killed | Self::Orphaned)
    }
}

/// What a KILL asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KillRequest {
    /// Overrides the pod's own grace period.
    pub grace: Option<Duration>,
    /// When it was asked for; absent: now.
    pub requested_at: Option<UnixNanos>,
    /// Why the pod is to become Failed, if it is.
    pub eviction: Option<EvictionRequest>,
}

/// Why a pod has to go for the node's sake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionRequest {
    /// Evicted, Preempting ...
    pub reason: String,
    /// For people.
    pub message: String,
    /// The node is short of something.
    pub is_disruption: bool,
}

impl KillRequest {
    /// Has a pod go for the node's sake, within this grace.
    #[must_use]
    pub fn evict(grace: Duration, eviction: EvictionRequest) -> KillRequest {
        KillRequest {
            grace: Some(grace),
            requested_at: None,
            eviction: Some(eviction),
        }
    }

    /// Whether the pod is to become Failed for it.
    #[must_use]
    pub fn is_eviction(&self) -> bool {
        self.eviction.is_some()
    }
}

/// A termination under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Termination {
    /// Why.
    pub cause: TerminationCause,
    /// When it was first asked for, in wall time.
    #[serde(with = "nanos")]
    pub requested_at: UnixNanos,
    /// The grace period of the request that decides; `None` for a pod whose
    /// spec is unknown: each container's own annotation decides then.
    pub grace: Option<Duration>,
}

impl Termination {
    /// A termination that is asked for now, or was at the time that the kill names.
    #[must_use]
    pub fn new(
        cause: TerminationCause,
        now: UnixNanos,
        pod: Option<&DesiredPod>,
        kill: Option<&KillRequest>,
    ) -> Termination {
        let requested = requested_grace(pod, kill);
        Termination {
            cause,
            requested_at: requested_at(now, kill),
            grace: requested
                .or_else(|| pod.map(DesiredPod::spec_grace))
                .map(bounded),
        }
    }

    /// The same with a grace that can be given and texts that can be sent on, as
    /// [`Termination::new`] and who asks for it see to. For one that was read from a
    /// file.
    #[must_use]
    pub fn within_bounds(mut self) -> Termination {
        self.grace = self.grace.map(bounded);
        if let TerminationCause::Evicted {
            reason, message, ..
        } = &mut self.cause
        {
            truncate(reason, MAX_REASON_BYTES);
            truncate(message, MAX_MESSAGE_BYTES);
        }
        self
    }

    /// Applies a further request. Grace only shrinks: whether it did is the answer.
    pub fn shrink(&mut self, pod: Option<&DesiredPod>, kill: Option<&KillRequest>) -> bool {
        let Some(grace) = requested_grace(pod, kill).map(bounded) else {
            return false;
        };
        let is_shorter = self.grace.is_none_or(|known| grace < known);
        if is_shorter {
            self.grace = Some(grace);
        }
        is_shorter
    }

    /// The grace period that applies to a container with this annotation.
    #[must_use]
    pub fn grace_for(&self, own_grace: Option<Duration>) -> Duration {
        let default = Duration::from_secs(
            u64::try_from(pod::accessors::DEFAULT_TERMINATION_GRACE_PERIOD_SECONDS).unwrap_or(30),
        );
        self.grace
            .unwrap_or_else(|| bounded(own_grace.unwrap_or(default)))
    }
}

fn truncate(text: &mut String, bytes: usize) {
    text.truncate(text.floor_char_boundary(bytes));
}

fn bounded(grace: Duration) -> Duration {
    grace.clamp(MINIMUM_GRACE, MAXIMUM_GRACE)
}

/// A request cannot lie in the future: the clock was set back, or somebody's differs.
fn requested_at(now: UnixNanos, kill: Option<&KillRequest>) -> UnixNanos {
    kill.and_then(|kill| kill.requested_at)
        .map_or(now, |at| at.min(now))
}

/// The shorter of what the source and the kill ask for, if they ask at all.
fn requested_grace(pod: Option<&DesiredPod>, kill: Option<&KillRequest>) -> Option<Duration> {
    let source = pod.and_then(DesiredPod::deletion_grace);
    let kill = kill.and_then(|kill| kill.grace);
    match (source, kill) {
        (Some(source), Some(kill)) => Some(source.min(kill)),
        (source, kill) => source.or(kill),
    }
}

mod nanos {
    use clock::UnixNanos;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(at: &UnixNanos, to: S) -> Result<S::Ok, S::Error> {
        at.0.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<UnixNanos, D::Error> {
        i64::deserialize(from).map(UnixNanos)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{desired, manifest};

    const SECOND: i64 = 1_000_000_000;

    fn at(seconds: i64) -> UnixNanos {
        UnixNanos(seconds * SECOND)
    }

    fn grace(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn kill(seconds: u64) -> KillRequest {
        KillRequest {
            grace: Some(grace(seconds)),
            ..KillRequest::default()
        }
    }

    fn pod(spec: u64, deletion: Option<u64>) -> DesiredPod {
        let mut value = manifest("a", "u");
        value["spec"]["terminationGracePeriodSeconds"] = json!(spec);
        if let Some(deletion) = deletion {
            value["metadata"]["deletionGracePeriodSeconds"] = json!(deletion);
        }
        desired(value)
    }

    #[test]
    fn the_shortest_request_decides_and_the_spec_only_without_one() {
        for (spec, deletion, kill_grace, expected) in [
            (30, None, None, 30),
            (30, Some(60), None, 60),
            (30, Some(5), None, 5),
            (30, None, Some(90), 90),
            (30, Some(20), Some(3), 3),
            (30, Some(3), Some(20), 3),
            (0, None, None, 1),
            (30, Some(0), None, 1),
            (30, None, Some(0), 1),
        ] {
            let kill = kill_grace.map(kill);
            let termination = Termination::new(
                TerminationCause::Killed,
                at(100),
                Some(&pod(spec, deletion)),
                kill.as_ref(),
            );
            assert_eq!(
                termination.grace,
                Some(grace(expected)),
                "{spec} {deletion:?} {kill_grace:?}"
            );
        }
    }

    #[test]
    fn grace_period_only_shrinks() {
        let pod = pod(30, None);
        let mut termination =
            Termination::new(TerminationCause::Killed, at(0), Some(&pod), Some(&kill(20)));
        assert!(!termination.shrink(Some(&pod), Some(&kill(60))));
        assert!(!termination.shrink(Some(&pod), None));
        assert_eq!(termination.grace_for(Some(grace(5))), grace(20));
        assert!(termination.shrink(Some(&pod), Some(&kill(3))));
        assert!(!termination.shrink(Some(&pod), Some(&kill(3))));
        assert_eq!(termination.grace_for(None), grace(3));
    }

    #[test]
    fn a_request_was_made_when_it_says_but_not_in_the_future() {
        let pod = pod(30, None);
        for (requested, expected) in [(500, 100), (90, 90), (0, 0)] {
            let kill = KillRequest {
                requested_at: Some(at(requested)),
                ..KillRequest::default()
            };
            let termination =
                Termination::new(TerminationCause::Killed, at(100), Some(&pod), Some(&kill));
            assert_eq!(termination.requested_at, at(expected));
            assert_eq!(termination.grace_for(None), grace(30), "{requested}");
        }
    }

    #[test]
    fn without_a_spec_each_containers_annotation_decides() {
        let mut termination = Termination::new(TerminationCause::Orphaned, at(0), None, None);
        assert_eq!(termination.grace_for(Some(grace(10))), grace(10));
        assert_eq!(termination.grace_for(None), grace(30));
        assert!(termination.shrink(None, Some(&kill(3))));
        assert_eq!(termination.grace_for(Some(grace(10))), grace(3));
    }

    #[test]
    fn it_survives_the_way_through_a_file() {
        let termination = Termination::new(TerminationCause::Orphaned, at(7), None, Some(&kill(9)));
        let text = serde_json::to_string(&termination).unwrap();
        assert_eq!(
            serde_json::from_str::<Termination>(&text).unwrap(),
            termination
        );
    }
}
