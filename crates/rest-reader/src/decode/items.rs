//! A payload's items as serde_json's `Value`, one at a time: of each only the members that are needed, each of which it
//! may have once, and no more of them than [`MOST_KEPT`].

use std::cell::Cell;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde_json::{Map, Value};

use super::Payload;
use super::item::Item;

/// The most bytes of memory, approximately, that an item may take. A limit of the text that it is parsed from would be
/// either too high or too low: `{"":{"":…` takes 126 times its length, and a reservation of 6,000 nodes has 260 KB of
/// which nothing is needed.
const MOST_KEPT: usize = 4 << 20;

/// The memory of a list's entry, of an object, and of its member, in addition to texts.
const ENTRY: usize = 64;
const OBJECT: usize = 640;
const MEMBER: usize = 128;

/// The memory that the members of one object may take together.
pub(super) const fn room() -> Cell<usize> {
    Cell::new(MOST_KEPT)
}

/// Reads the members of an object that are needed, and everything in them.
#[derive(Clone, Copy)]
pub(super) struct Kept<'a> {
    room: &'a Cell<usize>,
    needs: &'a dyn Fn(&str) -> bool,
}

impl<'a> Kept<'a> {
    /// Everything is needed.
    pub(super) const fn all(room: &'a Cell<usize>) -> Self {
        Self { room, needs: &|_| true }
    }

    fn take<E: Error>(self, bytes: usize) -> Result<(), E> {
        let left = self.room.get().checked_sub(bytes);
        self.room.set(left.ok_or_else(|| E::custom("larger than anything that slurmrestd sends"))?);
        Ok(())
    }

    const fn whole(self) -> Self {
        Self::all(self.room)
    }
}

impl<'de> DeserializeSeed<'de> for Kept<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Kept<'_> {
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
        self.take(text.len())?;
        Ok(text.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.whole())? {
            self.take(ENTRY)?;
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        self.take(OBJECT)?;
        let mut members = Map::new();
        while let Some(name) = map.next_key_seed(Name(self.needs))? {
            let Some(name) = name else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            self.take(MEMBER + name.len())?;
            insert(&mut members, name, map.next_value_seed(self.whole())?)?;
        }
        Ok(Value::Object(members))
    }
}

/// Adds a member, which an object may have once: whichever of two counted, the other figure would be lost.
pub(super) fn insert<E: Error>(
    members: &mut Map<String, Value>,
    name: String,
    value: Value,
) -> Result<(), E> {
    if members.insert(name, value).is_some() {
        return Err(E::custom("an object has a member twice"));
    }
    Ok(())
}

/// A member's name, if it is needed.
struct Name<'a>(&'a dyn Fn(&str) -> bool);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<String>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Option<String>, E> {
        Ok((self.0)(name).then(|| name.to_owned()))
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
            let (payload, room) = (&*self.payload, room());
            let kept = Kept { room: &room, needs: &|name| payload.needs(name) };
            let Some(item) = items.next_element_seed(kept).map_err(|error| wrong(&error))? else { break };
            if !matches!(item, Value::Object(_) | Value::Null) {
                return Err(wrong(&"it is not an object"));
            }
            self.payload.item(self.list, Item::new(&item, &names)).map_err(|problem| wrong(&problem))?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if self.lists.is_empty() {
            return Err(Error::invalid_type(Unexpected::Map, &self));
        }
        // All members are held until the end.
        let (payload, mut members, room) = (self.payload, Map::new(), room());
        while let Some(name) = map.next_key_seed(Name(&|name| payload.needs(name)))? {
            let Some(name) = name else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = if self.lists.contains(&name.as_str()) {
                map.next_value_seed(Items { payload: &mut *payload, list: &name, lists: &[] })?;
                Value::Null
            } else {
                map.next_value_seed(Kept::all(&room))?
            };
            insert(&mut members, name, value)?;
        }
        let (members, names) = (Value::Object(members), Cell::new(T::MOST_NAMES));
        payload.item(self.list, Item::new(&members, &names)).map_err(Error::custom)
    }
}
