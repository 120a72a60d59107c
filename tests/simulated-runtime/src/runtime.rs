//! The runtime itself: time, chance and the CRI around [`State`].

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use clock::WallClock;
use cri::{
    ContainerRuntime, End, EventKind, EventSource, RuntimeError, RuntimeErrorKind, RuntimeEvent,
    RuntimeEvents, v1,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{Notify, broadcast, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::behaviour::Behaviour;
use crate::faults::Faults;
use crate::history::Entry;
use crate::state::{ContainerView, SandboxView, State, not_found};

/// Events that wait for a slow subscriber before it loses some.
const EVENT_QUEUE: usize = 1024;

/// A container runtime in memory. Cloning shares it. Must be used inside a tokio
/// runtime: what it does goes on in tasks of its own, which end when the last
/// clone is dropped.
#[derive(Clone)]
pub struct SimulatedRuntime(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    random: Mutex<SmallRng>,
    faults: Mutex<Faults>,
    exec_results: Mutex<BTreeMap<String, (i32, Duration)>>,
    hanging_pulls: Mutex<BTreeSet<String>>,
    /// Some image's pulls do not hang any more.
    pulls_go_on: Notify,
    work: Mutex<JoinSet<()>>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
    events: broadcast::Sender<RuntimeEvent>,
    /// Some container has ended, or something else has happened.
    ends: Notify,
    has_events: bool,
    clock: WallClock,
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
            exec_results: Mutex::default(),
            hanging_pulls: Mutex::default(),
            pulls_go_on: Notify::new(),
            work: Mutex::new(JoinSet::new()),
            calls: Mutex::default(),
            events: broadcast::channel(EVENT_QUEUE).0,
            ends: Notify::new(),
            has_events,
            clock,
        }))
    }

    /// Adds an image: one that is there, or one that can be pulled.
    pub fn add_image(&self, reference: &str, present: bool) {
        lock(&self.0.state).add_image(reference, present);
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

    async fn until_pull_goes_on(&self, reference: &str) {
        loop {
            let changed = self.0.pulls_go_on.notified();
            if !lock(&self.0.hanging_pulls).contains(reference) {
                return;
            }
            changed.await;
        }
    }

    /// What goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        *lock(&self.0.faults) = faults;
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

    /// The names of the images that are on the node.
    #[must_use]
    pub fn images(&self) -> Vec<String> {
        let images = lock(&self.0.state).images();
        images.into_iter().flat_map(|it| it.repo_tags).collect()
    }

    /// Everything that happened so far.
    #[must_use]
    pub fn history(&self) -> Vec<Entry> {
        lock(&self.0.state).history.clone()
    }

    /// What happened that never may: two running containers of one name in a
    /// pod, two ready sandboxes of a pod.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        lock(&self.0.state).violations.clone()
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

    fn now(&self) -> clock::UnixNanos {
        self.0.clock.now()
    }

    fn publish(&self, id: &str, kind: EventKind, end: Option<End>) {
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
            end,
        }));
    }

    fn end(&self, id: &str, code: i32, killed: bool) {
        let now = self.now();
        let ended = lock(&self.0.state).exit(now, id, code, killed);
        if ended {
            let end = End {
                exit_code: code,
                finished_at: now.0,
            };
            self.publish(id, EventKind::Stopped, Some(end));
        }
    }

    /// As containerd does it: the event comes first, and the lists show the exit
    /// some time after it.
    fn end_by_itself(&self, id: &str, code: i32) {
        let longest = lock(&self.0.faults).clean_up;
        let hidden = lock(&self.0.random).random_range(longest / 2..=longest);
        let until = self.now().plus(hidden);
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
        let (fails, loses, duration) = self.chances(usual);
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
            let result = work(SimulatedRuntime(shared)).await;
            // The caller may be gone: the work is done all the same.
            drop(answer.send(result));
        });
        let result = answered.await;
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
            () = self.ended(id) => {}
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
                SimulatedRuntime(shared).end(&id, 143, false);
            }
        });
    }

    async fn linger(&self, delay: Duration) {
        // Even no time at all would let others go first.
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }

    async fn ended(&self, id: &str) {
        loop {
            let next = self.0.ends.notified();
            let found = lock(&self.0.state).behaviour_of(id);
            if !found.is_some_and(|(_, is_running)| is_running) {
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

#[async_trait]
impl ContainerRuntime for SimulatedRuntime {
    async fn version(&self) -> Result<v1::VersionResponse, RuntimeError> {
        self.perform("Version", millis(1), |_| async {
            Ok(v1::VersionResponse {
                version: "0.1.0".to_owned(),
                runtime_name: "simulated".to_owned(),
                runtime_version: "1.0.0".to_owned(),
                runtime_api_version: "v1".to_owned(),
            })
        })
        .await
    }

    async fn status(&self, _verbose: bool) -> Result<v1::StatusResponse, RuntimeError> {
        self.perform("Status", millis(1), |runtime| async move {
            let condition = |name: &str, status| v1::RuntimeCondition {
                r#type: name.to_owned(),
                status,
                ..v1::RuntimeCondition::default()
            };
            let has_network = !lock(&runtime.0.faults).network_down;
            let conditions = vec![
                condition("RuntimeReady", true),
                condition("NetworkReady", has_network),
            ];
            let status = Some(v1::RuntimeStatus { conditions });
            Ok(v1::StatusResponse {
                status,
                ..v1::StatusResponse::default()
            })
        })
        .await
    }

    async fn runtime_config(&self) -> Result<v1::RuntimeConfigResponse, RuntimeError> {
        let kind = RuntimeErrorKind::Unimplemented;
        Err(RuntimeError::new("RuntimeConfig", kind, "not implemented"))
    }

    async fn run_pod_sandbox(
        &self,
        config: v1::PodSandboxConfig,
        _runtime_handler: &str,
    ) -> Result<String, RuntimeError> {
        let delay = lock(&self.0.faults).sandbox_delay;
        self.perform("RunPodSandbox", millis(60), move |runtime| async move {
            lock(&runtime.0.state).reserve_sandbox(&config)?;
            runtime.linger(delay).await;
            let id = lock(&runtime.0.state).run_sandbox(runtime.now(), config)?;
            runtime.publish(&id, EventKind::Started, None);
            Ok(id)
        })
        .await
    }

    async fn stop_pod_sandbox(&self, sandbox_id: &str) -> Result<(), RuntimeError> {
        let id = sandbox_id.to_owned();
        self.perform("StopPodSandbox", millis(50), move |runtime| async move {
            let running = lock(&runtime.0.state).stop_sandbox(&id);
            for container in running {
                runtime.end(&container, 137, true);
            }
            runtime.publish(&id, EventKind::Stopped, None);
            Ok(())
        })
        .await
    }

    async fn remove_pod_sandbox(&self, sandbox_id: &str) -> Result<(), RuntimeError> {
        let id = sandbox_id.to_owned();
        self.perform("RemovePodSandbox", millis(10), move |runtime| async move {
            lock(&runtime.0.state).remove_sandbox(runtime.now(), &id)?;
            runtime.publish(&id, EventKind::Deleted, None);
            Ok(())
        })
        .await
    }

    async fn pod_sandbox_status(
        &self,
        sandbox_id: &str,
    ) -> Result<v1::PodSandboxStatus, RuntimeError> {
        let id = sandbox_id.to_owned();
        self.perform("PodSandboxStatus", millis(1), move |runtime| async move {
            let status = lock(&runtime.0.state).sandbox_status(&id);
            status.ok_or_else(|| not_found("PodSandboxStatus", &id))
        })
        .await
    }

    async fn list_pod_sandboxes(
        &self,
        filter: v1::PodSandboxFilter,
    ) -> Result<Vec<v1::PodSandbox>, RuntimeError> {
        self.perform("ListPodSandbox", millis(1), move |runtime| async move {
            let mut all = lock(&runtime.0.state).list_sandboxes();
            all.retain(|sandbox| {
                (filter.id.is_empty() || sandbox.id == filter.id)
                    && filter
                        .state
                        .is_none_or(|wanted| sandbox.state == wanted.state)
                    && has_labels(&sandbox.labels, &filter.label_selector)
            });
            Ok(all)
        })
        .await
    }

    async fn create_container(
        &self,
        sandbox_id: &str,
        config: v1::ContainerConfig,
        _sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, RuntimeError> {
        let sandbox = sandbox_id.to_owned();
        let delay = lock(&self.0.faults).container_delay;
        self.perform("CreateContainer", millis(5), move |runtime| async move {
            lock(&runtime.0.state).reserve_container(&sandbox, &config)?;
            runtime.linger(delay).await;
            let id = lock(&runtime.0.state).create_container(runtime.now(), &sandbox, config)?;
            runtime.publish(&id, EventKind::Created, None);
            Ok(id)
        })
        .await
    }

    async fn start_container(&self, container_id: &str) -> Result<(), RuntimeError> {
        let id = container_id.to_owned();
        self.perform("StartContainer", millis(40), move |runtime| async move {
            let behaviour = lock(&runtime.0.state).start_container(runtime.now(), &id)?;
            runtime.publish(&id, EventKind::Started, None);
            runtime.run_to_its_end(id, behaviour);
            Ok(())
        })
        .await
    }

    async fn stop_container(
        &self,
        container_id: &str,
        grace: Duration,
    ) -> Result<(), RuntimeError> {
        let id = container_id.to_owned();
        // Lives as long as this call: what is done goes by who waits for it.
        let (_here, caller) = oneshot::channel();
        self.perform("StopContainer", millis(5), move |runtime| async move {
            runtime.stop(&id, grace, caller).await;
            Ok(())
        })
        .await
    }

    async fn remove_container(&self, container_id: &str) -> Result<(), RuntimeError> {
        let id = container_id.to_owned();
        self.perform("RemoveContainer", millis(2), move |runtime| async move {
            lock(&runtime.0.state).remove_container(runtime.now(), &id);
            runtime.publish(&id, EventKind::Deleted, None);
            Ok(())
        })
        .await
    }

    async fn list_containers(
        &self,
        filter: v1::ContainerFilter,
    ) -> Result<Vec<v1::Container>, RuntimeError> {
        self.perform("ListContainers", millis(1), move |runtime| async move {
            let mut all = lock(&runtime.0.state).list_containers(runtime.now());
            all.retain(|container| {
                (filter.id.is_empty() || container.id == filter.id)
                    && (filter.pod_sandbox_id.is_empty()
                        || container.pod_sandbox_id == filter.pod_sandbox_id)
                    && filter
                        .state
                        .is_none_or(|wanted| container.state == wanted.state)
                    && has_labels(&container.labels, &filter.label_selector)
            });
            Ok(all)
        })
        .await
    }

    async fn container_status(
        &self,
        container_id: &str,
    ) -> Result<v1::ContainerStatus, RuntimeError> {
        let id = container_id.to_owned();
        self.perform("ContainerStatus", millis(1), move |runtime| async move {
            let status = lock(&runtime.0.state).container_status(&id, runtime.now());
            status.ok_or_else(|| not_found("ContainerStatus", &id))
        })
        .await
    }

    async fn update_container_resources(
        &self,
        _container_id: &str,
        _resources: v1::LinuxContainerResources,
    ) -> Result<(), RuntimeError> {
        self.perform("UpdateContainerResources", millis(7), |_| async { Ok(()) })
            .await
    }

    async fn exec_sync(
        &self,
        container_id: &str,
        _command: Vec<String>,
        timeout: Duration,
    ) -> Result<v1::ExecSyncResponse, RuntimeError> {
        let id = container_id.to_owned();
        self.perform("ExecSync", millis(20), move |runtime| async move {
            let found = lock(&runtime.0.state).container_status(&id, runtime.now());
            let status = found.ok_or_else(|| not_found("ExecSync", &id))?;
            let name = status.metadata.unwrap_or_default().name;
            let scripted = lock(&runtime.0.exec_results).get(&name).copied();
            let (exit_code, after) = scripted.unwrap_or_default();
            if after > timeout {
                tokio::time::sleep(timeout).await;
                let kind = RuntimeErrorKind::DeadlineExceeded;
                return Err(RuntimeError::new("ExecSync", kind, "timeout exceeded"));
            }
            tokio::time::sleep(after).await;
            Ok(v1::ExecSyncResponse {
                exit_code,
                ..v1::ExecSyncResponse::default()
            })
        })
        .await
    }

    async fn reopen_container_log(&self, _container_id: &str) -> Result<(), RuntimeError> {
        self.perform("ReopenContainerLog", millis(1), |_| async { Ok(()) })
            .await
    }

    async fn container_stats(
        &self,
        _container_id: &str,
    ) -> Result<v1::ContainerStats, RuntimeError> {
        self.perform("ContainerStats", millis(1), |_| async {
            Ok(v1::ContainerStats::default())
        })
        .await
    }

    async fn list_container_stats(
        &self,
        _filter: v1::ContainerStatsFilter,
    ) -> Result<Vec<v1::ContainerStats>, RuntimeError> {
        self.perform("ListContainerStats", millis(1), |_| async {
            Ok(Vec::new())
        })
        .await
    }

    async fn pod_sandbox_stats(
        &self,
        _sandbox_id: &str,
    ) -> Result<v1::PodSandboxStats, RuntimeError> {
        self.perform("PodSandboxStats", millis(1), |_| async {
            Ok(v1::PodSandboxStats::default())
        })
        .await
    }

    async fn list_images(&self) -> Result<Vec<v1::Image>, RuntimeError> {
        self.perform("ListImages", millis(1), |runtime| async move {
            Ok(lock(&runtime.0.state).images())
        })
        .await
    }

    async fn image_status(&self, image: v1::ImageSpec) -> Result<Option<v1::Image>, RuntimeError> {
        self.perform("ImageStatus", millis(1), move |runtime| async move {
            Ok(lock(&runtime.0.state).image(&image.image))
        })
        .await
    }

    async fn pull_image(
        &self,
        image: v1::ImageSpec,
        _auth: Option<v1::AuthConfig>,
        _sandbox_config: Option<v1::PodSandboxConfig>,
    ) -> Result<String, RuntimeError> {
        self.perform("PullImage", millis(300), move |runtime| async move {
            runtime.until_pull_goes_on(&image.image).await;
            lock(&runtime.0.state).pull(&image.image)
        })
        .await
    }

    async fn remove_image(&self, image: v1::ImageSpec) -> Result<(), RuntimeError> {
        self.perform("RemoveImage", millis(5), move |runtime| async move {
            lock(&runtime.0.state).remove_image(&image.image);
            Ok(())
        })
        .await
    }

    async fn image_fs_info(&self) -> Result<Vec<v1::FilesystemUsage>, RuntimeError> {
        self.perform("ImageFsInfo", millis(1), |_| async {
            let mountpoint = "/images".to_owned();
            Ok(vec![v1::FilesystemUsage {
                fs_id: Some(v1::FilesystemIdentifier { mountpoint }),
                ..v1::FilesystemUsage::default()
            }])
        })
        .await
    }

    async fn events(&self) -> Result<Option<RuntimeEvents>, RuntimeError> {
        if lock(&self.0.faults).unavailable {
            let kind = RuntimeErrorKind::Unavailable;
            return Err(RuntimeError::new("Subscribe", kind, "connection refused"));
        }
        if !self.0.has_events {
            return Ok(None);
        }
        let receiver = self.0.events.subscribe();
        let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
            match receiver.recv().await {
                Ok(event) => Some((Ok(event), receiver)),
                Err(_) => {
                    let kind = RuntimeErrorKind::Unavailable;
                    Some((
                        Err(RuntimeError::new("Subscribe", kind, "events lost")),
                        receiver,
                    ))
                }
            }
        });
        Ok(Some(RuntimeEvents {
            source: EventSource::Containerd,
            stream: Box::pin(stream),
        }))
    }
}

fn has_labels(labels: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests;
