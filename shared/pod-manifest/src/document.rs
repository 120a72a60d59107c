//! Bytes of a manifest to untyped values: YAML as the kubelet reads it (1.1
//! scalars: `0644` is octal, `yes` is a bool) or JSON, several documents a file.
//!
//! Everything here is bounded, because anybody who may write a manifest may try
//! to exhaust us: size, depth, number of values, aliases. A key that occurs
//! twice is refused instead of one of its values winning.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

/// Largest manifest that is read, in bytes: the kubelet's own cap.
pub const MAX_MANIFEST_BYTES: usize = 10 << 20;
/// Most values (scalars, lists, mappings) in a manifest. A big pod has some
/// 500; a value costs about 100 bytes of memory.
pub const MAX_VALUES: usize = 250_000;
/// Deepest nesting. A pod needs about 15 levels.
pub const MAX_DEPTH: usize = 64;
/// Most documents in a manifest, empty ones included.
pub const MAX_DOCUMENTS: usize = 1024;
/// Most YAML events that aliases may add.
const MAX_ALIASED_EVENTS: usize = 100_000;

/// The non-empty documents of a manifest, or what is wrong with it.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<Value>, String> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err(format!(
            "manifest has {} bytes, more than {MAX_MANIFEST_BYTES}",
            bytes.len()
        ));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| format!("not UTF-8: {error}"))?;
    let documents = if text.trim_start().starts_with('{') {
        parse_json(text)?
    } else {
        parse_yaml(text)?
    };
    Ok(documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect())
}

fn parse_json(text: &str) -> Result<Vec<Value>, String> {
    let budget = Cell::new(MAX_VALUES);
    let mut documents = Vec::new();
    let mut rest = text;
    while !rest.trim_start().is_empty() {
        if documents.len() == MAX_DOCUMENTS {
            return Err(format!("more than {MAX_DOCUMENTS} documents"));
        }
        let mut deserializer = serde_json::Deserializer::from_str(rest);
        let value = Seed {
            budget: &budget,
            depth: 0,
        }
        .deserialize(&mut deserializer)
        .map_err(|error| format!("not valid JSON: {error}"))?;
        documents.push(value);
        // Where this value ended, so that the next one can be read.
        let mut stream = deserializer.into_iter::<serde::de::IgnoredAny>();
        let consumed = stream.byte_offset();
        drop(stream.next());
        rest = &rest[consumed..];
    }
    Ok(documents)
}

fn parse_yaml(text: &str) -> Result<Vec<Value>, String> {
    let documents: Vec<StrictValue> =
        serde_saphyr::from_slice_multiple_with_options(text.as_bytes(), yaml_options())
            .map_err(|error| format!("not valid YAML: {error}"))?;
    Ok(documents.into_iter().map(|document| document.0).collect())
}

fn yaml_options() -> serde_saphyr::Options {
    let mut budget = serde_saphyr::Budget::default();
    budget.max_depth = MAX_DEPTH;
    budget.flow_nesting_limit = MAX_DEPTH;
    budget.max_nodes = MAX_VALUES;
    budget.max_events = 3 * MAX_VALUES;
    budget.max_documents = MAX_DOCUMENTS;
    budget.max_total_scalar_bytes = MAX_MANIFEST_BYTES;
    let mut options = serde_saphyr::Options::default();
    options.budget = Some(budget);
    options.alias_limits.max_total_replayed_events = MAX_ALIASED_EVENTS;
    options.legacy_octal_numbers = true;
    options.with_snippet = false;
    options
}

/// A value without a key that occurs twice.
struct StrictValue(Value);

impl<'de> Deserialize<'de> for StrictValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let budget = Cell::new(MAX_VALUES);
        Seed {
            budget: &budget,
            depth: 0,
        }
        .deserialize(deserializer)
        .map(StrictValue)
    }
}

/// Deserializes one value and counts it, and all within, against the budget.
#[derive(Clone, Copy)]
struct Seed<'a> {
    budget: &'a Cell<usize>,
    depth: usize,
}

impl Seed<'_> {
    fn inner<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth >= MAX_DEPTH {
            return Err(E::custom(format!(
                "nested more than {MAX_DEPTH} levels deep"
            )));
        }
        Ok(Self {
            depth: self.depth + 1,
            ..self
        })
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let Some(left) = self.budget.get().checked_sub(1) else {
            return Err(D::Error::custom(format!("more than {MAX_VALUES} values")));
        };
        self.budget.set(left);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut fields = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format!("field {name:?} occurs twice")));
            }
            let value = access.next_value_seed(inner)?;
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests;
