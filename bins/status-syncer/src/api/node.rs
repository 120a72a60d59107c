//! The Node as this node says it is (`pkg/kubelet/kubelet_node_status.go` and
//! `nodestatus/setters.go` of Kubernetes, whose words these are). Pure.

use std::collections::BTreeMap;

use bulkhead_api::v1::{NodeCapacity, NodeFacts, NodeImage, NodeRuntimeHandler};
use clock::UnixNanos;
use node_config::NodeConfig;
use serde_json::{Map, Value, json};

use super::not_ready::{self, NotReady};
use crate::status::api_time;

/// The version that controllers take for the kubelet's, by which they know what it can do.
const KUBELET_VERSION: &str = "v1.35.0";

/// Has the controller attach volumes.
const ATTACH_ANNOTATION: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// The labels of this domain that are the node's own.
const DEFAULT_LABELS: [&str; 3] = ["hostname", "os", "arch"];

/// A pressure: its condition, and reason and message without and with it.
struct Pressure {
    condition: &'static str,
    good: [&'static str; 2],
    bad: [&'static str; 2],
}

const PRESSURES: [Pressure; 3] = [
    Pressure {
        condition: "MemoryPressure",
        good: [
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ],
        bad: [
            "KubeletHasInsufficientMemory",
            "kubelet has insufficient memory available",
        ],
    },
    Pressure {
        condition: "DiskPressure",
        good: ["KubeletHasNoDiskPressure", "kubelet has no disk pressure"],
        bad: ["KubeletHasDiskPressure", "kubelet has disk pressure"],
    },
    Pressure {
        condition: "PIDPressure",
        good: [
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ],
        bad: [
            "KubeletHasInsufficientPID",
            "kubelet has insufficient PID available",
        ],
    },
];

/// The Node that is created; none where another registers it.
pub(crate) fn registration(config: &NodeConfig, status: &Value) -> Option<Value> {
    let object = &config.node_object;
    if !object.register {
        return None;
    }
    let mut spec = json!({});
    if !object.taints.is_empty() {
        spec["taints"] = json!(object.taints);
    }
    if !object.provider_id.is_empty() {
        spec["providerID"] = json!(object.provider_id);
    }
    Some(json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": config.node_name,
            "labels": config.node_labels,
            "annotations": {ATTACH_ANNOTATION: "true"},
        },
        "spec": spec,
        "status": status,
    }))
}

/// What is missing or wrong of the labels and the annotation that a kubelet sees to when it
/// finds its Node at its start; none where nothing is. Labels of `--node-labels` stay as the
/// API server has them.
pub(crate) fn metadata_patch(config: &NodeConfig, held: &Value) -> Option<Value> {
    let metadata = &held["metadata"];
    let is_default = |key: &str| {
        let name = key.rsplit_once("kubernetes.io/").map(|(_, name)| name);
        name.is_some_and(|name| DEFAULT_LABELS.contains(&name))
    };
    let labels = config.node_labels.iter();
    let labels = labels.filter(|(key, value)| {
        is_default(key) && metadata["labels"][key.as_str()] != value.as_str()
    });
    let labels: Map<String, Value> = labels
        .map(|(key, value)| (key.clone(), value.as_str().into()))
        .collect();
    let mut patch = Map::new();
    if !labels.is_empty() {
        patch.insert("labels".to_owned(), labels.into());
    }
    if metadata["annotations"][ATTACH_ANNOTATION] != "true" {
        patch.insert("annotations".to_owned(), json!({ATTACH_ANNOTATION: "true"}));
    }
    (!patch.is_empty()).then(|| json!({"metadata": patch}))
}

