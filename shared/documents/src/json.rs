//! JSON documents, one after the other.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Number, Value};

use crate::content::{
    Documents, MAX_DEPTH, MAX_DOCUMENTS, MAX_REPEATED_KEYS, MAX_VALUES, RepeatedKey,
};
use crate::yaml;

/// Why a text cannot be read.
pub(crate) enum Problem {
    /// There is too much of it.
    Bound(String),
    /// It is not JSON.
    Syntax(String),
}

pub(crate) fn parse(text: &str) -> Result<Documents, Problem> {
    let reading = Reading {
        left: Cell::new(MAX_VALUES),
        repeated: RefCell::default(),
    };
    let mut values = Vec::new();
    let mut count = 0;
    let mut rest = text;
    while !rest.trim_start().is_empty() {
        count += 1;
        if count > MAX_DOCUMENTS {
            return Err(Problem::Bound(format!(
                "more than {MAX_DOCUMENTS} documents"
            )));
        }
        let mut deserializer = serde_json::Deserializer::from_str(rest);
        let seed = Seed {
            reading: &reading,
            document: values.len() + 1,
            depth: 0,
        };
        let value = seed.deserialize(&mut deserializer);
        let value = value.map_err(|error| match error.classify() {
            Category::Data => Problem::Bound(error.to_string()),
            Category::Io | Category::Syntax | Category::Eof => Problem::Syntax(error.to_string()),
        })?;
        if !value.is_null() {
            values.push(value);
        }
        // Where this value ended, so that the next one can be read.
        let mut stream = deserializer.into_iter::<serde::de::IgnoredAny>();
        let consumed = stream.byte_offset();
        drop(stream.next());
        rest = &rest[consumed..];
    }
    let mut repeated_keys = reading.repeated.into_inner();
    if !repeated_keys.is_empty()
        && let Ok(with_lines) = yaml::parse(text)
        && !with_lines.repeated_keys.is_empty()
    {
        // The reader of JSON does not say where a key is; that of YAML does, of which nearly
        // all JSON is a part.
        repeated_keys = with_lines.repeated_keys;
    }
    Ok(Documents {
        values,
        repeated_keys,
    })
}

/// What all documents of a text have in common.
struct Reading {
    /// How many values there may be yet.
    left: Cell<usize>,
    repeated: RefCell<Vec<RepeatedKey>>,
}

/// Deserializes one value and counts it, and all within, against the budget.
#[derive(Clone, Copy)]
struct Seed<'a> {
    reading: &'a Reading,
    document: usize,
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
        let left = &self.reading.left;
        let Some(less) = left.get().checked_sub(1) else {
            return Err(D::Error::custom(format!("more than {MAX_VALUES} values")));
        };
        left.set(less);
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
            let value = access.next_value_seed(inner)?;
            if fields.contains_key(&name) {
                let mut repeated = self.reading.repeated.borrow_mut();
                if repeated.len() < MAX_REPEATED_KEYS {
                    repeated.push(RepeatedKey {
                        document: self.document,
                        field: value_errors::shown(&name),
                        key: name,
                        lines: None,
                    });
                }
                continue;
            }
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}
