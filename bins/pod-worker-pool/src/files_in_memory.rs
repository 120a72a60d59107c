//! How much the volumes of all pods keep in memory. It counts as pod-worker-pool's own, whose
//! memory is limited: pods whose files take more could have it ended again and again.
//!
//! Not here: what one pod may have, which is `pod_volumes`'.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use topology::{Process, row};

/// How much each pod's files in memory take. It begins empty: after a restart each pod's
/// first sync notes what its volumes have.
#[derive(Debug)]
pub(crate) struct FilesInMemory {
    most_bytes: usize,
    by_pod: Mutex<BTreeMap<String, usize>>,
}

/// There is no room for the files of a pod.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the pod's files in memory take {bytes} bytes, those of other pods {of_others}, and all \
     together may take {most_bytes}"
)]
pub(crate) struct Full {
    bytes: usize,
    of_others: usize,
    most_bytes: usize,
}

impl FilesInMemory {
    /// A third of this process's memory at most.
    pub(crate) fn new() -> FilesInMemory {
        let third = row(Process::PodWorkerPool).memory_max_bytes / 3;
        FilesInMemory::of_at_most(usize::try_from(third).unwrap_or(usize::MAX))
    }

    fn of_at_most(most_bytes: usize) -> FilesInMemory {
        FilesInMemory {
            most_bytes,
            by_pod: Mutex::default(),
        }
    }

    /// Notes that a pod's files are to take so many bytes. One that needs no more than
    /// before always may.
    pub(crate) fn reserve(&self, pod_uid: &str, bytes: usize) -> Result<(), Full> {
        let mut by_pod = self.lock();
        let before = by_pod.get(pod_uid).copied().unwrap_or(0);
        let of_others = by_pod.values().sum::<usize>() - before;
        if bytes > before && of_others.saturating_add(bytes) > self.most_bytes {
            return Err(Full {
                bytes,
                of_others,
                most_bytes: self.most_bytes,
            });
        }
        by_pod.insert(pod_uid.to_owned(), bytes);
        Ok(())
    }

    /// The pod's volumes are gone.
    pub(crate) fn release(&self, pod_uid: &str) {
        self.lock().remove(pod_uid);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.by_pod.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_share_the_memory_for_their_files_and_give_it_back() {
        let files = FilesInMemory::of_at_most(100);
        files.reserve("a", 60).unwrap();
        let full = files.reserve("b", 41).unwrap_err().to_string();
        assert!(
            full.contains("41 bytes") && full.contains("other pods 60"),
            "{full}"
        );
        files.reserve("b", 40).unwrap();
        // Less, or the same again, is no question of room.
        files.reserve("a", 60).unwrap();
        files.reserve("a", 50).unwrap();
        assert!(files.reserve("a", 61).is_err());
        // What was refused changed nothing.
        files.reserve("c", 10).unwrap();
        files.release("b");
        files.reserve("a", 90).unwrap();
    }
}
