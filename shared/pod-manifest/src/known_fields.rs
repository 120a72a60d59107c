//! The known field that an unknown one was most likely meant to be.
//!
//! The types of the API tell their fields when they are decoded. So a pod is decoded out
//! of nothing but the way to the unknown field, and the fields of the object that it is
//! in are noted on the way.

use std::fmt;

use pod::core::Pod;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize as _, forward_to_deserialize_any};

/// The field of a pod that the one at this path was most likely meant to be.
pub(crate) fn nearest(path: &str) -> Option<&'static str> {
    let (_, name) = path.rsplit_once('.').unwrap_or(("", path));
    value_errors::nearest(name, fields_at(path)?.iter().copied())
}

/// The fields of the object that the field at this path is in.
fn fields_at(path: &str) -> Option<&'static [&'static str]> {
    let mut steps = Vec::new();
    for part in path.split('.') {
        let (name, indices) = part.split_once('[').unwrap_or((part, ""));
        steps.push(name);
        // Each index is a step into a list, whose items are all of one type.
        steps.extend(indices.matches(']').map(|_| ""));
    }
    match Pod::deserialize(Way { steps: &steps }) {
        Err(Noted::Fields(fields)) => Some(fields),
        Err(Noted::Other) | Ok(_) => None,
    }
}

/// What ends the decoding: the fields that were looked for, or anything else.
#[derive(Debug)]
enum Noted {
    Fields(&'static [&'static str]),
    Other,
}

impl fmt::Display for Noted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the end of the way to a field")
    }
}

impl std::error::Error for Noted {}

impl Error for Noted {
    fn custom<Message: fmt::Display>(_: Message) -> Noted {
        Noted::Other
    }
}

/// A value that has nothing but the next of these steps in it.
struct Way<'a> {
    steps: &'a [&'a str],
}

impl<'a> Way<'a> {
    /// The first step and what comes after it.
    fn split(&self) -> Result<(&'a str, Way<'a>), Noted> {
        let (first, steps) = self.steps.split_first().ok_or(Noted::Other)?;
        Ok((first, Way { steps }))
    }
}

impl<'de> Deserializer<'de> for Way<'_> {
    type Error = Noted;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Noted> {
        Err(Noted::Other)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Noted> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Noted> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Noted> {
        match self.steps.len() {
            1 => Err(Noted::Fields(fields)),
            _ => self.deserialize_map(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Noted> {
        visitor.visit_map(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Noted> {
        visitor.visit_seq(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct tuple tuple_struct enum identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Way<'_> {
    type Error = Noted;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Noted> {
        let (key, _) = self.split()?;
        seed.deserialize(StrDeserializer::new(key)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Noted> {
        seed.deserialize(self.split()?.1)
    }
}

impl<'de> SeqAccess<'de> for Way<'_> {
    type Error = Noted;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Noted> {
        seed.deserialize(self.split()?.1).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_field_has_a_nearest_one_where_there_is_one_like_it() {
        for (path, expected) in [
            ("spec.containers[0].comand", Some("command")),
            ("spec.containers[12].Image", Some("image")),
            ("spec.containers[0].imgae", Some("image")),
            ("spec.containers[0].livenesProbe", Some("livenessProbe")),
            (
                "spec.containers[0].ports[1].containerport",
                Some("containerPort"),
            ),
            ("spec.container", Some("containers")),
            ("spec.hostnetwork", Some("hostNetwork")),
            ("spec.restartpolicy", Some("restartPolicy")),
            ("spec.securityContext.runAsUsr", Some("runAsUser")),
            ("spec.volumes[0].emptydir", Some("emptyDir")),
            ("spec.volumes[0].hostPath.pth", Some("path")),
            ("metadata.label", Some("labels")),
            ("metdata", Some("metadata")),
            ("spec.containers[0].resources.limit", Some("limits")),
            ("spec.xyzzy", None),
            ("spec.nowhere.at.all", None),
            ("spec.containers[0].image.tag", None),
            ("", None),
        ] {
            assert_eq!(nearest(path), expected, "{path}");
        }
    }
}
