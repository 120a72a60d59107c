//! How many calls are made at a time.
//!
//! The rule is that of TCP Vegas. A call that is made alone takes as long as its work
//! takes; one that takes `r` times as long beside others has waited for them in the
//! runtime for the rest. Of `limit` calls about `limit * (1 - 1/r)` wait there then. A
//! few that wait keep the runtime busy while we think; more only make each other late.
//! So the limit grows while fewer than [`FEW`] wait, and shrinks while more than
//! [`MANY`] do.
//!
//! One slow call moves nothing: the median of a window of calls decides, by one step.
//! Calls that hang or fail tell nothing at all.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Call;

/// The limit grows while fewer calls than this wait in the runtime. One and a half
/// keep it busy: as one ends the next is there.
const FEW: f64 = 1.5;

/// The limit shrinks while more calls than this wait in the runtime.
const MANY: f64 = 3.0;

/// The least limit: with one, a call that hangs would stop all others until it has
/// lost its turn.
const LEAST: usize = 2;

/// At first, for each processor: a call waits for disks and other processes about as
/// long as it computes.
const FIRST_PER_PROCESSOR: usize = 2;

/// At first, at most: more has to prove itself.
const FIRST_AT_MOST: usize = 16;

/// At most, for each processor.
const MOST_PER_PROCESSOR: usize = 8;

/// At most, on whatever machine: a runtime has locks that all calls share.
const MOST: usize = 64;

/// Least number of calls that one step of the limit is decided on.
const LEAST_WINDOW: usize = 8;

/// A call beside which at most so many had a turn (itself included) shows how long
/// one takes on its own.
const ALONE: usize = 2;

/// How long the shortest call of its kind is believed to be what one takes: a node
/// that others have made busy is not compared with its idle self for ever.
const BELIEVED_FOR: Duration = Duration::from_secs(300);

/// Shorter times are noise of our own.
const SHORTEST: Duration = Duration::from_millis(1);

/// A call that has ended well.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Which.
    pub call: Call,
    /// From its turn to its answer.
    pub took: Duration,
    /// Most turns that were taken at a time while it ran, its own among them.
    pub peak: usize,
}

/// How long calls of one kind take on their own: the shortest of this period and the
/// one before.
#[derive(Clone, Copy, Debug)]
struct Unloaded {
    since: Duration,
    shortest: Duration,
    before: Option<Duration>,
}

impl Unloaded {
    fn note(&mut self, took: Duration, now: Duration) {
        if now.saturating_sub(self.since) < BELIEVED_FOR {
            self.shortest = self.shortest.min(took);
        } else {
            *self = Unloaded {
                since: now,
                shortest: took,
                before: Some(self.shortest),
            };
        }
    }

    fn get(&self) -> Duration {
        self.before
            .map_or(self.shortest, |before| before.min(self.shortest))
    }
}

/// The number of turns, which follows how long calls take.
#[derive(Clone, Debug)]
pub struct Limit {
    now: usize,
    most: usize,
    unloaded: BTreeMap<Call, Unloaded>,
    /// How many times as long as on their own the last calls took.
    window: Vec<f64>,
}

impl Limit {
    /// The limit to begin with on a machine with so many processors.
    #[must_use]
    pub fn new(processors: usize) -> Limit {
        let processors = processors.max(1);
        Limit {
            now: (processors.saturating_mul(FIRST_PER_PROCESSOR)).clamp(LEAST, FIRST_AT_MOST),
            most: (processors.saturating_mul(MOST_PER_PROCESSOR)).min(MOST),
            unloaded: BTreeMap::new(),
            window: Vec::new(),
        }
    }

    /// So many calls may be made at a time.
    #[must_use]
    pub fn get(&self) -> usize {
        self.now
    }

    /// A call has ended well.
    pub fn note(&mut self, sample: Sample, now: Duration) {
        if !sample.call.starts() {
            return;
        }
        let took = sample.took.max(SHORTEST);
        if sample.peak <= ALONE {
            self.unloaded
                .entry(sample.call)
                .and_modify(|unloaded| unloaded.note(took, now))
                .or_insert(Unloaded {
                    since: now,
                    shortest: took,
                    before: None,
                });
        }
        // Turns that nobody needed tell nothing of how many there should be.
        if sample.peak < self.now {
            return;
        }
        let Some(unloaded) = self.unloaded.get(&sample.call) else {
            return;
        };
        self.window
            .push(took.as_secs_f64() / unloaded.get().as_secs_f64());
        if self.window.len() >= self.now.max(LEAST_WINDOW) {
            self.step();
        }
    }

