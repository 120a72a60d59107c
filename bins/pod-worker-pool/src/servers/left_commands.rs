//! Commands of probes that have had their time and that the runtime does not answer: it waits
//! for what their children hold open. The calls are kept, so that it is known how many there
//! are; each ends with its instance at the latest, or with the deadline of the call.

use std::sync::{Mutex, PoisonError};

use tokio::task::{AbortHandle, JoinSet};

/// Calls of one probe that are left at the runtime, where each is a process, its pipes and
/// what waits for them. So many are left within the two minutes and the timeout after which
/// a call is given up; a kubelet has one at a time in these.
pub(super) const MAX_LEFT_OF_A_PROBE: usize = 4;

/// The calls; they are given up when this is dropped.
#[derive(Debug, Default)]
pub(super) struct LeftCommands(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    tasks: JoinSet<()>,
    /// By instance and kind of probe.
    of: Vec<(String, i32, AbortHandle)>,
}

impl LeftCommands {
    /// Whether so many of a probe are left that none is to be added.
    pub(super) fn is_full(&self, id: &str, kind: i32) -> bool {
        let inner = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while inner.tasks.try_join_next().is_some() {}
        inner.of.retain(|(_, _, task)| !task.is_finished());
        let of = inner.of.iter();
        let left = of.filter(|(of_id, of_kind, _)| of_id == id && *of_kind == kind);
        left.count() >= MAX_LEFT_OF_A_PROBE
    }

    /// Leaves a call to itself.
    pub(super) fn leave(&self, id: String, kind: i32, call: impl Future + Send + 'static) {
        let inner = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let task = inner.tasks.spawn(async move {
            drop(call.await);
        });
        inner.of.push((id, kind, task));
    }
}
