//! Values as the ten versions write them: a number is a number, a text, or `{set, infinite, number}`; a list of words
//! is an array, or one text with commas.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::wrong;

/// A whole number, or one of Slurm's values for "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Number {
    #[default]
    None,
    Infinite,
    Is(i128),
    /// Not a number.
    Wrong,
}

impl Number {
    /// `None` if there is no value; an error if it is not a whole number or does not fit.
    pub(super) fn within<T: TryFrom<i128>, E: Error>(self, name: &str) -> Result<Option<T>, E> {
        match self {
            Self::None | Self::Infinite => Ok(None),
            Self::Is(number) => {
                let number = T::try_from(number);
                number.map(Some).map_err(|_| wrong(format_args!("{name} is out of its range")))
            }
            Self::Wrong => Err(wrong(format_args!("{name} is not a whole number"))),
        }
    }

    /// The same for an unsigned C number of 32 bits, whose two highest values mean "no value" and "infinite".
    pub(super) fn value32<E: Error>(self, name: &str) -> Result<Option<u32>, E> {
        self.unless(&[-1, -2, 0xffff_fffe, 0xffff_ffff]).within(name)
    }

    /// The same for 64 bits; older versions write those values as negative numbers.
    pub(super) fn value64<E: Error>(self, name: &str) -> Result<Option<u64>, E> {
        let last = i128::from(u64::MAX);
        self.unless(&[-1, -2, 0xffff_fffe, 0xffff_ffff, last, last - 1]).within(name)
    }

    /// A time. 0, a negative number, "no value" and "infinite" are `None`.
    pub(super) fn moment<E: Error>(self, name: &str) -> Result<Option<i64>, E> {
        match self {
            Self::Is(number) => {
                Ok(i64::try_from(number).ok().filter(|moment| (1..0xffff_fffe).contains(moment)))
            }
            other => other.within(name),
        }
    }

    /// A figure that may be missing: anything else is `None`.
    pub(super) fn or_none<T: TryFrom<i128>>(self) -> Option<T> {
        if let Self::Is(number) = self { T::try_from(number).ok() } else { None }
    }

    fn unless(self, none: &[i128]) -> Self {
        match self {
            Self::Is(number) if none.contains(&number) => Self::None,
            number => number,
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Loose::deserialize(deserializer)? {
            Loose::Number(number) | Loose::Object(number) => number,
            Loose::Nothing => Self::None,
            Loose::Bool(_) | Loose::List => Self::Wrong,
            Loose::Text(text) => match text.trim() {
                "" => Self::None,
                // As written with the data parser's flag "complex".
                text if text.eq_ignore_ascii_case("infinity") => Self::Infinite,
                text => text.parse().map_or(Self::Wrong, Self::Is),
            },
        })
    }
}

/// true or false, also as a number; `None`: something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flag(pub(super) Option<bool>);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Loose::deserialize(deserializer)? {
            Loose::Bool(flag) => Some(flag),
            Loose::Number(Number::Is(0)) => Some(false),
            Loose::Number(Number::Is(1)) => Some(true),
            Loose::Text(text) if text.eq_ignore_ascii_case("true") => Some(true),
            Loose::Text(text) if text.eq_ignore_ascii_case("false") => Some(false),
            _ => None,
        }))
    }
}

/// A text; `None`: something else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text(pub(super) Option<String>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Loose::deserialize(deserializer)? {
            Loose::Text(text) => Some(text),
            Loose::Number(Number::Is(number)) => Some(number.to_string()),
            _ => None,
        }))
    }
}

/// More words than a node has partitions or flags.
const MOST_WORDS: usize = 4096;

/// Words: an array of texts, or one text with commas between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ReadsWords;
        impl<'de> Visitor<'de> for ReadsWords {
            type Value = Words;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("words")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Words, E> {
                let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
                Ok(Words(words.take(MOST_WORDS).map(str::to_owned).collect()))
            }

            fn visit_unit<E: Error>(self) -> Result<Words, E> {
                Ok(Words::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Words, A::Error> {
                let mut words = Vec::new();
                while let Some(text) = items.next_element::<Text>()? {
                    if words.len() == MOST_WORDS {
                        return Err(wrong("a list of words is longer than any of slurmrestd"));
                    }
                    words.extend(text.0.filter(|word| !word.is_empty()));
                }
                Ok(Words(words))
            }
        }
        deserializer.deserialize_any(ReadsWords)
    }
}

/// A value of any kind.
enum Loose {
    Bool(bool),
    Number(Number),
    Text(String),
    Nothing,
    List,
    /// `{set, infinite, number}`, as the number that it means.
    Object(Number),
}

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ReadsLoose;
        impl<'de> Visitor<'de> for ReadsLoose {
            type Value = Loose;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_bool<E: Error>(self, flag: bool) -> Result<Loose, E> {
                Ok(Loose::Bool(flag))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Loose, E> {
                Ok(Loose::Number(Number::Is(number.into())))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Loose, E> {
                Ok(Loose::Number(Number::Is(number.into())))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Loose, E> {
                // Above 2^53, a float may differ from the number that was meant.
                if number.fract() != 0.0 || number.abs() > 9_007_199_254_740_992.0 {
                    return Ok(Loose::Number(Number::Wrong));
                }
                #[expect(clippy::cast_possible_truncation, reason = "whole, and within 2^53")]
                Ok(Loose::Number(Number::Is(number as i128)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Loose, E> {
                Ok(Loose::Text(text.to_owned()))
            }

            fn visit_unit<E: Error>(self) -> Result<Loose, E> {
                Ok(Loose::Nothing)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Loose, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Loose::List)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Loose, A::Error> {
                let (mut set, mut infinite, mut number) = (None, Flag(None), Number::Wrong);
                while let Some(name) = map.next_key::<Text>()? {
                    match name.0.as_deref() {
                        Some("set") => set = map.next_value::<Flag>()?.0,
                        Some("infinite") => infinite = map.next_value()?,
                        Some("number") => number = map.next_value()?,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(Loose::Object(match (set, infinite.0, number) {
                    (_, Some(true), _) => Number::Infinite,
                    (Some(false), ..) => Number::None,
                    // No version writes "infinite" inside "number".
                    (_, _, Number::Infinite | Number::None) => Number::Wrong,
                    (.., number) => number,
                }))
            }
        }
        deserializer.deserialize_any(ReadsLoose)
    }
}
