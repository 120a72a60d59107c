//! Runtime events: the CRI's own stream where the runtime has it, else containerd's
//! event service, made into one shape. Starts of commands are reported by containerd alone.
//!
//! Both are only a hint that something happened to a container; its state is asked for
//! separately.

use std::future::ready;
use std::pin::Pin;

use futures_util::{Stream, StreamExt, stream};
use prost::Message;

use crate::RuntimeError;
use crate::id::is_valid_id;
use crate::proto::containerd;
use crate::proto::runtime::v1::{ContainerEventResponse, ContainerEventType};

/// Where events come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventSource {
    /// `GetContainerEvents` of the CRI.
    Cri,
    /// containerd's event service.
    Containerd,
}

/// What happened to a container or sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was created.
    Created,
    /// It was started.
    Started,
    /// Its first process ended.
    Stopped,
    /// It was removed.
    Deleted,
    /// Another command was started in it, by whoever asked for that.
    CommandStarted,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeEvent {
    /// Of a container or of a sandbox: the consumer finds out which.
    pub container_id: String,
    /// What happened.
    pub kind: EventKind,
    /// The pod, when the event itself tells; else the consumer looks it up by id.
    pub pod_uid: Option<String>,
}

/// A running subscription. It ends with an error when the connection breaks, and then
/// events may have been missed.
pub struct RuntimeEvents {
    /// Where they come from.
    pub source: EventSource,
    /// The events; nothing follows an error.
    pub stream: Pin<Box<dyn Stream<Item = Result<RuntimeEvent, RuntimeError>> + Send>>,
}

