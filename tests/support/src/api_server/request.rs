//! What a request asks for. Pure.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::store::{Key, Refusal};

/// A request as it came.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: BTreeMap<String, String>,
    pub(super) content_type: String,
    pub(super) body: Vec<u8>,
}

/// What its path names: an object, or with an empty name all of a resource.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) key: Key,
    /// `status`, or nothing.
    pub(super) subresource: String,
}

impl Request {
    pub(super) fn new(
        method: &str,
        uri: (&str, &str),
        content_type: &str,
        body: Vec<u8>,
    ) -> Request {
        let (path, query) = uri;
        let query = query.split('&').filter_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            let value = percent_decode_str(value).decode_utf8_lossy();
            Some((key.to_owned(), value.into_owned()))
        });
        Request {
            method: method.to_owned(),
            path: path.to_owned(),
            query: query.collect(),
            content_type: content_type.to_owned(),
            body,
        }
    }

    /// A value of the query; empty without one.
    pub(super) fn asked(&self, key: &str) -> &str {
        self.query.get(key).map(String::as_str).unwrap_or_default()
    }

    pub(super) fn is_watch(&self) -> bool {
        self.method == "GET" && self.asked("watch") == "true"
    }

    /// The body as JSON; null without one.
    pub(super) fn json(&self) -> Result<Value, Refusal> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&self.body).map_err(|error| Refusal::bad_request(&error))
    }

    pub(super) fn target(&self) -> Result<Target, Refusal> {
        let not_found = || Refusal::not_found(&Key::new(&self.path, "", ""));
        let words: Vec<&str> = self.path.trim_matches('/').split('/').collect();
        let (["api", _, words @ ..] | ["apis", _, _, words @ ..]) = &*words else {
            return Err(not_found());
        };
        let (namespace, words) = match words {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            _ => ("", words),
        };
        let (resource, name, subresource) = match words {
            [resource] => (resource, "", ""),
            [resource, name] => (resource, *name, ""),
            [resource, name, subresource] => (resource, *name, *subresource),
            _ => return Err(not_found()),
        };
        Ok(Target {
            key: Key::new(resource, namespace, name),
            subresource: subresource.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_an_object() {
        let target = |path: &str| Request::new("GET", (path, ""), "", Vec::new()).target();
        for (path, key, subresource) in [
            ("/api/v1/pods", Key::new("pods", "", ""), ""),
            (
                "/api/v1/nodes/n/status",
                Key::new("nodes", "", "n"),
                "status",
            ),
            (
                "/api/v1/namespaces/d/pods/a",
                Key::new("pods", "d", "a"),
                "",
            ),
            (
                "/apis/coordination.k8s.io/v1/namespaces/k/leases/n",
                Key::new("leases", "k", "n"),
                "",
            ),
        ] {
            let expected = Target {
                key,
                subresource: subresource.to_owned(),
            };
            assert_eq!(target(path), Ok(expected));
        }
        assert!(target("/healthz").is_err());
    }
}
