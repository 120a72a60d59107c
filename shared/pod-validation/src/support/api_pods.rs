//! What of a pod from an API server is judged otherwise than of one from a manifest, which
//! cannot have it.

use crate::field::{FieldError, Reason};

/// What becomes of such a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfApiPod {
    /// It is ordinary.
    Ordinary,
    /// The pod waits for what it asks for.
    Waits,
}

/// A field, with `[]` for each index or key and without what comes before; what becomes of it;
/// and why.
const FIELDS: [(&str, OfApiPod, &str); 8] = [
    (
        "spec.readinessGates",
        OfApiPod::Ordinary,
        "controllers set the conditions in the API",
    ),
    (
        "spec.schedulingGates",
        OfApiPod::Ordinary,
        "they are gone before a pod has a node",
    ),
    (
        "spec.serviceAccountName",
        OfApiPod::Ordinary,
        "the API server has accounts",
    ),
    (
        ".projected.sources[].serviceAccountToken",
        OfApiPod::Ordinary,
        "the API server gives tokens; without one the volume is not made",
    ),
    (
        "spec.resourceClaims",
        OfApiPod::Waits,
        "this node has no driver that prepares claims",
    ),
    (
        ".resources.claims",
        OfApiPod::Waits,
        "this node has no driver that prepares claims",
    ),
    (
        ".resources.limits[]",
        OfApiPod::Waits,
        "this node does not offer the resource",
    ),
    (
        ".resources.requests[]",
        OfApiPod::Waits,
        "this node does not offer the resource",
    ),
];

/// The row of a field that Bulkhead does not do.
fn row(error: &FieldError) -> Option<(OfApiPod, &'static str)> {
    if error.reason != Reason::Unsupported {
        return None;
    }
    let mut field = String::new();
    let mut depth = 0;
    for character in error.field.chars() {
        depth -= i32::from(character == ']');
        if depth == 0 {
            field.push(character);
        }
        depth += i32::from(character == '[');
    }
    let mut rows = FIELDS.iter();
    let (_, becomes, reason) = rows.find(|(name, ..)| field.ends_with(name))?;
    Some((*becomes, reason))
}

/// Whether the field is a reason to refuse a pod from an API server.
pub(crate) fn is_refused(error: &FieldError) -> bool {
    row(error).is_none()
}

/// What a pod from an API server waits for, if it is this field.
pub(crate) fn wait(error: FieldError) -> Option<FieldError> {
    match row(&error)? {
        (OfApiPod::Ordinary, _) => None,
        (OfApiPod::Waits, reason) => Some(FieldError {
            detail: reason.to_owned(),
            ..error
        }),
    }
}
