//! SyncPod: observe, plan, act, until a plan has nothing to do now.

use clock::UnixNanos;
use local_objects::has_found_claim;
use pod::runtime_class::RuntimeClasses;
use pod::{Pod, PodExt, PodIdentity};
use pod_lifecycle::DesiredPod;
use pod_lifecycle::known::SandboxKnown;
use pod_lifecycle::observation::Observation;
use pod_lifecycle::plan::{self, Circumstances, Goal, NOT_OFFERED_REASON, Plan, Refused, Work};

use super::context::StepContext;
use super::error::{Retry, StepError};
use super::job::{Outcome, SyncInput};
use super::memory::{Announcement, Memory};
use super::target::{PreparedImages, Target};
use super::{
    containers, pod_cgroup, post_start, resize, sandbox, start, start_time, stop, volumes,
};
use crate::publisher::{self, Findings};

/// Rounds of one sync. A pod needs one for its sandbox and one for each of its
/// init containers that ends at once; who needs more goes on after a short pause,
/// so that no pod keeps a step for ever.
const MAX_ROUNDS: usize = 32;

/// Brings a pod to what is desired.
pub(super) async fn sync(
    context: &StepContext,
    desired: &DesiredPod,
    input: &SyncInput,
    memory: &mut Memory,
) -> Outcome {
    let source_pod = match desired.decode() {
        Ok(pod) => pod,
        Err(error) => {
            return Outcome::Failed(StepError::new(telemetry::chain(&error), Retry::LATER));
        }
    };
    // What a claim stands for is judged, and opened, like any path of the node.
    let objects = context.objects.known(&source_pod);
    let pod = local_objects::with_claimed_volumes(&source_pod, &objects);
    let refused = context.policy.judge_and_register(desired, &pod);
    let waits = not_offered(desired, &pod, &context.facts.runtime_classes);
    if let Some(waits) = &waits {
        announce(context, desired.identity(), waits.clone(), memory);
    }
    let has_room = !input.resize_is_pending;
    let pod = match resize::in_force(context, desired.identity(), pod, has_room, memory).await {
        Ok(pod) => pod,
        Err(error) => return failed(context, desired.identity(), error),
    };
    let target = Target {
        refused: refused.or(waits),
        identity: desired.identity(),
        source: desired.document().source(),
        source_pod: &source_pod,
        pod: &pod,
        started_with: desired.started_with(),
        noted_start: start_time::note_start(context, desired.identity(), &pod, memory).await,
    };
    memory.pulls.retain_wanted(target.pod);
    if !desired.left().is_empty() {
        announce(
            context,
            target.identity,
            plan::not_applied(desired.left()),
            memory,
        );
    }
    match converge_in_time(context, &target, input, memory).await {
        Ok(outcome) => outcome,
        Err(error) => failed(context, target.identity, error),
    }
}

/// What the pod asks for and the node does not offer: nothing of it is started. A pod from a
/// manifest with that is refused by its source.
fn not_offered(desired: &DesiredPod, pod: &Pod, classes: &RuntimeClasses) -> Option<Refused> {
    let unmet = pod_validation::unmet(pod, desired.document().source(), classes);
    let unmet: Vec<String> = unmet.iter().map(ToString::to_string).collect();
    (!unmet.is_empty()).then(|| Refused {
        reason: NOT_OFFERED_REASON,
        message: unmet.join("; "),
        ends_what_runs: false,
    })
}

fn failed(context: &StepContext, identity: &PodIdentity, error: StepError) -> Outcome {
    context.publisher.failed(identity.uid(), &error.message);
    Outcome::Failed(error)
}

/// At the pod's deadline the plan is to end it, whatever hangs or is to be tried again.
async fn converge_in_time(
    context: &StepContext,
    target: &Target<'_>,
    input: &SyncInput,
    memory: &mut Memory,
) -> Result<Outcome, StepError> {
    if let Some(left) = start_time::time_left(context, target) {
        let deadline = context.clock.now().plus(left);
        let converging = converge(context, target, input, memory);
        if let Ok(outcome) = tokio::time::timeout(left, converging).await {
            return outcome.map_err(|error| error.at_latest(Some(deadline)));
        }
    }
    converge(context, target, input, memory).await
}

