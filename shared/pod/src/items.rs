//! How many items the lists of a pod may have, and how many maps where that matters, counted
//! before any type is made of them: `{}` are two bytes in a text, and some 3 KiB as a volume,
//! which has a field for each kind there is; `{"":` are four, and some 600 as a value.

use std::cell::Cell;
use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};

/// Most items in the lists of a pod; containers and volumes count as [`LARGE`] each. An API
/// server has no such bound. A large pod has some hundred.
pub const MAX_ITEMS: usize = 10_000;

/// As how many a container or volume counts.
pub const LARGE: usize = 10;

/// The lists that have them.
const LISTS_OF_LARGE: [&str; 4] = [
    "containers",
    "ephemeralContainers",
    "initContainers",
    "volumes",
];

/// How many items and maps may still come; nothing once there were more of either.
#[derive(Debug)]
pub struct ItemBudget {
    items: Cell<Option<usize>>,
    maps: Cell<Option<usize>>,
}

impl ItemBudget {
    /// For so many.
    #[must_use]
    pub fn new(items: usize) -> ItemBudget {
        ItemBudget {
            items: Cell::new(Some(items)),
            maps: Cell::new(Some(usize::MAX)),
        }
    }

    /// And for so many maps.
    #[must_use]
    pub fn with_maps(self, maps: usize) -> ItemBudget {
        self.maps.set(Some(maps));
        self
    }

    /// Whether there is room for all items of the lists and all maps in a value, which is
    /// not kept.
    ///
    /// # Errors
    /// When it is no value, as far as it was looked at.
    pub fn has_room_for<'de, D: Deserializer<'de>>(&self, value: D) -> Result<bool, D::Error> {
        let counted = Count {
            left: self,
            each: 1,
        }
        .deserialize(value);
        match (self.items.get(), self.maps.get()) {
            (Some(_), Some(_)) => counted.map(|()| true),
            _ => Ok(false),
        }
    }
}

/// Takes so many of those that may still come.
fn take<E: Error>(left: &Cell<Option<usize>>, count: usize) -> Result<(), E> {
    left.set(left.get().and_then(|left| left.checked_sub(count)));
    match left.get() {
        Some(_) => Ok(()),
        None => Err(E::custom("too many items or maps")),
    }
}

/// Counts the items and maps in a value. In a list, each item counts as `each`.
#[derive(Clone, Copy)]
struct Count<'a> {
    left: &'a ItemBudget,
    each: usize,
}

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
        let inner = Count { each: 1, ..self };
        while items.next_element_seed(inner)?.is_some() {
            take(&self.left.items, self.each)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        take(&self.left.maps, 1)?;
        while let Some(each) = fields.next_key_seed(Weight)? {
            fields.next_value_seed(Count { each, ..self })?;
        }
        Ok(())
    }
}

/// As how many each item of the list in a field counts, by the field's name.
struct Weight;

impl<'de> DeserializeSeed<'de> for Weight {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Weight {
    type Value = usize;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a field's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        Ok(match LISTS_OF_LARGE.contains(&name) {
            true => LARGE,
            false => 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The least budget that has room for it; as a text and as a value.
    fn items(value: &Value) -> usize {
        let text = value.to_string();
        let in_text = |most: &usize| {
            let mut json = serde_json::Deserializer::from_str(&text);
            ItemBudget::new(*most).has_room_for(&mut json).unwrap()
        };
        let in_value = |most: &usize| ItemBudget::new(*most).has_room_for(value).unwrap();
        let found = (0..100).find(in_text).unwrap();
        assert_eq!((0..100).find(in_value), Some(found));
        found
    }

    #[test]
    fn maps_count_wherever_they_are_and_only_where_they_are_bounded() {
        for (json, maps) in [
            (r#"[{"a":[1,-1,0.5,"x",null,true]},{}]"#.to_owned(), 2),
            (r#"[{"":{"":{}}}]"#.to_owned(), 3),
            // In a text they are none.
            (format!("\"{}\"", "{".repeat(20)), 0),
        ] {
            let has_room = |budget: ItemBudget| {
                let mut value = serde_json::Deserializer::from_str(&json);
                budget.has_room_for(&mut value).unwrap()
            };
            assert!(has_room(ItemBudget::new(100)), "{json}");
            assert!(has_room(ItemBudget::new(100).with_maps(maps)), "{json}");
            if let Some(fewer) = maps.checked_sub(1) {
                assert!(!has_room(ItemBudget::new(100).with_maps(fewer)), "{json}");
            }
        }
    }

    #[test]
    fn items_of_all_lists_count_and_containers_and_volumes_more() {
        for (value, expected) in [
            (json!({"metadata": {"labels": {"a": "b"}}}), 0),
            (
                json!({"spec": {"tolerations": [{}, null, 1, -1, 0.5, "x", true]}}),
                7,
            ),
            (json!([[[], []], [1]]), 5),
            (json!({"spec": {"volumes": [{}, {}]}}), 20),
            (
                json!({"spec": {"containers": [{"env": [{}, {}], "args": ["x"]}],
                    "initContainers": [{}], "ephemeralContainers": [{}]}}),
                33,
            ),
        ] {
            assert_eq!(items(&value), expected, "{value}");
        }
    }

    #[test]
    fn what_cannot_be_counted_is_an_error() {
        // What is ignored may hold what is no number of ours.
        for text in [
            "",
            "[1,2",
            "{\"a\":[1,}",
            "{1:2}",
            "{\"a\":1e999,\"b\":[1]}",
        ] {
            let mut json = serde_json::Deserializer::from_str(text);
            assert!(
                ItemBudget::new(9).has_room_for(&mut json).is_err(),
                "{text}"
            );
        }
        let mut cut_off = serde_json::Deserializer::from_str("[1,2,3");
        assert!(!ItemBudget::new(2).has_room_for(&mut cut_off).unwrap());
    }
}
