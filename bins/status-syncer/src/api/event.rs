//! An event as the API server has it (`client-go/tools/record` and `pkg/kubelet/events` of
//! Kubernetes). Pure.
//!
//! Its name follows from the time when it was first seen, and from its reason, since several
//! are seen at once: one that is reported again, after a restart of whichever process, is the
//! same object.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use bulkhead_api::v1::{Event, EventType};
use clock::UnixNanos;
use pod::core::PodStatus;
use serde_json::{Value, json};

use crate::status::api_time;

/// Who reports, in the words that tools look for.
const COMPONENT: &str = "kubelet";

/// Where events of nodes are.
const NODE_NAMESPACE: &str = "default";

/// Namespace and name of the object.
pub(crate) struct EventName {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl EventName {
    /// Of an event of this node.
    pub(crate) fn of(event: &Event, node: &str) -> EventName {
        let (namespace, object) = match &event.pod {
            Some(pod) if !pod.uid.is_empty() => (pod.namespace.as_str(), pod.name.as_str()),
            _ => (NODE_NAMESPACE, node),
        };
        EventName {
            namespace: namespace.to_owned(),
            name: format!("{object}.{:x}", first_seen(event) + offset(event)),
        }
    }
}

/// The object. `status` is that of the event's pod, which says of which kind a container is.
pub(crate) fn object(event: &Event, node: &str, status: Option<&PodStatus>) -> Value {
    let EventName { namespace, name } = EventName::of(event, node);
    let involved = match &event.pod {
        Some(pod) if !pod.uid.is_empty() => json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "fieldPath": field_path(&event.container, status),
        }),
        // `kubectl describe node` looks for the name as the UID.
        _ => json!({"kind": "Node", "name": node, "uid": node}),
    };
    let kind = match event.r#type() {
        EventType::Warning => "Warning",
        EventType::Normal | EventType::Unspecified => "Normal",
    };
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": name},
        "involvedObject": involved,
        "reason": event.reason,
        "message": event.message,
        "source": {"component": COMPONENT, "host": node},
        "firstTimestamp": api_time(UnixNanos(first_seen(event))),
        "lastTimestamp": api_time(UnixNanos(event.unix_nanos)),
        "count": event.count.max(1),
        "type": kind,
        "reportingComponent": COMPONENT,
        "reportingInstance": node,
    })
}

/// What is patched of an event that was seen again.
pub(crate) fn repeat(event: &Event) -> Value {
    json!({
        "count": event.count,
        "message": event.message,
        "lastTimestamp": api_time(UnixNanos(event.unix_nanos)),
    })
}

/// Less than a microsecond in nanoseconds, for most reasons another one: the order stays.
fn offset(event: &Event) -> i64 {
    let mut hasher = DefaultHasher::new();
    (&event.reason, &event.container).hash(&mut hasher);
    i64::try_from(hasher.finish() % 1_000).unwrap_or_default()
}

fn first_seen(event: &Event) -> i64 {
    match event.first_unix_nanos {
        0 => event.unix_nanos,
        first => first,
    }
}

fn field_path(container: &str, status: Option<&PodStatus>) -> Option<String> {
    if container.is_empty() {
        return None;
    }
    let names = |list: Option<&Vec<pod::core::ContainerStatus>>| {
        list.into_iter().flatten().any(|it| it.name == container)
    };
    let list = match status {
        Some(status) if names(status.init_container_statuses.as_ref()) => "initContainers",
        Some(status) if names(status.ephemeral_container_statuses.as_ref()) => {
            "ephemeralContainers"
        }
        _ => "containers",
    };
    Some(format!("spec.{list}{{{container}}}"))
}

#[cfg(test)]
mod tests {
    use bulkhead_api::v1::PodReference;

    use super::*;

    fn event(container: &str) -> Event {
        Event {
            pod: Some(PodReference {
                uid: "u".to_owned(),
                namespace: "d".to_owned(),
                name: "web".to_owned(),
            }),
            container: container.to_owned(),
            reason: "Pulled".to_owned(),
            unix_nanos: 0x20_0000_0000,
            first_unix_nanos: 0x10_0000_0000,
            count: 2,
            ..Event::default()
        }
    }

    #[test]
    fn the_same_event_has_the_same_name_each_time_and_another_of_the_same_time_another() {
        let again = Event {
            unix_nanos: 0x30_0000_0000,
            count: 3,
            message: "(combined from similar events): m".to_owned(),
            ..event("c")
        };
        let [first, second] = [event("c"), again].map(|it| EventName::of(&it, "n"));
        assert_eq!(first.name, second.name);
        assert_eq!(first.namespace, "d");
        assert!(first.name.starts_with("web.1000"), "{}", first.name);
        let other = Event {
            reason: "Created".to_owned(),
            ..event("c")
        };
        assert_ne!(EventName::of(&other, "n").name, first.name);
        let of_node = EventName::of(&Event::default(), "n");
        assert_eq!(of_node.namespace, "default");
        assert!(of_node.name.starts_with("n."), "{}", of_node.name);
    }

    #[test]
    fn a_container_is_named_by_its_kind() {
        let status: PodStatus = serde_json::from_value(json!({
            "initContainerStatuses": [{"name": "i", "image": "", "imageID": "", "ready": true,
                "restartCount": 0}]}))
        .unwrap();
        for (container, expected) in [
            ("c", json!("spec.containers{c}")),
            ("i", json!("spec.initContainers{i}")),
            ("", Value::Null),
        ] {
            let object = object(&event(container), "n", Some(&status));
            assert_eq!(object["involvedObject"]["fieldPath"], expected);
            assert_eq!(object["source"]["host"], "n");
        }
        let of_node = object(&Event::default(), "n", None);
        assert_eq!(of_node["involvedObject"]["uid"], "n");
    }
}
