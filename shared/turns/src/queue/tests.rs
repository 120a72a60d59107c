//! Tests of the queue: who is next, as tables, and what holds whatever happens.

use proptest::prelude::*;

use super::*;

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A queue with a clock of its own.
struct Bench {
    queue: Queue,
    now: Duration,
    had: Vec<Ticket>,
}

impl Bench {
    fn new(processors: usize) -> Bench {
        Bench {
            queue: Queue::new(processors),
            now: Duration::ZERO,
            had: Vec::new(),
        }
    }

    fn ask_of(&mut self, pod: &str, is_critical: bool, call: Call, purpose: Purpose) -> Ticket {
        let ask = Ask {
            call,
            purpose,
            pod: Some(pod.into()),
            is_critical,
        };
        self.queue.ask(ask, self.now)
    }

    fn ask(&mut self, call: Call, purpose: Purpose) -> Ticket {
        self.ask_of("pod", false, call, purpose)
    }

    fn begin(&mut self) -> Ticket {
        self.ask(Call::RunSandbox, Purpose::Run)
    }

    fn stop(&mut self) -> Ticket {
        self.ask(Call::StopSandbox, Purpose::End)
    }

    fn removal(&mut self) -> Ticket {
        self.ask(Call::RemoveSandbox, Purpose::End)
    }

    fn admit(&mut self) -> Vec<Ticket> {
        let admitted = self.queue.admit(self.now);
        self.had.extend(&admitted);
        admitted
    }

    fn leave(&mut self, ticket: Ticket) -> Vec<Ticket> {
        self.queue.leave(ticket);
        self.admit()
    }

    /// Lets one call end after the other, until nobody waits; who had a turn, in order.
    fn run_down(&mut self) -> Vec<Ticket> {
        self.admit();
        let mut ended = 0;
        while let Some(ticket) = self.had.get(ended).copied() {
            ended += 1;
            self.now += MILLI;
            self.leave(ticket);
        }
        std::mem::take(&mut self.had)
    }
}

#[test]
fn the_limit_follows_from_the_processors() {
    for (processors, limit) in [(0, 2), (1, 2), (2, 4), (8, 16), (128, 16)] {
        let queue = Queue::new(processors);
        assert_eq!(queue.figures().limit, limit, "{processors}");
    }
}

#[test]
fn no_more_calls_are_made_at_a_time_than_the_limit_says() {
    let mut bench = Bench::new(1);
    let tickets: Vec<Ticket> = (0..4).map(|_| bench.begin()).collect();
    assert_eq!(bench.admit(), tickets[..2]);
    assert_eq!(bench.admit(), []);
    assert_eq!(bench.leave(tickets[1]), tickets[2..3]);
    assert_eq!(bench.leave(tickets[0]), tickets[3..]);
    let figures = Figures {
        limit: 2,
        running: 2,
        ..Figures::default()
    };
    assert_eq!(bench.queue.figures(), figures);
}

#[test]
fn what_is_begun_is_finished_first_then_critical_pods_then_who_waits_longest() {
    let mut bench = Bench::new(1);
    let removal = bench.removal();
    let first = bench.begin();
    let second = bench.begin();
    let critical = bench.ask_of("dns", true, Call::RunSandbox, Purpose::Run);
    let create = bench.ask(Call::CreateContainer, Purpose::Run);
    let start = bench.ask(Call::StartContainer, Purpose::Run);
    let makes_way = bench.ask(Call::StopSandbox, Purpose::Run);
    let order = bench.run_down();
    assert_eq!(
        order,
        [create, start, makes_way, critical, first, second, removal]
    );
}

#[test]
fn stops_leave_a_turn_free_for_who_comes_to_start() {
    let mut bench = Bench::new(2);
    let stops: Vec<Ticket> = (0..100).map(|_| bench.stop()).collect();
    assert_eq!(bench.admit(), stops[..2]);
    let start = bench.begin();
    assert_eq!(bench.admit(), [start]);
    // Beside the start the first two end, and none of the others begins.
    assert_eq!(bench.leave(stops[0]), []);
    assert_eq!(bench.leave(stops[1]), []);
    assert_eq!(bench.leave(start), stops[2..4]);
}

