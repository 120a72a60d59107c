//! Whether a pod is on its way out already, so that no second one has to go: pure, from
//! the records, which are there in another run of the process too.

use std::collections::BTreeSet;
use std::time::Duration;

use clock::UnixNanos;
use pod::PodIdentity;
use pod_lifecycle::TerminationCause;
use pod_lifecycle::record::Record;

/// Longest wait for the files of an evicted pod to go, once its grace is over (the
/// kubelet's `podCleanupTimeout`). A file system that hangs must not protect all others.
pub(super) const CLEAN_UP_MAY_TAKE: Duration = Duration::from_secs(30);

/// Whether an evicted pod has not finished yet, nor had its time. `finished` are the UIDs
/// of workers that have nothing left to do.
pub(super) fn is_under_way(
    records: &[(PodIdentity, Record)],
    finished: &BTreeSet<String>,
    now: UnixNanos,
) -> bool {
    let mut ending = records.iter().filter_map(|(pod, record)| {
        let termination = record.termination.as_ref()?;
        let is_eviction = matches!(termination.cause, TerminationCause::Evicted { .. });
        (is_eviction && !finished.contains(pod.uid())).then_some(termination)
    });
    ending.any(|termination| {
        let grace = termination.grace.unwrap_or_default();
        let until = termination.requested_at.plus(grace).plus(CLEAN_UP_MAY_TAKE);
        // A time to come was noted before the clock was set back: it tells nothing.
        termination.requested_at <= now && now < until
    })
}

#[cfg(test)]
mod tests {
    use pod_lifecycle::Termination;

    use super::*;

    #[test]
    fn a_second_pod_waits_for_the_first_and_not_for_ever() {
        let at = |seconds: u64| UnixNanos(0).plus(Duration::from_secs(seconds));
        let evicted = TerminationCause::Evicted {
            reason: "Evicted".to_owned(),
            message: String::new(),
            is_disruption: true,
        };
        let pod = PodIdentity::new("u", "default", "a").unwrap();
        for (cause, is_finished, now, expected) in [
            (&evicted, false, 100, true),
            (&evicted, false, 139, true),
            (&evicted, false, 140, false),
            (&evicted, true, 100, false),
            (&evicted, false, 99, false),
            (&TerminationCause::Deleted, false, 100, false),
        ] {
            let record = Record {
                termination: Some(Termination {
                    cause: cause.clone(),
                    requested_at: at(100),
                    grace: Some(Duration::from_secs(10)),
                }),
                ..Record::default()
            };
            let finished = is_finished.then(|| "u".to_owned()).into_iter().collect();
            let found = is_under_way(&[(pod.clone(), record)], &finished, at(now));
            assert_eq!(found, expected, "{cause:?} {is_finished} at {now}");
        }
        let none = [(pod, Record::default())];
        assert!(!is_under_way(&none, &BTreeSet::new(), at(0)));
    }
}
