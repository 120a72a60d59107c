//! All probes of one container instance: liveness and readiness wait until the
//! startup probe has succeeded, and all of them follow what happens to the
//! container. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::spec::Timing;
use crate::worker::{Attempt, Outcome, ProbeResult, Verdict, Worker};
use crate::{Kind, Moment};

/// What happens to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Situation {
    /// It runs.
    Running,
    /// It runs, and its pod is being terminated.
    Terminating,
    /// It does not run: verdicts stand, nothing is probed.
    NotRunning,
}

/// The probes of one container instance.
#[derive(Clone, Debug)]
pub(crate) struct InstanceProbes {
    workers: BTreeMap<Kind, Worker>,
}

impl InstanceProbes {
    /// The probes with these timings, of a container that runs for `age` already.
    /// `seeds` is what was known of this instance before a restart of this
    /// process; `random` gives numbers from 0 to 1.
    #[must_use]
    pub(crate) fn new(
        timings: &BTreeMap<Kind, Timing>,
        seeds: &BTreeMap<Kind, Verdict>,
        age: Duration,
        situation: Situation,
        now: Moment,
        random: &mut impl FnMut() -> f64,
    ) -> InstanceProbes {
        let workers = timings
            .iter()
            .map(|(kind, timing)| {
                let seed = seeds.get(kind).cloned();
                (*kind, Worker::new(*kind, *timing, age, seed, now))
            })
            .collect();
        let mut instance = InstanceProbes { workers };
        instance.update(situation, now, random);
        instance
    }

    /// Something happened to the container.
    pub(crate) fn update(
        &mut self,
        situation: Situation,
        now: Moment,
        random: &mut impl FnMut() -> f64,
    ) {
        if situation == Situation::Terminating {
            for worker in self.workers.values_mut() {
                worker.terminate();
            }
        }
        let running = situation != Situation::NotRunning;
        let started = self.has_started();
        for (kind, worker) in &mut self.workers {
            let gate_open = *kind == Kind::Startup || started;
            worker.allow(running && gate_open, random(), now);
        }
    }

    fn has_started(&self) -> bool {
        self.workers
            .get(&Kind::Startup)
            .is_none_or(|startup| startup.verdict().result == ProbeResult::Success)
    }

    /// When each probe is due; `None` for one that is not.
    pub(crate) fn due(&self) -> impl Iterator<Item = (Kind, Option<Moment>)> {
        self.workers
            .values()
            .map(|worker| (worker.kind(), worker.due()))
    }

    /// When one probe is due.
    #[must_use]
    pub(crate) fn due_at(&self, kind: Kind) -> Option<Moment> {
        self.workers.get(&kind).and_then(Worker::due)
    }

    /// What each probe knows.
    pub(crate) fn verdicts(&self) -> impl Iterator<Item = (Kind, &Verdict)> {
        self.workers
            .values()
            .map(|worker| (worker.kind(), worker.verdict()))
    }

    /// Begins a try of a probe, if one is due.
    pub(crate) fn begin(&mut self, kind: Kind, attempt: Attempt, now: Moment) -> bool {
        self.workers
            .get_mut(&kind)
            .is_some_and(|worker| worker.begin(attempt, now))
    }

    /// A try ended. Returns whether a verdict changed. A startup success lets
    /// the other probes begin, at once or after their initial delay.
    pub(crate) fn finish(
        &mut self,
        kind: Kind,
        attempt: Attempt,
        outcome: Outcome,
        now: Moment,
    ) -> bool {
        let changed = self
            .workers
            .get_mut(&kind)
            .is_some_and(|worker| worker.finish(attempt, outcome, now));
        if changed && kind == Kind::Startup && self.has_started() {
            for worker in self.workers.values_mut() {
                worker.allow(true, 0.0, now);
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests;
