//! Exec probes that are under way, by the instance in which they run. The runtime reports
//! that a command has started in an instance, not which: one has certainly started when as
//! many starts were reported as there are probes whose start may be among them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All exec probes under way.
#[derive(Debug, Default)]
pub(super) struct ProbeCalls(Mutex<BTreeMap<String, Calls>>);

/// Those of one instance, since one was under way.
#[derive(Debug, Default)]
struct Calls {
    begun: u64,
    under_way: u64,
}

/// One exec probe; it is under way until it is dropped.
pub(super) struct ProbeCall<'a> {
    calls: &'a ProbeCalls,
    id: String,
    /// How many had ended when this one began.
    ended_before: u64,
}

impl ProbeCalls {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Calls>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A probe in this instance begins.
    pub(super) fn begin(&self, id: &str) -> ProbeCall<'_> {
        let calls = &mut *self.lock();
        let calls = calls.entry(id.to_owned()).or_default();
        let ended_before = calls.begun - calls.under_way;
        calls.begun += 1;
        calls.under_way += 1;
        ProbeCall {
            calls: self,
            id: id.to_owned(),
            ended_before,
        }
    }
}

impl ProbeCall<'_> {
    /// After how many starts in its instance, since it began, its own is among them.
    pub(super) fn starts_needed(&self) -> u64 {
        let begun = self.calls.lock().get(&self.id).map(|calls| calls.begun);
        begun.unwrap_or_default().saturating_sub(self.ended_before)
    }
}

impl Drop for ProbeCall<'_> {
    fn drop(&mut self) {
        let calls = &mut *self.calls.lock();
        if let Some(of_instance) = calls.get_mut(&self.id) {
            of_instance.under_way = of_instance.under_way.saturating_sub(1);
            if of_instance.under_way == 0 {
                calls.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_needs_the_starts_of_all_that_may_start_meanwhile() {
        let calls = ProbeCalls::default();
        let first = calls.begin("a");
        assert_eq!(first.starts_needed(), 1);
        let other = calls.begin("b");
        let second = calls.begin("a");
        let needed = |calls: &[&ProbeCall<'_>]| -> Vec<u64> {
            calls.iter().map(|call| call.starts_needed()).collect()
        };
        assert_eq!(needed(&[&first, &second, &other]), [2, 2, 1]);
        drop(first);
        let third = calls.begin("a");
        assert_eq!(needed(&[&second, &third]), [3, 2]);
        drop((second, third, other));
        assert!(calls.lock().is_empty());
    }
}
