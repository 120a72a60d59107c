//! The processes' supervision: the supervisor's own policy decides when each is
//! started, stopped and given up, in simulated time; what it decides is carried
//! out here, on tasks in place of Unix processes.
//!
//! What is heard of a process comes from itself: its readiness and the beats of
//! its main loop. A process that is silent, not ready in time, does not stop when
//! asked to or ends by itself is a failure of the run.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use clock::UnixNanos;
use process::{KeptOpen, Lifecycle};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use supervisor::policy::{
    Action, Ending, Event, Fleet, FleetEvent, Intent, Moment, ProcessId, Signal,
};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinHandle};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use topology::Process;

use crate::disk_work;
use crate::launcher::{self, Launcher};

const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;

/// What happens to a process when it is started next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It cannot be started.
    LaunchFails,
    /// It crashes after this time.
    Crashes(Duration),
}

/// A process that runs.
#[derive(Debug)]
struct Run {
    pid: ProcessId,
    task: AbortHandle,
    watcher: JoinHandle<()>,
    shutdown: CancellationToken,
    lifecycle: Lifecycle,
    /// The last beat that the policy was told of.
    last_beat: Option<Instant>,
    crashes_at: Option<Instant>,
}

/// What is heard of a process.
#[derive(Debug)]
struct Word {
    process: Process,
    pid: ProcessId,
    what: Heard,
}

#[derive(Debug)]
enum Heard {
    Ready,
    Ended(Result<Result<(), String>, JoinError>),
}

/// The policy, and the processes that it has started.
#[derive(Debug)]
pub(crate) struct Supervision {
    pub(crate) launcher: Launcher,
    fleet: Fleet,
    began: Instant,
    random: SmallRng,
    runs: BTreeMap<Process, Run>,
    fates: BTreeMap<Process, VecDeque<Fate>>,
    /// Descriptors of processes that the supervisor keeps open.
    kept: BTreeMap<Process, KeptOpen>,
    pids: ProcessId,
    teller: mpsc::UnboundedSender<Word>,
    words: mpsc::UnboundedReceiver<Word>,
    failures: Vec<String>,
    /// When processes ended, by a clock that never jumps.
    deaths: Vec<(Process, UnixNanos)>,
    /// When they were started, by the same clock.
    launches: Vec<(Process, UnixNanos)>,
}

impl Supervision {
    /// Nothing runs yet; all are due at once when time passes.
    pub(crate) fn new(launcher: Launcher) -> Supervision {
        let (teller, words) = mpsc::unbounded_channel();
        Supervision {
            fleet: fleet(),
            began: Instant::now(),
            random: SmallRng::seed_from_u64(!launcher.seed),
            runs: BTreeMap::new(),
            fates: BTreeMap::new(),
            kept: BTreeMap::new(),
            pids: 0,
            teller,
            words,
            failures: Vec::new(),
            deaths: Vec::new(),
            launches: Vec::new(),
            launcher,
        }
    }

    /// What no process may do and one did.
    pub(crate) fn failures(&self) -> &[String] {
        &self.failures
    }

    /// When runs of a process ended so far.
    pub(crate) fn deaths_of(&self, process: Process) -> impl Iterator<Item = UnixNanos> {
        let deaths = self.deaths.iter();
        deaths
            .filter(move |(dead, _)| *dead == process)
            .map(|(_, at)| *at)
    }

    /// Since when a process ran, of a moment at which it did.
    pub(crate) fn runs_since(&self, process: Process, moment: UnixNanos) -> Option<UnixNanos> {
        let until_then = |of: &[(Process, UnixNanos)]| {
            let until_then = of.iter().filter(|(it, at)| *it == process && *at <= moment);
            until_then.map(|(_, at)| *at).collect::<Vec<_>>()
        };
        let (launches, deaths) = (until_then(&self.launches), until_then(&self.deaths));
        let runs = launches.len() > deaths.len();
        launches.last().copied().filter(|_| runs)
    }

    /// Since when all processes ran on which pods depend, of a moment at which they did.
    pub(crate) fn all_run_since(&self, moment: UnixNanos) -> Option<UnixNanos> {
        let mut since = None;
        for process in launcher::processes().filter(|it| *it != Process::NodeApi) {
            since = since.max(Some(self.runs_since(process, moment)?));
        }
        since
    }

    /// Lets time pass, and carries out what the policy decides meanwhile.
    pub(crate) async fn pass(&mut self, time: Duration) {
        self.pass_until(std::future::pending(), time, time).await;
    }

