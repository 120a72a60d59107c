//! How a field is refused that Bulkhead does not do.

use crate::field::{Errors, Path};

/// Reports the fields that are set.
pub(super) fn refuse(fields: &[(&str, bool)], path: Path<'_>, errors: &mut Errors) {
    for (name, _) in fields.iter().filter(|(_, set)| *set) {
        errors.unsupported(path.child(name), "");
    }
}
