//! containerd's own task service, for what its CRI service has lost sight of or does not
//! show.

use std::collections::BTreeSet;
use std::time::Duration;

use prost::Message as _;
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;

use super::call::call;
use super::deadlines::DEFAULT_DEADLINE;
use crate::events::KUBERNETES_NAMESPACE;
use crate::proto::containerd::runc::v1::ProcessDetails;
use crate::proto::containerd::services::tasks::v1::{
    DeleteTaskRequest, KillRequest, ListPidsRequest, tasks_client::TasksClient,
};
use crate::{RuntimeError, RuntimeErrorKind};

/// signal(7).
const SIGKILL: u32 = 9;

/// Waits between attempts to delete a task: what was killed takes a moment to end.
const WAITS: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(80),
    Duration::from_millis(300),
    Duration::from_millis(1000),
];

/// Kills and deletes the task of a container; whether there was one.
pub(super) async fn delete(
    client: &TasksClient<Channel>,
    container_id: &str,
) -> Result<bool, RuntimeError> {
    match kill(client, container_id).await {
        // Of a task whose process has ended or was never started it may fail as it
        // likes: whether the task goes, its deletion tells.
        Ok(()) => {}
        Err(error) if is_about_the_task(&error) => {}
        Err(error) => return Err(error),
    }
    let mut waits = WAITS.iter();
    loop {
        let message = DeleteTaskRequest {
            container_id: container_id.to_owned(),
        };
        let mut client = client.clone();
        let deleted = call("Delete", DEFAULT_DEADLINE, message, |request| {
            client.delete(in_kubernetes_namespace(request))
        });
        match (deleted.await, waits.next()) {
            (Ok(_), _) => return Ok(true),
            (Err(error), _) if error.is_not_found() => return Ok(false),
            (Err(error), Some(wait)) if is_about_the_task(&error) => {
                tracing::debug!(container_id, %error, "a task is not deleted yet");
                tokio::time::sleep(*wait).await;
            }
            (Err(error), _) => return Err(error),
        }
    }
}

async fn kill(client: &TasksClient<Channel>, container_id: &str) -> Result<(), RuntimeError> {
    let message = KillRequest {
        container_id: container_id.to_owned(),
        signal: SIGKILL,
        all: true,
    };
    let mut client = client.clone();
    call("Kill", DEFAULT_DEADLINE, message, |request| {
        client.kill(in_kubernetes_namespace(request))
    })
    .await
}

/// The ids of the commands that run in the task of a container.
pub(super) async fn running_commands(
    client: &TasksClient<Channel>,
    container_id: &str,
) -> Result<BTreeSet<String>, RuntimeError> {
    let message = ListPidsRequest {
        container_id: container_id.to_owned(),
    };
    let mut client = client.clone();
    let answer = call("ListPids", DEFAULT_DEADLINE, message, |request| {
        client.list_pids(in_kubernetes_namespace(request))
    })
    .await?;
    let details = answer.processes.into_iter().filter_map(|process| {
        let info = process.info?;
        ProcessDetails::decode(&*info.value).ok()
    });
    Ok(details.map(|details| details.exec_id).collect())
}

/// Whether containerd answered, and has something against this task.
fn is_about_the_task(error: &RuntimeError) -> bool {
    error.is_not_found() || error.kind == RuntimeErrorKind::AlreadyExists || error.is_refusal()
}

/// containerd's own services want to know whose tasks are meant: those of its CRI
/// service are in one namespace.
fn in_kubernetes_namespace<Message>(mut request: Request<Message>) -> Request<Message> {
    let namespace = MetadataValue::from_static(KUBERNETES_NAMESPACE);
    request
        .metadata_mut()
        .insert("containerd-namespace", namespace);
    request
}
