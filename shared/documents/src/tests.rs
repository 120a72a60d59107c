//! Documents: strict fields, bounds and hostile texts.

use serde_json::{Value, json};

use super::*;
use crate::content::MAX_REPEATED_KEYS;

fn values(text: &str) -> Vec<Value> {
    let documents = parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(documents.repeated_keys, [], "{text}");
    documents.values
}

fn one(text: &str) -> Value {
    let mut documents = values(text);
    assert_eq!(documents.len(), 1, "{text}");
    documents.remove(0)
}

#[test]
fn yaml_scalars_follow_version_1_1() {
    assert_eq!(
        one(
            "mode: 0644\nhex: 0x10\nflag: yes\ncrash: off\nquoted: \"0644\"\ntext: a\nnothing: ~\n"
        ),
        json!({"mode": 420, "hex": 16, "flag": true, "crash": false, "quoted": "0644",
               "text": "a", "nothing": null})
    );
    assert_eq!(
        one("a: 1.5\nb: -3\nc: 1e3\non: tRue\nd: nULL\ne: !!str 1\nf: !!int \"2\"\ng: |\n  1\n"),
        json!({"a": 1.5, "b": -3, "c": 1000, "true": "tRue", "d": "nULL", "e": "1", "f": 2,
               "g": "1\n"})
    );
}

#[test]
fn a_file_may_hold_several_documents() {
    for text in [
        "a: 1\n---\nb: 2\n",
        "---\na: 1\n---\n---\n# nothing\n---\nb: 2\n...\n",
    ] {
        assert_eq!(values(text), [json!({"a": 1}), json!({"b": 2})], "{text}");
    }
    for text in [r#"{"a":1}{"b":2}"#, "{\"a\":1}\n\n {\"b\":2}\n"] {
        assert_eq!(values(text), [json!({"a": 1}), json!({"b": 2})], "{text}");
    }
    for text in ["", "\n", "# only a comment\n", "---\n---\n", "   "] {
        assert_eq!(values(text), Vec::<Value>::new(), "{text:?}");
    }
}

#[test]
fn a_byte_order_mark_is_skipped_and_other_encodings_are_refused() {
    assert_eq!(one("\u{feff}a: 1"), json!({"a": 1}));
    let refused = parse(b"a: 1\nb: \xff").unwrap_err();
    assert!(refused.starts_with("line 2: not UTF-8"), "{refused}");
}

#[test]
fn a_key_that_occurs_twice_is_refused() {
    let refused = |text: &str| -> Vec<String> {
        let documents = parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
        let keys = documents.repeated_keys.iter();
        keys.map(ToString::to_string).collect()
    };
    for (text, expected) in [
        (
            "a: 1\na: 2\n",
            &["a: the key a is given twice, in line 1 and in line 2"][..],
        ),
        (
            "{\"a\": {\"b\": 1,\n\"b\": 2}}",
            &["a.b: the key b is given twice, in line 1 and in line 2"],
        ),
        (
            "{\n\t\"a\": 1,\n\t\"a\": \"\\ud83d\\ude00\"\n}",
            &["a: the key a is given twice, in line 2 and in line 3"],
        ),
        (
            "x:\n- {}\n- a: 1\n  b: 1\n  \"a\": 2\n  a: 3\nz: {c: 1, c: 1}\n",
            &[
                "x[1].a: the key a is given twice, in line 3 and in line 5",
                "x[1].a: the key a is given twice, in line 3 and in line 6",
                "z.c: the key c is given twice in line 7",
            ],
        ),
    ] {
        assert_eq!(refused(text), expected, "{text}");
    }
    // A key that is too long for YAML.
    let long = format!("{{\"a\": 1, \"a\": 2, \"{}\": 3}}", "x".repeat(2000));
    assert_eq!(refused(&long), ["a: the key a is given twice"]);
    let many = refused(&"a: 1\n".repeat(1000));
    assert_eq!(many.len(), MAX_REPEATED_KEYS);
}

/// Texts that cannot be read, and what is said of each.
const MISTAKES: &[(&str, &str)] = &[
    (
        "a: 1\nb: [\n",
        "not valid YAML: line 2: unclosed bracket '['",
    ),
    (
        "{\"a\":\n}",
        "it begins with { and so is read as JSON, but is not valid JSON: expected value at line 2 column 1: to have it read as YAML, put a line --- above it",
    ),
    (
        "{a: 1}",
        "it begins with { and so is read as JSON, but is not valid JSON: key must be a string at line 1 column 2: to have it read as YAML, put a line --- above it",
    ),
    (
        "{\"a\":1} x",
        "it begins with { and so is read as JSON, but is not valid JSON: expected value at line 1 column 2",
    ),
    (
        "{{ if .x }}\na: 1\n",
        "it begins with {{: is it a template that was not filled in? A manifest is YAML or JSON",
    ),
    (
        "\u{0}\u{1}\u{2}",
        "not valid YAML: line 1: YAML has no character \\0",
    ),
    (
        "a: 1\nb: {{ .b }}\n",
        "not valid YAML: line 2: {{ is left of a template: fill it in, or put the text in quotation marks",
    ),
    (
        "a: 1\n{{- if .b }}\nb: 1\n",
        "not valid YAML: line 2: {{ is left of a template: fill it in, or put the text in quotation marks",
    ),
    (
        "a: 1\n{% if b %}\nb: 1\n",
        "not valid YAML: line 2: {% is left of a template: fill it in, or put the text in quotation marks",
    ),
    (
        "a:\n\tb: 1\n",
        "not valid YAML: line 2: a tab in the indentation: YAML is indented with spaces only",
    ),
    (
        "a:\n  b: 1\n\tc: 1\n",
        "not valid YAML: line 3: a tab in the indentation: YAML is indented with spaces only",
    ),
    (
        "a:\n  - b: 1\n# c\n\n  \t  c: 1\nd: 1\n",
        "not valid YAML: line 5: a tab in the indentation: YAML is indented with spaces only",
    ),
    (
        "a: |\n  x\n  \ty\nb: [\n",
        "not valid YAML: line 4: unclosed bracket '['",
    ),
    (
        "a: b: c\n",
        "not valid YAML: line 1: mapping values are not allowed in this context",
    ),
    (
        "a: @b\n",
        "not valid YAML: line 1: a text that begins with @ needs quotation marks",
    ),
    (
        "a: .inf\n",
        "not valid YAML: line 1: .inf is not finite: JSON has no such number",
    ),
    (
        "? [a]\n: 1\n",
        "not valid YAML: line 1: a key is not a text",
    ),
    (
        "a: 1\n~: 1\n",
        "not valid YAML: line 2: a key is not a text",
    ),
    (
        "<<: 1\n",
        "not valid YAML: line 1: << needs a mapping, or a list of them",
    ),
    (
        "a: &b [*b]\n",
        "not valid YAML: line 1: an alias stands for a key, or for what it is in",
    ),
    (
        "a: !!int b\n",
        "not valid YAML: line 1: a value is not what its tag says",
    ),
    (
        "a: !!binary aGFsbG8=\n",
        "not valid YAML: line 1: !!binary is not read: give the text itself",
    ),
];

