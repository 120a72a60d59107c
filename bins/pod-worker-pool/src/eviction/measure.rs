//! [`Gauge`]: looks at the node, and at what pods use when that matters.
//!
//! A look at the node reads a few lines of `/proc` and asks two file systems how full they
//! are. The runtime is asked, and files of pods are measured, only where a pod has to go
//! or has a limit on the node's disk; where its images are it is asked now and then.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cri::{RuntimeReads, v1};
use eviction::{
    Candidate, ContainerUsage, DiskLayout, Observations, PodUsage, Resource, Signal, Threshold,
};
use futures_util::{Stream, StreamExt as _, stream};
use node_host::{NodeError, NodeHost};
use node_layout::{FilesystemUsage, TreeSize};
use pod::PodIdentity;
use pod::metadata::{CONTAINER_NAME_LABEL, POD_UID_LABEL};
use pod_lifecycle::DesiredPod;
use tokio::time::Instant;

use super::images_at::{self, ImagesAt};
use crate::relist::{ListedContainer, Relist, Relister, RuntimePod};

/// How long a look at one thing may take: a file system that hangs is passed over.
const MAY_TAKE: Duration = Duration::from_secs(10);

/// How long the files of one pod may take. The node ends in time by itself, with what it
/// has found until then, unless its disk hangs.
const FILES_MAY_TAKE: Duration = Duration::from_secs(30);

/// How long it may take in all until what pods use is known as well as it is going to be.
const ALL_MAY_TAKE: Duration = Duration::from_secs(60);

/// Pods whose files are measured at once: it is the disk that takes the time.
const PARALLEL: usize = 2;

/// Looks at the node and at pods.
pub(crate) struct Gauge {
    pub(crate) runtime: Arc<dyn RuntimeReads>,
    pub(crate) host: Arc<dyn NodeHost>,
    pub(crate) relister: Relister,
    images_at: ImagesAt,
    /// UIDs of pods whose files could not be measured in time when a pod had to go last.
    passed_over: Mutex<HashSet<String>>,
}

/// What one look has found.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) observations: Observations,
    pub(super) layout: DiskLayout,
}

/// A pod and what it uses; `None` where nobody knows.
type Measured = (Candidate, Option<PodUsage>);

/// What containers use, by pod UID and container name.
type UsageOfContainers = BTreeMap<String, BTreeMap<String, ContainerUsage>>;

impl Gauge {
    pub(crate) fn new(
        runtime: Arc<dyn RuntimeReads>,
        host: Arc<dyn NodeHost>,
        relister: Relister,
    ) -> Gauge {
        Gauge {
            runtime,
            host,
            relister,
            images_at: ImagesAt::default(),
            passed_over: Mutex::default(),
        }
    }

    /// Looks at what the thresholds are about. What cannot be found out is absent.
    pub(super) async fn look(&self, thresholds: &[Threshold]) -> Look {
        let mut observations = Observations::default();
        let is_watched = |resources: &[Resource]| {
            let mut signals = thresholds.iter().map(|threshold| threshold.signal);
            signals.any(|signal| resources.contains(&signal.resource()))
        };
        if is_watched(&[Resource::Memory, Resource::Pids])
            && let Some(machine) = attempt("the machine", MAY_TAKE, self.host.machine_usage()).await
        {
            observations.note(
                Signal::MemoryAvailable,
                machine.memory_available_bytes,
                machine.memory_capacity_bytes,
            );
            let free = machine.max_processes.saturating_sub(machine.processes);
            observations.note(Signal::PidAvailable, free, machine.max_processes);
        }
        let pods = self.filesystem(None).await;
        let asking = images_at::ask(&*self.runtime, MAY_TAKE);
        let images = match self.images_at.or_ask(asking).await {
            Some(path) => self.filesystem(Some(&path)).await,
            None => None,
        };
        if let Some(pods) = &pods {
            note_disk(
                &mut observations,
                pods,
                Signal::NodefsAvailable,
                Signal::NodefsInodesFree,
            );
        }
        if let Some(images) = &images {
            let (bytes, inodes) = (Signal::ImagefsAvailable, Signal::ImagefsInodesFree);
            note_disk(&mut observations, images, bytes, inodes);
        }
        let layout = match (pods, images) {
            (Some(pods), Some(images)) => DiskLayout::of(pods.device, images.device),
            // Then no threshold of the other disk is met.
            _ => DiskLayout::Shared,
        };
        Look {
            observations,
            layout,
        }
    }

    async fn filesystem(&self, path: Option<&Path>) -> Option<FilesystemUsage> {
        attempt("a file system", MAY_TAKE, self.host.filesystem_usage(path)).await
    }

