//! What of a pod from an API server is judged otherwise than of one from a manifest: of what
//! Bulkhead does not do nothing is refused, since only a pod that was taken can be deleted. The
//! pod waits.

use crate::field::{FieldError, Reason};

/// Fields that a manifest cannot have, and why a pod from an API server does not wait for them.
/// With `[]` for each index or key and without what comes before, as in [`LACKS`].
const ORDINARY: [(&str, &str); 4] = [
    (
        "spec.readinessGates",
        "controllers set the conditions in the API",
    ),
    (
        "spec.schedulingGates",
        "they are gone before a pod has a node",
    ),
    ("spec.serviceAccountName", "the API server has accounts"),
    (
        ".projected.sources[].serviceAccountToken",
        "the API server gives tokens; without one the volume is not made",
    ),
];

/// What a pod waits for that a node has or has not, in words.
const LACKS: [(&str, &str); 4] = [
    (
        "spec.resourceClaims",
        "this node has no driver that prepares claims",
    ),
    (
        ".resources.claims",
        "this node has no driver that prepares claims",
    ),
    (
        ".resources.limits[]",
        "this node does not offer the resource",
    ),
    (
        ".resources.requests[]",
        "this node does not offer the resource",
    ),
];

/// Whether the field is a reason to refuse a pod from an API server.
pub(crate) fn is_refused(error: &FieldError) -> bool {
    error.reason != Reason::Unsupported
}

/// What a pod from an API server waits for, if it is this field.
pub(crate) fn wait(error: FieldError) -> Option<FieldError> {
    let field = without_indices(&error.field);
    let is = |(name, _): &&(&str, &str)| field.ends_with(*name);
    if is_refused(&error) || ORDINARY.iter().any(|row| is(&row)) {
        return None;
    }
    let lacks = LACKS.iter().find(is);
    let detail = lacks.map_or(error.detail, |(_, reason)| (*reason).to_owned());
    Some(FieldError { detail, ..error })
}

fn without_indices(path: &str) -> String {
    let mut field = String::new();
    let mut depth = 0;
    for character in path.chars() {
        depth -= i32::from(character == ']');
        if depth == 0 {
            field.push(character);
        }
        depth += i32::from(character == '[');
    }
    field
}
