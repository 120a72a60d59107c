//! docs/attacks.md says which test makes each attack. There must be that test, and it must
//! have what the document says of it.

use std::collections::{BTreeMap, BTreeSet};

use tidy::{has_test, read};

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

/// The words of a text in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A file of tests, and the file of the same name in `src` with what it shares with others.
fn sources_of(file: &str) -> (String, String) {
    let shared = file.replace("/tests/", "/src/");
    let has_shared = shared != file && tidy::root().join(&shared).is_file();
    let shared = has_shared.then(|| read(shared));
    (read(file), shared.unwrap_or_default())
}

#[test]
fn each_attack_has_its_test() {
    let document = read("docs/attacks.md");
    let cases = cases(&document);
    let mut sources = BTreeMap::new();
    for case in &cases {
        let (source, shared) = sources
            .entry(case.file)
            .or_insert_with(|| sources_of(case.file));
        assert!(
            has_test(source, case.test),
            "there is no such test: {case:?}"
        );
        for word in quoted(case.attempt) {
            let is_there = source.contains(word) || shared.contains(word);
            assert!(is_there, "{word} is not there: {case:?}");
        }
    }
    let different: BTreeSet<&Case<'_>> = cases.iter().collect();
    assert_eq!(different.len(), cases.len(), "one attempt is there twice");
    assert!(cases.len() >= FEWEST, "{} attempts", cases.len());
    let classes: BTreeSet<&str> = cases.iter().map(|case| case.class).collect();
    assert_eq!(classes.len(), CLASSES, "{classes:?}");
}