async fn converge(
    context: &StepContext,
    target: &Target<'_>,
    input: &SyncInput,
    memory: &mut Memory,
) -> Result<Outcome, StepError> {
    let mut images = PreparedImages::new();
    // Of sandboxes beside the pod's own: told when the rest is done.
    let mut failure: Option<StepError> = None;
    memory.sync_begins();
    for _ in 0..MAX_ROUNDS {
        let observation = look(context, target, memory).await?;
        let plan = plan_with_objects(context, target, input, &observation, memory).await?;
        let error = failure.as_ref().map_or("", |failure| &failure.message);
        publish(context, target, &observation, &plan, memory, error);
        match plan {
            Plan::End(cause) => {
                if let Some((reason, message)) = cause.failure() {
                    context.events.normal(target.identity, "", reason, message);
                }
                return Ok(Outcome::Ended(cause));
            }
            Plan::NewSandbox {
                attempt,
                why,
                first,
                stop,
                volumes,
            } => {
                if why.is_some() {
                    sandbox::stop_for_new_sandbox(context, target, &stop, memory).await?;
                }
                sandbox::prepare(context, target, &volumes, memory).await?;
                let made =
                    sandbox::new_sandbox(context, target, &observation, attempt, &first, memory);
                images.extend(made.await?);
            }
            Plan::StopSandboxes { sandboxes, stops } => {
                let stopped =
                    sandbox::stop_surplus_sandboxes(context, target, &sandboxes, &stops, memory);
                if let Err(error) = stopped.await {
                    for id in &sandboxes {
                        memory.known.note_sandbox(id, SandboxKnown::StopFailed);
                    }
                    failure = Some(error.and_before(failure));
                }
            }
            Plan::Work(work) if work.has_nothing_to_do_now() => {
                return Ok(rest(context, target, &observation, &work, failure, memory).await);
            }
            Plan::Work(work) => {
                announce_waits(context, target, &work, memory);
                let failed = carry_out(context, target, &observation, work, &mut images, memory);
                let failed = match failed.await {
                    Ok(None) => continue,
                    Ok(Some(error)) => error.and_before(failure),
                    Err(error) => return Err(error.and_before(failure)),
                };
                let wake_at = look_after_failure(context, target, input, &failed, memory);
                let wake_at = wake_at.await?;
                return Ok(Outcome::Failed(failed.at_latest(wake_at)));
            }
            other => return Err(StepError::out_of_place(&other)),
        }
    }
    Err(StepError::new(
        "the pod did not settle yet and is looked at again",
        Retry::SOON,
    ))
}

/// Nothing is to be done now, unless the pod's cgroup has other limits.
async fn rest(
    context: &StepContext,
    target: &Target<'_>,
    observation: &Observation,
    work: &Work,
    failure: Option<StepError>,
    memory: &mut Memory,
) -> Outcome {
    announce_waits(context, target, work, memory);
    let settled = pod_cgroup::settle(context, target, observation, memory).await;
    let failure = match settled {
        Ok(()) => failure,
        Err(error) => Some(error.and_before(failure)),
    };
    match failure {
        Some(failure) => Outcome::Failed(failure.at_latest(work.wake_at)),
        None => Outcome::Settled {
            wake_at: work.wake_at,
        },
    }
}

/// Stops come first and are looked at before anything is started.
async fn carry_out(
    context: &StepContext,
    target: &Target<'_>,
    observation: &Observation,
    work: Work,
    images: &mut PreparedImages,
    memory: &mut Memory,
) -> Result<Option<StepError>, StepError> {
    if !work.stops.is_empty() {
        stop::stop_containers(context, target.identity, &work.stops, memory).await?;
        return Ok(None);
    }
    post_start::begin(context, target, &work.post_starts, memory).await;
    let resized = Box::pin(resize::resize(context, target, &work.resizes, memory)).await;
    resize::note(context, target, &resized, memory);
    match resized {
        Ok(()) if !work.resizes.is_empty() => Ok(None),
        // Others are started, and files refreshed, all the same.
        resized => {
            let failure = start_or_refresh(context, target, observation, work, images, memory);
            let failure = failure.await?;
            Ok(match failure {
                Some(failure) => Some(failure.and_before(resized.err())),
                None => resized.err(),
            })
        }
    }
}

async fn start_or_refresh(
    context: &StepContext,
    target: &Target<'_>,
    observation: &Observation,
    work: Work,
    images: &mut PreparedImages,
    memory: &mut Memory,
) -> Result<Option<StepError>, StepError> {
    if work.starts.is_empty() {
        return Ok(volumes::refresh(context, target, &work.refreshes, memory)
            .await
            .err());
    }
    let resources = pod_cgroup::around(target, &work.resizes);
    pod_cgroup::ensure(context, target, resources, memory).await?;
    volumes::make(context, target, &work.volumes, memory).await?;
    let volumes = (&memory.volumes, &memory.objects);
    let prepared =
        containers::prepare_containers(context, target, observation, &work.starts, volumes).await?;
    Ok(start::start_all(context, target, &prepared, work.starts, images, memory).await)
}

/// Some containers could not be started; others may have been, or wait for
/// something else: until when is the answer.
async fn look_after_failure(
    context: &StepContext,
    target: &Target<'_>,
    input: &SyncInput,
    error: &StepError,
    memory: &mut Memory,
) -> Result<Option<UnixNanos>, StepError> {
    let observation = context
        .observe(target.identity, Some(target.pod), memory)
        .await?;
    let plan = next_plan(context, target, input, &observation, memory);
    publish(context, target, &observation, &plan, memory, &error.message);
    Ok(match plan {
        Plan::Work(work) => work.wake_at,
        _ => None,
    })
}