    /// What each of these pods uses, as far as that matters for the signal; `None` where
    /// it cannot be found out of a pod, and instead of all if the runtime does not answer.
    pub(super) async fn measure(
        &self,
        pods: &[DesiredPod],
        signal: Signal,
        layout: DiskLayout,
    ) -> Option<Vec<Measured>> {
        // What runs is listed first: what starts after that may have no figures yet.
        let relist = self.relister.all().await.ok()?;
        let mut containers = self.containers(&HashSet::new()).await?;
        let mut all: Vec<Measured> = Vec::new();
        for candidate in pods.iter().filter_map(|pod| pod.decode().ok()) {
            let candidate = Candidate::of(&candidate);
            let usage = PodUsage {
                containers: containers.remove(&candidate.uid).unwrap_or_default(),
                ..PodUsage::default()
            };
            all.push((candidate, Some(usage)));
        }
        match signal.resource() {
            Resource::Memory => {
                self.note_cgroups(&mut all).await;
                without_memory(&mut all, &relist);
            }
            Resource::Pids => self.count_processes(&mut all, &relist).await,
            Resource::EphemeralStorage | Resource::Inodes => {
                eviction::rank(&mut all, signal, layout);
                all = self.measure_files(all, pods).await;
            }
        }
        Some(all)
    }

    /// Notes the memory of the pods' cgroups, in which counts what containers that have ended
    /// left in volumes in memory.
    async fn note_cgroups(&self, all: &mut [Measured]) {
        for (candidate, usage) in all {
            let reading = self.host.pod_memory(&candidate.uid);
            let memory = attempt("the memory of a pod", MAY_TAKE, reading).await;
            if let (Some(usage), Some(Some(memory))) = (usage, memory) {
                usage.cgroup_memory = memory;
            }
        }
    }

    /// Measures the files of pods, those first that go first by what is known. Who asks
    /// waits no longer than a minute: of a pod whose turn has not come by then the layers
    /// count, which the runtime tells, and its turn comes first the next time.
    async fn measure_files(&self, mut all: Vec<Measured>, pods: &[DesiredPod]) -> Vec<Measured> {
        let identities: HashMap<&str, &PodIdentity> = pods
            .iter()
            .map(|pod| (pod.identity().uid(), pod.identity()))
            .collect();
        let passed_over = std::mem::take(&mut *self.passed_over());
        all.sort_by_key(|(candidate, _)| !passed_over.contains(&candidate.uid));
        let until = Instant::now() + ALL_MAY_TAKE;
        stream::iter(all)
            .map(|(candidate, known)| {
                let pod = identities.get(&*candidate.uid).copied();
                async move {
                    let usage = match (pod, known) {
                        (Some(pod), Some(known)) => {
                            self.files_until(until, pod, &candidate, known).await
                        }
                        _ => None,
                    };
                    (candidate, usage)
                }
            })
            .buffered(PARALLEL)
            .collect()
            .await
    }

    async fn files_until(
        &self,
        until: Instant,
        pod: &PodIdentity,
        candidate: &Candidate,
        known: PodUsage,
    ) -> Option<PodUsage> {
        if Instant::now() < until {
            let measuring = self.with_files(pod, candidate, known.containers.clone());
            if let Ok(usage) = tokio::time::timeout_at(until, measuring).await {
                return usage;
            }
        }
        self.passed_over().insert(candidate.uid.clone());
        Some(known)
    }

    fn passed_over(&self) -> MutexGuard<'_, HashSet<String>> {
        self.passed_over
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What pods with limits on the node's disk have there, as soon as each is measured;
    /// those of which it cannot be found out are left out. Layers and logs of containers that
    /// have ended do not count, as in a kubelet: a container that restarts may write as much
    /// each time.
    pub(super) async fn measure_limited(
        &self,
        pods: Vec<(DesiredPod, Candidate)>,
    ) -> impl Stream<Item = (DesiredPod, Candidate, PodUsage)> {
        let wants_layers = pods.iter().any(|(_, pod)| pod.storage_limit.is_some());
        let relist = match wants_layers {
            true => self.relister.all().await.ok(),
            false => None,
        };
        let containers = match &relist {
            Some(relist) => self.containers(&ended(&relist.pods)).await,
            None => None,
        };
        let mut containers = containers.unwrap_or_default();
        stream::iter(pods)
            .map(move |(pod, candidate)| {
                let of_pod = containers.remove(&candidate.uid).unwrap_or_default();
                let listed = relist.as_ref().map(|relist| &relist.pods);
                let going_on = going_on(listed.and_then(|pods| pods.get(&candidate.uid)));
                async move {
                    let mut usage = self.with_files(pod.identity(), &candidate, of_pod).await?;
                    usage.containers.retain(|name, _| going_on.contains(name));
                    Some((pod, candidate, usage))
                }
            })
            .buffer_unordered(PARALLEL)
            .filter_map(std::future::ready)
    }

    async fn with_files(
        &self,
        pod: &PodIdentity,
        candidate: &Candidate,
        mut containers: BTreeMap<String, ContainerUsage>,
    ) -> Option<PodUsage> {
        let empty_dirs: Vec<String> = candidate
            .empty_dirs
            .iter()
            .map(|volume| volume.name.clone())
            .collect();
        let measuring = self.host.pod_files_usage(pod, &empty_dirs);
        let files = attempt("the files of a pod", FILES_MAY_TAKE, measuring).await?;
        for (name, size) in files.logs {
            containers.entry(name).or_default().logs = size;
        }
        Some(PodUsage {
            containers,
            volumes: files.volumes,
            too_deep: files.too_deep,
            other: files.other,
            is_partial: files.is_partial,
            ..PodUsage::default()
        })
    }

