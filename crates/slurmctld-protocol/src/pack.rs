//! Slurm's packing: big-endian numbers, and arrays and texts after their length.
//!
//! A length is compared with the bytes that are there before anything is allocated.

/// The bytes end too early, or a length in them is longer than they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short;

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unpack<'a>(pub(crate) &'a [u8]);

impl<'a> Unpack<'a> {
    /// The next `count` bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Short> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Short> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Short)?;
        self.0 = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Short> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Short> {
        self.array().map(i64::from_be_bytes)
    }

    /// Reads a count, and as many elements, of which the first `most` are kept.
    pub(crate) fn list<T>(
        &mut self,
        most: usize,
        each: fn(&mut Self) -> Result<T, Short>,
    ) -> Result<Vec<T>, Short> {
        let count = usize::try_from(self.u32()?).map_err(|_| Short)?;
        // Each element has at least one byte.
        if count > self.0.len() {
            return Err(Short);
        }
        let mut kept = Vec::with_capacity(count.min(most));
        for index in 0..count {
            let element = each(self)?;
            if index < most {
                kept.push(element);
            }
        }
        Ok(kept)
    }

    /// A length, and as many bytes.
    pub(crate) fn block(&mut self) -> Result<&'a [u8], Short> {
        let length = usize::try_from(self.u32()?).map_err(|_| Short)?;
        self.bytes(length)
    }

    /// A text, without the NUL that its length includes; one that is NULL in slurmctld is empty.
    pub(crate) fn text(&mut self) -> Result<String, Short> {
        let bytes = self.block()?;
        Ok(String::from_utf8_lossy(bytes.strip_suffix(b"\0").unwrap_or(bytes)).into_owned())
    }

    /// Whether everything was read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }
}

/// A text as Slurm packs it: its length with the NUL, the text, the NUL.
pub(crate) fn packed_text(text: &[u8]) -> Vec<u8> {
    [&packed_length(text.len().saturating_add(1))[..], text, &[0]].concat()
}

/// Returns a length as Slurm packs it.
pub(crate) fn packed_length(length: usize) -> [u8; 4] {
    // No message of this reader is that long.
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}
