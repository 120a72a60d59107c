//! Kubernetes quantities (`100m`, `1.5Gi`, `1e3`), exactly and without floats.
//!
//! A value is held as a whole number of nano units. Like the API server we
//! round finer values away from zero and cap at 2^63-1 whole units.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::api::resource;
use thiserror::Error;

/// Longest text that is parsed; canonical ones have at most 21 characters.
pub const MAX_QUANTITY_LENGTH: usize = 128;

const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;
const MAX_NANOS: i128 = i64::MAX as i128 * NANOS_PER_UNIT;
/// Digits finer than a nano that are computed with: 10^20 * 2^60 fits an i128.
/// What is finer still can only influence rounding up.
const MAX_FINER_DIGITS: usize = 20;
/// Digits that always fit an i128.
const MAX_MANTISSA_DIGITS: usize = 38;
/// Suffixes of powers of ten, smallest first, with their exponents.
const DECIMAL_SUFFIXES: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
/// Suffixes of powers of 1024, smallest first.
const BINARY_SUFFIXES: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QuantityError {
    /// Not a number with one of the suffixes, or none.
    #[error("not a quantity{}", advice(.meant.as_deref()))]
    Malformed {
        /// What was most likely meant.
        meant: Option<String>,
    },
    /// The text is longer than any sensible number.
    #[error("quantity is longer than {MAX_QUANTITY_LENGTH} characters")]
    TooLong,
}

fn advice(meant: Option<&str>) -> String {
    match meant {
        Some(meant) => format!(": did you mean {meant}?"),
        None => " like 500m, 1.5, 64M or 64Mi".to_owned(),
    }
}

/// How a quantity is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// `12e6`
    DecimalExponent,
    /// `12M`
    DecimalSi,
    /// `12Mi`
    BinarySi,
}

/// An exact quantity. Comparison, equality and hashing look at the value alone.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Quantity = Quantity {
        nanos: 0,
        format: Format::DecimalSi,
    };

    /// So many thousandths, written with decimal suffixes.
    pub fn from_millis(millis: i64) -> Self {
        Self {
            nanos: i128::from(millis) * NANOS_PER_MILLI,
            format: Format::DecimalSi,
        }
    }

    /// So many whole units.
    pub fn from_whole(units: i64, format: Format) -> Self {
        Self {
            nanos: i128::from(units) * NANOS_PER_UNIT,
            format,
        }
    }

    /// Parses the text of a generated type.
    pub fn from_api(quantity: &resource::Quantity) -> Result<Self, QuantityError> {
        // The API server trims what is inside the JSON string.
        quantity.0.trim().parse()
    }

    /// The generated type, in canonical form.
    pub fn to_api(self) -> resource::Quantity {
        resource::Quantity(self.to_string())
    }

    /// Whole units, rounded up.
    pub fn value(self) -> i64 {
        saturate(divide_up(self.nanos, NANOS_PER_UNIT))
    }

    /// Thousandths, rounded up.
    pub fn milli_value(self) -> i64 {
        saturate(divide_up(self.nanos, NANOS_PER_MILLI))
    }

    /// Whether it is 0.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is below 0.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// Whether it is a whole number of units.
    pub fn is_whole(self) -> bool {
        self.nanos % NANOS_PER_UNIT == 0
    }

    /// Itself, rounded up to whole thousandths: what the API server stores of an
    /// amount of a resource.
    pub fn rounded_up_to_millis(self) -> Quantity {
        let millis = divide_up(self.nanos, NANOS_PER_MILLI);
        Quantity {
            nanos: (millis * NANOS_PER_MILLI).clamp(-MAX_NANOS, MAX_NANOS),
            ..self
        }
    }

    /// The sum, written as `self` is (or as `other`, if `self` is zero).
    pub fn plus(self, other: Quantity) -> Quantity {
        let format = if self.is_zero() {
            other.format
        } else {
            self.format
        };
        Quantity {
            nanos: (self.nanos + other.nanos).clamp(-MAX_NANOS, MAX_NANOS),
            format,
        }
    }

    /// How it is written.
    pub fn format(self) -> Format {
        self.format
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl std::hash::Hash for Quantity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        if text.len() > MAX_QUANTITY_LENGTH {
            return Err(QuantityError::TooLong);
        }
        parsed(text).ok_or_else(|| {
            let meant = right_spelling(text).filter(|meant| parsed(meant).is_some());
            QuantityError::Malformed { meant }
        })
    }
}

