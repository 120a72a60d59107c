//! The ConfigMaps and Secrets of the objects directory, made of its files. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use local_objects::{LocalObject, ObjectRef};
use pod_manifest::DecodedObject;

use crate::snapshot::Problem;

/// Most objects that are held.
pub(crate) const MAX_OBJECTS: usize = 1024;

/// Most bytes of all objects: they are in memory.
pub(crate) const MAX_TOTAL_BYTES: usize = 32 << 20;

/// How many objects and bytes may still be added. A file for which there is no room is not
/// kept in memory: the directory is there twice while it is read again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) objects: usize,
    pub(crate) bytes: usize,
}

impl Room {
    /// All of it.
    pub(crate) const ALL: Room = Room {
        objects: MAX_OBJECTS,
        bytes: MAX_TOTAL_BYTES,
    };

    /// Counts these objects against the room.
    ///
    /// # Errors
    /// When there is less room; none of them is counted then.
    pub(crate) fn take<'a>(
        &mut self,
        objects: impl IntoIterator<Item = &'a LocalObject>,
    ) -> Result<(), String> {
        let mut left = Some(*self);
        for object in objects {
            let data = object.data.iter();
            let size: usize = data.map(|(key, it)| key.len() + it.as_slice().len()).sum();
            left = left.and_then(|left| {
                Some(Room {
                    objects: left.objects.checked_sub(1)?,
                    bytes: left.bytes.checked_sub(size)?,
                })
            });
        }
        *self = left.ok_or_else(|| {
            format!("left out: there are at most {MAX_OBJECTS} objects of {MAX_TOTAL_BYTES} bytes")
        })?;
        Ok(())
    }
}

/// What one look found, by the path of each file.
pub(crate) type Findings = BTreeMap<String, Result<Vec<DecodedObject>, String>>;

/// What is known of the objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ObjectState {
    /// Whether the directory has been read since this process was started.
    pub(crate) is_read: bool,
    /// Why an object that is not here may be there all the same.
    pub(crate) incomplete: Option<String>,
    /// The objects.
    pub(crate) objects: BTreeMap<ObjectRef, Arc<LocalObject>>,
}

/// The last good version of each file.
#[derive(Debug, Default)]
pub(crate) struct ObjectFiles {
    good: BTreeMap<String, Vec<DecodedObject>>,
    /// Objects that said that they may not change, as they were then.
    immutable: BTreeMap<ObjectRef, Arc<LocalObject>>,
    /// Which file each object that is in force is from.
    paths: BTreeMap<ObjectRef, String>,
    state: ObjectState,
}

impl ObjectFiles {
    /// The objects after a look that found this; and what is wrong. A file that cannot be
    /// read or is wrong counts as it was when it was last good.
    pub(crate) fn found(&mut self, findings: Findings) -> (ObjectState, Vec<Problem>) {
        let mut problems = Vec::new();
        let mut incomplete = None;
        let mut known = std::mem::take(&mut self.good);
        for (path, found) in findings {
            let objects = match found {
                Ok(objects) => objects,
                Err(reason) => {
                    problems.push(Problem::new(&path, &reason));
                    let Some(known) = known.remove(&path) else {
                        incomplete.get_or_insert(format!("{path}: {reason}"));
                        continue;
                    };
                    known
                }
            };
            self.good.insert(path, objects);
        }
        let (objects, left_out) = self.joined(&mut problems);
        self.state = ObjectState {
            is_read: true,
            incomplete: incomplete.or(left_out),
            objects,
        };
        (self.state.clone(), problems)
    }

    /// Paths of the files that were good.
    pub(crate) fn known(&self) -> BTreeSet<String> {
        self.good.keys().cloned().collect()
    }

    /// The objects after a look that could not list the directory.
    pub(crate) fn failed(&self) -> ObjectState {
        self.state.clone()
    }

    /// The objects after a look that found no directory: one that vanished with all its
    /// objects is a mishap, as it is of manifests.
    pub(crate) fn absent(&mut self) -> (ObjectState, Option<&'static str>) {
        if self.good.is_empty() && self.state.incomplete.is_none() {
            return (self.found(Findings::new()).0, None);
        }
        let reason = "the directory is gone; its objects count as they were until it is back";
        (self.failed(), Some(reason))
    }

