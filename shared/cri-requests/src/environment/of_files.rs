//! Variables from files of volumes (`fileKeyRef`). Reading the files is `node-host`'s work.

use std::collections::{BTreeMap, BTreeSet};

use pod::core::{Container, FileKeySelector};

use super::env_file::parse;
use crate::error::BuildError;
use crate::expansion::MAX_EXPANDED_BYTES;

/// Most bytes of such a file: as many as all variables of a container may have.
pub const MAX_ENV_FILE_BYTES: usize = MAX_EXPANDED_BYTES;

/// A file of a volume that variables come from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvFile {
    /// The volume's name.
    pub volume: String,
    /// The path below the volume.
    pub path: String,
}

/// Files of volumes as they are now; `None` for one that is not there.
pub type EnvFiles = BTreeMap<EnvFile, Option<EnvFileContent>>;

/// The variables in such a file, or what is wrong with it. It is read once, however many
/// variables of the container come from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvFileContent(Result<BTreeMap<String, String>, String>);

impl From<Vec<u8>> for EnvFileContent {
    fn from(bytes: Vec<u8>) -> EnvFileContent {
        EnvFileContent(variables_in(&bytes))
    }
}

/// The files that variables of a container come from.
pub fn env_files(container: &Container) -> BTreeSet<EnvFile> {
    let variables = container.env.iter().flatten();
    let sources = variables.filter_map(|variable| variable.value_from.as_ref());
    let selectors = sources.filter_map(|source| source.file_key_ref.as_ref());
    selectors.map(file_of).collect()
}

fn file_of(selector: &FileKeySelector) -> EnvFile {
    EnvFile {
        volume: selector.volume_name.clone(),
        path: selector.path.clone(),
    }
}

/// The value of a variable; `None` if it is optional and not there. As for a kubelet, an
/// empty value is none.
pub(super) fn value(
    files: &EnvFiles,
    selector: &FileKeySelector,
    field: &str,
) -> Result<Option<String>, BuildError> {
    let FileKeySelector {
        key,
        optional,
        path,
        volume_name,
    } = selector;
    let Some(content) = files.get(&file_of(selector)) else {
        let reason = format!("cannot find the volume {volume_name:?} referenced by FileKeyRef");
        return Err(BuildError::invalid(field, reason));
    };
    let value = match content {
        Some(EnvFileContent(Ok(variables))) => variables.get(key),
        Some(EnvFileContent(Err(reason))) => {
            let reason = format!("couldn't parse env file {path:?}: {reason}");
            return Err(BuildError::invalid(field, reason));
        }
        None => None,
    };
    let value = value.filter(|value| !value.is_empty());
    if value.is_none() && *optional != Some(true) {
        let reason = format!("environment variable key {key:?} not found in file {path:?}");
        return Err(BuildError::invalid(field, reason));
    }
    Ok(value.cloned())
}

fn variables_in(content: &[u8]) -> Result<BTreeMap<String, String>, String> {
    let text = str::from_utf8(content).map_err(|_| "it is not UTF-8".to_owned())?;
    let variables = parse(text);
    let variables = variables.map_err(|error| format!("line {}: {}", error.line, error.reason))?;
    let owned = variables.into_iter();
    let owned = owned.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(owned.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(content: Option<&str>, optional: Option<bool>) -> Result<Option<String>, String> {
        let selector = FileKeySelector {
            key: "K".to_owned(),
            optional,
            path: "d/env".to_owned(),
            volume_name: "v".to_owned(),
        };
        let content = content.map(|text| text.as_bytes().to_vec().into());
        let files = EnvFiles::from([(file_of(&selector), content)]);
        value(&files, &selector, "f").map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_that_is_not_there_is_an_error_unless_it_is_optional() {
        let missing = "f: environment variable key \"K\" not found in file \"d/env\"";
        for content in [None, Some(""), Some("L='1'"), Some("K=''")] {
            assert_eq!(of(content, None), Err(missing.to_owned()), "{content:?}");
            assert_eq!(of(content, Some(false)), Err(missing.to_owned()));
            assert_eq!(of(content, Some(true)), Ok(None), "{content:?}");
        }
        let found = of(Some("L='1'\nK='2'"), None);
        assert_eq!(found, Ok(Some("2".to_owned())));
    }

    /// Each file is read for its container once: 1,000 readings of 1 MiB took a minute.
    #[test]
    fn all_variables_of_a_file_come_from_one_reading() {
        let selector = |key: String| FileKeySelector {
            key,
            path: "env".to_owned(),
            volume_name: "v".to_owned(),
            ..FileKeySelector::default()
        };
        let names: Vec<String> = (0..1000).map(|number| format!("K{number}")).collect();
        let variables = names.iter().map(|name| {
            serde_json::json!({"name": name, "valueFrom": {"fileKeyRef":
                {"key": name, "path": "env", "volumeName": "v"}}})
        });
        let variables: Vec<_> = variables.collect();
        let container = serde_json::json!({"name": "c", "env": variables});
        let wanted = env_files(&serde_json::from_value(container).unwrap());
        assert_eq!(wanted.len(), 1);
        let text: String = names
            .iter()
            .map(|name| format!("{name}='{name}'\n"))
            .collect();
        let read = EnvFileContent::from(text.into_bytes());
        let files: EnvFiles = wanted
            .into_iter()
            .map(|it| (it, Some(read.clone())))
            .collect();
        for name in names {
            let found = value(&files, &selector(name.clone()), "f").unwrap();
            assert_eq!(found, Some(name));
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_even_if_the_key_is_optional() {
        let error = of(Some("K='1'\nx"), Some(true)).unwrap_err();
        let expected = "f: couldn't parse env file \"d/env\": line 2: there is no '='";
        assert_eq!(error, expected);
        let selector = FileKeySelector {
            volume_name: "none".to_owned(),
            ..FileKeySelector::default()
        };
        let error = value(&EnvFiles::new(), &selector, "f").unwrap_err();
        let expected = "f: cannot find the volume \"none\" referenced by FileKeyRef";
        assert_eq!(error.to_string(), expected);
    }
}
