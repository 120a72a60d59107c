//! Asking the runtime for one pod: two list calls, and one more for each thing
//! that is new since the last time.
//!
//! Answers are untrusted: what does not carry this pod's labels, or carries them
//! malformed, is passed over and never touched.

mod convert;
mod termination_message;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use cri::{RuntimeError, RuntimeReads, v1};
use futures_util::{StreamExt, TryStreamExt, stream};
use node_host::NodeHost;
use pod::{Pod, PodExt, PodIdentity, ephemeral};
use pod_lifecycle::known::Known;
use pod_lifecycle::observation::{Container, ContainerState, Observation, Sandbox, SandboxNetwork};

use crate::relist::{self, Owners};

pub(crate) use convert::state_of;

/// Instances of one container that are asked about: the current one and the one
/// before it, which the status shows as the last state.
const INSPECTED_INSTANCES: usize = 2;

/// Status calls for one pod at a time.
const PARALLEL_INSPECTIONS: usize = 8;

/// Asks the runtime about pods.
#[derive(Clone)]
pub(crate) struct Observer {
    runtime: Arc<dyn RuntimeReads>,
    runtime_name: RuntimeName,
    host: Arc<dyn NodeHost>,
    owners: Owners,
}

/// What the runtime calls itself, once it has told it. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct RuntimeName(Arc<OnceLock<String>>);

impl RuntimeName {
    /// The name; empty until it is known.
    pub(crate) fn get(&self) -> &str {
        self.0.get().map_or("", String::as_str)
    }
}

/// What is known of a pod already. Losing it costs a few calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cache {
    /// By id; asked about when the listed state differs.
    containers: HashMap<String, (v1::ContainerState, Container)>,
    /// By id.
    sandboxes: HashMap<String, SandboxNetwork>,
}

/// How a container became known.
enum Found {
    /// From an earlier look.
    Known(Container),
    /// By its status, which had this state.
    Inspected(v1::ContainerState, Container),
    /// Not wholly, or from the list alone; the next look asks again.
    Incomplete(Container),
}

/// How containers are asked about.
#[derive(Clone, Copy)]
struct Inspection<'a> {
    /// What is known of them: a start that failed while its caller waited was not
    /// abandoned, whatever the runtime's words for it.
    known: &'a Known,
    /// Whether one whose status cannot be read is an error.
    strict: bool,
}

impl Observer {
    /// An observer of the pods of one node.
    #[must_use]
    pub(crate) fn new(
        runtime: Arc<dyn RuntimeReads>,
        host: Arc<dyn NodeHost>,
        owners: Owners,
    ) -> Observer {
        Observer {
            runtime,
            runtime_name: RuntimeName::default(),
            host,
            owners,
        }
    }

    /// What the runtime calls itself: known from the first look on.
    pub(crate) fn runtime_name(&self) -> &RuntimeName {
        &self.runtime_name
    }

    async fn learn_runtime_name(&self) {
        let RuntimeName(name) = &self.runtime_name;
        // One that does not tell it is asked again with the next look.
        if name.get().is_none()
            && let Ok(told) = self.runtime.version().await
        {
            name.get_or_init(|| told.runtime_name);
        }
    }

    /// Notes which pod something belongs to that was just made.
    pub(crate) fn note_owner(&self, id: &str, pod: &PodIdentity) {
        self.owners.note(id, pod.uid());
    }

    /// Everything that the runtime has of a pod. `pod` tells which containers it
    /// should have; absent for a pod that is only to be stopped: then a container or
    /// sandbox whose status cannot be read counts as what the list says of it, so that it
    /// does not keep its pod alive.
    ///
    /// # Errors
    /// When the runtime does not answer, or not about everything.
    pub(crate) async fn observe(
        &self,
        identity: &PodIdentity,
        pod: Option<&Pod>,
        known: &Known,
        cache: &mut Cache,
    ) -> Result<Observation, RuntimeError> {
        let (sandboxes, containers) = relist::list(&*self.runtime, Some(identity.uid())).await?;
        let strict = pod.is_some();
        let sandboxes = self.sandboxes(identity, sandboxes, strict, cache).await?;
        let how = Inspection { known, strict };
        let containers = self.containers(identity, containers, how, cache).await?;
        self.learn_runtime_name().await;
        let starts_in_logs = match pod {
            Some(pod) => self.starts_in_logs(identity, pod, &containers).await,
            None => BTreeMap::new(),
        };
        Ok(Observation {
            sandboxes,
            containers,
            starts_in_logs,
            ..Observation::default()
        })
    }

    async fn sandboxes(
        &self,
        identity: &PodIdentity,
        listed: Vec<v1::PodSandbox>,
        strict: bool,
        cache: &mut Cache,
    ) -> Result<Vec<Sandbox>, RuntimeError> {
        let mut sandboxes: Vec<Sandbox> = listed
            .iter()
            .filter_map(|listed| convert::sandbox(identity, listed))
            .collect();
        sandboxes.sort_by_key(|sandbox| {
            std::cmp::Reverse((sandbox.attempt, sandbox.created_at, sandbox.id.clone()))
        });
        cache
            .sandboxes
            .retain(|id, _| sandboxes.iter().any(|sandbox| sandbox.id == *id));
        let mut found = Vec::with_capacity(sandboxes.len());
        for mut sandbox in sandboxes {
            if sandbox.ready {
                match self.network(&sandbox.id, cache).await {
                    Ok(Some(network)) => sandbox.network = network,
                    // Removed since it was listed.
                    Ok(None) => continue,
                    Err(error) if strict => return Err(error),
                    Err(_) => {}
                }
            }
            found.push(sandbox);
        }
        Ok(found)
    }

