//! Carbon's configuration files, as Python's ConfigParser reads them.
//!
//! Sections keep their order, which decides which rule is the first; keys are in lower case; a line
//! that begins with a blank continues the value above it.

/// One section: its name, and its keys.
pub(super) struct IniSection {
    pub(super) name: String,
    keys: Vec<(String, String)>,
}

/// Parses a file into its sections, in their order. A line that is neither a section nor a key is
/// ignored, because Carbon itself reports a broken file.
pub(super) fn parse(text: &str) -> Vec<IniSection> {
    let mut sections: Vec<IniSection> = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.push(IniSection { name: name.to_owned(), keys: Vec::new() });
            continue;
        }
        let Some(section) = sections.last_mut() else { continue };
        if line.starts_with(char::is_whitespace)
            && let Some((_, value)) = section.keys.last_mut()
        {
            value.push('\n');
            value.push_str(trimmed);
        } else if let Some((key, value)) = trimmed.split_once(['=', ':']) {
            section.keys.push((key.trim().to_lowercase(), value.trim().to_owned()));
        }
    }
    sections
}

/// The sections of every carbon-cache in the text of carbon.conf.
pub(super) fn caches(text: &str) -> Vec<IniSection> {
    let mut sections = parse(text);
    sections.retain(|section| section.name.starts_with("cache"));
    sections
}

impl IniSection {
    /// The value of `key`, which is in lower case. If there are several, the last one counts, as in
    /// Python.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.keys.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_carbon_takes_for_a_key_is_one_and_a_comment_is_none() {
        let text = "# [not]\nlost = 1\n[cache]\nMAX_CREATES_PER_MINUTE = 50\n; MAX = 2\n\
            USER:carbon\nlong = a,\n  b\n\n[x y]\n";
        let sections = parse(text);
        let [cache, odd] = &sections[..] else { panic!("two sections") };
        assert_eq!((cache.name.as_str(), odd.name.as_str()), ("cache", "x y"));
        assert_eq!(cache.get("max_creates_per_minute"), Some("50"));
        assert_eq!(cache.get("user"), Some("carbon"));
        assert_eq!(cache.get("long"), Some("a,\nb"));
        assert_eq!((cache.get("max"), cache.get("lost"), odd.get("user")), (None, None, None));
    }
}
