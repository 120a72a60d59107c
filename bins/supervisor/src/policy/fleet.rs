//! All processes together: each restarts on its own, and a stop of the whole
//! goes through them in order.
//!
//! ```text
//!   Running --Stop--> Stopping(i) --all stopped--> finished
//!      |                  |                          ^
//!      +------Kill--------+---------> Killing -------+
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use backoff::pace::Moment;
use topology::{PROCESSES, Process};

use super::machine::{Action, Event, Machine, State};

/// The order of a stop: sources of work first, then who carries it out, then who
/// reports. Containers keep running.
pub const STOP_ORDER: [Process; 9] = [
    Process::NodeApi,
    Process::ConfigSourcer,
    Process::Prober,
    Process::Pleg,
    Process::SyncLoop,
    Process::PodWorkerPool,
    Process::CredentialProvider,
    Process::StatusSyncer,
    Process::ApiGateway,
];

/// What happened to the whole, or to a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetEvent {
    /// To one process.
    Of(Process, Event),
    /// Time passed.
    Tick,
    /// Everything is to stop, in order.
    Stop,
    /// Everything is to end at once.
    Kill,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Running,
    /// The process with this index in [`STOP_ORDER`] is being stopped.
    Stopping(usize),
    Killing,
}

/// All supervised processes.
#[derive(Clone, Debug)]
pub struct Fleet {
    machines: BTreeMap<Process, Machine>,
    course: Course,
}

impl Fleet {
    /// All processes of the topology that the node runs, but the supervisor, to be started
    /// at once.
    #[must_use]
    pub fn new(runs: impl Fn(Process) -> bool) -> Fleet {
        let machines = PROCESSES
            .iter()
            .filter(|row| row.process != Process::Supervisor && runs(row.process))
            .map(|row| (row.process, Machine::new(row.backoff_cap)))
            .collect();
        Fleet {
            machines,
            course: Course::Running,
        }
    }

    /// Changes the longest wait of a process, from its next crash on.
    pub fn set_backoff_cap(&mut self, process: Process, backoff_cap: Duration) {
        if let Some(machine) = self.machines.get_mut(&process) {
            machine.set_backoff_cap(backoff_cap);
        }
    }

    /// One process; `None` for the supervisor and for those that the node does not run.
    #[must_use]
    pub fn machine(&self, process: Process) -> Option<&Machine> {
        self.machines.get(&process)
    }

    /// All of them.
    pub fn machines(&self) -> impl Iterator<Item = (Process, &Machine)> {
        self.machines
            .iter()
            .map(|(process, machine)| (*process, machine))
    }

    /// Whether some process waits for another configuration.
    #[must_use]
    pub fn waits_for_configuration(&self) -> bool {
        self.machines.values().any(Machine::waits_for_configuration)
    }

    /// Whom another configuration concerns: everybody when it `concerns_all`, else
    /// those whose own settings it changes, and always those that wait for one.
    pub fn to_reconfigure(
        &self,
        concerns_all: bool,
        concerns: impl Fn(Process) -> bool,
    ) -> Vec<Process> {
        self.machines()
            .filter(|(process, machine)| {
                concerns_all || concerns(*process) || machine.waits_for_configuration()
            })
            .map(|(process, _machine)| process)
            .collect()
    }

    /// The process that runs with this pid.
    #[must_use]
    pub fn process_of(&self, pid: i32) -> Option<Process> {
        self.machines()
            .find(|(_process, machine)| machine.pid() == Some(pid))
            .map(|(process, _machine)| process)
    }

    /// When a `Tick` is due at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Moment> {
        self.machines.values().filter_map(Machine::deadline).min()
    }

    /// Whether a stop was asked for.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.course != Course::Running
    }

    /// Whether nothing runs any more and nothing will.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.machines
            .values()
            .all(|machine| machine.state() == State::Stopped)
    }

    /// Takes an event in; `jitter` as in [`Machine::step`]. Actions are to be
    /// carried out in their order.
    pub fn step(&mut self, now: Moment, event: FleetEvent, jitter: f64) -> Vec<(Process, Action)> {
        let mut actions = Vec::new();
        match event {
            FleetEvent::Of(process, event) => {
                self.step_one(process, now, event, jitter, &mut actions);
            }
            FleetEvent::Tick => self.step_all(now, Event::Tick, jitter, &mut actions),
            FleetEvent::Stop => {
                if self.course == Course::Running {
                    self.course = Course::Stopping(0);
                }
            }
            FleetEvent::Kill => self.course = Course::Killing,
        }
        match self.course {
            Course::Running => {}
            Course::Stopping(index) => self.go_on_stopping(index, now, jitter, &mut actions),
            Course::Killing => self.step_all(now, Event::Kill, jitter, &mut actions),
        }
        actions
    }

    /// While a stop is under way: nothing that is down is started again, and the
    /// next in order is asked once the one before is gone.
    fn go_on_stopping(
        &mut self,
        mut index: usize,
        now: Moment,
        jitter: f64,
        actions: &mut Vec<(Process, Action)>,
    ) {
        for machine in self.machines.values_mut() {
            if matches!(
                machine.state(),
                State::Waiting { .. } | State::BadConfiguration
            ) {
                machine.step(now, Event::Stop, jitter);
            }
        }
        while let Some(&process) = STOP_ORDER.get(index) {
            self.step_one(process, now, Event::Stop, jitter, actions);
            let stopped = |machine: &Machine| machine.state() == State::Stopped;
            if !self.machines.get(&process).is_none_or(stopped) {
                break;
            }
            index += 1;
        }
        self.course = Course::Stopping(index);
    }

    fn step_all(
        &mut self,
        now: Moment,
        event: Event,
        jitter: f64,
        actions: &mut Vec<(Process, Action)>,
    ) {
        // Start order, so that a pool is up before those that call it.
        for process in Process::ALL {
            self.step_one(process, now, event, jitter, actions);
        }
    }

    fn step_one(
        &mut self,
        process: Process,
        now: Moment,
        event: Event,
        jitter: f64,
        actions: &mut Vec<(Process, Action)>,
    ) {
        if let Some(machine) = self.machines.get_mut(&process) {
            let action = machine.step(now, event, jitter);
            actions.extend(action.map(|action| (process, action)));
        }
    }
}