    /// All objects. Of two with one name the one counts whose file the object in force is
    /// from, so that a copy beside it changes nothing, else the first by the names of files;
    /// one that was immutable keeps its content until it is gone. What there is no room for
    /// is not held, but for the next look to find again.
    fn joined(
        &mut self,
        problems: &mut Vec<Problem>,
    ) -> (BTreeMap<ObjectRef, Arc<LocalObject>>, Option<String>) {
        let mut joined = Joined {
            room: Room::ALL,
            objects: BTreeMap::new(),
            names: BTreeMap::new(),
            paths: BTreeMap::new(),
            immutable: BTreeMap::new(),
            left_out: None,
            problems,
        };
        let mut good = std::mem::take(&mut self.good);
        for of_owners in [true, false] {
            for (path, objects) in &mut good {
                objects.retain_mut(|decoded| {
                    let owner = self.paths.get(&decoded.object.reference);
                    let is_owner = owner == Some(path);
                    is_owner != of_owners || joined.add(path, decoded, self)
                });
            }
        }
        let Joined {
            objects,
            paths,
            immutable,
            left_out,
            ..
        } = joined;
        self.good = good;
        self.immutable = immutable;
        self.paths = paths;
        (objects, left_out)
    }
}

/// The objects of all files, while they are joined.
struct Joined<'a> {
    room: Room,
    objects: BTreeMap<ObjectRef, Arc<LocalObject>>,
    /// What each is called.
    names: BTreeMap<ObjectRef, String>,
    paths: BTreeMap<ObjectRef, String>,
    immutable: BTreeMap<ObjectRef, Arc<LocalObject>>,
    left_out: Option<String>,
    problems: &'a mut Vec<Problem>,
}

impl Joined<'_> {
    /// Adds an object of a file; `before` are those of the last look. Returns whether there
    /// is room for it.
    fn add(&mut self, path: &str, decoded: &mut DecodedObject, before: &ObjectFiles) -> bool {
        let reference = decoded.object.reference.clone();
        let kept = before.immutable.get(&reference);
        let known = kept.or(before.state.objects.get(&reference));
        let same = known.filter(|known| known.version == decoded.object.version);
        if let Some(same) = same {
            // Its bytes need not be held twice.
            decoded.object = LocalObject::clone(same);
        }
        let other = kept.filter(|_| same.is_none()).map(|kept| &**kept);
        if let Err(reason) = self.room.take(other.into_iter().chain([&decoded.object])) {
            self.left_out.get_or_insert(format!("{path}: {reason}"));
            self.problems.push(Problem::new(path, reason));
            return false;
        }
        if let Some(first) = self.names.get(&reference) {
            let reason = match *first == decoded.name {
                true => format!("{decoded} is in another file too"),
                // Only volumes are known by something else than their names.
                false => format!("{decoded} is not used: {first} is the {reference} already"),
            };
            self.problems.push(Problem::new(path, reason));
            return true;
        }
        let object = match (same, kept) {
            (Some(same), _) => Arc::clone(same),
            (None, Some(kept)) => {
                let reason = format!("{decoded} is immutable, so its content stays");
                self.problems.push(Problem::new(path, reason));
                Arc::clone(kept)
            }
            (None, None) => Arc::new(decoded.object.clone()),
        };
        if decoded.immutable || kept.is_some() {
            self.immutable
                .insert(reference.clone(), Arc::clone(&object));
        }
        self.names.insert(reference.clone(), decoded.name.clone());
        self.paths.insert(reference.clone(), path.to_owned());
        self.objects.insert(reference, object);
        true
    }
}

#[cfg(test)]
mod tests {
    use local_objects::ObjectKind;

    use super::*;

    fn object(name: &str, value: &str, immutable: bool) -> DecodedObject {
        DecodedObject {
            name: name.to_owned(),
            object: LocalObject {
                reference: ObjectRef {
                    kind: ObjectKind::ConfigMap,
                    namespace: "d".to_owned(),
                    name: name.to_owned(),
                },
                version: value.to_owned(),
                data: [("k".to_owned(), value.as_bytes().to_vec().into())].into(),
                binary_keys: BTreeSet::new(),
            },
            immutable,
        }
    }

