//! One look at all pods that the runtime has: two list calls, shared by everybody
//! who asks at the same time.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bulkhead_api::v1 as api;
use clock::{UnixNanos, WallClock};
use cri::{RuntimeError, RuntimeReads, v1};
use pod::PodIdentity;
use pod::metadata::{
    CONFIG_SOURCE_ANNOTATION, CONTAINER_NAME_LABEL, POD_NAME_LABEL, POD_NAMESPACE_LABEL,
    POD_UID_LABEL,
};
use pod_lifecycle::annotations;
use tokio::time::Instant;

/// Wait between two attempts to list the runtime at the start.
const FIRST_LIST_RETRY: Duration = Duration::from_secs(1);

/// Longest name of a source that is passed on.
const MAX_SOURCE_BYTES: usize = 128;

/// A pod in the runtime.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimePod {
    /// Which.
    pub identity: PodIdentity,
    /// `kubernetes.io/config.source` of its sandbox, or empty.
    pub source: String,
    /// Its sandboxes, as listed.
    pub sandboxes: Vec<ListedSandbox>,
    /// Its containers, as listed.
    pub containers: Vec<ListedContainer>,
}

/// A listed sandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedSandbox {
    /// Its id.
    pub id: String,
    /// Whether it runs.
    pub ready: bool,
    /// When it was made.
    pub created_at: UnixNanos,
}

/// A listed container.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedContainer {
    /// Its id.
    pub id: String,
    /// Its name in the pod.
    pub name: String,
    /// Its sandbox.
    pub sandbox_id: String,
    /// Its state.
    pub state: v1::ContainerState,
    /// Its number among the instances of its name.
    pub attempt: u32,
    /// When it was made.
    pub created_at: UnixNanos,
    /// Its image: as it was asked for, and as the runtime knows it.
    pub images: Vec<String>,
}

impl RuntimePod {
    /// Whether a container runs, or may.
    #[must_use]
    pub fn has_running_container(&self) -> bool {
        self.containers.iter().any(ListedContainer::may_run)
    }

    /// Whether a sandbox runs.
    #[must_use]
    pub fn has_ready_sandbox(&self) -> bool {
        self.sandboxes.iter().any(|sandbox| sandbox.ready)
    }

    /// Whether anything of it is alive.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.has_running_container() || self.has_ready_sandbox()
    }

    /// Whether it came from a manifest of this node.
    #[must_use]
    pub fn is_static(&self) -> bool {
        matches!(self.source.as_str(), "file" | "http")
    }
}

impl ListedContainer {
    /// Whether it runs, or may.
    #[must_use]
    pub fn may_run(&self) -> bool {
        matches!(
            self.state,
            v1::ContainerState::ContainerRunning | v1::ContainerState::ContainerUnknown
        )
    }
}

/// All pods that the runtime had at one moment, by UID.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Relist {
    /// The pods.
    pub pods: BTreeMap<String, RuntimePod>,
    /// When the runtime was asked, in wall time.
    pub asked_at: UnixNanos,
}

/// Which pod a sandbox or container belongs to, and when that was noted. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners(Arc<Mutex<HashMap<String, (String, Instant)>>>);

impl Owners {
    /// The UID of the pod that a sandbox or container belongs to, if it is known.
    #[must_use]
    pub(crate) fn pod_of(&self, id: &str) -> Option<String> {
        self.lock().get(id).map(|(uid, _)| uid.clone())
    }

    /// Notes one more; a relist forgets those that are gone.
    pub(crate) fn note(&self, id: &str, uid: &str) {
        let noted = (uid.to_owned(), Instant::now());
        self.lock().insert(id.to_owned(), noted);
    }

