//! Bytes as strangers may write them: seeds that are good, and changes of them.
//!
//! A reader of such bytes has a test that gives it thousands of these and says what holds
//! of each. Here is how they are made, and in `tests/` are the readers of several crates;
//! one that is private to its crate is tested there. Each runs for a moment with all other
//! tests, and as long as wanted by `cargo xtask fuzz`. What fails is made small, shown, and
//! kept beside the test as a case that is tried first from then on.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

/// Longest bytes that are made.
const MAX_BYTES: usize = 1 << 16;

/// Longest part that is repeated or taken from another seed.
const MAX_PART_BYTES: usize = 512;

/// Most repetitions of one part.
const MAX_REPETITIONS: u8 = 64;

/// Most changes of one seed.
const MAX_CHANGES: usize = 6;

/// What readers trip over whatever they read.
const WORDS: [&str; 38] = [
    "",
    "\0",
    "\n",
    "\r\n",
    "\t",
    "\u{feff}",
    "\u{202e}",
    "\x1b[31m",
    "-",
    "--",
    "---\n",
    "...\n",
    "0",
    "-1",
    "1e400",
    "9223372036854775808",
    "18446744073709551616",
    "0x7f",
    "NaN",
    "null",
    "~",
    "true",
    "{}",
    "[]",
    "[[[[[[[[[[[[[[[[",
    "{\"a\":",
    "\"",
    "'",
    "\\",
    "&a ",
    "*a",
    "<<: ",
    "!!binary ",
    "$(A)",
    "$$",
    "../",
    "/",
    "Ki",
];

/// One change of some bytes. Positions are shares of whatever there is by then.
#[derive(Debug, Clone)]
enum Change {
    /// Another byte.
    Put(Index, u8),
    /// A word, or other bytes.
    Insert(Index, Vec<u8>),
    /// From here so many bytes less.
    Remove(Index, Index),
    /// From here so many bytes so often more.
    Repeat(Index, Index, u8),
    /// A part of another seed, here.
    Splice(Index, Index, Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let word = prop::sample::select(&WORDS[..]).prop_map(|word| word.as_bytes().to_vec());
    let bytes = prop_oneof![4 => word, 1 => prop::collection::vec(any::<u8>(), 1..8)];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Put(at, byte)),
        (any::<Index>(), bytes).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (any::<Index>(), any::<Index>()).prop_map(|(at, length)| Change::Remove(at, length)),
        (any::<Index>(), any::<Index>(), 1..=MAX_REPETITIONS)
            .prop_map(|(at, length, times)| Change::Repeat(at, length, times)),
        any::<[Index; 4]>()
            .prop_map(|[at, seed, from, length]| Change::Splice(at, seed, from, length)),
    ]
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        // One more than there are: behind the last one counts too.
        let place = |index: &Index, bytes: &[u8]| index.index(bytes.len() + 1);
        let part = |from: usize, length: &Index, bytes: &[u8]| {
            let left = (bytes.len() - from).min(MAX_PART_BYTES);
            from..from + length.index(left + 1)
        };
        match self {
            Change::Put(at, byte) => {
                let at = at.index(bytes.len().max(1));
                if let Some(old) = bytes.get_mut(at) {
                    *old = *byte;
                }
            }
            Change::Insert(at, more) => {
                let at = place(at, bytes);
                bytes.splice(at..at, more.iter().copied());
            }
            Change::Remove(at, length) => {
                let from = place(at, bytes);
                bytes.drain(part(from, length, bytes));
            }
            Change::Repeat(at, length, times) => {
                let from = place(at, bytes);
                let part = bytes[part(from, length, bytes)].repeat(usize::from(*times));
                bytes.splice(from..from, part);
            }
            Change::Splice(at, seed, from, length) => {
                let at = place(at, bytes);
                let seed = seed.get(seeds);
                let from = place(from, seed);
                bytes.splice(at..at, seed[part(from, length, seed)].iter().copied());
            }
        }
        bytes.truncate(MAX_BYTES);
    }
}

/// One of the seeds, changed a few times or not at all.
///
/// # Panics
/// Without seeds.
pub fn changed(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    assert!(!seeds.is_empty(), "there is nothing to begin with");
    let changes = prop::collection::vec(change(), 0..=MAX_CHANGES);
    (any::<Index>(), changes).prop_map(move |(seed, changes)| {
        let mut bytes = seed.get(&seeds).clone();
        for change in changes {
            change.apply(&mut bytes, &seeds);
        }
        bytes
    })
}

/// The same as text; what is not UTF-8 is replaced.
///
/// # Panics
/// Without seeds.
pub fn changed_text(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = String> {
    changed(seeds).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The files of these directories of the repository, in the order of their paths.
///
/// # Panics
/// When one cannot be read.
#[must_use]
pub fn files(directories: &[&str]) -> Vec<Vec<u8>> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = Vec::new();
    for directory in directories {
        let path = top.join(directory);
        let entries = fs::read_dir(&path);
        let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        paths.extend(entries.map(|entry| entry.expect("a name").path()));
    }
    paths.sort();
    let files = paths.iter().filter(|path| path.is_file());
    files
        .map(|path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        .collect()
}

/// These texts as seeds.
#[must_use]
pub fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest! {
        #[test]
        fn changes_stay_within_the_bytes_that_there_are(
            bytes in changed(texts(&["", "a", "some words"])),
        ) {
            prop_assert!(bytes.len() <= MAX_BYTES);
        }
    }
}
