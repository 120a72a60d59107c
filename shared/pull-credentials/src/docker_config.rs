//! The format of Docker's `config.json`, as far as it is about credentials. No error shows
//! a value.

use std::collections::BTreeMap;

use pod::ByteString;
use serde::Deserialize;
use serde_json::Value;

use crate::credential::Credential;
use crate::registry::Registry;

/// Longest part of a name that is shown.
const MAX_SHOWN_CHARS: usize = 128;

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// It is no JSON, or has something else where credentials are.
    #[error("line {line}, column {column}: this is no configuration of Docker")]
    Format {
        /// Counted from 1.
        line: usize,
        /// Counted from 1; 0 at the beginning of a line.
        column: usize,
    },
    /// The name of an entry cannot be matched.
    #[error("auths[{key}]: {problem}")]
    Registry {
        /// The name, without what may be a password.
        key: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The credential of an entry cannot be read.
    #[error("auths[{key}]: auth: expected `USER:PASSWORD` in base64")]
    Auth {
        /// The name of the entry.
        key: String,
    },
}

/// All other fields of the file are about Docker itself.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigFile {
    auths: Option<Auths>,
}

type Auths = BTreeMap<String, Entry>;

/// All other fields tell nothing that lets pull (`email`).
#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

/// An entry of a configuration, or why its name is none of a registry.
pub(crate) type Found = Result<(Registry, Credential), CredentialsError>;

/// What is in a `config.json`.
pub(crate) fn of_config(bytes: &[u8]) -> Result<Vec<Found>, CredentialsError> {
    let config: ConfigFile = serde_json::from_slice(bytes).map_err(|error| malformed(&error))?;
    found(config.auths.unwrap_or_default())
}

/// What is in a file of Docker's older format (`.dockercfg`), which has nothing but entries.
pub(crate) fn of_entries(bytes: &[u8]) -> Result<Vec<Found>, CredentialsError> {
    let auths: Auths = serde_json::from_slice(bytes).map_err(|error| malformed(&error))?;
    found(auths)
}

/// Its own words would show what is there instead.
fn malformed(error: &serde_json::Error) -> CredentialsError {
    CredentialsError::Format {
        line: error.line(),
        column: error.column(),
    }
}

fn found(auths: Auths) -> Result<Vec<Found>, CredentialsError> {
    let mut all = Vec::new();
    for (key, entry) in auths {
        // Docker leaves an empty one where a program keeps the password.
        let Some(credential) = entry.credential(&key)? else {
            continue;
        };
        let registry = Registry::parse(&key).map_err(|problem| CredentialsError::Registry {
            key: shown(&key),
            problem,
        });
        all.push(registry.map(|registry| (registry, credential)));
    }
    Ok(all)
}

/// A name for errors. What is before an `@` may be a password.
fn shown(key: &str) -> String {
    let key = key.rsplit_once('@').map_or(key, |(_, key)| key);
    key.chars().take(MAX_SHOWN_CHARS).collect()
}

impl Entry {
    fn credential(self, key: &str) -> Result<Option<Credential>, CredentialsError> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        if let Some(token) = given(self.identitytoken) {
            return Ok(Some(Credential::IdentityToken(token)));
        }
        let (username, password) = match given(self.auth) {
            Some(auth) => {
                user_and_password(&auth).ok_or(CredentialsError::Auth { key: shown(key) })?
            }
            None => (
                self.username.unwrap_or_default(),
                self.password.unwrap_or_default(),
            ),
        };
        let is_empty = username.is_empty() && password.is_empty();
        Ok((!is_empty).then_some(Credential::Password { username, password }))
    }
}

/// With or without the padding of base64.
fn user_and_password(auth: &str) -> Option<(String, String)> {
    let mut padded = auth.trim().to_owned();
    if !padded.ends_with('=') {
        padded.extend(std::iter::repeat_n('=', padded.len().wrapping_neg() % 4));
    }
    // The decoder of the API's own types.
    let ByteString(bytes) = serde_json::from_value(Value::String(padded)).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (username, password) = text.split_once(':')?;
    Some((username.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Credential>, CredentialsError> {
        let found = of_config(text.as_bytes())?.into_iter();
        found.map(|found| Ok(found?.1)).collect()
    }

    fn password(username: &str, password: &str) -> Credential {
        Credential::Password {
            username: username.to_owned(),
            password: password.to_owned(),
        }
    }

    #[test]
    fn every_form_of_a_credential_is_read() {
        for (entry, expected) in [
            // `u:p`, `user:pass:word`, with and without padding.
            (r#"{"auth":"dTpw"}"#, Some(password("u", "p"))),
            (
                r#"{"auth":"dXNlcjpwYXNzOndvcmQ="}"#,
                Some(password("user", "pass:word")),
            ),
            (
                r#"{"auth":"dXNlcjpwYXNzOndvcmQ"}"#,
                Some(password("user", "pass:word")),
            ),
            (r#"{"auth":" dTpw\n"}"#, Some(password("u", "p"))),
            (
                r#"{"username":"u","password":"p","email":"e"}"#,
                Some(password("u", "p")),
            ),
            (
                r#"{"auth":"dTpw","username":"other","password":"other"}"#,
                Some(password("u", "p")),
            ),
            (
                r#"{"auth":"","username":"u","password":"p"}"#,
                Some(password("u", "p")),
            ),
            (
                r#"{"auth":"dTpw","identitytoken":"t"}"#,
                Some(Credential::IdentityToken("t".to_owned())),
            ),
            (r#"{"auth":null,"username":"u"}"#, Some(password("u", ""))),
            ("{}", None),
            (r#"{"email":"e"}"#, None),
        ] {
            let text =
                format!(r#"{{"auths":{{"a.io":{entry}}},"credsStore":"x","HttpHeaders":{{}}}}"#);
            let expected: Vec<_> = expected.into_iter().collect();
            assert_eq!(read(&text), Ok(expected), "{entry}");
        }
        for text in ["{}", r#"{"auths":null}"#, r#"{"auths":{}}"#] {
            assert_eq!(read(text), Ok(Vec::new()), "{text}");
        }
        let old = of_entries(br#"{"a.io":{"auth":"dTpw"}}"#).unwrap();
        assert_eq!(old[0].as_ref().unwrap().1, password("u", "p"));
    }

    #[test]
    fn what_is_wrong_is_said_without_any_value() {
        for (text, expected) in [
            ("", "line 1, column 0: this is no configuration of Docker"),
            (
                "{\n\"auths\": \"hunter2\"}",
                "line 2, column 18: this is no configuration of Docker",
            ),
            (
                r#"{"auths":{"a.io":{"password":[4711]}}}"#,
                "line 1, column 29: this is no configuration of Docker",
            ),
            // `hunter2`, without a colon.
            (
                r#"{"auths":{"a.io":{"auth":"aHVudGVyMg=="}}}"#,
                "auths[a.io]: auth: expected `USER:PASSWORD` in base64",
            ),
            (
                r#"{"auths":{"a.io":{"auth":"u:hunter2"}}}"#,
                "auths[a.io]: auth: expected `USER:PASSWORD` in base64",
            ),
            (
                r#"{"auths":{"user:hunter2@a.io":{"auth":"dTpw"}}}"#,
                "auths[a.io]: a registry's name has no user before it",
            ),
            (
                r#"{"auths":{"a[bc].io":{"auth":"dTpw"}}}"#,
                "auths[a[bc].io]: a registry's name has no other pattern than `*`",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.to_string(), expected);
            let debug = format!("{error:?}");
            assert!(
                !debug.contains("hunter2") && !debug.contains("4711"),
                "{debug}"
            );
        }
    }
}
