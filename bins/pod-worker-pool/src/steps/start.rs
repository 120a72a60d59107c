//! Starting containers: image, creation, start, with what people are told on the
//! way.

use std::collections::BTreeMap;
use std::sync::Arc;

use cri::{RuntimeErrorKind, v1};
use cri_requests::{ContainerInput, TerminationLog};
use futures_util::StreamExt;
use futures_util::stream;
use pod::accessors::sidecar_index;
use pod::core::Container as ContainerSpec;
use pod::ephemeral;
use pod_lifecycle::annotations;
use pod_lifecycle::instance_resources::InstanceResources;
use pod_lifecycle::name_conflict::NextName;
use pod_lifecycle::plan::{Discard, NewInstance, Start, StartHow};

use super::calls::Calls;
use super::containers::Prepared;
use super::context::StepContext;
use super::created::Removal;
use super::error::{Retry, StepError};
use super::image::VolumeImages;
use super::memory::Memory;
use super::pulls::PodPulls;
use super::start_error::StartError;
use super::target::{PreparedImages, Target, spec_of};
use super::{created, image, of_volumes, runtime_handler};
use crate::abandoned_start;
use crate::image::Image;

/// Containers of one pod that are started at once. Most pods have fewer; one with
/// hundreds must not take the runtime for itself.
const PARALLEL_STARTS: usize = 8;

/// How far a start came.
enum Progress {
    Started,
    /// Made, to be started in a step of its own: it has a postStart hook.
    Made,
    /// Its image is being pulled.
    AwaitsImage,
}

/// What all starts of a pod share.
struct Beside {
    calls: Calls,
    pulls: PodPulls,
}

/// Starts containers, several at once. One that fails or whose image is to be
/// pulled does not hold up the others; what failed is the answer. Those after one that
/// has a postStart hook are left to a later step, unless its start fails.
pub(super) async fn start_all(
    context: &StepContext,
    target: &Target<'_>,
    prepared: &Prepared,
    starts: Vec<Start>,
    images: &mut PreparedImages,
    memory: &mut Memory,
) -> Option<StepError> {
    note_starts(context, target, &starts, memory).await;
    let mut failure: Option<StepError> = None;
    let mut left = starts;
    while !left.is_empty() {
        let end = left.iter().position(|start| start.has_post_start);
        let rest = left.split_off(end.map_or(left.len(), |end| end + 1));
        let last = left.last().map(|start| start.name.clone());
        let results = start_group(context, target, prepared, left, images, memory).await;
        let mut waits_for_hook = false;
        for (name, result) in results {
            match result {
                Ok(progress) => {
                    waits_for_hook |= end.is_some() && last.as_ref() == Some(&name);
                    if matches!(progress, Progress::Started) {
                        memory.reasons.remove(&name);
                    }
                }
                Err(error) => {
                    let failed = failed_start(context, target, name, error, memory);
                    failure = Some(failed.and_before(failure));
                }
            }
        }
        if waits_for_hook {
            break;
        }
        left = rest;
    }
    // Nobody is told that the pod failed before the record says so.
    context
        .save_record_if_changed(target.identity, memory)
        .await;
    failure
}

/// Before an instance is started it is on disk that its postStart hook is due, if it has
/// one, and no longer that an earlier start was refused.
async fn note_starts(
    context: &StepContext,
    target: &Target<'_>,
    starts: &[Start],
    memory: &mut Memory,
) {
    let mut is_new = false;
    for start in starts {
        if let StartHow::Resume { container_id, .. } = &start.how {
            is_new |= memory.known.note_start(container_id, start.has_post_start);
        }
    }
    if is_new {
        memory.update_record();
        context.save_record(target.identity, memory).await;
    }
}

