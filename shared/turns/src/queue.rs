//! Who has a turn, who waits for one, and who is next.
//!
//! - What has been begun comes before what is new, both before stops of sandboxes, and
//!   removals come last; within these, critical pods first, then the oldest ([`Class`], [`Rank`]).
//! - Nobody waits for ever: once somebody has waited for [`LONGEST_WAIT`], every
//!   [`SHARE_OF_THE_LONGEST`]th turn is that of whoever has waited longest.
//! - A call that takes far longer than its kind does goes on without its turn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::{Call, Class, Limit, Purpose, Rank, Sample};

/// After this long it counts who has waited longest, whatever it is for.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Every so many turns is the one of who has waited longest, once that is too long.
pub(crate) const SHARE_OF_THE_LONGEST: usize = 4;

/// A call keeps its turn for so many times as long as its kind takes. Calls vary by
/// far less where nothing hangs.
const PATIENCE: u32 = 8;

/// A call keeps its turn for at least this long: a busy disk may well hold it up.
pub(crate) const LEAST_PATIENCE: Duration = Duration::from_secs(2);

/// A call keeps its turn for at most this long, so that a runtime on which some pods
/// hang goes on with the others.
pub(crate) const MOST_PATIENCE: Duration = Duration::from_secs(15);

/// How long a call keeps its turn while none of its kind has ended yet.
pub(crate) const FIRST_PATIENCE: Duration = Duration::from_secs(5);

/// A preparation keeps its turn for this long: most of them take milliseconds, and others,
/// such as those that wait for a volume's image, compute nothing meanwhile.
pub(crate) const PATIENCE_WITH_PREPARATION: Duration = Duration::from_millis(250);

/// One request for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// What a turn is asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The call.
    pub call: Call,
    /// What it is made for.
    pub purpose: Purpose,
    /// UID of its pod, if known.
    pub pod: Option<Arc<str>>,
    /// Where its pod stands among others.
    pub rank: Rank,
}

impl Ask {
    fn class(&self) -> Class {
        self.call.class(self.purpose)
    }
}

/// For people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// So many calls are made at a time.
    pub limit: usize,
    /// Calls that have a turn.
    pub running: usize,
    /// Calls that have lost their turn and go on.
    pub without_turn: usize,
    /// Calls that wait for a turn.
    pub waiting: usize,
}

/// How many calls of one kind there are, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByCall {
    /// Have a turn, or had it and go on.
    pub running: usize,
    /// Wait for a turn.
    pub waiting: usize,
}

#[derive(Debug)]
struct Waiting {
    ask: Ask,
    since: Duration,
}

#[derive(Debug)]
struct Running {
    ask: Ask,
    began: Duration,
    has_turn: bool,
    /// Most turns that were taken at a time since it began.
    peak: usize,
}

/// Calls that wait and run. Pure: it is told the time.
#[derive(Debug)]
pub struct Queue {
    limit: Limit,
    next_ticket: u64,
    /// In the order in which they came.
    waiting: BTreeMap<Ticket, Waiting>,
    /// The same in the order in which they are due.
    order: BTreeSet<(Class, Rank, Ticket)>,
    running: BTreeMap<Ticket, Running>,
    /// Turns since the last one of who had waited longest.
    others: usize,
    /// How long calls take at present.
    typical: BTreeMap<Call, Duration>,
}

impl Queue {
    /// A queue for a machine with so many processors.
    #[must_use]
    pub fn new(processors: usize) -> Queue {
        Queue {
            limit: Limit::new(processors),
            next_ticket: 0,
            waiting: BTreeMap::new(),
            order: BTreeSet::new(),
            running: BTreeMap::new(),
            others: 0,
            typical: BTreeMap::new(),
        }
    }