fn parsed(text: &str) -> Option<Quantity> {
    let (negative, rest) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let number_end = rest
        .find(|character: char| !character.is_ascii_digit() && character != '.')
        .unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(number_end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let scale = parse_suffix(suffix)?;
    let magnitude = scaled_nanos(whole, fraction, scale);
    let nanos = if negative { -magnitude } else { magnitude };
    Some(Quantity {
        nanos,
        format: scale.format(),
    })
}

/// The text as a quantity is spelt, where people write another unit: without spaces, the `B`
/// of bytes and letters of the wrong case.
fn right_spelling(text: &str) -> Option<String> {
    let text: String = text.split_whitespace().collect();
    let end = text.find(|character: char| character.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(end);
    let lower = unit.to_ascii_lowercase();
    let of_bytes = ["bytes", "byte", "b"];
    let is_of_bytes = of_bytes.iter().find_map(|end| lower.strip_suffix(end));
    // Thousandths of a byte is what nobody means.
    if unit == "m" {
        return Some(text);
    }
    let prefix = is_of_bytes.unwrap_or(&lower);
    let decimal = DECIMAL_SUFFIXES.iter().map(|(name, _)| *name).skip(3);
    let mut known = decimal.chain(BINARY_SUFFIXES).chain(["u", "n"]);
    let suffix = known.find(|known| known.eq_ignore_ascii_case(prefix))?;
    Some(format!("{number}{suffix}"))
}

/// What a suffix multiplies with.
#[derive(Clone, Copy)]
enum Scale {
    Decimal(i32),
    Exponent(i32),
    Binary(u32),
}

impl Scale {
    fn format(self) -> Format {
        match self {
            Scale::Decimal(_) => Format::DecimalSi,
            Scale::Exponent(_) => Format::DecimalExponent,
            Scale::Binary(_) => Format::BinarySi,
        }
    }
}

fn parse_suffix(suffix: &str) -> Option<Scale> {
    if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        return Some(Scale::Decimal(*exponent));
    }
    if let Some(position) = BINARY_SUFFIXES.iter().position(|name| *name == suffix) {
        // At most six entries.
        return Some(Scale::Binary(10 * (position as u32 + 1)));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Beyond three digits everything is zero or the cap anyway.
    let value = digits.parse::<i32>().unwrap_or(i32::MAX).min(999);
    Some(Scale::Exponent(match exponent.starts_with('-') {
        true => -value,
        false => value,
    }))
}

/// The magnitude in nano units, rounded up and capped.
fn scaled_nanos(whole: &str, fraction: &str, scale: Scale) -> i128 {
    let (power_of_ten, shift) = match scale {
        Scale::Decimal(exponent) | Scale::Exponent(exponent) => (exponent, 0),
        Scale::Binary(shift) => (0, shift),
    };
    // The value is digits * 10^exponent * 2^shift, in nanos.
    let digits = format!("{whole}{fraction}");
    let digits = digits.trim_start_matches('0');
    let mut exponent = power_of_ten + 9 - fraction.len() as i32;
    if digits.bytes().all(|byte| byte == b'0') {
        return 0;
    }
    let mut kept = digits;
    let mut finer = false;
    if exponent < 0 {
        // exponent is at least 9 - 999 - MAX_QUANTITY_LENGTH.
        let finer_digits = exponent.unsigned_abs() as usize;
        let nano_digits = digits.len().saturating_sub(finer_digits);
        let Some(room) = MAX_MANTISSA_DIGITS.checked_sub(nano_digits) else {
            return MAX_NANOS;
        };
        let room = room.min(MAX_FINER_DIGITS);
        if finer_digits > room {
            let cut = digits.len().saturating_sub(finer_digits - room);
            finer = digits[cut..].bytes().any(|byte| byte != b'0');
            kept = &digits[..cut];
            exponent = -(room as i32);
        }
    }
    let Some(mantissa) = parse_mantissa(kept) else {
        return MAX_NANOS;
    };
    let mantissa = if finer {
        mantissa.saturating_add(1)
    } else {
        mantissa
    };
    let nanos = if exponent >= 0 {
        10_i128
            .checked_pow(exponent as u32)
            .and_then(|factor| mantissa.checked_mul(factor))
            .and_then(|value| value.checked_mul(1 << shift))
    } else {
        let divisor = 10_i128.pow((-exponent) as u32);
        let quotient = (mantissa / divisor).checked_mul(1 << shift);
        let remainder = (mantissa % divisor).checked_mul(1 << shift);
        quotient
            .zip(remainder)
            .map(|(quotient, remainder)| quotient + divide_up(remainder, divisor))
    };
    nanos.map_or(MAX_NANOS, |nanos| nanos.min(MAX_NANOS))
}

/// The digits as a number; `None` if they do not fit, which is beyond the cap.
fn parse_mantissa(digits: &str) -> Option<i128> {
    if digits.is_empty() {
        Some(0)
    } else {
        digits.parse().ok()
    }
}

/// Division that rounds away from zero.
fn divide_up(value: i128, divisor: i128) -> i128 {
    let quotient = value / divisor;
    if value % divisor == 0 {
        quotient
    } else {
        quotient + value.signum()
    }
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// The canonical form, as the API server prints it.
impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return formatter.write_str("0");
        }
        let small = self.nanos.abs() < 1024 * NANOS_PER_UNIT;
        match self.format {
            Format::BinarySi if !small && self.is_whole() => {
                let mut units = self.nanos / NANOS_PER_UNIT;
                let mut suffix = "";
                for name in BINARY_SUFFIXES {
                    if units % 1024 != 0 {
                        break;
                    }
                    units /= 1024;
                    suffix = name;
                }
                write!(formatter, "{units}{suffix}")
            }
            format => {
                let mut number = self.nanos;
                let mut exponent = -9;
                while number % 1000 == 0 && exponent < 18 {
                    number /= 1000;
                    exponent += 3;
                }
                write!(formatter, "{number}")?;
                if exponent == 0 {
                    return Ok(());
                }
                if format == Format::DecimalExponent {
                    return write!(formatter, "e{exponent}");
                }
                let suffix = DECIMAL_SUFFIXES
                    .iter()
                    .find(|(_, power)| *power == exponent);
                formatter.write_str(suffix.map_or("", |(name, _)| name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(text: &str) -> Quantity {
        text.parse()
            .unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn the_canonical_form_is_the_api_servers() {
        for (text, canonical) in [
            ("0", "0"),
            ("0Mi", "0"),
            ("-0", "0"),
            ("1", "1"),
            ("+1", "1"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("5.", "5"),
            ("1.0", "1"),
            ("100m", "100m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1024Mi", "1Gi"),
            ("1024", "1024"),
            ("1000", "1k"),
            ("1000Ki", "1000Ki"),
            ("512Ki", "512Ki"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("100e6", "100e6"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("12e-3", "12e-3"),
            ("1e1", "10"),
            ("1E", "1E"),
            ("2Ei", "2Ei"),
            ("1e-10", "1e-9"),
            ("0.0000000001", "1n"),
            ("1.1Ki", "1126400m"),
            ("-1.5", "-1500m"),
            ("9223372036854775807", "9223372036854775807"),
            ("99999999999999999999", "9223372036854775807"),
            ("1e999", "9223372036854775807e0"),
            ("10000E", "9223372036854775807"),
            ("0001", "1"),
        ] {
            let expected = canonical.strip_suffix("e0").unwrap_or(canonical);
            assert_eq!(quantity(text).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn what_the_api_server_refuses_is_refused() {
        for text in [
            "", ".", "-", "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i", "-3.01i",
            "-3.01e-", " 1", "1 ", "1K", "1e", "1ee3", "1Me3", "0x10", "1_000", "1,5", "NaN",
            "1KI", "1e3.5", "++1", "1é",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
        assert_eq!(
            "1".repeat(129).parse::<Quantity>(),
            Err(QuantityError::TooLong)
        );
    }

    #[test]
    fn a_quantity_that_is_spelt_wrongly_is_answered_with_the_right_spelling() {
        for (text, meant) in [
            ("64MB", Some("64M")),
            ("64Mb", Some("64M")),
            ("64MiB", Some("64Mi")),
            ("64mib", Some("64Mi")),
            ("64mi", Some("64Mi")),
            ("64MI", Some("64Mi")),
            ("128 Mi", Some("128Mi")),
            ("100 m", Some("100m")),
            ("0.5gb", Some("0.5G")),
            ("1K", Some("1k")),
            ("1KB", Some("1k")),
            ("2 g", Some("2G")),
            ("10 GB", Some("10G")),
            ("3tb", Some("3T")),
            ("512 bytes", Some("512")),
            ("512B", Some("512")),
            ("2cores", None),
            ("half", None),
            ("1.2.3GB", None),
            ("1,5", None),
            ("", None),
        ] {
            let refused = text.parse::<Quantity>().unwrap_err();
            let meant = meant.map(str::to_owned);
            assert_eq!(refused, QuantityError::Malformed { meant }, "{text}");
        }
        let said = |text: &str| text.parse::<Quantity>().unwrap_err().to_string();
        assert_eq!(said("64MB"), "not a quantity: did you mean 64M?");
        assert_eq!(said("half"), "not a quantity like 500m, 1.5, 64M or 64Mi");
    }

    #[test]
    fn values_round_up() {
        for (text, value, millis) in [
            ("1", 1, 1000),
            ("1m", 1, 1),
            ("1500m", 2, 1500),
            ("1u", 1, 1),
            ("1001u", 1, 2),
            ("1Gi", 1 << 30, 1000 << 30),
            ("-1500m", -2, -1500),
            ("10E", i64::MAX, i64::MAX),
        ] {
            assert_eq!(quantity(text).value(), value, "{text}");
            assert_eq!(quantity(text).milli_value(), millis, "{text}");
        }
    }

    #[test]
    fn comparison_ignores_how_a_value_is_written() {
        assert_eq!(quantity("1Gi"), quantity("1024Mi"));
        assert_eq!(quantity("1000m"), quantity("1"));
        assert_eq!(quantity("1e3"), quantity("1k"));
        assert!(quantity("1G") < quantity("1Gi"));
        assert!(quantity("-1") < quantity("0"));
        assert!(quantity("100m") < quantity("0.1001"));
    }

    #[test]
    fn sums_keep_the_first_format_and_are_capped() {
        assert_eq!(
            quantity("1Gi").plus(quantity("1G")).to_string(),
            "2073741824"
        );
        assert_eq!(quantity("1Gi").plus(quantity("1Gi")).to_string(), "2Gi");
        assert_eq!(Quantity::ZERO.plus(quantity("1Gi")).to_string(), "1Gi");
        assert_eq!(quantity("10E").plus(quantity("10E")).value(), i64::MAX);
    }

    #[test]
    fn long_fractions_do_not_overflow() {
        let text = format!("0.{}1Ei", "0".repeat(100));
        assert_eq!(quantity(&text).to_string(), "1n");
        let text = format!("{}.5", "9".repeat(100));
        assert_eq!(quantity(&text).value(), i64::MAX);
        let text = format!("1.{}Ei", "3".repeat(100));
        assert!(quantity(&text) > quantity("1.3Ei"));
        let long = format!("5000000000.{}", "3".repeat(60));
        assert_eq!(quantity(&long).to_string(), "5000000000333333334n");
        assert!(quantity(&text) < quantity("1.4Ei"));
    }
}
