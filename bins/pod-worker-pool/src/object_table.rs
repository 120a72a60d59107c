//! What is known of the ConfigMaps and Secrets that pods refer to. Pure.
//!
//! config-sourcer tells which objects there are, in which versions; the content of those
//! that some pod refers to is fetched, and held as long as one does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use local_objects::{LocalObject, Lookup, ObjectRef, Objects};

/// The objects that config-sourcer has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectList {
    /// Why one that is not here may be there all the same; empty: it is not.
    pub(crate) incomplete: String,
    /// The version of each.
    pub(crate) versions: BTreeMap<ObjectRef, String>,
}

/// What is known.
#[derive(Debug, Default)]
pub(crate) struct ObjectTable {
    /// `None` until config-sourcer has told.
    list: Option<ObjectList>,
    held: BTreeMap<ObjectRef, Arc<LocalObject>>,
    /// By the UIDs of pods.
    wanted: BTreeMap<String, BTreeSet<ObjectRef>>,
}

impl ObjectTable {
    /// Notes to which objects a pod refers; whether one of them has to be fetched.
    pub(crate) fn want(&mut self, pod_uid: &str, references: BTreeSet<ObjectRef>) -> bool {
        if references.is_empty() {
            self.forget(pod_uid);
            return false;
        }
        if self.wanted.get(pod_uid) != Some(&references) {
            self.wanted.insert(pod_uid.to_owned(), references);
            self.drop_unwanted();
        }
        self.to_fetch().is_some()
    }

    /// A pod is gone.
    pub(crate) fn forget(&mut self, pod_uid: &str) {
        if self.wanted.remove(pod_uid).is_some() {
            self.drop_unwanted();
        }
    }

    /// What is known of the objects that a pod refers to.
    pub(crate) fn known(&self, pod_uid: &str) -> Objects {
        let mut objects = Objects::default();
        for reference in self.wanted.get(pod_uid).into_iter().flatten() {
            objects.insert(reference.clone(), self.lookup(reference));
        }
        objects
    }

    /// Takes over what config-sourcer has; the pods that have to be looked at.
    pub(crate) fn listed(&mut self, list: ObjectList) -> Vec<String> {
        let all: BTreeSet<ObjectRef> = self.wanted.values().flatten().cloned().collect();
        let before: Vec<_> = all.iter().map(|it| self.lookup(it)).collect();
        self.list = Some(list);
        let changed = all.iter().zip(before);
        let changed: BTreeSet<_> = changed
            .filter(|(reference, before)| self.lookup(reference) != *before)
            .map(|(reference, _)| reference.clone())
            .collect();
        self.drop_unwanted();
        self.pods_with(|reference| changed.contains(reference))
    }

    /// The next object whose content is to be fetched, and in which version.
    pub(crate) fn to_fetch(&self) -> Option<(ObjectRef, String)> {
        let list = self.list.as_ref()?;
        let mut wanted = self.wanted.values().flatten();
        wanted.find_map(|reference| {
            let version = list.versions.get(reference)?;
            let held = self.held.get(reference);
            let is_held = held.is_some_and(|held| held.version == *version);
            (!is_held).then(|| (reference.clone(), version.clone()))
        })
    }

    /// Holds the content of an object; the pods that have to be looked at.
    pub(crate) fn fetched(&mut self, object: LocalObject) -> Vec<String> {
        let reference = object.reference.clone();
        self.held.insert(reference.clone(), Arc::new(object));
        self.drop_unwanted();
        self.pods_with(|wanted| *wanted == reference)
    }

    fn lookup(&self, reference: &ObjectRef) -> Lookup {
        let unknown = |why: String| Lookup::Unknown(format!("{reference} is not known yet: {why}"));
        let Some(list) = &self.list else {
            return unknown("config-sourcer has not told its objects".to_owned());
        };
        match (list.versions.get(reference), self.held.get(reference)) {
            (None, _) if list.incomplete.is_empty() => Lookup::Missing,
            (None, _) => unknown(list.incomplete.clone()),
            (Some(version), Some(held)) if held.version == *version => {
                Lookup::Found(Arc::clone(held))
            }
            (Some(_), _) => unknown("it is being fetched".to_owned()),
        }
    }

    fn pods_with(&self, is_meant: impl Fn(&ObjectRef) -> bool) -> Vec<String> {
        let pods = self.wanted.iter();
        pods.filter(|(_, references)| references.iter().any(&is_meant))
            .map(|(uid, _)| uid.clone())
            .collect()
    }

