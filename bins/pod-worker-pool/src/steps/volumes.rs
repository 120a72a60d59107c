//! Making a pod's volumes and refreshing those of files, as the plan says.

use std::collections::BTreeMap;
use std::time::Duration;

use node_host::NodeError;
use pod_volumes::{ReadyVolume, Volume, VolumeSpec, WrittenFiles};
use tokio::time::timeout;

use super::context::StepContext;
use super::error::{Retry, StepError};
use super::memory::Memory;
use super::target::Target;

/// How long a step waits for work on the pod's volumes. It goes on beside that, and later
/// steps find what it has made: a file system that hangs must not hold up a probe's verdict.
const VOLUMES_WAIT: Duration = Duration::from_secs(10);

/// How long a step waits for a refresh. It goes on beside that: a file system that hangs
/// must not hold up a stop.
const REFRESH_WAIT: Duration = Duration::from_secs(2);

/// Makes volumes or finds them made, and notes where they are.
pub(super) async fn make(
    context: &StepContext,
    target: &Target<'_>,
    volumes: &[Volume],
    memory: &mut Memory,
) -> Result<(), StepError> {
    if volumes.is_empty() {
        return Ok(());
    }
    let rules = context.policy.host_path_rules(target.identity.uid());
    let rules = rules.ok_or_else(|| {
        // By a policy that came during this step: the next one says which rule.
        StepError::new("the node policy refuses the pod", Retry::SOON)
    })?;
    let failed = |message: String| {
        let events = &context.events;
        events.warning(target.identity, "", "FailedMount", &message);
        StepError::new(message, Retry::LATER)
    };
    let bytes = in_memory(volumes, memory);
    let reserved = context
        .files_in_memory
        .reserve(target.identity.uid(), bytes);
    reserved.map_err(|full| failed(full.to_string()))?;
    let made = context
        .host
        .make_volumes(target.identity, target.pod, volumes, &rules);
    let names: Vec<&str> = volumes.iter().map(|it| it.name.as_str()).collect();
    let late = format!("volumes are still being made: [{}]", names.join(" "));
    let made = in_time(&late, made).await;
    let mut made = made.map_err(|error| failed(error.message))?;
    let seen_at = context.clock.now();
    for Volume { name, spec } in volumes {
        if let Some(mounted) = made.remove(name) {
            if matches!(spec, VolumeSpec::Files(_)) {
                let spec = spec.clone();
                let written = WrittenFiles { spec, seen_at };
                memory.files.insert(name.clone(), written);
            }
            let spec = spec.clone();
            memory
                .volumes
                .insert(name.clone(), ReadyVolume { spec, mounted });
        }
    }
    Ok(())
}

/// What work on a volume comes to, unless it takes too long: then `late` is said.
pub(super) async fn in_time<Value>(
    late: &str,
    work: impl Future<Output = Result<Value, NodeError>>,
) -> Result<Value, StepError> {
    let done = timeout(VOLUMES_WAIT, work).await;
    let done = done.map_err(|_| StepError::new(late, Retry::LATER))?;
    Ok(done?)
}

/// What the files of the pod take in memory once these volumes are made.
fn in_memory(volumes: &[Volume], memory: &Memory) -> usize {
    let written = memory.files.iter();
    let mut specs: BTreeMap<&String, &VolumeSpec> = written
        .map(|(name, written)| (name, &written.spec))
        .collect();
    specs.extend(volumes.iter().map(|volume| (&volume.name, &volume.spec)));
    let sizes = specs.into_values().map(|spec| match spec {
        VolumeSpec::Files(files) if files.kind.is_in_memory() => files.size(),
        _ => 0,
    });
    sizes.sum()
}

/// Looks at volumes of files, and writes again those that are not as they should be.
pub(super) async fn refresh(
    context: &StepContext,
    target: &Target<'_>,
    volumes: &[Volume],
    memory: &mut Memory,
) -> Result<(), StepError> {
    for Volume { name, spec } in volumes {
        let known = memory.files.get(name);
        if known.is_some_and(|known| known.spec != *spec) {
            tracing::info!(pod = %target.identity, volume = name, "the files of a volume change");
        }
    }
    let made = timeout(REFRESH_WAIT, make(context, target, volumes, memory)).await;
    made.unwrap_or_else(|_| {
        let message = "volumes are still being refreshed".to_owned();
        Err(StepError::new(message, Retry::LATER))
    })
}
