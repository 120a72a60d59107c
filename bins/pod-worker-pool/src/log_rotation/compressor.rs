//! Compresses rotated logs, one after the other: it takes as long as a file is big, and
//! nothing waits for it.
//!
//! The queue is in memory only. What a kill loses of it is queued again when the log is
//! rotated next.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use node_host::{LogChange, LogTarget, NodeHost};
use tokio::sync::Notify;

/// Files of logs that are to be compressed or just are. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Logs and the names of their files; the first is the one whose turn it is.
    waiting: Mutex<VecDeque<(LogTarget, String)>>,
    pushed: Notify,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, VecDeque<(LogTarget, String)>> {
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a file at the end, unless it is there.
    pub(super) fn push(&self, log: &LogTarget, name: String) {
        let file = (log.clone(), name);
        let mut waiting = self.waiting();
        if !waiting.contains(&file) {
            waiting.push_back(file);
            self.0.pushed.notify_one();
        }
    }

    /// The files of a log that are to be compressed or just are.
    pub(super) fn of(&self, log: &LogTarget) -> BTreeSet<String> {
        let waiting = self.waiting();
        let of_log = waiting.iter().filter(|(other, _)| other == log);
        of_log.map(|(_, name)| name.clone()).collect()
    }

    /// The file whose turn it is. It stays in the queue until it is done.
    async fn next(&self) -> (LogTarget, String) {
        loop {
            let first = self.waiting().front().cloned();
            match first {
                Some(first) => return first,
                None => self.0.pushed.notified().await,
            }
        }
    }

    fn first_is_done(&self) {
        self.waiting().pop_front();
    }
}

/// What compresses the files of a queue.
pub(super) struct Compressor {
    host: Arc<dyn NodeHost>,
    queue: Queue,
}

impl Compressor {
    pub(super) fn new(host: Arc<dyn NodeHost>, queue: Queue) -> Compressor {
        Compressor { host, queue }
    }

    /// Compresses for ever.
    pub(super) async fn run(self) -> Infallible {
        loop {
            let (log, name) = self.queue.next().await;
            let change = LogChange::Compress(name);
            if let Err(error) = self.host.change_log(&log, change).await {
                // A full disk has no room for it. The file is tried again when the log is
                // rotated next, and goes when it is the oldest.
                let error = telemetry::chain(&error);
                let (pod, container) = (&log.pod, &log.container);
                tracing::debug!(%pod, container, error, "rotated log not compressed");
            }
            self.queue.first_is_done();
        }
    }
}

#[cfg(test)]
mod tests {
    use pod::PodIdentity;

    use super::*;

    #[tokio::test]
    async fn files_are_compressed_in_the_order_in_which_they_came() {
        let log = |name: &str| LogTarget {
            pod: PodIdentity::new(name, "default", name).unwrap(),
            container: "c".to_owned(),
            attempt: 0,
        };
        let queue = Queue::default();
        for (pod, file) in [("b", "1"), ("a", "1"), ("b", "1"), ("b", "2"), ("a", "2")] {
            queue.push(&log(pod), file.to_owned());
        }
        assert_eq!(queue.of(&log("b")), ["1", "2"].map(str::to_owned).into());
        for (pod, file) in [("b", "1"), ("a", "1"), ("b", "2"), ("a", "2")] {
            assert_eq!(queue.next().await, (log(pod), file.to_owned()));
            queue.first_is_done();
        }
        assert!(queue.of(&log("a")).is_empty());
    }
}
