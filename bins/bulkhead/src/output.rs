//! Standard output: text, JSON and YAML; colours on a terminal only.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use crate::escape;
use crate::failure::Failure;

/// Where a command's answer goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// Whether colours are shown.
    pub(crate) colours: bool,
    /// Whether a terminal acts on what is printed.
    pub(crate) terminal: bool,
}

impl Output {
    /// Standard output as it is: a terminal or not.
    pub(crate) fn standard() -> Output {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let terminal = io::stdout().is_terminal();
        Output {
            colours: terminal && !unwanted,
            terminal,
        }
    }

    /// Prints bytes as they are, at once: only what steers no terminal, or steers it as
    /// we mean it.
    pub(crate) fn write(self, bytes: &[u8]) -> Result<(), Failure> {
        let mut stdout = io::stdout().lock();
        let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
        written.map_err(|source| match source.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::Local {
                action: "print".to_owned(),
                source,
            },
        })
    }

    /// Prints text. On a terminal nothing in it but colours is acted upon.
    pub(crate) fn text(self, text: &str) -> Result<(), Failure> {
        self.write(self.shown(text).as_bytes())
    }

    fn shown(self, text: &str) -> Cow<'_, str> {
        match self.terminal {
            true => escape::lines(text, self.colours).into(),
            false => text.into(),
        }
    }

    /// Prints a value as indented JSON.
    pub(crate) fn json(self, value: &impl Serialize) -> Result<(), Failure> {
        let mut lines = Lines::new(self);
        let printed = serde_json::to_writer_pretty(&mut lines, value);
        lines.end(printed.map_err(|error| unprintable(&error)))
    }

    /// Prints a value as JSON on one line.
    pub(crate) fn json_line(self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(|error| unprintable(&error))?;
        self.text(&(text + "\n"))
    }

    /// Prints a value as YAML.
    pub(crate) fn yaml(self, value: &impl Serialize) -> Result<(), Failure> {
        let mut lines = Lines::new(self);
        let printed = serde_saphyr::to_io_writer(&mut lines, value);
        lines.end(printed.map_err(|error| unprintable(&error)))
    }
}

/// Text that is printed while it is made: all of it may be more than there is room for.
struct Lines {
    output: Output,
    /// What is not printed yet.
    rest: Vec<u8>,
    ends_a_line: bool,
    failure: Option<Failure>,
}

/// So much is printed at a time, to the end of a line.
const PIECE: usize = 64 << 10;

impl Lines {
    fn new(output: Output) -> Lines {
        Lines {
            output,
            rest: Vec::new(),
            ends_a_line: false,
            failure: None,
        }
    }

    fn print(&mut self, length: usize) -> io::Result<()> {
        let text = String::from_utf8_lossy(&self.rest[..length]);
        let printed = self.output.text(&text);
        self.rest.drain(..length);
        printed.map_err(|failure| {
            self.failure = Some(failure);
            io::ErrorKind::Other.into()
        })
    }

    /// Prints the rest, with a line break at its end.
    fn end(mut self, printed: Result<(), Failure>) -> Result<(), Failure> {
        let rest = printed.and_then(|()| {
            if !self.ends_a_line {
                self.rest.push(b'\n');
            }
            let printed = self.print(self.rest.len());
            printed.map_err(|error| unprintable(&error))
        });
        match self.failure {
            Some(failure) => Err(failure),
            None => rest,
        }
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        if let Some(last) = bytes.last() {
            self.ends_a_line = *last == b'\n';
        }
        if self.rest.len() >= PIECE && bytes.contains(&b'\n') {
            let end = self.rest.iter().rposition(|byte| *byte == b'\n');
            self.print(end.map_or(0, |end| end + 1))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What became of text that comes with a verdict: the exit code tells that also where nobody
/// reads the text to its end (`bulkhead check DIR | head`).
pub(crate) fn beside_verdict(printed: Result<(), Failure>) -> Result<(), Failure> {
    match printed {
        Err(Failure::ReaderGone) => Ok(()),
        other => other,
    }
}

/// Tells something beside the answer, on standard error, which is often a terminal where
/// standard output is none.
pub(crate) fn note(text: &str) {
    // Nobody is left to tell when this fails too.
    let _ = writeln!(io::stderr(), "bulkhead: {}", escape::plain(text));
}

fn unprintable(error: &dyn std::error::Error) -> Failure {
    Failure::Local {
        action: "print".to_owned(),
        source: io::Error::other(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn on_a_terminal_nothing_but_colours_is_acted_upon() {
        let output = |terminal, colours| Output { terminal, colours };
        let text = "\x1b[31mbad\x1b[0m \x1b[2J\u{9b}2J\n";
        for (output, expected) in [
            (output(true, true), "\x1b[31mbad\x1b[0m ^[[2J<U+009B>2J\n"),
            (output(true, false), "bad ^[[2J<U+009B>2J\n"),
            (output(false, false), text),
        ] {
            assert_eq!(output.shown(text), expected, "{output:?}");
        }
        // JSON escapes control characters of seven bits only.
        let json = serde_json::to_string(&json!({"a": "\u{1b}\u{9b}\u{202e}"})).unwrap();
        let shown = output(true, true).shown(&json).into_owned();
        assert_eq!(shown, r#"{"a":"\u001b<U+009B><U+202E>"}"#);
    }

    #[test]
    fn yaml_reads_back_as_the_same_value() {
        let value = json!({
            "words": ["yes", "off", "null", "~", "0644", "1e3", "- a", "a: b", "#", "", " x ", "ä\u{1b}"],
            "lines": "one\n two\n",
            "map": {"true": true, "1": 1, "empty": {}, "list": [], "nothing": null},
            "number": 1.5,
        });
        let mut text = Vec::new();
        serde_saphyr::to_io_writer(&mut text, &value).unwrap();
        let text = String::from_utf8(text).unwrap();
        let back: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(back, value, "{text}");
    }
}
