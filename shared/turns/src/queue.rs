//! Who has a turn, who waits for one, and who is next.
//!
//! - There are [`PER_PROCESSOR`] turns for each processor.
//! - What has been begun comes before what is new, what is prepared before what is not, all
//!   of these before stops of sandboxes, and removals come last ([`Class`]); within these, critical pods first, then who has
//!   waited longest.
//! - A stop or a removal begins when nothing is being started. One that has waited for
//!   [`LONGEST_WAIT`] begins all the same, one at a time: pods whose starts hang and are
//!   tried again and again keep none from being ended.
//! - A call that takes longer than [`HOLD`] goes on without its turn.
//!
//! The queue is as long as the pods of a node want it: each container asks for one turn at
//! a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::{Call, Class, Purpose};

/// Turns for each processor: a call waits for disks and other processes about as long as
/// it computes.
const PER_PROCESSOR: usize = 2;

/// Turns at most, on whatever machine: a runtime has locks that all calls share.
const MOST: usize = 16;

/// A stop or a removal that has waited so long waits for no start.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A call keeps its turn for so long, so that a runtime on which some pods hang goes on
/// with the others. Most take a tenth of a second, and a busy disk may hold them up.
pub(crate) const HOLD: Duration = Duration::from_secs(5);

/// A preparation keeps its turn for this long: most of them take milliseconds, and others,
/// such as those that wait for a volume's image, compute nothing meanwhile.
pub(crate) const HOLD_OF_PREPARATION: Duration = Duration::from_millis(250);

/// One request for a turn. The earlier one is the lesser.
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
    /// Whether that is a static pod, or one of a system priority.
    pub is_critical: bool,
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
    call: Call,
    class: Class,
    /// Until when it has its turn; absent once that is taken back.
    turn_until: Option<Duration>,
}

/// Calls that wait and run. Pure: time is passed in.
#[derive(Debug)]
pub struct Queue {
    limit: usize,
    next_ticket: u64,
    waiting: BTreeMap<Ticket, Waiting>,
    /// The same in the order in which they are due; ordinary pods after critical ones.
    order: BTreeSet<(Class, bool, Ticket)>,
    running: BTreeMap<Ticket, Running>,
}

impl Queue {
    /// A queue for a machine with so many processors.
    #[must_use]
    pub fn new(processors: usize) -> Queue {
        Queue {
            limit: processors.max(1).saturating_mul(PER_PROCESSOR).min(MOST),
            next_ticket: 0,
            waiting: BTreeMap::new(),
            order: BTreeSet::new(),
            running: BTreeMap::new(),
        }
    }

    /// Somebody wants a turn. [`admit`](Queue::admit) says when they have it.
    pub fn ask(&mut self, ask: Ask, now: Duration) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.order.insert((ask.class(), !ask.is_critical, ticket));
        self.waiting.insert(ticket, Waiting { ask, since: now });
        ticket
    }

    /// The call has ended, or is not wanted any more. Harmless for a ticket that is gone.
    pub fn leave(&mut self, ticket: Ticket) {
        if self.take_waiting(ticket).is_none() {
            self.running.remove(&ticket);
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
        for call in self.running.values_mut() {
            call.turn_until = call.turn_until.filter(|until| *until > now);
        }
        let mut admitted = Vec::new();
        while let Some(ticket) = self.next(now)
            && let Some(Waiting { ask, .. }) = self.take_waiting(ticket)
        {
            let hold = match ask.call {
                Call::Prepare => HOLD_OF_PREPARATION,
                _ => HOLD,
            };
            let running = Running {
                call: ask.call,
                class: ask.class(),
                turn_until: Some(now + hold),
            };
            self.running.insert(ticket, running);
            admitted.push(ticket);
        }
        admitted
    }

    /// When after `now` somebody may be admitted though nothing else happens.
    #[must_use]
    pub fn next_look(&self, now: Duration) -> Option<Duration> {
        if self.waiting.is_empty() {
            return None;
        }
        let turns_back = self.running.values().filter_map(|call| call.turn_until);
        let overdue = self.longest_end().map(|(_, since)| since + LONGEST_WAIT);
        turns_back.chain(overdue).filter(|at| *at > now).min()
    }

    /// How many wait and run.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let running = self.holders().count();
        Figures {
            limit: self.limit,
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
            by_call.entry(running.call).or_default().running += 1;
        }
        for waiting in self.waiting.values() {
            by_call.entry(waiting.ask.call).or_default().waiting += 1;
        }
        by_call
    }

    fn take_waiting(&mut self, ticket: Ticket) -> Option<Waiting> {
        let waiting = self.waiting.remove(&ticket)?;
        let place = (waiting.ask.class(), !waiting.ask.is_critical, ticket);
        self.order.remove(&place);
        Some(waiting)
    }

    /// What has a turn.
    fn holders(&self) -> impl Iterator<Item = &Running> {
        let running = self.running.values();
        running.filter(|call| call.turn_until.is_some())
    }

    fn next(&self, now: Duration) -> Option<Ticket> {
        let ends = self.holders().filter(|call| call.class.ends()).count();
        let starts = self.holders().count() - ends;
        let first = self.order.first().filter(|(class, ..)| match class {
            Class::Begun | Class::New | Class::Prepare => starts + ends < self.limit,
            // What is to start next finds a turn free.
            Class::Stop => starts == 0 && ends < self.limit / 2,
            // It also finds a processor: for a removal nobody waits.
            Class::Removal => starts == 0 && ends == 0,
        });
        let overdue = || {
            let (ticket, since) = self.longest_end()?;
            (ends == 0 && since + LONGEST_WAIT <= now).then_some(ticket)
        };
        first.map(|(.., ticket)| *ticket).or_else(overdue)
    }

    /// The stop or removal that has waited longest, and since when.
    fn longest_end(&self) -> Option<(Ticket, Duration)> {
        let mut waiting = self.waiting.iter();
        let longest = waiting.find(|(_, waiting)| waiting.ask.class().ends())?;
        Some((*longest.0, longest.1.since))
    }
}

#[cfg(test)]
mod tests;
