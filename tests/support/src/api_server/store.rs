//! The objects, and what changed last. Pure: time is passed in.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

/// Changes from which a watch can go on; versions before them are forgotten.
const KEPT_CHANGES: usize = 2000;

/// An object's place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The kind's plural, as paths have it.
    pub(super) resource: String,
    /// Empty for objects of the whole cluster.
    pub(super) namespace: String,
    pub(super) name: String,
}

/// Why a request is refused: what becomes a metav1.Status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code} {reason}: {message}")]
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What happened to one object.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) version: u64,
    pub(super) resource: String,
    pub(super) before: Option<Arc<Value>>,
    pub(super) after: Option<Arc<Value>>,
}

/// All objects.
#[derive(Debug, Default)]
pub(super) struct Store {
    objects: BTreeMap<Key, Arc<Value>>,
    changes: VecDeque<Change>,
    version: u64,
    uids: u64,
}

impl Key {
    pub(super) fn new(resource: &str, namespace: &str, name: &str) -> Key {
        Key {
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Of an object of a resource.
    pub(super) fn of(resource: &str, object: &Value) -> Key {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        Key::new(resource, text("namespace"), text("name"))
    }
}

impl Refusal {
    pub(super) fn not_found(key: &Key) -> Refusal {
        let Key { resource, name, .. } = key;
        Refusal {
            code: 404,
            reason: "NotFound",
            message: format!("{resource} \"{name}\" not found"),
        }
    }

    pub(super) fn conflict(message: &str) -> Refusal {
        Refusal {
            code: 409,
            reason: "Conflict",
            message: message.to_owned(),
        }
    }

    pub(super) fn bad_request(error: &serde_json::Error) -> Refusal {
        Refusal {
            code: 400,
            reason: "BadRequest",
            message: error.to_string(),
        }
    }

    pub(super) fn expired() -> Refusal {
        Refusal {
            code: 410,
            reason: "Expired",
            message: "too old resource version".to_owned(),
        }
    }

    /// As answers and watches have it.
    pub(super) fn status(&self) -> Value {
        json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "code": self.code,
            "reason": self.reason,
            "message": self.message,
        })
    }
}

impl Store {
    /// The version of the last change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn get(&self, key: &Key) -> Result<&Arc<Value>, Refusal> {
        self.objects.get(key).ok_or_else(|| Refusal::not_found(key))
    }

    /// All objects of a resource.
    pub(super) fn list(&self, resource: &str) -> Vec<Arc<Value>> {
        let own = self.objects.iter();
        let own = own.filter(|(key, _)| key.resource == resource);
        own.map(|(_, object)| Arc::clone(object)).collect()
    }

    /// What changed after a version.
    pub(super) fn since(&self, version: u64) -> Result<impl Iterator<Item = &Change>, Refusal> {
        let first = self
            .changes
            .front()
            .map_or(self.version, |it| it.version - 1);
        match version < first {
            true => Err(Refusal::expired()),
            false => Ok(self.changes.iter().filter(move |it| it.version > version)),
        }
    }

    /// Adds an object, with a UID of its own.
    pub(super) fn create(
        &mut self,
        resource: &str,
        mut object: Value,
        now: Timestamp,
    ) -> Result<Arc<Value>, Refusal> {
        let key = Key::of(resource, &object);
        if self.objects.contains_key(&key) {
            return Err(Refusal {
                code: 409,
                reason: "AlreadyExists",
                message: format!("{resource} \"{}\" already exists", key.name),
            });
        }
        self.uids += 1;
        without_nothing(&mut object);
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(format!("00000000-0000-4000-8000-{:012x}", self.uids));
        metadata["creationTimestamp"] = json!(seconds(now));
        metadata["generation"] = json!(1);
        Ok(self.put(key, object))
    }

    /// Writes another version of an object that exists. One that is being deleted without
    /// grace, and without finalizers, goes.
    pub(super) fn update(&mut self, key: &Key, mut new: Value) -> Result<Arc<Value>, Refusal> {
        let old = Arc::clone(self.get(key)?);
        without_nothing(&mut new);
        let is_gone = new["metadata"]["deletionGracePeriodSeconds"] == 0
            && new["metadata"]["finalizers"]
                .as_array()
                .is_none_or(Vec::is_empty);
        if is_gone {
            return Ok(self.remove(key, new));
        }
        if new["spec"] != old["spec"] {
            let generation = old["metadata"]["generation"].as_u64().unwrap_or_default();
            new["metadata"]["generation"] = json!(generation + 1);
        }
        match new == *old {
            true => Ok(old),
            false => Ok(self.put(key.clone(), new)),
        }
    }

    fn put(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        let resource = key.resource.clone();
        let before = self.objects.insert(key, Arc::clone(&object));
        self.note(resource, before, Some(Arc::clone(&object)));
        object
    }

    /// Removes an object, of which this is the last version.
    fn remove(&mut self, key: &Key, mut last: Value) -> Arc<Value> {
        self.version += 1;
        last["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.remove(key);
        let last = Arc::new(last);
        self.note(key.resource.clone(), Some(Arc::clone(&last)), None);
        last
    }

    fn note(&mut self, resource: String, before: Option<Arc<Value>>, after: Option<Arc<Value>>) {
        self.changes.push_back(Change {
            version: self.version,
            resource,
            before,
            after,
        });
        if self.changes.len() > KEPT_CHANGES {
            self.changes.pop_front();
        }
    }
}

