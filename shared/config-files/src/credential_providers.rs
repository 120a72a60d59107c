//! `CredentialProviderConfig` (kubelet.config.k8s.io/v1): the programs that are asked for
//! credentials of registries. Every field is supported or refused, and checked as a
//! kubelet checks it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use node_config::CredentialProvider;
use pull_credentials::ImagePattern;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::document::{self, ConfigFileError, Kind};
use crate::kubelet::GoDuration;

const KIND: Kind = Kind {
    api_version: "kubelet.config.k8s.io/v1",
    kind: "CredentialProviderConfig",
};

/// What a program is asked and answers in.
const API_VERSION: &str = "credentialprovider.kubelet.k8s.io/v1";

/// Most programs: a node has one for each kind of registry.
const MAX_PROVIDERS: usize = 32;

/// Longest name of a file.
const MAX_NAME_BYTES: usize = 255;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    providers: Vec<ProviderFields>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProviderFields {
    #[serde(default)]
    name: String,
    #[serde(default)]
    match_images: Vec<String>,
    default_cache_duration: Option<GoDuration>,
    #[serde(default)]
    api_version: String,
    args: Option<Vec<String>>,
    env: Option<Vec<Variable>>,
    token_attributes: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    value: String,
}

/// Reads the file.
///
/// # Errors
/// When it cannot be read, or a field is unknown or wrong.
pub fn read(path: &Path) -> Result<Vec<CredentialProvider>, ConfigFileError> {
    of_object(path, document::read(path, KIND)?)
}

/// The same from a text; `path` serves messages.
///
/// # Errors
/// As [`read`].
pub fn parse(path: &Path, text: &str) -> Result<Vec<CredentialProvider>, ConfigFileError> {
    of_object(path, document::parse(path, text, KIND)?)
}

fn of_object(
    path: &Path,
    object: Map<String, Value>,
) -> Result<Vec<CredentialProvider>, ConfigFileError> {
    let refused = |(field, reason)| ConfigFileError::Value {
        path: path.to_owned(),
        field,
        reason,
    };
    // Arguments and values of variables may be secret.
    let is_secret = |field: &str| field.contains(".args") || field.contains(".env");
    let file: File = document::typed(object, is_secret).map_err(refused)?;
    checked(file.providers).map_err(refused)
}

type Fault = (String, String);

fn checked(providers: Vec<ProviderFields>) -> Result<Vec<CredentialProvider>, Fault> {
    let whole = |reason: String| ("providers".to_owned(), reason);
    match providers.len() {
        0 => return Err(whole("at least one is required".to_owned())),
        count if count > MAX_PROVIDERS => {
            let reason = format!("{count} are more than {MAX_PROVIDERS}");
            return Err(whole(reason));
        }
        _ => {}
    }
    let mut names = BTreeSet::new();
    let mut all = Vec::new();
    for (index, provider) in providers.into_iter().enumerate() {
        let at = |(field, reason): (&str, String)| (format!("providers[{index}].{field}"), reason);
        let provider = one(provider).map_err(at)?;
        if !names.insert(provider.name.clone()) {
            let reason = format!("{:?} is there twice", provider.name);
            return Err(at(("name", reason)));
        }
        all.push(provider);
    }
    Ok(all)
}

fn one(fields: ProviderFields) -> Result<CredentialProvider, (&'static str, String)> {
    let ProviderFields {
        name,
        match_images,
        default_cache_duration,
        api_version,
        args,
        env,
        token_attributes,
    } = fields;
    check_name(&name).map_err(|reason| ("name", reason))?;
    if api_version != API_VERSION {
        let reason = format!("{api_version:?} is not {API_VERSION}");
        return Err(("apiVersion", reason));
    }
    if match_images.is_empty() {
        return Err(("matchImages", "at least one is required".to_owned()));
    }
    for pattern in &match_images {
        ImagePattern::parse(pattern)
            .map_err(|reason| ("matchImages", format!("{pattern:?}: {reason}")))?;
    }
    let Some(GoDuration(default_cache_duration)) = default_cache_duration else {
        return Err(("defaultCacheDuration", "it is required".to_owned()));
    };
    if token_attributes.is_some() {
        let reason = "tokens of service accounts come from an API server, and there is no \
                      connection to one yet";
        return Err(("tokenAttributes", reason.to_owned()));
    }
    let args = args.unwrap_or_default();
    if args.iter().any(|arg| arg.contains('\0')) {
        return Err(("args", "one has a NUL in it".to_owned()));
    }
    let mut variables = BTreeMap::new();
    for Variable { name, value } in env.unwrap_or_default() {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let reason = "a name is empty or has a `=` in it, or there is a NUL";
            return Err(("env", reason.to_owned()));
        }
        // As for a kubelet, the last one counts.
        variables.insert(name, value);
    }
    Ok(CredentialProvider {
        name,
        match_images,
        default_cache_duration,
        args,
        env: variables,
    })
}

