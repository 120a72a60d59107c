//! Gives containers other CPU and memory while they run.
//!
//! The pod's cgroup holds what there is before and after each call: it grows first and
//! shrinks last, as in the kubelet. That a change is begun is on disk before it is, and
//! that it has ended after all of it: one that was cut short anywhere is made once more as
//! a whole, whatever the pod wants by then.

use std::borrow::Cow;
use std::collections::BTreeMap;

use cri::v1;
use pod::resources::PodCgroupResources;
use pod::{Pod, PodExt, PodIdentity, resize_event};
use pod_lifecycle::instance_resources::{InstanceResources, with_kept_resources, with_resources};
use pod_lifecycle::observation::Observation;
use pod_lifecycle::plan::{Plan, Resize};
use pod_lifecycle::stop::KillReason;

use super::context::StepContext;
use super::error::{Retry, StepError};
use super::memory::{Announcement, Memory};
use super::pod_cgroup;
use super::target::Target;

/// The pod as it is to be now: while the node has no room for what it is to have, its
/// containers keep what they were last to have.
pub(super) async fn in_force<'a>(
    context: &StepContext,
    identity: &PodIdentity,
    pod: Cow<'a, Pod>,
    has_room: bool,
    memory: &mut Memory,
) -> Result<Cow<'a, Pod>, StepError> {
    if has_room {
        memory.known.keep_no_resources(&pod);
        return Ok(pod);
    }
    let observation = context.observe(identity, Some(&pod), memory).await?;
    memory.known.keep_resources(&pod, &observation);
    context.save_record_if_changed(identity, memory).await;
    let kept = memory.known.kept_resources();
    Ok(Cow::Owned(with_kept_resources(&pod, kept)))
}

/// What instances run with, by id; while a change is under way, what they had before it.
pub(super) fn known(
    observation: &Observation,
    memory: &Memory,
) -> BTreeMap<String, InstanceResources> {
    let shown = observation.containers.iter();
    shown
        .filter_map(|it| Some((it.id.clone(), memory.known.resources(it)?.now)))
        .collect()
}

/// Whether a plan gives containers something else, or stops them for that.
pub(super) fn is_under_way(plan: &Plan) -> bool {
    let Plan::Work(work) = plan else { return false };
    let mut stops = work.stops.iter();
    !work.resizes.is_empty() || stops.any(|it| it.reason == Some(KillReason::ResizeRestart))
}

/// Tells people that changes begin, and that they have ended; as a kubelet does.
pub(super) fn announce(
    context: &StepContext,
    target: &Target<'_>,
    plan: &Plan,
    memory: &mut Memory,
) {
    if is_under_way(plan) {
        if memory.announced.insert(Announcement::Resize) {
            let message = resize_event::message("Pod resize started", target.pod, "");
            let events = &context.events;
            events.normal(target.identity, "", "ResizeStarted", &message);
        }
        return;
    }
    let is_settled = matches!(plan, Plan::Work(work) if work.starts.is_empty());
    if is_settled && memory.announced.remove(&Announcement::Resize) {
        memory.resize_error = None;
        let message = resize_event::message("Pod resize completed", target.pod, "");
        let events = &context.events;
        events.normal(target.identity, "", "ResizeCompleted", &message);
    }
}

/// Notes what an attempt came to, and tells people when the first of several fails: the
/// reasons of the others, which may have another figure each, are in the pod's condition.
pub(super) fn note(
    context: &StepContext,
    target: &Target<'_>,
    resized: &Result<(), StepError>,
    memory: &mut Memory,
) {
    let error = resized.as_ref().err().map(|error| error.message.clone());
    if let (Some(error), None) = (&error, &memory.resize_error) {
        let message = resize_event::message("Pod resize error", target.pod, error);
        let events = &context.events;
        events.warning(target.identity, "", "ResizeError", &message);
    }
    memory.resize_error = error;
}

/// Makes these changes. One that is refused holds up no other: a pool that was killed may
/// have made the others before, and what is told of them is right only once they are noted.
/// A container whose change was refused, and of which it is not known whether it got another
/// change before, gets the most that it may have.
pub(super) async fn resize(
    context: &StepContext,
    target: &Target<'_>,
    resizes: &[Resize],
    memory: &mut Memory,
) -> Result<(), StepError> {
    let (mut possible, mut refused, mut refusal) = (Vec::new(), Vec::new(), None);
    for resize in resizes {
        match check_memory(context, resize).await {
            Ok(()) => possible.push(resize.clone()),
            Err(error) => {
                if memory.known.may_be_resized(&resize.container_id) {
                    let to = resize.from;
                    possible.push(Resize {
                        to,
                        ..resize.clone()
                    });
                }
                refused.push(resize.clone());
                refusal.get_or_insert(error);
            }
        }
    }
    if !possible.is_empty() {
        let during = pod_cgroup::around(target, resizes);
        let made = make(context, target, &possible, (during, refused), memory).await;
        if let Err(error) = made {
            return Err(error.and_before(refusal));
        }
    }
    refusal.map_or(Ok(()), Err)
}

