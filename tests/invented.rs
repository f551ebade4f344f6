//! For tests of readers: the figures of a reply in which a number has become unknown. None of them
//! may be 0 for that, and none may appear.

use serde_json::Value;

/// The places that are 0 in `after` and were not in `before`, and those that `before` lacks.
pub(crate) fn invented(before: &Value, after: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(before, after, "", &mut found);
    found
}

fn compare(before: &Value, after: &Value, place: &str, found: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in after {
                let old = before.get(name).unwrap_or(&Value::Null);
                compare(old, value, &format!("{place}/{name}"), found);
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            for (index, value) in after.iter().enumerate() {
                let old = before.get(index).unwrap_or(&Value::Null);
                compare(old, value, &format!("{place}/{index}"), found);
            }
        }
        (Value::Null, Value::Null) => {}
        (Value::Null, _) => found.push(format!("{place} appears: {after}")),
        (_, Value::Number(number)) if before != after && number.as_f64() == Some(0.0) => {
            found.push(format!("{place} is 0, and was {before}"));
        }
        _ => {}
    }
}
