//! Carries out what the policy decides: starts, signals and reaps processes,
//! listens to them and to who commands, and publishes their state. What follows
//! from what happened is decided there, not here.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use clock::WallClock;
use confine::ChildEnding;
use nix::sys::signal::{Signal as UnixSignal, kill, killpg};
use nix::unistd::Pid;
use rand::Rng;
use rand::rngs::SmallRng;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use topology::{PROCESSES, Process};

use crate::command::{Command, ReloadError, RestartError};
use crate::configuration_files::ConfigurationFiles;
use crate::degradation::{Degradation, check_minimum};
use crate::directories;
use crate::failure::Failure;
use crate::fd_store::FdStore;
use crate::flags::Flags;
use crate::launcher::Launcher;
use crate::log_pipe::LogPipe;
use crate::notify::{DescriptorName, NotifySockets};
use crate::policy::{Action, Ending, Event, Fleet, FleetEvent, Heartbeat, Intent, Moment, Signal};
use crate::record::{CrashRing, EndingRecord, Record, describe, describe_out_of_memory};
use crate::settings::{self, Settings};
use crate::snapshot::Snapshot;

/// How often files are looked at while a process waits for another
/// configuration.
const CONFIGURATION_CHECK: Duration = Duration::from_secs(2);

/// Longest sleep of the main loop without a watchdog of its own; only a bound,
/// nothing depends on it.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// Everything that the main loop owns.
pub(crate) struct Shell {
    pub(crate) flags: Flags,
    pub(crate) settings: Settings,
    pub(crate) files: ConfigurationFiles,
    pub(crate) files_checked: Instant,
    pub(crate) launcher: Launcher,
    pub(crate) notify: NotifySockets,
    pub(crate) fd_store: FdStore,
    pub(crate) logs: BTreeMap<Process, Arc<LogPipe>>,
    pub(crate) clock: WallClock,
    pub(crate) start: Instant,
    pub(crate) random: SmallRng,
    pub(crate) fleet: Fleet,
    /// Where whoever started the supervisor has a watchdog.
    pub(crate) heartbeat: Option<Heartbeat>,
    pub(crate) records: BTreeMap<Process, Record>,
    pub(crate) crashes: CrashRing,
    /// How much of earlier runs the kernel cannot end, of processes that run again.
    pub(crate) left_over: BTreeMap<Process, usize>,
    /// What this machine does not give.
    pub(crate) degradations: Vec<Degradation>,
    pub(crate) published: watch::Sender<Snapshot>,
}

struct Signals {
    child: SignalStream,
    terminate: SignalStream,
    interrupt: SignalStream,
    hangup: SignalStream,
}

impl Signals {
    fn watch() -> Result<Signals, Failure> {
        let watch = |kind| {
            signal(kind).map_err(|source| Failure::System {
                action: "watch signals",
                source,
            })
        };
        Ok(Signals {
            child: watch(SignalKind::child())?,
            terminate: watch(SignalKind::terminate())?,
            interrupt: watch(SignalKind::interrupt())?,
            hangup: watch(SignalKind::hangup())?,
        })
    }
}

