//! What a program is asked and what it may answer: `CredentialProviderRequest` and
//! `CredentialProviderResponse` of credentialprovider.kubelet.k8s.io/v1. No error shows
//! anything of an answer.

use std::collections::BTreeMap;
use std::time::Duration;

use clock::parse_go_duration;
use pull_credentials::Keyring;
use serde::Deserialize;
use serde_json::json;

const API_VERSION: &str = "credentialprovider.kubelet.k8s.io/v1";

/// Largest answer; a token of a cloud has some KiB.
pub(crate) const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Longest name of a user and longest password.
pub(crate) const MAX_CREDENTIAL_BYTES: usize = 16 << 10;

/// What an answer counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Scope {
    /// The image that was asked for.
    Image,
    /// All images of its registry.
    Registry,
    /// All images.
    Global,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) keyring: Keyring,
    pub(crate) scope: Scope,
    /// How long it counts; zero: for this question only.
    pub(crate) lasts: Duration,
    /// How large it was.
    pub(crate) bytes: usize,
}

/// Why an answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerError {
    /// It is no JSON, or has fields of another form.
    #[error("its answer is no CredentialProviderResponse (line {line}, column {column})")]
    Format {
        /// Counted from 1.
        line: usize,
        /// Counted from 1; 0 at the beginning of a line.
        column: usize,
    },
    /// It says that it is something else.
    #[error("its answer has another {field} than {expected}")]
    Kind {
        /// `kind` or `apiVersion`.
        field: &'static str,
        /// What it should say.
        expected: &'static str,
    },
    /// A field has a value that it cannot have.
    #[error("its answer has a wrong {field}: {expected}")]
    Value {
        /// Which.
        field: &'static str,
        /// What it should say.
        expected: &'static str,
    },
}

/// Other fields are left alone, as a kubelet does.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    cache_key_type: String,
    cache_duration: Option<String>,
    auth: Option<BTreeMap<String, User>>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

/// What a program reads from its standard input.
pub(crate) fn request(repository: &str) -> Vec<u8> {
    let request = json!({
        "kind": "CredentialProviderRequest",
        "apiVersion": API_VERSION,
        "image": repository,
    });
    request.to_string().into_bytes()
}

/// What a program wrote to its standard output. `default` is how long an answer counts
/// that does not say so.
pub(crate) fn answer(bytes: &[u8], default: Duration) -> Result<Answer, AnswerError> {
    let response: Response =
        serde_json::from_slice(bytes).map_err(|error| AnswerError::Format {
            line: error.line(),
            column: error.column(),
        })?;
    for (field, found, expected) in [
        ("kind", &response.kind, "CredentialProviderResponse"),
        ("apiVersion", &response.api_version, API_VERSION),
    ] {
        if found != expected {
            return Err(AnswerError::Kind { field, expected });
        }
    }
    let wrong = |field, expected| AnswerError::Value { field, expected };
    let scope = match response.cache_key_type.as_str() {
        "Image" => Scope::Image,
        "Registry" => Scope::Registry,
        "Global" => Scope::Global,
        _ => return Err(wrong("cacheKeyType", "Image, Registry or Global")),
    };
    let lasts = match response.cache_duration.as_deref().map(parse_go_duration) {
        None => default,
        Some(Ok(duration)) => duration,
        Some(Err(_)) => return Err(wrong("cacheDuration", "a duration like 12h")),
    };
    let users = response.auth.unwrap_or_default();
    let too_long = |user: &User| {
        user.username.len() > MAX_CREDENTIAL_BYTES || user.password.len() > MAX_CREDENTIAL_BYTES
    };
    if users.values().any(too_long) {
        return Err(wrong("auth", "users and passwords of at most 16 KiB"));
    }
    let users = users.into_iter();
    let keyring = users.map(|(registry, user)| (registry, user.username, user.password));
    Ok(Answer {
        keyring: Keyring::of_users(keyring),
        scope,
        lasts,
        bytes: bytes.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn read(fields: &str) -> Result<Answer, AnswerError> {
        let text = format!(
            r#"{{"kind":"CredentialProviderResponse","apiVersion":"{API_VERSION}",{fields}}}"#
        );
        answer(text.as_bytes(), HOUR)
    }

    #[test]
    fn a_question_names_the_image() {
        let asked: serde_json::Value = serde_json::from_slice(&request("a.io/web")).unwrap();
        let expected = json!({"kind": "CredentialProviderRequest", "image": "a.io/web",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1"});
        assert_eq!(asked, expected);
    }

    #[test]
    fn an_answer_says_for_what_and_how_long_it_counts() {
        for (fields, scope, lasts, credentials) in [
            (r#""cacheKeyType":"Image""#, Scope::Image, HOUR, 0),
            (
                r#""cacheKeyType":"Registry","cacheDuration":"5m","auth":null"#,
                Scope::Registry,
                Duration::from_secs(300),
                0,
            ),
            (
                r#""cacheKeyType":"Global","cacheDuration":"0s","other":1,
                   "auth":{"a.io":{"username":"u","password":"p"},"no registry":{}}"#,
                Scope::Global,
                Duration::ZERO,
                1,
            ),
        ] {
            let found = read(fields).unwrap();
            assert_eq!((found.scope, found.lasts), (scope, lasts), "{fields}");
            assert_eq!(found.keyring.lookup("a.io/web").len(), credentials);
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_any_value() {
        let long = "x".repeat(MAX_CREDENTIAL_BYTES + 1);
        let long = format!(r#""cacheKeyType":"Image","auth":{{"a.io":{{"password":"{long}"}}}}"#);
        for (fields, expected) in [
            (
                r#""cacheKeyType":"hunter2""#,
                "its answer has a wrong cacheKeyType: Image, Registry or Global",
            ),
            (
                r#""cacheKeyType":"Image","cacheDuration":"hunter2""#,
                "its answer has a wrong cacheDuration: a duration like 12h",
            ),
            (
                r#""cacheKeyType":"Image","cacheDuration":"-1s""#,
                "its answer has a wrong cacheDuration: a duration like 12h",
            ),
            (
                r#""cacheKeyType":"Image","kind":"x""#,
                "its answer is no CredentialProviderResponse (line 1, column 118)",
            ),
            (
                &long,
                "its answer has a wrong auth: users and passwords of at most 16 KiB",
            ),
        ] {
            assert_eq!(read(fields).unwrap_err().to_string(), expected);
        }
        for (text, expected) in [
            (
                "",
                "its answer is no CredentialProviderResponse (line 1, column 0)",
            ),
            (
                r#"{"auth":"hunter2"}"#,
                "its answer is no CredentialProviderResponse (line 1, column 17)",
            ),
            (
                r#"{"kind":"hunter2"}"#,
                "its answer has another kind than CredentialProviderResponse",
            ),
            (
                r#"{"kind":"CredentialProviderResponse"}"#,
                "its answer has another apiVersion than credentialprovider.kubelet.k8s.io/v1",
            ),
        ] {
            let refused = answer(text.as_bytes(), HOUR).unwrap_err();
            assert_eq!(refused.to_string(), expected);
        }
    }
}