/// What the runtime has of the pod now; what is of no use any more is forgotten.
async fn look(
    context: &StepContext,
    target: &Target<'_>,
    memory: &mut Memory,
) -> Result<Observation, StepError> {
    let observation = context
        .observe(target.identity, Some(target.pod), memory)
        .await?;
    sandbox::adopt_cgroup(context, target, &observation, memory).await;
    memory.objects = context.objects.known(target.source_pod);
    post_start::take_ended(context, target, &observation, memory);
    memory.known.observed(&observation);
    memory.hooks.observed(&observation);
    memory.announced.retain(|announced| match announced {
        Announcement::BackOff(id) => observation.container(id).is_some(),
        Announcement::Stopping(_) | Announcement::Withheld(_) | Announcement::Resize => true,
    });
    memory.keeps_version = plan::keeps_version(&observation, target.started_with);
    if let Some(held) = plan::held(&observation, target.started_with) {
        announce(context, target.identity, held, memory);
    }
    context
        .save_record_if_changed(target.identity, memory)
        .await;
    Ok(observation)
}

fn next_plan(
    context: &StepContext,
    target: &Target<'_>,
    input: &SyncInput,
    observation: &Observation,
    memory: &Memory,
) -> Plan {
    context.plan_for(
        Goal::Run {
            pod: target.pod,
            started_with: target.started_with,
            refused: target.refused.as_ref(),
        },
        &input.probe_verdicts,
        observation,
        memory,
    )
}

/// The next plan. One that makes something is made again when all objects are known that
/// the pod refers to; no other plan waits for them.
///
/// # Errors
/// When the pod is another one by what is known now.
async fn plan_with_objects(
    context: &StepContext,
    target: &Target<'_>,
    input: &SyncInput,
    observation: &Observation,
    memory: &mut Memory,
) -> Result<Plan, StepError> {
    let mut plan = next_plan(context, target, input, observation, memory);
    let waits = plan.makes_something() && memory.objects.has_unknown();
    if waits && !memory.has_waited_for_objects {
        memory.has_waited_for_objects = true;
        memory.objects = context.objects.settled(target.source_pod).await;
        plan = next_plan(context, target, input, observation, memory);
    }
    if plan.makes_something() && has_found_claim(target.pod, &memory.objects) {
        // It is a path of the node now, which the node policy has not judged yet. When it
        // was found the doorbell rang, so nothing waits for the retry.
        let reason = "a persistentvolume has just been found, and the pod is looked at again";
        return Err(StepError::new(reason, Retry::SOON));
    }
    Ok(plan)
}

/// Says once why nothing new is made of a pod, or not what its source has now.
fn announce(context: &StepContext, pod: &PodIdentity, why: Refused, memory: &mut Memory) {
    let Refused {
        reason, message, ..
    } = why;
    let announcement = Announcement::Withheld(message.clone());
    if memory.announced.insert(announcement) {
        tracing::warn!(%pod, reason, message, "something of a pod is withheld");
        context.events.warning(pod, "", reason, &message);
    }
}

fn announce_waits(context: &StepContext, target: &Target<'_>, work: &Work, memory: &mut Memory) {
    for wait in &work.waits {
        let announcement = Announcement::BackOff(wait.container_id.clone());
        if memory.announced.insert(announcement) {
            let message = format!(
                "Back-off restarting failed container {} in pod {}_{}({})",
                wait.name,
                target.identity.name(),
                target.identity.namespace(),
                target.identity.uid()
            );
            context
                .events
                .warning(target.identity, &wait.name, "BackOff", &message);
        }
    }
}

fn publish(
    context: &StepContext,
    target: &Target<'_>,
    observation: &Observation,
    plan: &Plan,
    memory: &mut Memory,
    error: &str,
) {
    resize::announce(context, target, plan, memory);
    let mut reasons = memory.reasons.clone();
    let held = plan::held(observation, target.started_with);
    let refused = target.refused.as_ref().or(held.as_ref());
    if let Some(refused) = refused {
        reasons.extend(target.pod.all_containers().map(|(_, spec)| {
            let why = (refused.reason.to_owned(), refused.message.clone());
            (spec.name.clone(), why)
        }));
    }
    if let Plan::Work(work) = plan {
        for wait in &work.waits {
            let message = wait.message(target.identity);
            reasons.insert(wait.name.clone(), ("CrashLoopBackOff".to_owned(), message));
        }
    }
    let circumstances = Circumstances {
        pod: target.pod,
        observation,
        known: &memory.known,
        refused,
    };
    let findings = Findings {
        observation: observation.clone(),
        in_post_start: memory.known.in_post_start(observation),
        resources: resize::known(observation, memory),
        resize: resize::is_under_way(plan).then(|| memory.resize_error.clone().unwrap_or_default()),
        waiting: publisher::waiting(target.pod, observation, &reasons),
        left_of_earlier: plan::left_of_earlier(target.pod, observation)
            .map(|container| container.id.clone())
            .collect(),
        restarted_after_kill: plan::restarted_after_kill(target.pod, observation, &memory.known)
            .map(|container| container.id.clone())
            .collect(),
        is_refused: refused.is_some(),
        sync_error: error.to_owned(),
        last_plan: plan::describe(plan, &circumstances, context.clock.now()),
        is_observed: true,
    };
    context.publisher.findings(target.identity.uid(), findings);
}
