//! What the node is, for admission and for the Node's status.

use std::time::Duration;

use bulkhead_api::v1;
use cri::v1 as runtime;
use ipc::limits::truncate;
use tonic::Status;

use super::shared::Shared;
use crate::readiness;

/// How long the runtime may take to say how it is, within the caller's 5 s.
const STATUS_DEADLINE: Duration = Duration::from_secs(3);

/// Most handlers that are reported; a runtime has a few.
const MAX_HANDLERS: usize = 64;

/// Longest name of a handler.
const MAX_HANDLER_BYTES: usize = 256;

/// Longest text of why the runtime is not ready.
const MAX_ERROR_BYTES: usize = 4 << 10;

/// What the node has, and what it suffers from.
pub(super) async fn capacity(shared: &Shared) -> Result<v1::NodeCapacity, Status> {
    capacity_with(shared, &runtime_status(shared).await).await
}

/// All of it.
pub(super) async fn facts(shared: &Shared) -> Result<v1::NodeFacts, Status> {
    let version = tokio::time::timeout(STATUS_DEADLINE, shared.runtime.reads.version());
    let (status, version) = tokio::join!(runtime_status(shared), version);
    let capacity = capacity_with(shared, &status).await?;
    let version = version.ok().and_then(Result::ok);
    let container_runtime_version = version.map(|version| {
        let (name, version) = (version.runtime_name, version.runtime_version);
        format!("{name}://{}", without_suffix(&version))
    });
    let of_host = |error| Status::internal(telemetry::chain(&error));
    let identity = shared.host.identity().await.map_err(of_host)?;
    let machine = shared.host.capacity().await.map_err(of_host)?;
    let (images, network_is) = match &status {
        Ok(status) => (
            shared.node_images.get(&*shared.runtime.reads).await,
            readiness::network(status),
        ),
        Err(_) => (shared.node_images.known().await, Ok(())),
    };
    let runtime_answers = status.is_ok();
    let status = status.unwrap_or_default();
    Ok(v1::NodeFacts {
        capacity: Some(capacity),
        container_runtime_version: container_runtime_version.unwrap_or_default(),
        os_image: identity.os_image,
        machine_id: identity.machine_id,
        system_uuid: identity.system_uuid,
        machine_boot_id: identity.boot_id,
        network_error: unmet(network_is),
        runtime_answers,
        swap_bytes: machine.swap_bytes,
        images,
        runtime_handlers: handlers(status.runtime_handlers),
        runtime_features: status.features.map(|features| v1::NodeRuntimeFeatures {
            supplemental_groups_policy: features.supplemental_groups_policy,
        }),
    })
}

/// A version as a kubelet says it: of one that is not semantic the numbers.
fn without_suffix(version: &str) -> &str {
    let version = version.trim_start_matches('v');
    let end = version.find(|it: char| !it.is_ascii_digit() && it != '.');
    let end = end.unwrap_or(version.len());
    match version.get(end..).unwrap_or_default().chars().next() {
        Some('-' | '+') | None => version,
        Some(_) => version.get(..end).unwrap_or(version),
    }
}

async fn capacity_with(
    shared: &Shared,
    status: &Result<runtime::StatusResponse, String>,
) -> Result<v1::NodeCapacity, Status> {
    let capacity = shared.host.capacity().await;
    let capacity = capacity.map_err(|error| Status::internal(telemetry::chain(&error)))?;
    let features = status.as_ref().ok().and_then(|it| it.features.as_ref());
    let runtime_is = match status {
        Ok(status) => readiness::runtime(status),
        Err(why) => Err(format!("container runtime is down: {why}")),
    };
    Ok(v1::NodeCapacity {
        boot_id: shared.boot_id.clone(),
        cpu_millis: capacity.cpu_millis,
        memory_bytes: capacity.memory_bytes,
        ephemeral_storage_bytes: capacity.ephemeral_storage_bytes,
        runtime_error: unmet(runtime_is),
        kernel_release: capacity.kernel_release,
        app_armor: capacity.app_armor,
        supplemental_groups_policy: features.is_some_and(|it| it.supplemental_groups_policy),
        node_conditions: shared.conditions.names(),
        huge_pages: capacity.huge_pages.into_iter().collect(),
        // A pool that stops is asked again after its restart.
        shuts_down: shared.pool.shuts_down().await.unwrap_or_default(),
    })
}

/// How the runtime says it is, or why it does not.
async fn runtime_status(shared: &Shared) -> Result<runtime::StatusResponse, String> {
    tokio::time::timeout(STATUS_DEADLINE, shared.runtime.reads.status(false))
        .await
        .map_err(|_| "the runtime does not answer".to_owned())?
        .map_err(|error| telemetry::chain(&error))
}

/// Why a condition is not met; empty when it is.
fn unmet(condition: Result<(), String>) -> String {
    let mut why = condition.err().unwrap_or_default();
    truncate(&mut why, MAX_ERROR_BYTES);
    why
}

/// Handlers by name: a runtime lists them in any order.
fn handlers(listed: Vec<runtime::RuntimeHandler>) -> Vec<v1::NodeRuntimeHandler> {
    let listed = listed.into_iter();
    let named = listed.filter(|handler| handler.name.len() <= MAX_HANDLER_BYTES);
    let mut handlers: Vec<_> = named
        .map(|handler| {
            let features = handler.features.unwrap_or_default();
            v1::NodeRuntimeHandler {
                name: handler.name,
                recursive_read_only_mounts: features.recursive_read_only_mounts,
                user_namespaces: features.user_namespaces,
            }
        })
        .collect();
    handlers.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    handlers.truncate(MAX_HANDLERS);
    handlers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_is_not_semantic_is_its_numbers() {
        for (version, expected) in [
            ("v2.1.0", "2.1.0"),
            ("2.1.0-rc.1+x", "2.1.0-rc.1+x"),
            ("1.6.20~ds1", "1.6.20"),
        ] {
            assert_eq!(without_suffix(version), expected);
        }
    }
}
