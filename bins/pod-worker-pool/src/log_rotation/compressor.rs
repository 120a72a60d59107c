//! Compresses rotated logs, one after the other: it takes as long as a file is big, and
//! nothing waits for it.
//!
//! The queue is in memory only. What a kill loses of it is queued again when the log is
//! rotated next.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use node_host::{LogChange, LogTarget, NodeHost};
use tokio::sync::Notify;

/// Files of logs that are to be compressed or just are. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The names of files by log.
    waiting: Mutex<BTreeMap<LogTarget, BTreeSet<String>>>,
    pushed: Notify,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, BTreeMap<LogTarget, BTreeSet<String>>> {
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a file at the end; any other change is none for the queue.
    pub(super) fn push(&self, log: &LogTarget, change: LogChange) {
        if let LogChange::Compress(name) = change {
            self.waiting().entry(log.clone()).or_default().insert(name);
            self.0.pushed.notify_one();
        }
    }

    /// The files of a log that are to be compressed or just are.
    pub(super) fn of(&self, log: &LogTarget) -> BTreeSet<String> {
        self.waiting().get(log).cloned().unwrap_or_default()
    }

    /// The file whose turn it is. It stays in the queue until it is done.
    async fn next(&self) -> (LogTarget, String) {
        loop {
            let first = self.waiting().iter().find_map(|(log, names)| {
                let name = names.first()?;
                Some((log.clone(), name.clone()))
            });
            match first {
                Some(first) => return first,
                None => self.0.pushed.notified().await,
            }
        }
    }

    fn done(&self, log: &LogTarget, name: &str) {
        let mut waiting = self.waiting();
        if let Some(names) = waiting.get_mut(log) {
            names.remove(name);
            if names.is_empty() {
                waiting.remove(log);
            }
        }
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
            let change = LogChange::Compress(name.clone());
            if let Err(error) = self.host.change_log(&log, change).await {
                // A full disk has no room for it. The file is tried again when the log is
                // rotated next, and goes when it is the oldest.
                let error = telemetry::chain(&error);
                let (pod, container) = (&log.pod, &log.container);
                tracing::debug!(%pod, container, error, "rotated log not compressed");
            }
            self.queue.done(&log, &name);
        }
    }
}
