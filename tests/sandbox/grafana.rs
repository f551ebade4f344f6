//! A dashboard as Grafana reads it: panels, including those in collapsed rows, and targets with
//! their variables replaced.
//!
//! Grafana itself does not run here. Variables are handled as its documentation says: the values of
//! a query variable are what /metrics/find returns; "All" is the variable's `allValue`, or all its
//! values as `{a,b}`; and `$name`, `${name}` and `[[name]]` are replaced everywhere.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::GraphiteWeb;

/// A dashboard's JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct Dashboard {
    /// Its file's name without `.json`.
    pub name: String,
    /// The whole JSON.
    pub json: Value,
}

/// A panel that is not a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Its title.
    pub title: String,
    /// `timeseries`, `stat` …
    pub kind: String,
    /// Its targets, with variables.
    pub targets: Vec<String>,
    /// Its JSON.
    pub json: Value,
}

/// Variables and their values.
pub type Variables = BTreeMap<String, String>;

/// Variables with these values.
pub fn variables(values: &[(&str, &str)]) -> Variables {
    values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

impl Dashboard {
    /// Every dashboard of a folder, sorted by name.
    pub fn all(folder: &Path) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
            let file = entry?.path();
            if file.extension().is_some_and(|extension| extension == "json") {
                let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                let json =
                    serde_json::from_slice(&fs::read(&file)?).with_context(|| name.clone())?;
                all.push(Self { name, json });
            }
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        if all.is_empty() {
            bail!("no dashboard in {}", folder.display());
        }
        Ok(all)
    }

    /// All panels in reading order, without the rows that contain them.
    pub fn panels(&self) -> Vec<Panel> {
        let all = list(&self.json, "panels").flat_map(|outer| list(outer, "panels").chain([outer]));
        all.filter(|panel| !is_row(panel)).map(Panel::new).collect()
    }

    /// The panels that are not in collapsed rows.
    pub fn open_panels(&self) -> Vec<Panel> {
        list(&self.json, "panels").filter(|panel| !is_row(panel)).map(Panel::new).collect()
    }

    /// The names and targets of its annotations.
    pub fn annotations(&self) -> Vec<(String, String)> {
        let all = self.json.get("annotations").into_iter().flat_map(|all| list(all, "list"));
        let target = |one: &Value| Some((text(one, "name")?, text(one.get("target")?, "target")?));
        all.filter_map(target).collect()
    }

    /// The values of its variables when it is opened over a graphite-web; those in `given` have the
    /// value given there.
    pub fn opened(&self, web: &GraphiteWeb, given: &[(&str, &str)]) -> Result<Variables> {
        self.variables(&variables(given), |query| web.find(query))
    }

    /// The values of its variables when it is opened over any server; those in `given` have the
    /// value there. `find` is the server's /metrics/find.
    pub fn variables(
        &self,
        given: &Variables,
        find: impl Fn(&str) -> Result<Vec<String>>,
    ) -> Result<Variables> {
        let mut found = Variables::new();
        for variable in self.json.get("templating").into_iter().flat_map(|all| list(all, "list")) {
            let name = text(variable, "name").context("a variable without a name")?;
            let kind = text(variable, "type").unwrap_or_default();
            let value = match (given.get(&name), kind.as_str()) {
                (Some(value), _) => value.clone(),
                (None, "datasource") => continue,
                (None, "custom") => {
                    let current =
                        variable.get("current").and_then(|current| text(current, "value"));
                    current.with_context(|| format!("{name} has no value"))?
                }
                (None, "query") if text(variable, "allValue").is_some() => {
                    text(variable, "allValue").unwrap_or_default()
                }
                (None, "query") => {
                    let query = replaced(&text(variable, "query").unwrap_or_default(), &found)?;
                    let mut values = find(&query)?;
                    values.sort();
                    values.dedup();
                    if values.len() == 1 {
                        values.concat()
                    } else {
                        format!("{{{}}}", values.join(","))
                    }
                }
                (None, other) => bail!("{name}: variables of type {other} are not known here"),
            };
            found.insert(name, value);
        }
        Ok(found)
    }
}

impl Panel {
    pub(crate) fn new(json: &Value) -> Self {
        Self {
            title: text(json, "title").unwrap_or_default(),
            kind: text(json, "type").unwrap_or_default(),
            targets: list(json, "targets").filter_map(|target| text(target, "target")).collect(),
            json: json.clone(),
        }
    }
}

fn is_row(panel: &Value) -> bool {
    panel.get("type").is_some_and(|kind| kind == "row")
}

/// A target or query with its variables replaced.
pub fn replaced(target: &str, variables: &Variables) -> Result<String> {
    let mut result = target.to_owned();
    for (name, value) in variables {
        for form in [format!("${{{name}}}"), format!("[[{name}]]")] {
            result = result.replace(&form, value);
        }
    }
    let mut parts = result.split('$');
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part
            .find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
            .unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        let value = variables
            .get(name)
            .with_context(|| format!("there is no variable ${name}, which {target} names"))?;
        result.push_str(value);
        result.push_str(rest);
    }
    Ok(result)
}

/// The elements of a list in a dashboard or in a part of one; none where there is no list.
pub fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}
