//! Which changes a pod may undergo under its UID: those that the API server allows
//! (`ValidatePodUpdate`, `ValidatePodResize` and `ValidatePodEphemeralContainersUpdate`
//! in pkg/apis/core/validation/validation.go). A pod that runs keeps everything else
//! that it was started with.
//!
//! Two forms of one rule: [`applied`] puts two versions together; [`started_with`]
//! is a hash of what may not change, for whoever has only one of them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::QosClass;
use crate::accessors::{PodExt, is_restartable};
use crate::quantity::Quantity as Amount;
use crate::resources::{CPU, MEMORY, ResourceAmounts, container_limits, container_requests};
use crate::wire::hexadecimal;

/// The version of [`fixed`]: hashes of different versions are never compared. It must
/// grow whenever a pod that stays the same would get another hash: with a field that
/// the types or the defaults add, or a rule that changes here.
const VERSION: &str = "1";

/// Most fields that are named.
const MAX_FIELDS: usize = 5;

/// Resources that may be changed while a container runs.
const RESIZABLE: [&str; 2] = [CPU, MEMORY];

/// What a pod was started with and keeps, as a word that fits an annotation.
#[must_use]
pub fn started_with(pod: &Pod) -> String {
    // Keys are sorted: serde_json keeps them in a BTreeMap.
    let text = fixed(pod).to_string();
    format!(
        "{VERSION}-{}",
        hexadecimal(&Sha256::digest(text.as_bytes()))
    )
}

/// What of a pod a resize may change, as a word: CPU and memory of its containers and
/// sidecars. Amounts that are written differently are the same.
#[must_use]
pub fn resizable(pod: &Pod) -> String {
    let amounts = |amounts: ResourceAmounts| {
        let in_units = amounts.get(MEMORY).map(Amount::value);
        json!([amounts.get(CPU).map(Amount::milli_value), in_units])
    };
    let init = pod.init_containers().iter().filter(|it| is_restartable(it));
    let sizes = pod.containers().iter().chain(init).map(|container| {
        let requests = amounts(container_requests(container));
        let limits = amounts(container_limits(container));
        json!([container.name, requests, limits])
    });
    let text = Value::Array(sizes.collect()).to_string();
    hexadecimal(&Sha256::digest(text.as_bytes()))
}

/// Whether a pod that was started with `noted` may go on as one of which
/// [`started_with`] says `now`. What another version of Bulkhead noted cannot be compared:
/// such a pod is taken over as it is.
#[must_use]
pub fn may_go_on(noted: &str, now: &str) -> bool {
    let is_comparable = noted
        .split_once('-')
        .is_some_and(|(version, _)| version == VERSION);
    !is_comparable || noted == now
}

/// What a pod that runs becomes when its source has another version of it, and the fields, at
/// most five, in which that differs though they may not change. An API server would refuse
/// such a version, so then all of its spec is left, and only the rest is taken: labels,
/// annotations, deletion and status.
#[must_use]
pub fn applied(running: &Pod, newest: &Pod) -> (Pod, Vec<String>) {
    let left = refused_changes(running, newest);
    let mut pod = newest.clone();
    if !left.is_empty() {
        pod.spec.clone_from(&running.spec);
        pod.metadata.name.clone_from(&running.metadata.name);
        let namespace = running.metadata.namespace.clone();
        pod.metadata.namespace = namespace;
    }
    (pod, left)
}

/// The fields in which a newer version of a pod differs though they may not change;
/// empty when the newer version may replace the older one while the pod runs. At most
/// five are named.
fn refused_changes(old: &Pod, new: &Pod) -> Vec<String> {
    let mut fields = Vec::new();
    difference("", &names(old), &names(new), &mut fields);
    difference("", &fixed(old), &fixed(new), &mut fields);
    let (old, new) = (spec_of(old), spec_of(new));
    if !deadline_may_become(old.active_deadline_seconds, new.active_deadline_seconds) {
        fields.push("spec.activeDeadlineSeconds".to_owned());
    }
    if !tolerations_only_grow(&old, &new) {
        fields.push("spec.tolerations".to_owned());
    }
    if !ephemeral_containers_only_grow(&old, &new) {
        fields.push("spec.ephemeralContainers".to_owned());
    }
    fields.truncate(MAX_FIELDS);
    fields
}

fn spec_of(pod: &Pod) -> PodSpec {
    pod.spec.clone().unwrap_or_default()
}

/// It may be set, and shortened.
fn deadline_may_become(old: Option<i64>, new: Option<i64>) -> bool {
    match (old, new) {
        (None, _) => true,
        (Some(old), Some(new)) => new <= old,
        (Some(_), None) => false,
    }
}

