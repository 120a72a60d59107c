//! What two nodes say of the same pods, without what differs by chance. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Fields that differ from pod to pod: times, addresses and ids.
const BY_CHANCE: [&str; 14] = [
    "lastHeartbeatTime",
    "lastTransitionTime",
    "lastProbeTime",
    "startTime",
    "startedAt",
    "finishedAt",
    "containerID",
    "imageID",
    "image",
    "podIP",
    "podIPs",
    "hostIP",
    "hostIPs",
    "user",
];

/// Lists whose order says nothing, and the key of their items.
const BY_KEY: [(&str, &str); 4] = [
    ("conditions", "type"),
    ("containerStatuses", "name"),
    ("initContainerStatuses", "name"),
    ("volumeMounts", "name"),
];

/// A status as a map from the path of each value to the value.
pub type Flat = BTreeMap<String, String>;

/// A pod's status without what differs by chance. Its UID is replaced where a text has it.
#[must_use]
pub fn status(pod: &Value) -> Flat {
    let mut flat = Flat::new();
    flatten(&pod["status"], "status", &mut flat);
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    for value in flat.values_mut() {
        *value = without_chance(value, uid);
    }
    flat
}

/// An object without what differs by chance.
#[must_use]
pub fn object(object: &Value) -> Flat {
    let mut flat = Flat::new();
    for part in ["spec", "status"] {
        flatten(&object[part], part, &mut flat);
    }
    for part in ["labels", "annotations"] {
        flatten(&object["metadata"][part], part, &mut flat);
    }
    flat
}

/// Reason, type and message of a pod's events in the order in which they were first seen, each
/// once.
#[must_use]
pub fn events(list: &[Value], uid: &str) -> Vec<String> {
    let mut own: Vec<&Value> = list
        .iter()
        .filter(|event| event["involvedObject"]["uid"] == uid)
        .collect();
    // Within a second the name has the time.
    own.sort_by_key(|event| event["metadata"]["name"].as_str().map(str::to_owned));
    let mut seen = BTreeSet::new();
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let own = own.into_iter().map(|event| {
        let message = without_chance(&text(event, "message"), uid);
        format!(
            "{} {}: {message}",
            text(event, "type"),
            text(event, "reason")
        )
    });
    own.filter(|event| seen.insert(event.clone())).collect()
}

/// The paths at which two statuses differ, with both values.
#[must_use]
pub fn differences(kubelet: &Flat, own: &Flat) -> Vec<String> {
    let paths: BTreeSet<&String> = kubelet.keys().chain(own.keys()).collect();
    let paths = paths.into_iter().filter_map(|path| {
        let (kubelet, own) = (kubelet.get(path), own.get(path));
        let shown = |value: Option<&String>| value.map_or("absent".to_owned(), String::clone);
        (kubelet != own).then(|| format!("{path}: {} | {}", shown(kubelet), shown(own)))
    });
    paths.collect()
}

/// A text without the pod's UID, numbers of seconds, and the ids that a runtime gives.
fn without_chance(text: &str, uid: &str) -> String {
    let text = match uid {
        "" => text.to_owned(),
        uid => text.replace(uid, "UID"),
    };
    let words = text.split(' ').map(|word| {
        let hexadecimal = word.chars().filter(char::is_ascii_hexdigit).count();
        let seconds = word.trim_matches(['(', ')', '.']).strip_suffix(['s']);
        match seconds.is_some_and(|it| it.trim_end_matches('m').parse::<f64>().is_ok()) {
            true => "TIME".to_owned(),
            false if hexadecimal >= 64 => "ID".to_owned(),
            false => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn flatten(value: &Value, path: &str, flat: &mut Flat) {
    match value {
        Value::Null => {}
        Value::Object(fields) => flatten_fields(fields, path, flat),
        Value::Array(items) => {
            let field = path.rsplit('.').next().unwrap_or_default();
            let key = BY_KEY.iter().find(|(list, _)| *list == field);
            for (index, item) in items.iter().enumerate() {
                let name = key.and_then(|(_, key)| item[*key].as_str());
                let name = name.map_or_else(|| index.to_string(), str::to_owned);
                flatten(item, &format!("{path}[{name}]"), flat);
            }
        }
        Value::String(text) => _ = flat.insert(path.to_owned(), text.clone()),
        other => _ = flat.insert(path.to_owned(), other.to_string()),
    }
}

fn flatten_fields(fields: &Map<String, Value>, path: &str, flat: &mut Flat) {
    for (field, value) in fields {
        if !BY_CHANCE.contains(&field.as_str()) {
            flatten(value, &format!("{path}.{field}"), flat);
        }
    }
}