impl std::fmt::Debug for RuntimeEvents {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RuntimeEvents")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// The namespace in which containerd keeps what the CRI made.
pub(crate) const KUBERNETES_NAMESPACE: &str = "k8s.io";

/// The topics that ring the doorbell. Sandboxes are tasks too, so their end is among
/// them. `/tasks/oom` is not: a container can make thousands a second whose children run
/// out of memory, and its own end is another event.
const TASK_TOPICS: [&str; 3] = ["/tasks/start", "/tasks/exit", "/tasks/delete"];

/// The topic of commands that were started.
const COMMAND_TOPIC: &str = "/tasks/exec-started";

/// One filter for each topic; containerd sends what matches any of them.
pub(crate) fn containerd_filters() -> Vec<String> {
    let topics = TASK_TOPICS.iter().chain([&COMMAND_TOPIC]);
    topics.map(|topic| filter(topic)).collect()
}

/// For commands alone.
pub(crate) fn command_filters() -> Vec<String> {
    vec![filter(COMMAND_TOPIC)]
}

fn filter(topic: &str) -> String {
    format!(r#"namespace=="{KUBERNETES_NAMESPACE}",topic=="{topic}""#)
}

/// The events of two streams; it ends when one of them does.
pub(crate) fn both(
    one: impl Stream<Item = Result<RuntimeEvent, RuntimeError>> + Send,
    other: impl Stream<Item = Result<RuntimeEvent, RuntimeError>> + Send,
) -> impl Stream<Item = Result<RuntimeEvent, RuntimeError>> + Send {
    let end = || stream::once(ready(None));
    let one = one.map(Some).chain(end());
    let other = other.map(Some).chain(end());
    stream::select(one, other)
        .take_while(|event| ready(event.is_some()))
        .filter_map(ready)
}

/// The event in a CRI message, unless it is malformed.
pub(crate) fn from_cri(response: ContainerEventResponse) -> Option<RuntimeEvent> {
    let kind = match ContainerEventType::try_from(response.container_event_type).ok()? {
        ContainerEventType::ContainerCreatedEvent => EventKind::Created,
        ContainerEventType::ContainerStartedEvent => EventKind::Started,
        ContainerEventType::ContainerStoppedEvent => EventKind::Stopped,
        ContainerEventType::ContainerDeletedEvent => EventKind::Deleted,
    };
    let pod_uid = response
        .pod_sandbox_status
        .and_then(|status| status.metadata)
        .map(|metadata| metadata.uid)
        .filter(|uid| !uid.is_empty());
    event(response.container_id, kind, pod_uid)
}

/// The same of commands alone.
pub(crate) fn command_from_containerd(
    envelope: containerd::types::Envelope,
) -> Option<RuntimeEvent> {
    from_containerd(envelope).filter(|event| event.kind == EventKind::CommandStarted)
}

/// The event in a containerd envelope; `None` for what says nothing about a container,
/// such as the end of an exec, and for what is malformed.
pub(crate) fn from_containerd(envelope: containerd::types::Envelope) -> Option<RuntimeEvent> {
    use containerd::events::{TaskDelete, TaskExecStarted, TaskExit, TaskStart};

    if envelope.namespace != KUBERNETES_NAMESPACE {
        return None;
    }
    let payload = envelope.event?;
    let bytes = payload.value.as_slice();
    match payload.type_url.rsplit('/').next()? {
        "containerd.events.TaskStart" => event(
            TaskStart::decode(bytes).ok()?.container_id,
            EventKind::Started,
            None,
        ),
        "containerd.events.TaskExecStarted" => event(
            TaskExecStarted::decode(bytes).ok()?.container_id,
            EventKind::CommandStarted,
            None,
        ),
        "containerd.events.TaskExit" => {
            let exit = TaskExit::decode(bytes).ok()?;
            let first_process = exit.id == exit.container_id || exit.id.is_empty();
            first_process.then(|| event(exit.container_id, EventKind::Stopped, None))?
        }
        "containerd.events.TaskDelete" => {
            let delete = TaskDelete::decode(bytes).ok()?;
            let first_process = delete.id.is_empty() || delete.id == delete.container_id;
            first_process.then(|| event(delete.container_id, EventKind::Deleted, None))?
        }
        _ => None,
    }
}

fn event(container_id: String, kind: EventKind, pod_uid: Option<String>) -> Option<RuntimeEvent> {
    is_valid_id(&container_id).then_some(RuntimeEvent {
        container_id,
        kind,
        pod_uid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use containerd::events::{TaskExit, TaskStart};
    use containerd::types::Envelope;

    fn envelope(namespace: &str, name: &str, message: &impl Message) -> Envelope {
        Envelope {
            timestamp: None,
            namespace: namespace.to_owned(),
            topic: String::new(),
            event: Some(prost_types::Any {
                type_url: name.to_owned(),
                value: message.encode_to_vec(),
            }),
        }
    }

    fn exit(container_id: &str, id: &str) -> TaskExit {
        TaskExit {
            container_id: container_id.into(),
            id: id.into(),
        }
    }

    #[test]
    fn the_end_of_a_container_is_an_event_and_the_end_of_an_exec_is_none() {
        let name = "containerd.events.TaskExit";
        let stopped = from_containerd(envelope("k8s.io", name, &exit("c1", "c1"))).unwrap();
        assert_eq!(stopped.kind, EventKind::Stopped);
        assert_eq!(stopped.container_id, "c1");
        assert_eq!(
            from_containerd(envelope("k8s.io", name, &exit("c1", "exec-1"))),
            None
        );
    }

    #[test]
    fn other_namespaces_unknown_types_and_bad_bytes_are_passed_over() {
        let start = TaskStart {
            container_id: "c1".into(),
        };
        let name = "containerd.events.TaskStart";
        assert!(from_containerd(envelope("k8s.io", name, &start)).is_some());
        assert_eq!(from_containerd(envelope("moby", name, &start)), None);
        let other = envelope("k8s.io", "containerd.events.TaskOOM", &start);
        assert_eq!(from_containerd(other), None);
        let mut bad = envelope("k8s.io", name, &start);
        if let Some(event) = &mut bad.event {
            event.value = vec![0xff; 7];
        }
        assert_eq!(from_containerd(bad), None);
        assert_eq!(from_containerd(Envelope::default()), None);
    }

    #[test]
    fn ids_that_could_be_paths_are_passed_over() {
        let response = |id: &str, kind: i32| ContainerEventResponse {
            container_id: id.to_owned(),
            container_event_type: kind,
            ..ContainerEventResponse::default()
        };
        assert!(from_cri(response("0123abcd", 1)).is_some());
        for id in ["", "../x", "a/b", "."] {
            assert_eq!(from_cri(response(id, 1)), None, "{id:?}");
        }
        assert_eq!(from_cri(response("0123abcd", 99)), None);
    }
}
