//! What serde says is wrong with a value, in words for people who know no Rust: what is
//! expected, what was found, whether quotation marks help, and which name was meant.

use std::ops::RangeInclusive;

use serde_json::Value;

/// Names that are less alike than this have nothing to do with each other: 1 is the same.
const ALIKE: f64 = 0.8;

/// Most characters that are shown of a text.
const MAX_SHOWN_CHARS: usize = 128;

/// Most characters of what serde says: the names of a type with some fields fit.
const MAX_SAID_CHARS: usize = 256;

/// Texts without quotation marks that YAML reads as true or false.
const WORDS: [&str; 8] = ["y", "yes", "true", "on", "n", "no", "false", "off"];

/// A text of a file for a message: short, and without what a terminal would act on.
#[must_use]
pub fn shown(text: &str) -> String {
    let kept: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    let rest = if kept.len() < text.len() { "..." } else { "" };
    format!("{}{rest}", kept.escape_debug())
}

/// What serde says, which has texts in quotation marks already.
fn said(text: &str) -> String {
    let escaped = |character: char| match character {
        '"' | '\'' | '\\' => character.to_string(),
        _ => character.escape_debug().to_string(),
    };
    let escaped: String = text.chars().take(MAX_SAID_CHARS + 1).map(escaped).collect();
    match escaped.char_indices().nth(MAX_SAID_CHARS) {
        Some((end, _)) => format!("{}...", &escaped[..end]),
        None => escaped,
    }
}

/// The known name that an unknown one was most likely meant to be.
#[must_use]
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let alike = |known: &str| strsim::jaro_winkler(&known.to_lowercase(), &name);
    let known = known.into_iter().map(|known| (alike(known), known));
    let best = known.max_by(|(one, _), (other, _)| one.total_cmp(other))?;
    (best.0 >= ALIKE).then_some(best.1)
}

/// What serde says of an unknown name, with the known one that was most likely meant instead
/// of all of them.
#[must_use]
pub fn did_you_mean(error: &str) -> Option<String> {
    let (start, known) = error.split_once(", expected ")?;
    let kind = ["unknown field `", "unknown variant `"];
    let name = kind.iter().find_map(|kind| start.strip_prefix(kind))?;
    let known = known.split('`').skip(1).step_by(2);
    let meant = nearest(name.trim_end_matches('`'), known)?;
    Some(format!("{}: did you mean {meant}?", said(start)))
}

/// What serde says of a value, in plain words. Without `found` no value is shown.
#[must_use]
pub fn for_people(error: &str, found: Option<&Value>) -> String {
    if let Some(text) = did_you_mean(error) {
        return text;
    }
    let Some((_, expected)) = mismatch(error) else {
        return said(error);
    };
    let wanted = Wanted::of(expected);
    let expected = wanted.as_ref().map_or(expected, |wanted| wanted.words());
    let Some(found) = found else {
        return format!("expected {expected}");
    };
    if let Some(Wanted::Whole(range)) = &wanted
        && let Some(number) = out_of(range, found)
    {
        let (least, most) = (range.start(), range.end());
        return format!("{number} is out of range: it must be from {least} to {most}");
    }
    let advice = wanted.map_or("", |wanted| wanted.advice(found));
    format!("expected {expected}, found {}{advice}", described(found))
}

/// A value of the type that serde expected, so that the rest can be looked at.
#[must_use]
pub fn stand_in(error: &str) -> Option<Value> {
    Wanted::of(mismatch(error)?.1).map(|wanted| wanted.zero())
}

/// What was found and what was expected, in serde's words.
fn mismatch(error: &str) -> Option<(&str, &str)> {
    let found = ["invalid type: ", "invalid value: "];
    let text = found.iter().find_map(|found| error.strip_prefix(found))?;
    // A text that was found may have these words in it.
    text.rsplit_once(", expected ")
}

/// Types of values.
enum Wanted {
    Text,
    Whole(RangeInclusive<i128>),
    Number,
    Bool,
    List,
    Mapping,
    WholeOrText,
    Quantity,
    Time,
}

