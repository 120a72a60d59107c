//! What errors show of a manifest: short, and without what a terminal would act on.

/// Most characters that are shown of a text.
const MAX_SHOWN_CHARS: usize = 128;

/// A text of the manifest for an error.
pub(crate) fn shown(text: &str) -> String {
    let kept: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    let rest = if kept.len() < text.len() { "..." } else { "" };
    format!("{}{rest}", kept.escape_debug())
}

/// What serde says of a value, without the value.
pub(crate) fn without_value(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(", expected ") {
        Some((found, expected)) if found.starts_with("invalid ") => {
            format!("expected {expected}")
        }
        _ => shown(&text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_bounded_and_escaped() {
        let long = "\u{e4}".repeat(1000);
        for (text, expected) in [
            ("a", "a".to_owned()),
            ("\u{1b}[2J\n", "\\u{1b}[2J\\n".to_owned()),
            (&long, "\u{e4}".repeat(128) + "..."),
        ] {
            assert_eq!(shown(text), expected);
        }
    }
}
