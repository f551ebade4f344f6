//! A payload's items as serde_json's `Value`, one at a time. Only those members of an item are kept
//! that are needed, at most [`MOST_KEPT`] bytes of them. Each member may occur once.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde_json::{Map, Value};

use super::Payload;
use super::item::Item;

/// The most bytes of memory, approximately, that an item may take. A limit of the text that it is
/// parsed from would be either too high or too low: `{"":{"":…` takes 126 times its length, and a
/// reservation of 6,000 nodes has 260 KB of which nothing is needed.
const MOST_KEPT: usize = 4 << 20;

/// Bytes of memory that an entry of a list takes, in addition to texts.
const ENTRY: usize = 64;
/// Bytes of memory that an object takes, in addition to its members.
const OBJECT: usize = 640;
/// Bytes of memory that a member of an object takes, in addition to texts.
const MEMBER: usize = 128;

/// Returns the bytes of memory that the members of one item may take together.
pub(super) const fn room() -> Cell<usize> {
    Cell::new(MOST_KEPT)
}

fn take<E: Error>(room: &Cell<usize>, bytes: usize) -> Result<(), E> {
    let left = room.get().checked_sub(bytes);
    room.set(left.ok_or_else(|| E::custom("larger than anything that slurmrestd sends"))?);
    Ok(())
}

/// Reads an object's members. `list` may read a member itself, and then returns `true`. Of the
/// others those that are `needed` are kept, with everything in them; `None` means all. A member may
/// occur once: whichever of two counted, the other figure would be lost.
pub(super) fn members<'de, A: MapAccess<'de>>(
    mut map: A,
    room: &Cell<usize>,
    needed: Option<&[&str]>,
    mut list: impl FnMut(&str, &mut A) -> Result<bool, A::Error>,
) -> Result<Map<String, Value>, A::Error> {
    take(room, OBJECT)?;
    let mut members = Map::new();
    while let Some(name) = map.next_key::<String>()? {
        let value = if list(&name, &mut map)? {
            Value::Null
        } else if needed.is_none_or(|needed| needed.contains(&name.as_str())) {
            map.next_value_seed(NeededMembers { room, needed: None })?
        } else {
            map.next_value::<IgnoredAny>()?;
            continue;
        };
        take(room, MEMBER + name.len())?;
        if members.insert(name, value).is_some() {
            return Err(A::Error::custom("an object has a member twice"));
        }
    }
    Ok(members)
}

/// Reads a value. Of an object, only the members that are needed are kept.
#[derive(Clone, Copy)]
struct NeededMembers<'a> {
    room: &'a Cell<usize>,
    needed: Option<&'static [&'static str]>,
}

impl<'de> DeserializeSeed<'de> for NeededMembers<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NeededMembers<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(flag.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        take(self.room, text.len())?;
        Ok(text.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(NeededMembers { needed: None, ..self })? {
            take(self.room, ENTRY)?;
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        members(map, self.room, self.needed, |_, _| Ok(false)).map(Value::Object)
    }
}

/// Reads a list, or an object with lists, and hands over its items.
pub(super) struct Items<'a, T> {
    payload: &'a mut T,
    list: &'a str,
    lists: &'static [&'static str],
}

impl<'a, T: Payload> Items<'a, T> {
    pub(super) const fn new(payload: &'a mut T, list: &'a str) -> Self {
        Self { payload, list, lists: T::LISTS }
    }
}

impl<'de, T: Payload> DeserializeSeed<'de> for Items<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Payload> Visitor<'de> for Items<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.lists.is_empty() { "an array of objects" } else { "an object" })
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        if !self.lists.is_empty() {
            return Err(Error::invalid_type(Unexpected::Seq, &self));
        }
        let names = Cell::new(T::MOST_NAMES);
        for number in 1_u64.. {
            let wrong = |problem: &dyn fmt::Display| {
                A::Error::custom(format_args!("{}, item {number}: {problem}", self.list))
            };
            let room = room();
            let kept = NeededMembers { room: &room, needed: Some(T::READ) };
            let Some(item) = items.next_element_seed(kept).map_err(|error| wrong(&error))? else {
                break;
            };
            if !matches!(item, Value::Object(_) | Value::Null) {
                return Err(wrong(&"it is not an object"));
            }
            self.payload
                .item(self.list, Item::new::<T>(&item, &names))
                .map_err(|problem| wrong(&problem))?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let Self { payload, list, lists } = self;
        if lists.is_empty() {
            return Err(Error::invalid_type(Unexpected::Map, &"an array of objects"));
        }
        // All members are held until the end.
        let members = members(map, &room(), Some(T::READ), |name, map| {
            let is_list = lists.contains(&name);
            if is_list {
                map.next_value_seed(Items { payload: &mut *payload, list: name, lists: &[] })?;
            }
            Ok(is_list)
        })?;
        let members = Value::Object(members);
        let names = Cell::new(T::MOST_NAMES);
        payload.item(list, Item::new::<T>(&members, &names)).map_err(Error::custom)
    }
}
