//! A message of slurmctld's protocol: a length, a header, a credential and a body.
//!
//! The first half of a header's first number is the protocol number: N of the libslurm.so.N that
//! speaks it.

#[cfg(test)]
mod tests;

use k12::{CustomRefKt128, ExtendableOutput as _, Update as _};

use crate::pack::{Short, Unpack, packed_length, packed_text};

/// Type of a request for statistics, `REQUEST_STATS_INFO`.
const REQUEST: u16 = 2035;
/// Type of the answer with statistics, `RESPONSE_STATS_INFO`.
const STATISTICS: u16 = 2036;
/// Type of the answer with an error number, `RESPONSE_SLURM_RC`.
const RETURN_CODE: u16 = 8001;

/// Body of a request for statistics, `STAT_COMMAND_GET`. 0 would reset the statistics.
const GET: [u8; 2] = [0, 1];

/// Flag that no credential follows the header, `SLURM_NO_AUTH_CRED`.
const NO_CREDENTIAL: u16 = 0x40;

/// The first protocol number whose credentials contain a KangarooTwelve hash of their message, and
/// whose header has no index.
const FIRST_WITH_K12: u16 = 38;

/// Number that stands for no hash, `HASH_PLUGIN_NONE`.
const HASH_NONE: u8 = 1;
/// Number that stands for KangarooTwelve, `HASH_PLUGIN_K12`.
const HASH_K12: u8 = 2;

/// The most bytes of a reply. One with full tables, in a queue with long host lists, has less than
/// 100 KB.
pub(crate) const MOST: usize = 1 << 20;

/// Slurm's plugins for credentials, with their numbers in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Plugin {
    Munge = 101,
    Slurm = 103,
}

/// Returns the hash that the credential of the request for statistics must contain.
pub(crate) fn request_hash(number: u16) -> Vec<u8> {
    hash(number, REQUEST, &GET)
}

/// The bytes that bind a credential to a message.
fn hash(number: u16, kind: u16, body: &[u8]) -> Vec<u8> {
    if number < FIRST_WITH_K12 {
        // In the byte order of the host, in 20.11 and 21.08.
        let [first, second] = kind.to_ne_bytes();
        return vec![HASH_NONE, first, second];
    }
    [&[HASH_K12][..], &kangaroo_twelve(body, &kind.to_be_bytes())].concat()
}

fn kangaroo_twelve(message: &[u8], customization: &[u8]) -> [u8; 32] {
    let mut hasher = CustomRefKt128::new_customized(customization);
    let mut hash = [0; 32];
    hasher.update(message);
    hasher.finalize_xof_into(&mut hash);
    hash
}

/// The whole request for statistics.
pub(crate) fn request(number: u16, plugin: Plugin, credential: &[u8]) -> Vec<u8> {
    // No flags, and before 22.05 no index.
    let flags: &[u8] = if number < FIRST_WITH_K12 { &[0; 4] } else { &[0; 2] };
    let bytes = [
        &(number << 8).to_be_bytes(),
        flags,
        &REQUEST.to_be_bytes(),
        &packed_length(GET.len()),
        // Nothing is forwarded or returned, and there is no address of an origin.
        &[0; 6],
        &(plugin as u32).to_be_bytes(),
        &packed_text(credential),
        &GET,
    ]
    .concat();
    [&packed_length(bytes.len())[..], &bytes].concat()
}

/// A message from slurmctld, without the length before it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    number: u16,
    kind: u16,
    /// munge's credential, without its NUL; `None` if slurmctld sends none, as from 23.02 on.
    pub(crate) credential: Option<&'a [u8]>,
    body: &'a [u8],
}

/// The contents of a message from slurmctld.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// Packed statistics.
    Statistics(&'a [u8]),
    /// Slurm's error number.
    Code(u32),
    /// A message of another type.
    Other(u16),
}

impl<'a> Message<'a> {
    /// Reads a message. It may have another number than its request: slurmctld refuses a number
    /// with its own.
    pub(crate) fn from_bytes(bytes: &'a [u8]) -> Result<Self, Short> {
        let mut rest = Unpack(bytes);
        let number = rest.u16()? >> 8;
        let flags = rest.u16()?;
        if number < FIRST_WITH_K12 {
            let _index = rest.u16()?;
        }
        let kind = rest.u16()?;
        let length = usize::try_from(rest.u32()?).map_err(|_| Short)?;
        let forwarded = rest.u16()?;
        let returned = rest.u16()?;
        let origin = match rest.u16()? {
            0 => 0,
            // AF_INET, AF_INET6
            2 => 6,
            10 => 22,
            _ => return Err(Short),
        };
        let _origin = rest.bytes(origin)?;
        // Only messages between slurmds have these.
        if (forwarded, returned) != (0, 0) {
            return Err(Short);
        }
        let mut credential = None;
        if flags & NO_CREDENTIAL == 0 {
            let plugin = rest.u32()?;
            let text = rest.block()?;
            if plugin != Plugin::Munge as u32 {
                return Err(Short);
            }
            credential = Some(text.strip_suffix(b"\0").unwrap_or(text));
        }
        if rest.0.len() == length {
            Ok(Self { number, kind, credential, body: rest.0 })
        } else {
            Err(Short)
        }
    }

    /// The contents of the message, in answer to a request with this number.
    pub(crate) fn content(&self, number: u16) -> Result<Content<'a>, Short> {
        match self.kind {
            STATISTICS if self.number != number => Err(Short),
            STATISTICS => Ok(Content::Statistics(self.body)),
            RETURN_CODE => Unpack(self.body).u32().map(Content::Code),
            other => Ok(Content::Other(other)),
        }
    }

    /// Whether a credential with this payload was made for this very message. Credentials of 20.11
    /// and 21.08 are bound to its type at most, and those of their first micro releases to nothing.
    pub(crate) fn is_bound_by(&self, payload: &[u8]) -> bool {
        if self.number >= FIRST_WITH_K12 {
            return payload == hash(self.number, self.kind, self.body);
        }
        let [first, second] = self.kind.to_be_bytes();
        payload.is_empty()
            || payload == [HASH_NONE, first, second]
            || payload == [HASH_NONE, second, first]
    }
}
