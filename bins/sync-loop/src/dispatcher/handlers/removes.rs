//! Pods that their source no longer has.

use crate::dispatcher::admission::AdmissionState;
use crate::dispatcher::decision::Cause;
use crate::dispatcher::outbox::{Kill, Subject, Work, WorkerUpdate};
use crate::dispatcher::pod_manager::Uid;
use crate::dispatcher::workers::DepartedPod;
use crate::dispatcher::{Action, SyncLoop};

impl SyncLoop {
    /// `HandlePodRemoves`: the pod is no longer desired from now on, and its
    /// worker is told to stop it with the pod's own grace.
    pub(in crate::dispatcher) fn handle_pod_removes(&mut self, uids: &[Uid]) {
        for uid in uids {
            let Some(pod) = self.pods.remove(uid) else {
                continue;
            };
            self.work_queue.remove(uid);
            self.records_changed |= self.records.remove(uid);
            // A rejected pod has no worker and must not get one.
            if matches!(pod.admission, AdmissionState::Rejected(_)) {
                continue;
            }
            let source = pod.document.source();
            let kill = Kill {
                requested_at: self.now.wall,
                grace_period_seconds: None,
            };
            self.workers.depart(
                uid,
                DepartedPod {
                    document: pod.document,
                    kill,
                },
            );
            self.kill_departed(uid, &Cause::Removed(source));
        }
        if !uids.is_empty() {
            self.admit_pending();
        }
    }

    /// Sends the KILL of a departed pod, with the time when it was first asked for.
    pub(in crate::dispatcher) fn kill_departed(&mut self, uid: &Uid, cause: &Cause) {
        let Some(departed) = self.workers.departed(uid) else {
            return;
        };
        let subject = Subject::Desired(departed.document.clone());
        let work = Work::Kill(departed.kill.clone());
        self.send_undesired(uid, work, subject, cause);
    }

    /// Sends an update for a pod that is not desired.
    pub(in crate::dispatcher) fn send_undesired(
        &mut self,
        uid: &Uid,
        work: Work,
        subject: Subject,
        cause: &Cause,
    ) {
        let update = WorkerUpdate {
            uid: uid.clone(),
            sequence: self.workers.next_update(uid),
            work,
            subject,
            verdicts: self.verdicts.of(uid),
            cause: cause.text(),
        };
        self.actions.push(Action::UpdatePod(update));
    }
}