impl Wanted {
    /// The type that serde, or a type of the API, expects.
    fn of(expected: &str) -> Option<Wanted> {
        let whole = |least: i128, most: i128| Some(Wanted::Whole(least..=most));
        match expected {
            "a string" | "string" | "path string" => Some(Wanted::Text),
            "i8" => whole(i8::MIN.into(), i8::MAX.into()),
            "i16" => whole(i16::MIN.into(), i16::MAX.into()),
            "i32" => whole(i32::MIN.into(), i32::MAX.into()),
            "i64" => whole(i64::MIN.into(), i64::MAX.into()),
            "u8" => whole(0, u8::MAX.into()),
            "u16" => whole(0, u16::MAX.into()),
            "u32" => whole(0, u32::MAX.into()),
            "u64" => whole(0, u64::MAX.into()),
            "f32" | "f64" => Some(Wanted::Number),
            "a boolean" => Some(Wanted::Bool),
            "a sequence" => Some(Wanted::List),
            "a map" => Some(Wanted::Mapping),
            "IntOrString" => Some(Wanted::WholeOrText),
            "Quantity" => Some(Wanted::Quantity),
            "Time" | "MicroTime" => Some(Wanted::Time),
            // A type of ours or of the API.
            name => {
                let name = name.strip_prefix("struct ").unwrap_or(name);
                let is_type = name.starts_with(|first: char| first.is_ascii_uppercase())
                    && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
                is_type.then_some(Wanted::Mapping)
            }
        }
    }

    fn words(&self) -> &'static str {
        match self {
            Wanted::Text => "a text",
            Wanted::Whole(_) => "a whole number",
            Wanted::Number => "a number",
            Wanted::Bool => "true or false",
            Wanted::List => "a list",
            Wanted::Mapping => "a mapping",
            Wanted::WholeOrText => "a whole number or a text",
            Wanted::Quantity => "a quantity",
            Wanted::Time => "a time like \"2026-01-31T12:00:00Z\"",
        }
    }

    fn zero(&self) -> Value {
        match self {
            Wanted::Text => "".into(),
            Wanted::Whole(_) | Wanted::Number | Wanted::WholeOrText => 0.into(),
            Wanted::Bool => false.into(),
            Wanted::List => Value::Array(Vec::new()),
            Wanted::Mapping => Value::Object(serde_json::Map::new()),
            Wanted::Quantity => "0".into(),
            Wanted::Time => "1970-01-01T00:00:00Z".into(),
        }
    }

    /// Whether quotation marks make what was found what is expected.
    fn advice(&self, found: &Value) -> &'static str {
        const TAKE_AWAY: &str = ": take the quotation marks away";
        let is_word = |text: &str| {
            let lower = text.to_lowercase();
            let is_usual = text.get(1..) == lower.get(1..) || text == text.to_uppercase();
            WORDS.contains(&lower.as_str()) && is_usual
        };
        match (self, found) {
            (Wanted::Text | Wanted::Time, Value::Number(_)) => ": put it in quotation marks",
            (Wanted::Text, Value::Bool(true)) => {
                ": YAML reads y, yes and on as true: put it in quotation marks"
            }
            (Wanted::Text, Value::Bool(false)) => {
                ": YAML reads n, no and off as false: put it in quotation marks"
            }
            (Wanted::Text, Value::Null) => {
                ": YAML reads null and ~ as nothing: put it in quotation marks"
            }
            (Wanted::Whole(_) | Wanted::WholeOrText, Value::String(text))
                if text.parse::<i128>().is_ok() =>
            {
                TAKE_AWAY
            }
            (Wanted::Number, Value::String(text)) if text.parse::<f64>().is_ok() => TAKE_AWAY,
            (Wanted::Bool, Value::String(text)) if is_word(text) => TAKE_AWAY,
            _ => "",
        }
    }
}

/// The number that is found, if it is not in the range.
fn out_of(range: &RangeInclusive<i128>, found: &Value) -> Option<String> {
    let is_within = match found {
        Value::Number(number) => match number.as_i128() {
            Some(number) => range.contains(&number),
            // Which float it is exactly says nothing here.
            None => number.as_f64()?.abs() <= *range.end() as f64,
        },
        // YAML has a text for what is too large for a float.
        Value::String(text) if text.starts_with(|first: char| !first.is_alphabetic()) => {
            !text.parse::<f64>().ok()?.is_infinite()
        }
        _ => true,
    };
    (!is_within).then(|| match found {
        Value::String(text) => shown(text),
        number => number.to_string(),
    })
}

