//! The typed decoding of a pod: every field that does not exist, and every value that is of
//! another type than its field.

use std::collections::BTreeSet;

use pod::core::Pod;
use pod_validation::{Errors, MAX_ERRORS, Reason};
use serde::Deserialize;
use serde_json::Value;
use serde_path_to_error::{Path, Segment, Track};

use crate::known_fields;

/// Most values of a wrong type that are named of a pod. The decoding ends at each of them, and
/// is tried again without it.
const MAX_WRONG_TYPES: usize = 20;

/// Reports all that is wrong. What is of a wrong type is taken out, so that the rest can be
/// decoded; `None` if it cannot.
pub(crate) fn checked(value: &mut Value, prefix: &str, errors: &mut Errors) -> Option<()> {
    let mut unknown = BTreeSet::new();
    let mut result = None;
    for _ in 0..MAX_WRONG_TYPES {
        let mut note = |path: serde_ignored::Path<'_>| {
            if unknown.len() < MAX_ERRORS {
                unknown.insert(ignored_path(&path));
            }
        };
        let mut track = Track::new();
        let tracked = serde_path_to_error::Deserializer::new(&*value, &mut track);
        let Err(error) = Pod::deserialize(serde_ignored::Deserializer::new(tracked, &mut note))
        else {
            result = Some(());
            break;
        };
        let (path, error) = (track.path(), error.to_string());
        let found = at(value, &path);
        let said = value_errors::for_people(&error, found.as_deref());
        errors.add(shown_path(prefix, &path), Reason::Malformed, said);
        if take_out(value, &path, &error).is_none() {
            break;
        }
    }
    for path in unknown {
        let nearest = known_fields::nearest(&path);
        let hint = nearest.map_or_else(String::new, |known| format!("did you mean {known}?"));
        errors.add(format!("{prefix}{path}"), Reason::Unknown, hint);
    }
    result
}

/// The pod, whatever else is in the value.
pub(crate) fn decoded(value: &Value) -> Result<Pod, serde_json::Error> {
    Pod::deserialize(value)
}

fn shown_path(prefix: &str, path: &Path) -> String {
    match path.iter().next() {
        None => prefix.trim_end_matches('.').to_owned(),
        Some(_) => format!("{prefix}{path}"),
    }
}

/// The value at a path.
fn at<'a>(value: &'a mut Value, path: &Path) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, segment| match segment {
        Segment::Seq { index } => value.get_mut(index),
        Segment::Map { key } => value.get_mut(key),
        Segment::Enum { .. } | Segment::Unknown => None,
    })
}

/// Puts a value of the right type in the place of a wrong one; `None` if there is none.
fn take_out(value: &mut Value, path: &Path, error: &str) -> Option<()> {
    let wrong = at(value, path)?;
    let instead = value_errors::stand_in(error).unwrap_or_default();
    let is_another = *wrong != instead;
    *wrong = instead;
    is_another.then_some(())
}

/// `spec.containers[0].comand`
fn ignored_path(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", ignored_path(parent)),
        Path::Map { parent, key } => {
            let parent = ignored_path(parent);
            if parent.is_empty() {
                key.clone()
            } else {
                format!("{parent}.{key}")
            }
        }
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => ignored_path(parent),
    }
}
