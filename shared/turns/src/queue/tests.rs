//! Tests of the queue: who is next, as tables, and what holds whatever happens.

use proptest::prelude::*;

use super::*;

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn rank(is_ordinary: bool, age: u64) -> Rank {
    Rank { is_ordinary, age }
}

/// A queue with a clock of its own; two turns unless told otherwise.
struct Bench {
    queue: Queue,
    now: Duration,
    had: Vec<Ticket>,
    asked: BTreeMap<Ticket, Duration>,
}

impl Bench {
    fn new(processors: usize) -> Bench {
        Bench {
            queue: Queue::new(processors),
            now: Duration::ZERO,
            had: Vec::new(),
            asked: BTreeMap::new(),
        }
    }

    fn ask(&mut self, call: Call, purpose: Purpose, pod: &str, rank: Rank) -> Ticket {
        let ask = Ask {
            call,
            purpose,
            pod: Some(pod.into()),
            rank,
        };
        let ticket = self.queue.ask(ask, self.now);
        self.asked.insert(ticket, self.now);
        ticket
    }

    fn begin(&mut self, pod: &str, age: u64) -> Ticket {
        self.ask(Call::RunSandbox, Purpose::Run, pod, rank(true, age))
    }

    fn removal(&mut self) -> Ticket {
        self.ask(Call::RemoveSandbox, Purpose::End, "gone", Rank::LAST)
    }

    fn admit(&mut self) -> Vec<Ticket> {
        let admitted = self.queue.admit(self.now);
        self.had.extend(&admitted);
        admitted
    }

    fn finish(&mut self, ticket: Ticket) -> Vec<Ticket> {
        self.queue.finish(ticket, true, self.now);
        self.admit()
    }

    /// Lets each call take so long, until nobody waits; who had a turn, in order.
    fn run_down(&mut self, takes: Duration) -> Vec<Ticket> {
        self.admit();
        let mut finished = 0;
        while let Some(ticket) = self.had.get(finished).copied() {
            finished += 1;
            self.now += takes;
            self.finish(ticket);
        }
        std::mem::take(&mut self.had)
    }
}

#[test]
fn no_more_calls_are_made_at_a_time_than_the_limit_says() {
    let mut bench = Bench::new(1);
    let tickets: Vec<Ticket> = (0..4).map(|age| bench.begin("pod", age)).collect();
    assert_eq!(bench.admit(), tickets[..2]);
    assert_eq!(bench.admit(), []);
    assert_eq!(bench.finish(tickets[1]), tickets[2..3]);
    bench.queue.leave(tickets[0]);
    assert_eq!(bench.admit(), tickets[3..]);
    let figures = Figures {
        limit: 2,
        running: 2,
        ..Figures::default()
    };
    assert_eq!(bench.queue.figures(), figures);
}

#[test]
fn what_is_begun_is_finished_first_then_critical_pods_then_the_oldest() {
    let mut bench = Bench::new(1);
    let removal = bench.removal();
    let young = bench.begin("young", 8);
    let old = bench.begin("old", 3);
    let critical = bench.ask(Call::RunSandbox, Purpose::Run, "dns", rank(false, 9));
    let create = bench.ask(Call::CreateContainer, Purpose::Run, "begun", rank(true, 5));
    let start = bench.ask(Call::StartContainer, Purpose::Run, "begun", rank(true, 2));
    let makes_way = bench.ask(Call::StopSandbox, Purpose::Run, "again", rank(true, 4));
    let order = bench.run_down(MILLI);
    assert_eq!(
        order,
        [start, makes_way, create, critical, old, young, removal]
    );
}

#[test]
fn stops_leave_a_turn_free_for_who_comes_to_start() {
    let mut bench = Bench::new(2);
    let stop = |bench: &mut Bench, age| {
        bench.ask(Call::StopSandbox, Purpose::End, "ends", rank(true, age))
    };
    let stops: Vec<Ticket> = (0..100).map(|age| stop(&mut bench, age)).collect();
    assert_eq!(bench.admit(), stops[..2]);
    let start = bench.begin("pod", 1);
    assert_eq!(bench.admit(), [start]);
    // Beside the start the first two end, and none of the others begins.
    assert_eq!(bench.finish(stops[0]), []);
    assert_eq!(bench.finish(stops[1]), []);
    assert_eq!(bench.finish(start), stops[2..4]);
}

#[test]
fn removals_go_one_by_one_and_beside_no_other_call() {
    let mut bench = Bench::new(2);
    let removals: Vec<Ticket> = (0..3).map(|_| bench.removal()).collect();
    assert_eq!(bench.admit(), removals[..1]);
    let stop = bench.ask(Call::StopSandbox, Purpose::End, "ends", rank(true, 1));
    let start = bench.begin("pod", 1);
    assert_eq!(bench.admit(), [start]);
    assert_eq!(bench.finish(removals[0]), []);
    // A pod is waited for, and what is left of one is not.
    assert_eq!(bench.finish(start), [stop]);
    assert_eq!(bench.finish(stop), removals[1..2]);
    assert_eq!(bench.finish(removals[1]), removals[2..]);
}

