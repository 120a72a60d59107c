//! Cutting text to a bound.

/// Cuts `text` to at most `limit` bytes, never within a character.
pub(crate) fn truncate(text: &mut String, limit: usize) {
    text.truncate(text.floor_char_boundary(limit));
}