/// The Node's status. It is ready if neither `not_ready` nor the runtime says otherwise.
/// `held` is the one that the API server holds; where a condition is the
/// same as there, it has changed when that one did.
pub(crate) fn status(
    config: &NodeConfig,
    facts: &NodeFacts,
    not_ready: NotReady,
    held: &Value,
    now: UnixNanos,
) -> Value {
    let capacity = facts.capacity.clone().unwrap_or_default();
    let node = layout(&capacity);
    let allocatable = eviction::allocatable(config, &node);
    let whole = resources(config, &capacity);
    let mut left = whole.clone();
    for (name, amount) in allocatable {
        left.insert(name, json!(amount.to_string()));
    }
    let suffers = |pressure: &Pressure| {
        let mut names = capacity.node_conditions.iter();
        names.any(|name| name == pressure.condition)
    };
    let pressures = PRESSURES.iter().map(|pressure| {
        let is_bad = suffers(pressure);
        let [reason, message] = if is_bad { pressure.bad } else { pressure.good };
        (pressure.condition, is_bad, reason, message.to_owned())
    });
    let of_runtime = [&capacity.runtime_error, &facts.network_error];
    let conditions = pressures.chain([ready(not_ready, of_runtime)]);
    let conditions: Vec<Value> = conditions
        .map(|(kind, is_true, reason, message)| {
            condition(&held["conditions"], (kind, is_true, reason, message), now)
        })
        .collect();
    // What a runtime says that is away for a while stands.
    let of_runtime =
        |reported: Value, held: &Value| match !facts.runtime_answers && is_empty(&reported) {
            true => held.clone(),
            false => reported,
        };
    let version = json!(facts.container_runtime_version);
    let features = facts
        .runtime_features
        .map(|features| json!({"supplementalGroupsPolicy": features.supplemental_groups_policy}));
    // 0 where nothing is served.
    let server = config.node_server.as_ref();
    let port = server.map_or(0, |server| server.address.port());
    json!({
        "capacity": whole,
        "allocatable": left,
        "conditions": conditions,
        "addresses": addresses(config),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": {
            "machineID": facts.machine_id,
            "systemUUID": facts.system_uuid,
            "bootID": facts.machine_boot_id,
            "kernelVersion": capacity.kernel_release,
            "osImage": facts.os_image,
            "containerRuntimeVersion":
                of_runtime(version, &held["nodeInfo"]["containerRuntimeVersion"]),
            "kubeletVersion": KUBELET_VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": config.node_labels.get("kubernetes.io/arch"),
            "swap": (facts.swap_bytes > 0).then(|| json!({"capacity": facts.swap_bytes})),
        },
        "images": of_runtime(images(config, &facts.images), &held["images"]),
        "runtimeHandlers": of_runtime(handlers(&facts.runtime_handlers), &held["runtimeHandlers"]),
        "features": of_runtime(json!(features), &held["features"]),
    })
}

/// The condition Ready, with all that is in its way in the kubelet's order.
fn ready(
    not_ready: NotReady,
    of_runtime: [&String; 2],
) -> (&'static str, bool, &'static str, String) {
    let of_runtime = of_runtime.into_iter().filter(|it| !it.is_empty());
    let mut reasons = not_ready.unhealthy;
    reasons.extend(of_runtime.cloned());
    if not_ready.shuts_down {
        reasons.push("node is shutting down".to_owned());
    }
    let (reason, message) = match reasons.is_empty() {
        true => ("KubeletReady", "kubelet is posting ready status".to_owned()),
        false => ("KubeletNotReady", not_ready::message(&reasons)),
    };
    ("Ready", reasons.is_empty(), reason, message)
}

/// The pool sends no more than 50.
fn images(config: &NodeConfig, images: &[NodeImage]) -> Value {
    let image = |image: &NodeImage| json!({"names": image.names, "sizeBytes": image.size_bytes});
    let most = config.node_object.max_images.unwrap_or(u32::MAX);
    images.iter().take(most as usize).map(image).collect()
}

fn handlers(handlers: &[NodeRuntimeHandler]) -> Value {
    let handler = |handler: &NodeRuntimeHandler| {
        json!({
            "name": handler.name,
            "features": {
                "recursiveReadOnlyMounts": handler.recursive_read_only_mounts,
                "userNamespaces": handler.user_namespaces,
            },
        })
    };
    handlers.iter().map(handler).collect()
}