#[test]
fn what_keeps_a_file_from_being_read_is_said_with_its_line() {
    for (text, expected) in MISTAKES {
        assert_eq!(parse(text.as_bytes()).unwrap_err(), *expected, "{text}");
    }
}

#[test]
fn anchors_and_merge_keys_work() {
    assert_eq!(
        one("a: &x {k: 1}\nb: *x\nc:\n  <<: *x\n  l: 2\n"),
        json!({"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 1, "l": 2}})
    );
    assert_eq!(
        one("a: &x {k: 1, l: 1}\nb: &y {k: 2, m: 2}\nc: {l: 3, <<: [*x, *y]}\n"),
        json!({"a": {"k": 1, "l": 1}, "b": {"k": 2, "m": 2}, "c": {"k": 1, "l": 3, "m": 2}})
    );
}

#[test]
fn an_alias_bomb_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let previous = level - 1;
        let aliases = vec![format!("*a{previous}"); 9].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    assert!(parse(text.as_bytes()).is_err());
}

#[test]
fn what_anchors_and_aliases_copy_is_bounded() {
    let long = format!(
        "a: &a {}\nb: [{}*a]\n",
        "x".repeat(1 << 20),
        "*a, ".repeat(10)
    );
    let nested = format!(
        "a: {}[{}0]{}",
        "&a [".repeat(50),
        "0,".repeat(5_000),
        "]".repeat(50)
    );
    for text in [long, nested] {
        let refused = parse(text.as_bytes()).unwrap_err();
        assert!(
            refused.ends_with("anchors and aliases stand for too much"),
            "{refused}"
        );
    }
}

/// Lists in lists, all of them closed.
fn lists(depth: usize) -> String {
    format!("{}1{}", "[".repeat(depth), "]".repeat(depth))
}

/// Maps in maps by indentation.
fn maps(depth: usize) -> String {
    let level = |level| format!("{}a:\n", " ".repeat(level));
    (0..depth).map(level).collect()
}

/// Each text is refused for its depth alone: nothing else is wrong with it.
#[test]
fn deep_nesting_is_refused() {
    let sequences = |depth: usize| "- ".repeat(depth) + "1";
    let in_json = |depth: usize| format!("{{\"a\":{}}}", lists(depth - 1));
    let objects = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    for fits in [lists, maps, sequences, in_json, objects].map(|text| text(MAX_DEPTH)) {
        assert!(parse(fits.as_bytes()).is_ok(), "{fits}");
    }
    let next = MAX_DEPTH + 1;
    let own = format!("nested more than {MAX_DEPTH} levels deep");
    for (text, words) in [
        (lists(next), &own),
        (lists(100_000), &own),
        (maps(next), &own),
        (maps(2_000), &own),
        (sequences(next), &own),
        (sequences(100_000), &own),
        (in_json(next), &own),
        (in_json(100_000), &own),
        (objects(next), &own),
        (objects(100_000), &own),
    ] {
        let refused = parse(text.as_bytes()).unwrap_err();
        assert!(refused.contains(words), "{words}: {refused}");
    }
}

#[test]
fn size_and_number_of_values_are_bounded() {
    assert!(parse(&vec![b' '; MAX_MANIFEST_BYTES + 1]).is_err());
    let many = format!("{{\"a\":[{}0]}}", "0,".repeat(MAX_VALUES));
    assert!(parse(many.as_bytes()).is_err());
    let many = format!("[{}0]", "0,".repeat(MAX_VALUES));
    assert!(parse(many.as_bytes()).is_err());
    let many = "{}".repeat(MAX_DOCUMENTS + 1);
    assert!(parse(many.as_bytes()).is_err());
}

#[test]
fn an_empty_document_is_left_out_in_json_as_in_yaml() {
    for text in ["{\"a\": 1}\nnull\n{\"b\": 2}", "a: 1\n---\nnull\n---\nb: 2"] {
        assert_eq!(values(text), [json!({"a": 1}), json!({"b": 2})], "{text}");
    }
}
