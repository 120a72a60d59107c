//! Texts for people that come from probed targets: cut to size, and without
//! characters that would act on a terminal or break a line of a log.

use ipc::limits::MAX_PROBE_TEXT_BYTES;

/// Makes a text harmless.
#[must_use]
pub(crate) fn for_people(text: &str) -> String {
    let mut harmless = String::new();
    for character in text.trim().chars() {
        let character = match character {
            '\n' | '\t' | '\r' => ' ',
            control if control.is_control() => char::REPLACEMENT_CHARACTER,
            other => other,
        };
        if harmless.len() + character.len_utf8() > MAX_PROBE_TEXT_BYTES {
            break;
        }
        harmless.push(character);
    }
    harmless
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_do_not_survive() {
        assert_eq!(for_people(" a\nb\tc "), "a b c");
        assert_eq!(for_people("\x1b[31mred\x07"), "\u{fffd}[31mred\u{fffd}");
        assert_eq!(for_people("\u{9b}31m"), "\u{fffd}31m");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let long = "é".repeat(MAX_PROBE_TEXT_BYTES);
        let cut = for_people(&long);
        assert_eq!(cut.len(), MAX_PROBE_TEXT_BYTES);
        assert!(cut.chars().all(|character| character == 'é'));
        assert!(for_people(&format!("a{long}")).len() < MAX_PROBE_TEXT_BYTES);
    }
}
