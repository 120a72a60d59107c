//! What is copied from where to where, as it is typed. Pure.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Of this machine.
    Here(PathBuf),
    /// Of a container.
    Pod { pod: String, path: String },
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let is_path = text.starts_with(['/', '.']);
        match text.split_once(':').filter(|_| !is_path) {
            Some((pod, path)) if !pod.is_empty() && !path.is_empty() => Ok(Place::Pod {
                pod: pod.to_owned(),
                path: path.to_owned(),
            }),
            None if !text.is_empty() => Ok(Place::Here(text.into())),
            _ => Err(format!("{text:?} is neither a path nor POD:PATH")),
        }
    }
}

/// The directory of a container that something is in, and its name there: `.` for the
/// directory itself.
pub(crate) fn parent_and_name(path: &str) -> (&str, &str) {
    let path = path.trim_end_matches('/');
    let (parent, name) = match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((parent, name)) => (parent, name),
        None if path.is_empty() => ("/", ""),
        None => (".", path),
    };
    match name {
        "" | "." => (parent, "."),
        // The parent of a directory that is elsewhere.
        ".." => (path, "."),
        name => (parent, name),
    }
}

/// Where something of this name comes to be on this machine: into a directory that is there,
/// else under the name that was given.
pub(crate) fn destination(to: &Path, name: &str) -> PathBuf {
    match to.is_dir() && name != "." {
        true => to.join(name),
        false => to.to_owned(),
    }
}

/// The name of a file of this machine, as it gets it in a container.
pub(crate) fn name_of(path: &Path) -> Option<OsString> {
    let whole = path.canonicalize().ok()?;
    whole.file_name().map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_path_or_of_a_pod() {
        let here = |path: &str| Some(Place::Here(path.into()));
        let of = |pod: &str, path: &str| {
            Some(Place::Pod {
                pod: pod.to_owned(),
                path: path.to_owned(),
            })
        };
        for (text, expected) in [
            ("a", here("a")),
            ("/a:b", here("/a:b")),
            ("./a:b", here("./a:b")),
            ("web:/a", of("web", "/a")),
            ("ns/web:a/b:c", of("ns/web", "a/b:c")),
            ("web:", None),
            (":/a", None),
            ("", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
    }

    #[test]
    fn a_path_has_a_parent_and_a_name() {
        for (path, expected) in [
            ("/etc/hosts", ("/etc", "hosts")),
            ("/etc/", ("/", "etc")),
            ("/", ("/", ".")),
            ("hosts", (".", "hosts")),
            ("a/b", ("a", "b")),
            (".", (".", ".")),
            ("/a/.", ("/a", ".")),
            ("/a/..", ("/a/..", ".")),
            ("..", ("..", ".")),
            ("-x", (".", "-x")),
        ] {
            assert_eq!(parent_and_name(path), expected, "{path}");
        }
    }
}
