//! Ranges of numbers (ports, users, groups) as a policy writes them: `80` or `"80-90"`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Numbers from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    first: u32,
    last: u32,
}

impl Range {
    /// A range of one number.
    #[must_use]
    pub fn single(number: u32) -> Range {
        Range {
            first: number,
            last: number,
        }
    }

    /// Whether the number is in it.
    #[must_use]
    pub fn contains(self, number: u32) -> bool {
        (self.first..=self.last).contains(&number)
    }

    /// Whether it is this very number and no other.
    #[must_use]
    pub fn is_exactly(self, number: u32) -> bool {
        self == Range::single(number)
    }

    fn parse(text: &str) -> Result<Range, String> {
        let wrong = || format!("{text:?} is not a number or a range like \"1000-1999\"");
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(wrong());
        }
        Ok(Range { first, last })
    }
}

impl fmt::Display for Range {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(formatter, "{}", self.first)
        } else {
            write!(formatter, "{}-{}", self.first, self.last)
        }
    }
}

impl Serialize for Range {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.first == self.last {
            serializer.serialize_u32(self.first)
        } else {
            serializer.collect_str(self)
        }
    }
}

impl<'de> Deserialize<'de> for Range {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Range, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Range;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number, or a range in quotation marks like \"1000-1999\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Range, E> {
                let number = u32::try_from(number);
                number
                    .map(Range::single)
                    .map_err(|_| E::custom("a number from 0 to 4294967295 is needed"))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Range, E> {
                Range::parse(text).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_a_number_or_two() {
        assert_eq!(Range::parse("7"), Ok(Range::single(7)));
        assert_eq!(Range::parse("7-9"), Ok(Range { first: 7, last: 9 }));
        for wrong in ["", "-", "a", "9-7", "1-", "-1", "1-2-3", "4294967296"] {
            assert!(Range::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn both_ends_are_in_it() {
        let range = Range { first: 7, last: 9 };
        let inside: Vec<u32> = (5..12).filter(|number| range.contains(*number)).collect();
        assert_eq!(inside, [7, 8, 9]);
        assert!(!range.is_exactly(7) && Range::single(7).is_exactly(7));
    }
}
