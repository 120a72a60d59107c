//! Watches: what changed, line by line. Pure.

use serde_json::{Value, json};

use super::request::Request;
use super::selector::Selector;
use super::store::{Change, Refusal, Store};

/// A watch that stands.
#[derive(Debug)]
pub(super) struct Watch {
    resource: String,
    selector: Selector,
    version: u64,
}

impl Watch {
    pub(super) fn of(request: &Request) -> Result<Watch, Refusal> {
        Ok(Watch {
            resource: request.target()?.key.resource,
            selector: Selector::parse(request.asked("fieldSelector")),
            version: request.asked("resourceVersion").parse().unwrap_or_default(),
        })
    }

    /// The lines about what changed since the last call.
    pub(super) fn lines(&mut self, store: &Store) -> Result<String, Refusal> {
        let mut lines = String::new();
        for change in store.since(self.version)? {
            if let Some(event) = self.event(change) {
                lines.push_str(&event.to_string());
                lines.push('\n');
            }
        }
        self.version = store.version();
        Ok(lines)
    }

    fn event(&self, change: &Change) -> Option<Value> {
        if change.resource != self.resource {
            return None;
        }
        let matching = |object: &&std::sync::Arc<Value>| self.selector.matches(object);
        let before = change.before.as_ref().filter(matching);
        let after = change.after.as_ref().filter(matching);
        match (before, after) {
            (None, None) => None,
            (None, Some(new)) => Some(json!({"type": "ADDED", "object": **new})),
            (Some(_), Some(new)) => Some(json!({"type": "MODIFIED", "object": **new})),
            (Some(last), None) => Some(json!({"type": "DELETED", "object": **last})),
        }
    }

    /// The line that says how far it has come.
    pub(super) fn bookmark(&self) -> String {
        let metadata = json!({"resourceVersion": self.version.to_string()});
        let event = json!({"type": "BOOKMARK", "object": {"metadata": metadata}});
        format!("{event}\n")
    }
}

/// The line that ends a watch.
pub(super) fn error(refusal: &Refusal) -> String {
    let event = json!({"type": "ERROR", "object": refusal.status()});
    format!("{event}\n")
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::store::Key;
    use super::*;

    #[test]
    fn objects_come_when_they_begin_to_match_and_go_when_they_are_deleted() {
        let mut store = Store::default();
        let query = "watch=true&fieldSelector=spec.nodeName%3Dn&resourceVersion=0";
        let request = Request::new("GET", ("/api/v1/pods", query), "", Vec::new());
        let mut watch = Watch::of(&request).unwrap();
        let pod = json!({"metadata": {"name": "a"}, "spec": {}});
        let pod = store.create("pods", pod, Timestamp::UNIX_EPOCH).unwrap();
        let mut pod = (*pod).clone();
        let key = Key::of("pods", &pod);
        let mut expect = |store: &Store, expected: Option<&str>| {
            let lines = watch.lines(store).unwrap();
            let event: Option<Value> = serde_json::from_str(&lines).ok();
            assert_eq!(event.as_ref().and_then(|it| it["type"].as_str()), expected);
        };
        expect(&store, None);
        for (field, value, expected) in [
            ("spec", json!({"nodeName": "n"}), "ADDED"),
            ("status", json!({"phase": "Running"}), "MODIFIED"),
            (
                "metadata",
                json!({"name": "a", "deletionGracePeriodSeconds": 0}),
                "DELETED",
            ),
        ] {
            pod[field] = value;
            store.update(&key, pod.clone()).unwrap();
            expect(&store, Some(expected));
        }
    }
}