/// Starts containers of which none waits for another.
async fn start_group(
    context: &StepContext,
    target: &Target<'_>,
    prepared: &Prepared,
    starts: Vec<Start>,
    images: &mut PreparedImages,
    memory: &mut Memory,
) -> Vec<(String, Result<Progress, StartError>)> {
    let beside = Beside {
        calls: memory.calls.clone(),
        pulls: memory.pulls.clone(),
    };
    for start in &starts {
        let names = &mut memory.known.next_instances;
        names.entry(start.name.clone()).or_default();
    }
    // Changed in place: what is known of a name outlives a step that is dropped.
    let names = memory.known.next_instances.iter_mut();
    let mut names: BTreeMap<&String, &mut NextName> = names.collect();
    let beside = &beside;
    let starts: Vec<_> = starts
        .into_iter()
        .filter_map(|start| {
            let next_name = names.remove(&start.name)?;
            let image = images.remove(&start.name);
            Some(async move {
                let result = start_one(
                    context,
                    target,
                    prepared,
                    (&start, next_name),
                    image,
                    beside,
                )
                .await;
                (start.name, result)
            })
        })
        .collect();
    let results: Vec<(String, Result<Progress, StartError>)> = stream::iter(starts)
        .buffer_unordered(PARALLEL_STARTS)
        .collect()
        .await;
    let names = &mut memory.known.next_instances;
    names.retain(|_, next_name| *next_name != NextName::default());
    results
}

fn failed_start(
    context: &StepContext,
    target: &Target<'_>,
    name: String,
    error: StartError,
    memory: &mut Memory,
) -> StepError {
    if let Some(id) = error.refused_start.clone() {
        memory.known.note_refused_start(id);
    }
    if !error.has_name_conflict && !error.was_forestalled {
        let message = format!("Error: {}", error.announced_as.unwrap_or(&error.message));
        context
            .events
            .warning(target.identity, &name, "Failed", &message);
    }
    let message = format!(
        "failed to start container {name:?}: {}: {}",
        error.reason, error.message
    );
    let reason = (error.reason, error.message);
    memory.reasons.insert(name, reason);
    StepError::new(message, error.retry)
}

async fn start_one(
    context: &StepContext,
    target: &Target<'_>,
    prepared: &Prepared,
    (start, next_name): (&Start, &mut NextName),
    image: Option<Result<Image, StartError>>,
    beside: &Beside,
) -> Result<Progress, StartError> {
    let (id, restart_count) = match &start.how {
        StartHow::Resume {
            container_id,
            restart_count,
        } => {
            // It has its name, and its image: one that was kept is not for the
            // instance after it.
            next_name.used();
            beside.pulls.forget_ended(&start.name);
            (container_id.clone(), *restart_count)
        }
        StartHow::Create(instance) => {
            let name = (start.name.as_str(), next_name);
            let made = make_instance(context, target, prepared, name, instance, image, beside);
            match made.await? {
                Some(_) if start.has_post_start => return Ok(Progress::Made),
                Some(made) => made,
                None => return Ok(Progress::AwaitsImage),
            }
        }
    };
    let runtime = Arc::clone(&context.runtime.changes);
    let starting = id.clone();
    let started = beside.calls.run("StartContainer", async move {
        runtime.start_container(&starting).await
    });
    let is_resumed = matches!(start.how, StartHow::Resume { .. });
    started
        .await
        .map_err(|error| StartError::of_start(&id, is_resumed, error))?;
    let events = &context.events;
    events.normal(target.identity, &start.name, "Started", "Container started");
    let linked = context
        .host
        .link_log(target.identity, &start.name, &id, restart_count);
    if let Err(error) = linked.await {
        // Old log shippers miss it; the container itself is fine.
        tracing::warn!(pod = %target.identity, error = telemetry::chain(&error), "no log link");
    }
    Ok(Progress::Started)
}