    /// The same, until something happens: it ends as if that were looked for once in each slice.
    pub(crate) async fn pass_until(
        &mut self,
        happening: impl Future<Output = ()>,
        slice: Duration,
        most: Duration,
    ) {
        let began = Instant::now();
        let mut until = began + most;
        let mut has_happened = false;
        let mut happening = std::pin::pin!(happening);
        loop {
            self.crash_who_is_doomed().await;
            self.tick().await;
            if Instant::now() >= until && self.words.is_empty() {
                return;
            }
            let crashes = self.runs.values().filter_map(|run| run.crashes_at);
            let policy = self.fleet.deadline().map(|moment| self.began + moment);
            let wake = crashes.chain(policy).fold(until, Instant::min);
            tokio::select! {
                biased;
                // Cancel-safe: a word is taken or it is not.
                Some(word) = self.words.recv() => self.hear(word).await,
                // Cancel-safe: it is polled again.
                () = &mut happening, if !has_happened => {
                    has_happened = true;
                    until = until.min(began + round_up(began.elapsed(), slice));
                }
                // Cancel-safe: only waits.
                () = sleep_until(wake) => {}
            }
        }
    }

    /// SIGKILL for those of them that run, all at the same moment.
    pub(crate) async fn kill(&mut self, processes: impl IntoIterator<Item = Process>) {
        let mut dead = Vec::new();
        for process in processes {
            if self.end(process).await {
                dead.push(process);
            }
        }
        for process in dead {
            self.ended(process, Ending::Signal(SIGKILL)).await;
        }
    }

    /// The same for all, and the supervisor.
    pub(crate) async fn kill_all(&mut self) {
        self.kill(launcher::processes()).await;
        self.close_kept();
    }

    /// The supervisor has ended, and with it what it kept open.
    fn close_kept(&self) {
        for kept in self.kept.values() {
            kept.close_all();
        }
    }

    /// What happens to a process at its next starts, one after the other.
    pub(crate) fn doom(&mut self, process: Process, fates: impl IntoIterator<Item = Fate>) {
        self.fates.entry(process).or_default().extend(fates);
    }

    /// From now on no process crashes.
    pub(crate) fn pardon(&mut self) {
        self.fates.clear();
        for run in self.runs.values_mut() {
            run.crashes_at = None;
        }
    }

    /// Somebody asks for a restart, as `bulkhead restart` does.
    pub(crate) async fn restart(&mut self, process: Process) {
        self.apply(FleetEvent::Of(process, Event::Restart)).await;
        self.apply(FleetEvent::Tick).await;
    }

    /// The supervisor is asked to stop; once it has, it is started again.
    pub(crate) async fn stop(&mut self) {
        self.apply(FleetEvent::Stop).await;
    }

    /// Ends all tasks, without waiting for that.
    pub(crate) fn abandon(&mut self) {
        for run in self.runs.values() {
            run.task.abort();
            run.watcher.abort();
        }
    }

    fn moment(&self, at: Instant) -> Moment {
        at.saturating_duration_since(self.began)
    }

    async fn crash_who_is_doomed(&mut self) {
        let now = Instant::now();
        let is_due = |run: &Run| run.crashes_at.is_some_and(|at| at <= now);
        let due = self.runs.iter().filter(|(_, run)| is_due(run));
        let due: Vec<Process> = due.map(|(process, _)| *process).collect();
        self.kill(due).await;
    }

    async fn tick(&mut self) {
        // What was said before now counts.
        for (process, run) in &mut self.runs {
            let beat = run.lifecycle.last_beat();
            if let Some(at) = beat.filter(|_| run.last_beat != beat) {
                run.last_beat = beat;
                let moment = at.saturating_duration_since(self.began);
                let event = FleetEvent::Of(*process, Event::Beat);
                // A beat asks for nothing.
                drop(self.fleet.step(moment, event, 0.0));
            }
        }
        self.apply(FleetEvent::Tick).await;
        if self.fleet.is_finished() {
            self.close_kept();
            self.fleet = fleet();
            self.began = Instant::now();
            self.apply(FleetEvent::Tick).await;
        }
    }

    async fn hear(&mut self, word: Word) {
        let process = word.process;
        if self.runs.get(&process).map(|run| run.pid) != Some(word.pid) {
            // Of one that was killed meanwhile.
            return;
        }
        match word.what {
            Heard::Ready => self.apply(FleetEvent::Of(process, Event::Ready)).await,
            Heard::Ended(how) => {
                let intent = self.fleet.machine(process).map(|machine| machine.intent());
                if intent != Some(Intent::Asked) || !matches!(how, Ok(Ok(()))) {
                    self.failures.push(format!("{process} ended: {how:?}"));
                }
                self.end(process).await;
                let ending = match how {
                    Ok(Ok(())) => Ending::Exit(0),
                    Ok(Err(_)) => Ending::Exit(1),
                    Err(_) => Ending::Signal(SIGABRT),
                };
                self.ended(process, ending).await;
            }
        }
    }

