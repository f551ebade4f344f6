//! munged's socket: a credential is made for a message, or that of a message is decoded.
//!
//! The format is that of munge's libcommon/m_msg.c, version 4, which every munge since 2006 speaks.
//! munged knows its client's user from the kernel.

use std::io;
use std::path::PathBuf;

use crate::local_socket::LocalStream;
use crate::pack::{Short, Unpack, packed_length, packed_text};

const MAGIC: u32 = 0x0060_6d4b;
const VERSION: u8 = 4;
/// Type of a request to make a credential.
const ENCODE: u8 = 2;
/// Type of the answer with a credential.
const ENCODED: u8 = 3;
/// Type of a request to decode a credential.
const DECODE: u8 = 4;
/// Type of the answer with a credential's contents.
const DECODED: u8 = 5;
/// Options of a credential: munged's choice of cipher, MAC and compression, and no realm.
const DEFAULTS: [u8; 4] = [1, 1, 1, 0];
/// Number by which any user or group may decode a credential.
const ANY: u32 = u32::MAX;
/// Bytes of the longest answer: a credential of Slurm has about 200.
const MOST: u32 = 64 << 10;

/// munged, as slurm.conf's AuthInfo describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Munge {
    pub(crate) socket: PathBuf,
    /// Seconds for which a credential is valid; 0: munged's default.
    pub(crate) ttl: u32,
}

/// The reasons why munged gave no credential, or did not decode one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MungeError {
    #[error("{0}")]
    Io(#[from] io::Error),
    /// munged's own error number and text.
    #[error("munged refuses: {text} (munge error {number})")]
    Refused { number: u8, text: String },
    #[error("the answer is not munged's")]
    Format,
}

impl From<Short> for MungeError {
    fn from(Short: Short) -> Self {
        Self::Format
    }
}

/// The contents of a credential.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decoded {
    pub(crate) uid: u32,
    pub(crate) payload: Vec<u8>,
}

/// Lets munged make a credential with this payload, which only the user `restricted_to` can decode,
/// or any user if that is `None`. It is returned without its NUL.
pub(crate) async fn encode(
    munged: LocalStream<'_>,
    ttl: u32,
    payload: &[u8],
    restricted_to: Option<u32>,
) -> Result<Vec<u8>, MungeError> {
    let numbers = [ttl, restricted_to.unwrap_or(ANY), ANY].map(u32::to_be_bytes);
    let length = packed_length(payload.len());
    let body = [&DEFAULTS, numbers.as_flattened(), &length, payload].concat();
    let answer = exchange(munged, [ENCODE, ENCODED], &body).await?;
    let mut answer = Unpack(&answer);
    check(&mut answer)?;
    let credential = answer.block()?;
    let credential = credential.strip_suffix(b"\0").unwrap_or(credential);
    if credential.is_empty() || !answer.is_at_end() {
        return Err(MungeError::Format);
    }
    Ok(credential.to_vec())
}

/// Lets munged decode a credential, which is given without its NUL.
pub(crate) async fn decode(
    munged: LocalStream<'_>,
    credential: &[u8],
) -> Result<Decoded, MungeError> {
    let answer = exchange(munged, [DECODE, DECODED], &packed_text(credential)).await?;
    let mut answer = Unpack(&answer);
    check(&mut answer)?;
    let _ciphers = answer.bytes(3)?;
    let realm = answer.u8()?.into();
    let _realm = answer.bytes(realm)?;
    let _ttl = answer.u32()?;
    let address = answer.u8()?.into();
    let _address = answer.bytes(address)?;
    let _encoded_and_decoded_at = answer.bytes(8)?;
    let uid = answer.u32()?;
    let _gid_and_restrictions = answer.bytes(12)?;
    let payload = answer.block()?.to_vec();
    if answer.is_at_end() { Ok(Decoded { uid, payload }) } else { Err(MungeError::Format) }
}

/// Sends a message of the first type and returns the body of the answer, which has the second.
async fn exchange(
    mut munged: LocalStream<'_>,
    [send, expect]: [u8; 2],
    body: &[u8],
) -> Result<Vec<u8>, MungeError> {
    let length = packed_length(body.len());
    munged.send(&[&MAGIC.to_be_bytes()[..], &[VERSION, send, 0], &length, body].concat()).await?;
    let header = munged.exactly(11).await?;
    let mut header = Unpack(&header);
    let (magic, version, kind, _retries) =
        (header.u32()?, header.u8()?, header.u8()?, header.u8()?);
    let length = header.u32()?;
    if (magic, version, kind) != (MAGIC, VERSION, expect) || length > MOST {
        return Err(MungeError::Format);
    }
    Ok(munged.exactly(usize::try_from(length).map_err(|_| MungeError::Format)?).await?)
}

/// Reads the error with which every answer begins; its number is 0 if there is none.
fn check(answer: &mut Unpack<'_>) -> Result<(), MungeError> {
    let number = answer.u8()?;
    let length = answer.u8()?.into();
    let text = answer.bytes(length)?;
    if number == 0 {
        return Ok(());
    }
    let text = String::from_utf8_lossy(text.strip_suffix(b"\0").unwrap_or(text))
        .escape_debug()
        .to_string();
    Err(MungeError::Refused { number, text })
}
