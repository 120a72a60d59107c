//! Making a pod's sandbox, and clearing away what it replaces.

use std::sync::Arc;
use std::time::Duration;

use cri::{RuntimeError, RuntimeErrorKind};
use cri_requests::SandboxConfig;
use futures_util::future::{join, join_all, try_join};
use pod::{PodExt, QosClass};
use pod_lifecycle::known::SandboxKnown;
use pod_lifecycle::observation::Observation;
use pod_lifecycle::plan::{ContainerStop, StopPod};
use pod_volumes::Volume;
use tokio::time::timeout;
use turns::Call;

use super::context::StepContext;
use super::error::{Retry, StepError};
use super::memory::Memory;
use super::target::{PreparedImages, Target, spec_of};
use super::{image, pod_cgroup, runtime_handler, sandbox_config, stop, user_namespace, volumes};
use crate::readiness;
use crate::turns::Withdrawn;

/// How long a pod waits for the stop of a sandbox that is not its own. It goes on
/// beside the pod's work: a shim or network that hangs would hold that up for minutes.
const SURPLUS_STOP_WAIT: Duration = Duration::from_secs(2);

/// Stops all that is left in earlier sandboxes, and them.
pub(super) async fn stop_for_new_sandbox(
    context: &StepContext,
    target: &Target<'_>,
    stop: &StopPod,
    memory: &mut Memory,
) -> Result<(), StepError> {
    context.events.normal(
        target.identity,
        "",
        "SandboxChanged",
        "Pod sandbox changed, it will be killed and re-created.",
    );
    stop::stop_containers(context, target.identity, &stop.containers, memory).await?;
    stop_sandboxes(context, &stop.sandboxes, memory).await
}

/// Stops sandboxes beside the one that the pod lives in.
pub(super) async fn stop_surplus_sandboxes(
    context: &StepContext,
    target: &Target<'_>,
    sandboxes: &[String],
    stops: &[ContainerStop],
    memory: &mut Memory,
) -> Result<(), StepError> {
    tracing::warn!(pod = %target.identity, ?sandboxes, "more than one sandbox runs");
    stop::stop_containers(context, target.identity, stops, memory).await?;
    let stops = sandboxes.iter().map(|id| {
        let (runtime, id) = (Arc::clone(&context.runtime.changes), id.clone());
        let stop = async move { runtime.stop_pod_sandbox(&id).await };
        memory.stop_calls.run("StopPodSandbox", stop)
    });
    match timeout(SURPLUS_STOP_WAIT, join_all(stops)).await {
        Ok(stopped) => note_stopped(sandboxes, stopped, memory),
        Err(_) => {
            let message = "a surplus sandbox is still being stopped".to_owned();
            Err(StepError::new(message, Retry::LATER))
        }
    }
}

/// Stops sandboxes of a pod, all at once.
pub(super) async fn stop_sandboxes(
    context: &StepContext,
    sandboxes: &[String],
    memory: &mut Memory,
) -> Result<(), StepError> {
    let stops = sandboxes
        .iter()
        .map(|id| context.runtime.changes.stop_pod_sandbox(id));
    note_stopped(sandboxes, join_all(stops).await, memory)
}

