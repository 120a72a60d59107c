//! Making a pod's sandbox, and clearing away what it replaces.

use std::sync::Arc;
use std::time::Duration;

use cri::{RuntimeError, RuntimeErrorKind};
use futures_util::future::{join, join_all, try_join};
use pod::{PodExt, QosClass};
use tokio::time::{Instant, timeout};

use super::start::spec_of;
use super::start_time::{notes_start, started_at};
use super::sync::{PreparedImages, Target};
use super::taken::{SANDBOX_HOLDS, TakenName};
use super::{Memory, Retry, StepError, Steps};
use crate::annotations;
use crate::config::{self, SandboxConfig};
use crate::observation::Observation;
use crate::plan::{Kill, Unusable};
use crate::readiness;

/// How long a pod waits for the stop of a sandbox that is not its own. It goes on
/// beside the pod's work: a shim or network that hangs would hold that up for minutes.
const SURPLUS_STOP_WAIT: Duration = Duration::from_secs(2);

/// What stops of sandboxes came to. One that cannot be stopped is no reason to let
/// the others run; one that is gone is stopped.
fn all_stopped(stopped: Vec<Result<(), RuntimeError>>) -> Result<(), StepError> {
    let failures = stopped.into_iter().filter_map(Result::err);
    let failures = failures.filter(|error| !error.is_not_found());
    let failure = failures.map(StepError::from).reduce(StepError::and);
    failure.map_or(Ok(()), Err)
}

impl Steps {
    /// Stops all that is left in earlier sandboxes, and them.
    pub(super) async fn replace_sandbox(
        &self,
        target: &Target<'_>,
        observation: &Observation,
        (_, why): (u32, Option<Unusable>),
        memory: &mut Memory,
    ) -> Result<(), StepError> {
        if why.is_none() {
            return Ok(());
        }
        self.events.normal(
            target.identity,
            "",
            "SandboxChanged",
            "Pod sandbox changed, it will be killed and re-created.",
        );
        self.stop_all(target, observation, memory).await
    }

    /// Stops all containers of a pod that lives on, and all its sandboxes.
    pub(super) async fn stop_all(
        &self,
        target: &Target<'_>,
        observation: &Observation,
        memory: &mut Memory,
    ) -> Result<(), StepError> {
        let kills: Vec<Kill> = observation
            .possibly_running()
            .map(|container| Kill::of_lost_sandbox(target.pod, container))
            .collect();
        self.kill(target.identity, &kills, memory).await?;
        self.stop_sandboxes(observation).await
    }

    /// Stops sandboxes beside the one that the pod lives in.
    pub(super) async fn stop_surplus_sandboxes(
        &self,
        target: &Target<'_>,
        sandboxes: &[String],
        kills: &[Kill],
        memory: &mut Memory,
    ) -> Result<(), StepError> {
        tracing::warn!(pod = %target.identity, ?sandboxes, "more than one sandbox runs");
        self.kill(target.identity, kills, memory).await?;
        let stops = sandboxes.iter().map(|id| {
            let (runtime, id) = (Arc::clone(&self.runtime), id.clone());
            let stop = async move { runtime.stop_pod_sandbox(&id).await };
            memory.stop_calls.run("StopPodSandbox", stop)
        });
        match timeout(SURPLUS_STOP_WAIT, join_all(stops)).await {
            Ok(stopped) => all_stopped(stopped),
            Err(_) => {
                let message = "a surplus sandbox is still being stopped".to_owned();
                Err(StepError::new(message, Retry::LATER))
            }
        }
    }

    /// Stops all sandboxes of a pod; also those that run no more may still hold
    /// an address.
    pub(super) async fn stop_sandboxes(&self, observation: &Observation) -> Result<(), StepError> {
        let sandboxes = observation.sandboxes.iter();
        self.stop_each(sandboxes.map(|sandbox| &sandbox.id)).await
    }

    async fn stop_each(&self, sandboxes: impl Iterator<Item = &String>) -> Result<(), StepError> {
        let stops = sandboxes.map(|id| self.runtime.stop_pod_sandbox(id));
        all_stopped(join_all(stops).await)
    }