#[test]
fn removals_go_one_by_one_and_beside_no_other_call() {
    let mut bench = Bench::new(2);
    let removals: Vec<Ticket> = (0..3).map(|_| bench.removal()).collect();
    assert_eq!(bench.admit(), removals[..1]);
    let stop = bench.stop();
    let start = bench.begin();
    assert_eq!(bench.admit(), [start]);
    assert_eq!(bench.leave(removals[0]), []);
    // A pod is waited for, and what is left of one is not.
    assert_eq!(bench.leave(start), [stop]);
    assert_eq!(bench.leave(stop), removals[1..2]);
    assert_eq!(bench.leave(removals[1]), removals[2..]);
}

/// Pods are prepared one after the other, each right before it starts.
#[test]
fn pods_start_before_all_others_are_prepared() {
    let mut bench = Bench::new(1);
    let prepare: Vec<Ticket> = (0..3)
        .map(|_| bench.ask(Call::Prepare, Purpose::Run))
        .collect();
    assert_eq!(bench.admit(), prepare[..2]);
    let start = bench.begin();
    assert_eq!(bench.leave(prepare[0]), [start]);
    assert_eq!(bench.leave(start), prepare[2..]);
}

#[test]
fn a_preparation_that_hangs_holds_others_up_for_a_moment() {
    let mut bench = Bench::new(1);
    for _ in 0..2 {
        bench.ask(Call::Prepare, Purpose::Run);
    }
    assert_eq!(bench.admit().len(), 2);
    let start = bench.begin();
    assert_eq!(bench.admit(), []);
    let look = bench.queue.next_look(bench.now);
    assert_eq!(look, Some(HOLD_OF_PREPARATION));
    bench.now = HOLD_OF_PREPARATION;
    assert_eq!(bench.admit(), [start]);
}

#[test]
fn ends_wait_for_a_bounded_time_while_starts_hang_again_and_again() {
    let mut bench = Bench::new(1);
    let hung = [bench.begin(), bench.begin()];
    bench.admit();
    bench.now = SECOND;
    let ends = [bench.removal(), bench.stop(), bench.removal()];
    for _ in 0..100 {
        bench.begin();
    }
    bench.now = HOLD;
    assert_eq!(bench.admit().len(), hung.len(), "others that hang");
    assert_eq!(
        bench.queue.next_look(bench.now),
        Some(SECOND + LONGEST_WAIT)
    );
    // One at a time, whoever has waited longest first.
    bench.now = SECOND + LONGEST_WAIT;
    assert_eq!(bench.admit(), ends[..1]);
    assert_eq!(bench.leave(ends[0]), ends[1..2]);
    assert_eq!(bench.leave(ends[1]), ends[2..]);
}

#[test]
fn a_call_that_hangs_keeps_its_turn_for_a_bounded_time() {
    let mut bench = Bench::new(1);
    let hung = [bench.begin(), bench.begin()];
    assert_eq!(bench.admit(), hung);
    let next = bench.begin();
    assert_eq!(bench.admit(), []);
    assert_eq!(bench.queue.next_look(bench.now), Some(HOLD));
    bench.now = HOLD;
    assert_eq!(bench.admit(), [next]);
    assert_eq!(bench.queue.figures().without_turn, 2);
    // It ends after all: nobody has a turn twice for it.
    assert_eq!(bench.leave(hung[0]), []);
    assert_eq!(bench.queue.figures().without_turn, 1);
}