    /// A Secret that no pod refers to any more is not kept.
    fn drop_unwanted(&mut self) {
        let wanted: BTreeSet<&ObjectRef> = self.wanted.values().flatten().collect();
        self.held.retain(|reference, _| wanted.contains(reference));
    }
}

#[cfg(test)]
mod tests {
    use local_objects::ObjectKind;

    use super::*;

    fn reference(name: &str) -> ObjectRef {
        ObjectRef {
            kind: ObjectKind::Secret,
            namespace: "d".to_owned(),
            name: name.to_owned(),
        }
    }

    fn list(versions: &[(&str, &str)]) -> ObjectList {
        let versions = versions.iter();
        ObjectList {
            incomplete: String::new(),
            versions: versions
                .map(|(name, version)| (reference(name), (*version).to_owned()))
                .collect(),
        }
    }

    fn object(name: &str, version: &str) -> LocalObject {
        LocalObject {
            reference: reference(name),
            version: version.to_owned(),
            data: BTreeMap::new(),
            binary_keys: BTreeSet::new(),
        }
    }

    fn want(table: &mut ObjectTable, uid: &str, names: &[&str]) -> bool {
        table.want(uid, names.iter().map(|name| reference(name)).collect())
    }

    /// `missing`, `unknown`, or the version of what is found.
    fn known(table: &ObjectTable, uid: &str, name: &str) -> String {
        match table.known(uid).get(ObjectKind::Secret, "d", name) {
            Lookup::Found(object) => object.version.clone(),
            Lookup::Missing => "missing".to_owned(),
            Lookup::Unknown(_) => "unknown".to_owned(),
        }
    }

    #[test]
    fn an_object_is_unknown_until_it_is_listed_and_fetched() {
        let mut table = ObjectTable::default();
        assert!(!want(&mut table, "u", &["a", "b"]), "there is no list yet");
        assert_eq!(known(&table, "u", "a"), "unknown");
        assert_eq!(table.listed(list(&[("a", "1"), ("other", "1")])), ["u"]);
        assert_eq!(known(&table, "u", "a"), "unknown");
        assert_eq!(known(&table, "u", "b"), "missing");
        assert_eq!(table.to_fetch(), Some((reference("a"), "1".to_owned())));
        assert_eq!(table.fetched(object("a", "1")), ["u"]);
        assert_eq!(known(&table, "u", "a"), "1");
        assert_eq!(table.to_fetch(), None, "nobody refers to the other one");
    }

    #[test]
    fn pods_are_looked_at_when_something_of_theirs_has_changed() {
        let mut table = ObjectTable::default();
        table.listed(list(&[("a", "1"), ("b", "1")]));
        want(&mut table, "u1", &["a"]);
        want(&mut table, "u2", &["b"]);
        table.fetched(object("a", "1"));
        table.fetched(object("b", "1"));
        let same = list(&[("a", "1"), ("b", "1")]);
        assert_eq!(table.listed(same), [""; 0]);
        assert_eq!(table.listed(list(&[("a", "2"), ("b", "1")])), ["u1"]);
        assert_eq!(table.fetched(object("a", "2")), ["u1"]);
        assert_eq!(table.listed(list(&[("a", "2")])), ["u2"]);
        assert_eq!(known(&table, "u2", "b"), "missing");
    }

    /// A version that came too late does not count.
    #[test]
    fn only_the_version_that_is_listed_is_found() {
        let mut table = ObjectTable::default();
        want(&mut table, "u", &["a"]);
        table.listed(list(&[("a", "2")]));
        table.fetched(object("a", "1"));
        assert_eq!(known(&table, "u", "a"), "unknown");
        assert!(table.to_fetch().is_some());
    }

    #[test]
    fn nothing_is_missing_while_the_list_is_incomplete() {
        let mut table = ObjectTable::default();
        want(&mut table, "u", &["a"]);
        let mut incomplete = list(&[]);
        incomplete.incomplete = "x.yaml: is a FIFO".to_owned();
        table.listed(incomplete);
        assert_eq!(known(&table, "u", "a"), "unknown");
        assert_eq!(table.listed(list(&[])), ["u"]);
        assert_eq!(known(&table, "u", "a"), "missing");
    }

    #[test]
    fn what_no_pod_refers_to_is_not_kept() {
        let mut table = ObjectTable::default();
        table.listed(list(&[("a", "1")]));
        want(&mut table, "u1", &["a"]);
        want(&mut table, "u2", &["a"]);
        table.fetched(object("a", "1"));
        table.forget("u1");
        assert_eq!(table.held.len(), 1);
        want(&mut table, "u2", &[]);
        assert_eq!(table.held.len(), 0);
        table.fetched(object("a", "1"));
        assert_eq!(table.held.len(), 0);
    }
}
