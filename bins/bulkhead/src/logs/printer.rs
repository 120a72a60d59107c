//! How the lines of a log are printed: with the name of their container in front where
//! there are several, and on a terminal so that no line can steer it.
//!
//! What a program, a file or a pipe reads is what the container wrote, byte for byte.

use crate::escape;

/// A line that is longer is printed in pieces.
const MAX_LINE_BYTES: usize = 256 << 10;

/// Colours of names, as a terminal numbers them.
const NAME_COLOURS: [u8; 6] = [36, 33, 35, 32, 34, 31];

/// Puts lines of one log together out of what arrives of it.
pub(super) struct Printer {
    prefix: String,
    terminal: bool,
    colours: bool,
    /// The beginning of a line.
    rest: Vec<u8>,
}

impl Printer {
    /// With this in front of each line, in a colour that `number` chooses.
    pub(super) fn new(name: Option<&str>, number: usize, terminal: bool, colours: bool) -> Printer {
        let colour = NAME_COLOURS[number % NAME_COLOURS.len()];
        let prefix = name.map(|name| match colours {
            true => format!("\x1b[{colour}m[{name}]\x1b[0m "),
            false => format!("[{name}] "),
        });
        Printer {
            prefix: prefix.unwrap_or_default(),
            terminal,
            colours,
            rest: Vec::new(),
        }
    }

    /// What is to be printed now that `content` has arrived.
    pub(super) fn take(&mut self, content: &[u8]) -> Vec<u8> {
        if self.prefix.is_empty() && !self.terminal {
            return content.to_vec();
        }
        self.rest.extend_from_slice(content);
        let mut printed = Vec::new();
        let mut done = 0;
        while let Some(end) = self.rest[done..].iter().position(|byte| *byte == b'\n') {
            self.print(&self.rest[done..done + end], &mut printed);
            done += end + 1;
        }
        self.rest.drain(..done);
        if self.rest.len() > MAX_LINE_BYTES {
            printed.extend(self.end());
        }
        printed
    }

    /// What is left to be printed when no more arrives.
    pub(super) fn end(&mut self) -> Vec<u8> {
        let mut printed = Vec::new();
        let rest = std::mem::take(&mut self.rest);
        if !rest.is_empty() {
            self.print(&rest, &mut printed);
        }
        printed
    }

    fn print(&self, line: &[u8], printed: &mut Vec<u8>) {
        printed.extend_from_slice(self.prefix.as_bytes());
        match self.terminal {
            true => {
                let text = String::from_utf8_lossy(line);
                printed.extend(escape::lines(&text, self.colours).into_bytes());
            }
            false => printed.extend_from_slice(line),
        }
        printed.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(printer: &mut Printer, parts: &[&[u8]]) -> String {
        let mut all: Vec<u8> = parts.iter().flat_map(|part| printer.take(part)).collect();
        all.extend(printer.end());
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn nothing_is_changed_for_a_program_that_reads_one_log() {
        let mut printer = Printer::new(None, 0, false, false);
        let bytes = b"a\xff\x1b[2J\r\nhalf";
        assert_eq!(printer.take(bytes), bytes);
        assert!(printer.end().is_empty());
    }

    #[test]
    fn each_line_has_its_containers_name_in_front() {
        let mut printer = Printer::new(Some("web/c"), 0, false, false);
        assert_eq!(
            printed(&mut printer, &[b"one\ntw", b"o\n", b"three"]),
            "[web/c] one\n[web/c] two\n[web/c] three\n"
        );
        let coloured = printed(&mut Printer::new(Some("web/c"), 0, true, true), &[b"x\n"]);
        let other = printed(&mut Printer::new(Some("web/c"), 1, true, true), &[b"x\n"]);
        assert!(coloured.ends_with("[web/c]\x1b[0m x\n"), "{coloured:?}");
        assert_ne!(coloured, other);
    }

    #[test]
    fn a_line_without_an_end_is_bounded() {
        let mut printer = Printer::new(None, 0, true, false);
        let long = vec![b'x'; MAX_LINE_BYTES + 1];
        assert_eq!(printer.take(&long).len(), long.len() + 1);
        assert!(printer.rest.is_empty());
    }

    #[test]
    fn a_line_cannot_steer_the_terminal_whatever_its_parts_are() {
        let parts: [&[u8]; 4] = [b"a\xff\x1b", b"[2", b"Jb\xc2", b"\x9bc\n"];
        let mut printer = Printer::new(None, 0, true, true);
        assert_eq!(printed(&mut printer, &parts), "a\u{fffd}^[[2Jb<U+009B>c\n");
    }
}
