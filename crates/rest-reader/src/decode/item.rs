//! An item's members, as the versions write them: a number is a number, a text, or `{set, infinite,
//! number}`; a list of words is an array, or one text with commas.

use std::borrow::Cow;
use std::cell::Cell;

use serde_json::Value;
use slurm_snapshot::{moment, short_name};

use super::Payload;

/// A node, a job, a row of a table, or an object in one of them. `null` has no members.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    value: &'a Value,
    /// Bytes of names for which the item's list still has room.
    room: &'a Cell<usize>,
    /// The members that the item's payload reads; if empty, all.
    read: &'static [&'static str],
}

static NULL: Value = Value::Null;

impl<'a> Item<'a> {
    /// An item of this payload, which has only the members in `T::READ`.
    pub(super) const fn new<T: Payload>(value: &'a Value, room: &'a Cell<usize>) -> Self {
        Self { value, room, read: T::READ }
    }

    pub(super) fn has(self, name: &str) -> bool {
        self.value.get(name).is_some()
    }

    /// Returns the member of this name; `null` if there is none. In a debug build it panics if the
    /// member is missing in `READ`, and so would be absent in every answer.
    fn get(self, name: &str) -> &'a Value {
        debug_assert!(self.read.is_empty() || self.read.contains(&name), "{name} is not in READ");
        self.value.get(name).unwrap_or(&NULL)
    }

    /// The member of this name as an item.
    pub(super) fn object(self, name: &str) -> Result<Self, String> {
        match self.get(name) {
            value @ (Value::Object(_) | Value::Null) => Ok(Self::new::<()>(value, self.room)),
            _ => Err(format!("{name} is not an object")),
        }
    }

    /// Returns the number in a member; `None` if there is no value, an error if it is not a whole
    /// number or does not fit.
    pub(super) fn number<T: TryFrom<i128>>(self, name: &str) -> Result<Option<T>, String> {
        self.amount(name).within(name)
    }

    /// Returns the number in a member; an error if there is no value, or if it is not a whole
    /// number or does not fit.
    pub(super) fn needed<T: TryFrom<i128>>(self, name: &str) -> Result<T, String> {
        self.number(name)?.ok_or_else(|| format!("{name} is missing: the response is incomplete"))
    }

    /// Returns the number in a member that is an unsigned number in C. Its two highest values mean
    /// "no value" and "infinite" and give `None`, in 64 bits also those of 32 bits. Older versions
    /// write them as negative numbers.
    pub(super) fn value<T: TryFrom<i128>>(self, name: &str) -> Result<Option<T>, String> {
        let last = i128::from(u64::MAX);
        match self.amount(name) {
            Number::Is(-1 | -2 | 0xffff_fffe | 0xffff_ffff) => Ok(None),
            Number::Is(number) if number == last || number == last - 1 => Ok(None),
            number => number.within(name),
        }
    }

    /// Returns the moment in a member, Unix seconds. 0, a negative number, "no value" and
    /// "infinite" are `None`.
    pub(super) fn moment(self, name: &str) -> Result<Option<i64>, String> {
        match self.amount(name) {
            Number::Is(number) => Ok(i64::try_from(number).ok().and_then(moment)),
            other => other.within(name),
        }
    }

    /// Returns the number in a member that may be missing. Anything that is no number, or does not
    /// fit, is `None`.
    pub(super) fn or_none<T: TryFrom<i128>>(self, name: &str) -> Option<T> {
        if let Number::Is(number) = self.amount(name) { T::try_from(number).ok() } else { None }
    }

    /// Returns true or false, which may also be a text, or the number 1 or 0; `None` for anything
    /// else.
    pub(super) fn flag(self, name: &str) -> Option<bool> {
        flag(self.get(name))
    }

    /// Returns the text in a member, also of a whole number; `None` for anything else.
    pub(super) fn text(self, name: &str) -> Option<Cow<'a, str>> {
        match self.get(name) {
            Value::String(text) => Some(text.into()),
            value @ Value::Number(_) => match Number::from_value(value) {
                Number::Is(number) => Some(number.to_string().into()),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns a name, cut to the length that is kept, and counts its bytes; empty if there is no
    /// text.
    pub(super) fn name(self, name: &str) -> Result<String, String> {
        let text = self.text(name).unwrap_or_default();
        let short = short_name(&text);
        self.charge(short.len())?;
        Ok(short.into_owned())
    }

    /// Counts bytes that are kept of this item. Returns an error if its list has no room for them.
    pub(super) fn charge(self, bytes: usize) -> Result<(), String> {
        let left = self.room.get().checked_sub(bytes);
        self.room
            .set(left.ok_or("the names so far are longer together than those of any cluster")?);
        Ok(())
    }

    /// Returns the words in a member: an array of texts, or one text with commas between them.
    pub(super) fn words(self, name: &str) -> Result<Vec<&'a str>, String> {
        let no_words = || format!("{name} is not a list of words");
        let words: Vec<&str> = match self.get(name) {
            Value::Null => Vec::new(),
            Value::String(text) => text.split(',').map(str::trim).collect(),
            Value::Array(items) => {
                let words = items.iter().filter(|item| !item.is_null());
                words.map(|word| word.as_str().ok_or_else(no_words)).collect::<Result<_, _>>()?
            }
            _ => return Err(no_words()),
        };
        Ok(words.into_iter().filter(|word| !word.is_empty()).collect())
    }

    fn amount(self, name: &str) -> Number {
        Number::from_value(self.get(name))
    }
}

fn flag(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Some(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Some(false),
        Value::Number(_) => match Number::from_value(value) {
            Number::Is(0) => Some(false),
            Number::Is(1) => Some(true),
            _ => None,
        },
        _ => None,
    }
}

/// A whole number, or one of Slurm's values for "none".
#[derive(Clone, Copy, PartialEq, Eq)]
enum Number {
    None,
    Is(i128),
    /// A value that is no number.
    Wrong,
}

impl Number {
    fn from_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::None,
            Value::Bool(_) | Value::Array(_) => Self::Wrong,
            Value::Number(number) => {
                let whole =
                    number.as_u64().map(i128::from).or_else(|| number.as_i64().map(i128::from));
                whole.or_else(|| number.as_f64().and_then(whole_of)).map_or(Self::Wrong, Self::Is)
            }
            Value::String(text) => match text.trim() {
                "" => Self::None,
                // As written with the data parser's flag "complex".
                text if text.eq_ignore_ascii_case("infinity") => Self::None,
                text => text.parse().map_or(Self::Wrong, Self::Is),
            },
            Value::Object(members) => {
                let flag = |name| members.get(name).and_then(flag);
                match (flag("set"), flag("infinite"), members.get("number").map(Self::from_value)) {
                    (_, Some(true), _) | (Some(false), ..) => Self::None,
                    // No version writes none of them inside "number".
                    (.., None | Some(Self::None)) => Self::Wrong,
                    (.., Some(number)) => number,
                }
            }
        }
    }

    fn within<T: TryFrom<i128>>(self, name: &str) -> Result<Option<T>, String> {
        match self {
            Self::None => Ok(None),
            Self::Is(number) => {
                T::try_from(number).map(Some).map_err(|_| format!("{name} is out of its range"))
            }
            Self::Wrong => Err(format!("{name} is not a whole number")),
        }
    }
}

/// Converts a float to a whole number; `None` if it has a fraction, or is above 2^53, where it may
/// differ from the number that was meant.
fn whole_of(number: f64) -> Option<i128> {
    #[expect(clippy::cast_possible_truncation, reason = "whole, and within 2^53")]
    (number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0).then_some(number as i128)
}
