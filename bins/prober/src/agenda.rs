//! Which try is due when, and which may run: at most so many at once, and at
//! most so many of one pod, so that slow targets of one pod take no place from
//! others. Half of all places are for pods that hold none: until so many pods hold
//! some, one that holds none gets one at once. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::{Kind, Moment};

/// A probe: container id and kind.
pub(crate) type Key = (String, Kind);

/// Tries over the network at once. Each holds a socket.
pub(crate) const MAX_NETWORK_TRIES: usize = 512;

/// Tries over the network at once in one pod: enough for each container of a
/// usual pod at the same moment.
pub(crate) const MAX_NETWORK_TRIES_PER_POD: usize = 16;

/// Commands at once. Each is a new process in a container, started by the pool
/// and the runtime.
pub(crate) const MAX_EXEC_TRIES: usize = 64;

/// Commands at once in one pod.
pub(crate) const MAX_EXEC_TRIES_PER_POD: usize = 4;

/// HTTP hooks at once. Each holds a socket.
pub(crate) const MAX_HOOKS: usize = 384;

/// HTTP hooks at once in one pod.
pub(crate) const MAX_HOOKS_PER_POD: usize = 16;

/// What else holds descriptors: streams, callers, files, lookups of names.
const OTHER_DESCRIPTORS: usize = 128;

// A process has 1024 file descriptors by default.
const _: () = assert!(MAX_NETWORK_TRIES + MAX_HOOKS + OTHER_DESCRIPTORS <= 1024);

/// The least time between two moments.
const RESOLUTION: Duration = Duration::from_nanos(1);

/// What a try occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// A socket of ours.
    Network,
    /// A process in the container.
    Exec,
    /// A socket of ours, for a lifecycle hook.
    Hook,
}

impl Lane {
    fn limits(self) -> (usize, usize) {
        match self {
            Lane::Network => (MAX_NETWORK_TRIES, MAX_NETWORK_TRIES_PER_POD),
            Lane::Exec => (MAX_EXEC_TRIES, MAX_EXEC_TRIES_PER_POD),
            Lane::Hook => (MAX_HOOKS, MAX_HOOKS_PER_POD),
        }
    }
}

/// Tries by the time they are due.
#[derive(Clone, Debug, Default)]
pub(crate) struct Agenda {
    by_time: BTreeSet<(Moment, Key)>,
    times: BTreeMap<Key, Moment>,
}

impl Agenda {
    /// Plans a probe's next try, or none.
    pub(crate) fn plan(&mut self, key: Key, at: Option<Moment>) {
        if let Some(before) = self.times.remove(&key) {
            self.by_time.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.times.insert(key.clone(), at);
            self.by_time.insert((at, key));
        }
    }

    /// The tries that are due, the longest overdue first.
    pub(crate) fn due(&self, now: Moment) -> impl Iterator<Item = &Key> {
        self.by_time
            .iter()
            .take_while(move |(at, _)| *at <= now)
            .map(|(_, key)| key)
    }

    /// When the next try becomes due that is not due yet.
    #[must_use]
    pub(crate) fn next_after(&self, now: Moment) -> Option<Moment> {
        let after = (
            now.saturating_add(RESOLUTION),
            (String::new(), Kind::Liveness),
        );
        self.by_time.range(after..).next().map(|(at, _)| *at)
    }
}

/// Tries and hooks that run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    all: Taken,
    pods: BTreeMap<String, Taken>,
}

/// How many places are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    network: usize,
    exec: usize,
    hook: usize,
}

impl Taken {
    fn of(&mut self, lane: Lane) -> &mut usize {
        match lane {
            Lane::Network => &mut self.network,
            Lane::Exec => &mut self.exec,
            Lane::Hook => &mut self.hook,
        }
    }
}

impl Slots {
    /// Whether there is a place.
    #[must_use]
    pub(crate) fn is_free(&self, lane: Lane, pod_uid: &str) -> bool {
        let (limit, pod_limit) = lane.limits();
        let mut pod = self.pods.get(pod_uid).copied().unwrap_or_default();
        let mut all = self.all;
        let (all, pod) = (*all.of(lane), *pod.of(lane));
        match pod {
            0 => all < limit,
            // Who holds one already leaves the last half to those who hold none.
            _ => pod < pod_limit && all < limit / 2,
        }
    }

