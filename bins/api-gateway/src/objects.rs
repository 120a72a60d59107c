//! The objects that are known: the pods that are bound to this node, the Node, and Services.

use std::sync::Arc;

use ipc::StateHub;
use tokio::sync::watch;

use crate::object::Object;

/// Why an object of this node is not known.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum NotKnown {
    /// The API server has not been asked, or has not answered.
    #[error("the API server has not answered yet")]
    NotListed,
    /// It has none.
    #[error("the API server has no Node of this node's name")]
    Absent,
}

/// Objects of one kind by UID, and the version up to which they are known.
#[derive(Clone)]
pub(crate) struct Objects {
    pub(crate) hub: StateHub<String, Arc<Object>>,
    /// None before the first list was complete.
    version: watch::Sender<Option<String>>,
}

impl Objects {
    pub(crate) fn new() -> Objects {
        Objects {
            hub: StateHub::new(),
            version: watch::Sender::new(None),
        }
    }

    /// A list: what it lacks is gone.
    pub(crate) fn listed(&self, objects: Vec<Object>, version: &str) {
        let gone = self.hub.keys().into_iter();
        let gone = gone.filter(|uid| objects.iter().all(|object| object.uid != *uid));
        for uid in gone.collect::<Vec<_>>() {
            self.hub.remove(&uid);
        }
        for object in objects {
            self.changed(object);
        }
        self.reached(version);
    }

    /// A new version of an object.
    pub(crate) fn changed(&self, object: Object) {
        self.hub.set(object.uid.clone(), Arc::new(object));
    }

    /// An object is gone.
    pub(crate) fn gone(&self, uid: &str) {
        self.hub.remove(&uid.to_owned());
    }

    /// All is known up to this version.
    pub(crate) fn reached(&self, version: &str) {
        self.version.send_replace(Some(version.to_owned()));
    }

    /// Waits until a list was complete; the version that is known then.
    pub(crate) async fn are_listed(&self) -> String {
        let mut version = self.version.subscribe();
        let listed = version.wait_for(Option::is_some).await;
        listed
            .ok()
            .and_then(|version| version.clone())
            .unwrap_or_default()
    }

    /// The only object of a kind of which there is one, as the Node is.
    ///
    /// # Errors
    /// When it is not known.
    pub(crate) fn known(&self) -> Result<Arc<Object>, NotKnown> {
        if self.version.borrow().is_none() {
            return Err(NotKnown::NotListed);
        }
        let uid = self.hub.keys().into_iter().next();
        uid.and_then(|uid| self.hub.get(&uid))
            .ok_or(NotKnown::Absent)
    }

    /// The object of this UID now.
    pub(crate) fn get(&self, uid: &str) -> Option<Arc<Object>> {
        self.hub.get(&uid.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_not_listed_is_distinguished_from_one_that_is_not_there() {
        let node = || {
            let json = r#"{"metadata":{"name":"n1","uid":"u"},"spec":{},"status":{}}"#;
            Object::parse(json).unwrap()
        };
        let nodes = Objects::new();
        assert_eq!(nodes.known().err(), Some(NotKnown::NotListed));
        nodes.listed(Vec::new(), "1");
        assert_eq!(nodes.known().err(), Some(NotKnown::Absent));
        nodes.listed(vec![node()], "2");
        assert_eq!(nodes.known().unwrap().name, "n1");
    }
}
