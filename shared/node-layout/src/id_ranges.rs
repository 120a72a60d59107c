//! Which ids of the node a pod with a user namespace of its own is given, and the file in
//! the pod's directory that says so. File and ranges are as a kubelet's, so that the node
//! can be handed over with such pods running.
//!
//! What is on the disk is all that is known: the range of a pod is free again when the
//! pod's directory is gone.

use std::collections::BTreeMap;

use node_config::{ID_RANGE_UNIT, UserNamespaceSettings};
use serde::{Deserialize, Serialize};

/// Ids of users and groups of the node, which a pod sees from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// What is user 0 in the pod.
    pub first: u32,
    /// How many there are.
    pub count: u32,
}

impl IdRange {
    /// Whether an id of the node is one of them.
    #[must_use]
    pub fn contains(&self, id: u32) -> bool {
        id.checked_sub(self.first)
            .is_some_and(|offset| offset < self.count)
    }

    /// Whether two ranges have an id in common.
    #[must_use]
    pub fn overlaps(&self, other: &IdRange) -> bool {
        self.contains(other.first) || other.contains(self.first)
    }
}

/// Why a pod cannot have a range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdRangeError {
    /// A file does not say what it should.
    #[error("the ids of the pod with the UID {pod_uid:?} cannot be read: {reason}")]
    Unreadable {
        /// Whose file.
        pod_uid: String,
        /// What is wrong.
        reason: String,
    },
    /// What is written for the pod is used by somebody else.
    #[error("the ids {first} to {last} of the pod are used by {owner} as well")]
    Shared {
        /// The first id.
        first: u32,
        /// The last id.
        last: u32,
        /// By whom.
        owner: String,
    },
    /// All ranges are in use.
    #[error("all {pods} ranges of {ids_per_pod} ids for user namespaces are in use")]
    NoneFree {
        /// How many ranges there are.
        pods: u32,
        /// How long each is.
        ids_per_pod: u32,
    },
}

/// What is to become of a pod's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdRangeChoice {
    /// It is written already.
    Written(IdRange),
    /// It is to be written before it is used.
    New(IdRange),
}

/// Chooses the range of a pod. `written` is what is in the files of all pods; `avoided`
/// are ids of the node that no pod may have.
///
/// # Errors
/// When the pod's own range cannot be read, or is another's too; when it has none and that
/// of another pod cannot be read, or no range is free.
pub fn choose_id_range(
    settings: &UserNamespaceSettings,
    pod_uid: &str,
    written: &BTreeMap<String, String>,
    avoided: &[u32],
) -> Result<IdRangeChoice, IdRangeError> {
    let (mut own, mut others, mut unreadable) = (None, Vec::new(), None);
    for (uid, text) in written {
        let range = parse(text).map_err(|reason| IdRangeError::Unreadable {
            pod_uid: uid.clone(),
            reason,
        });
        match range {
            Ok(range) if uid == pod_uid => own = range,
            Err(error) if uid == pod_uid => return Err(error),
            Ok(range) => others.extend(range.map(|range| (uid, range))),
            Err(error) => unreadable = Some(error),
        }
    }
    if let Some(own) = own {
        let shared = |owner| IdRangeError::Shared {
            first: own.first,
            last: own.first + (own.count - 1),
            owner,
        };
        if let Some((uid, _)) = others.iter().find(|(_, range)| range.overlaps(&own)) {
            return Err(shared(format!("the pod with the UID {uid:?}")));
        }
        if let Some(id) = avoided.iter().find(|id| own.contains(**id)) {
            return Err(shared(format!("the node's user {id}")));
        }
        return Ok(IdRangeChoice::Written(own));
    }
    // That pod may have any range.
    if let Some(error) = unreadable {
        return Err(error);
    }
    let UserNamespaceSettings {
        first,
        ids_per_pod,
        pods,
    } = *settings;
    let mut ranges = (0..pods).map_while(|index| {
        let first = ids_per_pod.checked_mul(index)?.checked_add(first)?;
        let count = ids_per_pod;
        Some(IdRange { first, count })
    });
    let free = ranges.find(|range| {
        let is_used = others.iter().any(|(_, other)| other.overlaps(range));
        !is_used && !avoided.iter().any(|id| range.contains(*id))
    });
    let none_free = IdRangeError::NoneFree { pods, ids_per_pod };
    free.map(IdRangeChoice::New).ok_or(none_free)
}

