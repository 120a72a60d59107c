//! The runtime itself: time and chance around [`State`], and what tests may ask
//! of it.

mod addresses;
mod calls;
pub(crate) mod sessions;
mod stats;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clock::{UnixNanos, WallClock};
use cri::{EventKind, RuntimeError, RuntimeErrorKind, RuntimeEvent, v1};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{Notify, broadcast, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::behaviour::Behaviour;
use crate::faults::{Faults, Working};
use crate::history::{Entry, Now};
use crate::mishap::{Chosen, Met, Mishap};
use crate::registry::Registry;
use crate::state::State;
use crate::state::shown::{ContainerView, SandboxView, Shown as _};

use addresses::Addresses;
use stats::ContainerUse;

/// Events that wait for a slow subscriber before it loses some.
const EVENT_QUEUE: usize = 1024;

/// An image that came so recently may be pulled once more, by who found it absent before.
const OVERLAP_OF_PULLS: Duration = Duration::from_secs(5);

/// A container runtime in memory. Cloning shares it. Must be used inside a tokio
/// runtime: what it does goes on in tasks of its own, which end when the last
/// clone is dropped.
#[derive(Clone)]
pub struct SimulatedRuntime(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    random: Mutex<SmallRng>,
    faults: Mutex<Faults>,
    working: Mutex<Working>,
    /// The one call that something goes wrong with.
    chosen: Chosen,
    exec_results: Mutex<BTreeMap<String, (i32, Duration)>>,
    hanging_pulls: Mutex<BTreeSet<String>>,
    failing: Mutex<BTreeSet<(&'static str, String)>>,
    container_use: ContainerUse,
    registry: Mutex<Registry>,
    /// Its name and version.
    version: Mutex<(String, String)>,
    sandbox_image: Mutex<String>,
    /// Whether it can give pods users of their own.
    user_namespaces: AtomicBool,
    /// Some image's pulls do not hang any more.
    pulls_go_on: Notify,
    work: Mutex<JoinSet<()>>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
    addresses: Mutex<Addresses>,
    events: broadcast::Sender<RuntimeEvent>,
    /// Some container has ended, or something else has happened.
    ends: Notify,
    has_events: bool,
    connection: AtomicU64,
    clock: WallClock,
    /// The same without its jumps.
    steady: WallClock,
}

impl std::fmt::Debug for SimulatedRuntime {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SimulatedRuntime")
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimulatedRuntime {
    /// A runtime without pods, whose chances come from `seed`. `has_events`
    /// tells whether it has an event stream, like containerd, or none.
    #[must_use]
    pub fn new(seed: u64, clock: WallClock, has_events: bool) -> SimulatedRuntime {
        SimulatedRuntime(Arc::new(Shared {
            state: Mutex::default(),
            random: Mutex::new(SmallRng::seed_from_u64(seed)),
            faults: Mutex::default(),
            working: Mutex::default(),
            chosen: Chosen::default(),
            exec_results: Mutex::default(),
            hanging_pulls: Mutex::default(),
            registry: Mutex::default(),
            failing: Mutex::default(),
            container_use: ContainerUse::default(),
            version: Mutex::new(("simulated".to_owned(), "1.0.0".to_owned())),
            sandbox_image: Mutex::default(),
            user_namespaces: AtomicBool::new(false),
            pulls_go_on: Notify::new(),
            work: Mutex::new(JoinSet::new()),
            calls: Mutex::default(),
            addresses: Mutex::default(),
            events: broadcast::channel(EVENT_QUEUE).0,
            ends: Notify::new(),
            has_events,
            connection: AtomicU64::new(0),
            steady: clock.without_jumps(),
            clock,
        }))
    }

    /// How many bytes of memory each running container of a pod uses from now on;
    /// without it none.
    pub fn set_memory_use(&self, pod_uid: &str, bytes: u64) {
        self.0.container_use.set_memory(pod_uid, bytes);
    }

    /// How many bytes each container of a pod has written in its own layer, those that
    /// have ended too; without it none.
    pub fn set_layer_use(&self, pod_uid: &str, bytes: u64) {
        self.0.container_use.set_layers(pod_uid, bytes);
    }

    /// Adds an image: one that is there, or one that can be pulled.
    pub fn add_image(&self, reference: &str, present: bool) {
        lock(&self.0.state).images.add(reference, present);
    }

    /// Which runtime it says that it is from now on.
    pub fn set_version(&self, name: &str, version: &str) {
        *lock(&self.0.version) = (name.to_owned(), version.to_owned());
    }

    /// What image it says that sandboxes have; at first it does not say.
    pub fn set_sandbox_image(&self, reference: &str) {
        reference.clone_into(&mut lock(&self.0.sandbox_image));
    }

    /// Whether it can give pods users of their own from now on; at first it cannot.
    pub fn set_user_namespaces(&self, can: bool) {
        self.0.user_namespaces.store(can, Ordering::Relaxed);
    }

    /// The number of a user in all images; without it a name stands for user 1000.
    pub fn add_user(&self, name: &str, uid: u32) {
        lock(&self.0.state).images.add_user(name, uid);
    }

    /// The groups that the files of all images put a user in, its own one first.
    pub fn set_groups(&self, uid: i64, groups: &[i64]) {
        lock(&self.0.state).images.set_groups(uid, groups);
    }

    /// Whom an image wants to run as from now on; without it root.
    pub fn set_image_user(&self, reference: &str, user: &str) {
        lock(&self.0.state).images.set_user(reference, user);
    }

    /// From now on an image can be pulled by this password only.
    pub fn set_pull_password(&self, reference: &str, password: &str) {
        let mut registry = lock(&self.0.registry);
        registry
            .passwords
            .insert(reference.to_owned(), password.to_owned());
    }

    /// From now on pulls of an image are refused in these words.
    pub fn set_pull_refusal(&self, reference: &str, words: &str) {
        let mut registry = lock(&self.0.registry);
        registry
            .refusals
            .insert(reference.to_owned(), words.to_owned());
    }

    /// By what pulls were tried so far, in this order.
    #[must_use]
    pub fn pull_auths(&self) -> Vec<Option<v1::AuthConfig>> {
        lock(&self.0.registry).tried.clone()
    }

    /// Whether pulls of an image never end from now on; those that hung go on when
    /// they do not any more.
    pub fn set_pull_hangs(&self, reference: &str, hangs: bool) {
        let mut hanging = lock(&self.0.hanging_pulls);
        if hangs {
            hanging.insert(reference.to_owned());
        } else {
            hanging.remove(reference);
        }
        drop(hanging);
        self.0.pulls_go_on.notify_waiters();
    }

    /// Notes that a pull of an image is asked for.
    fn note_pull(&self, reference: &str) {
        let now = self.now().steady;
        let mut state = lock(&self.0.state);
        let since = state.images.present_since(reference);
        if let Some(since) = since.filter(|since| now.since(*since) > OVERLAP_OF_PULLS) {
            let needless =
                format!("{reference} was pulled at {now:?}, and is there since {since:?}");
            state.needless_pulls.push(needless);
        }
    }

    async fn until_pull_goes_on(&self, reference: &str) {
        loop {
            let changed = self.0.pulls_go_on.notified();
            if !lock(&self.0.hanging_pulls).contains(reference) {
                return;
            }
            changed.await;
        }
    }

    /// Whether a call fails from now on that is about this container, sandbox, image or network
    /// of pods: a stop or status of a sandbox, the start or removal of a container, the status
    /// of an image, or `UpdateRuntimeConfig`.
    pub fn set_call_fails(&self, method: &'static str, id: &str, fails: bool) {
        let mut failing = lock(&self.0.failing);
        let call = (method, id.to_owned());
        if fails {
            failing.insert(call);
        } else {
            failing.remove(&call);
        }
    }

    fn fails(&self, method: &'static str, id: &str) -> Result<(), RuntimeError> {
        match lock(&self.0.failing).contains(&(method, id.to_owned())) {
            true => Err(RuntimeError::new(
                method,
                RuntimeErrorKind::Other,
                "it cannot be done",
            )),
            false => Ok(()),
        }
    }

    /// What goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        *lock(&self.0.faults) = faults;
        let works = faults == Faults::NONE;
        lock(&self.0.working).note(self.now().steady, works);
    }

    /// Since when nothing has gone wrong, of a moment at which nothing does. A mishap that
    /// takes no time does not count.
    #[must_use]
    pub fn works_since(&self, moment: UnixNanos) -> Option<UnixNanos> {
        lock(&self.0.working).since(moment)
    }

    /// Has something go wrong with the effect that comes after so many from now on, or with
    /// none any more: calls count, and what asks by [`meet_mishap`](Self::meet_mishap).
    pub fn set_mishap(&self, mishap: Option<(u64, Mishap)>) {
        self.0.chosen.set(mishap);
        let hangs = mishap.is_some_and(|(_, mishap)| mishap == Mishap::Hangs);
        lock(&self.0.working).note(self.now().steady, !hangs);
    }

    /// Whether that effect was wanted.
    #[must_use]
    pub fn has_met_mishap(&self) -> bool {
        self.0.chosen.has_met()
    }

    /// What an effect meets that is not the runtime's own, like those on a node: one that
    /// hangs comes back when mishaps are over.
    pub async fn meet_mishap(&self) -> Met {
        match self.0.chosen.next() {
            None => Met::Nothing,
            Some(Mishap::Fails) => Met::Failure,
            Some(Mishap::LosesAnswer) => Met::Loss,
            Some(Mishap::KillsCallerLate) => Met::LateDeath,
            Some(Mishap::KillsCaller) => Met::EarlyDeath,
            Some(Mishap::Hangs) => {
                self.0.chosen.until_over().await;
                Met::Nothing
            }
        }
    }

    /// Has pod-worker-pool killed, who never hears of its effect again.
    pub async fn kill_caller(&self) -> Infallible {
        self.0.chosen.kill_caller().await
    }

    /// Waits until that effect wants its caller killed.
    pub async fn wants_caller_killed(&self) {
        self.0.chosen.is_to_be_killed().await;
    }

    /// What a command run in containers of this name answers, and after how
    /// long. Without it: 0 at once.
    pub fn set_exec_result(&self, container: &str, code: i32, after: Duration) {
        lock(&self.0.exec_results).insert(container.to_owned(), (code, after));
    }

    /// All sandboxes.
    #[must_use]
    pub fn sandboxes(&self) -> Vec<SandboxView> {
        lock(&self.0.state).sandbox_views()
    }

    /// All containers.
    #[must_use]
    pub fn containers(&self) -> Vec<ContainerView> {
        lock(&self.0.state).container_views()
    }

    /// The newest container of a name in the pod whose sandbox has a label.
    #[must_use]
    pub fn newest(&self, label: (&str, &str), name: &str) -> Option<ContainerView> {
        lock(&self.0.state).newest(label, name)
    }

    /// The names of the images that are on the node.
    #[must_use]
    pub fn images(&self) -> Vec<String> {
        let images = lock(&self.0.state).images.all();
        images.into_iter().flat_map(|it| it.repo_tags).collect()
    }

    /// Everything that happened so far.
    #[must_use]
    pub fn history(&self) -> Arc<Vec<Entry>> {
        Arc::clone(&lock(&self.0.state).history)
    }

    /// Waits until something holds of what has happened. Cancel-safe.
    pub async fn until(&self, holds: impl Fn(&[Entry]) -> bool) {
        let happened = Arc::clone(&lock(&self.0.state).happened);
        loop {
            let mut more = pin!(happened.notified());
            more.as_mut().enable();
            if holds(&self.history()) {
                return;
            }
            more.await;
        }
    }

    /// What happened that never may: two running containers of one name in a
    /// pod, two ready sandboxes of a pod.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        lock(&self.0.state).violations.clone()
    }

    /// Pulls of images that had been there for some time: none where no container says
    /// that its image is always pulled.
    #[must_use]
    pub fn needless_pulls(&self) -> Vec<String> {
        lock(&self.0.state).needless_pulls.clone()
    }

    /// How often each method was called.
    #[must_use]
    pub fn calls(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.0.calls).clone()
    }

    /// Ends a running container from outside, as a crash of its program would.
    pub fn crash_container(&self, id: &str, code: i32) {
        self.end_by_itself(id, code);
    }

    /// The connection of all callers is closed, as where whoever kept it dies too. As in
    /// containerd the starts under way are given up: there never is a process, and the
    /// container cannot be started any more. One that is being made is made all the
    /// same, and cannot be started either. Other calls take no notice.
    pub fn close_connection(&self) {
        self.0.connection.fetch_add(1, Ordering::Relaxed);
    }

    /// A number for the connection that calls come by now.
    fn connection(&self) -> u64 {
        self.0.connection.load(Ordering::Relaxed)
    }

    fn now(&self) -> Now {
        Now {
            wall: self.0.clock.now(),
            steady: self.0.steady.now(),
        }
    }

    fn publish(&self, id: &str, kind: EventKind) {
        self.0.ends.notify_waiters();
        let lost = lock(&self.0.faults).lost_event;
        if lost > 0.0 && lock(&self.0.random).random_bool(lost) {
            return;
        }
        // Nobody listens: fine, events are a doorbell.
        drop(self.0.events.send(RuntimeEvent {
            container_id: id.to_owned(),
            kind,
            pod_uid: None,
        }));
    }

    fn end(&self, id: &str, code: i32, killed: bool) {
        let now = self.now();
        let ended = lock(&self.0.state).exit(now, id, code, killed);
        if ended {
            self.publish(id, EventKind::Stopped);
        }
    }

    /// As containerd does it: the event comes first, and the lists show the exit
    /// some time after it.
    fn end_by_itself(&self, id: &str, code: i32) {
        let longest = lock(&self.0.faults).clean_up;
        let hidden = lock(&self.0.random).random_range(longest / 2..=longest);
        let until = self.now().steady.plus(hidden);
        lock(&self.0.state).hide_exit(id, until);
        self.end(id, code, false);
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.0.work);
        // Finished ones are dropped as we go.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
    }

    /// Carries out one call: takes its time, may fail or lose its answer, and
    /// goes on when the caller is gone.
    async fn perform<T, F>(
        &self,
        method: &'static str,
        usual: Duration,
        work: impl FnOnce(SimulatedRuntime) -> F + Send + 'static,
    ) -> Result<T, RuntimeError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, RuntimeError>> + Send,
    {
        *lock(&self.0.calls).entry(method).or_default() += 1;
        let mishap = self.0.chosen.next();
        let (mut fails, mut loses, duration) = self.chances(usual);
        match mishap {
            None | Some(Mishap::KillsCallerLate | Mishap::Hangs) => {}
            Some(Mishap::Fails) => fails = true,
            Some(Mishap::LosesAnswer) => loses = true,
            Some(Mishap::KillsCaller) => match self.kill_caller().await {},
        }
        if lock(&self.0.faults).unavailable {
            let message = "connection refused";
            return Err(RuntimeError::new(
                method,
                RuntimeErrorKind::Unavailable,
                message,
            ));
        }
        if fails {
            tokio::time::sleep(duration).await;
            return Err(RuntimeError::new(
                method,
                RuntimeErrorKind::Other,
                "simulated failure",
            ));
        }
        let (answer, answered) = oneshot::channel();
        let weak = Arc::downgrade(&self.0);
        self.spawn(async move {
            tokio::time::sleep(duration).await;
            let Some(shared) = weak.upgrade() else { return };
            if mishap == Some(Mishap::Hangs) {
                shared.chosen.until_over().await;
            }
            let result = work(SimulatedRuntime(shared)).await;
            // The caller may be gone: the work is done all the same.
            drop(answer.send(result));
        });
        let result = answered.await;
        if mishap == Some(Mishap::KillsCallerLate) {
            match self.kill_caller().await {}
        }
        match result {
            Ok(result) if !loses => result,
            _ => Err(RuntimeError::new(
                method,
                RuntimeErrorKind::DeadlineExceeded,
                "simulated loss of the answer",
            )),
        }
    }

    fn chances(&self, usual: Duration) -> (bool, bool, Duration) {
        let faults = *lock(&self.0.faults);
        let mut random = lock(&self.0.random);
        let fails = faults.error > 0.0 && random.random_bool(faults.error);
        let loses = faults.lost_reply > 0.0 && random.random_bool(faults.lost_reply);
        let factor = random.random_range(0.5..=faults.slowness.max(0.5));
        (fails, loses, usual.mul_f64(factor))
    }

    /// SIGTERM now, SIGKILL after the grace, and back once it has ended. As in
    /// containerd the SIGTERM is sent by one call only, SIGKILL not by one whose
    /// caller is gone, and a caller who goes at the wrong moment takes the SIGTERM
    /// along for good.
    async fn stop(&self, id: &str, grace: Duration, mut caller: oneshot::Receiver<Never>) {
        let is_gone = |caller: &mut oneshot::Receiver<Never>| {
            caller.try_recv() == Err(oneshot::error::TryRecvError::Closed)
        };
        let found = lock(&self.0.state).behaviour_of(id);
        let Some((behaviour, true)) = found else {
            return;
        };
        if is_gone(&mut caller) {
            return;
        }
        if !grace.is_zero() && lock(&self.0.state).mark_signalled(id) {
            let delay = lock(&self.0.faults).signal_delay;
            self.linger(delay).await;
            if is_gone(&mut caller) {
                return;
            }
            self.terminate(id, behaviour);
        }
        tokio::select! {
            biased;
            _ = &mut caller => {}
            () = self.until_ended(id) => {}
            () = tokio::time::sleep(grace) => self.end(id, 137, true),
        }
    }

    fn terminate(&self, id: &str, behaviour: Behaviour) {
        lock(&self.0.state).terminated(self.now(), id);
        let Some(needs) = behaviour.on_terminate else {
            return;
        };
        let (weak, id) = (Arc::downgrade(&self.0), id.to_owned());
        let end = Instant::now() + needs;
        self.spawn(async move {
            tokio::time::sleep_until(end).await;
            if let Some(shared) = weak.upgrade() {
                SimulatedRuntime(shared).end(&id, behaviour.terminate_code, false);
            }
        });
    }

    async fn linger(&self, delay: Duration) {
        // Even no time at all would let others go first.
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    /// Waits until a container or sandbox does not run any more. Cancel-safe.
    pub async fn until_ended(&self, id: &str) {
        loop {
            let next = self.0.ends.notified();
            if !lock(&self.0.state).runs(id) {
                return;
            }
            next.await;
        }
    }

    fn run_to_its_end(&self, id: String, behaviour: Behaviour) {
        let Some((after, code)) = behaviour.exit else {
            return;
        };
        let weak = Arc::downgrade(&self.0);
        let end = Instant::now() + after;
        self.spawn(async move {
            tokio::time::sleep_until(end).await;
            if let Some(shared) = weak.upgrade() {
                SimulatedRuntime(shared).end_by_itself(&id, code);
            }
        });
    }
}

/// What a caller says: nothing, it is there or not.
#[derive(Debug, PartialEq, Eq)]
enum Never {}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[cfg(test)]
mod tests;
