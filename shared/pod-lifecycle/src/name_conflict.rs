//! Names that the runtime refuses though its lists show nobody who has them.
//!
//! A call that makes a sandbox or container goes on in the runtime when this process
//! dies, or when the step that made the call is dropped. Until the call ends the runtime
//! lists nothing of what it makes, and refuses the name to others. So the pod waits for
//! the name as long as any call can still hold it. Only then something leaked in the
//! runtime, and the next number is used: with two calls under way a pod would end up
//! with two of the same.
//!
//! ```text
//!   Free --name conflict--> Conflict --longest call is over--> the next number, Free
//!    ^                         |
//!    +------ no conflict ------+
//! ```

use std::time::{Duration, Instant};

/// What is known of the name of the next sandbox, or of the next instance of a
/// container. Names differ in a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextName {
    /// The names with this number and above are free, as far as anybody knows.
    Free {
        /// Those below it leaked or are used up.
        from: u32,
    },
    /// The runtime refuses the name with this number.
    Conflict {
        /// The number.
        number: u32,
        /// Since when at least, because of one and the same call as far as anybody
        /// knows.
        since: Instant,
    },
}

/// A call that needs a name, and what was known of the name before.
#[derive(Clone, Copy, Debug)]
pub struct NameCall {
    number: u32,
    conflict_since: Option<Instant>,
}

impl Default for NextName {
    fn default() -> NextName {
        NextName::Free { from: 0 }
    }
}

impl NextName {
    /// The number to use where `least` is the first that shows as free, and a call holds
    /// a name for `longest` at most.
    #[must_use]
    pub fn number(self, least: u32, now: Instant, longest: Duration) -> u32 {
        let known = match self {
            NextName::Free { from } => from,
            NextName::Conflict { number, since } => {
                let is_over = now.saturating_duration_since(since) >= longest;
                number.saturating_add(u32::from(is_over))
            }
        };
        known.max(least)
    }

    /// A call that needs the name with this number is made. Unless it finds the name
    /// refused, it holds the name itself from now on, and nobody may learn what becomes
    /// of it.
    pub fn call(&mut self, number: u32) -> NameCall {
        let conflict_since = match *self {
            NextName::Conflict {
                number: refused,
                since,
            } if refused == number => Some(since),
            _ => None,
        };
        *self = NextName::Free { from: number };
        NameCall {
            number,
            conflict_since,
        }
    }

    /// The call found the name refused.
    pub fn refused(&mut self, call: NameCall, now: Instant) {
        *self = NextName::Conflict {
            number: call.number,
            since: call.conflict_since.unwrap_or(now),
        };
    }

    /// The call made what it was to make, which lists show from now on.
    pub fn used(&mut self) {
        *self = NextName::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(300);

    /// One call at this second, which finds the name refused or does not tell; the
    /// number that it used.
    struct Asker(NextName, Instant);

    impl Asker {
        fn new() -> Asker {
            Asker(NextName::default(), Instant::now())
        }

        fn look(&self, second: u64, least: u32) -> u32 {
            let now = self.1 + Duration::from_secs(second);
            self.0.number(least, now, LONGEST)
        }

        fn ask(&mut self, second: u64, is_refused: bool) -> u32 {
            let number = self.look(second, 0);
            let call = self.0.call(number);
            if is_refused {
                self.0.refused(call, self.1 + Duration::from_secs(second));
            }
            number
        }
    }

    #[test]
    fn a_name_is_waited_for_as_long_as_a_call_can_hold_it() {
        let mut name = Asker::new();
        for second in 0..300 {
            assert_eq!(name.ask(second, true), 0, "{second}");
        }
        assert_eq!(name.ask(300, true), 1);
        for second in 301..600 {
            assert_eq!(name.ask(second, true), 1, "{second}");
        }
        assert_eq!(name.ask(600, false), 2);
        assert_eq!(name.ask(10_000, false), 2, "the last number was free");
    }

    #[test]
    fn a_call_of_ours_in_between_may_hold_the_name_itself() {
        let mut name = Asker::new();
        name.ask(0, true);
        name.ask(290, false);
        for second in 291..591 {
            assert_eq!(name.ask(second, true), 0, "{second}");
        }
        assert_eq!(name.ask(591, true), 1);
    }

    #[test]
    fn to_look_at_a_name_without_a_call_changes_nothing() {
        let mut name = Asker::new();
        for second in 0..300 {
            assert_eq!(name.ask(second, true), 0);
            assert_eq!(name.look(second, 0), 0);
        }
        assert_eq!(name.look(300, 0), 1);
        assert_eq!(name.look(10_000, 0), 1, "nobody found that one refused");
    }

    #[test]
    fn numbers_that_were_passed_over_are_not_counted_twice() {
        let mut name = Asker::new();
        name.ask(0, true);
        assert_eq!(name.ask(300, true), 1);
        // It shows after all, or others were made: their numbers are known by now.
        assert_eq!(name.look(310, 1), 1);
        assert_eq!(name.look(310, 2), 2);
        assert_eq!(name.look(601, 2), 2, "it was another that was refused");
    }
}
