//! Rules between two markers, in a file that otherwise belongs to the site.
//!
//! Pure: bytes in, bytes out. Carbon reads the file with Python's ConfigParser: it does not start if two sections have the same
//! name, and an indented line continues the value above it, also across comments and empty lines.

/// How the lines above and below a block begin. Behind it is the block's name.
const BEGIN: &str = "# BEGIN slurm-graphite carbon-rules";
const END: &str = "# END slurm-graphite carbon-rules";

/// One block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// What distinguishes it from other blocks of the file: the prefix, where the rules depend on it.
    name: String,
    /// With both markers, and with the end of the last line.
    pub(crate) text: String,
}

/// Why a file cannot be edited, with the number of the line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BlockError {
    #[error(
        "line {0}: a block of slurm-graphite begins here and has no END line; remove what is left of it by hand"
    )]
    NoEnd(usize),
    #[error(
        "line {0}: a block of slurm-graphite ends here and has no BEGIN line; remove what is left of it by hand"
    )]
    NoBegin(usize),
    #[error(
        "line {0}: [{1}] is also in the block, and Carbon does not start if a section occurs twice; remove it by hand"
    )]
    Twice(usize, String),
    #[error(
        "line {0}: below the block, this line would belong to the block's last rule; begin the site's rules with a [section] in the first \
         column"
    )]
    NoSection(usize),
}

/// Whether a file has the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Absent,
    Same,
    /// One with other rules, or several.
    Other,
}

/// Consecutive lines: a block, or the site's.
struct Part<'a> {
    /// The block's; `None`: the site's lines.
    block: Option<&'a [u8]>,
    lines: Vec<&'a [u8]>,
    /// The number of the first line.
    from: usize,
}

enum Marker<'a> {
    Begin(&'a [u8]),
    End(&'a [u8]),
}

impl Block {
    pub(super) fn new(name: &str, rules: &str) -> Self {
        let of = |marker: &str| format!("{marker} {name}").trim_end().to_owned();
        Self { name: name.to_owned(), text: format!("{}\n{}\n{}\n", of(BEGIN), rules.trim(), of(END)) }
    }

    /// The only block of a file of ours.
    pub(super) fn shipped(file: &str) -> Self {
        let name = file.lines().next().and_then(|line| line.strip_prefix(BEGIN)).unwrap_or_default();
        Self { name: name.trim().to_owned(), text: file.to_owned() }
    }

    /// The file with this block instead of the one with its name: above all rules of the site, and otherwise unchanged.
    pub(crate) fn put_into(&self, file: &[u8]) -> Result<Vec<u8>, BlockError> {
        let parts = parts(file)?;
        for part in parts.iter().filter(|part| !self.is(part)) {
            part.check(self)?;
        }
        let end: &[u8] = if parts.first().is_some_and(Part::has_crlf) { b"\r\n" } else { b"\n" };
        let own: Vec<u8> = self.text.lines().flat_map(|line| [line.as_bytes(), end].concat()).collect();
        // With a block for each of several prefixes, each stays where it is.
        let place = parts.iter().take_while(|part| !part.has_site_rules()).position(|part| self.is(part));
        let mut new = Vec::new();
        if place.is_none() {
            new.extend_from_slice(&own);
            new.extend_from_slice(if parts.is_empty() { b"" } else { end });
        }
        for (index, part) in parts.iter().enumerate() {
            if Some(index) == place {
                new.extend_from_slice(&own);
            } else if !self.is(part) {
                new.extend(part.lines.concat());
            }
        }
        Ok(new)
    }

    /// Whether the file has this block.
    pub(crate) fn find_in(&self, file: &[u8]) -> Result<Found, BlockError> {
        let parts = parts(file)?;
        let own: Vec<&Part<'_>> = parts.iter().filter(|part| self.is(part)).collect();
        Ok(match own[..] {
            [] => Found::Absent,
            [one]
                if one
                    .lines
                    .iter()
                    .map(|line| line.trim_ascii_end())
                    .eq(self.text.lines().map(str::as_bytes)) =>
            {
                Found::Same
            }
            _ => Found::Other,
        })
    }

    fn is(&self, part: &Part<'_>) -> bool {
        part.block == Some(self.name.as_bytes())
    }
}

impl<'a> Part<'a> {
    /// Lines that are neither empty nor comments, with their numbers.
    fn significant(&self) -> impl Iterator<Item = (usize, &'a [u8])> {
        let is_comment = |line: &[u8]| matches!(line.trim_ascii().first(), None | Some(b'#' | b';'));
        (self.from..).zip(self.lines.iter().copied()).filter(move |(_, line)| !is_comment(line))
    }

    fn has_site_rules(&self) -> bool {
        self.block.is_none() && self.significant().next().is_some()
    }

    fn has_crlf(&self) -> bool {
        self.lines.first().is_some_and(|line| line.ends_with(b"\r\n"))
    }

    /// Whether it can be below `block`.
    fn check(&self, block: &Block) -> Result<(), BlockError> {
        if let Some((number, line)) = self.significant().next()
            && !line.starts_with(b"[")
        {
            return Err(BlockError::NoSection(number));
        }
        for (number, line) in self.significant() {
            let line = line.trim_ascii();
            if line.starts_with(b"[") && block.text.lines().any(|own| own.as_bytes() == line) {
                let name = String::from_utf8_lossy(line).trim_matches(['[', ']']).to_owned();
                return Err(BlockError::Twice(number, name));
            }
        }
        Ok(())
    }
}

fn parts(file: &[u8]) -> Result<Vec<Part<'_>>, BlockError> {
    let mut parts: Vec<Part<'_>> = Vec::new();
    let mut open = None;
    for (number, line) in (1..).zip(file.split_inclusive(|byte| *byte == b'\n')) {
        let marker = marker(line);
        match (&marker, open) {
            (Some(Marker::Begin(_)), Some((_, from))) => return Err(BlockError::NoEnd(from)),
            (Some(Marker::Begin(name)), None) => open = Some((*name, number)),
            (Some(Marker::End(name)), Some((begun, _))) if *name == begun => {}
            (Some(Marker::End(_)), _) => return Err(BlockError::NoBegin(number)),
            (None, _) => {}
        }
        let block = open.map(|(name, _)| name);
        match parts.last_mut() {
            Some(part) if part.block == block && !matches!(marker, Some(Marker::Begin(_))) => {
                part.lines.push(line)
            }
            _ => parts.push(Part { block, lines: vec![line], from: number }),
        }
        if matches!(marker, Some(Marker::End(_))) {
            open = None;
        }
    }
    match open {
        Some((_, from)) => Err(BlockError::NoEnd(from)),
        None => Ok(parts),
    }
}

fn marker(line: &[u8]) -> Option<Marker<'_>> {
    let line = line.trim_ascii();
    let name = |marker: &str| line.strip_prefix(marker.as_bytes()).map(<[u8]>::trim_ascii);
    name(BEGIN).map(Marker::Begin).or_else(|| name(END).map(Marker::End))
}

#[cfg(test)]
#[path = "../../../tests/inside/carbon_block.rs"]
mod tests;
