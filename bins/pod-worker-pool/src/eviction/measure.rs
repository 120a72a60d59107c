//! [`Gauge`]: looks at the node, and at what pods use when that matters.
//!
//! A look at the node reads a few lines of `/proc` and asks two file systems how full they
//! are. The runtime is asked, and files of pods are measured, only where a pod has to go
//! or has a limit on the node's disk.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cri::{ContainerRuntime, v1};
use eviction::{
    Candidate, ContainerUsage, DiskLayout, Observations, PodUsage, Resource, Signal, Threshold,
};
use futures_util::{StreamExt as _, stream};
use node_host::{NodeError, NodeHost};
use node_layout::{FilesystemUsage, TreeSize};
use pod::metadata::{CONTAINER_NAME_LABEL, POD_UID_LABEL};
use pod_lifecycle::DesiredPod;

use crate::relist::{ListedContainer, Relist, Relister, RuntimePod};

/// How long a look at one thing may take: a file system that hangs is passed over.
const MAY_TAKE: Duration = Duration::from_secs(10);

/// How long the files of one pod may take. The node ends in time by itself, with what it
/// has found until then, unless its disk hangs.
const FILES_MAY_TAKE: Duration = Duration::from_secs(30);

/// Pods whose files are measured at once: it is the disk that takes the time.
const PARALLEL: usize = 2;

/// Looks at the node and at pods.
pub(crate) struct Gauge {
    pub(crate) runtime: Arc<dyn ContainerRuntime>,
    pub(crate) host: Arc<dyn NodeHost>,
    pub(crate) relister: Relister,
    /// Where the runtime has its images; asked once.
    images_at: Mutex<Option<PathBuf>>,
}

/// What one look has found.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) observations: Observations,
    pub(super) layout: DiskLayout,
}

/// What containers use, by pod UID and container name.
type UsageOfContainers = BTreeMap<String, BTreeMap<String, ContainerUsage>>;