/// Makes an instance as soon as its image is there: its id and its number.
async fn make_instance(
    context: &StepContext,
    target: &Target<'_>,
    prepared: &Prepared,
    (name, next_name): (&str, &mut NextName),
    instance: &NewInstance,
    image: Option<Result<Image, StartError>>,
    beside: &Beside,
) -> Result<Option<(String, u32)>, StartError> {
    let (config, objects) = (&prepared.sandbox_config, &prepared.objects);
    let image = match image {
        Some(image) => Some(image?),
        None => image::prepare_image(context, target, name, config, objects, &beside.pulls).await?,
    };
    let of_volumes =
        image::prepare_volume_images(context, target, name, config, objects, &beside.pulls).await;
    let (image, of_volumes) = match (image, of_volumes) {
        (Some(image), Ok(Some(of_volumes))) => (image, of_volumes),
        (image, of_volumes) => {
            // What is there is not pulled again when the rest is there too.
            if let Some(image) = image {
                beside.pulls.keep(&*spec_of(target, name)?, image);
            }
            if let Some(of_volumes) = of_volumes? {
                image::keep_volume_images(target, name, of_volumes, &beside.pulls)?;
            }
            return Ok(None);
        }
    };
    let what = (instance, &image, &of_volumes);
    let created = create(
        context,
        target,
        prepared,
        (name, next_name),
        what,
        &beside.calls,
    );
    let created = created.await;
    if created.as_ref().is_err_and(|error| error.has_name_conflict) {
        // They are pulled once, not with every look at the name.
        let spec = spec_of(target, name)?;
        beside.pulls.keep(&spec, image);
        image::keep_volume_images(target, name, of_volumes, &beside.pulls)?;
    }
    Ok(Some((created?, instance.restart_count)))
}

async fn create(
    context: &StepContext,
    target: &Target<'_>,
    prepared: &Prepared,
    (name, next_name): (&str, &mut NextName),
    what @ (instance, ..): (&NewInstance, &Image, &VolumeImages),
    calls: &Calls,
) -> Result<String, StartError> {
    for discard in &instance.discard {
        discard_instance(context, discard).await?;
    }
    let config = container_config(context, target, prepared, name, what).await?;
    let runtime = Arc::clone(&context.runtime.changes);
    let sandbox_id = prepared.sandbox_id.clone();
    let sandbox_config = prepared.sandbox_config.clone();
    let call = next_name.call(instance.restart_count);
    let created = calls.run("CreateContainer", async move {
        runtime
            .create_container(&sandbox_id, config, sandbox_config)
            .await
    });
    let id = created.await.map_err(|error| {
        if error.kind == RuntimeErrorKind::AlreadyExists {
            next_name.refused(call, context.moment().monotonic);
        }
        StartError::of_call("CreateContainerError", error)
    })?;
    next_name.used();
    context.observer.note_owner(&id, target.identity);
    let events = &context.events;
    events.normal(target.identity, name, "Created", "Container created");
    Ok(id)
}

/// Removes an instance that never ran.
async fn discard_instance(context: &StepContext, discard: &Discard) -> Result<(), StartError> {
    let id = &discard.container_id;
    let removed = match discard.start_was_abandoned {
        true => {
            let changes = &*context.runtime.changes;
            created::removal(id, abandoned_start::remove(changes, id).await)
        }
        false => created::remove_created(context, id).await,
    };
    match removed {
        Ok(Removal::Removed | Removal::Kept) => Ok(()),
        Ok(Removal::Started) => Err(StartError::of_other_start()),
        Err(error) => Err(StartError::of_call("CreateContainerError", error)),
    }
}

/// The instance whose processes an ephemeral container is to see, in the kubelet's words.
fn process_namespace_of<'a>(
    target: &Target<'_>,
    prepared: &'a Prepared,
    name: &str,
) -> Result<Option<&'a str>, StartError> {
    let Some(other) = ephemeral::target_of(target.pod, name) else {
        return Ok(None);
    };
    let instance = prepared.instances.get(other).ok_or_else(|| {
        let message = format!("unable to find target container {other:?}");
        StartError::new("CreateContainerConfigError", message, Retry::LATER)
    })?;
    Ok(Some(instance))
}