#[test]
fn what_waits_to_start_something_of_a_pod_can_be_withdrawn() {
    let mut bench = Bench::new(1);
    let running = [bench.begin(), bench.begin()];
    bench.admit();
    let of_pod = |bench: &mut Bench, call, purpose| bench.ask_of("a", false, call, purpose);
    let start = of_pod(&mut bench, Call::StartContainer, Purpose::Run);
    let stop = of_pod(&mut bench, Call::StopSandbox, Purpose::End);
    assert_eq!(bench.queue.withdraw("a"), [start]);
    assert_eq!(bench.queue.withdraw("a"), []);
    assert_eq!(bench.leave(running[0]), []);
    assert_eq!(
        bench.leave(running[1]),
        [stop],
        "it wanted no more than that"
    );
    assert_eq!(bench.queue.figures().waiting, 0);
}

#[test]
fn a_ticket_that_is_gone_changes_nothing() {
    let mut bench = Bench::new(1);
    let first = bench.begin();
    bench.admit();
    bench.leave(first);
    bench.leave(first);
    let figures = Figures {
        limit: 2,
        ..Figures::default()
    };
    assert_eq!(bench.queue.figures(), figures);
    assert_eq!(bench.queue.next_look(bench.now), None);
}

#[derive(Clone, Debug)]
enum Event {
    Ask { call: usize, ends: bool, pod: u8 },
    Leave { which: usize },
    Withdraw { pod: u8 },
    Pass { millis: u64 },
}

const CALLS: [Call; 6] = [
    Call::Prepare,
    Call::RunSandbox,
    Call::CreateContainer,
    Call::StartContainer,
    Call::StopSandbox,
    Call::RemoveContainer,
];

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        5 => (0..CALLS.len(), any::<bool>(), 0..20u8)
            .prop_map(|(call, ends, pod)| Event::Ask { call, ends, pod }),
        5 => any::<usize>().prop_map(|which| Event::Leave { which }),
        1 => (0..20u8).prop_map(|pod| Event::Withdraw { pod }),
        2 => (1..4000u64).prop_map(|millis| Event::Pass { millis }),
    ]
}

fn happen(bench: &mut Bench, event: &Event) {
    let (running, waiting) = (bench.queue.running.keys(), bench.queue.waiting.keys());
    let all: Vec<Ticket> = running.chain(waiting).copied().collect();
    match event {
        Event::Ask { call, ends, pod } => {
            let purpose = match ends {
                true => Purpose::End,
                false => Purpose::Run,
            };
            bench.ask_of(&pod.to_string(), pod % 3 == 0, CALLS[*call], purpose);
        }
        Event::Leave { which } if !all.is_empty() => bench.queue.leave(all[which % all.len()]),
        Event::Leave { .. } => {}
        Event::Withdraw { pod } => drop(bench.queue.withdraw(&pod.to_string())),
        Event::Pass { millis } => bench.now += Duration::from_millis(*millis),
    }
}

proptest! {
    #[test]
    fn whatever_happens_turns_are_bounded_and_everybody_has_one_in_the_end(
        processors in 1..8usize,
        events in prop::collection::vec(event(), 1..300),
    ) {
        let mut bench = Bench::new(processors);
        for event in &events {
            happen(&mut bench, event);
            bench.admit();
            // One more than the limit is an end that has waited for too long.
            let starts = bench.queue.holders().filter(|call| !call.class.ends()).count();
            prop_assert!(starts <= bench.queue.limit);
            prop_assert!(bench.queue.holders().count() <= bench.queue.limit + 1);
            prop_assert_eq!(bench.queue.order.len(), bench.queue.waiting.len());
        }
        // Every call that is under way hangs from now on, and each that follows too.
        let calls = bench.queue.waiting.len() + bench.queue.running.len();
        let mut looks = 0;
        while let Some(at) = bench.queue.next_look(bench.now) {
            prop_assert!(at > bench.now, "no look is due before the next");
            bench.now = at;
            bench.admit();
            looks += 1;
            prop_assert!(looks <= 4 * calls + 4, "it comes to an end");
        }
        prop_assert_eq!(bench.queue.waiting.len(), 0, "a hang delays others for a while only");
    }
}