/// Pods are prepared one after the other, each right before it starts.
#[test]
fn older_pods_start_before_younger_ones_are_prepared() {
    let mut bench = Bench::new(1);
    let ask = |bench: &mut Bench, call, age| bench.ask(call, Purpose::Run, "pod", rank(true, age));
    let prepare: Vec<Ticket> = (0..9)
        .map(|age| ask(&mut bench, Call::Prepare, age))
        .collect();
    assert_eq!(bench.admit(), prepare[..2]);
    bench.queue.finish(prepare[0], true, bench.now);
    let start = ask(&mut bench, Call::RunSandbox, 0);
    assert_eq!(bench.admit(), [start]);
}

#[test]
fn a_preparation_that_hangs_holds_others_up_for_a_moment() {
    let mut bench = Bench::new(1);
    for age in 0..2 {
        bench.ask(Call::Prepare, Purpose::Run, "hangs", rank(true, age));
    }
    assert_eq!(bench.admit().len(), 2);
    let start = bench.begin("pod", 9);
    assert_eq!(bench.admit(), []);
    assert_eq!(
        bench.queue.next_look(bench.now),
        Some(bench.now + PATIENCE_WITH_PREPARATION)
    );
    bench.now += PATIENCE_WITH_PREPARATION;
    assert_eq!(bench.admit(), [start]);
}

#[test]
fn a_removal_waits_for_a_bounded_time_while_pods_keep_coming() {
    let mut bench = Bench::new(1);
    let removals: Vec<Ticket> = (0..10).map(|_| bench.removal()).collect();
    bench.admit();
    let mut running: Vec<Ticket> = bench.had.clone();
    let mut age = 0;
    let all_had_theirs = |bench: &Bench| removals.iter().all(|it| bench.had.contains(it));
    while !all_had_theirs(&bench) {
        // Always more to start than there are turns.
        while bench.queue.figures().waiting < 40 {
            age += 1;
            bench.begin("pod", age);
        }
        bench.now += 100 * MILLI;
        running.retain(|it| bench.queue.running.contains_key(it));
        let ended = running.remove(0);
        running.extend(bench.finish(ended));
        assert!(bench.now < 15 * SECOND, "{:?}", bench.now);
    }
    assert!(bench.now > LONGEST_WAIT);
}

#[test]
fn a_new_pod_waits_for_a_bounded_time_while_others_crash_again_and_again() {
    let mut bench = Bench::new(1);
    let restart = |bench: &mut Bench| {
        bench.ask(
            Call::StartContainer,
            Purpose::Run,
            "crashes",
            rank(false, 1),
        )
    };
    for _ in 0..3 {
        restart(&mut bench);
    }
    let new = bench.begin("new", 2);
    let mut running = bench.admit();
    while !bench.had.contains(&new) {
        restart(&mut bench);
        bench.now += 100 * MILLI;
        let ended = running.remove(0);
        running.extend(bench.finish(ended));
        assert!(bench.now < 2 * LONGEST_WAIT, "{:?}", bench.now);
    }
}

#[test]
fn a_call_that_hangs_keeps_its_turn_for_a_bounded_time() {
    let mut bench = Bench::new(1);
    let hung = [bench.begin("hangs", 1), bench.begin("hangs too", 2)];
    assert_eq!(bench.admit(), hung);
    let next = bench.begin("pod", 3);
    assert_eq!(bench.admit(), []);
    assert_eq!(bench.queue.next_look(bench.now), Some(FIRST_PATIENCE));
    bench.now = FIRST_PATIENCE;
    assert_eq!(bench.admit(), [next]);
    assert_eq!(bench.queue.figures().without_turn, 2);
    // It ends after all: nobody has a turn twice for it.
    assert_eq!(bench.finish(hung[0]), []);
    assert_eq!(bench.queue.figures().without_turn, 1);
}

#[test]
fn patience_follows_how_long_calls_take() {
    for (takes, patience) in [
        (10 * MILLI, LEAST_PATIENCE),
        (SECOND, 8 * SECOND),
        (60 * SECOND, MOST_PATIENCE),
    ] {
        let mut bench = Bench::new(1);
        for age in 0..50 {
            bench.begin("pod", age);
            bench.run_down(takes);
        }
        let begun = bench.now;
        for age in 0..3 {
            bench.begin("hangs", age);
        }
        bench.admit();
        let back = bench.queue.next_look(begun).unwrap() - begun;
        assert_eq!(back.min(patience), patience.min(LONGEST_WAIT), "{takes:?}");
        bench.now = begun + patience;
        assert_eq!(bench.admit().len(), 1, "{takes:?}");
    }
}