impl Gauge {
    pub(crate) fn new(
        runtime: Arc<dyn ContainerRuntime>,
        host: Arc<dyn NodeHost>,
        relister: Relister,
    ) -> Gauge {
        Gauge {
            runtime,
            host,
            relister,
            images_at: Mutex::default(),
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
        let images = match self.images_at().await {
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

    async fn images_at(&self) -> Option<PathBuf> {
        let known =
            |at: &Mutex<Option<PathBuf>>| at.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(path) = known(&self.images_at) {
            return Some(path);
        }
        let asked = tokio::time::timeout(MAY_TAKE, self.runtime.image_fs_info());
        let filesystems = asked.await.ok()?.ok()?;
        let mountpoint = filesystems.into_iter().next()?.fs_id?.mountpoint;
        let path = PathBuf::from(mountpoint);
        if !path.is_absolute() {
            return None;
        }
        *self
            .images_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(path.clone());
        Some(path)
    }

    /// What each of these pods uses, as far as that matters for the signal; `None` where
    /// it cannot be found out of a pod, and instead of all if the runtime does not answer.
    pub(super) async fn measure(
        &self,
        pods: &[DesiredPod],
        signal: Signal,
    ) -> Option<Vec<(Candidate, Option<PodUsage>)>> {
        // What runs is listed first: what starts after that may have no figures yet.
        let relist = self.relister.all().await.ok()?;
        let containers = self.containers(&HashSet::new()).await?;
        let resource = signal.resource();
        let files = matches!(resource, Resource::EphemeralStorage | Resource::Inodes);
        let (processes, untold) = match resource {
            Resource::Pids => self.processes(&relist).await,
            Resource::Memory => (HashMap::new(), without_memory(&relist, &containers)),
            Resource::EphemeralStorage | Resource::Inodes => Default::default(),
        };
        let candidates = pods.iter().filter_map(|pod| {
            let candidate = Candidate::of(&pod.decode().ok()?);
            Some((pod.clone(), candidate))
        });
        let measured = stream::iter(candidates.collect::<Vec<_>>())
            .map(|(pod, candidate)| {
                let of_pod = containers.get(&candidate.uid).cloned().unwrap_or_default();
                let processes = processes.get(&candidate.uid).copied().unwrap_or(0);
                let is_untold = untold.contains(&candidate.uid);
                async move {
                    let usage = match files {
                        true => self.with_files(&pod, &candidate, of_pod).await,
                        false if is_untold => None,
                        false => Some(PodUsage {
                            containers: of_pod,
                            processes,
                            ..PodUsage::default()
                        }),
                    };
                    (candidate, usage)
                }
            })
            .buffered(PARALLEL);
        Some(measured.collect().await)
    }

    /// What pods with limits on the node's disk have there; those of which it cannot be
    /// found out are left out. Layers and logs of containers that have ended do not count,
    /// as in a kubelet: a container that restarts may write as much each time.
    pub(super) async fn measure_limited(
        &self,
        pods: Vec<(DesiredPod, Candidate)>,
    ) -> Vec<(DesiredPod, Candidate, PodUsage)> {
        let wants_layers = pods.iter().any(|(_, pod)| pod.storage_limit.is_some());
        let relist = match wants_layers {
            true => self.relister.all().await.ok(),
            false => None,
        };
        let listed = relist.as_ref().map(|relist| &relist.pods);
        let containers = match listed {
            Some(pods) => self.containers(&ended(pods)).await,
            None => None,
        };
        let containers = containers.unwrap_or_default();
        stream::iter(pods)
            .map(|(pod, candidate)| {
                let of_pod = containers.get(&candidate.uid).cloned().unwrap_or_default();
                let going_on = going_on(listed.and_then(|pods| pods.get(&candidate.uid)));
                async move {
                    let mut usage = self.with_files(&pod, &candidate, of_pod).await?;
                    usage.containers.retain(|name, _| going_on.contains(name));
                    Some((pod, candidate, usage))
                }
            })
            .buffered(PARALLEL)
            .filter_map(std::future::ready)
            .collect()
            .await
    }

    async fn with_files(
        &self,
        pod: &DesiredPod,
        candidate: &Candidate,
        mut containers: BTreeMap<String, ContainerUsage>,
    ) -> Option<PodUsage> {
        let empty_dirs: Vec<String> = candidate
            .empty_dirs
            .iter()
            .map(|volume| volume.name.clone())
            .collect();
        let measuring = self.host.pod_files_usage(pod.identity(), &empty_dirs);
        let files = attempt("the files of a pod", FILES_MAY_TAKE, measuring).await?;
        for (name, size) in files.logs {
            containers.entry(name).or_default().logs = size;
        }
        Some(PodUsage {
            containers,
            volumes: files.volumes,
            other: files.other,
            processes: 0,
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

    /// Processes by pod, as the runtime counts them for each sandbox that runs; and the
    /// pods of which it does not.
    async fn processes(&self, relist: &Relist) -> (HashMap<String, u64>, HashSet<String>) {
        let (mut all, mut untold) = (HashMap::new(), HashSet::new());
        for (uid, pod) in &relist.pods {
            for sandbox in pod.sandboxes.iter().filter(|sandbox| sandbox.ready) {
                let stats = self.runtime.pod_sandbox_stats(&sandbox.id).await.ok();
                let linux = stats.and_then(|stats| stats.linux);
                let process = linux.and_then(|linux| linux.process);
                match process.and_then(|process| process.process_count) {
                    Some(count) => *all.entry(uid.clone()).or_default() += count.value,
                    None => {
                        untold.insert(uid.clone());
                    }
                }
            }
        }
        (all, untold)
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

/// Pods that run and of whose memory the runtime tells nothing at all: it could not read
/// the figures. Such a pod does not use nothing. Of one container alone that may be, since
/// it may just have ended.
fn without_memory(relist: &Relist, told: &UsageOfContainers) -> HashSet<String> {
    let is_told = |uid: &str| {
        let of_pod = told.get(uid).into_iter().flat_map(BTreeMap::values);
        of_pod.into_iter().any(|usage| usage.memory > 0)
    };
    let pods = relist.pods.iter();
    let untold = pods.filter(|(uid, pod)| pod.has_running_container() && !is_told(uid));
    untold.map(|(uid, _)| uid.clone()).collect()
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