    async fn network(
        &self,
        sandbox_id: &str,
        cache: &mut Cache,
    ) -> Result<Option<SandboxNetwork>, RuntimeError> {
        if let Some(network) = cache.sandboxes.get(sandbox_id) {
            return Ok(Some(network.clone()));
        }
        let status = match self.runtime.pod_sandbox_status(sandbox_id).await {
            Ok(status) => status,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let network = convert::network(&status);
        // A sandbox without its address is asked about again: it may get one.
        if network != (SandboxNetwork::Pod { ips: Vec::new() }) {
            cache
                .sandboxes
                .insert(sandbox_id.to_owned(), network.clone());
        }
        Ok(Some(network))
    }

    async fn containers(
        &self,
        identity: &PodIdentity,
        listed: Vec<v1::Container>,
        how: Inspection<'_>,
        cache: &mut Cache,
    ) -> Result<Vec<Container>, RuntimeError> {
        let mut containers: Vec<(v1::ContainerState, Container)> = listed
            .iter()
            .filter_map(|listed| convert::container(identity, listed))
            .collect();
        containers.sort_by(|(_, one), (_, other)| {
            let age = |container: &Container| {
                std::cmp::Reverse((
                    container.restart_count,
                    container.created_at,
                    container.id.clone(),
                ))
            };
            (&one.name, age(one)).cmp(&(&other.name, age(other)))
        });
        keep_relevant(&mut containers);
        cache
            .containers
            .retain(|id, _| containers.iter().any(|(_, container)| container.id == *id));
        let cached = &*cache;
        let found: Vec<Option<Found>> = stream::iter(containers)
            .map(|(state, listed)| async move {
                if let Some((known_state, container)) = cached.containers.get(&listed.id)
                    && *known_state == state
                {
                    return Ok(Some(Found::Known(container.clone())));
                }
                match self.inspect(identity, state, listed.clone(), how).await {
                    Err(error) if !how.strict => {
                        tracing::warn!(pod = %identity, %error, "container not inspected");
                        Ok(Some(Found::Incomplete(listed)))
                    }
                    inspected => inspected,
                }
            })
            .buffered(PARALLEL_INSPECTIONS)
            .try_collect()
            .await?;
        let found = found.into_iter().flatten().map(|found| match found {
            Found::Known(container) | Found::Incomplete(container) => container,
            Found::Inspected(state, container) => {
                let id = container.id.clone();
                cache.containers.insert(id, (state, container.clone()));
                container
            }
        });
        Ok(found.collect())
    }

    /// Completes a listed container by its status; `None` when it is gone.
    async fn inspect(
        &self,
        identity: &PodIdentity,
        state: v1::ContainerState,
        mut container: Container,
        how: Inspection<'_>,
    ) -> Result<Option<Found>, RuntimeError> {
        if matches!(
            state,
            v1::ContainerState::ContainerCreated | v1::ContainerState::ContainerUnknown
        ) {
            return Ok(Some(Found::Inspected(state, container)));
        }
        let status = match self.runtime.container_status(&container.id).await {
            Ok(status) => status,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error),
        };
        let state = convert::complete(&mut container, &status);
        if let ContainerState::StartAbandoned(exit) = &container.state
            && how.known.start_was_refused(&container.id)
        {
            container.state = ContainerState::Exited(exit.clone());
        }
        if let ContainerState::Exited(exit) = &mut container.state {
            let restart_count = container.restart_count;
            let message = termination_message::of(
                &*self.host,
                identity,
                &container.name,
                restart_count,
                &status,
            )
            .await;
            exit.message = message.text;
            if !message.is_final {
                return Ok(Some(Found::Incomplete(container)));
            }
        }
        Ok(Some(Found::Inspected(state, container)))
    }

    /// For containers of which the runtime has no instance: one more than the
    /// largest number among their log files.
    async fn starts_in_logs(
        &self,
        identity: &PodIdentity,
        pod: &Pod,
        containers: &[Container],
    ) -> BTreeMap<String, u32> {
        let mut starts = BTreeMap::new();
        let names = pod.all_containers().map(|(_, spec)| &spec.name);
        let of_ephemeral = ephemeral::listed(pod).iter().map(|it| &it.name);
        for name in names.chain(of_ephemeral) {
            if containers.iter().any(|known| known.name == *name) {
                continue;
            }
            match self.host.last_log_attempt(identity, name).await {
                Ok(Some(attempt)) => {
                    starts.insert(name.clone(), attempt.saturating_add(1));
                }
                Ok(None) => {}
                // Counting from 0 again is better than not starting.
                Err(error) => tracing::warn!(
                    pod = %identity,
                    container = name,
                    error = %telemetry::chain(&error),
                    "cannot read the restart count from the logs"
                ),
            }
        }
        starts
    }
}

impl std::fmt::Debug for Observer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Observer").finish_non_exhaustive()
    }
}

/// Leaves out old instances, which nobody needs to know about: a crash loop can
/// leave many before they are collected.
fn keep_relevant(containers: &mut Vec<(v1::ContainerState, Container)>) {
    let mut name = String::new();
    let mut seen = 0;
    containers.retain(|(_, container)| {
        if container.name != name {
            name.clone_from(&container.name);
            seen = 0;
        }
        seen += 1;
        seen <= INSPECTED_INSTANCES || container.state.exit().is_none()
    });
}
