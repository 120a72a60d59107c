//! How long after a start this process may not know every pod.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use super::shared::Shared;

/// How long the process may not know a pod that runs, once the runtime has told what it
/// runs: sync-loop tells of all pods when it connects again, and at each housekeeping (2 s).
const SETTLING: Duration = Duration::from_secs(5);

/// Whether the pods of the sources are known.
#[derive(Debug)]
pub(super) struct Settling {
    listed: Arc<AtomicBool>,
    /// When it was first seen that the runtime has told what it runs.
    seen: OnceLock<Instant>,
}

impl Settling {
    pub(super) fn new(shared: &Shared) -> Settling {
        Settling {
            listed: Arc::clone(&shared.listed),
            seen: OnceLock::new(),
        }
    }

    /// Whether every pod of the sources is known by now, unless config-sourcer is away.
    pub(super) fn is_over(&self) -> bool {
        self.listed.load(Ordering::Relaxed)
            && self.seen.get_or_init(Instant::now).elapsed() >= SETTLING
    }
}
