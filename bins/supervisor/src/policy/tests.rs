//! Tables and properties of the supervision policy.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use topology::Process;

use super::*;

const CAP: Duration = Duration::from_secs(10);

fn millis(millis: u64) -> Moment {
    Duration::from_millis(millis)
}

fn seconds(seconds: u64) -> Moment {
    Duration::from_secs(seconds)
}

/// A machine with what a shell does at once: launching succeeds.
struct Driver {
    machine: Machine,
    now: Moment,
    pids: i32,
}

impl Driver {
    fn new() -> Driver {
        Driver {
            machine: Machine::new(CAP),
            now: Duration::ZERO,
            pids: 100,
        }
    }

    /// One that has just become ready.
    fn ready() -> Driver {
        let mut driver = Driver::new();
        driver.step(Event::Tick);
        driver.step(Event::Ready);
        assert!(matches!(driver.machine.state(), State::Ready { .. }));
        driver
    }

    fn step(&mut self, event: Event) -> Option<Action> {
        let action = self.machine.step(self.now, event, 0.0);
        if action == Some(Action::Launch) {
            self.pids += 1;
            let answer = Event::Launched(self.pids);
            assert_eq!(self.machine.step(self.now, answer, 0.0), None);
        }
        action
    }

    /// Lets time pass up to the next deadline, then ticks.
    fn until_deadline(&mut self) -> Option<Action> {
        self.now = self.machine.deadline().unwrap().max(self.now);
        self.step(Event::Tick)
    }

    fn wait(&self) -> Duration {
        match self.machine.state() {
            State::Waiting { due } => due.saturating_sub(self.now),
            other => panic!("it does not wait: {other:?}"),
        }
    }

    fn crash(&mut self) -> Duration {
        self.step(Event::Ended(Ending::Signal(9)));
        self.wait()
    }
}