async fn container_config(
    context: &StepContext,
    target: &Target<'_>,
    prepared: &Prepared,
    name: &str,
    (instance, image, volume_images): (&NewInstance, &Image, &VolumeImages),
) -> Result<v1::ContainerConfig, StartError> {
    const REASON: &str = "CreateContainerConfigError";
    let spec = spec_of(target, name)?;
    let spec = &*spec;
    let files = context
        .host
        .make_container_files(target.identity, name, instance.restart_count)
        .await
        .map_err(|error| StartError::of_step(REASON, &StepError::from(error)))?;
    let termination_log = spec
        .termination_message_path
        .as_deref()
        .filter(|path| !path.is_empty())
        .map(|path| TerminationLog {
            host_path: files.termination_log,
            container_path: path.to_owned(),
        });
    let failed = |error: StepError| StartError::of_step(REASON, &error);
    let recursive_read_only = match cri_requests::wants_recursive_read_only(spec) {
        true => {
            let features = runtime_handler::features(context, target.pod).await;
            features.map_err(failed)?.recursive_read_only_mounts
        }
        false => false,
    };
    let runtime = match cri_requests::depends_on_version(target.pod, spec) {
        true => Some(context.runtime.reads.version().await),
        false => None,
    };
    let runtime = runtime.transpose();
    let runtime = runtime.map_err(|error| StartError::of_call(REASON, error))?;
    let env_files = of_volumes::read_env_files(context, target, spec, &prepared.volumes);
    let env_files = env_files.await.map_err(failed)?;
    let services = context.services.variables(target.pod, target.source).await;
    let services =
        services.map_err(|error| StartError::new(REASON, error.to_string(), Retry::SOON))?;
    let volume_images = image::ids(volume_images);
    let input = ContainerInput {
        pod: target.pod,
        container: spec,
        process_namespace_of: process_namespace_of(target, prepared, name)?,
        attempt: instance.restart_count,
        image_id: &image.id,
        image_user: &image.user,
        node: &context.facts,
        ids: prepared.ids,
        pod_ips: &prepared.pod_ips,
        volumes: &prepared.volumes,
        sub_paths: &BTreeMap::new(),
        recursive_read_only,
        runtime: runtime.as_ref(),
        service_variables: &services,
        env_files: &env_files,
        volume_images: &volume_images,
        objects: &prepared.objects,
        hosts_file: prepared.hosts_file.clone(),
        termination_log,
    };
    let sub_paths = of_volumes::bind_sub_paths(context, target, &input)
        .await
        .map_err(failed)?;
    let mut config = cri_requests::container_config(&ContainerInput {
        sub_paths: &sub_paths,
        ..input
    })
    .map_err(|error| failed(error.into()))?;
    note(&mut config.annotations, target, spec, instance);
    note_images(&mut config.annotations, &volume_images);
    Ok(config)
}

/// What must be known of an instance as long as there is one.
fn note(
    noted: &mut BTreeMap<String, String>,
    target: &Target<'_>,
    spec: &ContainerSpec,
    instance: &NewInstance,
) {
    let mut note = |key: &str, value: String| noted.insert(key.to_owned(), value);
    let wait = instance.restart_wait.as_secs();
    note(annotations::RESTART_WAIT, wait.to_string());
    if instance.round > 0 {
        note(annotations::ROUND, instance.round.to_string());
    }
    let resources = InstanceResources::of(target.pod, spec);
    // Numbers are always JSON.
    if let Ok(resources) = serde_json::to_string(&resources) {
        note(annotations::RESOURCES, resources);
    }
    if let Some(index) = sidecar_index(target.pod, &spec.name) {
        note(annotations::SIDECAR, index.to_string());
    }
}

/// The images that are mounted into it, which it uses as long as there is one.
fn note_images(noted: &mut BTreeMap<String, String>, volume_images: &BTreeMap<String, String>) {
    let images: Vec<&String> = volume_images.values().collect();
    // Texts are always JSON.
    if let (false, Ok(images)) = (images.is_empty(), serde_json::to_string(&images)) {
        noted.insert(annotations::VOLUME_IMAGES.to_owned(), images);
    }
}
