//! What to do about an image, and how long a failed pull is left alone. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use backoff::Curve;
use clock::UnixNanos;
use pod::ImageReference;

/// Waits after failed pulls, as in the kubelet.
const WAITS: Curve = Curve {
    base: Duration::from_secs(10),
    cap: Duration::from_secs(300),
    immediate: 0,
};
/// A failure that is this old counts no more: twice the longest wait.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// When an image is pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PullPolicy {
    /// Before each start.
    Always,
    /// When the node does not have it.
    IfNotPresent,
    /// Not at all.
    Never,
}

impl PullPolicy {
    /// The policy of this word, or the default for this name: an image that is the
    /// latest is pulled always.
    pub(crate) fn of(word: Option<&str>, image: ImageReference<'_>) -> PullPolicy {
        match word {
            Some("Always") => PullPolicy::Always,
            Some("IfNotPresent") => PullPolicy::IfNotPresent,
            Some("Never") => PullPolicy::Never,
            _ if image.is_latest() => PullPolicy::Always,
            _ => PullPolicy::IfNotPresent,
        }
    }
}

/// What to do about an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is there.
    Use,
    Pull,
    /// It is not there, and may not be pulled.
    Refuse,
    /// A pull failed not long ago.
    BackOff {
        until: UnixNanos,
        failure: String,
    },
}

pub(super) fn decide(
    policy: PullPolicy,
    present: bool,
    failure: Option<&PullFailure>,
    now: UnixNanos,
) -> Decision {
    match (policy, present) {
        (PullPolicy::Never | PullPolicy::IfNotPresent, true) => Decision::Use,
        (PullPolicy::Never, false) => Decision::Refuse,
        (PullPolicy::Always, _) | (PullPolicy::IfNotPresent, false) => {
            match failure.filter(|failure| failure.holds(now)) {
                Some(failure) => Decision::BackOff {
                    until: failure.retry_at(),
                    failure: failure.message.clone(),
                },
                None => Decision::Pull,
            }
        }
    }
}

/// The last failed pull of one image for one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PullFailure {
    at: UnixNanos,
    /// In a row.
    count: u32,
    /// Why it failed.
    message: String,
}

impl PullFailure {
    fn retry_at(&self) -> UnixNanos {
        self.at.plus(WAITS.wait(self.count))
    }

    /// Whether it is to be waited for. A clock that was set back does not prolong it:
    /// what lies in the future has not happened.
    fn holds(&self, now: UnixNanos) -> bool {
        now >= self.at && now < self.retry_at()
    }

    fn is_old(&self, now: UnixNanos) -> bool {
        now.since(self.at) > FORGET_AFTER
    }
}

/// Failed pulls by pod and image.
#[derive(Debug, Default)]
pub(super) struct PullFailures(BTreeMap<(String, String), PullFailure>);

impl PullFailures {
    pub(super) fn get(&self, pod_uid: &str, image: &str) -> Option<&PullFailure> {
        self.0.get(&(pod_uid.to_owned(), image.to_owned()))
    }

    /// Records a failure; answers when the next pull is due. One that is told while the last
    /// one is waited for is of the same pull, which several containers of a pod wait for, and
    /// counts as that: none begins meanwhile.
    pub(super) fn failed(
        &mut self,
        pod_uid: &str,
        image: &str,
        message: &str,
        now: UnixNanos,
    ) -> UnixNanos {
        self.0.retain(|_, failure| !failure.is_old(now));
        let key = (pod_uid.to_owned(), image.to_owned());
        let count = self.0.get(&key).map_or(1, |earlier| {
            let is_another = !earlier.holds(now);
            earlier.count.saturating_add(u32::from(is_another))
        });
        let failure = PullFailure {
            at: now,
            count,
            message: message.to_owned(),
        };
        let retry_at = failure.retry_at();
        self.0.insert(key, failure);
        retry_at
    }

    pub(super) fn succeeded(&mut self, pod_uid: &str, image: &str) {
        self.0.remove(&(pod_uid.to_owned(), image.to_owned()));
    }