    /// Ends a process at whatever await it stands: it never gets to say a word.
    /// Whether it ran.
    async fn end(&mut self, process: Process) -> bool {
        let Some(run) = self.runs.remove(&process) else {
            return false;
        };
        let now = self.launcher.clock.without_jumps().now();
        self.deaths.push((process, now));
        run.task.abort();
        // Over when the task is; its own end is not of interest.
        drop(run.watcher.await);
        self.launcher.hub.kill(process);
        true
    }

    async fn ended(&mut self, process: Process, ending: Ending) {
        let event = FleetEvent::Of(process, Event::Ended(ending));
        self.apply(event).await;
        self.apply(FleetEvent::Tick).await;
    }

    /// Takes an event to the policy and carries out what it says, including what
    /// follows from that.
    async fn apply(&mut self, event: FleetEvent) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let jitter = self.random.random_range(-1.0..=1.0);
            let now = self.moment(Instant::now());
            for (process, action) in self.fleet.step(now, event, jitter) {
                match action {
                    // Nothing is left of a simulated run.
                    Action::Launch | Action::LaunchBeside => {
                        let answer = self.launch(process);
                        events.push_back(FleetEvent::Of(process, answer));
                        events.push_back(FleetEvent::Tick);
                    }
                    Action::Signal(_, signal) => {
                        if let Some(ending) = self.signal(process, signal).await {
                            let event = Event::Ended(ending);
                            events.push_back(FleetEvent::Of(process, event));
                            events.push_back(FleetEvent::Tick);
                        }
                    }
                }
            }
        }
    }

    fn launch(&mut self, process: Process) -> Event {
        let fate = self.fates.get_mut(&process).and_then(VecDeque::pop_front);
        let crashes_at = match fate {
            Some(Fate::LaunchFails) => return Event::LaunchFailed,
            Some(Fate::Crashes(after)) => Some(Instant::now() + after),
            None => None,
        };
        let shutdown = CancellationToken::new();
        let kept = self.kept.entry(process).or_default().clone();
        let lifecycle = Lifecycle::unsupervised_keeping(shutdown.clone(), kept);
        let Some(main) = self.launcher.make(process, lifecycle.clone()) else {
            return Event::LaunchFailed;
        };
        self.pids += 1;
        let pid = self.pids;
        let task = tokio::spawn(disk_work::of_process(process, main));
        let run = Run {
            pid,
            task: task.abort_handle(),
            watcher: tokio::spawn(watch(
                process,
                pid,
                task,
                lifecycle.clone(),
                self.teller.clone(),
            )),
            shutdown,
            lifecycle,
            last_beat: None,
            crashes_at,
        };
        self.runs.insert(process, run);
        let now = self.launcher.clock.without_jumps().now();
        self.launches.push((process, now));
        Event::Launched(pid)
    }

    /// Sends a signal; how the process ended of it at once, if it did.
    async fn signal(&mut self, process: Process, signal: Signal) -> Option<Ending> {
        let (complaint, number) = match signal {
            Signal::Terminate => {
                if let Some(run) = self.runs.get(&process) {
                    run.shutdown.cancel();
                }
                return None;
            }
            Signal::Abort => ("is hung", SIGABRT),
            Signal::Kill => ("does not stop", SIGKILL),
        };
        let machine = self.fleet.machine(process);
        let intent = machine.map(|machine| machine.intent());
        self.failures
            .push(format!("{process} {complaint}: {intent:?}"));
        let ran = self.end(process).await;
        ran.then_some(Ending::Signal(number))
    }
}

/// The policy of a node on which nothing runs yet.
fn fleet() -> Fleet {
    Fleet::new(|process| {
        process == Process::Supervisor || launcher::processes().any(|it| it == process)
    })
}

/// The next multiple of a slice.
fn round_up(time: Duration, slice: Duration) -> Duration {
    let slices = time.as_nanos().div_ceil(slice.as_nanos());
    slice * u32::try_from(slices).unwrap_or(u32::MAX)
}

/// Tells when a process is ready and when it ends.
async fn watch(
    process: Process,
    pid: ProcessId,
    mut task: JoinHandle<Result<(), String>>,
    lifecycle: Lifecycle,
    teller: mpsc::UnboundedSender<Word>,
) {
    // Nobody listens when the node is dropped.
    let tell = |what| drop(teller.send(Word { process, pid, what }));
    tokio::select! {
        biased;
        // Cancel-safe: the task stays with us, and says once how it ended.
        how = &mut task => return tell(Heard::Ended(how)),
        // Cancel-safe: only waits.
        () = lifecycle.until_ready() => tell(Heard::Ready),
    }
    tell(Heard::Ended(task.await));
}
