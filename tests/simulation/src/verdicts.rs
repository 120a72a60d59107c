//! What must hold of containers that are stopped because their probes fail: that they failed
//! as often as it takes, and that no liveness probe counts before its container has started.

use simulated_runtime::{Entry, Happening};

use crate::desired::Desired;
use crate::orders::command_failed_at;
use crate::probe_ports::ProbeKind;
use crate::targets::Targets;
use crate::uids::uids_by_version;

/// Instances that hung and were stopped for it too early.
pub(crate) fn stopped_too_early(
    history: &[Entry],
    targets: &Targets,
    versions: &[Desired],
) -> Vec<String> {
    let uids = uids_by_version(history);
    let mut early = Vec::new();
    for pod in versions {
        let Some(uid) = uids.get(&pod.version_label()) else {
            continue;
        };
        let asked = history
            .iter()
            .filter(|entry| entry.pod_uid == *uid && entry.happening == Happening::Terminated);
        for stop in asked {
            let others = [
                pod.dismissed_at(),
                pod.resize_restarts_since(&stop.container),
                command_failed_at(history, &stop.id),
            ];
            let has_other = others.iter().flatten().any(|since| *since <= stop.at);
            if has_other || targets.hung_since(&stop.id).is_none() {
                continue;
            }
            let answers = |kind| targets.answers_before(&stop.id, kind, stop.at);
            let startup = pod
                .startup_threshold()
                .zip(Some(answers(ProbeKind::Startup)));
            let (startup, liveness) = (startup, answers(ProbeKind::Liveness));
            if !has_failed(startup.as_ref(), (pod.liveness_threshold(), &liveness)) {
                let name = &stop.container;
                early.push(format!(
                    "{name} of {pod} was stopped at {:?} for its probes, which had answered \
                     (the newest first) {liveness:?} and at its start {startup:?}",
                    stop.at
                ));
            }
        }
    }
    early
}

/// Whether answers, the newest first, are enough of a failure to stop a container: those of
/// its liveness probe once its startup probe has succeeded, if it has one, or those of its
/// startup probe. A success that was given to a prober which was killed before it told of it
/// is none.
fn has_failed(startup: Option<&(usize, Vec<bool>)>, liveness: (usize, &[bool])) -> bool {
    let in_a_row = |answers: &[bool]| answers.iter().take_while(|well| !**well).count();
    let has_started = startup.is_none_or(|(_, answers)| answers.contains(&true));
    let is_not_live = in_a_row(liveness.1) >= liveness.0;
    let has_not_started =
        startup.is_some_and(|(threshold, answers)| in_a_row(answers) >= *threshold);
    has_started && is_not_live || has_not_started
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_failures_in_a_row_as_the_threshold_are_a_failure() {
        let failed = |answers: &[bool]| has_failed(None, (2, answers));
        assert!(failed(&[false, false]));
        assert!(failed(&[false, false, true]));
        assert!(!failed(&[false, true, false]));
        assert!(!failed(&[false]));
        assert!(!failed(&[]));
    }

    #[test]
    fn a_liveness_probe_counts_once_the_startup_probe_has_succeeded() {
        let failed = |startup: &[bool], liveness: &[bool]| {
            has_failed(Some(&(3, startup.to_vec())), (1, liveness))
        };
        assert!(!failed(&[false, false], &[false, false]));
        assert!(failed(&[false, false, false], &[]));
        assert!(failed(&[true, false], &[false]));
        assert!(!failed(&[true, false, false, false], &[]));
        assert!(failed(&[false, false, false, true], &[true]));
    }
}