    /// What the runtime says of all containers but those with these ids. Of several
    /// instances of one name the layers of all count: they lie on the disk.
    async fn containers(&self, but: &HashSet<&str>) -> Option<UsageOfContainers> {
        let filter = v1::ContainerStatsFilter::default();
        let stats = match self.runtime.list_container_stats(filter).await {
            Ok(stats) => stats,
            Err(error) => {
                tracing::warn!(%error, "the runtime does not tell what containers use");
                return None;
            }
        };
        let mut all = UsageOfContainers::new();
        for of_container in stats {
            let Some(attributes) = &of_container.attributes else {
                continue;
            };
            if but.contains(&*attributes.id) {
                continue;
            }
            let label = |name: &str| attributes.labels.get(name).cloned();
            let (Some(uid), Some(name)) = (label(POD_UID_LABEL), label(CONTAINER_NAME_LABEL))
            else {
                continue;
            };
            let usage = all.entry(uid).or_default().entry(name).or_default();
            let value = |value: &Option<v1::UInt64Value>| value.as_ref().map_or(0, |it| it.value);
            if let Some(memory) = &of_container.memory {
                let working_set = value(&memory.working_set_bytes);
                usage.memory = usage.memory.saturating_add(working_set);
            }
            if let Some(layer) = &of_container.writable_layer {
                usage.layer += TreeSize {
                    bytes: value(&layer.used_bytes),
                    inodes: value(&layer.inodes_used),
                };
            }
        }
        Some(all)
    }

    /// Notes the processes of pods, as the runtime counts them for each sandbox that runs;
    /// of the pods of which it does not nobody knows what they use.
    async fn count_processes(&self, all: &mut [Measured], relist: &Relist) {
        let until = Instant::now() + ALL_MAY_TAKE;
        for (candidate, usage) in all {
            let pod = relist.pods.get(&candidate.uid);
            let sandboxes = pod.into_iter().flat_map(|pod| &pod.sandboxes);
            for sandbox in sandboxes.filter(|sandbox| sandbox.ready) {
                if Instant::now() >= until {
                    return;
                }
                let asking = self.runtime.pod_sandbox_stats(&sandbox.id);
                let stats = tokio::time::timeout(MAY_TAKE, asking).await.ok();
                let linux = stats.and_then(|stats| stats.ok()?.linux);
                let count = linux.and_then(|linux| linux.process?.process_count);
                match (count, &mut *usage) {
                    (Some(count), Some(usage)) => usage.processes += count.value,
                    (Some(_), None) => {}
                    (None, usage) => *usage = None,
                }
            }
        }
    }
}

/// Ids of containers that have ended.
fn ended(pods: &BTreeMap<String, RuntimePod>) -> HashSet<&str> {
    let containers = pods.values().flat_map(|pod| &pod.containers);
    let ended = containers.filter(|container| has_ended(container));
    ended.map(|container| &*container.id).collect()
}

/// Names of the containers of a pod that have not ended.
fn going_on(pod: Option<&RuntimePod>) -> HashSet<String> {
    let containers = pod.into_iter().flat_map(|pod| &pod.containers);
    let going_on = containers.filter(|container| !has_ended(container));
    going_on.map(|container| container.name.clone()).collect()
}

fn has_ended(container: &ListedContainer) -> bool {
    container.state == v1::ContainerState::ContainerExited
}

/// Of pods that run and of whose memory nobody tells anything at all it is not known what
/// they use: the figures could not be read. Of one container alone that may be, since it
/// may just have ended.
fn without_memory(all: &mut [Measured], relist: &Relist) {
    for (candidate, usage) in all {
        let runs = relist.pods.get(&candidate.uid);
        let runs = runs.is_some_and(RuntimePod::has_running_container);
        if runs && usage.as_ref().is_some_and(|usage| usage.memory() == 0) {
            *usage = None;
        }
    }
}

fn note_disk(
    observations: &mut Observations,
    disk: &FilesystemUsage,
    bytes: Signal,
    inodes: Signal,
) {
    if disk.capacity_bytes > 0 {
        observations.note(bytes, disk.available_bytes, disk.capacity_bytes);
    }
    // Some file systems have no number of inodes.
    if disk.inodes > 0 {
        observations.note(inodes, disk.inodes_free, disk.inodes);
    }
}

async fn attempt<Value>(
    what: &str,
    may_take: Duration,
    operation: impl Future<Output = Result<Value, NodeError>>,
) -> Option<Value> {
    match tokio::time::timeout(may_take, operation).await {
        Ok(Ok(value)) => Some(value),
        Ok(Err(error)) => {
            let error = telemetry::chain(&error);
            tracing::warn!(what, error, "cannot be measured");
            None
        }
        Err(_) => {
            tracing::warn!(what, "cannot be measured: it takes too long");
            None
        }
    }
}
