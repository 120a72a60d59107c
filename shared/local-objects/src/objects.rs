//! What is known of the objects that a pod refers to.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::object::{LocalObject, ObjectKind, ObjectRef};

/// What is known of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It is this one.
    Found(Arc<LocalObject>),
    /// There is none.
    Missing,
    /// Nobody could be asked, for this reason.
    Unknown(String),
}

/// What is known of the objects that one pod refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Objects {
    known: BTreeMap<ObjectRef, Lookup>,
}

impl Objects {
    /// Notes what is known of an object.
    pub fn insert(&mut self, reference: ObjectRef, lookup: Lookup) {
        self.known.insert(reference, lookup);
    }

    /// What is known of an object. One that was never asked for is not known.
    #[must_use]
    pub fn get(&self, kind: ObjectKind, namespace: &str, name: &str) -> Lookup {
        let reference = ObjectRef {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let known = self.known.get(&reference).cloned();
        known.unwrap_or_else(|| Lookup::Unknown(format!("{reference} was not asked for")))
    }

    /// Whether something of an object could not be asked.
    #[must_use]
    pub fn has_unknown(&self) -> bool {
        let mut known = self.known.values();
        known.any(|lookup| matches!(lookup, Lookup::Unknown(_)))
    }
}
