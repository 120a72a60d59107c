//! What is in a file, and how much of it there may be.

use std::fmt;

use serde_json::Value;

/// Largest manifest that is read, in bytes: the kubelet's own cap.
pub const MAX_MANIFEST_BYTES: usize = 10 << 20;
/// Most values (scalars, lists, mappings) in a manifest. A big pod has some
/// 500; a value costs about 100 bytes of memory.
pub const MAX_VALUES: usize = 250_000;
/// Deepest nesting. A pod needs about 15 levels.
pub const MAX_DEPTH: usize = 64;
/// Most documents in a manifest, empty ones included.
pub const MAX_DOCUMENTS: usize = 1024;
/// Most keys given twice that are named; more help nobody.
pub(crate) const MAX_REPEATED_KEYS: usize = 20;

/// A key that is given twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatedKey {
    /// The document; the first that is not empty is 1.
    pub document: usize,
    /// The path of the field.
    pub field: String,
    /// The key itself.
    pub key: String,
    /// The lines of both; `None` where they are not known.
    pub lines: Option<(usize, usize)>,
}

impl RepeatedKey {
    /// What is wrong, without the path.
    #[must_use]
    pub fn message(&self) -> String {
        let key = value_errors::shown(&self.key);
        match self.lines {
            Some((first, second)) if first == second => {
                format!("the key {key} is given twice in line {first}")
            }
            Some((first, second)) => {
                format!("the key {key} is given twice, in line {first} and in line {second}")
            }
            None => format!("the key {key} is given twice"),
        }
    }
}

impl fmt::Display for RepeatedKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.message())
    }
}

/// What is in a file.
#[derive(Debug, Default, PartialEq)]
pub struct Documents {
    /// The documents that are not empty.
    pub values: Vec<Value>,
    /// What keeps the file from being used. The values have what was given first, so that
    /// other mistakes can be found in them too.
    pub repeated_keys: Vec<RepeatedKey>,
}
