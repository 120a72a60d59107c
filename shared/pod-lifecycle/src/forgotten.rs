//! Which workers are forgotten when sync-loop tells which pods are desired.

use std::collections::HashSet;

use pod::PodSource;

use crate::termination::TerminationCause;
use crate::worker::Worker;

/// Whether a worker's history is of no use any more.
///
/// A finished worker stays while its pod is desired: it is what keeps a pod that
/// has ended from being started again. It goes when nothing wants the pod though its source
/// has delivered, or was seen to drop it, or when the same UID is wanted anew. A worker that
/// has not finished stays.
#[must_use]
pub fn is_forgotten(
    worker: &Worker,
    desired: &HashSet<String>,
    delivered: &HashSet<PodSource>,
) -> bool {
    if !worker.is_finished() {
        return false;
    }
    let is_desired = desired.contains(worker.identity().uid());
    let has_delivered = worker
        .desired()
        .is_some_and(|pod| delivered.contains(&pod.document().source()));
    let cause = worker.termination().map(|termination| &termination.cause);
    let was_dropped = cause == Some(&TerminationCause::Killed);
    worker.restart_requested() || ((has_delivered || was_dropped) && !is_desired)
}

#[cfg(test)]
mod tests {
    use clock::UnixNanos;

    use super::*;
    use crate::testing::{desired, manifest};
    use crate::worker::{Subject, Update, UpdateKind};

    fn worker(steps: usize, dropped: bool, recreated: bool) -> Worker {
        let pod = desired(manifest("a", "u1"));
        let update = |kind| Update {
            kind,
            subject: Subject::Desired(pod.clone()),
            kill: None,
        };
        let now = UnixNanos(0);
        let mut worker = Worker::new(now, update(UpdateKind::Create)).unwrap();
        worker.start();
        if steps > 0 && dropped {
            worker.update(now, update(UpdateKind::Kill));
        } else if steps > 0 {
            worker.sync_ended(now, TerminationCause::Completed);
        }
        if recreated {
            worker.update(now, update(UpdateKind::Create));
        }
        if steps > 1 {
            worker.terminating_done();
        }
        if steps > 2 {
            worker.terminated_done();
        }
        worker
    }

    #[test]
    fn only_finished_workers_that_nothing_wants_are_forgotten() {
        const FINISHED: usize = 3;
        for (steps, dropped, recreated, desired, sources_ready, expected) in [
            (0, false, false, false, true, false),
            (1, true, false, false, true, false),
            (2, true, false, false, true, false),
            (FINISHED, false, false, false, true, true),
            (FINISHED, false, false, true, true, false),
            (FINISHED, false, false, false, false, false),
            (FINISHED, true, false, false, false, true),
            (1, true, true, true, true, false),
            (FINISHED, true, true, true, true, true),
            (FINISHED, true, true, true, false, true),
        ] {
            let desired_uids = desired.then(|| "u1".to_owned()).into_iter().collect();
            // That another source has delivered says nothing of this one.
            let delivered = [PodSource::Api]
                .into_iter()
                .chain(sources_ready.then_some(PodSource::File))
                .collect();
            assert_eq!(
                is_forgotten(
                    &worker(steps, dropped, recreated),
                    &desired_uids,
                    &delivered
                ),
                expected,
                "{steps} {dropped} {recreated} {desired} {sources_ready}"
            );
        }
    }
}
