//! The format of files that variables come from: `NAME='value'` on lines of their own, as
//! kubelets since 1.35 read it.
//!
//! Blanks before the name and around `=` have no meaning, nor have empty lines and those that
//! begin with `#`. What is between the quotes is the value as it stands, line ends included.
//! Nothing else is allowed: no value without quotes or in double ones, nothing after a value.

use std::collections::BTreeMap;

const BLANKS: [char; 2] = [' ', '\t'];

/// A file is not in the format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Malformed {
    /// The line, from 1 on.
    pub(super) line: usize,
    pub(super) reason: &'static str,
}

/// The variables in a file. Of two with one name the last counts, as in a shell.
pub(super) fn parse(text: &str) -> Result<BTreeMap<&str, &str>, Malformed> {
    let mut variables = BTreeMap::new();
    let mut rest = text;
    let malformed = |rest: &str, reason| Malformed {
        line: text[..text.len() - rest.len()].matches('\n').count() + 1,
        reason,
    };
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n']);
        if rest.is_empty() {
            return Ok(variables);
        }
        let (first, after) = rest.split_once('\n').unwrap_or((rest, ""));
        if first.starts_with('#') {
            rest = after;
            continue;
        }
        let Some((name, _)) = first.split_once('=') else {
            return Err(malformed(rest, "there is no '='"));
        };
        let value = rest[name.len() + 1..].trim_start_matches(BLANKS);
        let name = name.trim_end_matches(BLANKS);
        if name.is_empty() || !name.chars().all(|sign| sign.is_ascii_graphic()) {
            return Err(malformed(rest, "there is no name before '='"));
        }
        let Some(quoted) = value.strip_prefix('\'') else {
            return Err(malformed(rest, "the value is not in single quotes"));
        };
        let Some((value, after)) = quoted.split_once('\'') else {
            return Err(malformed(rest, "the quote is not closed"));
        };
        let after = after.trim_start_matches(BLANKS);
        if !after.is_empty() && !after.starts_with('\n') {
            return Err(malformed(after, "something follows the value"));
        }
        if value.contains('\0') {
            return Err(malformed(rest, "there is a zero byte in the value"));
        }
        variables.insert(name, value);
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_is_between_single_quotes() {
        for (text, expected) in [
            ("", &[][..]),
            ("A='1'", &[("A", "1")]),
            ("A='1'\nB='2'\n", &[("A", "1"), ("B", "2")]),
            ("# A='0'\n\n \t\n  A = \t'1' \t\n", &[("A", "1")]),
            ("A=' # $B \\n \"x\" '", &[("A", " # $B \\n \"x\" ")]),
            (
                "A='one\n two\n# three'\nB=''",
                &[("A", "one\n two\n# three"), ("B", "")],
            ),
            ("A='1'\nA='2'", &[("A", "2")]),
            ("a.b-c='=x=' ", &[("a.b-c", "=x=")]),
        ] {
            let expected: BTreeMap<_, _> = expected.iter().copied().collect();
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn whatever_else_a_shell_would_take_is_malformed() {
        for (text, line, reason) in [
            ("A", 1, "there is no '='"),
            ("A='1'\nB\nC='2'", 2, "there is no '='"),
            ("='1'", 1, "there is no name before '='"),
            ("export A='1'", 1, "there is no name before '='"),
            ("A=1", 1, "the value is not in single quotes"),
            ("A=", 1, "the value is not in single quotes"),
            ("A=\n'1'", 1, "the value is not in single quotes"),
            ("\nA=\"1\"", 2, "the value is not in single quotes"),
            ("A='1'\n\nB='2\n\n", 3, "the quote is not closed"),
            ("A='1''2'", 1, "something follows the value"),
            ("A='1\n2'$B", 2, "something follows the value"),
            ("A='1' # one", 1, "something follows the value"),
            ("A='1'\r\n", 1, "something follows the value"),
            ("A='\0'", 1, "there is a zero byte in the value"),
        ] {
            assert_eq!(parse(text), Err(Malformed { line, reason }), "{text}");
        }
    }
}

#[cfg(test)]
mod fuzz_tests {
    use ::fuzz::{changed_text, texts};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_file_gives_what_is_in_it_or_names_a_line_of_it(
            text in changed_text(texts(&["A='1'\n# none\n\n B = 'two\nlines'\n", "A=''", "A='"])),
        ) {
            match parse(&text) {
                Ok(variables) => {
                    for (name, value) in variables {
                        prop_assert!(text.contains(name) && text.contains(value));
                    }
                }
                Err(malformed) => {
                    prop_assert!((1..=text.lines().count() + 1).contains(&malformed.line));
                }
            }
        }
    }
}
