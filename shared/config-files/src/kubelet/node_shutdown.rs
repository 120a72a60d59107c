//! Graceful shutdown of the node: `shutdownGracePeriod` and its relatives, with a
//! kubelet's rules (`validation.go`, `nodeshutdown_manager.go`).

use std::time::Duration;

use node_config::ShutdownGroup;
use serde::Deserialize;

use super::problem::{Applied, refused};
use crate::kubelet::duration::GoDuration;

/// The priority from which on a pod is critical for the system.
const CRITICAL: i32 = 2_000_000_000;

/// What the file gives.
#[derive(Debug, Default)]
pub(super) struct Given<'a> {
    pub(super) all: Option<GoDuration>,
    pub(super) critical: Option<GoDuration>,
    pub(super) by_priority: &'a [ByPriority],
}

/// One of `shutdownGracePeriodByPodPriority`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ByPriority {
    priority: i32,
    shutdown_grace_period_seconds: i64,
}

impl Given<'_> {
    /// The groups of pods that are ended one after the other, lowest priority first.
    pub(super) fn apply(&self, groups: &mut Vec<ShutdownGroup>) -> Applied {
        let (all, critical) = (duration(self.all), duration(self.critical));
        for (field, given) in [
            ("shutdownGracePeriod", all),
            ("shutdownGracePeriodCriticalPods", critical),
        ] {
            if !given.is_zero() && given < Duration::from_secs(1) {
                return refused(field, format!("{given:?}: give 0s or at least 1s"));
            }
        }
        if critical > all {
            let reason = format!("{critical:?} is more than shutdownGracePeriod, {all:?}");
            return refused("shutdownGracePeriodCriticalPods", reason);
        }
        let field = "shutdownGracePeriodByPodPriority";
        if self.by_priority.is_empty() {
            if !all.is_zero() {
                *groups = [(0, all - critical), (CRITICAL, critical)]
                    .map(|(priority, grace)| ShutdownGroup { priority, grace })
                    .into();
            }
            return Ok(());
        }
        if !all.is_zero() {
            return refused(field, "give this or shutdownGracePeriod, not both");
        }
        for given in self.by_priority {
            let seconds = given.shutdown_grace_period_seconds;
            let Ok(seconds) = u64::try_from(seconds) else {
                return refused(field, format!("{seconds}: it cannot be negative"));
            };
            if groups.iter().any(|group| group.priority == given.priority) {
                return refused(field, format!("priority {} is given twice", given.priority));
            }
            groups.push(ShutdownGroup {
                priority: given.priority,
                grace: Duration::from_secs(seconds),
            });
        }
        groups.sort_by_key(|group| group.priority);
        Ok(())
    }
}

fn duration(given: Option<GoDuration>) -> Duration {
    given.map_or(Duration::ZERO, |GoDuration(duration)| duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(
        all: u64,
        critical: u64,
        by_priority: &[(i32, i64)],
    ) -> Result<Vec<(i32, u64)>, String> {
        let period = |millis| Some(GoDuration(Duration::from_millis(millis)));
        let by_priority: Vec<ByPriority> = by_priority
            .iter()
            .map(|(priority, seconds)| ByPriority {
                priority: *priority,
                shutdown_grace_period_seconds: *seconds,
            })
            .collect();
        let mut groups = Vec::new();
        let given = Given {
            all: period(all),
            critical: period(critical),
            by_priority: &by_priority,
        };
        given
            .apply(&mut groups)
            .map_err(|error| error.to_string())?;
        let pair = |group: &ShutdownGroup| (group.priority, group.grace.as_secs());
        Ok(groups.iter().map(pair).collect())
    }

    #[test]
    fn groups_follow_a_kubelets_rules() {
        assert_eq!(given(0, 0, &[]), Ok(vec![]));
        let both = Ok(vec![(0, 20), (CRITICAL, 10)]);
        assert_eq!(given(30_000, 10_000, &[]), both);
        let sorted = Ok(vec![(-5, 0), (0, 60), (100, 7)]);
        assert_eq!(given(0, 0, &[(100, 7), (-5, 0), (0, 60)]), sorted);
    }

    #[test]
    fn what_a_kubelet_refuses_is_refused() {
        for (all, critical, by_priority, named) in [
            (500, 0, &[][..], "shutdownGracePeriod"),
            (5_000, 6_000, &[], "is more than"),
            (5_000, 500, &[], "shutdownGracePeriodCriticalPods"),
            (5_000, 0, &[(0, 1)], "not both"),
            (0, 0, &[(0, -1)], "negative"),
            (0, 0, &[(0, 1), (0, 2)], "twice"),
        ] {
            let error = given(all, critical, by_priority).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
