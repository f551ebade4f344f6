//! Objects whose members are processed as they arrive, and arrays of such objects.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};

/// Something that members are added to.
pub(crate) trait Members {
    /// Reads the member of this name; false: the member is not needed and was not read.
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error>;

    /// The end of the members.
    fn end<E: Error>(&mut self) -> Result<(), E> {
        Ok(())
    }
}

/// Reads an object into something. `null` adds nothing.
pub(crate) struct Fill<'a, T>(pub(crate) &'a mut T);

impl<'de, T: Members> DeserializeSeed<'de> for Fill<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Members> Visitor<'de> for Fill<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.end()
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Name>()? {
            if !self.0.member(name.as_str(), &mut map)? {
                map.next_value::<IgnoredAny>()?;
            }
        }
        self.0.end()
    }
}

/// A member's name; empty if it is longer than any of Slurm's.
struct Name {
    bytes: [u8; 48],
    length: usize,
}

impl Name {
    fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..self.length).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ReadsName;
        impl Visitor<'_> for ReadsName {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Name, E> {
                let mut name = Name { bytes: [0; 48], length: 0 };
                if let Some(target) = name.bytes.get_mut(..text.len()) {
                    target.copy_from_slice(text.as_bytes());
                    name.length = text.len();
                }
                Ok(name)
            }
        }
        deserializer.deserialize_str(ReadsName)
    }
}

/// An array of objects, handed over one by one. `null` is an empty array.
pub(crate) struct Each<T, F> {
    take: F,
    item: PhantomData<fn() -> T>,
}

pub(crate) fn each<T, F>(take: F) -> Each<T, F> {
    Each { take, item: PhantomData }
}

impl<'de, T, F> DeserializeSeed<'de> for Each<T, F>
where
    T: Members + Default,
    F: FnMut(T) -> Result<(), String>,
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T, F> Visitor<'de> for Each<T, F>
where
    T: Members + Default,
    F: FnMut(T) -> Result<(), String>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of objects")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        loop {
            let mut item = T::default();
            if items.next_element_seed(Fill(&mut item))?.is_none() {
                return Ok(());
            }
            (self.take)(item).map_err(A::Error::custom)?;
        }
    }
}
