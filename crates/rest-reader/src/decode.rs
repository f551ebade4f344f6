//! slurmrestd's answers, of every version of its API from v0.0.36 to v0.0.45, as slurm-snapshot's types.
//!
//! An answer is processed while it arrives: what is needed is added up at once, and nothing else is kept. A member that
//! a version does not have is absent. A member with an impossible value is an error, never a figure.

pub(crate) mod diag;
mod jobs;
mod lenient;
mod list;
mod lists;
mod nodes;
pub(crate) mod object;
mod partitions;
mod ping;
#[cfg(test)]
#[path = "../tests/inside/decode/tests.rs"]
mod tests;

use std::fmt;
use std::io::Read;

use serde::de::{DeserializeSeed, Error, MapAccess};
use slurm_snapshot::Release;

use self::lenient::{Number, Text};
pub(crate) use self::list::{ListAnswer, Listed};
pub(crate) use self::nodes::NodesAnswer;
use self::object::{Fill, Members, each};
pub(crate) use self::partitions::joined;

/// What every answer has, and the payload that was requested.
#[derive(Debug, Default)]
pub(crate) struct Envelope<T> {
    pub(crate) meta: Meta,
    pub(crate) error: Option<Refusal>,
    pub(crate) payload: T,
    errors: u32,
}

/// The program that answers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) release: Option<Release>,
    /// ClusterName, from Slurm 23.11 on.
    pub(crate) cluster: Option<String>,
    major: Option<u8>,
    minor: Option<u8>,
}

/// The first entry of `errors`. Its text is not kept: what answers may repeat the request's token in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) errno: Option<i32>,
}

/// Reads a whole answer.
pub(crate) fn read<T: Members>(body: impl Read, payload: T) -> serde_json::Result<Envelope<T>> {
    let mut envelope = Envelope { meta: Meta::default(), error: None, payload, errors: 0 };
    let mut json = serde_json::Deserializer::from_reader(body);
    Fill(&mut envelope).deserialize(&mut json)?;
    json.end()?;
    Ok(envelope)
}

impl<T: Members> Members for Envelope<T> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "meta" => map.next_value_seed(Fill(&mut self.meta))?,
            "errors" => {
                let (count, first) = (&mut self.errors, &mut self.error);
                map.next_value_seed(each(|item: Refusal| {
                    if *count == 0 {
                        *first = Some(item);
                    }
                    *count = count.saturating_add(1);
                    Ok(())
                }))?;
            }
            _ => return self.payload.member(name, map),
        }
        Ok(true)
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        // A refused answer may lack anything.
        if self.error.is_some() { Ok(()) } else { self.payload.end() }
    }
}

impl Members for Meta {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            // 22.05 writes it with a capital letter.
            "slurm" | "Slurm" => map.next_value_seed(Fill(&mut SlurmMeta(self)))?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn end<E: Error>(&mut self) -> Result<(), E> {
        let of_parts = self.major.zip(self.minor).map(|(major, minor)| Release::new(major, minor));
        self.release = self.release.or(of_parts);
        Ok(())
    }
}

struct SlurmMeta<'a>(&'a mut Meta);

impl Members for SlurmMeta<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            "release" => self.0.release = map.next_value::<Text>()?.0.as_deref().and_then(release),
            "cluster" => self.0.cluster = map.next_value::<Text>()?.0.filter(|name| !name.is_empty()),
            "version" => map.next_value_seed(Fill(&mut Version(self.0)))?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

struct Version<'a>(&'a mut Meta);

impl Members for Version<'_> {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        let part = match name {
            "major" => &mut self.0.major,
            "minor" => &mut self.0.minor,
            _ => return Ok(false),
        };
        *part = map.next_value::<Number>()?.or_none();
        Ok(true)
    }
}

/// `24.11.5`, `22.05.8`, `25.05.0-0rc1`.
fn release(text: &str) -> Option<Release> {
    let mut parts = text.split('.');
    let (year, month) = (parts.next()?, parts.next()?);
    let month: String = month.chars().take_while(char::is_ascii_digit).collect();
    format!("{year:0>2}.{month:0>2}").parse().ok()
}

impl Members for Refusal {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<bool, A::Error> {
        match name {
            // Up to v0.0.37 it is `errno`.
            "error_number" | "errno" => self.errno = map.next_value::<Number>()?.or_none(),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A payload that reads nothing but the answer's errors.
#[derive(Debug, Default)]
pub(crate) struct Nothing;

impl Members for Nothing {
    fn member<'de, A: MapAccess<'de>>(&mut self, _: &str, _: &mut A) -> Result<bool, A::Error> {
        Ok(false)
    }
}

/// Serde's message without its position, which is useless because nobody has the answer, and without what it quotes of the
/// answer.
pub(crate) fn complaint(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    let Some((before, quoted)) = text.split_once(['"', '`']) else { return text.to_owned() };
    let expected = quoted.rfind(", expected ").and_then(|at| quoted.get(at..));
    format!("{}{}", before.trim_end(), expected.unwrap_or_default())
}

/// An error of this decoder itself.
fn wrong<E: Error>(what: impl fmt::Display) -> E {
    E::custom(what)
}