/// The patch that makes the held Node say this status, and this metadata; none where nothing
/// but heartbeats differs, unless these are due.
pub(crate) fn patch(
    status: &Value,
    held: &Value,
    metadata: Option<Value>,
    is_due: bool,
) -> Option<Value> {
    let without_heartbeats = |value: &Value| {
        let mut value = value.clone();
        let conditions = value.as_array_mut().into_iter().flatten();
        for condition in conditions.filter_map(Value::as_object_mut) {
            condition.remove("lastHeartbeatTime");
        }
        value
    };
    let held = &held["status"];
    let fields = status.as_object().into_iter().flatten();
    // The API server holds more of what others write: only what is said here is compared.
    let changed = fields.filter(|(field, value)| {
        let before = without_heartbeats(&held[field.as_str()]);
        let is_ours = matches!(field.as_str(), "images" | "runtimeHandlers");
        let has_gone = is_ours && length(value) < length(&before);
        has_gone || !is_said_by(&without_heartbeats(value), &before)
    });
    let changed = changed.map(|(field, value)| (field.clone(), value.clone()));
    let mut changed: Map<String, Value> = changed.collect();
    if changed.is_empty() && metadata.is_none() && !is_due {
        return None;
    }
    // What is sent is a heartbeat too.
    changed.insert("conditions".to_owned(), status["conditions"].clone());
    // Their merge key, the type, is not unique.
    if let Some(addresses) = changed.get_mut("addresses").and_then(Value::as_array_mut) {
        addresses.push(json!({"$patch": "replace"}));
    }
    let mut patch = metadata.unwrap_or_else(|| json!({}));
    patch["status"] = changed.into();
    Some(patch)
}

/// Of a list.
fn length(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is) => !is,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// Whether `held` says all that `new` says. The API server leaves out much that is empty.
fn is_said_by(new: &Value, held: &Value) -> bool {
    match (new, held) {
        (new, Value::Null) if is_empty(new) => true,
        (Value::Object(new), _) => new.iter().all(|(field, it)| is_said_by(it, &held[field])),
        (Value::Array(new), Value::Array(old)) => new
            .iter()
            .all(|it| old.iter().any(|old| is_said_by(it, old))),
        (new, held) => new == held,
    }
}

fn layout(capacity: &NodeCapacity) -> node_layout::NodeCapacity {
    node_layout::NodeCapacity {
        cpu_millis: capacity.cpu_millis,
        memory_bytes: capacity.memory_bytes,
        ephemeral_storage_bytes: capacity.ephemeral_storage_bytes,
        huge_pages: capacity.huge_pages.clone().into_iter().collect(),
        ..node_layout::NodeCapacity::default()
    }
}

fn resources(config: &NodeConfig, capacity: &NodeCapacity) -> Map<String, Value> {
    let kib = |bytes: u64| format!("{}Ki", bytes >> 10);
    let mut all: BTreeMap<String, String> = [
        ("cpu", (capacity.cpu_millis / 1000).to_string()),
        ("memory", kib(capacity.memory_bytes)),
        ("ephemeral-storage", kib(capacity.ephemeral_storage_bytes)),
        ("pods", config.max_pods.to_string()),
    ]
    .map(|(name, amount)| (name.to_owned(), amount))
    .into();
    for (size, bytes) in &capacity.huge_pages {
        let amount = match bytes {
            0 => "0".to_owned(),
            _ => kib(*bytes),
        };
        all.insert(format!("hugepages-{}", page_size(*size)), amount);
    }
    all.into_iter()
        .map(|(name, it)| (name, it.into()))
        .collect()
}

/// A size as it stands in a resource's name: 2Mi, 1Gi.
fn page_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "Gi"), (20, "Mi"), (10, "Ki")] {
        if bytes >> shift > 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

fn condition(
    held: &Value,
    (kind, is_true, reason, message): (&str, bool, &str, String),
    now: UnixNanos,
) -> Value {
    let now = json!(api_time(now));
    let status = if is_true { "True" } else { "False" };
    let mut before = held.as_array().into_iter().flatten();
    let before = before.find(|it| it["type"] == kind && it["status"] == status);
    let changed = before.map_or(&now, |before| &before["lastTransitionTime"]);
    json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": now,
        "lastTransitionTime": changed,
    })
}

fn addresses(config: &NodeConfig) -> Vec<Value> {
    let address = config
        .node_ip
        .map(|ip| json!({"type": "InternalIP", "address": ip}));
    let name = json!({"type": "Hostname", "address": config.node_name});
    address.into_iter().chain([name]).collect()
}

/// The Lease that is created.
pub(crate) fn lease(config: &NodeConfig, node_uid: &str, now: &str) -> Value {
    let name = &config.node_name;
    let mut lease = renewal(config, now);
    lease["apiVersion"] = json!("coordination.k8s.io/v1");
    lease["kind"] = json!("Lease");
    lease["metadata"] = json!({
        "name": name,
        "namespace": "kube-node-lease",
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node_uid},
        ],
    });
    lease
}