impl Shell {
    /// Runs until everything was stopped as asked, or `server` fails.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        server: impl Future<Output = Result<(), ipc::ServeError>>,
    ) -> Result<(), Failure> {
        let mut signals = Signals::watch()?;
        tokio::pin!(server);
        self.apply_restart_waits();
        self.apply(FleetEvent::Tick);
        tell_own_starter(&[NotifyState::Ready]);
        while !self.fleet.is_finished() {
            self.publish();
            self.beat();
            let wake = self.wake_at();
            tokio::select! {
                // Endings first, so that a restart waits for nothing else.
                biased;
                // Cancel-safe: signals stay pending in their streams.
                _ = signals.child.recv() => self.reap(),
                _ = signals.terminate.recv() => self.stop(),
                _ = signals.interrupt.recv() => self.stop(),
                _ = signals.hangup.recv() => {
                    // The error was logged; the configuration in force stays.
                    drop(self.reload());
                }
                // Cancel-safe: it only waits.
                process = self.notify.readable() => self.receive(process),
                // Cancel-safe: only waits.
                () = sleep_until(wake) => self.tick(),
                // Cancel-safe: a command is taken or it is not.
                Some(command) = commands.recv() => self.command(command),
                // Cancel-safe: pinned outside of the loop.
                result = &mut server => return result.map_err(Failure::Serve),
            }
        }
        self.publish();
        self.launcher.cgroups().remove();
        Ok(())
    }

    fn now(&self) -> Moment {
        self.start.elapsed()
    }

    /// Tells the supervisor's own starter that this loop is alive.
    fn beat(&mut self) {
        let now = self.now();
        if self
            .heartbeat
            .as_mut()
            .is_some_and(|heartbeat| heartbeat.beats(now))
        {
            tell_own_starter(&[NotifyState::Watchdog]);
            self.keep_in_cgroups();
        }
    }

    /// Looks as often as the starter is told, since that is who moves processes.
    fn keep_in_cgroups(&mut self) {
        let machines = self.fleet.machines();
        let running = machines.filter_map(|(process, machine)| Some((process, machine.pid()?)));
        let moved = self.launcher.keep_in_cgroups(&running.collect::<Vec<_>>());
        if !moved.is_empty() {
            let names: Vec<_> = moved.iter().map(|process| process.name()).collect();
            tracing::warn!(
                processes = names.join(", "),
                "moved out of their cgroups, as systemd does when a service beside ours gets or loses a controller; they are back"
            );
        }
    }

    fn wake_at(&self) -> Instant {
        let latest = if self.fleet.waits_for_configuration() {
            self.files_checked + CONFIGURATION_CHECK
        } else {
            Instant::now() + LONGEST_SLEEP
        };
        let beat = self.heartbeat.as_ref().map(Heartbeat::due);
        let due = self.fleet.deadline().into_iter().chain(beat).min();
        due.map_or(latest, |due| latest.min(self.start + due))
    }

    fn tick(&mut self) {
        // What was said before now counts: a supervisor that was held up itself
        // must not take others for hung.
        for process in Process::ALL {
            self.receive(process);
        }
        self.apply(FleetEvent::Tick);
        if !self.fleet.waits_for_configuration()
            || self.files_checked.elapsed() < CONFIGURATION_CHECK
        {
            return;
        }
        self.files_checked = Instant::now();
        if self.files.changed() {
            tracing::info!("the configuration changed while a process waits for that");
            // The error was logged; the next change is looked at again.
            drop(self.reload());
        }
    }

    fn stop(&mut self) {
        if self.fleet.is_stopping() {
            tracing::info!("asked to stop again: everything is killed");
            self.apply(FleetEvent::Kill);
        } else {
            tracing::info!("stopping all processes in order; containers keep running");
            tell_own_starter(&[NotifyState::Stopping]);
            self.apply(FleetEvent::Stop);
        }
    }

    /// Takes an event to the policy and carries out what it says, including what
    /// follows from that.
    fn apply(&mut self, event: FleetEvent) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let jitter = self.random.random_range(-1.0..=1.0);
            for (process, action) in self.fleet.step(self.now(), event, jitter) {
                match action {
                    Action::Launch | Action::LaunchBeside => {
                        let answer = self.launch(process, action == Action::LaunchBeside);
                        events.push_back(FleetEvent::Of(process, answer));
                        // It may be due again at once.
                        events.push_back(FleetEvent::Tick);
                    }
                    Action::Signal(pid, which) => send(process, pid, which),
                }
            }
        }
    }

    fn launch(&mut self, process: Process, is_forced: bool) -> Event {
        let left = self.launcher.cgroups().clear(process);
        if left > 0 && !is_forced {
            return Event::Occupied;
        }
        self.note_left_over(process, left);
        if let Err(reason) = self.repair_socket(process) {
            self.note_ending(process, None, reason, 0, Duration::ZERO, true);
            return Event::LaunchFailed;
        }
        let now = self.now();
        self.records.entry(process).or_default().launched(now);
        let uid = self.launcher.identities().uid(process);
        self.notify.renew(process, uid);
        let launched = match (self.logs.get(&process), self.notify.path(process)) {
            (Some(log), Some(notify)) => {
                let settings = self.settings.bulkhead.process(process);
                self.launcher.launch(process, &settings, log, notify)
            }
            _ => return Event::LaunchFailed,
        };
        match launched {
            Ok(pid) => {
                tracing::info!(%process, %pid, "started");
                Event::Launched(pid.as_raw())
            }
            Err(error) => {
                let reason = telemetry::chain(&error);
                tracing::error!(%process, error = reason, "cannot start");
                self.note_ending(process, None, reason, 0, Duration::ZERO, true);
                Event::LaunchFailed
            }
        }
    }

    fn note_left_over(&mut self, process: Process, left: usize) {
        if left == 0 {
            self.left_over.remove(&process);
        } else {
            tracing::error!(%process, left, "starts beside what the kernel cannot end");
            self.left_over.insert(process, left);
        }
    }

    /// Makes the socket of a process anew where nobody can connect to it any more. An error
    /// is logged, and says why that cannot be.
    fn repair_socket(&mut self, process: Process) -> Result<(), String> {
        match self.launcher.repair_socket(process) {
            Ok(false) => Ok(()),
            Ok(true) => {
                tracing::warn!(%process, "nobody could connect to its socket, which was made anew");
                Ok(())
            }
            Err(error) => {
                let reason = format!("cannot make its socket anew: {error}");
                tracing::error!(%process, "{reason}");
                Err(reason)
            }
        }
    }

    /// Takes leave of everything that has ended, orphans included.
    fn reap(&mut self) {
        loop {
            let pid = match confine::find_ended_child() {
                Ok(Some(pid)) => pid,
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(%error, "cannot look for processes that ended");
                    return;
                }
            };
            let process = self.fleet.process_of(pid.as_raw());
            if let Some(process) = process {
                // What it may have left behind; usually nothing. The group before it
                // is reaped, so that it is certainly its own.
                let _nobody_left = killpg(pid, UnixSignal::SIGKILL);
                self.launcher.cgroups().clear(process);
                // Its last words count while its pid is its own: what it had kept
                // open just before its end has no other owner.
                self.receive(process);
            }
            let ending = match confine::reap(pid) {
                Ok(ChildEnding::Exit(code)) => Ending::Exit(code),
                Ok(ChildEnding::Signal(number)) => Ending::Signal(number),
                Err(error) => {
                    tracing::error!(%pid, %error, "cannot reap a process that ended");
                    return;
                }
            };
            if let Some(process) = process {
                self.ended(process, pid, ending);
            }
        }
    }

    fn ended(&mut self, process: Process, pid: Pid, ending: Ending) {
        let machine = self.fleet.machine(process);
        let intent = machine.map_or(Intent::Own, |machine| machine.intent());
        let started = machine.and_then(|machine| machine.running());
        let uptime = started.map_or(Duration::ZERO, |(_pid, started)| {
            self.now().saturating_sub(started)
        });
        let mut reason = describe(ending, intent);
        if ending == Ending::Signal(UnixSignal::SIGKILL as i32)
            && let Some(cause) = self.launcher.cgroups().out_of_memory(process)
        {
            reason.push_str(&format!(": {}", describe_out_of_memory(process, cause)));
        }
        let asked = intent == Intent::Asked;
        if asked {
            tracing::info!(%process, %pid, reason, "ended");
        } else {
            tracing::warn!(%process, %pid, reason, "ended");
        }
        self.note_ending(process, Some(ending), reason, pid.as_raw(), uptime, !asked);
        self.apply(FleetEvent::Of(process, Event::Ended(ending)));
        self.apply(FleetEvent::Tick);
    }

    fn note_ending(
        &mut self,
        process: Process,
        ending: Option<Ending>,
        reason: String,
        pid: i32,
        uptime: Duration,
        is_crash: bool,
    ) {
        let log = self.logs.get(&process);
        let record = Arc::new(EndingRecord {
            ending,
            at: self.clock.now(),
            reason,
            pid,
            uptime,
            last_log_lines: log.map(|log| log.last_words()).unwrap_or_default(),
        });
        let entry = self.records.entry(process).or_default();
        entry.last_ending = Some(Arc::clone(&record));
        entry.status_text.clear();
        if is_crash {
            self.crashes.push(process, record);
        }
    }

    fn receive(&mut self, process: Process) {
        let pid = self
            .fleet
            .machine(process)
            .and_then(|machine| machine.pid());
        let uid = self.launcher.identities().uid(process);
        let now = Instant::now();
        let expired = self.fd_store.expire(now);
        self.notify.close(Process::PodWorkerPool, expired);
        let is_process = |sender| Some(sender) == pid;
        for (message, descriptor) in self.notify.receive(process, uid, is_process) {
            if let Some(descriptor) = descriptor {
                let named = (message.descriptor, descriptor);
                let released = self.fd_store.store(process, pid, named, now);
                self.notify.close(process, released);
            } else if message.releases && message.descriptor == DescriptorName::Shutdown {
                let released = self.fd_store.release_shutdown(process);
                self.notify.close(process, released);
            }
            if message.ready {
                self.apply(FleetEvent::Of(process, Event::Ready));
            }
            if message.beat {
                self.apply(FleetEvent::Of(process, Event::Beat));
            }
            if let Some(status) = message.status {
                self.records.entry(process).or_default().status_text = status;
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            // Whoever asked may be gone.
            Command::Restart { process, reply } => drop(reply.send(self.restart(process))),
            Command::Reload { reply } => drop(reply.send(self.reload())),
        }
    }

    fn restart(&mut self, process: Process) -> Result<u32, RestartError> {
        if self.fleet.is_stopping() {
            return Err(RestartError::Stopping);
        }
        let machine = self.fleet.machine(process);
        let machine = machine.ok_or(RestartError::NotSupervised(process))?;
        let old_pid = machine.pid().and_then(|pid| u32::try_from(pid).ok());
        let old_pid = old_pid.unwrap_or(0);
        tracing::info!(%process, old_pid, "restart asked for");
        self.apply(FleetEvent::Of(process, Event::Restart));
        self.apply(FleetEvent::Tick);
        Ok(old_pid)
    }

    /// Reads the configuration again. Returns what is restarted because of it;
    /// what waits for another configuration is always tried again.
    fn reload(&mut self) -> Result<Vec<Process>, ReloadError> {
        let result = match self.fleet.is_stopping() {
            true => Err(ReloadError::Stopping),
            false => self.try_reload().map_err(ReloadError::Unusable),
        };
        match &result {
            Ok(restarted) => tracing::info!(?restarted, "configuration read again"),
            Err(error) => {
                tracing::error!(
                    error = telemetry::chain(error),
                    "the configuration cannot be used; the one in force stays"
                );
            }
        }
        result
    }

    fn try_reload(&mut self) -> Result<Vec<Process>, Failure> {
        self.files.note();
        let new = settings::resolve_again(&self.flags, &self.settings.node)?;
        check_minimum(&self.degradations, &new.bulkhead.minimum_confinement)?;
        let node_changed = new.node != self.settings.node;
        // Whether it changed or not: what is there may be lost or damaged.
        directories::write_node_config(&new.node, self.launcher.identities())?;
        self.launcher.renew_mounts(&new.node);
        let old = std::mem::replace(&mut self.settings, new);
        self.apply_restart_waits();
        let own_changed =
            |process| old.bulkhead.process(process) != self.settings.bulkhead.process(process);
        let restarted = self.fleet.to_reconfigure(node_changed, own_changed);
        for process in &restarted {
            self.apply(FleetEvent::Of(*process, Event::Reconfigured));
        }
        self.apply(FleetEvent::Tick);
        Ok(restarted)
    }

    fn apply_restart_waits(&mut self) {
        for row in PROCESSES {
            let wait = self.settings.bulkhead.process(row.process).max_restart_wait;
            let wait = wait.unwrap_or(row.backoff_cap);
            self.fleet.set_backoff_cap(row.process, wait);
        }
    }

    fn publish(&self) {
        let snapshot = Snapshot {
            left_over: self.left_over.clone(),
            outdated_mounts: self.launcher.outdated_mounts(),
            ..Snapshot::of(self.start, &self.fleet, &self.records, &self.crashes)
        };
        self.published.send_if_modified(|current| {
            let changed = *current != snapshot;
            *current = snapshot;
            changed
        });
    }
}

/// To the systemd unit that runs the supervisor, if one does.
fn tell_own_starter(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot report to NOTIFY_SOCKET");
    }
}

fn send(process: Process, pid: i32, which: Signal) {
    let signal = match which {
        Signal::Terminate => UnixSignal::SIGTERM,
        Signal::Abort => UnixSignal::SIGABRT,
        Signal::Kill => UnixSignal::SIGKILL,
    };
    match which {
        Signal::Terminate => tracing::debug!(%process, pid, "asked to stop"),
        Signal::Abort => tracing::warn!(%process, pid, "does not answer: SIGABRT"),
        Signal::Kill => tracing::warn!(%process, pid, "did not end in time: SIGKILL"),
    }
    // The pid is not reaped yet, so it is still this process.
    if let Err(errno) = kill(Pid::from_raw(pid), signal) {
        tracing::error!(%process, pid, %signal, %errno, "cannot send a signal");
    }
}
