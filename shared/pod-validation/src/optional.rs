//! Reading optional fields of the generated types: absent is empty.

/// The text, or the empty one.
pub(crate) fn text(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or_default()
}

/// The items, or none.
pub(crate) fn list<T>(value: &Option<Vec<T>>) -> &[T] {
    value.as_deref().unwrap_or_default()
}