    /// Takes in a list that was asked for at `began`: what was made since may not be in it.
    fn replace(&self, relist: &Relist, began: Instant) {
        let all = relist.pods.iter().flat_map(|(uid, pod)| {
            let sandboxes = pod.sandboxes.iter().map(|sandbox| &sandbox.id);
            let containers = pod.containers.iter().map(|container| &container.id);
            sandboxes
                .chain(containers)
                .map(move |id| (id.clone(), (uid.clone(), began)))
        });
        let mut owners = self.lock();
        owners.retain(|_, (_, noted)| *noted >= began);
        owners.extend(all);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (String, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A list and when it was begun.
type Listed = (Instant, Arc<Relist>);

/// Lists pods. Clones share the work.
#[derive(Clone)]
pub(crate) struct Relister {
    runtime: Arc<dyn RuntimeReads>,
    clock: WallClock,
    owners: Owners,
    last: Arc<tokio::sync::Mutex<Option<Listed>>>,
}

impl std::fmt::Debug for Relister {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Relister").finish_non_exhaustive()
    }
}

impl Relister {
    /// A relister that has listed nothing yet.
    #[must_use]
    pub(crate) fn new(
        runtime: Arc<dyn RuntimeReads>,
        clock: WallClock,
        owners: Owners,
    ) -> Relister {
        Relister {
            runtime,
            clock,
            owners,
            last: Arc::default(),
        }
    }

    /// All pods. The answer is never older than the question: who asks while a
    /// list is under way waits for the next, together with all others who do.
    ///
    /// # Errors
    /// When the runtime does not answer.
    pub(crate) async fn all(&self) -> Result<Arc<Relist>, RuntimeError> {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        if let Some((began, relist)) = &*last
            && *began >= asked
        {
            return Ok(Arc::clone(relist));
        }
        let began = Instant::now();
        let relist = Arc::new(self.list(None).await?);
        self.owners.replace(&relist, began);
        *last = Some((began, Arc::clone(&relist)));
        Ok(relist)
    }

    /// All pods as they were last listed for anybody; nothing before the first list.
    pub(crate) async fn last(&self) -> Option<Arc<Relist>> {
        let last = self.last.lock().await;
        last.as_ref().map(|(_, relist)| Arc::clone(relist))
    }

    /// All pods, as soon as the runtime answers.
    pub(crate) async fn first(&self) -> Arc<Relist> {
        loop {
            match self.all().await {
                Ok(relist) => return relist,
                Err(error) => {
                    tracing::warn!(%error, "cannot list the runtime yet");
                    tokio::time::sleep(FIRST_LIST_RETRY).await;
                }
            }
        }
    }

    /// One pod.
    ///
    /// # Errors
    /// When the runtime does not answer.
    pub(crate) async fn one(&self, uid: &str) -> Result<Relist, RuntimeError> {
        let mut relist = self.list(Some(uid)).await?;
        relist.pods.retain(|found, _| found == uid);
        Ok(relist)
    }

    async fn list(&self, pod_uid: Option<&str>) -> Result<Relist, RuntimeError> {
        let asked_at = self.clock.now();
        let (sandboxes, containers) = list(&*self.runtime, pod_uid).await?;
        Ok(Relist {
            pods: pods(&sandboxes, &containers),
            asked_at,
        })
    }
}

/// Asks for all sandboxes and containers, or for those of one pod.
///
/// # Errors
/// When the runtime does not answer.
pub(crate) async fn list(
    runtime: &dyn RuntimeReads,
    pod_uid: Option<&str>,
) -> Result<(Vec<v1::PodSandbox>, Vec<v1::Container>), RuntimeError> {
    let labels = pod_uid.map(|uid| (POD_UID_LABEL.to_owned(), uid.to_owned()));
    let label_selector: BTreeMap<String, String> = labels.into_iter().collect();
    let sandbox_filter = v1::PodSandboxFilter {
        label_selector: label_selector.clone(),
        ..v1::PodSandboxFilter::default()
    };
    let container_filter = v1::ContainerFilter {
        label_selector,
        ..v1::ContainerFilter::default()
    };
    futures_util::try_join!(
        runtime.list_pod_sandboxes(sandbox_filter),
        runtime.list_containers(container_filter),
    )
}

/// Sorts what was listed by pod; what is not of a Kubernetes pod is passed over.
fn pods(
    sandboxes: &[v1::PodSandbox],
    containers: &[v1::Container],
) -> BTreeMap<String, RuntimePod> {
    let mut pods = BTreeMap::new();
    let entry = |pods: &mut BTreeMap<String, RuntimePod>, identity: PodIdentity| {
        pods.entry(identity.uid().to_owned())
            .or_insert_with(|| RuntimePod {
                identity,
                source: String::new(),
                sandboxes: Vec::new(),
                containers: Vec::new(),
            });
    };
    for sandbox in sandboxes {
        let Some(identity) = listed_pod(&sandbox.labels) else {
            continue;
        };
        let uid = identity.uid().to_owned();
        entry(&mut pods, identity);
        let Some(pod) = pods.get_mut(&uid) else {
            continue;
        };
        let source = sandbox.annotations.get(CONFIG_SOURCE_ANNOTATION);
        let source = source.map_or("", String::as_str);
        source[..source.floor_char_boundary(MAX_SOURCE_BYTES)].clone_into(&mut pod.source);
        pod.sandboxes.push(ListedSandbox {
            id: sandbox.id.clone(),
            ready: sandbox.state() == v1::PodSandboxState::SandboxReady,
            created_at: UnixNanos(sandbox.created_at),
        });
    }
    for container in containers {
        let Some(identity) = listed_pod(&container.labels) else {
            continue;
        };
        let Some(name) = container.labels.get(CONTAINER_NAME_LABEL) else {
            continue;
        };
        if pod::identity::check_container_name(name).is_err() {
            continue;
        }
        let uid = identity.uid().to_owned();
        entry(&mut pods, identity);
        if let Some(pod) = pods.get_mut(&uid) {
            pod.containers.push(ListedContainer {
                id: container.id.clone(),
                name: name.clone(),
                sandbox_id: container.pod_sandbox_id.clone(),
                state: container.state(),
                attempt: container.metadata.as_ref().map_or(0, |it| it.attempt),
                created_at: UnixNanos(container.created_at),
                images: container
                    .image
                    .iter()
                    .map(|image| image.image.clone())
                    .chain([container.image_ref.clone()])
                    .chain(volume_images(&container.annotations))
                    .collect(),
            });
        }
    }
    pods
}

/// The images that are mounted into a container, as noted on it.
fn volume_images(noted: &BTreeMap<String, String>) -> Vec<String> {
    let noted = noted.get(annotations::VOLUME_IMAGES);
    let images = noted.and_then(|noted| serde_json::from_str(noted).ok());
    images.unwrap_or_default()
}

/// A pod as pleg is told of it.
impl From<&RuntimePod> for api::RuntimePod {
    fn from(pod: &RuntimePod) -> api::RuntimePod {
        api::RuntimePod {
            pod: Some((&pod.identity).into()),
            sandboxes: pod
                .sandboxes
                .iter()
                .map(|sandbox| api::RuntimeSandbox {
                    id: sandbox.id.clone(),
                    ready: sandbox.ready,
                })
                .collect(),
            containers: pod
                .containers
                .iter()
                .map(|container| api::RuntimeContainer {
                    id: container.id.clone(),
                    name: container.name.clone(),
                    state: runtime_state(container.state).into(),
                })
                .collect(),
        }
    }
}

/// A pod as sync-loop is told of it.
impl From<&RuntimePod> for api::RuntimePodState {
    fn from(pod: &RuntimePod) -> api::RuntimePodState {
        api::RuntimePodState {
            pod: Some((&pod.identity).into()),
            source: pod.source.clone(),
            has_running_container: pod.has_running_container(),
            has_ready_sandbox: pod.has_ready_sandbox(),
        }
    }
}

fn runtime_state(state: v1::ContainerState) -> api::RuntimeState {
    match state {
        v1::ContainerState::ContainerCreated => api::RuntimeState::Created,
        v1::ContainerState::ContainerRunning => api::RuntimeState::Running,
        v1::ContainerState::ContainerExited => api::RuntimeState::Exited,
        v1::ContainerState::ContainerUnknown => api::RuntimeState::Unknown,
    }
}

/// The pod whose labels something carries, if they are well formed.
pub(crate) fn listed_pod(labels: &BTreeMap<String, String>) -> Option<PodIdentity> {
    PodIdentity::new(
        labels.get(POD_UID_LABEL)?,
        labels.get(POD_NAMESPACE_LABEL)?,
        labels.get(POD_NAME_LABEL)?,
    )
    .ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::{join, join_all};
    use simulated_runtime::{Faults, SimulatedRuntime};

    use super::*;
    use crate::testing::START;

    #[tokio::test(start_paused = true)]
    async fn who_asks_while_a_list_is_under_way_shares_the_next_one() {
        let clock = WallClock::simulated(START);
        let runtime = SimulatedRuntime::new(1, clock.clone(), false);
        runtime.set_faults(Faults {
            slowness: 100.0,
            ..Faults::NONE
        });
        let lists = || runtime.calls().get("ListPodSandbox").copied().unwrap_or(0);
        let relister = Relister::new(Arc::new(runtime.clone()), clock.clone(), Owners::default());
        let late = async {
            tokio::time::advance(Duration::from_millis(1)).await;
            assert_eq!(lists(), 1, "it is under way");
            let asked = clock.now();
            let answers = join_all((0..5).map(|_| relister.all())).await;
            (asked, answers)
        };
        let (first, (asked, answers)) = join(relister.all(), late).await;
        assert!(first.unwrap().asked_at < asked);
        for answer in answers {
            assert!(answer.unwrap().asked_at >= asked);
        }
        assert_eq!(lists(), 2);
        // A list that has ended is too old for who asks now.
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(relister.all().await.unwrap().asked_at > asked);
        assert_eq!(lists(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_made_while_a_list_is_under_way_keeps_its_owner() {
        let clock = WallClock::simulated(START);
        let runtime = SimulatedRuntime::new(1, clock.clone(), false);
        runtime.set_faults(Faults {
            slowness: 100.0,
            ..Faults::NONE
        });
        let owners = Owners::default();
        let runtime = Arc::new(runtime);
        let relister = Relister::new(runtime, clock, owners.clone());
        owners.note("before", "u1");
        tokio::time::advance(Duration::from_millis(1)).await;
        let made = async {
            tokio::time::advance(Duration::from_millis(1)).await;
            owners.note("meanwhile", "u1");
        };
        join(relister.all(), made).await.0.unwrap();
        assert_eq!(owners.pod_of("before"), None);
        assert_eq!(owners.pod_of("meanwhile").as_deref(), Some("u1"));
        tokio::time::advance(Duration::from_millis(1)).await;
        relister.all().await.unwrap();
        assert_eq!(owners.pod_of("meanwhile"), None);
    }
}