/// How long one is tolerated may change.
fn tolerations_only_grow(old: &PodSpec, new: &PodSpec) -> bool {
    let without_time = |spec: &PodSpec| {
        let mut tolerations = spec.tolerations.clone().unwrap_or_default();
        for toleration in &mut tolerations {
            toleration.toleration_seconds = None;
        }
        tolerations
    };
    let new = without_time(new);
    without_time(old).iter().all(|one| new.contains(one))
}

fn ephemeral_containers_only_grow(old: &PodSpec, new: &PodSpec) -> bool {
    let new = new.ephemeral_containers.as_deref().unwrap_or_default();
    let old = old.ephemeral_containers.iter().flatten();
    old.into_iter().all(|one| new.contains(one))
}

/// What a pod is called: only a manifest that sets a UID can give a pod another name.
fn names(pod: &Pod) -> Value {
    let metadata = &pod.metadata;
    json!({"metadata": {"name": metadata.name, "namespace": metadata.namespace}})
}

/// Everything else of a pod that may not change while it runs: its names are on its sandbox
/// anyway. Its QoS class is part of it: a resize may not change that.
fn fixed(pod: &Pod) -> Value {
    let qos = QosClass::of(pod);
    let mut spec = spec_of(pod);
    spec.active_deadline_seconds = None;
    spec.tolerations = None;
    spec.ephemeral_containers = None;
    spec.scheduling_gates = None;
    // A negative one counts as 1, and may be changed to that.
    spec.termination_grace_period_seconds = spec
        .termination_grace_period_seconds
        .map(|seconds| if seconds < 0 { 1 } else { seconds });
    for container in &mut spec.containers {
        container.image = None;
        fix_resources(container);
    }
    for container in spec.init_containers.iter_mut().flatten() {
        container.image = None;
        // Of init containers only sidecars can be resized.
        if container.restart_policy.as_deref() == Some("Always") {
            fix_resources(container);
        }
    }
    // These types are always JSON: their keys are text and their numbers finite.
    let mut value = json!({"qosClass": format!("{qos:?}"), "spec": spec});
    drop_empty_lists(&mut value);
    value
}

fn fix_resources(container: &mut Container) {
    let Some(resources) = container.resources.take() else {
        return;
    };
    let fixed = ResourceRequirements {
        limits: without_resizable(resources.limits),
        requests: without_resizable(resources.requests),
        ..resources
    };
    container.resources = Some(fixed).filter(|it| *it != ResourceRequirements::default());
}

fn without_resizable(
    amounts: Option<BTreeMap<String, Quantity>>,
) -> Option<BTreeMap<String, Quantity>> {
    let mut amounts = amounts?;
    amounts.retain(|name, _| !RESIZABLE.contains(&name.as_str()));
    (!amounts.is_empty()).then_some(amounts)
}

/// An absent list is an empty one.
fn drop_empty_lists(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| field.as_array().is_none_or(|list| !list.is_empty()));
            fields.values_mut().for_each(drop_empty_lists);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty_lists),
        _ => {}
    }
}

