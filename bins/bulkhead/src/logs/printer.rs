//! How the lines of a log are printed: with the name of their container in front where
//! there are several, and on a terminal so that no line can steer it.
//!
//! What a program, a file or a pipe reads is what the container wrote, byte for byte.

/// A line that is longer is printed in pieces.
const MAX_LINE_BYTES: usize = 256 << 10;

/// Longest sequence that chooses a colour.
const MAX_COLOUR_BYTES: usize = 32;

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
            true => printed.extend(harmless(line, self.colours).into_bytes()),
            false => printed.extend_from_slice(line),
        }
        printed.push(b'\n');
    }
}

/// A line for a terminal: colours stay where colours are shown, and end with the line;
/// every other sequence that a terminal would act on is shown as text.
fn harmless(line: &[u8], colours: bool) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let text = String::from_utf8_lossy(line);
    let mut shown = String::with_capacity(text.len());
    let mut is_coloured = false;
    let mut rest = &*text;
    while let Some(character) = rest.chars().next() {
        if let Some(colour) = colour(rest) {
            if colours {
                shown += colour;
                is_coloured = true;
            }
            rest = &rest[colour.len()..];
            continue;
        }
        rest = &rest[character.len_utf8()..];
        show(character, &mut shown);
    }
    if is_coloured {
        shown += "\x1b[0m";
    }
    shown
}

/// The sequence that `text` begins with, if it does nothing but choose how letters look.
fn colour(text: &str) -> Option<&str> {
    let parameters = text.strip_prefix("\x1b[")?;
    let length =
        parameters.find(|character: char| !character.is_ascii_digit() && character != ';')?;
    let is_colour = parameters[length..].starts_with('m') && length <= MAX_COLOUR_BYTES;
    is_colour.then(|| &text[.."\x1b[".len() + length + 1])
}

/// A character as itself, or what stands for one that a terminal would act on.
fn show(character: char, shown: &mut String) {
    match character {
        '\t' => shown.push('\t'),
        '\0'..='\x1f' => {
            shown.push('^');
            shown.push(char::from(character as u8 + b'@'));
        }
        '\x7f' => *shown += "^?",
        // Control characters of eight bits, and those that turn the direction of text.
        '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            *shown += &format!("<U+{:04X}>", u32::from(character));
        }
        _ => shown.push(character),
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
    fn a_line_cannot_steer_the_terminal() {
        for (line, colours, expected) in [
            (&b"plain \xc3\xa4\ttab"[..], true, "plain \u{e4}\ttab"),
            (b"\x1b[31mred\x1b[0m", true, "\x1b[31mred\x1b[0m\x1b[0m"),
            (b"\x1b[31mred", true, "\x1b[31mred\x1b[0m"),
            (b"\x1b[31mred", false, "red"),
            (b"\x1b[2J", true, "^[[2J"),
            (b"\x1b]0;title\x07", true, "^[]0;title^G"),
            (b"\x1b[?1049h\x1b[1;1H", true, "^[[?1049h^[[1;1H"),
            (b"\x1bc", true, "^[c"),
            (b"\x1b[", true, "^[["),
            (b"progress\rdone\r", true, "progress^Mdone"),
            (b"\xc2\x9b2J", true, "<U+009B>2J"),
            (b"a\xe2\x80\xaeb", true, "a<U+202E>b"),
            (b"\xff\x7f\x00", true, "\u{fffd}^?^@"),
        ] {
            assert_eq!(harmless(line, colours), expected, "{line:?}");
        }
        let long = format!("\x1b[{}m", "1;".repeat(40));
        assert!(harmless(long.as_bytes(), true).starts_with("^["));
    }
}
