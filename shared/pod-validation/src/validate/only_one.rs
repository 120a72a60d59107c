//! The rule that a volume has no more than one source. One without any is an emptyDir.

use crate::field::{Errors, Path};

/// Admits the first source of a volume and refuses all others.
pub(super) struct OnlyOne<'a, 'e> {
    path: Path<'a>,
    found: bool,
    errors: &'e mut Errors,
}

impl<'a, 'e> OnlyOne<'a, 'e> {
    /// For the volume at `path`.
    pub(super) fn new(path: Path<'a>, errors: &'e mut Errors) -> Self {
        let found = false;
        Self {
            path,
            found,
            errors,
        }
    }

    /// Calls `rules` for a source that is there, if it is the first.
    pub(super) fn source<S>(
        &mut self,
        name: &str,
        source: &Option<S>,
        rules: impl FnOnce(&S, Path<'_>, &mut Errors),
    ) {
        let Some(source) = source else { return };
        let path = self.path.child(name);
        if self.found {
            self.errors.forbidden(path, "a volume has only one source");
        } else {
            self.found = true;
            rules(source, path, self.errors);
        }
    }
}
