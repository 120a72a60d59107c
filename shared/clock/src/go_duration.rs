//! Durations as Go writes them: `1m30s`, `1.5h`, `100ms`, `0`.

use std::time::Duration;

/// Units by their length in nanoseconds; longer names first where one begins
/// like another.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A duration that is not negative, from Go's text form.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_go_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration like 1m30s, 10s or 500ms");
    if text.starts_with('-') {
        return Err(format!("{text:?} is negative"));
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(wrong());
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (part, after) = one_part(rest).ok_or_else(wrong)?;
        nanos = nanos.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    // Go's durations end at some 292 years.
    match i64::try_from(nanos) {
        Ok(nanos) => Ok(Duration::from_nanos(nanos.unsigned_abs())),
        Err(_) => Err(format!("{text:?} is too long")),
    }
}

/// A number with its unit at the beginning of `text`, and what follows.
fn one_part(text: &str) -> Option<(u128, &str)> {
    let (whole, after) = digits(text);
    let (fraction, after) = match after.strip_prefix('.') {
        Some(after) => digits(after),
        None => ("", after),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let (unit, factor) = UNITS
        .iter()
        .filter(|(unit, _)| after.starts_with(unit))
        .max_by_key(|(unit, _)| unit.len())?;
    let mut nanos = number(whole)?.checked_mul(*factor)?;
    // Digits below a nanosecond are cut off, as Go does.
    let mut scale = *factor;
    for digit in fraction.bytes() {
        scale /= 10;
        nanos = nanos.checked_add(scale * u128::from(digit - b'0'))?;
    }
    Some((nanos, after.get(unit.len()..)?))
}

fn digits(text: &str) -> (&str, &str) {
    let end = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    text.split_at(end)
}

fn number(digits: &str) -> Option<u128> {
    if digits.is_empty() {
        Some(0)
    } else {
        digits.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        let millis = Duration::from_millis;
        for (text, expected) in [
            ("0", millis(0)),
            ("0s", millis(0)),
            ("+5s", millis(5_000)),
            ("1m30s", millis(90_000)),
            ("1h15m30.918s", millis(4_530_918)),
            ("1.5h", millis(5_400_000)),
            (".5s", millis(500)),
            ("5.s", millis(5_000)),
            ("100ms", millis(100)),
            ("1m1ms", millis(60_001)),
            ("52us", Duration::from_micros(52)),
            ("52\u{b5}s", Duration::from_micros(52)),
            ("52\u{3bc}s", Duration::from_micros(52)),
            ("7ns", Duration::from_nanos(7)),
            ("0.9ns", Duration::ZERO),
            (
                "2562047h47m16.854775807s",
                Duration::from_nanos(i64::MAX as u64),
            ),
        ] {
            assert_eq!(parse_go_duration(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "s",
            "5",
            "5 s",
            ".s",
            "-5s",
            "5x",
            "1m30",
            "5s!",
            "1,5s",
            "+",
            "1e3s",
            "2562047h47m16.854775808s",
            "99999999999999999999999999999999999999999h",
        ] {
            assert!(parse_go_duration(text).is_err(), "{text}");
        }
    }
}