/// Makes a sandbox, and meanwhile sees to the images of the containers that
/// start first in it: those that are there are the answer, pulls go on.
pub(super) async fn new_sandbox(
    context: &StepContext,
    target: &Target<'_>,
    observation: &Observation,
    attempt: u32,
    first: &[String],
    memory: &mut Memory,
) -> Result<PreparedImages, StepError> {
    let ids = user_namespace::ids(context, target).await;
    let ids = ids.inspect_err(|error| {
        let told = format!("Failed to create pod sandbox: {error}");
        context
            .events
            .warning(target.identity, "", "FailedCreatePodSandBox", &told);
    })?;
    let SandboxConfig {
        config,
        runtime_handler: handler,
        warnings,
    } = sandbox_config::sandbox_config(context, target, observation, (attempt, ids)).await?;
    runtime_handler::require(context, target, &handler).await?;
    for warning in warnings {
        context
            .events
            .warning(target.identity, "", warning.reason, &warning.message);
    }
    let runtime = Arc::clone(&context.runtime.changes);
    let request = config.clone();
    let call = memory.known.next_sandbox.call(attempt);
    let run = memory.calls.run("RunPodSandbox", async move {
        runtime.run_pod_sandbox(request, &handler).await
    });
    let (objects, pulls) = (&memory.objects, &memory.pulls);
    let images = join_all(first.iter().map(|name| async {
        let image = image::prepare_image(context, target, name, &config, objects, pulls).await;
        image.transpose().map(|image| (name.clone(), image))
    }));
    let (made, images) = join(run, images).await;
    match made {
        Ok(id) => {
            context.observer.note_owner(&id, target.identity);
            memory.known.next_sandbox.used();
            Ok(images.into_iter().flatten().collect())
        }
        Err(error) => {
            // They are pulled once, not with every try to make the sandbox.
            for (name, image) in images.into_iter().flatten() {
                if let (Ok(image), Ok(spec)) = (image, spec_of(target, &name)) {
                    memory.pulls.keep(&spec, image);
                }
            }
            if error.kind == RuntimeErrorKind::AlreadyExists {
                let now = context.moment().monotonic;
                memory.known.next_sandbox.refused(call, now);
            } else {
                context.events.warning(
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

/// Sees to all that a sandbox and its containers need of the node, in the pod's turn: the
/// network, directories, a cgroup and volumes.
pub(super) async fn prepare(
    context: &StepContext,
    target: &Target<'_>,
    volumes: &[Volume],
    memory: &mut Memory,
) -> Result<(), StepError> {
    let turn = context
        .turns
        .take(Call::Prepare, Some(target.identity.uid()), None);
    let _turn = turn
        .await
        .map_err(|Withdrawn| StepError::new("the pod is not prepared any more", Retry::SOON))?;
    let of_pod = async {
        prepare_pod(context, target, memory).await?;
        volumes::make(context, target, volumes, memory).await
    };
    try_join(require_network(context, target), of_pod).await?;
    Ok(())
}

/// That a pod which is to get an address of its own can get one. Others start
/// without a network, those that bring it up among them.
async fn require_network(context: &StepContext, target: &Target<'_>) -> Result<(), StepError> {
    if target.pod.host_network() {
        return Ok(());
    }
    let status = context.runtime.reads.status(false).await?;
    readiness::network(&status).map_err(|why| {
        let message = format!("network is not ready: {why}");
        context
            .events
            .warning(target.identity, "", "NetworkNotReady", &message);
        StepError::new(message, Retry::SOON)
    })
}

/// Directories and cgroup.
async fn prepare_pod(
    context: &StepContext,
    target: &Target<'_>,
    memory: &mut Memory,
) -> Result<(), StepError> {
    let identity = target.identity;
    context
        .host
        .make_pod_directories(identity)
        .await
        .map_err(|error| {
            let message = format!(
                "error making pod data directories: {}",
                telemetry::chain(&error)
            );
            context
                .events
                .warning(identity, "", "FailedMountPodDir", &message);
            StepError::new(message, Retry::LATER)
        })?;
    let resources = pod::resources::pod_cgroup_resources(target.pod);
    pod_cgroup::set(context, target, resources, memory).await
}

/// Tells the node once in each run what a pod requests whose cgroup is there: the
/// process that made it may have been another one. Nothing of the pod depends on it.
pub(super) async fn adopt_cgroup(
    context: &StepContext,
    target: &Target<'_>,
    observation: &Observation,
    memory: &mut Memory,
) {
    let is_burstable = QosClass::of(target.pod) == QosClass::Burstable;
    if memory.counts_in_its_class || !is_burstable || observation.sandboxes.is_empty() {
        return;
    }
    memory.counts_in_its_class = true;
    let resources = pod::resources::pod_cgroup_resources(target.pod);
    let adopted = context
        .host
        .adopt_pod_cgroup(target.identity.uid(), resources);
    if let Err(error) = adopted.await {
        let (pod, error) = (target.identity, telemetry::chain(&error));
        tracing::warn!(%pod, error, "the burstable class has not the CPU shares of the pod");
    }
}

/// Notes what stops of sandboxes came to. One that cannot be stopped is no reason to let
/// the others run; one that is gone is stopped.
fn note_stopped(
    sandboxes: &[String],
    stopped: Vec<Result<(), RuntimeError>>,
    memory: &mut Memory,
) -> Result<(), StepError> {
    let mut failure: Option<StepError> = None;
    for (id, stopped) in sandboxes.iter().zip(stopped) {
        match stopped {
            Err(error) if !error.is_not_found() => {
                failure = Some(StepError::from(error).and_before(failure));
            }
            _ => memory.known.note_sandbox(id, SandboxKnown::Stopped),
        }
    }
    failure.map_or(Ok(()), Err)
}
