//! What a scalar without quotation marks means, as in the YAML library of a kubelet (go-yaml
//! 2): YAML 1.1, in which a word counts in its three usual spellings only, followed by the
//! way over JSON, in which a whole float is an integer.

use serde_json::{Number, Value};

/// Floats from here on are written with an exponent in JSON, and so are no integers.
const MAX_WHOLE: f64 = 1e21;

/// The value of a plain scalar; `None` of a number that is not finite, which JSON lacks.
pub(crate) fn resolved(text: &str) -> Option<Value> {
    let value = match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            true.into()
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            false.into()
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
        | "-.inf" | "-.Inf" | "-.INF" => return None,
        _ => number(text).map_or_else(|| text.into(), Value::Number),
    };
    Some(value)
}

/// A key as text: it is resolved like a value, and then written out again. `None` of a key
/// that JSON cannot have.
pub(crate) fn key(text: String) -> Option<String> {
    match resolved(&text)? {
        Value::Null => None,
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => Some(text),
    }
}

fn number(text: &str) -> Option<Number> {
    if !text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) {
        return None;
    }
    let plain = text.replace('_', "");
    integer(&plain).or_else(|| float(&plain))
}

/// As Go reads one of no certain base: `0b`, `0o` and `0x`, and octal where it begins with 0.
fn integer(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (radix, digits) = match unsigned.as_bytes() {
        [b'0', b'b' | b'B', ..] => (2, &unsigned[2..]),
        [b'0', b'o' | b'O', ..] => (8, &unsigned[2..]),
        [b'0', b'x' | b'X', ..] => (16, &unsigned[2..]),
        [b'0', _, ..] => (8, &unsigned[1..]),
        _ => (10, unsigned),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let magnitude = i128::from_str_radix(digits, radix).ok()?;
    let value = if text.starts_with('-') {
        -magnitude
    } else {
        magnitude
    };
    let signed = i64::try_from(value).map(Number::from);
    signed
        .or_else(|_| u64::try_from(value).map(Number::from))
        .ok()
}

/// Digits with an optional point and exponent. One that is too large is a text for Go.
fn float(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_mantissa =
        digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    let is_exponent = exponent.is_none_or(|exponent| {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !unsigned.is_empty() && digits(unsigned)
    });
    if !is_mantissa || !is_exponent {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    if value.fract() != 0.0 || value.abs() >= MAX_WHOLE {
        return Number::from_f64(value);
    }
    Number::from_i128(value as i128).or_else(|| Number::from_f64(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_word_without_quotation_marks_means_what_it_means_for_a_kubelet() {
        for (texts, expected) in [
            (&["", "~", "null", "Null", "NULL"][..], json!(null)),
            (&["y", "Yes", "TRUE", "on", "On"], json!(true)),
            (&["N", "no", "False", "OFF"], json!(false)),
            (&["8080", "8_080", "+8080", "8080.", "8.08e3"], json!(8080)),
            (
                &["0644", "0o644", "0x1A4", "0b110100100", "420.0"],
                json!(420),
            ),
            (&["1e3", "1E+3", "1000.0"], json!(1000)),
            (&["08", "8.", "+8"], json!(8)),
            (&["5.", "5"], json!(5)),
            (&["-0", "-0.0", "0"], json!(0)),
            (&["-3", "-0b11", "-3.0"], json!(-3)),
            (&[".5", "5e-1", "+0.5"], json!(0.5)),
            (&["18446744073709551615"], json!(u64::MAX)),
            (&["1e30", "1000000000000000000000000000000"], json!(1e30)),
        ] {
            for text in texts {
                assert_eq!(resolved(text), Some(expected.clone()), "{text}");
            }
        }
        for text in [
            "tRue",
            "yEs",
            "oFF",
            "nULL",
            "nUll",
            "YeS",
            "1e",
            "e3",
            "0x",
            "0xg",
            "1.2.3",
            "-",
            "+",
            ".",
            "_1",
            "1:30",
            "2001-01-01",
            "0b2",
            "1e999",
            "0x-1",
            "--1",
            "10.0.0.1",
            "nan",
            "inf",
            "Infinity",
            "true ",
            "<<",
        ] {
            assert_eq!(resolved(text), Some(json!(text)), "{text}");
        }
        for text in [".nan", ".NaN", ".inf", "+.Inf", "-.INF"] {
            assert_eq!(resolved(text), None, "{text}");
        }
    }

    #[test]
    fn a_key_is_a_text_that_was_resolved_first() {
        for (text, expected) in [
            ("on", Some("true")),
            ("No", Some("false")),
            ("0644", Some("420")),
            ("1.0", Some("1")),
            ("a", Some("a")),
            ("~", None),
            (".inf", None),
        ] {
            assert_eq!(key(text.to_owned()).as_deref(), expected, "{text}");
        }
    }
}
