//! [`StepContext`]: what all steps work with, and what all of them do: observe, plan, write the
//! record.

use std::sync::Arc;
use std::time::Duration;

use backoff::Curve;
use clock::WallClock;
use cri::Runtime;
use cri_requests::NodeFacts;
use node_host::NodeHost;
use pod::{Pod, PodIdentity};
use pod_lifecycle::observation::{Observation, SandboxNetwork};
use pod_lifecycle::plan::{self, Facts, Goal, Plan, ProbeVerdicts, Settings};
use pod_lifecycle::stop::Moment;
use pod_volumes::Content;
use tokio::time::Instant;

use super::error::StepError;
use super::memory::Memory;
use super::process_start::ProcessStart;
use crate::doorbell::Doorbell;
use crate::events::Events;
use crate::files_in_memory::FilesInMemory;
use crate::http_hooks::HttpHooks;
use crate::image::Images;
use crate::object_source::ObjectSource;
use crate::observe::Observer;
use crate::policy::NodePolicy;
use crate::publisher::{LOOPBACK, Publisher};
use crate::record::Records;
use crate::removed_pods::RemovedPods;
use crate::service_source::ServiceSource;
use crate::turns::Turns;

/// How long the runtime may take to undo a call whose caller is gone, its name still
/// held: containerd gives that a minute.
const UNDOING: Duration = Duration::from_secs(60);

/// How long a RunPodSandbox may hold a name.
const SANDBOX_NAME_IS_HELD: Duration = cri::RUN_POD_SANDBOX_DEADLINE.saturating_add(UNDOING);

/// How long a CreateContainer may hold a name.
const INSTANCE_NAME_IS_HELD: Duration = cri::DEFAULT_DEADLINE.saturating_add(UNDOING);

/// What steps work with; shared by all pods.
pub(crate) struct StepContext {
    /// The container runtime.
    pub runtime: Runtime,
    /// Turns at the runtime, which it takes by itself.
    pub turns: Turns,
    /// Files, mounts and cgroups.
    pub host: Arc<dyn NodeHost>,
    /// Asks the runtime about a pod.
    pub observer: Observer,
    /// Pods that their source has removed and that have ended, for the garbage collection.
    pub removed_pods: RemovedPods,
    /// HTTP lifecycle hooks, which the prober carries out.
    pub http_hooks: HttpHooks,
    /// Pulls images.
    pub images: Arc<Images>,
    /// Rings when a pull has ended.
    pub doorbell: Doorbell,
    /// ConfigMaps and Secrets that pods refer to.
    pub objects: ObjectSource,
    /// Services that containers are told of.
    pub services: ServiceSource,
    /// What the files of all pods' volumes take.
    pub files_in_memory: FilesInMemory,
    /// What requests are made from.
    pub facts: NodeFacts,
    /// Users and groups of our own processes, which no pod may have.
    pub agent_ids: Vec<u32>,
    /// What pods may be on this node.
    pub policy: NodePolicy,
    /// What people are told.
    pub events: Events,
    /// What other processes are told.
    pub publisher: Publisher,
    /// Records of pods: what the next run needs.
    pub records: Records,
    /// Wall time.
    pub clock: WallClock,
    /// Crash-loop back-off of containers.
    pub restart_curve: Curve,
    /// When this process was started.
    pub process_start: ProcessStart,
}

impl std::fmt::Debug for StepContext {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("StepContext")
            .finish_non_exhaustive()
    }
}

impl StepContext {
    /// What the runtime has of a pod now.
    pub(super) async fn observe(
        &self,
        identity: &PodIdentity,
        pod: Option<&Pod>,
        memory: &mut Memory,
    ) -> Result<Observation, StepError> {
        let looked_at = Instant::now();
        let calls_under_way = memory.calls.are_under_way();
        let Memory { known, cache, .. } = memory;
        let observed = self.observer.observe(identity, pod, known, cache);
        let mut observation = observed.await?;
        memory.looked_at = Some(looked_at);
        observation.calls_under_way = calls_under_way;
        observation.volumes.clone_from(&memory.volumes);
        observation.files.clone_from(&memory.files);
        observation.learn_former(&memory.record.former_sandboxes);
        memory.pod_ip = self.pod_ip(&observation);
        Ok(observation)
    }

    /// Where a pod answers; empty while that is not known.
    fn pod_ip(&self, observation: &Observation) -> String {
        let sandbox = observation.current_sandbox();
        match sandbox.map(|sandbox| &sandbox.network) {
            Some(SandboxNetwork::Host) => {
                let node = self.facts.node_ips.first();
                node.map_or(LOOPBACK.to_owned(), ToString::to_string)
            }
            Some(network) => network.ips().first().cloned().unwrap_or_default(),
            None => String::new(),
        }
    }

    /// What to do next with a pod.
    pub(super) fn plan_for(
        &self,
        goal: Goal<'_>,
        probe_verdicts: &ProbeVerdicts,
        observation: &Observation,
        memory: &Memory,
    ) -> Plan {
        plan::plan(&Facts {
            goal,
            observation,
            known: &memory.known,
            pulls: &memory.pulls.under_way(),
            probe_verdicts,
            noted_start: memory.record.started_at,
            content: Content {
                objects: &memory.objects,
                allocatable: &self.facts.allocatable,
            },
            settings: Settings {
                restart_curve: self.restart_curve,
                sandbox_name_is_held: SANDBOX_NAME_IS_HELD,
                instance_name_is_held: INSTANCE_NAME_IS_HELD,
            },
            now: self.moment(),
        })
    }

    /// Puts what is known into the record, and writes that if it has changed.
    pub(super) async fn save_record_if_changed(&self, identity: &PodIdentity, memory: &mut Memory) {
        if memory.update_record() {
            self.save_record(identity, memory).await;
        }
    }

    /// Writes the record, as far as it goes.
    pub(super) async fn save_record(&self, identity: &PodIdentity, memory: &Memory) {
        if let Err(error) = self.records.save(identity, &memory.record).await {
            // The kill goes on: a full disk, or one that hangs, must not keep a pod
            // alive. What is lost is that the next process would know of it; of a pod
            // that must stay ended `close_record` makes sure.
            tracing::warn!(pod = %identity, error = telemetry::chain(&error), "not recorded");
        }
    }

    /// Now, by each clock.
    pub(super) fn moment(&self) -> Moment {
        Moment {
            wall: self.clock.now(),
            monotonic: Instant::now().into_std(),
            since_boot: self.clock.since_boot(),
        }
    }
}
