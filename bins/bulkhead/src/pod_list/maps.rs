//! How many maps a pod's JSON has, counted before it is read: `{"":` are four bytes of text
//! and some 600 in memory.

use std::cell::Cell;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Most maps of a pod; one with as many items in its lists as there may be has fewer.
const MAX_MAPS: usize = 100_000;

/// Whether it has no more maps than a pod may have, as far as it is JSON.
pub(super) fn are_few(json: &[u8]) -> bool {
    let left = Cell::new(MAX_MAPS);
    let mut value = serde_json::Deserializer::from_slice(json);
    Count(&left).deserialize(&mut value).is_ok()
}

/// Counts down with each map.
#[derive(Clone, Copy)]
struct Count<'a>(&'a Cell<usize>);

impl<'de> DeserializeSeed<'de> for Count<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Count<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any value")
    }

    fn visit_bool<E: Error>(self, _value: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _value: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _value: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _value: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _value: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let left = self.0.get().checked_sub(1);
        self.0
            .set(left.ok_or_else(|| A::Error::custom("too many maps"))?);
        while fields.next_key::<IgnoredAny>()?.is_some() {
            fields.next_value_seed(self)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_counted_wherever_they_are() {
        let wide = |count: usize| {
            format!(
                "[{}]",
                vec![r#"{"a":[1,-1,0.5,"x",null,true]}"#; count].join(",")
            )
        };
        let deep = |count: usize| format!("[{}]", vec![r#"{"":{"":{}}}"#; count].join(","));
        for (json, expected) in [
            (wide(MAX_MAPS), true),
            (wide(MAX_MAPS + 1), false),
            (deep(MAX_MAPS / 3), true),
            (deep(MAX_MAPS / 3 + 1), false),
            // In a text they are none.
            (format!("\"{}\"", "{".repeat(MAX_MAPS + 1)), true),
            ("{".to_owned(), false),
        ] {
            assert_eq!(are_few(json.as_bytes()), expected);
        }
    }
}
