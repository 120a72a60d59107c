//! Bytes of a file to untyped values: YAML as the kubelet reads it, or JSON, several
//! documents a file. What is wrong is said with its line, for people.
//!
//! Everything here is bounded, because anybody who may write a manifest may try
//! to exhaust us: size, depth, number of values, aliases. Of a key that is given twice
//! neither value wins: it is a fault.

mod content;
mod json;
mod words;
mod yaml;

pub use content::{
    Documents, MAX_DEPTH, MAX_DOCUMENTS, MAX_MANIFEST_BYTES, MAX_VALUES, RepeatedKey,
};

/// Reads a manifest: JSON if it begins with `{`, as for a kubelet, else YAML.
///
/// # Errors
/// What keeps it from being read.
pub fn parse(bytes: &[u8]) -> Result<Documents, String> {
    let text = text(bytes)?;
    let start = text.trim_start();
    if start.starts_with("{{") {
        return Err(
            "it begins with {{: is it a template that was not filled in? A manifest is YAML or \
             JSON"
                .to_owned(),
        );
    }
    if !start.starts_with('{') {
        return yaml::parse(text);
    }
    json::parse(text).map_err(|problem| match problem {
        json::Problem::Bound(problem) => problem,
        json::Problem::Syntax(problem) => {
            let advice = match yaml::parse(text) {
                Ok(_) => ": to have it read as YAML, put a line --- above it",
                Err(_) => "",
            };
            format!(
                "it begins with {{ and so is read as JSON, but is not valid JSON: \
                 {problem}{advice}"
            )
        }
    })
}

/// Reads a text as YAML, of which JSON is a part.
///
/// # Errors
/// What keeps it from being read.
pub fn parse_yaml(bytes: &[u8]) -> Result<Documents, String> {
    yaml::parse(text(bytes)?)
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        let length = bytes.len();
        return Err(format!(
            "manifest has {length} bytes, more than {MAX_MANIFEST_BYTES}"
        ));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        format!("line {line}: not UTF-8: {error}")
    })
}

#[cfg(test)]
mod tests;
