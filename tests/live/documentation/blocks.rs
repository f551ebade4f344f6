//! The fenced blocks of Markdown files, with their languages and positions.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// `README.md:12`, for messages.
    pub(crate) place: String,
    /// The word behind the first fence; empty if there is none.
    pub(crate) language: String,
    pub(crate) text: String,
}

pub(crate) fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The top's documents, and those in docs and every folder below it: name and text.
pub(crate) fn documents() -> Result<Vec<(String, String)>> {
    let (mut names, mut folders) = (Vec::new(), vec![String::new(), "docs/".to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(top().join(&folder))? {
            let entry = entry?;
            let name = folder.clone() + &entry.file_name().to_string_lossy();
            if name.ends_with(".md") {
                names.push(name);
            } else if !folder.is_empty() && entry.file_type()?.is_dir() {
                folders.push(name + "/");
            }
        }
    }
    names.sort();
    names
        .into_iter()
        .map(|name| Ok((name.clone(), fs::read_to_string(top().join(&name)).context(name)?)))
        .collect()
}

pub(crate) fn all() -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    for (name, text) in documents()? {
        let mut open: Option<Block> = None;
        for (number, line) in (1..).zip(text.lines()) {
            match (line.trim_start().strip_prefix("```"), open.take()) {
                (Some(language), None) => {
                    let language = language.trim().to_owned();
                    open = Some(Block {
                        place: format!("{name}:{number}"),
                        language,
                        text: String::new(),
                    });
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