    /// Takes a place, if there is one.
    pub(crate) fn take(&mut self, lane: Lane, pod_uid: &str) -> bool {
        let free = self.is_free(lane, pod_uid);
        if free {
            *self.all.of(lane) += 1;
            *self.pods.entry(pod_uid.to_owned()).or_default().of(lane) += 1;
        }
        free
    }

    /// Gives a place back.
    pub(crate) fn give_back(&mut self, lane: Lane, pod_uid: &str) {
        let all = self.all.of(lane);
        *all = all.saturating_sub(1);
        if let Some(pod) = self.pods.get_mut(pod_uid) {
            let taken = pod.of(lane);
            *taken = taken.saturating_sub(1);
            if *pod == Taken::default() {
                self.pods.remove(pod_uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: &str) -> Key {
        (id.to_owned(), Kind::Liveness)
    }

    fn at(seconds: u64) -> Moment {
        Duration::from_secs(seconds)
    }

    fn due(agenda: &Agenda, now: Moment) -> Vec<&str> {
        agenda.due(now).map(|(id, _)| id.as_str()).collect()
    }

    #[test]
    fn tries_come_in_the_order_of_their_times() {
        let mut agenda = Agenda::default();
        agenda.plan(key("late"), Some(at(9)));
        agenda.plan(key("b"), Some(at(2)));
        agenda.plan(key("a"), Some(at(1)));
        assert!(due(&agenda, at(0)).is_empty());
        assert_eq!(due(&agenda, at(2)), ["a", "b"]);
        assert_eq!(agenda.next_after(at(0)), Some(at(1)));
        assert_eq!(agenda.next_after(at(1)), Some(at(2)));
        assert_eq!(agenda.next_after(at(2)), Some(at(9)));
        assert_eq!(agenda.next_after(at(9)), None);
    }

    #[test]
    fn a_probe_has_one_time_at_most() {
        let mut agenda = Agenda::default();
        agenda.plan(key("a"), Some(at(1)));
        agenda.plan(key("a"), Some(at(5)));
        assert!(due(&agenda, at(4)).is_empty());
        assert_eq!(agenda.times.len(), 1);
        agenda.plan(key("a"), None);
        assert!(agenda.times.is_empty());
        assert_eq!(agenda.next_after(at(0)), None);
    }

    #[test]
    fn one_pod_cannot_take_every_place() {
        let mut slots = Slots::default();
        for _ in 0..MAX_EXEC_TRIES_PER_POD {
            assert!(slots.take(Lane::Exec, "slow"));
        }
        assert!(!slots.take(Lane::Exec, "slow"));
        assert!(slots.take(Lane::Exec, "other"));
        assert!(slots.take(Lane::Network, "slow"), "another lane");
        slots.give_back(Lane::Exec, "slow");
        assert!(slots.take(Lane::Exec, "slow"));
    }

    #[test]
    fn a_pod_that_holds_no_place_gets_one_until_half_as_many_pods_hold_some_as_there_are_places() {
        for lane in [Lane::Network, Lane::Exec, Lane::Hook] {
            let (limit, _) = lane.limits();
            // Each takes all that it can get, in turns and one after the other.
            for in_turns in [true, false] {
                let mut slots = Slots::default();
                let greedy: Vec<String> =
                    (0..limit / 2).map(|pod| format!("greedy{pod}")).collect();
                for _ in 0..limit {
                    for pod in &greedy {
                        while slots.take(lane, pod) && !in_turns {}
                    }
                }
                assert!(slots.take(lane, "other"), "{lane:?} {in_turns}");
            }
        }
    }

    #[test]
    fn all_together_are_bounded_and_nothing_stays_behind() {
        let mut slots = Slots::default();
        let pods: Vec<String> = (0..MAX_EXEC_TRIES).map(|pod| pod.to_string()).collect();
        for pod in &pods {
            assert!(slots.take(Lane::Exec, pod));
        }
        assert!(!slots.take(Lane::Exec, "more"));
        for pod in &pods {
            slots.give_back(Lane::Exec, pod);
        }
        assert!(slots.pods.is_empty());
        assert!(slots.take(Lane::Exec, "more"));
    }
}
