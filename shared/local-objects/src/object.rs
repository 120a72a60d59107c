//! One ConfigMap, Secret or PersistentVolume.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Most keys of an object. Each makes a file in a volume.
pub const MAX_OBJECT_KEYS: usize = 4096;

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
    /// A PersistentVolume, by the namespace and name of the claim that it is bound to.
    PersistentVolume,
}

impl ObjectKind {
    /// Its name in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::ConfigMap => "ConfigMap",
            ObjectKind::Secret => "Secret",
            ObjectKind::PersistentVolume => "PersistentVolume",
        }
    }

    /// Its name as a resource of the API, which errors use.
    #[must_use]
    pub fn resource(self) -> &'static str {
        match self {
            ObjectKind::ConfigMap => "configmap",
            ObjectKind::Secret => "secret",
            ObjectKind::PersistentVolume => "persistentvolume",
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<ObjectKind> {
        let kinds = [
            ObjectKind::ConfigMap,
            ObjectKind::Secret,
            ObjectKind::PersistentVolume,
        ];
        kinds.into_iter().find(|kind| kind.name() == name)
    }
}

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// What it is.
    pub kind: ObjectKind,
    /// Where it is: a pod refers to objects of its own namespace only.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObjectRef {
            kind,
            namespace,
            name,
        } = self;
        let of = match kind {
            ObjectKind::ConfigMap | ObjectKind::Secret => "",
            ObjectKind::PersistentVolume => "of the claim ",
        };
        write!(formatter, "{} {of}{namespace}/{name}", kind.name())
    }
}

/// A value of an object. Its Debug form tells the length and nothing else, so that no log
/// and no error shows a Secret. Clones share it.
#[derive(Clone, PartialEq, Eq)]
pub struct ObjectBytes(Arc<[u8]>);

impl ObjectBytes {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for ObjectBytes {
    fn from(bytes: Vec<u8>) -> ObjectBytes {
        ObjectBytes(bytes.into())
    }
}

impl fmt::Debug for ObjectBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "[{} bytes]", self.0.len())
    }
}

/// One version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalObject {
    /// Which.
    pub reference: ObjectRef,
    /// Tells this version from others.
    pub version: String,
    /// Its values by key: of a ConfigMap `data` and `binaryData`, of a Secret `data` and
    /// `stringData`, of a PersistentVolume what
    /// [`PersistentVolume`](crate::PersistentVolume) makes of it.
    pub data: BTreeMap<String, ObjectBytes>,
    /// Those of a ConfigMap's `binaryData`, which variables do not see.
    pub binary_keys: BTreeSet<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_value() {
        let object = LocalObject {
            reference: ObjectRef {
                kind: ObjectKind::Secret,
                namespace: "d".to_owned(),
                name: "s".to_owned(),
            },
            version: "1".to_owned(),
            data: BTreeMap::from([("password".to_owned(), b"hunter2".to_vec().into())]),
            binary_keys: BTreeSet::new(),
        };
        let text = format!("{object:?}");
        assert!(text.contains(r#""password": [7 bytes]"#), "{text}");
        assert!(!text.contains("hunter") && !text.contains("104"), "{text}");
    }
}
