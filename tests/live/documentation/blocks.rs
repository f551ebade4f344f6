//! The fenced blocks of Markdown files, with their languages and positions.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The text between two fences.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// `README.md:12`, for messages.
    pub(crate) place: String,
    /// What follows the first fence; empty if nothing does.
    pub(crate) language: String,
    pub(crate) text: String,
}

/// The top of the repository.
pub(crate) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// README.md and docs/*.md: name and text.
pub(crate) fn documents() -> Result<Vec<(String, String)>> {
    let mut names = vec!["README.md".to_owned()];
    for entry in fs::read_dir(top().join("docs"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            names.push(format!("docs/{name}"));
        }
    }
    names.sort();
    names
        .into_iter()
        .map(|name| Ok((name.clone(), fs::read_to_string(top().join(&name)).context(name)?)))
        .collect()
}

/// Every block of every document, in order.
pub(crate) fn all() -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    for (name, text) in documents()? {
        let mut open: Option<Block> = None;
        for (number, line) in (1..).zip(text.lines()) {
            match (line.trim_start().strip_prefix("```"), open.take()) {
                (Some(language), None) => {
                    let language = language.trim().to_owned();
                    open = Some(Block { place: format!("{name}:{number}"), language, text: String::new() });
                }
                (Some(_), Some(block)) => blocks.push(block),
                (None, Some(mut block)) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                    open = Some(block);
                }
                (None, None) => {}
            }
        }
        ensure!(open.is_none(), "{name}: a fence without its end");
    }
    Ok(blocks)
}
