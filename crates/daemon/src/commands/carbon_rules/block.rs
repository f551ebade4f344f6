//! Rules between two markers, in a file that otherwise belongs to the site.
//!
//! Pure: bytes in, bytes out. Carbon reads the file with Python's ConfigParser: it does not start
//! if two sections have the same name, and an indented line continues the value above it, also
//! across comments and empty lines.

/// Beginning of the line above a block. The block's name follows.
const BEGIN: &str = "# BEGIN slurm-graphite carbon-rules";
/// Beginning of the line below a block. The block's name follows.
const END: &str = "# END slurm-graphite carbon-rules";

/// A block of rules, with the marker lines around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Name that distinguishes the block from others of the same file: the prefix, or nothing if
    /// the rules are the same for every prefix.
    name: String,
    /// The block with both markers, and with the end of the last line.
    pub(crate) text: String,
}

/// A reason why a file cannot be edited, with the number of the line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BlockError {
    #[error(
        "line {0}: a block of slurm-graphite begins here and has no END line; remove what is left \
            of it by hand"
    )]
    NoEnd(usize),
    #[error(
        "line {0}: a block of slurm-graphite ends here and has no BEGIN line; remove what is left \
            of it by hand"
    )]
    NoBegin(usize),
    #[error(
        "line {0}: {1} is also in the block, and Carbon does not start if a section occurs twice; \
            remove it by hand"
    )]
    Twice(usize, String),
    #[error(
        "line {0}: below the block, this line would belong to the block's last rule; begin the \
         site's rules with a [section] in the first column"
    )]
    NoSection(usize),
}

/// A line of a file of Carbon's, with its end.
struct Line<'a> {
    number: usize,
    text: &'a [u8],
    /// Name of the block that the line is in, and the number of that block's first line. `None`:
    /// the line is the site's own.
    block: Option<(&'a [u8], usize)>,
}

impl Block {
    pub(super) fn new(name: &str, rules: &str) -> Self {
        let marker_line = |marker: &str| format!("{marker} {name}").trim_end().to_owned();
        Self {
            name: name.to_owned(),
            text: format!("{}\n{}\n{}\n", marker_line(BEGIN), rules.trim(), marker_line(END)),
        }
    }

    /// Makes a block of the text of a shipped file, `file`, which has the markers already. The
    /// block has no name.
    pub(super) fn shipped(file: &str) -> Self {
        Self { name: String::new(), text: file.to_owned() }
    }

    /// Returns the file with this block in place of the one with its name. The block is above all
    /// rules of the site, and the rest of the file is unchanged.
    pub(crate) fn put_into(&self, file: &[u8]) -> Result<Vec<u8>, BlockError> {
        let lines = lines(file)?;
        let parts: Vec<&[Line<'_>]> =
            lines.chunk_by(|line, next| line.block == next.block).collect();
        parts.iter().filter(|part| !self.is(part)).try_for_each(|part| self.check(part))?;
        let has_crlf = lines.first().is_some_and(|line| line.text.ends_with(b"\r\n"));
        let end: &[u8] = if has_crlf { b"\r\n" } else { b"\n" };
        let own: Vec<u8> =
            self.text.lines().flat_map(|line| [line.as_bytes(), end].concat()).collect();
        let is_site = |part: &[Line<'_>]| {
            part.iter().any(|line| line.block.is_none() && line.is_significant())
        };
        // With a block for each of several prefixes, each stays where it is.
        let place = parts.iter().take_while(|part| !is_site(part)).position(|part| self.is(part));
        let mut new = Vec::new();
        if place.is_none() {
            new.extend_from_slice(&own);
            new.extend_from_slice(if parts.is_empty() { b"" } else { end });
        }
        for (index, part) in parts.iter().enumerate() {
            if Some(index) == place {
                new.extend_from_slice(&own);
            } else if !self.is(part) {
                new.extend(part.iter().flat_map(|line| line.text));
            }
        }
        Ok(new)
    }

    /// Whether the file has a block of this name with other rules, or has several blocks of this
    /// name.
    pub(crate) fn is_outdated_in(&self, file: &[u8]) -> Result<bool, BlockError> {
        let mut lines = lines(file)?;
        lines.retain(|line| self.is(std::slice::from_ref(line)));
        let found = lines.iter().map(|line| line.text.trim_ascii_end());
        Ok(!lines.is_empty() && !found.eq(self.text.lines().map(str::as_bytes)))
    }

    fn is(&self, part: &[Line<'_>]) -> bool {
        part.first()
            .and_then(|line| line.block)
            .is_some_and(|(name, _)| name == self.name.as_bytes())
    }

    /// Checks that these lines can be below this block: they begin with a section, and no section
    /// of the block is among them.
    fn check(&self, part: &[Line<'_>]) -> Result<(), BlockError> {
        let mut significant = part.iter().filter(|line| line.is_significant()).peekable();
        if let Some(first) = significant.next_if(|first| !first.text.starts_with(b"[")) {
            return Err(BlockError::NoSection(first.number));
        }
        let is_own_section = |line: &[u8]| {
            line.starts_with(b"[") && self.text.lines().any(|own| own.as_bytes() == line)
        };
        match significant.find(|line| is_own_section(line.text.trim_ascii())) {
            Some(line) => {
                let name = String::from_utf8_lossy(line.text.trim_ascii());
                Err(BlockError::Twice(line.number, name.into_owned()))
            }
            None => Ok(()),
        }
    }
}

impl Line<'_> {
    /// Whether it is neither empty nor a comment.
    fn is_significant(&self) -> bool {
        !matches!(self.text.trim_ascii().first(), None | Some(b'#' | b';'))
    }
}

/// Whether the file has a block of this command, for whichever prefix.
pub(super) fn has_one(file: &[u8]) -> bool {
    lines(file).is_ok_and(|lines| lines.iter().any(|line| line.block.is_some()))
}

fn lines(file: &[u8]) -> Result<Vec<Line<'_>>, BlockError> {
    let mut lines = Vec::new();
    let mut block = None;
    for (number, text) in (1..).zip(file.split_inclusive(|byte| *byte == b'\n')) {
        let named =
            |marker: &str| Some(text.trim_ascii().strip_prefix(marker.as_bytes())?.trim_ascii());
        let end = named(END);
        match (named(BEGIN), block) {
            (Some(_), Some((_, from))) => return Err(BlockError::NoEnd(from)),
            (Some(name), None) => block = Some((name, number)),
            (None, _) if end.is_some() && end != block.map(|(name, _)| name) => {
                return Err(BlockError::NoBegin(number));
            }
            _ => {}
        }
        lines.push(Line { number, text, block });
        block = block.filter(|_| end.is_none());
    }
    match block {
        Some((_, from)) => Err(BlockError::NoEnd(from)),
        None => Ok(lines),
    }
}

#[cfg(test)]
mod tests;
