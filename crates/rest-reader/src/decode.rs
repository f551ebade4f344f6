//! slurmrestd's answers, of every version of its API from v0.0.38 on, as slurm-snapshot's types.
//!
//! An answer is processed item by item (a node, a job, a row of a table) while it arrives: what is
//! needed of an item is added up at once, and nothing else is kept. A member that a version does
//! not have is absent. A member with an impossible value is an error, never a figure. Nothing is
//! handed on before the answer's end, and nothing of an answer that has errors.

/// Makes a list of texts of these words.
macro_rules! words {
    ($($word:ident)*) => { &[$(stringify!($word)),*] };
}

pub(crate) mod diag;
mod item;
mod items;
mod jobs;
mod lists;
mod nodes;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fmt;
use std::io::{BufReader, Read};

use serde::Deserializer as _;
use serde::de::{Error, MapAccess, Visitor};
use serde_json::Value;
use slurm_snapshot::Release;

use self::item::Item;
use self::items::{Items, members, room};
pub(crate) use self::lists::joined;
pub(crate) use self::nodes::NodesAnswer;
use crate::lossy::Lossy;

/// The part of an answer that was requested.
pub(crate) trait Payload {
    /// Name of the answer's member that has the payload: a list of items, or one object. If empty,
    /// the answer has no payload.
    const NAME: &'static str;

    /// The members of an item that are read.
    const READ: &'static [&'static str];

    /// Names of the lists in the payload's object, whose rows are items, too. The object itself is
    /// the last item. If empty, the payload is a list.
    const LISTS: &'static [&'static str] = &[];

    /// Bytes that the names of all items of a list may take together: more than those of any
    /// cluster.
    const MOST_NAMES: usize = 256 << 10;

    /// Adds an item of the list of this name.
    fn item(&mut self, list: &str, item: Item<'_>) -> Result<(), String>;

    /// Ends an answer without errors. `last_update` is the moment at which slurmctld last changed
    /// the list, Unix seconds; 0 if the answer does not say.
    fn end_answer(&mut self, _last_update: i64) -> Result<(), String> {
        Ok(())
    }
}

/// The parts that every answer has, and the payload that was requested.
#[derive(Debug)]
pub(crate) struct Envelope<T> {
    pub(crate) meta: Meta,
    /// Slurm's number of the first entry of `errors`, 0 if the entry has none; `None` without an
    /// entry. The text of the entry is not kept: the program that answers may repeat the request's
    /// token in it.
    pub(crate) error: Option<i32>,
    pub(crate) payload: T,
}

/// Facts about the Slurm that answers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) release: Option<Release>,
    /// ClusterName, from Slurm 23.11 on.
    pub(crate) cluster: Option<String>,
}

/// Reads a whole answer.
pub(crate) fn read_answer<T: Payload>(
    body: impl Read,
    payload: T,
) -> serde_json::Result<Envelope<T>> {
    let body = BufReader::with_capacity(8 << 10, Lossy::new(body));
    let mut json = serde_json::Deserializer::from_reader(body);
    let envelope = json.deserialize_map(Document(payload))?;
    json.end()?;
    Ok(envelope)
}

/// The whole answer, read into its payload.
struct Document<T>(T);

impl<'de, T: Payload> Visitor<'de> for Document<T> {
    type Value = Envelope<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Envelope<T>, A::Error> {
        let mut payload = self.0;
        let mut errors = Errors::default();
        let head = members(map, &room(), Some(&["meta", "last_update"]), |name, map| {
            match name {
                "errors" => map.next_value_seed(Items::new(&mut errors, "errors"))?,
                name if name == T::NAME => {
                    map.next_value_seed(Items::new(&mut payload, T::NAME))?
                }
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let head = Value::Object(head);
        let names = Cell::new(T::MOST_NAMES);
        let head = Item::new::<()>(&head, &names);
        // A refused answer may lack anything.
        if errors.first.is_none() {
            if !T::NAME.is_empty() && !head.has(T::NAME) {
                return Err(Error::custom(format_args!("the response contains no {}", T::NAME)));
            }
            let last_update = head.moment("last_update").map_err(Error::custom)?.unwrap_or(0);
            payload.end_answer(last_update).map_err(Error::custom)?;
        }
        let meta = head.object("meta").and_then(Meta::from_item).map_err(Error::custom)?;
        Ok(Envelope { meta, error: errors.first, payload })
    }
}

impl Meta {
    fn from_item(meta: Item<'_>) -> Result<Self, String> {
        // 22.05 writes it with a capital letter.
        let slurm = meta.object(if meta.has("slurm") { "slurm" } else { "Slurm" })?;
        Ok(Self {
            release: slurm.text("release").as_deref().and_then(release),
            cluster: Some(slurm.name("cluster")?).filter(|name| !name.is_empty()),
        })
    }
}

/// Parses the text of a release: `24.11.5`, `22.05.8`, `25.05.0-0rc1`.
fn release(text: &str) -> Option<Release> {
    let mut parts = text.split('.');
    let year = parts.next()?;
    let month = parts.next()?;
    let month: String = month.chars().take_while(char::is_ascii_digit).collect();
    format!("{year:0>2}.{month:0>2}").parse().ok()
}

/// The answer's `errors`.
#[derive(Default)]
struct Errors {
    first: Option<i32>,
}

impl Payload for Errors {
    const NAME: &'static str = "errors";
    const READ: &'static [&'static str] = words![error_number];

    fn item(&mut self, _: &str, item: Item<'_>) -> Result<(), String> {
        self.first.get_or_insert(item.or_none("error_number").unwrap_or(0));
        Ok(())
    }
}

/// The payload of an answer of which only the errors matter.
impl Payload for () {
    const NAME: &'static str = "";
    const READ: &'static [&'static str] = &[];

    fn item(&mut self, _: &str, _: Item<'_>) -> Result<(), String> {
        Ok(())
    }
}

/// Serde's message without its position, which is useless because nobody has the answer, and
/// without what it quotes of the answer.
pub(crate) fn complaint(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    let Some((before, quoted)) = text.split_once(['"', '`']) else { return text.to_owned() };
    let expected = quoted.rfind(", expected ").and_then(|at| quoted.get(at..));
    format!("{}{}", before.trim_end(), expected.unwrap_or_default())
}