#[test]
fn calls_that_hang_or_fail_do_not_lower_the_limit() {
    let mut bench = Bench::new(2);
    for age in 0..100 {
        bench.begin("alone", age);
        bench.run_down(100 * MILLI);
    }
    let before = bench.queue.figures().limit;
    for age in 0..1000 {
        let ticket = bench.begin("pod", age);
        bench.admit();
        bench.now += 3 * SECOND;
        match age % 2 {
            0 => bench.queue.finish(ticket, false, bench.now),
            _ => bench.queue.leave(ticket),
        }
    }
    assert_eq!(bench.queue.figures().limit, before);
}

#[test]
fn what_waits_to_start_something_of_a_pod_can_be_withdrawn() {
    let mut bench = Bench::new(1);
    let running = bench.begin("pod", 1);
    let other = bench.begin("other", 2);
    bench.admit();
    let start = bench.ask(Call::StartContainer, Purpose::Run, "pod", rank(true, 1));
    let stop = bench.ask(Call::StopSandbox, Purpose::End, "pod", rank(true, 1));
    assert_eq!(bench.queue.withdraw("pod"), [start]);
    assert_eq!(bench.queue.withdraw("pod"), []);
    assert_eq!(bench.finish(running), []);
    assert_eq!(bench.finish(other), [stop], "it wanted no more than that");
    assert_eq!(bench.queue.figures().waiting, 0);
}

#[test]
fn a_ticket_that_is_gone_changes_nothing() {
    let mut bench = Bench::new(1);
    let first = bench.begin("pod", 1);
    bench.admit();
    bench.finish(first);
    bench.finish(first);
    bench.queue.leave(first);
    let figures = Figures {
        limit: 2,
        ..Figures::default()
    };
    assert_eq!(bench.queue.figures(), figures);
    assert_eq!(bench.queue.next_look(bench.now), None);
}

#[derive(Clone, Debug)]
enum Event {
    Ask { call: usize, ends: bool, age: u64 },
    Finish { which: usize, succeeded: bool },
    Leave { which: usize },
    Withdraw { age: u64 },
    Pass { millis: u64 },
}

const CALLS: [Call; 6] = [
    Call::RunSandbox,
    Call::RunHostSandbox,
    Call::CreateContainer,
    Call::StartContainer,
    Call::StopSandbox,
    Call::RemoveContainer,
];

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        5 => (0..CALLS.len(), any::<bool>(), 0..20u64)
            .prop_map(|(call, ends, age)| Event::Ask { call, ends, age }),
        4 => (any::<usize>(), prop::bool::weighted(0.8))
            .prop_map(|(which, succeeded)| Event::Finish { which, succeeded }),
        1 => any::<usize>().prop_map(|which| Event::Leave { which }),
        1 => (0..20u64).prop_map(|age| Event::Withdraw { age }),
        2 => (1..4000u64).prop_map(|millis| Event::Pass { millis }),
    ]
}

fn happen(bench: &mut Bench, event: &Event) {
    let running: Vec<Ticket> = bench.queue.running.keys().copied().collect();
    let waiting = bench.queue.waiting.keys().copied();
    let all: Vec<Ticket> = running.iter().copied().chain(waiting).collect();
    match event {
        Event::Ask { call, ends, age } => {
            let purpose = match ends {
                true => Purpose::End,
                false => Purpose::Run,
            };
            let rank = rank(age % 3 != 0, *age);
            bench.ask(CALLS[*call], purpose, &age.to_string(), rank);
        }
        Event::Finish { which, succeeded } if !running.is_empty() => {
            let ticket = running[which % running.len()];
            bench.queue.finish(ticket, *succeeded, bench.now);
        }
        Event::Leave { which } if !all.is_empty() => bench.queue.leave(all[which % all.len()]),
        Event::Finish { .. } | Event::Leave { .. } => {}
        Event::Withdraw { age } => drop(bench.queue.withdraw(&age.to_string())),
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
            let before = bench.queue.turns_taken();
            happen(&mut bench, event);
            for ticket in bench.admit() {
                // Removals only when nothing else waits, or when one waited too long.
                let class = bench.queue.running[&ticket].ask.class();
                let starts_wait = bench
                    .queue
                    .waiting
                    .values()
                    .any(|it| it.ask.class() != Class::Removal);
                let has_waited = bench.now - bench.asked[&ticket] >= LONGEST_WAIT;
                prop_assert!(class != Class::Removal || !starts_wait || has_waited);
            }
            let limit = bench.queue.limit.get();
            prop_assert!(limit >= 2);
            prop_assert!(bench.queue.turns_taken() <= limit.max(before));
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