fn described(found: &Value) -> String {
    match found {
        Value::Null => "nothing".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text \"{}\"", shown(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;

    fn said<T: DeserializeOwned>(found: Value) -> String {
        let error = serde_json::from_value::<T>(found.clone()).err().unwrap();
        for_people(&error.to_string(), Some(&found))
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Limits {
        #[serde(rename = "openFiles")]
        _open_files: Option<u64>,
    }

    #[test]
    fn a_value_that_is_no_text_is_said_in_words_for_people() {
        for (said, expected) in [
            (
                said::<String>(json!(8080)),
                "expected a text, found the number 8080: put it in quotation marks",
            ),
            (
                said::<String>(json!(false)),
                "expected a text, found false: YAML reads n, no and off as false: put it in quotation marks",
            ),
            (
                said::<String>(json!(true)),
                "expected a text, found true: YAML reads y, yes and on as true: put it in quotation marks",
            ),
            (
                said::<String>(Value::Null),
                "expected a text, found nothing: YAML reads null and ~ as nothing: put it in quotation marks",
            ),
            (
                said::<String>(json!(["a"])),
                "expected a text, found a list",
            ),
        ] {
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn a_number_that_is_none_or_out_of_range_is_said_in_words_for_people() {
        for (said, expected) in [
            (
                said::<i32>(json!("8081")),
                "expected a whole number, found the text \"8081\": take the quotation marks away",
            ),
            (
                said::<i32>(json!("http")),
                "expected a whole number, found the text \"http\"",
            ),
            (
                said::<i32>(json!(1.5)),
                "expected a whole number, found the number 1.5",
            ),
            (
                said::<i32>(json!(99_999_999_999_u64)),
                "99999999999 is out of range: it must be from -2147483648 to 2147483647",
            ),
            (
                said::<i32>(json!(1e30)),
                "1e+30 is out of range: it must be from -2147483648 to 2147483647",
            ),
            (
                said::<i32>(json!("1e999")),
                "1e999 is out of range: it must be from -2147483648 to 2147483647",
            ),
            (
                said::<i32>(json!("inf")),
                "expected a whole number, found the text \"inf\"",
            ),
            (
                said::<i32>(json!(80.0)),
                "expected a whole number, found the number 80.0",
            ),
            (
                said::<u64>(json!(-1)),
                "-1 is out of range: it must be from 0 to 18446744073709551615",
            ),
            (
                said::<f64>(json!("0.5")),
                "expected a number, found the text \"0.5\": take the quotation marks away",
            ),
        ] {
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn a_value_of_another_kind_is_said_in_words_for_people() {
        for (said, expected) in [
            (
                said::<bool>(json!("true")),
                "expected true or false, found the text \"true\": take the quotation marks away",
            ),
            (
                said::<bool>(json!("maybe")),
                "expected true or false, found the text \"maybe\"",
            ),
            (
                said::<Vec<String>>(json!("sh, expected x")),
                "expected a list, found the text \"sh, expected x\"",
            ),
            (
                said::<Limits>(json!("\u{1b}[2J")),
                "expected a mapping, found the text \"\\u{1b}[2J\"",
            ),
            (
                said::<Limits>(json!({"openFile": 1})),
                "unknown field `openFile`: did you mean openFiles?",
            ),
            (
                said::<Limits>(json!({"xyzzy": 1})),
                "unknown field `xyzzy`, expected `openFiles`",
            ),
        ] {
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn no_value_is_shown_unless_it_is_given() {
        let error = serde_json::from_value::<String>(json!(4711)).unwrap_err();
        assert_eq!(for_people(&error.to_string(), None), "expected a text");
    }

    #[test]
    fn what_is_shown_is_bounded_and_escaped() {
        let long = "\u{e4}".repeat(1000);
        for (text, expected) in [
            ("a", "a".to_owned()),
            ("\u{1b}[2J\n", "\\u{1b}[2J\\n".to_owned()),
            (&long, "\u{e4}".repeat(128) + "..."),
        ] {
            assert_eq!(shown(text), expected);
        }
    }
}
