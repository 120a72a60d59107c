//! Paths of the node as they are compared: absolute, and normalised without looking at
//! the file system.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest path that Linux takes (`PATH_MAX`, its NUL byte included).
const MAX_BYTES: usize = 4095;

/// The one link that every Linux distribution has: what is below it is compared as if
/// it were below `/run`.
const VAR_RUN: &str = "/var/run";

/// Why something is not a path of the node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodePathError {
    /// It is relative or empty.
    #[error("{0:?} is not an absolute path")]
    Relative(String),
    /// It has a `..`.
    #[error("{0:?} has a component '..'")]
    Backstep(String),
    /// The kernel would not take it.
    #[error("the path has a NUL byte or more than {MAX_BYTES} bytes")]
    Impossible,
}

/// An absolute path without `..`, empty components, `.` and a slash at its end.
///
/// `/var/run` counts as `/run` in comparisons, and is shown as it was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodePath(String);

impl NodePath {
    /// Normalises a path.
    ///
    /// # Errors
    /// When it is relative, has a `..`, or is no path at all.
    pub fn parse(text: &str) -> Result<NodePath, NodePathError> {
        if text.len() > MAX_BYTES || text.contains('\0') {
            return Err(NodePathError::Impossible);
        }
        if !text.starts_with('/') {
            return Err(NodePathError::Relative(text.to_owned()));
        }
        let mut path = String::with_capacity(text.len());
        for component in text.split('/') {
            match component {
                "" | "." => {}
                ".." => return Err(NodePathError::Backstep(text.to_owned())),
                component => {
                    path.push('/');
                    path.push_str(component);
                }
            }
        }
        if path.is_empty() {
            path.push('/');
        }
        Ok(NodePath(path))
    }

    /// `/`.
    #[must_use]
    pub fn root() -> NodePath {
        NodePath("/".to_owned())
    }

    /// The names on the way from `/` to it.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|component| !component.is_empty())
    }

    /// The normalised text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this path is `other` or lies below it.
    #[must_use]
    pub fn is_within(&self, other: &NodePath) -> bool {
        let (own_head, own_tail) = self.compared();
        let (head, tail) = other.compared();
        // Both heads are "" or "/run": the text after a common one decides.
        match (own_head, head) {
            _ if own_head == head => is_within(own_tail, tail),
            ("", "/run") => is_within(own_tail, &format!("{head}{tail}")),
            _ => is_within(&format!("{own_head}{own_tail}"), tail),
        }
    }

    /// The shortest ancestor of this path, or the path itself, that is `other`; `None`
    /// when it does not lie within `other`. It differs from `other` only where one of
    /// the two says `/var/run` and the other `/run`.
    #[must_use]
    pub fn ancestor(&self, other: &NodePath) -> Option<NodePath> {
        let ends = self.0.match_indices('/').map(|(at, _)| at.max(1));
        let mut candidates = ends
            .chain([self.0.len()])
            .map(|end| NodePath(self.0[..end].to_owned()));
        candidates.find(|path| path.is_within(other))
    }

    /// The directory that holds it; `None` for `/`.
    #[must_use]
    pub fn parent(&self) -> Option<NodePath> {
        let (parent, name) = self.0.rsplit_once('/')?;
        if name.is_empty() {
            return None;
        }
        let parent = if parent.is_empty() { "/" } else { parent };
        Some(NodePath(parent.to_owned()))
    }

    /// A head that `/var/run` is replaced by, and the rest as it is.
    fn compared(&self) -> (&str, &str) {
        match self.0.strip_prefix(VAR_RUN) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => ("/run", rest),
            _ => ("", &self.0),
        }
    }
}

fn is_within(path: &str, directory: &str) -> bool {
    if directory == "/" {
        return true;
    }
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl TryFrom<String> for NodePath {
    type Error = NodePathError;

    fn try_from(text: String) -> Result<NodePath, NodePathError> {
        NodePath::parse(&text)
    }
}

impl From<NodePath> for String {
    fn from(path: NodePath) -> String {
        path.0
    }
}

impl fmt::Display for NodePath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> NodePath {
        NodePath::parse(text).unwrap()
    }

    #[test]
    fn paths_are_normalised_without_the_file_system() {
        for (given, expected) in [
            ("/", "/"),
            ("//", "/"),
            ("/a/", "/a"),
            ("/./a//b/.", "/a/b"),
            ("/a..b/...", "/a..b/..."),
        ] {
            assert_eq!(path(given).as_str(), expected, "{given}");
        }
    }

    #[test]
    fn what_is_no_absolute_path_or_steps_back_is_refused() {
        let long = "/a".repeat(MAX_BYTES);
        for given in [
            "", "a", "./a", "a/../b", "/..", "/a/../b", "/a/..", "/a\0", &long,
        ] {
            assert!(NodePath::parse(given).is_err(), "{given:?}");
        }
    }

    #[test]
    fn a_path_is_within_itself_and_what_is_above_it_by_components() {
        for (inner, outer, expected) in [
            ("/a", "/", true),
            ("/", "/", true),
            ("/", "/a", false),
            ("/a", "/a", true),
            ("/a/b", "/a", true),
            ("/ab", "/a", false),
            ("/a", "/a/b", false),
            ("/var/run/x", "/run", true),
            ("/var/run/x", "/run/x", true),
            ("/run/x", "/var/run", true),
            ("/run/x", "/var/run/x/y", false),
            ("/var/run", "/run", true),
            ("/run", "/var/run", true),
            ("/var/run/x", "/var/run", true),
            ("/var/run/x", "/", true),
            ("/var/runx", "/run", false),
            ("/run/x", "/var", false),
        ] {
            assert_eq!(
                path(inner).is_within(&path(outer)),
                expected,
                "{inner} in {outer}"
            );
        }
    }

    #[test]
    fn the_ancestor_is_written_as_the_path_is() {
        for (inner, outer, expected) in [
            ("/a/b/c", "/a/b", Some("/a/b")),
            ("/a/b/c", "/", Some("/")),
            ("/a", "/a", Some("/a")),
            ("/", "/", Some("/")),
            ("/var/run/x/y", "/run/x", Some("/var/run/x")),
            ("/run/x/y", "/var/run", Some("/run")),
            ("/a", "/b", None),
        ] {
            let found = path(inner).ancestor(&path(outer));
            assert_eq!(
                found.as_ref().map(NodePath::as_str),
                expected,
                "{inner} in {outer}"
            );
        }
    }

    #[test]
    fn the_parent_of_the_root_is_nothing() {
        assert_eq!(path("/a/b").parent(), Some(path("/a")));
        assert_eq!(path("/a").parent(), Some(path("/")));
        assert_eq!(path("/").parent(), None);
    }
}
