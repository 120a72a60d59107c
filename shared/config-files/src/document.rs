//! Reading a configuration file: bounded, from a regular file, YAML or JSON.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

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
    /// It is neither YAML nor JSON.
    #[error("{path} is neither YAML nor JSON", path = path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: Box<serde_saphyr::Error>,
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
    // YAML 1.1 as the kubelet reads it; JSON is a part of it.
    let mut options = serde_saphyr::Options::default();
    options.legacy_octal_numbers = true;
    options.with_snippet = false;
    let value = serde_saphyr::from_str_with_options(text, options);
    let value: Value = value.map_err(|source| DocumentError::Syntax {
        path: path.to_owned(),
        source: Box::new(source),
    })?;
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