    pub(super) fn forget_pod(&mut self, pod_uid: &str) {
        self.0.retain(|(uid, _), _| uid != pod_uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> UnixNanos {
        UnixNanos(seconds * 1_000_000_000)
    }

    #[test]
    fn the_policy_and_the_presence_decide() {
        use Decision::{Pull, Refuse, Use};
        use PullPolicy::{Always, IfNotPresent, Never};
        for (policy, present, expected) in [
            (Always, true, Pull),
            (Always, false, Pull),
            (IfNotPresent, true, Use),
            (IfNotPresent, false, Pull),
            (Never, true, Use),
            (Never, false, Refuse),
        ] {
            assert_eq!(
                decide(policy, present, None, at(0)),
                expected,
                "{policy:?} {present}"
            );
        }
    }

    #[test]
    fn the_default_policy_follows_the_tag() {
        let digest = format!("a@sha256:{}", "0".repeat(64));
        let latest = digest.replace('@', ":latest@");
        for (word, image, expected) in [
            (Some("Never"), "a:latest", PullPolicy::Never),
            (Some("IfNotPresent"), "a:latest", PullPolicy::IfNotPresent),
            (Some("Always"), "a:1", PullPolicy::Always),
            (None, "a:latest", PullPolicy::Always),
            (None, "a", PullPolicy::Always),
            (None, "Foo/a", PullPolicy::Always),
            (None, latest.as_str(), PullPolicy::Always),
            (None, digest.as_str(), PullPolicy::IfNotPresent),
            (None, "a:1", PullPolicy::IfNotPresent),
            (Some(""), "a:1", PullPolicy::IfNotPresent),
        ] {
            let reference = ImageReference::parse(image).unwrap();
            assert_eq!(
                PullPolicy::of(word, reference),
                expected,
                "{word:?} {image}"
            );
        }
    }

    #[test]
    fn waits_double_to_five_minutes_and_are_forgotten_after_ten() {
        let mut failures = PullFailures::default();
        let mut now = 0;
        let mut waits = Vec::new();
        for _ in 0..7 {
            let retry_at = failures.failed("u", "i", "m", at(now));
            waits.push(retry_at.since(at(now)).as_secs());
            now = retry_at.0 / 1_000_000_000;
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
        // Ten minutes after the last failure, and one second.
        let again = now - 300 + 601;
        assert_eq!(failures.failed("u", "i", "m", at(again)), at(again + 10));
    }

    #[test]
    fn one_pull_that_fails_for_several_containers_counts_once() {
        let mut failures = PullFailures::default();
        for _ in 0..3 {
            assert_eq!(failures.failed("u", "i", "m", at(100)), at(110));
        }
        for _ in 0..3 {
            assert_eq!(failures.failed("u", "i", "m", at(110)), at(130));
        }
    }

    #[test]
    fn a_failure_holds_until_its_wait_is_over() {
        let mut failures = PullFailures::default();
        failures.failed("u", "i", "no route", at(100));
        let decided = |now| decide(PullPolicy::Always, false, failures.get("u", "i"), at(now));
        let back_off = Decision::BackOff {
            until: at(110),
            failure: "no route".to_owned(),
        };
        assert_eq!(decided(100), back_off);
        assert_eq!(decided(109), back_off);
        assert_eq!(decided(110), Decision::Pull);
        // The clock was set back.
        assert_eq!(decided(50), Decision::Pull);
    }

    #[test]
    fn failures_are_of_one_pod_and_one_image() {
        let mut failures = PullFailures::default();
        failures.failed("u", "i", "m", at(0));
        failures.failed("u", "j", "m", at(0));
        failures.failed("v", "i", "m", at(0));
        failures.succeeded("u", "i");
        assert!(failures.get("u", "i").is_none());
        failures.forget_pod("u");
        assert!(failures.get("u", "j").is_none());
        assert!(failures.get("v", "i").is_some());
    }
}