#[test]
fn it_restarts_at_once_and_then_slower_up_to_the_cap() {
    let mut driver = Driver::ready();
    let mut waits = Vec::new();
    for _ in 0..11 {
        waits.push(u64::try_from(driver.crash().as_millis()).unwrap());
        driver.until_deadline();
        driver.step(Event::Ready);
    }
    assert_eq!(
        waits,
        [0, 50, 100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
    );
}

#[test]
fn each_ending_by_itself_counts_the_same_except_bad_configuration() {
    for ending in [Ending::Signal(11), Ending::Exit(1), Ending::Exit(0)] {
        let mut driver = Driver::ready();
        driver.step(Event::Ended(ending));
        assert_eq!(driver.wait(), Duration::ZERO, "{ending:?}");
        driver.until_deadline();
        driver.step(Event::Ended(ending));
        assert_eq!(driver.wait(), millis(50), "{ending:?}");
    }
    let mut driver = Driver::ready();
    driver.step(Event::Ended(Ending::Exit(BAD_CONFIGURATION)));
    assert_eq!(driver.machine.state(), State::BadConfiguration);
    assert_eq!(driver.machine.deadline(), None);
}

#[test]
fn bad_configuration_waits_for_a_change_or_a_wish() {
    for event in [Event::Restart, Event::Reconfigured] {
        let mut driver = Driver::ready();
        driver.step(Event::Ended(Ending::Exit(BAD_CONFIGURATION)));
        driver.now = seconds(3600);
        for ignored in [Event::Tick, Event::Ready, Event::Beat] {
            assert_eq!(driver.step(ignored), None);
            assert!(driver.machine.waits_for_configuration());
        }
        assert_eq!(driver.step(event), None);
        assert_eq!(driver.wait(), Duration::ZERO);
        assert_eq!(driver.step(Event::Tick), Some(Action::Launch));
    }
}

#[test]
fn only_readiness_makes_the_next_wait_shorter() {
    let mut driver = Driver::ready();
    for _ in 0..5 {
        driver.crash();
        driver.until_deadline();
    }
    // Running is not enough.
    driver.now += millis(9_000);
    assert_eq!(driver.crash(), millis(800));
    driver.until_deadline();
    driver.step(Event::Ready);
    driver.now += READY_FOR_HALF * millis(800);
    assert_eq!(driver.crash(), millis(400));
    driver.until_deadline();
    driver.step(Event::Ready);
    driver.now += STEADY_AFTER;
    assert_eq!(driver.crash(), Duration::ZERO);
}

#[test]
fn the_silence_before_an_abort_is_no_readiness() {
    let mut driver = Driver::ready();
    for wait in [0, 50, 100] {
        let abort = Some(Action::Signal(driver.pids, Signal::Abort));
        assert_eq!(driver.until_deadline(), abort);
        assert_eq!(driver.crash(), millis(wait));
        driver.until_deadline();
        driver.step(Event::Ready);
    }
}

#[test]
fn a_hang_after_a_minute_of_readiness_begins_a_series_of_its_own() {
    let mut driver = Driver::ready();
    for _ in 0..9 {
        driver.crash();
        driver.until_deadline();
    }
    driver.step(Event::Ready);
    while driver.now < seconds(120) {
        driver.now += seconds(4);
        driver.step(Event::Beat);
    }
    let abort = Some(Action::Signal(driver.pids, Signal::Abort));
    assert_eq!(driver.until_deadline(), abort);
    assert_eq!(driver.crash(), Duration::ZERO);
    assert!(!driver.machine.pace().is_crash_looping());
}

#[test]
fn more_than_five_crashes_in_a_minute_show_and_are_still_retried() {
    let mut driver = Driver::ready();
    for _ in 0..CRASH_LOOP_RESTARTS {
        driver.crash();
        assert!(!driver.machine.pace().is_crash_looping());
        driver.until_deadline();
    }
    driver.crash();
    assert!(driver.machine.pace().is_crash_looping());
    assert_eq!(driver.until_deadline(), Some(Action::Launch));
    // It stays so until it was steady.
    driver.step(Event::Ready);
    driver.now += seconds(30);
    driver.crash();
    assert!(driver.machine.pace().is_crash_looping());
    driver.until_deadline();
    driver.step(Event::Ready);
    driver.now += STEADY_AFTER;
    driver.crash();
    assert!(!driver.machine.pace().is_crash_looping());
}

#[test]
fn crashes_that_are_far_apart_are_no_crash_loop() {
    let mut driver = Driver::ready();
    for _ in 0..20 {
        driver.now += seconds(13);
        driver.crash();
        driver.until_deadline();
        driver.step(Event::Ready);
    }
    assert!(!driver.machine.pace().is_crash_looping());
}

#[test]
fn a_process_that_is_not_ready_in_time_is_aborted_then_killed() {
    let mut driver = Driver::new();
    driver.step(Event::Tick);
    let pid = driver.pids;
    driver.now = START_TIMEOUT.checked_sub(millis(1)).unwrap();
    assert_eq!(driver.step(Event::Tick), None);
    let abort = Some(Action::Signal(pid, Signal::Abort));
    assert_eq!(driver.until_deadline(), abort);
    assert_eq!(driver.machine.intent(), Intent::Alert(Alert::StartTimeout));
    // Too late.
    driver.step(Event::Ready);
    driver.now += KILL_AFTER_ABORT.checked_sub(millis(1)).unwrap();
    assert_eq!(driver.step(Event::Tick), None);
    let kill = Some(Action::Signal(pid, Signal::Kill));
    assert_eq!(driver.until_deadline(), kill);
    assert_eq!(driver.machine.deadline(), None);
    driver.step(Event::Ended(Ending::Signal(9)));
    assert_eq!(driver.wait(), Duration::ZERO);
}

#[test]
fn a_silent_main_loop_is_aborted_and_one_that_speaks_is_not() {
    let mut driver = Driver::ready();
    for _ in 0..100 {
        driver.now += millis(4_999);
        assert_eq!(driver.step(Event::Tick), None);
        driver.step(Event::Beat);
    }
    driver.now += WATCHDOG_SILENCE;
    let abort = Some(Action::Signal(driver.pids, Signal::Abort));
    assert_eq!(driver.step(Event::Tick), abort);
    assert_eq!(driver.machine.intent(), Intent::Alert(Alert::Watchdog));
    // What it says now does not save it.
    driver.step(Event::Beat);
    let kill = Some(Action::Signal(driver.pids, Signal::Kill));
    assert_eq!(driver.until_deadline(), kill);
}

#[test]
fn a_main_loop_that_stands_still_for_two_seconds_is_never_taken_for_a_hung_one() {
    let mut driver = Driver::ready();
    // It was to speak just then, at the last of its looks each second.
    driver.now += process::BEAT_INTERVAL + seconds(1) + millis(1_999);
    assert_eq!(driver.step(Event::Tick), None);
}

#[test]
fn a_beat_before_readiness_is_no_readiness() {
    let mut driver = Driver::new();
    driver.step(Event::Tick);
    driver.step(Event::Beat);
    assert!(matches!(driver.machine.state(), State::Starting { .. }));
}

#[test]
fn a_restart_that_was_asked_for_is_no_crash() {
    let mut driver = Driver::ready();
    for _ in 0..10 {
        let terminate = Some(Action::Signal(driver.pids, Signal::Terminate));
        assert_eq!(driver.step(Event::Restart), terminate);
        assert_eq!(driver.machine.intent(), Intent::Asked);
        assert_eq!(driver.step(Event::Restart), None, "it is idempotent");
        driver.step(Event::Ended(Ending::Exit(0)));
        assert_eq!(driver.wait(), Duration::ZERO);
        driver.step(Event::Tick);
        driver.step(Event::Ready);
    }
    assert_eq!(*driver.machine.pace(), Pace::new());
}

#[test]
fn a_restart_cuts_a_long_wait_short() {
    let mut driver = Driver::ready();
    for _ in 0..9 {
        driver.crash();
        driver.until_deadline();
    }
    assert_eq!(driver.crash(), CAP);
    assert_eq!(driver.step(Event::Restart), None);
    assert_eq!(driver.wait(), Duration::ZERO);
    assert!(!driver.machine.pace().is_crash_looping());
}

#[test]
fn who_does_not_stop_is_killed_after_the_grace() {
    for (event, after) in [
        (Event::Stop, State::Stopped),
        (Event::Restart, State::Waiting { due: STOP_GRACE }),
    ] {
        let mut driver = Driver::ready();
        driver.step(event);
        driver.now = STOP_GRACE.checked_sub(millis(1)).unwrap();
        assert_eq!(driver.step(Event::Tick), None);
        let kill = Some(Action::Signal(driver.pids, Signal::Kill));
        assert_eq!(driver.until_deadline(), kill);
        driver.step(Event::Ended(Ending::Signal(9)));
        assert_eq!(driver.machine.state(), after);
    }
}

#[test]
fn what_cannot_be_launched_is_retried_along_the_curve() {
    let mut machine = Machine::new(CAP);
    assert_eq!(
        machine.step(millis(0), Event::Tick, 0.0),
        Some(Action::Launch)
    );
    machine.step(millis(0), Event::LaunchFailed, 0.0);
    assert_eq!(
        machine.step(millis(0), Event::Tick, 0.0),
        Some(Action::Launch)
    );
    machine.step(millis(0), Event::LaunchFailed, 0.0);
    assert_eq!(machine.state(), State::Waiting { due: millis(50) });
}

#[test]
fn a_start_waits_until_all_of_the_last_run_has_ended_and_not_for_ever() {
    let mut machine = Machine::new(CAP);
    let mut now = Duration::ZERO;
    let mut looked = 0;
    loop {
        match machine.step(now, Event::Tick, 0.0) {
            Some(Action::Launch) => looked += 1,
            other => {
                assert_eq!(other, Some(Action::LaunchBeside));
                break;
            }
        }
        machine.step(now, Event::Occupied, 0.0);
        now = machine.deadline().unwrap();
        assert_eq!(*machine.pace(), Pace::new(), "it is no crash");
    }
    assert_eq!(now, LEFTOVER_PATIENCE);
    assert_eq!(
        looked,
        LEFTOVER_PATIENCE.as_millis() / LOOK_AGAIN.as_millis()
    );
    // The next time it is waited for anew.
    machine.step(now, Event::Launched(7), 0.0);
    machine.step(now, Event::Ended(Ending::Signal(9)), 0.0);
    assert_eq!(machine.step(now, Event::Tick, 0.0), Some(Action::Launch));
}

#[test]
fn a_process_whose_last_run_has_not_ended_can_be_stopped() {
    let mut machine = Machine::new(CAP);
    machine.step(Duration::ZERO, Event::Tick, 0.0);
    machine.step(Duration::ZERO, Event::Occupied, 0.0);
    assert_eq!(machine.step(Duration::ZERO, Event::Stop, 0.0), None);
    assert_eq!(machine.state(), State::Stopped);
}

/// Steps the fleet; what it launches gets a pid, what it signals is returned.
fn settle(
    fleet: &mut Fleet,
    now: Moment,
    event: FleetEvent,
    pids: &mut i32,
) -> Vec<(Process, Signal)> {
    let mut signals = Vec::new();
    let mut events = vec![event];
    while let Some(event) = events.pop() {
        for (process, action) in fleet.step(now, event, 0.0) {
            match action {
                Action::Launch | Action::LaunchBeside => {
                    *pids += 1;
                    events.push(FleetEvent::Of(process, Event::Launched(*pids)));
                }
                Action::Signal(_, signal) => signals.push((process, signal)),
            }
        }
    }
    signals
}

#[test]
fn the_stop_goes_through_the_processes_in_order() {
    let mut fleet = Fleet::new(|_| true);
    let mut pids = 0;
    let supervised = i32::try_from(STOP_ORDER.len()).unwrap();
    let now = seconds(1);
    assert!(settle(&mut fleet, now, FleetEvent::Tick, &mut pids).is_empty());
    assert_eq!(pids, supervised);
    let mut signals = settle(&mut fleet, now, FleetEvent::Stop, &mut pids);
    for (index, process) in STOP_ORDER.into_iter().enumerate() {
        assert_eq!(signals, [(process, Signal::Terminate)]);
        assert!(!fleet.is_finished());
        // One that crashes meanwhile is not started again.
        if let Some(last) = STOP_ORDER.last()
            && index == 2
        {
            let crash = FleetEvent::Of(*last, Event::Ended(Ending::Signal(9)));
            assert!(settle(&mut fleet, now, crash, &mut pids).is_empty());
            assert!(settle(&mut fleet, now, FleetEvent::Tick, &mut pids).is_empty());
        }
        let ended = FleetEvent::Of(process, Event::Ended(Ending::Exit(0)));
        signals = settle(&mut fleet, now, ended, &mut pids);
        if index == STOP_ORDER.len() - 2 {
            break;
        }
    }
    assert!(signals.is_empty() && fleet.is_finished());
    assert_eq!(pids, supervised, "nothing was started");
}

#[test]
fn a_process_that_the_node_does_not_run_is_neither_started_nor_waited_for() {
    let absent = Process::CredentialProvider;
    let mut fleet = Fleet::new(|process| process != absent);
    let mut pids = 0;
    settle(&mut fleet, seconds(1), FleetEvent::Tick, &mut pids);
    assert!(fleet.machine(absent).is_none());
    settle(&mut fleet, seconds(1), FleetEvent::Stop, &mut pids);
    for process in STOP_ORDER.into_iter().filter(|it| *it != absent) {
        assert!(!fleet.is_finished());
        let ended = FleetEvent::Of(process, Event::Ended(Ending::Exit(0)));
        settle(&mut fleet, seconds(1), ended, &mut pids);
    }
    assert!(fleet.is_finished());
}

#[test]
fn a_second_stop_kills_everything_that_is_left() {
    let mut fleet = Fleet::new(|_| true);
    let mut pids = 0;
    settle(&mut fleet, seconds(1), FleetEvent::Tick, &mut pids);
    settle(&mut fleet, seconds(1), FleetEvent::Stop, &mut pids);
    let signals = settle(&mut fleet, seconds(1), FleetEvent::Kill, &mut pids);
    assert_eq!(signals.len(), STOP_ORDER.len());
    assert!(signals.iter().all(|(_, signal)| *signal == Signal::Kill));
    let again = settle(&mut fleet, seconds(1), FleetEvent::Kill, &mut pids);
    assert!(again.is_empty(), "each is killed once");
}

#[test]
fn another_configuration_concerns_those_it_changes_and_those_that_wait_for_one() {
    let mut fleet = Fleet::new(|_| true);
    let mut pids = 0;
    settle(&mut fleet, seconds(1), FleetEvent::Tick, &mut pids);
    let bad = Event::Ended(Ending::Exit(BAD_CONFIGURATION));
    let event = FleetEvent::Of(Process::Pleg, bad);
    settle(&mut fleet, seconds(1), event, &mut pids);
    let nobody = |_: Process| false;
    let prober = |process: Process| process == Process::Prober;
    assert_eq!(fleet.to_reconfigure(false, nobody), [Process::Pleg]);
    assert_eq!(
        fleet.to_reconfigure(false, prober),
        [Process::Pleg, Process::Prober]
    );
    let everybody = fleet.to_reconfigure(true, nobody);
    assert_eq!(everybody.len(), STOP_ORDER.len());
}

#[test]
fn the_stop_order_names_every_supervised_process_once() {
    let mut order = STOP_ORDER.to_vec();
    order.sort();
    let mut supervised: Vec<Process> = Fleet::new(|_| true)
        .machines()
        .map(|(process, _machine)| process)
        .collect();
    supervised.sort();
    assert_eq!(order, supervised);
}

/// What can happen to the whole, in any order.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Time(u64),
    Launches(bool),
    Event(usize, Event),
    Stop,
    Kill,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let event = prop_oneof![
        Just(Event::Ready),
        Just(Event::Beat),
        Just(Event::Ended(Ending::Signal(9))),
        Just(Event::Ended(Ending::Exit(0))),
        Just(Event::Ended(Ending::Exit(78))),
        Just(Event::Restart),
        Just(Event::Reconfigured),
    ];
    let happening = prop_oneof![
        6 => (0_u64..70_000).prop_map(Happening::Time),
        6 => (0_u64..100).prop_map(Happening::Time),
        1 => any::<bool>().prop_map(Happening::Launches),
        12 => (0..STOP_ORDER.len(), event).prop_map(|(index, event)| Happening::Event(index, event)),
    ];
    // A stop at most once, somewhere; else nothing would ever be tried after it.
    let end = prop_oneof![
        2 => Just(None),
        1 => Just(Some(Happening::Stop)),
        1 => Just(Some(Happening::Kill)),
    ];
    (
        prop::collection::vec(happening, 1..120),
        end,
        any::<prop::sample::Index>(),
    )
        .prop_map(|(mut all, end, at)| {
            if let Some(end) = end {
                all.insert(at.index(all.len()), end);
            }
            all
        })
}

