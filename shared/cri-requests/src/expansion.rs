//! `$(VAR)` in commands, arguments and variables, by the rules that users know from
//! the API: `$$` is a dollar sign, a name that is not known stays as it is written,
//! and what is no reference at all is left alone.

use std::collections::BTreeMap;

/// Most bytes that the environment, command and arguments of one container may come
/// to. Linux gives a new process 2 MiB for them in all by default, and without a bound
/// twenty variables that each name the one before twice would fill the memory.
pub(super) const MAX_EXPANDED_BYTES: usize = 1 << 20;

/// The text would be longer than what is left of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong;

/// How many bytes may still be made.
#[derive(Debug)]
pub(super) struct Budget(usize);

impl Budget {
    pub(super) fn new() -> Budget {
        Budget::of(MAX_EXPANDED_BYTES)
    }

    pub(super) fn of(bytes: usize) -> Budget {
        Budget(bytes)
    }

    /// Takes the bytes of a text that is used as it is.
    pub(super) fn spend(&mut self, text: &str) -> Result<(), TooLong> {
        self.0 = self.0.checked_sub(text.len()).ok_or(TooLong)?;
        Ok(())
    }

    /// Replaces the references in `text` and takes the bytes of the result.
    pub(super) fn expand(
        &mut self,
        text: &str,
        variables: &BTreeMap<String, String>,
    ) -> Result<String, TooLong> {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            self.append(&mut expanded, &rest[..dollar])?;
            rest = &rest[dollar + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                self.append(&mut expanded, "$")?;
                rest = after;
            } else if let Some((name, after)) = reference(rest) {
                match variables.get(name) {
                    Some(value) => self.append(&mut expanded, value)?,
                    None => {
                        self.append(&mut expanded, "$(")?;
                        self.append(&mut expanded, name)?;
                        self.append(&mut expanded, ")")?;
                    }
                }
                rest = after;
            } else {
                self.append(&mut expanded, "$")?;
            }
        }
        self.append(&mut expanded, rest)?;
        Ok(expanded)
    }

    fn append(&mut self, expanded: &mut String, part: &str) -> Result<(), TooLong> {
        self.spend(part)?;
        expanded.push_str(part);
        Ok(())
    }
}

/// The names that a text refers to, in their order.
pub(super) fn references(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        rest = &rest[dollar + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            rest = after;
        } else if let Some((name, after)) = reference(rest) {
            names.push(name);
            rest = after;
        }
    }
    names
}

/// The name in parentheses at the beginning of `text`, and what follows it.
fn reference(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('(')?.split_once(')')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> BTreeMap<String, String> {
        [("A", "1"), ("B", "$(A)"), ("EMPTY", ""), ("", "nameless")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    #[test]
    fn references_are_replaced_and_all_else_is_left_alone() {
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("$(A)", "1"),
            ("<$(A)$(A)>", "<11>"),
            ("$(EMPTY)", ""),
            ("$(MISSING)", "$(MISSING)"),
            // A value is not expanded again.
            ("$(B)", "$(A)"),
            // The escape, and what it escapes.
            ("$$", "$"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$$$$(A)", "$$(A)"),
            // Not a reference at all.
            ("$", "$"),
            ("$A", "$A"),
            ("a$", "a$"),
            ("$(A", "$(A"),
            ("$(A$(A)", "$(A$(A)"),
            ("$((A))", "$((A))"),
            ("$()", "nameless"),
            ("${A}", "${A}"),
            ("ä$(A)ö", "ä1ö"),
        ] {
            assert_eq!(
                Budget::new().expand(text, &variables()).unwrap(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn the_names_that_are_referred_to_are_found_where_they_are_replaced() {
        for (text, expected) in [
            ("", &[][..]),
            ("$(A)/$(B)$(A)", &["A", "B", "A"]),
            ("$$(A)$$$(B)", &["B"]),
            ("$(A", &[]),
            ("$()", &[""]),
        ] {
            assert_eq!(references(text), expected, "{text}");
        }
    }

    #[test]
    fn doubling_variables_meet_the_bound_instead_of_filling_the_memory() {
        let mut budget = Budget::new();
        let mut variables = BTreeMap::from([("V0".to_owned(), "x".repeat(1024))]);
        let outcome = (1..64).try_for_each(|index| {
            let previous = index - 1;
            let text = format!("$(V{previous})$(V{previous})");
            let value = budget.expand(&text, &variables)?;
            variables.insert(format!("V{index}"), value);
            Ok(())
        });
        assert_eq!(outcome, Err(TooLong));
        assert!(variables.values().map(String::len).sum::<usize>() <= MAX_EXPANDED_BYTES + 1024);
    }
}

#[cfg(test)]
mod fuzz_tests {
    use fuzz::{changed_text, texts};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_is_within_its_budget_and_names_what_is_replaced_in_it(
            text in changed_text(texts(&["$(A)-$$(B)$(C)", "$($(A))", "$(A", "${A}$", "ä$(B)"])),
        ) {
            let names = references(&text);
            let known = names.iter().map(|name| ((*name).to_owned(), "v".to_owned()));
            let mut budget = Budget::new();
            let expanded = budget.expand(&text, &known.collect());
            prop_assert!(expanded.is_ok_and(|expanded| expanded.len() <= text.len()));
            let unknown = Budget::new().expand(&text, &BTreeMap::new());
            prop_assert!(unknown.is_ok_and(|expanded| expanded.len() <= text.len()));
        }
    }
}
