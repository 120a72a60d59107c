//! Saving what is better absent than outdated.

use serde::Serialize;

use crate::{StateFile, StateFileError};

impl StateFile {
    /// Writes `content` as [`StateFile::save`] does. Where that fails the old file goes: what
    /// it says is not true any more, and its owner can do without it. On a full disk that
    /// makes the room that the new file needs, so it is written once more.
    ///
    /// # Errors
    /// When the content is not written.
    pub fn save_or_remove<T: Serialize>(&self, content: &T) -> Result<(), StateFileError> {
        self.save(content).or_else(|error| match self.remove() {
            Ok(()) => self.save(content),
            Err(other) => {
                let other = telemetry::chain(&other);
                tracing::debug!(error = other, "cannot remove the outdated state file");
                Err(error)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_replaced_is_not_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path().join("state.json"), 1).at_most(200);
        file.save_or_remove(&"old").unwrap();
        assert_eq!(file.load::<String>().unwrap().as_deref(), Some("old"));
        let error = file.save_or_remove(&"x".repeat(300)).unwrap_err();
        assert!(matches!(error, StateFileError::TooLarge { .. }), "{error}");
        assert_eq!(file.load::<String>().unwrap(), None);
    }
}
