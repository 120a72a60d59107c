//! What the documents for operators say about the code must be all of it: fields of the
//! configuration and of pods, states of processes. They are read from the sources, so that
//! this needs no other package to be built.

use std::path::Path;

use tidy::{is_test, read, rust_files};

/// The names that follow `opening` in quotation marks, with any space between.
fn quoted_after<'a>(text: &'a str, opening: &str) -> Vec<&'a str> {
    text.split(opening)
        .skip(1)
        .filter_map(|rest| rest.trim_start().strip_prefix('"'))
        .filter_map(|rest| rest.split('"').next())
        .collect()
}

/// The part of a document below a heading, up to the next heading.
fn section<'a>(document: &'a str, heading: &str) -> &'a str {
    let (_, rest) = document
        .split_once(&format!("{heading}\n"))
        .unwrap_or_else(|| panic!("there is no heading {heading:?}"));
    rest.split("\n#").next().unwrap_or_default()
}

fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_lowercase())
        && bytes.all(|byte| byte.is_ascii_alphanumeric())
}

#[test]
fn every_field_of_a_kubelet_configuration_is_in_its_list() {
    let fields = read("shared/config-files/src/kubelet/fields.rs");
    let compatibility = read("docs/compatibility.md");
    for (call, heading) in [
        ("applied(", "### Applied"),
        ("ignored(", "### Not applied, with a warning"),
    ] {
        let section = section(&compatibility, heading);
        let names = quoted_after(&fields, call);
        assert!(names.len() > 20, "{call}: {names:?}");
        for name in names {
            assert!(
                section.contains(&format!("`{name}`")),
                "docs/compatibility.md, {heading}: {name} is missing"
            );
        }
    }
}

#[test]
fn every_state_of_a_process_is_explained() {
    let status = read("bins/bulkhead/src/status.rs");
    let words = status.split("fn state_word(").nth(1).unwrap();
    let words = words.split("\n}").next().unwrap();
    let mut words = quoted_after(words, "=> (");
    assert!(words.len() > 5, "{words:?}");
    words.sort_unstable();
    let operating = read("docs/operating.md");
    let rows = section(&operating, "### States").lines();
    let mut explained: Vec<&str> = rows
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    explained.sort_unstable();
    assert_eq!(explained, words, "docs/operating.md, ### States");
}

#[test]
fn every_field_that_refuses_a_pod_is_documented() {
    let compatibility = read("docs/compatibility.md");
    let support = Path::new("shared/pod-validation/src/support");
    let all = rust_files();
    let sources = all.iter().filter(|file| {
        let is_ours = file.starts_with(support) || **file == support.with_extension("rs");
        is_ours && !is_test(file)
    });
    let mut count = 0;
    for file in sources {
        let source = read(file);
        for name in quoted_after(&source, "(") {
            if is_identifier(name) {
                count += 1;
                assert!(
                    compatibility.contains(&format!("`{name}`")),
                    "docs/compatibility.md: {name}, of {}",
                    file.display()
                );
            }
        }
    }
    assert!(count > 60, "only {count} fields were found");
}