/// Appends the paths at which two values differ, a list of another length as a whole.
fn difference(path: &str, old: &Value, new: &Value, fields: &mut Vec<String>) {
    if old == new || fields.len() >= MAX_FIELDS {
        return;
    }
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let added = new.keys().filter(|key| !old.contains_key(*key));
            for key in old.keys().chain(added) {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                let field =
                    |of: &serde_json::Map<String, Value>| of.get(key).cloned().unwrap_or_default();
                difference(&path, &field(old), &field(new), fields);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                difference(&format!("{path}[{index}]"), old, new, fields);
            }
        }
        _ => fields.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value() -> Value {
        json!({
            "metadata": {"name": "a", "namespace": "d", "uid": "u1", "labels": {"l": "1"}},
            "spec": {
                "terminationGracePeriodSeconds": 30,
                "activeDeadlineSeconds": 100,
                "nodeName": "node",
                "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute",
                                 "tolerationSeconds": 300}],
                "volumes": [{"name": "v", "emptyDir": {}}],
                "initContainers": [
                    {"name": "i", "image": "init:1", "resources": {"limits": {"cpu": "1"}}},
                    {"name": "s", "image": "side:1", "restartPolicy": "Always"}],
                "containers": [{
                    "name": "c", "image": "i:1", "command": ["run"],
                    "env": [{"name": "A", "value": "1"}],
                    "resources": {"requests": {"cpu": "1", "example.com/device": "1"}},
                    "livenessProbe": {"exec": {"command": ["check"]}}}]
            },
            "status": {"phase": "Running"}
        })
    }

    fn pod(value: &Value) -> Pod {
        serde_json::from_value(value.clone()).unwrap()
    }

    /// The value with another one in a place.
    fn with(place: &str, new: Value) -> Value {
        let mut value = value();
        let (parent, key) = place.rsplit_once('/').unwrap();
        value.pointer_mut(parent).unwrap()[key] = new;
        value
    }

    #[test]
    fn what_the_api_server_lets_change_may_change() {
        let old = pod(&value());
        for (place, new) in [
            ("/metadata/labels", json!({"other": "2"})),
            ("/metadata/annotations", json!({"a": "b"})),
            ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
            ("/metadata/deletionGracePeriodSeconds", json!(5)),
            ("/status/phase", json!("Failed")),
            ("/spec/containers/0/image", json!("i:2")),
            ("/spec/initContainers/0/image", json!("init:2")),
            ("/spec/initContainers/1/image", json!("side:2")),
            ("/spec/activeDeadlineSeconds", json!(50)),
            ("/spec/tolerations/0/tolerationSeconds", json!(5)),
            (
                "/spec/tolerations",
                json!([{"key": "new"}, {"key": "k", "operator": "Exists", "effect": "NoExecute"}]),
            ),
            (
                "/spec/containers/0/resources/requests",
                json!({"cpu": "2", "memory": "1Gi", "example.com/device": "1"}),
            ),
            (
                "/spec/initContainers/1/resources",
                json!({"limits": {"memory": "1Gi"}}),
            ),
            (
                "/spec/ephemeralContainers",
                json!([{"name": "e", "image": "debug", "command": ["sh"]}]),
            ),
            ("/spec/imagePullSecrets", json!([])),
        ] {
            let new = pod(&with(place, new));
            assert_eq!(refused_changes(&old, &new), [""; 0], "{place}");
            assert!(
                may_go_on(&started_with(&old), &started_with(&new)),
                "{place}"
            );
        }
    }

    #[test]
    fn everything_else_is_kept() {
        let old = pod(&value());
        for (place, new, field) in [
            ("/spec/containers/0/command", json!(["evil"]), "command[0]"),
            ("/spec/containers/0/command", json!(["run", "x"]), "command"),
            ("/spec/containers/0/args", json!(["x"]), "args"),
            ("/spec/containers/0/env/0/value", json!("2"), "value"),
            (
                "/spec/containers/0/livenessProbe/exec/command",
                json!(["evil"]),
                "livenessProbe.exec.command[0]",
            ),
            (
                "/spec/containers/0/readinessProbe",
                json!({"exec": {"command": ["evil"]}}),
                "readinessProbe",
            ),
            (
                "/spec/containers/0/lifecycle",
                json!({"preStop": {"exec": {"command": ["evil"]}}}),
                "lifecycle",
            ),
            (
                "/spec/containers/0/securityContext",
                json!({"privileged": true}),
                "securityContext",
            ),
            (
                "/spec/containers/0/resources/requests",
                json!({"cpu": "1", "example.com/device": "2"}),
                "example.com/device",
            ),
            (
                "/spec/initContainers/0/resources",
                json!({"limits": {"cpu": "2"}}),
                "resources",
            ),
            (
                "/spec/containers",
                json!([{"name": "c"}, {"name": "d"}]),
                "spec.containers",
            ),
            (
                "/spec/volumes",
                json!([{"name": "v", "hostPath": {"path": "/"}}]),
                "spec.volumes[0]",
            ),
            ("/spec/hostNetwork", json!(true), "spec.hostNetwork"),
            ("/spec/hostPID", json!(true), "spec.hostPID"),
            ("/spec/nodeName", json!("other"), "spec.nodeName"),
            (
                "/spec/terminationGracePeriodSeconds",
                json!(3),
                "spec.terminationGracePeriodSeconds",
            ),
        ] {
            let new = pod(&with(place, new));
            let fields = refused_changes(&old, &new);
            assert!(
                fields.iter().any(|found| found.contains(field)),
                "{place}: {fields:?}"
            );
            assert!(
                !may_go_on(&started_with(&old), &started_with(&new)),
                "{place}"
            );
        }
    }

    #[test]
    fn of_a_version_that_is_left_all_but_its_spec_and_its_name_is_taken() {
        let running = pod(&value());
        let mut newest = value();
        newest["metadata"] = json!({"name": "b", "namespace": "d", "uid": "u1",
            "labels": {"l": "2"}, "deletionTimestamp": "2026-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": 5});
        newest["spec"]["containers"][0]["image"] = json!("i:2");
        newest["status"] = json!({"phase": "Failed"});
        let newest = pod(&newest);
        let (with_name, left) = applied(&running, &newest);
        assert_eq!(left, ["metadata.name"]);
        assert_eq!(
            (&with_name.spec, &with_name.status),
            (&running.spec, &newest.status)
        );
        assert_eq!(with_name.metadata.name, running.metadata.name);
        assert_eq!(with_name.metadata.labels, newest.metadata.labels);
        assert_eq!(with_name.metadata.deletion_grace_period_seconds, Some(5));
        assert!(with_name.metadata.deletion_timestamp.is_some());
        // One that may be taken is.
        let renamed_back = Pod {
            metadata: with_name.metadata,
            ..newest
        };
        assert_eq!(applied(&running, &renamed_back), (renamed_back, vec![]));
    }

    #[test]
    fn a_pod_with_another_name_is_another_pod() {
        let old = pod(&value());
        for (place, field) in [
            ("/metadata/name", "metadata.name"),
            ("/metadata/namespace", "metadata.namespace"),
        ] {
            let new = pod(&with(place, json!("other")));
            assert_eq!(refused_changes(&old, &new), [field]);
        }
    }

    #[test]
    fn some_fields_may_change_in_one_direction_only() {
        let old = pod(&value());
        for (place, new) in [
            ("/spec/activeDeadlineSeconds", json!(200)),
            ("/spec/activeDeadlineSeconds", Value::Null),
            ("/spec/tolerations", json!([])),
            ("/spec/tolerations", json!([{"key": "new"}])),
        ] {
            let field = place.trim_start_matches('/').replace('/', ".");
            let new = pod(&with(place, new));
            assert_eq!(refused_changes(&old, &new), [field]);
        }
        let debugged = pod(&with(
            "/spec/ephemeralContainers",
            json!([{"name": "e", "command": ["sh"]}]),
        ));
        let altered = pod(&with(
            "/spec/ephemeralContainers",
            json!([{"name": "e", "command": ["evil"]}]),
        ));
        for new in [&old, &altered] {
            assert_eq!(
                refused_changes(&debugged, new),
                ["spec.ephemeralContainers"]
            );
        }
        let negative = pod(&with("/spec/terminationGracePeriodSeconds", json!(-1)));
        let one = pod(&with("/spec/terminationGracePeriodSeconds", json!(1)));
        assert_eq!(refused_changes(&negative, &one), [""; 0]);
    }

    #[test]
    fn a_resize_may_not_change_the_qos_class() {
        let with = |resources: Value| {
            pod(&json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}))
        };
        let (none, some) = (with(json!({})), with(json!({"requests": {"cpu": "1"}})));
        assert_eq!(refused_changes(&none, &some), ["qosClass"]);
    }

    #[test]
    fn a_resize_is_another_amount_of_cpu_or_memory() {
        let size = |place: &str, new: Value| resizable(&pod(&with(place, new)));
        let requests = "/spec/containers/0/resources/requests";
        let given = size(requests, json!({"cpu": "1", "memory": "1Gi"}));
        for (place, new, is_same) in [
            (requests, json!({"cpu": "1000m", "memory": "1024Mi"}), true),
            (
                requests,
                json!({"cpu": "1", "memory": "1Gi", "example.com/device": "1"}),
                true,
            ),
            (requests, json!({"cpu": "2", "memory": "1Gi"}), false),
            (requests, json!({"cpu": "1", "memory": "2Gi"}), false),
            (requests, json!({"cpu": "1"}), false),
        ] {
            assert_eq!(size(place, new.clone()) == given, is_same, "{new}");
        }
        let own = resizable(&pod(&value()));
        let limits = json!({"limits": {"memory": "1Gi"}});
        for (index, is_same) in [(0, true), (1, false)] {
            let place = format!("/spec/initContainers/{index}/resources");
            assert_eq!(size(&place, limits.clone()) == own, is_same, "{place}");
        }
    }

    #[test]
    fn what_another_version_noted_is_taken_over() {
        let now = started_with(&pod(&value()));
        for (noted, expected) in [
            (now.as_str(), true),
            ("1-abc", false),
            ("2-abc", true),
            ("", true),
            ("abc", true),
        ] {
            assert_eq!(may_go_on(noted, &now), expected, "{noted}");
        }
    }

    /// Every pod that runs would be started anew: whoever changes the hash on purpose
    /// lets `VERSION` grow.
    #[test]
    fn the_hash_of_a_version_stays() {
        assert_eq!(
            started_with(&pod(&value())),
            "1-fa2241fcb4409447ebda74bcb9121663c1b99f31f94dfb7a26935669d22a589a"
        );
    }
}
