//! docs/attacks.md says which test makes each attack. There must be that test, and it must
//! have what the document says of it.

use std::collections::{BTreeMap, BTreeSet};

use tidy::read;

/// The classes of attacks that are played.
const CLASSES: usize = 23;

/// Fewer attempts than this are not a suite.
const FEWEST: usize = 120;

/// An attempt, and the test that makes it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Case<'a> {
    class: &'a str,
    attempt: &'a str,
    file: &'a str,
    test: &'a str,
}

/// The rows below the numbered headings.
fn cases(document: &str) -> Vec<Case<'_>> {
    let mut class = "";
    let mut cases = Vec::new();
    for line in document.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            class = heading;
        }
        let cells: Vec<&str> = line.split(" | ").collect();
        let is_numbered = class.starts_with(|first: char| first.is_ascii_digit());
        let &[attempt, test] = cells.as_slice() else {
            continue;
        };
        if !is_numbered || attempt == "| attempt" {
            continue;
        }
        let named = test.trim_matches(&['`', ' ', '|'][..]);
        let (file, test) = named
            .split_once("::")
            .unwrap_or_else(|| panic!("no test: {line}"));
        let attempt = attempt.trim_start_matches("| ");
        cases.push(Case {
            class,
            attempt,
            file,
            test,
        });
    }
    cases
}

/// Whether there is a test of this name.
fn has_test(source: &str, name: &str) -> bool {
    let head = format!("fn {name}(");
    let mut attributes = Vec::new();
    for line in source.lines().map(str::trim) {
        if line.starts_with("#[") {
            attributes.push(line);
        } else if line.contains(&head) {
            return attributes.iter().any(|attribute| {
                attribute.starts_with("#[test]") || attribute.starts_with("#[tokio::test")
            });
        } else {
            attributes.clear();
        }
    }
    false
}

/// The words of a text in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn each_attack_has_its_test() {
    let document = read("docs/attacks.md");
    let cases = cases(&document);
    let mut sources = BTreeMap::new();
    for case in &cases {
        let source = sources.entry(case.file).or_insert_with(|| read(case.file));
        assert!(
            has_test(source, case.test),
            "there is no such test: {case:?}"
        );
        for word in quoted(case.attempt) {
            assert!(source.contains(word), "{word} is not there: {case:?}");
        }
    }
    let different: BTreeSet<&Case<'_>> = cases.iter().collect();
    assert_eq!(different.len(), cases.len(), "one attempt is there twice");
    assert!(cases.len() >= FEWEST, "{} attempts", cases.len());
    let classes: BTreeSet<&str> = cases.iter().map(|case| case.class).collect();
    assert_eq!(classes.len(), CLASSES, "{classes:?}");
}

#[test]
fn a_name_alone_is_no_test() {
    let source =
        "#[test]\nfn one() {}\n\nfn two() {}\n#[tokio::test(a = true)]\nasync fn three() {}";
    let found = ["one", "two", "three", "four"].map(|name| has_test(source, name));
    assert_eq!(found, [true, false, true, false]);
}
