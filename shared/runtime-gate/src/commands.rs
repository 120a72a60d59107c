//! Which commands may be run in a container: those that its pod had when the
//! container was created. They are noted on the container itself, as digests, so
//! that they outlive every process and a later version of the pod adds none.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

/// Container annotation: the digests of the commands that may be run in it,
/// hexadecimal and separated by spaces. Empty: none may.
pub(crate) const ANNOTATION: &str = "bulkhead/exec-commands";

/// The digest of one command: SHA-256, hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommandDigest(String);

impl CommandDigest {
    /// The digest of a command with its arguments. Each part goes in with its length,
    /// so that no two commands have the same bytes.
    #[must_use]
    pub fn of(command: &[String]) -> CommandDigest {
        let mut hash = Sha256::new();
        for part in command {
            hash.update(part.len().to_be_bytes());
            hash.update(part.as_bytes());
        }
        CommandDigest(format!("{:x}", hash.finalize()))
    }
}

/// The value of the annotation.
pub(crate) fn note(commands: &BTreeSet<CommandDigest>) -> String {
    let digests = commands.iter().map(|digest| digest.0.as_str());
    digests.collect::<Vec<_>>().join(" ")
}

/// The commands that an annotation's value names.
pub(crate) fn noted(text: &str) -> BTreeSet<CommandDigest> {
    let digests = text.split_ascii_whitespace();
    digests
        .map(|digest| CommandDigest(digest.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(parts: &[&str]) -> CommandDigest {
        let parts: Vec<String> = parts.iter().map(|&part| part.to_owned()).collect();
        CommandDigest::of(&parts)
    }

    #[test]
    fn commands_that_differ_in_any_way_have_different_digests() {
        let commands = [
            digest(&[]),
            digest(&[""]),
            digest(&["", ""]),
            digest(&["cat", "a"]),
            digest(&["cat a"]),
            digest(&["cata"]),
            digest(&["ca", "ta"]),
            digest(&["a", "cat"]),
        ];
        let distinct: BTreeSet<_> = commands.iter().collect();
        assert_eq!(distinct.len(), commands.len());
        assert_eq!(digest(&["cat", "a"]), digest(&["cat", "a"]));
    }

    #[test]
    fn what_is_noted_is_read_back() {
        let commands = BTreeSet::from([digest(&["a"]), digest(&["b", "c"])]);
        assert_eq!(noted(&note(&commands)), commands);
        assert_eq!(noted(&note(&BTreeSet::new())), BTreeSet::new());
    }
}
