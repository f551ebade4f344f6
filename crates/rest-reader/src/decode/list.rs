//! An answer that is one list: `{"NAME": […], "last_update": …}`, whose items are processed as they arrive.

use std::mem;

use serde::de::{Error, MapAccess};

use super::lenient::Number;
use super::object::{Members, each};
use super::wrong;

/// What items are added to.
pub(crate) trait List {
    /// What the list is called in the answer.
    const NAME: &'static str;
    type Item: Members + Default;

    fn add(&mut self, item: Self::Item) -> Result<(), String>;

    /// When slurmctld last changed any of it, where the answer tells and somebody needs it.
    fn last_update(&mut self) -> Option<&mut i64> {
        None
    }

    /// There are no more.
    fn end(&mut self) {}
}

/// The answer, which must have its list, once.
#[derive(Debug, Default)]
pub(crate) struct Listed<L> {
    pub(crate) list: L,
    is_there: bool,
}

impl<L> Listed<L> {
    pub(crate) const fn of(list: L) -> Self {
        Self { list, is_there: false }
    }
}

impl<L: List> Members for Listed<L> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        if name == L::NAME {
            if mem::replace(&mut self.is_there, true) {
                return Err(wrong(format_args!("{name} occur twice")));
            }
            let list = &mut self.list;
            map.next_value_seed(each(|item| list.add(item)))?;
            return Ok(true);
        }
        let Some(last_update) = self.list.last_update().filter(|_| name == "last_update") else {
            return Ok(false);
        };
        *last_update = map.next_value::<Number>()?.moment(name)?.unwrap_or(0);
        Ok(true)
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        if !self.is_there {
            return Err(wrong(format_args!("there are no {} in the answer", L::NAME)));
        }
        self.list.end();
        Ok(())
    }
}
