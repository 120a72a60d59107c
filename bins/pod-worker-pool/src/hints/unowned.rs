//! Events of containers and sandboxes of which nobody knows the pod yet.
//!
//! containerd tells that a sandbox has been started before RunPodSandbox answers with
//! its id. Had pleg to list all pods for each such event, a hundred pods that start
//! together would cost a hundred lists of up to a hundred pods. So these events wait a
//! moment; by then the pod of most is known, and one list serves for all others.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// How long the first of them waits. A sandbox is started late in RunPodSandbox, so
/// the answer follows within a fraction of this.
const WAIT: Duration = Duration::from_secs(1);

/// Most ids that are kept: more than containers of a full node.
const MAX_IDS: usize = 1024;

/// The ids that wait. Pure: the caller brings the clock.
#[derive(Debug, Default)]
pub(super) struct Unowned {
    ids: BTreeSet<String>,
    due: Option<Instant>,
}

impl Unowned {
    /// The runtime told of something whose pod is not known.
    pub(super) fn heard(&mut self, id: String, now: Instant) {
        self.due.get_or_insert(now + WAIT);
        // No pod has an empty id: it stands for those that there is no room for.
        let full = self.ids.len() >= MAX_IDS;
        self.ids.insert(if full { String::new() } else { id });
    }

    /// When their pods are to be looked for.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// All that wait, once it is time.
    pub(super) fn take_due(&mut self, now: Instant) -> BTreeSet<String> {
        if self.due.is_none_or(|due| due > now) {
            return BTreeSet::new();
        }
        self.due = None;
        std::mem::take(&mut self.ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_wait_as_long_as_the_first() {
        let begun = Instant::now();
        let mut unowned = Unowned::default();
        assert_eq!(unowned.due(), None);
        unowned.heard("a".into(), begun);
        unowned.heard("b".into(), begun + WAIT / 2);
        assert_eq!(unowned.due(), Some(begun + WAIT));
        assert!(unowned.take_due(begun + WAIT / 2).is_empty());
        let taken = unowned.take_due(begun + WAIT);
        assert_eq!(taken, ["a".to_owned(), "b".to_owned()].into());
        assert_eq!(unowned.due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn they_are_bounded() {
        let mut unowned = Unowned::default();
        for number in 0..MAX_IDS + 9 {
            unowned.heard(number.to_string(), Instant::now());
        }
        assert_eq!(unowned.ids.len(), MAX_IDS + 1);
        assert!(unowned.ids.contains(""));
    }
}