/// It is the name of a file in the directory.
fn check_name(name: &str) -> Result<(), String> {
    match name {
        "" => Err("it is required".to_owned()),
        "." | ".." => Err(format!("{name:?} is no program")),
        _ if name.contains(['/', ' ', '\0']) => {
            Err(format!("{name:?} has a `/`, a space or a NUL in it"))
        }
        _ if name.len() > MAX_NAME_BYTES => Err("it is too long for a file".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const GOOD: &str = r#"{"name":"ecr","matchImages":["*.ecr.example.com"],
        "defaultCacheDuration":"12h","apiVersion":"credentialprovider.kubelet.k8s.io/v1"}"#;

    fn read_providers(providers: &str) -> Result<Vec<CredentialProvider>, String> {
        let text = format!(
            r#"{{"apiVersion":"kubelet.config.k8s.io/v1","kind":"CredentialProviderConfig",
                "providers":{providers}}}"#
        );
        parse(Path::new("/c"), &text).map_err(|error| error.to_string())
    }

    /// The good one with other fields.
    fn with(fields: &str) -> String {
        let mut provider: Value = serde_json::from_str(GOOD).unwrap();
        let fields: Map<String, Value> = serde_json::from_str(fields).unwrap();
        for (name, value) in fields {
            match value {
                Value::Null => provider.as_object_mut().unwrap().remove(&name),
                value => provider.as_object_mut().unwrap().insert(name, value),
            };
        }
        format!("[{provider}]")
    }

    #[test]
    fn every_field_is_read() {
        let fields =
            r#"{"args":["get"],"env":[{"name":"A","value":"1"},{"name":"A","value":"2"}]}"#;
        let found = read_providers(&with(fields)).unwrap();
        let expected = CredentialProvider {
            name: "ecr".to_owned(),
            match_images: vec!["*.ecr.example.com".to_owned()],
            default_cache_duration: Duration::from_secs(12 * 3600),
            args: vec!["get".to_owned()],
            env: [("A".to_owned(), "2".to_owned())].into(),
        };
        assert_eq!(found, [expected]);
    }

    #[test]
    fn what_a_kubelet_refuses_is_refused_with_its_path() {
        for (providers, expected) in [
            ("[]".to_owned(), "providers: at least one is required"),
            (with(r#"{"name":""}"#), "providers[0].name: it is required"),
            (
                with(r#"{"name":".."}"#),
                "providers[0].name: \"..\" is no program",
            ),
            (
                with(r#"{"name":"a/b"}"#),
                "providers[0].name: \"a/b\" has a `/`, a space or a NUL in it",
            ),
            (
                format!("[{GOOD},{GOOD}]"),
                "providers[1].name: \"ecr\" is there twice",
            ),
            (
                with(r#"{"apiVersion":"v1"}"#),
                "providers[0].apiVersion: \"v1\" is not credentialprovider.kubelet.k8s.io/v1",
            ),
            (
                with(r#"{"matchImages":[]}"#),
                "providers[0].matchImages: at least one is required",
            ),
            (
                with(r#"{"matchImages":["a b"]}"#),
                "providers[0].matchImages: \"a b\": it is no registry's name",
            ),
            (
                with(r#"{"defaultCacheDuration":null}"#),
                "providers[0].defaultCacheDuration: it is required",
            ),
            (
                with(r#"{"defaultCacheDuration":"-1s"}"#),
                "providers[0].defaultCacheDuration: \"-1s\" is negative",
            ),
            (
                with(r#"{"tokenAttributes":{}}"#),
                "providers[0].tokenAttributes: tokens of service accounts come from an API \
                 server, and there is no connection to one yet",
            ),
            (
                with(r#"{"env":[{"name":"A","value":["hunter2"]}]}"#),
                "providers[0].env[0].value: expected a text",
            ),
        ] {
            let refused = read_providers(&providers).unwrap_err();
            assert_eq!(refused, format!("/c: {expected}"));
        }
        let unknown = read_providers(&with(r#"{"color":"red"}"#)).unwrap_err();
        assert!(unknown.contains("unknown field `color`"), "{unknown}");
    }

    #[test]
    fn more_than_32_programs_are_refused() {
        let providers = |count: usize| {
            let numbers = 0..count;
            let one = |number| GOOD.replace("\"ecr\"", &format!("\"{number}\""));
            let all: Vec<String> = numbers.map(one).collect();
            read_providers(&format!("[{}]", all.join(",")))
        };
        assert_eq!(providers(32).unwrap().len(), 32);
        let refused = providers(33).unwrap_err();
        assert_eq!(refused, "/c: providers: 33 are more than 32");
    }
}
