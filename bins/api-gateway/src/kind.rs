//! Which objects are followed, and what of the API server's answers about them is taken: what
//! was asked for, and nothing older than what was seen. Pure.

use std::convert::identity;

use pod::identity::{IdentityError, check_uid};
use serde_json::Error;

use crate::object::{List, Object};
use crate::service;

/// Which objects.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    /// As objects of it say.
    name: &'static str,
    /// The path of their list.
    pub(crate) path: &'static str,
    /// `fieldSelector`, as it stands in a query.
    pub(crate) selector: String,
    /// Pods of other nodes, which were not asked for, are left out.
    node_name: Option<String>,
    /// What is kept of each.
    keep: fn(Object) -> Object,
}

/// A list that was taken.
pub(crate) struct Listed {
    pub(crate) objects: Vec<Object>,
    pub(crate) version: String,
    /// Objects that were left out of it.
    pub(crate) left_out: Vec<NotTaken>,
}

/// Why something is not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    /// It is no JSON of an object.
    #[error("an object of {path} cannot be read")]
    Object { path: &'static str, source: Error },
    /// It is no JSON of a list.
    #[error("a list of {path} cannot be read")]
    List { path: &'static str, source: Error },
    /// It is an object, or a list, of another kind.
    #[error("{path} has a {found:?}, which is no {expected}")]
    Kind {
        path: &'static str,
        found: String,
        expected: String,
    },
    /// Its UID cannot be one.
    #[error("{path} has {namespace}/{name} with a UID that is none")]
    Uid {
        path: &'static str,
        namespace: String,
        name: String,
        source: IdentityError,
    },
    /// It is bound to another node.
    #[error("{path} has {namespace}/{name}, which is bound to another node: {node:?}")]
    Foreign {
        path: &'static str,
        namespace: String,
        name: String,
        node: String,
    },
    /// It is older than what was seen.
    #[error("{path} has gone back to version {version} from version {seen}")]
    Old {
        path: &'static str,
        version: String,
        seen: String,
    },
}

impl Kind {
    /// The pods that are bound to a node.
    pub(crate) fn pods(node: &str) -> Kind {
        Kind {
            name: "Pod",
            path: "/api/v1/pods",
            selector: format!("spec.nodeName%3D{node}"),
            node_name: Some(node.to_owned()),
            keep: identity,
        }
    }

    /// One Node.
    pub(crate) fn node(name: &str) -> Kind {
        Kind {
            name: "Node",
            path: "/api/v1/nodes",
            selector: format!("metadata.name%3D{name}"),
            node_name: None,
            keep: identity,
        }
    }

    /// The Services that have an address.
    pub(crate) fn services() -> Kind {
        Kind {
            name: "Service",
            path: "/api/v1/services",
            selector: service::SELECTOR.to_owned(),
            node_name: None,
            keep: service::kept,
        }
    }

    /// A list, if it is of this kind and not older than `seen`. An object that cannot be read
    /// may be one that is known: without it the list would say that it is gone.
    pub(crate) fn list(&self, body: &[u8], seen: Option<&str>) -> Result<Listed, NotTaken> {
        let path = self.path;
        let List {
            kind,
            metadata,
            items,
        } = serde_json::from_slice(body).map_err(|source| NotTaken::List { path, source })?;
        self.is_of_kind(&kind, format!("{}List", self.name))?;
        let version = metadata.resource_version;
        if let Some(seen) = seen {
            self.is_not_older(&version, seen)?;
        }
        let (mut objects, mut left_out) = (Vec::new(), Vec::new());
        for item in items {
            match self.object(item.get()) {
                Ok(object) => objects.push(object),
                Err(error @ NotTaken::Object { .. }) => return Err(error),
                Err(error) => left_out.push(error),
            }
        }
        Ok(Listed {
            objects,
            version,
            left_out,
        })
    }

    /// The object of a change, if it is one that was asked for and not older than `seen`.
    pub(crate) fn changed(&self, json: &str, seen: &str) -> Result<Object, NotTaken> {
        let object = self.object(json)?;
        self.is_not_older(&object.version, seen)?;
        Ok(object)
    }

    /// The version that a bookmark says.
    pub(crate) fn bookmark(&self, json: &str, seen: &str) -> Result<String, NotTaken> {
        let (_, Object { version, .. }) = self.read(json)?;
        self.is_not_older(&version, seen)?;
        Ok(version)
    }

    fn object(&self, json: &str) -> Result<Object, NotTaken> {
        let path = self.path;
        let (kind, object) = self.read(json)?;
        // The objects of a list do not say it.
        if !kind.is_empty() {
            self.is_of_kind(&kind, self.name.to_owned())?;
        }
        let (namespace, name) = (object.namespace.clone(), object.name.clone());
        let wanted = self.node_name.as_ref();
        if wanted.is_some_and(|node| *node != object.node_name) {
            return Err(NotTaken::Foreign {
                path,
                namespace,
                name,
                node: object.node_name,
            });
        }
        match check_uid(&object.uid) {
            Ok(()) => Ok((self.keep)(object)),
            Err(source) => Err(NotTaken::Uid {
                path,
                namespace,
                name,
                source,
            }),
        }
    }

    fn read(&self, json: &str) -> Result<(String, Object), NotTaken> {
        let path = self.path;
        Object::parse_with_kind(json).map_err(|source| NotTaken::Object { path, source })
    }

    fn is_of_kind(&self, found: &str, expected: String) -> Result<(), NotTaken> {
        match found == expected {
            true => Ok(()),
            false => Err(NotTaken::Kind {
                path: self.path,
                found: found.to_owned(),
                expected,
            }),
        }
    }

    /// Versions of one API server are numbers that grow (KEP 5504).
    fn is_not_older(&self, version: &str, seen: &str) -> Result<(), NotTaken> {
        let number = |version: &str| version.parse::<u128>().ok();
        match number(version).zip(number(seen)) {
            Some((new, old)) if new < old => Err(NotTaken::Old {
                path: self.path,
                version: version.to_owned(),
                seen: seen.to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(uid: &str) -> Value {
        json!({"metadata": {"name": "a", "namespace": "d", "uid": uid, "resourceVersion": "7"},
            "spec": {"nodeName": "n"}})
    }

    fn with(mut object: Value, pointer: &str, field: &str, value: Value) -> Value {
        object.pointer_mut(pointer).unwrap()[field] = value;
        object
    }

    fn list(items: &Value) -> Value {
        json!({"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": items})
    }

    #[test]
    fn an_object_that_was_not_asked_for_is_not_taken_and_named() {
        let other = with(pod("u"), "/spec", "nodeName", json!("m"));
        for (object, said) in [
            (pod("u"), ""),
            (with(pod("u"), "", "kind", json!("Pod")), ""),
            (with(pod("u"), "", "kind", json!("Secret")), r#""Secret""#),
            (json!({"metadata": {"uid": "u"}}), "another node"),
            (other, r#"d/a, which is bound to another node: "m""#),
            (pod(""), "d/a"),
            (
                pod("../../up"),
                r#"d/a with a UID that is none: uid "../../up""#,
            ),
            (json!([]), "cannot be read"),
        ] {
            let taken = Kind::pods("n").changed(&object.to_string(), "7");
            let error = taken.err().map(|error| telemetry::chain(&error));
            assert_eq!(error.is_none(), said.is_empty(), "{object}");
            assert!(error.unwrap_or_default().contains(said), "{object}");
        }
    }

    #[test]
    fn a_list_is_taken_whole_but_for_what_was_not_asked_for() {
        let other = with(pod("v"), "/spec", "nodeName", json!("m"));
        for (list, expected) in [
            (list(&json!([pod("u"), other])), Some((1, 1))),
            (list(&json!([pod("u"), {"metadata": 1}])), None),
            (with(list(&json!([])), "", "kind", json!("NodeList")), None),
            (json!({"kind": "PodList", "metadata": {}}), None),
        ] {
            let taken = Kind::pods("n").list(list.to_string().as_bytes(), None);
            let counts = taken.map(|it| (it.objects.len(), it.left_out.len()));
            assert_eq!(counts.ok(), expected, "{list}");
        }
    }

    #[test]
    fn nothing_is_taken_that_is_older_than_what_was_seen() {
        let (pod, list) = (pod("u").to_string(), list(&json!([])).to_string());
        let kind = Kind::pods("n");
        for (seen, is_taken) in [("6", true), ("7", true), ("x", true), ("10", false)] {
            assert_eq!(kind.changed(&pod, seen).is_ok(), is_taken, "{seen}");
            assert_eq!(kind.bookmark(&pod, seen).is_ok(), is_taken, "{seen}");
            let listed = kind.list(list.as_bytes(), Some(seen));
            assert_eq!(listed.is_ok(), is_taken, "{seen}");
        }
        // The newest list, where the API server has forgotten what was seen.
        assert!(kind.list(list.as_bytes(), None).is_ok());
    }
}