/// Takes away what an API server does not keep: null, and lists without items.
fn without_nothing(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(without_nothing);
            let is_nothing = |it: &Value| it.is_null() || it.as_array().is_some_and(Vec::is_empty);
            fields.retain(|_, it| !is_nothing(it));
        }
        Value::Array(items) => items.iter_mut().for_each(without_nothing),
        _ => {}
    }
}

/// A time as most objects have it, in whole seconds.
pub(super) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(store: &mut Store, name: &str) -> Value {
        let pod = json!({"metadata": {"name": name, "namespace": "d"}, "spec": {"a": 1}});
        let made = store.create("pods", pod, Timestamp::UNIX_EPOCH).unwrap();
        (*made).clone()
    }

    #[test]
    fn what_changed_is_known_until_it_is_forgotten() {
        let mut store = Store::default();
        let mut new = pod(&mut store, "a");
        for count in 0..KEPT_CHANGES {
            new["spec"]["a"] = json!(count + 2);
            store.update(&Key::of("pods", &new), new.clone()).unwrap();
        }
        assert_eq!(store.since(1).unwrap().count(), KEPT_CHANGES);
        assert_eq!(store.since(0).err(), Some(Refusal::expired()));
    }

    #[test]
    fn a_generation_counts_changes_of_the_spec_and_nothing_changes_for_nothing() {
        let mut store = Store::default();
        let mut new = pod(&mut store, "a");
        let key = Key::of("pods", &new);
        store.update(&key, new.clone()).unwrap();
        assert_eq!(store.version(), 1);
        new["status"] = json!({"phase": "Running"});
        let changed = store.update(&key, new.clone()).unwrap();
        assert_eq!(changed["metadata"]["generation"], 1);
        new["spec"] = json!({});
        let changed = store.update(&key, new).unwrap();
        assert_eq!(changed["metadata"]["generation"], 2);
        assert_eq!(changed["metadata"]["resourceVersion"], "3");
    }

    #[test]
    fn lists_without_items_and_nulls_are_not_kept() {
        let mut store = Store::default();
        let mut new = pod(&mut store, "a");
        new["spec"] = json!({"a": [], "b": [{"c": null, "d": {}}]});
        let kept = store.update(&Key::of("pods", &new), new.clone()).unwrap();
        assert_eq!(kept["spec"], json!({"b": [{"d": {}}]}));
    }

    #[test]
    fn an_object_with_finalizers_stays_until_they_are_gone() {
        let mut store = Store::default();
        let mut new = pod(&mut store, "a");
        let key = Key::of("pods", &new);
        new["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        new["metadata"]["finalizers"] = json!(["x"]);
        store.update(&key, new.clone()).unwrap();
        new["metadata"]["finalizers"] = json!([]);
        assert!(store.get(&key).is_ok());
        store.update(&key, new).unwrap();
        assert!(store.get(&key).is_err());
    }
}