/// A world of processes beside the policy, which knows what really runs.
#[derive(Default)]
struct World {
    running: BTreeMap<Process, i32>,
    killed: Vec<i32>,
    pids: i32,
    launches_fail: bool,
    stopping: bool,
}

impl World {
    fn carry_out(&mut self, fleet: &mut Fleet, now: Moment, event: FleetEvent, jitter: f64) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for (process, action) in fleet.step(now, event, jitter) {
                match action {
                    Action::Launch | Action::LaunchBeside => {
                        assert!(!self.stopping, "{process} was started during a stop");
                        assert!(
                            !self.running.contains_key(&process),
                            "a second {process} was started"
                        );
                        let answer = if self.launches_fail {
                            Event::LaunchFailed
                        } else {
                            self.pids += 1;
                            self.running.insert(process, self.pids);
                            Event::Launched(self.pids)
                        };
                        events.push(FleetEvent::Of(process, answer));
                    }
                    Action::Signal(pid, signal) => {
                        assert_eq!(
                            self.running.get(&process),
                            Some(&pid),
                            "{process} was signalled and does not run with this pid"
                        );
                        if signal == Signal::Kill {
                            assert!(!self.killed.contains(&pid), "{process} was killed twice");
                            self.killed.push(pid);
                        }
                    }
                }
            }
            self.compare(fleet, now);
        }
    }

    fn compare(&self, fleet: &Fleet, now: Moment) {
        for (process, machine) in fleet.machines() {
            if machine.state() != State::Launching {
                assert_eq!(machine.pid(), self.running.get(&process).copied());
            }
            if let State::Waiting { due } = machine.state() {
                let longest = CAP.mul_f64(1.0 + JITTER);
                assert!(due <= now + longest, "{process} waits too long");
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_there_is_one_instance_and_no_endless_wait(
        all in happenings(),
        jitter in -1.0..=1.0,
    ) {
        let mut fleet = Fleet::new(|_| true);
        let mut world = World::default();
        let mut now = Duration::ZERO;
        world.carry_out(&mut fleet, now, FleetEvent::Tick, jitter);
        for happening in all {
            let event = match happening {
                Happening::Time(passed) => {
                    now += millis(passed);
                    FleetEvent::Tick
                }
                Happening::Launches(fail) => {
                    world.launches_fail = fail;
                    FleetEvent::Tick
                }
                Happening::Event(index, event) => {
                    let process = STOP_ORDER[index];
                    if matches!(event, Event::Ended(_)) && world.running.remove(&process).is_none() {
                        // Only what runs can end.
                        continue;
                    }
                    FleetEvent::Of(process, event)
                }
                Happening::Stop => {
                    world.stopping = true;
                    FleetEvent::Stop
                }
                Happening::Kill => {
                    world.stopping = true;
                    FleetEvent::Kill
                }
            };
            world.carry_out(&mut fleet, now, event, jitter);
        }
        // Left alone with a machine that ends what is killed, everything comes
        // back, or the stop comes to its end.
        world.launches_fail = false;
        for _ in 0..200 {
            if let Some(deadline) = fleet.deadline() {
                now = now.max(deadline);
            }
            for process in world.running.keys().copied().collect::<Vec<_>>() {
                let ready = FleetEvent::Of(process, Event::Ready);
                world.carry_out(&mut fleet, now, ready, jitter);
            }
            world.carry_out(&mut fleet, now, FleetEvent::Tick, jitter);
            let dead: Vec<Process> = world
                .running
                .iter()
                .filter(|(_, pid)| world.killed.contains(pid))
                .map(|(process, _)| *process)
                .collect();
            for process in dead {
                world.running.remove(&process);
                let ended = FleetEvent::Of(process, Event::Ended(Ending::Signal(9)));
                world.carry_out(&mut fleet, now, ended, jitter);
            }
        }
        if world.stopping {
            prop_assert!(fleet.is_finished());
            prop_assert!(world.running.is_empty());
        } else {
            for (process, machine) in fleet.machines() {
                let ready = matches!(machine.state(), State::Ready { .. });
                prop_assert!(ready || machine.waits_for_configuration(), "{process}");
            }
        }
    }

    #[test]
    fn waits_stay_within_their_jitter(crashes in 1_usize..40, jitter in -1.0..=1.0) {
        let mut pace = Pace::new();
        for crash in 1..=crashes {
            let wait = pace.crashed(Duration::ZERO, CAP, jitter).as_secs_f64();
            let exact = match crash {
                1 => 0.0,
                _ => (0.05 * 2_f64.powi(i32::try_from(crash).unwrap() - 2)).min(10.0),
            };
            prop_assert!(wait >= exact * (1.0 - JITTER) - 1e-6);
            prop_assert!(wait <= exact * (1.0 + JITTER) + 1e-6);
        }
    }
}