/// Makes all that the runtime does not refuse. The pod's cgroup is given `during` meanwhile,
/// and afterwards what holds those too that are `not_made`.
async fn make(
    context: &StepContext,
    target: &Target<'_>,
    resizes: &[Resize],
    (during, mut not_made): (PodCgroupResources, Vec<Resize>),
    memory: &mut Memory,
) -> Result<(), StepError> {
    for resize in resizes {
        let (from, to) = (resize.from, resize.to);
        memory.known.note_resize(&resize.container_id, from, to);
    }
    context
        .save_record_if_changed(target.identity, memory)
        .await;
    pod_cgroup::ensure(context, target, during, memory).await?;
    let (mut made, mut failure) = (Vec::new(), None);
    for resize in resizes {
        match update(context, target, resize).await {
            Ok(()) => made.push(resize),
            Err(error) => {
                not_made.push(resize.clone());
                failure.get_or_insert(error);
            }
        }
    }
    let after = pod_cgroup::around(target, &not_made);
    pod_cgroup::ensure(context, target, after, memory).await?;
    for resize in made {
        memory.known.note_resized(&resize.container_id, resize.to);
        tracing::info!(
            pod = %target.identity,
            container = resize.name,
            from = ?resize.from,
            to = ?resize.to,
            "container resized"
        );
    }
    memory.update_record();
    context.save_record(target.identity, memory).await;
    failure.map_or(Ok(()), Err)
}

async fn update(
    context: &StepContext,
    target: &Target<'_>,
    resize: &Resize,
) -> Result<(), StepError> {
    let with = BTreeMap::from([(resize.name.as_str(), resize.to)]);
    let found = |pod: &Pod| {
        let mut all = pod.all_containers().map(|(_, spec)| spec);
        all.find(|spec| spec.name == resize.name).cloned()
    };
    let mut pod = Cow::Borrowed(target.pod);
    let mut spec = found(&pod);
    if spec.as_ref().map(|spec| InstanceResources::of(&pod, spec)) != Some(resize.to) {
        pod = Cow::Owned(with_resources(target.pod, &with));
        spec = found(&pod);
    }
    let spec = spec.ok_or_else(|| failed(resize, "the pod has no such container"))?;
    let resources = cri_requests::changed_container_resources(&pod, &spec, &context.facts);
    let id = &resize.container_id;
    let changes = &context.runtime.changes;
    let updated = changes.update_container_resources(id, resources);
    updated
        .await
        .map_err(|error| failed(resize, &error.to_string()))
}

/// A limit below what a container uses is not set: the kernel would refuse it, or kill
/// the container.
async fn check_memory(context: &StepContext, resize: &Resize) -> Result<(), StepError> {
    let (from, to) = (resize.from.memory_limit_bytes, resize.to.memory_limit_bytes);
    if to == 0 || (from != 0 && to >= from) {
        return Ok(());
    }
    let reads = &context.runtime.reads;
    let stats = reads.container_stats(&resize.container_id).await;
    let stats = stats.map_err(|error| failed(resize, &error.to_string()))?;
    match used(&stats) {
        None => Err(failed(resize, "missing container memory usage")),
        Some(used) if used >= to.unsigned_abs() => Err(failed(
            resize,
            &format!(
                "attempting to set container {:?} memory limit ({to}) below current usage ({used})",
                resize.name
            ),
        )),
        Some(_) => Ok(()),
    }
}

/// With what the kernel keeps of files for it, or without where the runtime does not tell.
fn used(stats: &v1::ContainerStats) -> Option<u64> {
    let memory = stats.memory.as_ref()?;
    let used = memory.usage_bytes.as_ref();
    Some(used.or(memory.working_set_bytes.as_ref())?.value)
}

fn failed(resize: &Resize, why: &str) -> StepError {
    let message = format!("cannot resize container {:?}: {why}", resize.name);
    StepError::new(message, Retry::LATER)
}
