//! The strategic merge patch that makes the status of a pod at the API server the one that is
//! published here (`pkg/util/pod/pod.go` of Kubernetes, PatchPodStatus). Pure.
//!
//! Fields and conditions of others are left alone. What the node no longer says is sent as
//! null, since a merge would keep it.

use pod::core::PodStatus;
use serde_json::{Map, Value, json};

use crate::status::OWNED_CONDITIONS;

/// What the node says of a pod beside conditions and addresses.
const FIELDS: [&str; 11] = [
    "observedGeneration",
    "phase",
    "reason",
    "message",
    "hostIP",
    "podIP",
    "qosClass",
    "startTime",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
];

/// Of a pod that has ended these never change again.
const FINAL_FIELDS: [&str; 3] = ["phase", "reason", "message"];

/// Lists that merge by `ip`.
const ADDRESSES: [&str; 2] = ["hostIPs", "podIPs"];

/// Shared with controllers: the node sets it, and never takes it away.
const DISRUPTION: &str = "DisruptionTarget";

/// What of a condition is compared. When it changed follows from these.
const OF_CONDITION: [&str; 4] = ["status", "reason", "message", "observedGeneration"];

/// The patch; none where nothing differs. `is_final`: the API server holds the pod as ended.
pub(crate) fn status_patch(
    uid: &str,
    published: &PodStatus,
    held: &PodStatus,
    is_final: bool,
) -> Option<Value> {
    let (published, held) = (fields_of(published), fields_of(held));
    let mut status = Map::new();
    for field in FIELDS {
        let (new, old) = (published.get(field), held.get(field));
        let is_fixed = is_final && FINAL_FIELDS.contains(&field);
        if !is_fixed && without_nothing(new) != without_nothing(old) {
            status.insert(field.to_owned(), new.cloned().unwrap_or(Value::Null));
        }
    }
    for field in ADDRESSES {
        let changed = addresses(list(&published, field), list(&held, field));
        if !changed.is_empty() {
            status.insert(field.to_owned(), changed.into());
        }
    }
    let changed = conditions(list(&published, "conditions"), list(&held, "conditions"));
    if !changed.is_empty() {
        status.insert("conditions".to_owned(), changed.into());
    }
    if status.is_empty() {
        return None;
    }
    Some(json!({"metadata": {"uid": uid}, "status": status}))
}

fn fields_of(status: &PodStatus) -> Map<String, Value> {
    match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

fn list<'a>(status: &'a Map<String, Value>, field: &str) -> &'a [Value] {
    let list = status.get(field).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

/// A value without what says nothing: null, and lists and objects of which nothing is left. An
/// API server sends some of these, and they mean the same as what is absent.
fn without_nothing(value: Option<&Value>) -> Option<Value> {
    match value? {
        Value::Null => None,
        Value::Object(fields) => {
            let said = fields.iter();
            let said = said.filter_map(|(key, it)| Some((key.clone(), without_nothing(Some(it))?)));
            let said: Map<_, _> = said.collect();
            (!said.is_empty()).then(|| said.into())
        }
        Value::Array(items) => {
            let said = items.iter().filter_map(|it| without_nothing(Some(it)));
            let said: Vec<_> = said.collect();
            (!said.is_empty()).then(|| said.into())
        }
        other => Some(other.clone()),
    }
}

fn addresses(new: &[Value], old: &[Value]) -> Vec<Value> {
    if new == old {
        return Vec::new();
    }
    let gone = old.iter().filter(|it| !new.contains(it));
    let gone = gone.map(|it| json!({"ip": it["ip"], "$patch": "delete"}));
    new.iter().cloned().chain(gone).collect()
}

fn conditions(new: &[Value], old: &[Value]) -> Vec<Value> {
    let find = |list: &[Value], kind: &Value| list.iter().find(|it| it["type"] == *kind).cloned();
    let is_own = |it: &&Value| {
        let kind = it["type"].as_str().unwrap_or_default();
        OWNED_CONDITIONS.contains(&kind) || kind == DISRUPTION
    };
    let changed = new.iter().filter(is_own).filter_map(|condition| {
        let before = find(old, &condition["type"]).unwrap_or(Value::Null);
        let differs = |field: &str| condition[field] != before[field];
        OF_CONDITION.into_iter().any(differs).then(|| {
            let mut sent = condition.clone();
            for field in ["reason", "message"] {
                // What it no longer says would stay.
                if sent[field].is_null() {
                    sent[field] = Value::Null;
                }
            }
            sent
        })
    });
    let gone = old
        .iter()
        .filter(is_own)
        .filter(|before| before["type"] != DISRUPTION && find(new, &before["type"]).is_none());
    let gone = gone.map(|before| json!({"type": before["type"], "$patch": "delete"}));
    changed.chain(gone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).unwrap()
    }

    fn patch(published: Value, held: Value) -> Option<Value> {
        let patch = status_patch("u", &status(published), &status(held), false)?;
        assert_eq!(patch["metadata"], json!({"uid": "u"}));
        Some(patch["status"].clone())
    }

    #[test]
    fn what_is_the_same_is_not_sent() {
        let container = |more: Value| {
            let mut it = json!({"name": "c", "image": "i", "imageID": "", "ready": true,
                "restartCount": 0, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}});
            it.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!({"phase": "Running", "containerStatuses": [it]})
        };
        let held = container(json!({"lastState": {}, "resources": {}}));
        assert_eq!(patch(container(json!({})), held), None);
        let ready = |time: &str| {
            json!({"conditions": [{"type": "Ready", "status": "True",
                "lastTransitionTime": time}]})
        };
        let (one, other) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
        assert_eq!(patch(ready(one), ready(other)), None);
    }

    #[test]
    fn what_is_no_longer_said_is_sent_as_null() {
        let held = json!({"phase": "Pending", "message": "m", "reason": "r", "podIP": "1.1.1.1",
            "podIPs": [{"ip": "1.1.1.1"}],
            "conditions": [{"type": "Ready", "status": "False", "reason": "R", "message": "M"},
                {"type": "PodResizePending", "status": "True"},
                {"type": "others.io/x", "status": "True"},
                {"type": "DisruptionTarget", "status": "True"}]});
        let published = json!({"phase": "Running", "podIP": "2.2.2.2",
            "podIPs": [{"ip": "2.2.2.2"}],
            "conditions": [{"type": "Ready", "status": "True"}]});
        let expected = json!({"phase": "Running", "reason": null, "message": null,
            "podIP": "2.2.2.2",
            "podIPs": [{"ip": "2.2.2.2"}, {"ip": "1.1.1.1", "$patch": "delete"}],
            "conditions": [
                {"type": "Ready", "status": "True", "reason": null, "message": null},
                {"type": "PodResizePending", "$patch": "delete"}]});
        assert_eq!(patch(published, held), Some(expected));
    }

    #[test]
    fn a_pod_that_has_ended_stays_as_it_ended() {
        let held = status(json!({"phase": "Failed", "reason": "Evicted"}));
        let published = status(json!({"phase": "Running"}));
        assert_eq!(status_patch("u", &published, &held, true), None);
        assert!(status_patch("u", &published, &held, false).is_some());
    }
}
