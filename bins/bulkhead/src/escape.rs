//! Text from elsewhere, so that a terminal shows it and does not act on it: names and
//! messages of pods, output of containers, words of the runtime. Pure.

/// What ends every colour.
const RESET: &str = "\x1b[0m";

/// Longest sequence that chooses a colour.
const MAX_COLOUR_BYTES: usize = 32;

/// A word or a message for one line: line breaks and tabs become blanks, and every other
/// character that a terminal would act on is shown as text.
pub(crate) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\r' | '\t' => shown.push(' '),
            character => show(character, &mut shown),
        }
    }
    shown
}

/// Text of several lines for a terminal. Tabs stay, and where `colours` is set so do
/// sequences that do nothing but choose how letters look; they end with their line.
/// Every other character that a terminal would act on is shown as text.
pub(crate) fn lines(text: &str, colours: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        one_line(line.strip_suffix('\r').unwrap_or(line), colours, &mut shown);
        shown += end;
    }
    shown
}

fn one_line(line: &str, colours: bool, shown: &mut String) {
    let mut is_coloured = false;
    let mut rest = line;
    while let Some(character) = rest.chars().next() {
        if let Some(colour) = colour(rest) {
            if colours {
                *shown += colour;
                is_coloured = colour != RESET;
            }
            rest = &rest[colour.len()..];
            continue;
        }
        rest = &rest[character.len_utf8()..];
        match character {
            '\t' => shown.push('\t'),
            character => show(character, shown),
        }
    }
    if is_coloured {
        *shown += RESET;
    }
}

/// The sequence that `text` begins with, if it does nothing but choose how letters look.
fn colour(text: &str) -> Option<&str> {
    let parameters = text.strip_prefix("\x1b[")?;
    let length =
        parameters.find(|character: char| !character.is_ascii_digit() && character != ';')?;
    let is_colour = parameters[length..].starts_with('m') && length <= MAX_COLOUR_BYTES;
    is_colour.then(|| &text[.."\x1b[".len() + length + 1])
}

/// A character as itself, or what stands for one that a terminal would act on, or that
/// makes text look like other text.
fn show(character: char, shown: &mut String) {
    match character {
        '\0'..='\x1f' => {
            shown.push('^');
            shown.push(char::from(character as u8 + b'@'));
        }
        '\x7f' => *shown += "^?",
        _ if telemetry::misleads(character) => {
            *shown += &format!("<U+{:04X}>", u32::from(character));
        }
        _ => shown.push(character),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_cannot_steer_the_terminal() {
        for (line, colours, expected) in [
            ("plain \u{e4}\ttab", true, "plain \u{e4}\ttab"),
            ("\x1b[31mred\x1b[0m", true, "\x1b[31mred\x1b[0m"),
            ("\x1b[31mred", true, "\x1b[31mred\x1b[0m"),
            ("\x1b[31mred", false, "red"),
            ("\x1b[31mred\nnext", true, "\x1b[31mred\x1b[0m\nnext"),
            ("one\r\ntwo\n", true, "one\ntwo\n"),
            ("\x1b[2J", true, "^[[2J"),
            ("\x1b]0;title\x07", true, "^[]0;title^G"),
            // Clipboard, answers that a terminal types by itself, and links.
            ("\x1b]52;c;cm0=\x07", true, "^[]52;c;cm0=^G"),
            ("\x1b[6n\x1b[c\x05", true, "^[[6n^[[c^E"),
            ("\x1b]8;;http://x\x1b\\", true, "^[]8;;http://x^[\\"),
            ("\x1bP$q\x1b\\", true, "^[P$q^[\\"),
            ("\x1b[?1049h\x1b[1;1H", true, "^[[?1049h^[[1;1H"),
            ("\x1bc", true, "^[c"),
            ("\x1b[", true, "^[["),
            ("\x1b[31", true, "^[[31"),
            ("progress\rdone\r", true, "progress^Mdone"),
            ("ab\x08\x08cd", true, "ab^H^Hcd"),
            ("\u{9b}2J", true, "<U+009B>2J"),
            ("a\u{202e}b", true, "a<U+202E>b"),
            ("a\u{200b}b\u{2028}c", true, "a<U+200B>b<U+2028>c"),
            (
                "\u{1f468}\u{200d}\u{1f469}",
                true,
                "\u{1f468}\u{200d}\u{1f469}",
            ),
            ("\u{fffd}\x7f\0", true, "\u{fffd}^?^@"),
        ] {
            assert_eq!(lines(line, colours), expected, "{line:?}");
        }
        let long = format!("\x1b[{}m", "1;".repeat(40));
        assert!(lines(&long, true).starts_with("^["));
    }

    #[test]
    fn a_word_has_no_colour_and_no_line_break() {
        for (word, expected) in [
            ("a b", "a b"),
            ("a\nb\r\tc", "a b  c"),
            ("\x1b[31mred", "^[[31mred"),
            ("a\x1b[2Jb\u{9b}", "a^[[2Jb<U+009B>"),
            ("a\u{202e}b\u{200b}", "a<U+202E>b<U+200B>"),
        ] {
            assert_eq!(plain(word), expected, "{word:?}");
        }
    }
}