    type Found<'a> = (&'a str, Result<Vec<DecodedObject>, String>);

    fn found<const N: usize>(files: &mut ObjectFiles, found: [Found<'_>; N]) -> ObjectState {
        let findings = found.into_iter().map(|(path, it)| (path.to_owned(), it));
        files.found(findings.collect()).0
    }

    /// Names and values.
    fn listed(state: &ObjectState) -> Vec<(&str, &str)> {
        let objects = state.objects.iter();
        objects
            .map(|(reference, object)| (reference.name.as_str(), object.version.as_str()))
            .collect()
    }

    #[test]
    fn a_file_that_becomes_bad_counts_as_it_was_and_one_that_is_gone_is_gone() {
        let mut files = ObjectFiles::default();
        let bad = || Err("not valid YAML".to_owned());
        let both = [
            ("1", Ok(vec![object("a", "1", false)])),
            ("2", Ok(vec![object("b", "1", false)])),
        ];
        assert_eq!(listed(&found(&mut files, both)), [("a", "1"), ("b", "1")]);
        let state = found(
            &mut files,
            [("1", bad()), ("2", Ok(vec![object("b", "2", false)]))],
        );
        assert_eq!(listed(&state), [("a", "1"), ("b", "2")]);
        assert_eq!(state.incomplete, None);
        let state = found(&mut files, [("1", bad())]);
        assert_eq!(listed(&state), [("a", "1")]);
        assert_eq!(files.failed(), state, "the directory cannot be listed");
        assert_eq!(listed(&found(&mut files, [])), []);
    }

    /// Nobody knows which objects are in it, so none may be said to be missing.
    #[test]
    fn with_a_file_that_was_never_good_the_objects_are_incomplete() {
        let mut files = ObjectFiles::default();
        let state = found(&mut files, [("1", Err("is a FIFO".to_owned()))]);
        assert_eq!(state.incomplete.as_deref(), Some("1: is a FIFO"));
        let state = found(&mut files, [("1", Ok(vec![]))]);
        assert_eq!((state.is_read, state.incomplete), (true, None));
    }

    #[test]
    fn of_two_objects_of_one_name_the_first_file_has_the_right_one() {
        let mut files = ObjectFiles::default();
        let findings = [
            ("1".to_owned(), Ok(vec![object("a", "1", false)])),
            ("2".to_owned(), Ok(vec![object("a", "2", false)])),
        ];
        let (state, problems) = files.found(findings.into());
        assert_eq!(listed(&state), [("a", "1")]);
        assert_eq!(problems[0].subject, "2");
        assert_eq!(problems[0].reason, "ConfigMap d/a is in another file too");
    }

    #[test]
    fn a_copy_changes_nothing_while_the_file_in_force_is_there() {
        let mut files = ObjectFiles::default();
        let file = |path: &str, value: &str| {
            let objects = vec![object("a", value, false)];
            (path.to_owned(), Ok(objects))
        };
        for (findings, value, problem) in [
            (vec![file("b", "1")], "1", None),
            // A copy for the next version, whose name comes first.
            (vec![file("a", "2"), file("b", "1")], "1", Some("a")),
            // The original is edited.
            (vec![file("a", "2"), file("b", "3")], "3", Some("a")),
            // It is bad, so it counts as it was.
            (
                vec![file("a", "2"), ("b".to_owned(), Err("bad".to_owned()))],
                "3",
                Some("a"),
            ),
            // It is gone: now it is the copy's turn, and stays so.
            (vec![file("a", "2")], "2", None),
            (vec![file("A", "4"), file("a", "5")], "5", Some("A")),
        ] {
            let (state, problems) = files.found(findings.into_iter().collect());
            assert_eq!(listed(&state), [("a", value)]);
            let mut problems = problems.iter().map(|it| (&*it.subject, &*it.reason));
            let other = problems.find(|(_, reason)| reason.contains("another file"));
            assert_eq!(other.map(|it| it.0), problem, "{value}");
        }
    }

    #[test]
    fn of_two_volumes_of_one_claim_both_are_named() {
        let volume = |name: &str| {
            let mut decoded = object("data", name, true);
            decoded.object.reference.kind = ObjectKind::PersistentVolume;
            decoded.name = name.to_owned();
            decoded
        };
        let found = |names: &[&str]| {
            let volumes = names.iter().map(|name| volume(name)).collect();
            let findings = [("1".to_owned(), Ok(volumes))];
            let (state, problems) = ObjectFiles::default().found(findings.into());
            let listed: Vec<String> = listed(&state).iter().map(|it| it.1.to_owned()).collect();
            (listed, problems[0].reason.clone())
        };
        for (names, reason) in [
            (
                ["disk-1", "disk-2"],
                "PersistentVolume disk-2 is not used: disk-1 is the PersistentVolume of the \
                 claim d/data already",
            ),
            (
                ["disk-1", "disk-1"],
                "PersistentVolume disk-1 is in another file too",
            ),
        ] {
            assert_eq!(
                found(&names),
                (vec!["disk-1".to_owned()], reason.to_owned())
            );
        }
    }

    #[test]
    fn objects_stay_while_their_directory_is_gone_and_end_with_their_files() {
        let mut files = ObjectFiles::default();
        let (state, problem) = files.absent();
        assert_eq!(
            (state.is_read, problem),
            (true, None),
            "there never was one"
        );
        let before = found(&mut files, [("1", Ok(vec![object("a", "1", false)]))]);
        for _ in 0..2 {
            let (state, problem) = files.absent();
            assert_eq!(state, before);
            assert!(problem.unwrap().contains("gone"));
        }
        assert_eq!(listed(&found(&mut files, [])), []);
        assert_eq!(files.absent().1, None);
        // Nobody knows what was in it.
        found(&mut files, [("1", Err("is a FIFO".to_owned()))]);
        assert!(files.absent().0.incomplete.is_some());
    }

    #[test]
    fn an_immutable_object_keeps_its_content_until_it_is_gone() {
        let mut files = ObjectFiles::default();
        found(&mut files, [("1", Ok(vec![object("a", "1", true)]))]);
        for immutable in [true, false] {
            let changed = [("1".to_owned(), Ok(vec![object("a", "2", immutable)]))];
            let (state, problems) = files.found(changed.into());
            assert_eq!(listed(&state), [("a", "1")]);
            let reason = "ConfigMap d/a is immutable, so its content stays";
            assert_eq!(problems[0].reason, reason);
        }
        found(&mut files, []);
        let state = found(&mut files, [("1", Ok(vec![object("a", "2", true)]))]);
        assert_eq!(listed(&state), [("a", "2")]);
    }

    #[test]
    fn what_is_beyond_the_bounds_is_left_out_and_said() {
        let mut files = ObjectFiles::default();
        let many = (0..=MAX_OBJECTS).map(|number| object(&format!("{number:04}"), "", false));
        let state = found(&mut files, [("1", Ok(many.collect()))]);
        assert_eq!(state.objects.len(), MAX_OBJECTS);
        assert!(state.incomplete.unwrap().starts_with("1: left out"));
        // With its key, of one byte.
        let large = "x".repeat((1 << 20) - 1);
        let many = (0..33).map(|number| object(&number.to_string(), &large, false));
        let state = found(&mut files, [("1", Ok(many.collect()))]);
        assert_eq!(state.objects.len(), 32);
        // Nor held for a time when their files are bad, and those that are held once.
        let held: Vec<_> = files.good["1"].iter().collect();
        assert_eq!(held.len(), 32);
        let again = (0..33).map(|number| object(&number.to_string(), &large, false));
        let state = found(&mut files, [("1", Ok(again.collect()))]);
        for held in &files.good["1"] {
            let used = &state.objects[&held.object.reference];
            let bytes = |object: &LocalObject| object.data["k"].as_slice().as_ptr();
            assert_eq!(bytes(&held.object), bytes(used));
        }
        // Copies count: they are held for the time when they are the only ones.
        let state = found(
            &mut files,
            [
                ("1", Err("is bad".to_owned())),
                ("2", Ok(vec![object("0", "copy", false)])),
            ],
        );
        assert!(state.incomplete.unwrap().starts_with("2: left out"));
    }

    #[test]
    fn room_is_taken_for_all_or_none() {
        let mut room = Room {
            objects: 2,
            bytes: 10,
        };
        let object = |bytes: usize| object("a", &"x".repeat(bytes - 1), false).object;
        assert!(room.take(&[object(5), object(6)]).is_err());
        assert!(room.take(&[object(1), object(1), object(1)]).is_err());
        assert_eq!((room.objects, room.bytes), (2, 10));
        assert!(room.take(&[object(5), object(5)]).is_ok());
        assert_eq!((room.objects, room.bytes), (0, 0));
    }
}
