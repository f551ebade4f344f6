//! An answer that is one list: `{"NAME": […], "last_update": …}`, whose items are processed as they arrive.

use std::mem;

use serde::de::{Error, MapAccess};

use super::lenient::Number;
use super::object::{Members, each};
use super::wrong;

/// Something that the items of a list are added to.
pub(crate) trait ListAnswer {
    /// The list's name in the answer.
    const NAME: &'static str;
    type Item: Members + Default;

    fn add(&mut self, item: Self::Item) -> Result<(), String>;

    /// The end of the list. `last_update` is when slurmctld last changed it, 0 if the answer does not say.
    fn end(&mut self, _last_update: i64) {}
}

/// An answer that must have its list exactly once.
#[derive(Debug, Default)]
pub(crate) struct Listed<L> {
    pub(crate) list: L,
    last_update: i64,
    is_there: bool,
}

impl<L> Listed<L> {
    pub(crate) const fn of(list: L) -> Self {
        Self { list, last_update: 0, is_there: false }
    }
}

impl<L: ListAnswer> Members for Listed<L> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        if name == L::NAME {
            if mem::replace(&mut self.is_there, true) {
                return Err(wrong(format_args!("{name} occur twice")));
            }
            let list = &mut self.list;
            map.next_value_seed(each(|item| list.add(item)))?;
            return Ok(true);
        }
        if name != "last_update" {
            return Ok(false);
        }
        self.last_update = map.next_value::<Number>()?.moment(name)?.unwrap_or(0);
        Ok(true)
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        if !self.is_there {
            return Err(wrong(format_args!("the response contains no {}", L::NAME)));
        }
        self.list.end(self.last_update);
        Ok(())
    }
}