    /// Somebody wants a turn. [`admit`](Queue::admit) says when they have it.
    pub fn ask(&mut self, ask: Ask, now: Duration) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.order.insert((ask.class(), ask.rank, ticket));
        self.waiting.insert(ticket, Waiting { ask, since: now });
        ticket
    }

    /// Whoever asked wants it no more, or has given up the call. Harmless for a
    /// ticket that is gone.
    pub fn leave(&mut self, ticket: Ticket) {
        if self.take_waiting(ticket).is_none() {
            self.running.remove(&ticket);
        }
    }

    /// The call has been answered; only one that succeeded tells how long calls take.
    pub fn finish(&mut self, ticket: Ticket, succeeded: bool, now: Duration) {
        let Some(call) = self.running.remove(&ticket) else {
            return;
        };
        if !succeeded {
            return;
        }
        let took = now.saturating_sub(call.began);
        self.typical
            .entry(call.ask.call)
            .and_modify(|typical| *typical = (*typical * 7 + took) / 8)
            .or_insert(took);
        if call.has_turn {
            let sample = Sample {
                call: call.ask.call,
                took,
                peak: call.peak,
            };
            self.limit.note(sample, now);
        }
    }

    /// What waits to start something of a pod is wanted no more. Answers with whom.
    pub fn withdraw(&mut self, pod: &str) -> Vec<Ticket> {
        let of_pod = self.waiting.iter().filter(|(_, waiting)| {
            waiting.ask.call.starts() && waiting.ask.pod.as_deref() == Some(pod)
        });
        let tickets: Vec<Ticket> = of_pod.map(|(ticket, _)| *ticket).collect();
        for ticket in &tickets {
            self.take_waiting(*ticket);
        }
        tickets
    }

    /// Who may begin now. To be asked after every other event, and when
    /// [`next_look`](Queue::next_look) says so.
    pub fn admit(&mut self, now: Duration) -> Vec<Ticket> {
        self.take_turns_back(now);
        let mut admitted = Vec::new();
        while self.turns_taken() < self.limit.get() {
            let Some((ticket, by_age)) = self.next(now) else {
                break;
            };
            let Some(waiting) = self.take_waiting(ticket) else {
                break;
            };
            self.others = if by_age { 0 } else { self.others + 1 };
            let running = Running {
                ask: waiting.ask,
                began: now,
                has_turn: true,
                peak: 0,
            };
            self.running.insert(ticket, running);
            admitted.push(ticket);
        }
        let taken = self.turns_taken();
        for call in self.running.values_mut() {
            call.peak = call.peak.max(taken);
        }
        admitted
    }

    /// When after `now` somebody may be admitted though nothing else happens.
    #[must_use]
    pub fn next_look(&self, now: Duration) -> Option<Duration> {
        let (_, longest) = self.waiting.first_key_value()?;
        let holders = self.running.values().filter(|call| call.has_turn);
        let turns_back = holders.map(|call| call.began + self.patience(call.ask.call));
        turns_back
            .chain([longest.since + LONGEST_WAIT])
            .filter(|at| *at > now)
            .min()
    }

    /// How many wait and run.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let running = self.turns_taken();
        Figures {
            limit: self.limit.get(),
            running,
            without_turn: self.running.len() - running,
            waiting: self.waiting.len(),
        }
    }

    /// Each kind of which a call runs, with a turn or without, or waits: how many do.
    #[must_use]
    pub fn by_call(&self) -> BTreeMap<Call, ByCall> {
        let mut by_call: BTreeMap<Call, ByCall> = BTreeMap::new();
        for running in self.running.values() {
            by_call.entry(running.ask.call).or_default().running += 1;
        }
        for waiting in self.waiting.values() {
            by_call.entry(waiting.ask.call).or_default().waiting += 1;
        }
        by_call
    }

    fn take_waiting(&mut self, ticket: Ticket) -> Option<Waiting> {
        let waiting = self.waiting.remove(&ticket)?;
        let place = (waiting.ask.class(), waiting.ask.rank, ticket);
        self.order.remove(&place);
        Some(waiting)
    }

    fn turns_taken(&self) -> usize {
        self.running.values().filter(|call| call.has_turn).count()
    }

    /// Who is next, and whether that is for having waited longest.
    fn next(&self, now: Duration) -> Option<(Ticket, bool)> {
        let (longest, waiting) = self.waiting.first_key_value()?;
        let waited = now.saturating_sub(waiting.since);
        if waited >= LONGEST_WAIT && self.others + 1 >= SHARE_OF_THE_LONGEST {
            return Some((*longest, true));
        }
        let (class, _, first) = self.order.first()?;
        self.has_room(*class).then_some((*first, false))
    }

    /// Stops never have all turns: what is to start next finds one free. Removals, for
    /// which nobody waits, go one by one, so that it also finds a processor. Beside a start
    /// neither begins, unless it has waited for [`LONGEST_WAIT`].
    fn has_room(&self, class: Class) -> bool {
        let most = match class {
            Class::Begun | Class::New => return true,
            Class::Stop => (self.limit.get() / 2).max(1),
            Class::Removal => 1,
        };
        let mut holders = self.running.values().filter(|call| call.has_turn);
        holders.clone().count() < most && holders.all(|call| call.ask.class() >= Class::Stop)
    }

    fn patience(&self, call: Call) -> Duration {
        if call == Call::Prepare {
            return PATIENCE_WITH_PREPARATION;
        }
        self.typical.get(&call).map_or(FIRST_PATIENCE, |typical| {
            (*typical * PATIENCE).clamp(LEAST_PATIENCE, MOST_PATIENCE)
        })
    }

    fn take_turns_back(&mut self, now: Duration) {
        let late: Vec<Ticket> = self
            .running
            .iter()
            .filter(|(_, call)| call.has_turn)
            .filter(|(_, call)| now.saturating_sub(call.began) >= self.patience(call.ask.call))
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in late {
            if let Some(call) = self.running.get_mut(&ticket) {
                call.has_turn = false;
            }
        }
    }
}

#[cfg(test)]
mod tests;
