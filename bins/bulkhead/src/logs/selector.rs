//! `-l`: pods by their labels, in the words of kubectl that compare for equality.

use std::collections::BTreeMap;
use std::str::FromStr;

/// All of these have to be true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Is { key: String, value: String },
    IsNot { key: String, value: String },
    Exists(String),
    ExistsNot(String),
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Selector, String> {
        let requirements = text.split(',').map(|part| requirement(part.trim()));
        requirements.collect::<Result<_, _>>().map(Selector)
    }
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let wrong = || {
        format!(
            "{text:?} is not a requirement like app=web, app!=web, app or !app, with commas between several"
        )
    };
    let word = |text: &str| {
        let text = text.trim();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        text.bytes().all(plain).then(|| text.to_owned())
    };
    let key = |text: &str| word(text).filter(|key| !key.is_empty());
    let found = if let Some((name, value)) = text.split_once("!=") {
        key(name)
            .zip(word(value))
            .map(|(key, value)| Requirement::IsNot { key, value })
    } else if let Some((name, value)) = text.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        key(name)
            .zip(word(value))
            .map(|(key, value)| Requirement::Is { key, value })
    } else if let Some(name) = text.strip_prefix('!') {
        key(name).map(Requirement::ExistsNot)
    } else {
        key(text).map(Requirement::Exists)
    };
    found.ok_or_else(wrong)
}

impl Selector {
    /// Whether these labels are meant.
    pub(crate) fn takes(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        let of = |key: &str| labels.and_then(|labels| labels.get(key));
        self.0.iter().all(|requirement| match requirement {
            Requirement::Is { key, value } => of(key) == Some(value),
            Requirement::IsNot { key, value } => of(key) != Some(value),
            Requirement::Exists(key) => of(key).is_some(),
            Requirement::ExistsNot(key) => of(key).is_none(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_compared_as_kubectl_does() {
        let labels: BTreeMap<String, String> = [("app", "web"), ("tier", "front"), ("empty", "")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        for (text, taken) in [
            ("app=web", true),
            ("app==web", true),
            ("app = web", true),
            ("app=web,tier=front", true),
            ("app=web,tier=back", false),
            ("app!=web", false),
            ("other!=web", true),
            ("app", true),
            ("other", false),
            ("!app", false),
            ("!other", true),
            ("empty=", true),
            ("other=", false),
        ] {
            let selector: Selector = text.parse().unwrap();
            assert_eq!(selector.takes(Some(&labels)), taken, "{text}");
        }
        assert!(!"app".parse::<Selector>().unwrap().takes(None));
    }

    #[test]
    fn what_is_no_requirement_is_refused() {
        for text in [
            "",
            ",",
            "=web",
            "app in (a, b)",
            "a=b=c",
            "!",
            "app>1",
            "a=b,",
        ] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }
}