/// What is renewed of it; `now` with microseconds.
pub(crate) fn renewal(config: &NodeConfig, now: &str) -> Value {
    json!({"spec": {
        "holderIdentity": config.node_name,
        "leaseDurationSeconds": config.node_object.lease_seconds,
        "renewTime": now,
    }})
}

#[cfg(test)]
mod tests {
    use bulkhead_api::v1::NodeRuntimeFeatures;
    use node_config::DirectoryLayout;

    use super::*;

    fn config() -> NodeConfig {
        NodeConfig::with_defaults("n", DirectoryLayout::below("/x"))
    }

    fn facts(runtime_error: &str, conditions: &[&str]) -> NodeFacts {
        NodeFacts {
            capacity: Some(NodeCapacity {
                cpu_millis: 2000,
                memory_bytes: 1 << 30,
                runtime_error: runtime_error.to_owned(),
                node_conditions: conditions.iter().map(|it| (*it).to_owned()).collect(),
                huge_pages: [(2 << 20, 0), (1 << 30, 1 << 30)].into(),
                ..NodeCapacity::default()
            }),
            runtime_answers: runtime_error.is_empty(),
            ..NodeFacts::default()
        }
    }

    const SECOND: i64 = 1_000_000_000;

    fn calm(config: &NodeConfig, facts: &NodeFacts, held: &Value, now: UnixNanos) -> Value {
        status(config, facts, NotReady::default(), held, now)
    }

    fn patch_of(status: &Value, held: &Value, is_due: bool) -> Option<Value> {
        patch(status, &json!({"status": held}), None, is_due)
    }

    #[test]
    fn conditions_have_the_kubelets_words_and_change_when_they_do() {
        let (config, good) = (config(), facts("", &[]));
        let first = calm(&config, &good, &Value::Null, UnixNanos(SECOND));
        let of = |status: &Value, index: usize| status["conditions"][index].clone();
        assert_eq!(of(&first, 3)["reason"], "KubeletReady");
        let bad = facts("container runtime is down", &["MemoryPressure"]);
        let second = calm(&config, &bad, &first, UnixNanos(2 * SECOND));
        let [memory, disk, ready] = [0, 1, 3].map(|index| of(&second, index));
        assert_eq!(memory["reason"], "KubeletHasInsufficientMemory");
        assert_eq!(memory["lastTransitionTime"], "1970-01-01T00:00:02Z");
        assert_eq!(disk["lastTransitionTime"], "1970-01-01T00:00:01Z");
        assert_eq!(disk["lastHeartbeatTime"], "1970-01-01T00:00:02Z");
        assert_eq!(ready["status"], "False");
        assert_eq!(ready["message"], "container runtime is down");
        assert_eq!(first["capacity"]["hugepages-2Mi"], "0");
        assert_eq!(first["capacity"]["hugepages-1Gi"], "1048576Ki");
    }

    #[test]
    fn all_that_is_in_the_way_of_ready_is_told_in_the_kubelets_order() {
        let not_ready = |unhealthy: &[&str], shuts_down| NotReady {
            unhealthy: unhealthy.iter().map(|&it| it.to_owned()).collect(),
            shuts_down,
        };
        for (not_ready, runtime, expected) in [
            (
                not_ready(&[], false),
                ["", ""],
                "kubelet is posting ready status",
            ),
            (not_ready(&["P"], false), ["", ""], "P"),
            (not_ready(&[], true), ["", ""], "node is shutting down"),
            (
                not_ready(&["P", "S"], true),
                ["R", "N"],
                "[P, S, R, N, node is shutting down]",
            ),
        ] {
            let (_, is_ready, reason, message) =
                ready(not_ready, runtime.map(str::to_owned).each_ref());
            assert_eq!(message, expected);
            assert_eq!(is_ready, reason == "KubeletReady");
        }
    }