/// The file: one range, the same for users and groups.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// What the file of a range says.
#[must_use]
pub fn id_range_file(range: IdRange) -> String {
    let mapping = Mapping {
        host_id: range.first,
        container_id: 0,
        length: range.count,
    };
    let file = File {
        uid_mappings: vec![mapping],
        gid_mappings: vec![mapping],
    };
    // Numbers are always JSON.
    serde_json::to_string(&file).unwrap_or_default()
}

/// The range that a file tells; none of an empty one, which a machine that lost its power
/// may leave.
fn parse(text: &str) -> Result<Option<IdRange>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let [mapping] = file.uid_mappings[..] else {
        let count = file.uid_mappings.len();
        return Err(format!("there are {count} uidMappings, not one"));
    };
    if file.gid_mappings != [mapping] {
        return Err("gidMappings are not as uidMappings".to_owned());
    }
    let Mapping {
        host_id: first,
        container_id,
        length: count,
    } = mapping;
    if container_id != 0 {
        return Err(format!("containerId is {container_id}, not 0"));
    }
    let is_whole = |number: u32| number > 0 && number.is_multiple_of(ID_RANGE_UNIT);
    if !is_whole(first) || !is_whole(count) || first.checked_add(count).is_none() {
        return Err(format!("{count} ids from {first} on are no range of a pod"));
    }
    Ok(Some(IdRange { first, count }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNIT: u32 = ID_RANGE_UNIT;

    fn settings(pods: u32) -> UserNamespaceSettings {
        UserNamespaceSettings {
            pods,
            ..UserNamespaceSettings::default()
        }
    }

    fn units(first: u32, count: u32) -> IdRange {
        IdRange {
            first: first * UNIT,
            count: count * UNIT,
        }
    }

    fn files(ranges: &[(&str, IdRange)]) -> BTreeMap<String, String> {
        let files = ranges.iter();
        files
            .map(|(uid, range)| ((*uid).to_owned(), id_range_file(*range)))
            .collect()
    }

    #[test]
    fn a_pod_keeps_its_range_and_a_new_one_gets_the_lowest_free_one() {
        use IdRangeChoice::{New, Written};
        for (written, avoided, expected) in [
            (files(&[]), &[][..], Ok(New(units(1, 1)))),
            (files(&[("a", units(1, 1))]), &[], Ok(New(units(2, 1)))),
            (files(&[("a", units(2, 1))]), &[], Ok(New(units(1, 1)))),
            // The pod's own, also one that is of other settings.
            (files(&[("p", units(3, 1))]), &[], Ok(Written(units(3, 1)))),
            (
                files(&[("p", units(90, 4))]),
                &[],
                Ok(Written(units(90, 4))),
            ),
            // Ranges of other settings are not given again.
            (files(&[("a", units(1, 2))]), &[], Ok(New(units(3, 1)))),
            // Users of the node.
            (files(&[]), &[65_536, 150_000], Ok(New(units(3, 1)))),
            (files(&[]), &[65_535, 262_144], Ok(New(units(1, 1)))),
            (
                files(&[("a", units(1, 1)), ("b", units(2, 1)), ("c", units(3, 1))]),
                &[],
                Err("all 3 ranges of 65536 ids for user namespaces are in use"),
            ),
            (
                files(&[("a", units(1, 2)), ("p", units(2, 1))]),
                &[],
                Err(
                    "the ids 131072 to 196607 of the pod are used by the pod with the UID \"a\" \
                     as well",
                ),
            ),
            (
                files(&[("p", units(2, 1))]),
                &[131_072],
                Err(
                    "the ids 131072 to 196607 of the pod are used by the node's user 131072 as \
                     well",
                ),
            ),
        ] {
            let found = choose_id_range(&settings(3), "p", &written, avoided);
            let found = found.map_err(|error| error.to_string());
            assert_eq!(
                found,
                expected.map_err(str::to_owned),
                "{written:?} {avoided:?}"
            );
        }
    }

    /// The recorded form of a kubelet's file.
    #[test]
    fn the_file_is_the_kubelets() {
        let text = concat!(
            r#"{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"#,
            r#""gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}"#
        );
        assert_eq!(id_range_file(units(1, 1)), text);
        assert_eq!(parse(text), Ok(Some(units(1, 1))));
        assert_eq!(parse(""), Ok(None));
    }

    #[test]
    fn a_file_that_is_no_range_stops_its_pod_and_those_that_have_none_yet() {
        let file = |uids: &str, gids: &str| {
            format!(r#"{{"uidMappings":[{uids}],"gidMappings":[{gids}]}}"#)
        };
        let one = |host: u64, inside: u32, length: u64| {
            format!(r#"{{"hostId":{host},"containerId":{inside},"length":{length}}}"#)
        };
        let same = |text: String| file(&text, &text);
        for text in [
            "{".to_owned(),
            "{}".to_owned(),
            file("", ""),
            file(&one(65_536, 0, 65_536), &one(131_072, 0, 65_536)),
            file(&one(65_536, 0, 65_536), ""),
            same(format!("{0},{0}", one(65_536, 0, 65_536))),
            same(one(0, 0, 65_536)),
            same(one(65_536, 1, 65_536)),
            same(one(65_536, 0, 0)),
            same(one(65_537, 0, 65_536)),
            same(one(65_536, 0, 65_537)),
            same(one(4_294_901_760, 0, 65_536)),
            same(one(4_294_967_296, 0, 65_536)),
        ] {
            for uid in ["p", "a"] {
                let written = [(uid.to_owned(), text.clone())].into();
                let error = choose_id_range(&settings(3), "p", &written, &[]).unwrap_err();
                assert!(
                    matches!(&error, IdRangeError::Unreadable { pod_uid, .. } if pod_uid == uid),
                    "{text}: {error}"
                );
            }
            let mut written = files(&[("p", units(2, 1))]);
            written.insert("a".to_owned(), text);
            let kept = choose_id_range(&settings(3), "p", &written, &[]);
            assert_eq!(kept, Ok(IdRangeChoice::Written(units(2, 1))));
        }
    }

    proptest! {
        #[test]
        fn no_two_pods_share_an_id_and_none_has_one_of_the_nodes(
            steps in proptest::collection::vec((0_u8..12, any::<bool>()), 1..60),
            avoided in proptest::collection::vec(0_u32..20 * UNIT, 0..4),
            per_pod in 1_u32..4,
            pods in 1_u32..12,
        ) {
            let settings = UserNamespaceSettings {
                first: per_pod * UNIT,
                ids_per_pod: per_pod * UNIT,
                pods,
            };
            let mut written = BTreeMap::new();
            let mut ranges: BTreeMap<String, IdRange> = BTreeMap::new();
            for (pod, comes) in steps {
                let uid = format!("u{pod}");
                if !comes {
                    written.remove(&uid);
                    ranges.remove(&uid);
                    continue;
                }
                let range = match choose_id_range(&settings, &uid, &written, &avoided) {
                    Ok(IdRangeChoice::Written(range)) => {
                        prop_assert_eq!(ranges.get(&uid), Some(&range));
                        continue;
                    }
                    Ok(IdRangeChoice::New(range)) => range,
                    Err(error) => {
                        let is_full = matches!(error, IdRangeError::NoneFree { .. });
                        prop_assert!(is_full, "{error}");
                        continue;
                    }
                };
                prop_assert!(avoided.iter().all(|id| !range.contains(*id)));
                prop_assert!(ranges.values().all(|other| !other.overlaps(&range)));
                prop_assert!(!range.contains(0));
                written.insert(uid.clone(), id_range_file(range));
                ranges.insert(uid, range);
            }
        }
    }
}
