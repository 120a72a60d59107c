//! Whether the runtime's events have proven complete, which says how far apart
//! relists of all pods are: [`SHORT`], or [`LONG`] once they have. Pure: time is
//! passed in.
//!
//! ```text
//!                 events come            an event told a change, and
//!   +----------+ ------------> +-----------+ RELISTS_TO_PROVE relists  +--------+
//!   | NoEvents |               | OnTrial   | ------------------------> | Proven |
//!   +----------+ <------------ +-----------+ <------------------------ +--------+
//!        ^        stream broke              a relist found what no event told |
//!        +--------------------------------------------------------------------+
//!                                  stream broke
//! ```
//!
//! - NoEvents -> OnTrial: the pool says that the runtime sends events;
//! - OnTrial -> Proven: an event has told a change that a relist then found, and
//!   so many relists of all pods in a row found nothing that no event told. On an idle
//!   node no event comes, and relists that find nothing alone would prove a stream
//!   that is dead;
//! - Proven -> OnTrial, OnTrial begins anew: a relist found a change that no event
//!   told, not even a moment later. Example: a container ended and its event was
//!   lost. What events told before does not count any more;
//! - to NoEvents: the way to the pool broke, or the runtime's stream did. What events
//!   told before still counts: it is the same runtime.
//!
//! What does not live here: when a relist is due (`schedule`), and which changes a
//! runtime tells (`relist`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time since this process started.
pub(crate) type Moment = Duration;

/// Hinted pods that are remembered by name; more mean "all".
const MAX_HINTS: usize = 256;

/// From the end of one relist of all pods to the next, while the events are not
/// proven complete (the kubelet's `genericPlegRelistPeriod`).
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// The same, once they are and nothing happens.
pub(crate) const LONG: Duration = Duration::from_secs(10);

/// Relists of all pods in a row that must find nothing that no event told.
const RELISTS_TO_PROVE: u32 = 10;

/// An event that came so long before a relist began tells what the relist finds:
/// runtimes tell of an end before their lists show it.
const TOLD_BEFORE: Duration = Duration::from_secs(2);

/// An event that comes so long after a relist still tells what the relist found:
/// the list may overtake it.
const TOLD_AFTER: Duration = Duration::from_millis(900);

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    NoEvents,
    OnTrial {
        /// Relists of all pods in a row that found nothing new.
        relists: u32,
        /// The pod of the last change that no event told.
        untold: Option<String>,
    },
    Proven,
}

/// What the events were worth so far.
#[derive(Clone, Debug)]
pub(crate) struct Completeness {
    state: State,
    /// An event has told a change since the last that none told.
    has_told: bool,
    /// Pods with an event, and when the last came.
    told: BTreeMap<String, Moment>,
    /// When something was last told without its pod, or events were lost.
    told_of_any: Option<Moment>,
    /// Pods with a change that no event has told yet, and when it was found.
    untold: BTreeMap<String, Moment>,
}

impl Completeness {
    /// Nothing is known of events.
    #[must_use]
    pub(crate) fn new() -> Completeness {
        Completeness {
            state: State::NoEvents,
            has_told: false,
            told: BTreeMap::new(),
            told_of_any: None,
            untold: BTreeMap::new(),
        }
    }

    /// From the end of one relist of all pods to the next. What an event told may show
    /// only in the next list, so an event of late keeps the interval short.
    #[must_use]
    pub(crate) fn interval(&self) -> Duration {
        let quiet = self.told.is_empty() && self.told_of_any.is_none() && self.untold.is_empty();
        match self.state {
            State::Proven if quiet => LONG,
            State::Proven | State::NoEvents | State::OnTrial { .. } => SHORT,
        }
    }

    /// The interval in force and why, for people.
    #[must_use]
    pub(crate) fn describe(&self) -> String {
        let (interval, reason) = match &self.state {
            State::NoEvents => (SHORT, "no events of the runtime".to_owned()),
            State::OnTrial {
                untold: Some(pod), ..
            } => (SHORT, format!("no event told a change of pod {pod}")),
            State::OnTrial { .. } => (SHORT, "events of the runtime not yet proven".to_owned()),
            State::Proven => (LONG, "events of the runtime tell every change".to_owned()),
        };
        format!("relist interval {} s: {reason}", interval.as_secs())
    }

    /// The runtime sends events now, in a new stream, or none.
    pub(crate) fn events(&mut self, available: bool) {
        self.state = match available {
            false => State::NoEvents,
            true => State::OnTrial {
                relists: 0,
                untold: None,
            },
        };
    }

    /// An event of this pod came.
    pub(crate) fn told(&mut self, pod_uid: &str, now: Moment) {
        self.untold.remove(pod_uid);
        if self.told.len() < MAX_HINTS || self.told.contains_key(pod_uid) {
            self.told.insert(pod_uid.to_owned(), now);
        } else {
            self.told_of_any(now);
        }
    }

    /// An event of some pod came, or events were lost, as it is known they were:
    /// what changes now is neither for nor against them.
    pub(crate) fn told_of_any(&mut self, now: Moment) {
        self.untold.clear();
        self.told_of_any = Some(now);
    }

    /// A relist of one pod, for an event, found this of what runtimes tell.
    pub(crate) fn relisted_one(&mut self, changed: bool) {
        self.has_told |= changed && self.state != State::NoEvents;
    }

    /// A relist of all pods, begun at `began`, found changes of these pods of which
    /// a runtime tells.
    pub(crate) fn relisted_all(&mut self, began: Moment, now: Moment, changed: &BTreeSet<String>) {
        if self.state != State::NoEvents {
            self.judge(now, changed);
        }
        let recent = |at: &Moment| *at + TOLD_BEFORE >= began;
        self.told.retain(|_, at| recent(at));
        self.told_of_any = self.told_of_any.filter(recent);
    }

    fn judge(&mut self, now: Moment, changed: &BTreeSet<String>) {
        let late = |at: &Moment| *at + TOLD_AFTER <= now;
        if let Some((pod, _)) = self.untold.iter().find(|(_, at)| late(at)) {
            self.state = State::OnTrial {
                relists: 0,
                untold: Some(pod.clone()),
            };
            self.has_told = false;
            self.untold.retain(|_, at| !late(at));
        }
        for pod in changed {
            if self.told.contains_key(pod) {
                self.has_told = true;
            } else if self.told_of_any.is_none() && self.untold.len() < MAX_HINTS {
                self.untold.entry(pod.clone()).or_insert(now);
            }
        }
        if let State::OnTrial { relists, .. } = &mut self.state
            && self.untold.is_empty()
        {
            *relists = relists.saturating_add(1);
            if *relists >= RELISTS_TO_PROVE && self.has_told {
                self.state = State::Proven;
            }
        }
    }
}

#[cfg(test)]
mod tests;
