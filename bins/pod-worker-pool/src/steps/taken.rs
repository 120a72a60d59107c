//! Names that are taken by what does not show.
//!
//! A call of an earlier life of this process goes on when that dies, and one whose
//! step was dropped goes on too. Until it ends the runtime lists nothing of what it
//! makes, and refuses the name to others. So the name is waited for as long as any
//! call can still hold it. Only then something leaked in the runtime, and the next
//! number is used: with two calls under way a pod would end up with two of the same.
//!
//! ```text
//!   unknown --taken--> waits --longest call is over--> next number, unknown
//!      ^                 |
//!      +---- not taken --+
//! ```

use std::time::Duration;

use tokio::time::Instant;

/// How long the runtime may take to undo a call that was given up, its name still
/// taken: containerd gives that a minute.
const UNDOING: Duration = Duration::from_secs(60);

/// How long a RunPodSandbox may hold a name.
pub(super) const SANDBOX_HOLDS: Duration = cri::RUN_POD_SANDBOX_DEADLINE.saturating_add(UNDOING);

/// How long a CreateContainer may hold a name.
pub(super) const CONTAINER_HOLDS: Duration = cri::DEFAULT_DEADLINE.saturating_add(UNDOING);

/// What is known of one name. Pure: who asks brings the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TakenName {
    /// The least number that may be free: those below it leaked or are used up.
    number: u32,
    /// Since when at least it is taken, by one and the same call as far as anybody
    /// knows.
    since: Option<Instant>,
}

/// The name as it was when a call that needs it was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    since: Option<Instant>,
}

impl TakenName {
    /// The number to use where `least` is the first that shows as free. To look at
    /// it changes nothing that is known: no call need follow.
    pub(super) fn number(&mut self, least: u32, now: Instant, longest: Duration) -> u32 {
        let is_over = |since| now.saturating_duration_since(since) >= longest;
        if least > self.number {
            *self = TakenName {
                number: least,
                since: None,
            };
        } else if self.since.is_some_and(is_over) {
            self.number = self.number.saturating_add(1);
            self.since = None;
        }
        self.number
    }

    /// A call that needs the name is made. Unless it finds the name taken, it holds
    /// the name itself from now on, and nobody may learn what becomes of it.
    pub(super) fn ask(&mut self) -> Asked {
        Asked {
            since: self.since.take(),
        }
    }

    /// The call found the name taken.
    pub(super) fn taken(&mut self, asked: Asked, now: Instant) {
        self.since = Some(asked.since.unwrap_or(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(300);

    /// One call at this second, which finds the name taken or does not tell; the
    /// number that it used.
    struct Asker(TakenName, Instant);

    impl Asker {
        fn new() -> Asker {
            Asker(TakenName::default(), Instant::now())
        }

        fn look(&mut self, second: u64, least: u32) -> u32 {
            let now = self.1 + Duration::from_secs(second);
            self.0.number(least, now, LONGEST)
        }

        fn ask(&mut self, second: u64, is_taken: bool) -> u32 {
            let number = self.look(second, 0);
            let asked = self.0.ask();
            if is_taken {
                self.0.taken(asked, self.1 + Duration::from_secs(second));
            }
            number
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_waited_for_as_long_as_a_call_can_hold_it() {
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

    #[tokio::test(start_paused = true)]
    async fn a_call_of_ours_in_between_may_hold_the_name_itself() {
        let mut name = Asker::new();
        name.ask(0, true);
        name.ask(290, false);
        for second in 291..591 {
            assert_eq!(name.ask(second, true), 0, "{second}");
        }
        assert_eq!(name.ask(591, true), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn to_look_at_a_name_without_a_call_changes_nothing() {
        let mut name = Asker::new();
        for second in 0..300 {
            assert_eq!(name.ask(second, true), 0);
            assert_eq!(name.look(second, 0), 0);
        }
        assert_eq!(name.look(300, 0), 1);
        assert_eq!(name.look(10_000, 0), 1, "nobody found that one taken");
    }

    #[tokio::test(start_paused = true)]
    async fn numbers_that_were_passed_over_are_not_counted_twice() {
        let mut name = Asker::new();
        name.ask(0, true);
        assert_eq!(name.ask(300, true), 1);
        // It shows after all, or others were made: their numbers are known by now.
        assert_eq!(name.look(310, 1), 1);
        assert_eq!(name.look(310, 2), 2);
        assert_eq!(name.look(601, 2), 2, "it was another that was taken");
    }
}
