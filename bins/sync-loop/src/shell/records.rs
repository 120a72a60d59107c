//! The admission records on disk, and rejections that wait for them: a pod whose
//! rejection was told must be found rejected by the next run.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;

use bulkhead_api::v1::RejectPodRequest;
use state_file::{Saver, StateFile};
use tokio_util::task::AbortOnDropHandle;
use topology::{Process, row};

use super::mailbox::Mailbox;
use super::reports::rejection_uid;
use super::status_syncer::StatusSyncer;
use crate::dispatcher::admission::AdmissionRecords;

/// Format of the file.
const VERSION: u32 = 1;

/// The file below the state directory.
const FILE_NAME: &str = "admission.json";

/// The file, and what an earlier run has written there.
#[derive(Debug)]
pub(super) struct RecordsFile {
    file: StateFile,
    remembered: AdmissionRecords,
}

impl RecordsFile {
    /// The file in our state directory, which is read at once.
    pub(super) fn open(directory: &Path) -> RecordsFile {
        let file = StateFile::new(directory.join(FILE_NAME), VERSION)
            .at_most(row(Process::SyncLoop).state_file_max_bytes());
        let remembered = match file.load() {
            Ok(records) => records.unwrap_or_default(),
            Err(error) => {
                let error = telemetry::chain(&error);
                tracing::warn!(
                    error,
                    "admission records are lost; pods that run are adopted"
                );
                AdmissionRecords::default()
            }
        };
        RecordsFile { file, remembered }
    }
}

/// What is still to be done.
#[derive(Debug, Default)]
struct Pending {
    records: Option<AdmissionRecords>,
    /// The newest of each known pod, by its UID: the disk may hang for long.
    rejections: BTreeMap<String, RejectPodRequest>,
}

impl Pending {
    fn add(&mut self, rejections: Vec<RejectPodRequest>) {
        for rejection in rejections {
            self.rejections.insert(rejection_uid(&rejection), rejection);
        }
    }

    fn retain(&mut self, known: &[String]) {
        self.rejections.retain(|uid, _| known.contains(uid));
    }
}

/// The records' way to disk. Dropping it ends its task.
pub(super) struct Records {
    pending: Mailbox<Pending>,
    _task: AbortOnDropHandle<Infallible>,
}

impl Records {
    /// Starts the task that saves, and gives what an earlier run has written.
    pub(super) fn start(
        RecordsFile { file, remembered }: RecordsFile,
        reports: StatusSyncer,
    ) -> (Records, AdmissionRecords) {
        let write = move |(): &(), records: &AdmissionRecords| file.save(records);
        let (saver, writer) = Saver::new("admission records", write);
        let pending = Mailbox::default();
        let saving = save(saver, pending.clone(), reports);
        let task = tokio::spawn(async move {
            tokio::select! {
                biased;
                never = saving => never,
                never = writer.run() => never,
            }
        });
        (
            Records {
                pending,
                _task: AbortOnDropHandle::new(task),
            },
            remembered,
        )
    }

    /// Writes `records`, if there are new ones, then passes the rejections on.
    pub(super) fn save(
        &self,
        records: Option<AdmissionRecords>,
        rejections: Vec<RejectPodRequest>,
    ) {
        if records.is_none() && rejections.is_empty() {
            return;
        }
        self.pending.fill(|pending| {
            pending.records = records.or(pending.records.take());
            pending.add(rejections);
        });
    }

    /// Pods that are known now. A rejection of another is of no interest any more.
    pub(super) fn retain(&self, known: &[String]) {
        self.pending.with(|pending| pending.retain(known));
    }
}

/// Has the newest records saved, then passes on the rejections that are in them.
async fn save(
    saver: Saver<(), AdmissionRecords>,
    pending: Mailbox<Pending>,
    reports: StatusSyncer,
) -> Infallible {
    loop {
        let Pending {
            records,
            rejections,
        } = pending.with(std::mem::take);
        if records.is_none() && rejections.is_empty() {
            pending.filled().await;
            continue;
        }
        if let Some(records) = records {
            // A disk that is full or hangs does not keep a rejection from being seen: the
            // saver says so, and goes on trying.
            let _ = saver.put((), records).finished().await;
        }
        for rejection in rejections.into_values() {
            reports.reject(rejection);
        }
    }
}

#[cfg(test)]
mod tests {
    use bulkhead_api::v1::{Pod, PodReference};

    use super::*;

    fn rejection(uid: &str, reason: &str) -> RejectPodRequest {
        RejectPodRequest {
            pod: Some(Pod {
                reference: Some(PodReference {
                    uid: uid.to_owned(),
                    ..PodReference::default()
                }),
                ..Pod::default()
            }),
            reason: reason.to_owned(),
            ..RejectPodRequest::default()
        }
    }

    #[test]
    fn while_the_disk_hangs_only_the_newest_rejection_of_each_known_pod_waits() {
        let mut pending = Pending::default();
        pending.add(vec![rejection("a", "old"), rejection("b", "same")]);
        pending.add(vec![rejection("a", "new"), rejection("gone", "same")]);
        pending.retain(&["a".to_owned(), "b".to_owned()]);
        let waiting: Vec<_> = pending.rejections.into_values().collect();
        assert_eq!(waiting, [rejection("a", "new"), rejection("b", "same")]);
    }
}
