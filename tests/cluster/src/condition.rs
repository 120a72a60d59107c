//! Conditions of objects.

use serde_json::Value;

/// The status of a condition; empty without one.
#[must_use]
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let mut conditions = object["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let found = conditions.find(|condition| condition["type"] == kind);
    found
        .and_then(|it| it["status"].as_str())
        .unwrap_or_default()
}
