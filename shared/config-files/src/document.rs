//! Reading a configuration file: bounded, from a regular file, YAML or JSON.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

/// Largest configuration file: the largest in use have some tens of KiB.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// `O_NONBLOCK`, so that opening a FIFO does not wait for a writer.
const OPEN_WITHOUT_WAITING: i32 = 0o4000;

/// Why a configuration file is no object of the kind that was asked for.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The file system refused.
    #[error("cannot read {path}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It is neither YAML nor JSON, or a key in it is given twice.
    #[error("{path}: {problem}", path = path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// It says that it is something else.
    #[error("{path}: {field} is {found}, expected {expected}", path = path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// `apiVersion` or `kind`.
        field: &'static str,
        /// What it says.
        found: String,
        /// What it should say.
        expected: &'static str,
    },
}

/// Why a configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFileError {
    /// It is not what it should be.
    #[error("a configuration file cannot be used")]
    Document(#[from] DocumentError),
    /// A field is unknown or has a value that it cannot have.
    #[error("{path}: {field}: {reason}", path = path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The path of the field.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Which kind of object a file must hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) api_version: &'static str,
    pub(crate) kind: &'static str,
}

/// Reads the one object in a file, without its `apiVersion` and `kind`.
pub(crate) fn read(path: &Path, kind: Kind) -> Result<Map<String, Value>, DocumentError> {
    let text = read_text(path).map_err(|source| DocumentError::Io {
        path: path.to_owned(),
        source,
    })?;
    parse(path, &text, kind)
}

/// The same for a text that came from `path`.
pub(crate) fn parse(
    path: &Path,
    text: &str,
    kind: Kind,
) -> Result<Map<String, Value>, DocumentError> {
    let refused = |problem| DocumentError::Syntax {
        path: path.to_owned(),
        problem,
    };
    let documents = documents::parse_yaml(text.as_bytes()).map_err(refused)?;
    if !documents.repeated_keys.is_empty() {
        let repeated = documents.repeated_keys.iter();
        let repeated: Vec<String> = repeated.map(ToString::to_string).collect();
        return Err(refused(repeated.join("; ")));
    }
    let value = match <[Value; 1]>::try_from(documents.values) {
        Ok([value]) => value,
        Err(none) if none.is_empty() => Value::Null,
        Err(several) => {
            let count = several.len();
            return Err(refused(format!("it has {count} documents, expected one")));
        }
    };
    let mut object = match value {
        Value::Object(object) => object,
        // An empty file, which says no kind either.
        _ => Map::new(),
    };
    for (field, expected) in [("apiVersion", kind.api_version), ("kind", kind.kind)] {
        let found = object.remove(field).unwrap_or(Value::Null);
        if found != expected {
            return Err(DocumentError::Kind {
                path: path.to_owned(),
                field,
                found: found.to_string(),
                expected,
            });
        }
    }
    Ok(object)
}

/// The fields of an object as a type.
///
/// # Errors
/// The path of a field and what is wrong with it. What a field has that `is_secret` is not
/// shown.
pub(crate) fn typed<Fields: DeserializeOwned>(
    object: Map<String, Value>,
    is_secret: impl FnOnce(&str) -> bool,
) -> Result<Fields, (String, String)> {
    let value = Value::Object(object);
    serde_path_to_error::deserialize(&value).map_err(|error| {
        let field = error.path().to_string();
        let found = error
            .path()
            .iter()
            .try_fold(&value, |value, segment| match segment {
                Segment::Seq { index } => value.get(index),
                Segment::Map { key } => value.get(key),
                Segment::Enum { .. } | Segment::Unknown => None,
            });
        let found = found.filter(|_| !is_secret(&field));
        let reason = value_errors::for_people(&error.inner().to_string(), found);
        (field, reason)
    })
}

fn read_text(path: &Path) -> io::Result<String> {
    let file: File = OpenOptions::new()
        .read(true)
        .custom_flags(OPEN_WITHOUT_WAITING)
        .open(path)?;
    if !file.metadata()?.is_file() {
        let error = "it is not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        let error = format!("it is larger than {MAX_FILE_BYTES} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
    }
    Ok(text)
}
