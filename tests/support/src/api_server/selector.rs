//! Field selectors. Pure.

use serde_json::Value;

/// Of which objects a list or watch is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Selector(Vec<Term>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    pointer: String,
    value: String,
    is_equal: bool,
}

impl Selector {
    /// Reads `a.b=c,d!=e`.
    pub(super) fn parse(text: &str) -> Selector {
        let terms = text.split(',').filter_map(|term| {
            let (field, value) = term.split_once('=')?;
            let (field, is_equal) = match field.strip_suffix('!') {
                Some(field) => (field, false),
                None => (field, true),
            };
            Some(Term {
                pointer: format!("/{}", field.replace('.', "/")),
                value: value.trim_start_matches('=').to_owned(),
                is_equal,
            })
        });
        Selector(terms.collect())
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| {
            let found = object.pointer(&term.pointer).and_then(Value::as_str);
            (found.unwrap_or_default() == term.value) == term.is_equal
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_selected_by_their_fields() {
        let object = json!({"spec": {"nodeName": "n"}, "metadata": {"name": "a"}});
        for (text, expected) in [
            ("", true),
            ("spec.nodeName=n", true),
            ("spec.nodeName=n,metadata.name=b", false),
            ("spec.clusterIP!=None", true),
            ("metadata.name!=a", false),
        ] {
            assert_eq!(Selector::parse(text).matches(&object), expected, "{text}");
        }
    }
}
