//! Reads what `testapp --journal` wrote: how often containers really started.

use std::io;
use std::path::Path;

/// One line of a journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Unix time in nanoseconds.
    pub unix_nanoseconds: u128,
    /// The program's `--name`.
    pub name: String,
    /// `started`, `SIGTERM`, `exit <code>`.
    pub event: String,
}

/// All entries so far; none when the file does not exist yet. A line without an end is
/// still being written: a reader may see the first half of an append alone.
///
/// # Errors
/// When the file cannot be read or a line is none of a journal.
pub fn read(path: &Path) -> io::Result<Vec<Entry>> {
    match std::fs::read_to_string(path) {
        Ok(text) => whole_lines(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn whole_lines(text: &str) -> io::Result<Vec<Entry>> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| parse(line).ok_or_else(|| malformed(line)))
        .collect()
}

/// How often `event` is noted under `name`.
#[must_use]
pub fn count(entries: &[Entry], name: &str, event: &str) -> usize {
    entries
        .iter()
        .filter(|entry| entry.name == name && entry.event == event)
        .count()
}

fn parse(line: &str) -> Option<Entry> {
    let mut words = line.splitn(3, ' ');
    Some(Entry {
        unix_nanoseconds: words.next()?.parse().ok()?,
        name: words.next()?.to_owned(),
        event: words.next()?.to_owned(),
    })
}

fn malformed(line: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("no line of a journal: {line:?}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_keep_their_code() {
        let entry = parse("17 web exit 3").unwrap();
        assert_eq!(
            (entry.unix_nanoseconds, entry.event.as_str()),
            (17, "exit 3")
        );
        assert_eq!(count(&[entry], "web", "exit 3"), 1);
        assert_eq!(parse("web started"), None);
    }

    #[test]
    fn a_line_that_is_being_written_is_not_read_yet() {
        let entries = whole_lines("17 web started\n1795347").unwrap();
        assert_eq!(entries.len(), 1);
        assert!(whole_lines("1795347").unwrap().is_empty());
        assert!(whole_lines("1795347\n").is_err());
    }
}
