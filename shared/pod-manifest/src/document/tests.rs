//! Documents: strict fields, bounds and hostile texts.

use serde_json::json;

use super::*;

fn one(text: &str) -> Value {
    let mut documents = parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(documents.len(), 1, "{text}");
    documents.remove(0)
}

#[test]
fn yaml_scalars_follow_version_1_1() {
    assert_eq!(
        one("mode: 0644\nhex: 0x10\nflag: yes\noff: off\nquoted: \"0644\"\ntext: a\nnothing: ~\n"),
        json!({"mode": 420, "hex": 16, "flag": true, "off": false, "quoted": "0644",
               "text": "a", "nothing": null})
    );
    assert_eq!(
        one("a: 1.5\nb: -3\nc: 1e3"),
        json!({"a": 1.5, "b": -3, "c": 1000.0})
    );
}

#[test]
fn a_file_may_hold_several_documents() {
    for text in [
        "a: 1\n---\nb: 2\n",
        "---\na: 1\n---\n---\n# nothing\n---\nb: 2\n...\n",
    ] {
        assert_eq!(
            parse(text.as_bytes()).unwrap(),
            [json!({"a": 1}), json!({"b": 2})],
            "{text}"
        );
    }
    for text in [r#"{"a":1}{"b":2}"#, "{\"a\":1}\n\n {\"b\":2}\n"] {
        assert_eq!(
            parse(text.as_bytes()).unwrap(),
            [json!({"a": 1}), json!({"b": 2})],
            "{text}"
        );
    }
    for text in ["", "\n", "# only a comment\n", "---\n---\n", "   "] {
        assert!(parse(text.as_bytes()).unwrap().is_empty(), "{text:?}");
    }
}

#[test]
fn a_byte_order_mark_is_skipped_and_other_encodings_are_refused() {
    assert_eq!(parse(b"\xef\xbb\xbfa: 1").unwrap(), [json!({"a": 1})]);
    assert!(parse(b"a: \xff").unwrap_err().contains("UTF-8"));
}

#[test]
fn a_key_that_occurs_twice_is_refused() {
    for text in [
        "a: 1\na: 2\n",
        r#"{"a":1,"a":2}"#,
        "x:\n  a: 1\n  b: 1\n  a: 2\n",
    ] {
        assert!(parse(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn syntax_errors_name_the_line() {
    assert!(parse(b"a: 1\nb: [\n").unwrap_err().contains("line"));
    assert!(parse(b"{\"a\":\n}").unwrap_err().contains("line 2"));
    assert!(parse(br#"{"a":1} x"#).is_err());
}

#[test]
fn anchors_and_merge_keys_work() {
    assert_eq!(
        one("a: &x {k: 1}\nb: *x\nc:\n  <<: *x\n  l: 2\n"),
        json!({"a": {"k": 1}, "b": {"k": 1}, "c": {"k": 1, "l": 2}})
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
    let parser = "recursion limit exceeded";
    let budget = format!("Depth {{ depth: {next} }}");
    let own = format!("nested more than {MAX_DEPTH} levels deep");
    for (text, words) in [
        (lists(next), parser),
        (lists(100_000), parser),
        (maps(next), &budget),
        (maps(2_000), &budget),
        (sequences(next), &budget),
        (sequences(100_000), &budget),
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