    /// Makes a sandbox, and meanwhile sees to the images of the containers that
    /// start first in it: those that are there are the answer, pulls go on.
    pub(super) async fn new_sandbox(
        &self,
        target: &Target<'_>,
        observation: &Observation,
        attempt: u32,
        first: &[String],
        memory: &mut Memory,
    ) -> Result<PreparedImages, StepError> {
        try_join(self.require_network(target), self.prepare_pod(target)).await?;
        let name = &mut memory.sandbox_name;
        let attempt = name.number(attempt, Instant::now(), SANDBOX_HOLDS);
        let SandboxConfig { config, warnings } =
            self.sandbox_config(target, observation, attempt).await?;
        for warning in warnings {
            self.events
                .warning(target.identity, "", warning.reason, &warning.message);
        }
        let runtime = Arc::clone(&self.runtime);
        let request = config.clone();
        let asked = memory.sandbox_name.ask();
        let run = memory.calls.run("RunPodSandbox", async move {
            runtime.run_pod_sandbox(request, "").await
        });
        let pulls = &memory.pulls;
        let images = join_all(first.iter().map(|name| async {
            let image = self.prepare_image(target, name, &config, pulls).await;
            image.transpose().map(|image| (name.clone(), image))
        }));
        let (made, images) = join(run, images).await;
        match made {
            Ok(id) => {
                self.observer.note_owner(&id, target.identity);
                memory.sandbox_name = TakenName::default();
                Ok(images.into_iter().flatten().collect())
            }
            Err(error) => {
                // They are pulled once, not with every try to make the sandbox.
                for (name, image) in images.into_iter().flatten() {
                    if let (Ok(image), Ok(spec)) = (image, spec_of(target, &name)) {
                        memory.pulls.keep(spec, image);
                    }
                }
                if error.kind == RuntimeErrorKind::AlreadyExists {
                    memory.sandbox_name.taken(asked, Instant::now());
                } else {
                    self.events.warning(
                        target.identity,
                        "",
                        "FailedCreatePodSandBox",
                        &format!("Failed to create pod sandbox: {}", error.message),
                    );
                }
                Err(StepError::from(error).while_doing("failed to create pod sandbox"))
            }
        }
    }

    /// The configuration of the sandbox with this number.
    pub(super) async fn sandbox_config(
        &self,
        target: &Target<'_>,
        observation: &Observation,
        attempt: u32,
    ) -> Result<SandboxConfig, StepError> {
        let resolv_conf = self.host.resolv_conf().await?;
        let mut sandbox =
            config::pod_sandbox_config(target.pod, attempt, &self.facts, resolv_conf.as_ref())?;
        if notes_start(target.pod) {
            let started = started_at(target, observation).unwrap_or_else(|| self.clock.now());
            sandbox.config.annotations.insert(
                annotations::POD_STARTED_AT.to_owned(),
                started.0.to_string(),
            );
        }
        Ok(sandbox)
    }

    /// That a pod which is to get an address of its own can get one. Others start
    /// without a network, those that bring it up among them.
    async fn require_network(&self, target: &Target<'_>) -> Result<(), StepError> {
        if target.pod.host_network() {
            return Ok(());
        }
        let status = self.runtime.status(false).await?;
        readiness::network(&status).map_err(|why| {
            let message = format!("network is not ready: {why}");
            self.events
                .warning(target.identity, "", "NetworkNotReady", &message);
            StepError::new(message, Retry::SOON)
        })
    }

    /// Directories, cgroup and volumes: all that a sandbox and its containers
    /// need of the node.
    async fn prepare_pod(&self, target: &Target<'_>) -> Result<(), StepError> {
        let identity = target.identity;
        self.host
            .make_pod_directories(identity)
            .await
            .map_err(|error| {
                let message = format!(
                    "error making pod data directories: {}",
                    telemetry::chain(&error)
                );
                self.events
                    .warning(identity, "", "FailedMountPodDir", &message);
                StepError::new(message, Retry::LATER)
            })?;
        let resources = pod::resources::pod_cgroup_resources(target.pod);
        let qos = QosClass::of(target.pod);
        self.host
            .ensure_pod_cgroup(identity.uid(), qos, resources)
            .await
            .map_err(|error| {
                let message = format!(
                    "unable to ensure pod container exists: {}",
                    telemetry::chain(&error)
                );
                self.events
                    .warning(identity, "", "FailedCreatePodContainer", &message);
                StepError::new(message, Retry::LATER)
            })?;
        self.set_up_volumes(target).await.map(drop)
    }
}