    fn step(&mut self) {
        self.window.sort_by(f64::total_cmp);
        let median = self.window.get(self.window.len() / 2).copied();
        self.window.clear();
        let Some(median) = median else {
            return;
        };
        #[expect(clippy::cast_precision_loss, reason = "at most MOST")]
        let limit = self.now as f64;
        let waiting = limit * (1.0 - 1.0 / median);
        if waiting < FEW {
            self.now = self.most.min(self.now + 1);
        } else if waiting > MANY {
            self.now = LEAST.max(self.now - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE_TAKES: f64 = 0.1;

    /// A runtime that does `capacity` calls at a time, and others wait.
    struct Machine {
        limit: Limit,
        capacity: f64,
        now: Duration,
    }

    impl Machine {
        fn new(processors: usize, capacity: f64) -> Machine {
            Machine {
                limit: Limit::new(processors),
                capacity,
                now: Duration::ZERO,
            }
        }

        fn call(&mut self, call: Call, peak: usize, stretch: f64) {
            let beside = u32::try_from(peak).unwrap();
            let crowd = (f64::from(beside) / self.capacity).max(1.0);
            let took = Duration::from_secs_f64(ALONE_TAKES * crowd * stretch);
            self.now += took / beside;
            self.limit.note(Sample { call, took, peak }, self.now);
        }

        fn alone(&mut self) {
            self.call(Call::RunSandbox, 1, 1.0);
        }

        fn busy(&mut self, calls: usize) -> usize {
            for _ in 0..calls {
                let peak = self.limit.get();
                self.call(Call::RunSandbox, peak, 1.0);
            }
            self.limit.get()
        }
    }

    #[test]
    fn it_begins_with_the_processors() {
        for (processors, first) in [(0, 2), (1, 2), (2, 4), (4, 8), (8, 16), (128, 16)] {
            assert_eq!(Limit::new(processors).get(), first, "{processors}");
        }
    }

    #[test]
    fn it_finds_how_many_the_runtime_can_do_and_a_few_more() {
        for (processors, capacity, from, to) in [
            (2, 1.0, 2, 4),
            (2, 1.6, 3, 5),
            (2, 4.0, 5, 8),
            (8, 10.0, 11, 14),
            (64, 3.0, 4, 7),
        ] {
            let mut machine = Machine::new(processors, capacity);
            machine.alone();
            let found = machine.busy(3000);
            assert!((from..=to).contains(&found), "{capacity}: {found}");
            let still = machine.busy(1000);
            assert!(still.abs_diff(found) <= 1, "{capacity}: {found}, {still}");
        }
    }

    #[test]
    fn it_stays_in_its_bounds() {
        let mut fast = Machine::new(2, 1000.0);
        fast.alone();
        assert_eq!(fast.busy(10_000), 16);
        let mut large = Machine::new(128, 1000.0);
        large.alone();
        assert_eq!(large.busy(100_000), MOST);
        let mut slow = Machine::new(128, 0.001);
        slow.alone();
        assert!(slow.busy(10_000) >= LEAST);
    }

    #[test]
    fn nothing_is_concluded_before_a_call_was_seen_on_its_own() {
        let mut machine = Machine::new(2, 1.0);
        assert_eq!(machine.busy(1000), 4);
    }

    #[test]
    fn it_does_not_grow_while_nobody_needs_the_turns_that_there_are() {
        let mut machine = Machine::new(2, 1000.0);
        for _ in 0..1000 {
            machine.alone();
        }
        assert_eq!(machine.limit.get(), 4);
    }

    #[test]
    fn one_slow_image_in_three_does_not_move_it() {
        let mut machine = Machine::new(2, 4.0);
        machine.call(Call::StartContainer, 1, 1.0);
        machine.alone();
        let before = machine.busy(1000);
        for round in 0..1000 {
            let peak = machine.limit.get();
            let stretch = if round % 3 == 0 { 50.0 } else { 1.0 };
            machine.call(Call::StartContainer, peak, stretch);
        }
        let after = machine.limit.get();
        assert!(after.abs_diff(before) <= 1, "{before} {after}");
    }

    #[test]
    fn a_node_that_became_slow_for_good_is_compared_with_itself() {
        let mut machine = Machine::new(8, 10.0);
        machine.alone();
        let before = machine.busy(3000);
        // Everything takes three times as long from now on.
        for _ in 0..10_000 {
            let peak = machine.limit.get();
            machine.call(Call::RunSandbox, peak, 3.0);
            machine.call(Call::RunSandbox, 1, 3.0);
        }
        let after = machine.limit.get();
        assert!(after.abs_diff(before) <= 2, "{before} {after}");
    }

    #[test]
    fn kinds_are_compared_with_their_own() {
        let mut machine = Machine::new(2, 4.0);
        machine.call(Call::RunHostSandbox, 1, 0.1);
        machine.alone();
        // Ten times as long as a sandbox in the node's network, and not because of
        // others.
        assert!(machine.busy(1000) >= 5);
    }

    #[test]
    fn removals_tell_nothing() {
        let mut machine = Machine::new(2, 1000.0);
        machine.call(Call::RemoveSandbox, 1, 1.0);
        for _ in 0..1000 {
            machine.call(Call::RemoveSandbox, 4, 1.0);
        }
        assert_eq!(machine.limit.get(), 4);
    }
}