    #[test]
    fn what_a_runtime_said_stands_while_it_is_away() {
        let mut reported = NodeFacts {
            container_runtime_version: "containerd://2.1.0".to_owned(),
            swap_bytes: 4096,
            images: vec![NodeImage {
                names: vec!["a@1".to_owned()],
                size_bytes: 7,
            }],
            runtime_handlers: vec![NodeRuntimeHandler {
                user_namespaces: true,
                ..NodeRuntimeHandler::default()
            }],
            runtime_features: Some(NodeRuntimeFeatures::default()),
            ..facts("", &[])
        };
        let config = config();
        let first = calm(&config, &reported, &Value::Null, UnixNanos(SECOND));
        assert_eq!(first["nodeInfo"]["swap"], json!({"capacity": 4096}));
        assert_eq!(first["images"], json!([{"names": ["a@1"], "sizeBytes": 7}]));
        let features = json!({"recursiveReadOnlyMounts": false, "userNamespaces": true});
        let handlers = json!([{"name": "", "features": features}]);
        assert_eq!(first["runtimeHandlers"], handlers);
        assert_eq!(
            first["features"],
            json!({"supplementalGroupsPolicy": false})
        );
        let away = calm(&config, &facts("down", &[]), &first, UnixNanos(SECOND));
        for field in ["images", "runtimeHandlers", "features"] {
            assert_eq!(away[field], first[field]);
        }
        assert_eq!(
            away["nodeInfo"]["containerRuntimeVersion"],
            "containerd://2.1.0"
        );
        // That one is gone is reported as well.
        reported.images.clear();
        let second = calm(&config, &reported, &first, UnixNanos(SECOND));
        let patch = patch_of(&second, &first, false).unwrap();
        assert_eq!(patch["status"]["images"], json!([]));
        let mut held = second.clone();
        held["images"].take();
        assert_eq!(patch_of(&second, &held, false), None);
    }

    #[test]
    fn a_status_is_sent_when_it_says_something_new_or_is_due() {
        let (config, good) = (config(), facts("", &[]));
        let held = calm(&config, &good, &Value::Null, UnixNanos(SECOND));
        let later = calm(&config, &good, &held, UnixNanos(9 * SECOND));
        assert_eq!(patch_of(&later, &held, false), None);
        let due = patch_of(&later, &held, true).unwrap();
        let fields = due["status"].as_object().unwrap().keys();
        assert_eq!(fields.collect::<Vec<_>>(), ["conditions"]);
        let mut more = held.clone();
        more["volumesAttached"] = json!([{"name": "v"}]);
        more["conditions"]
            .as_array_mut()
            .unwrap()
            .push(json!({"type": "NetworkUnavailable"}));
        assert_eq!(patch_of(&later, &more, false), None);
        let bad = calm(&config, &facts("down", &[]), &held, UnixNanos(9 * SECOND));
        assert!(patch_of(&bad, &held, false).is_some());
        let mut moved = later.clone();
        moved["addresses"] = json!([{"type": "InternalIP", "address": "10.0.0.9"}]);
        let patch = patch_of(&moved, &held, false).unwrap();
        let addresses = patch["status"]["addresses"].as_array().unwrap();
        assert_eq!(addresses.last().unwrap()["$patch"], "replace");
    }

    #[test]
    fn a_node_that_is_found_gets_its_default_labels_and_keeps_the_others() {
        let mut config = config();
        config.node_labels.insert("mine".to_owned(), "1".to_owned());
        let made = registration(&config, &Value::Null).unwrap();
        assert_eq!(made["metadata"]["labels"]["mine"], "1");
        assert_eq!(metadata_patch(&config, &made), None);
        let mut held = made.clone();
        held["metadata"]["labels"]["kubernetes.io/hostname"] = json!("other");
        held["metadata"]["labels"]["mine"] = json!("2");
        held["metadata"]["annotations"] = json!({});
        let patch = metadata_patch(&config, &held).unwrap();
        assert_eq!(
            patch["metadata"],
            json!({"labels": {"kubernetes.io/hostname": "n"},
                "annotations": {ATTACH_ANNOTATION: "true"}})
        );
    }

    #[test]
    fn a_node_is_registered_with_what_is_configured_or_not_at_all() {
        let mut config = config();
        let plain = registration(&config, &Value::Null).unwrap();
        assert_eq!(plain["spec"], json!({}));
        config.node_object.taints = vec!["a=b:NoSchedule".parse().unwrap()];
        config.node_object.provider_id = "p://1".to_owned();
        let made = registration(&config, &Value::Null).unwrap();
        assert_eq!(
            made["spec"],
            json!({"providerID": "p://1",
                "taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]})
        );
        config.node_object.register = false;
        assert_eq!(registration(&config, &Value::Null), None);
    }
}
