//! The query of a URL. Pure.

use percent_encoding::percent_decode_str;

/// Most parameters that are looked at: a command has some arguments.
const MAX_PARAMETERS: usize = 4096;

/// Names with their values, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// What cannot be decoded as UTF-8 is replaced.
    pub(crate) fn parse(text: Option<&str>) -> Query {
        let pairs = text.unwrap_or_default().split('&');
        let pairs = pairs.filter(|pair| !pair.is_empty()).take(MAX_PARAMETERS);
        Query(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decoded(name), decoded(value))
                })
                .collect(),
        )
    }

    /// The first value of a name.
    pub(crate) fn first(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// All values of a name.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.0.iter().filter(move |(found, _)| found == name);
        named.map(|(_, value)| value.as_str())
    }
}

fn decoded(text: &str) -> String {
    let text = text.replace('+', " ");
    percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_decoded() {
        let query = Query::parse(Some("command=ls&command=-l+%2Ftmp&x&tty=1&a%20b=c"));
        let command: Vec<&str> = query.all("command").collect();
        assert_eq!(command, ["ls", "-l /tmp"]);
        assert_eq!(
            (query.first("x"), query.first("a b")),
            (Some(""), Some("c"))
        );
        assert_eq!(query.first("y"), None);
        assert_eq!(Query::parse(None), Query::default());
    }
}
