//! What no level gives, and no grant but one that names it.

use std::collections::BTreeMap;

use crate::path::{NodePath, NodePathError};

/// Directories that many programs share. A runtime's socket that lies in one of them
/// does not make all of it the runtime's.
const SHARED_DIRECTORIES: [&str; 5] = ["/", "/run", "/var", "/tmp", "/var/tmp"];

/// Paths, users and groups by which a pod could become the node agent or the container
/// runtime. `/proc`, `/dev` and all block devices are always among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protected {
    paths: BTreeMap<NodePath, String>,
    users: BTreeMap<u32, String>,
    groups: BTreeMap<u32, String>,
}

impl Default for Protected {
    fn default() -> Protected {
        let mut protected = Protected {
            paths: BTreeMap::new(),
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
        };
        for (path, what) in [
            ("/proc", "the node's /proc"),
            ("/dev", "the node's devices"),
        ] {
            let added = protected.add_path(path, what);
            debug_assert!(added.is_ok(), "{path}");
        }
        protected
    }
}

/// How a path lies to what is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing<'a> {
    /// It shares nothing with it.
    Apart,
    /// It is, or lies in, this protected path. Of several, the one that is above the
    /// others.
    Within(&'a NodePath, &'a str),
    /// This protected path lies below it.
    Above(&'a NodePath, &'a str),
}

impl Protected {
    /// Protects a path and all below it. `what` completes "it is ...".
    ///
    /// # Errors
    /// When it is not an absolute path without `..`.
    pub fn add_path(&mut self, path: &str, what: &str) -> Result<(), NodePathError> {
        self.paths.insert(NodePath::parse(path)?, what.to_owned());
        Ok(())
    }

    /// Protects the container runtime's socket, and the directory that holds it unless
    /// many programs share that (`/run`): the runtime keeps its other sockets beside it.
    ///
    /// # Errors
    /// As [`Protected::add_path`].
    pub fn add_runtime_socket(&mut self, socket: &str) -> Result<(), NodePathError> {
        let socket = NodePath::parse(socket)?;
        if let Some(directory) = socket.parent()
            && !is_shared(&directory)
        {
            let what = "the directory of the container runtime's socket".to_owned();
            self.paths.insert(directory, what);
        }
        let what = "the container runtime's socket".to_owned();
        self.paths.insert(socket, what);
        Ok(())
    }

    /// Protects a user. Root cannot be protected: most images run as root.
    pub fn add_user(&mut self, user: u32, what: &str) {
        if user != 0 {
            self.users.insert(user, what.to_owned());
        }
    }

    /// Protects a group, with the same exception.
    pub fn add_group(&mut self, group: u32, what: &str) {
        if group != 0 {
            self.groups.insert(group, what.to_owned());
        }
    }

    /// What a protected user is for.
    pub(crate) fn user(&self, user: i64) -> Option<&str> {
        let user = u32::try_from(user).ok()?;
        self.users.get(&user).map(String::as_str)
    }

    /// What a protected group is for.
    pub(crate) fn group(&self, group: i64) -> Option<&str> {
        let group = u32::try_from(group).ok()?;
        self.groups.get(&group).map(String::as_str)
    }

    pub(crate) fn standing(&self, path: &NodePath) -> Standing<'_> {
        let around = self.paths.iter().filter(|(known, _)| path.is_within(known));
        if let Some((known, what)) = around.min_by_key(|(known, _)| known.as_str().len()) {
            return Standing::Within(known, what);
        }
        let below = self.paths.iter().find(|(known, _)| known.is_within(path));
        match below {
            Some((known, what)) => Standing::Above(known, what),
            None => Standing::Apart,
        }
    }

    /// The numbers of protected groups.
    pub(crate) fn groups(&self) -> impl Iterator<Item = u32> {
        self.groups.keys().copied()
    }

    /// Protected paths with what they are, for people.
    pub fn paths(&self) -> impl Iterator<Item = (&str, &str)> {
        self.paths
            .iter()
            .map(|(path, what)| (path.as_str(), what.as_str()))
    }

    /// Protected users with what they are, for people.
    pub fn users(&self) -> impl Iterator<Item = (u32, &str)> {
        self.users.iter().map(|(user, what)| (*user, what.as_str()))
    }
}

fn is_shared(directory: &NodePath) -> bool {
    SHARED_DIRECTORIES.iter().any(|shared| {
        NodePath::parse(shared)
            .is_ok_and(|shared| shared.is_within(directory) && directory.is_within(&shared))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(protected: &Protected, path: &str) -> String {
        match protected.standing(&NodePath::parse(path).unwrap()) {
            Standing::Apart => "apart".to_owned(),
            Standing::Within(known, _) => format!("in {known}"),
            Standing::Above(known, _) => format!("above {known}"),
        }
    }

    #[test]
    fn a_path_is_in_or_above_what_is_protected_or_apart() {
        let mut protected = Protected::default();
        protected
            .add_runtime_socket("/run/containerd/containerd.sock")
            .unwrap();
        for (path, expected) in [
            ("/run/containerd/containerd.sock", "in /run/containerd"),
            (
                "/run/containerd/containerd.sock.ttrpc",
                "in /run/containerd",
            ),
            ("/var/run/containerd/containerd.sock", "in /run/containerd"),
            ("/run/containerd", "in /run/containerd"),
            ("/run", "above /run/containerd"),
            ("/var/run", "above /run/containerd"),
            ("/", "above /dev"),
            ("/run/other", "apart"),
            ("/devices", "apart"),
            ("/proc/1", "in /proc"),
        ] {
            assert_eq!(standing(&protected, path), expected, "{path}");
        }
    }

    #[test]
    fn a_socket_in_a_shared_directory_does_not_protect_the_directory() {
        for (socket, neighbour, expected) in [
            ("/run/crio.sock", "/run/other", "apart"),
            ("/var/run/crio.sock", "/run/other", "apart"),
            ("/run/crio/crio.sock", "/run/crio/other", "in /run/crio"),
            ("/crio.sock", "/etc", "apart"),
        ] {
            let mut protected = Protected::default();
            protected.add_runtime_socket(socket).unwrap();
            assert_eq!(standing(&protected, neighbour), expected, "{socket}");
            assert_eq!(
                standing(&protected, socket).split(' ').next(),
                Some("in"),
                "{socket}"
            );
        }
    }

    #[test]
    fn root_is_no_protected_user() {
        let mut protected = Protected::default();
        protected.add_user(0, "the pool");
        protected.add_group(0, "the pool");
        protected.add_user(100, "pleg");
        protected.add_group(200, "pleg");
        assert_eq!(protected.user(0), None);
        assert_eq!(protected.group(0), None);
        assert_eq!(protected.user(100), Some("pleg"));
        assert_eq!(protected.group(200), Some("pleg"));
        assert_eq!(protected.user(-1), None);
    }
}
