//! Volumes of files that are all replaced at once: whoever reads them sees those of one
//! version, never some of the old and some of the new.
//!
//! ```text
//!   <volume>/password   -> ..data/password     a link for each file or directory at the top
//!   <volume>/..data     -> ..v2                 replaced by a rename: the swap
//!   <volume>/..v2/password                      the files of the present version
//! ```
//!
//! A new version is written beside the present one, `..data` is led to it, and the old one
//! goes. A kubelet writes the same, but for the name of the directory, so each takes over
//! what the other has written. Each look compares what is there with what is wanted, and
//! does what is left to do: a swap that was cut short at any point is completed by the next
//! look.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, fchown};
use std::path::{Path, PathBuf};

use nix::unistd::{getegid, geteuid};
use pod_volumes::{Files, VolumeFile};

use super::memory::{self, Content};
use crate::directory::Directory;
use crate::error::{IoContext as _, NodeError};

/// Of the volume's own directory, as with a kubelet. Containers can only read it.
const MODE: u32 = 0o777;

/// Of directories within a version.
const DIRECTORY_MODE: u32 = 0o755;

/// The link to the present version.
const DATA: &str = "..data";

/// What the names of versions begin with; a number follows.
const VERSION: &str = "..v";

/// The permissions among the bits of a mode.
const PERMISSIONS: u32 = 0o7777;

/// Brings a volume to these files and says where it is.
pub(super) fn write(
    kind: &Directory,
    name: &str,
    files: &Files,
    memory_bytes: u64,
) -> Result<PathBuf, NodeError> {
    if files.kind.is_in_memory() {
        let content = Content::Memory {
            bytes: memory_bytes,
        };
        memory::mount_on(kind, name, content, memory::Root::default())?;
    }
    let volume = kind.make_child(name, MODE)?;
    bring_to(&volume, files)?;
    Ok(kind.path().join(name))
}

fn bring_to(volume: &Directory, files: &Files) -> Result<(), NodeError> {
    let tree = Tree::of(files);
    let present = present_version(volume)?;
    let present = present.filter(|version| matches!(has(volume, version, &tree), Ok(true)));
    let version = match present {
        Some(version) => version,
        None => {
            let version = next_version(volume)?;
            tree.write_to(&volume.make_child(&version, DIRECTORY_MODE)?)?;
            volume.replace_link(DATA, Path::new(&version))?;
            version
        }
    };
    for name in tree.0.keys() {
        let target = Path::new(DATA).join(name);
        if volume.link_target(name)?.as_deref() != Some(&target) {
            volume.remove_tree(name)?;
            volume.replace_link(name, &target)?;
        }
    }
    for name in volume.names()? {
        if name != DATA && name != version && !tree.0.contains_key(name.as_str()) {
            volume.remove_tree(&name)?;
        }
    }
    Ok(())
}

/// The directory that `..data` leads to.
fn present_version(volume: &Directory) -> Result<Option<String>, NodeError> {
    let target = volume.link_target(DATA)?;
    let name = target.and_then(|target| target.into_os_string().into_string().ok());
    Ok(name.filter(|name| name.starts_with("..") && name != ".." && !name.contains('/')))
}

/// Whether a version has exactly these files.
fn has(volume: &Directory, version: &str, tree: &Tree<'_>) -> Result<bool, NodeError> {
    match volume.child(version)? {
        Some(version) => tree.is_in(&version),
        None => Ok(false),
    }
}

/// A name that no version has, nor what is left of one.
fn next_version(volume: &Directory) -> Result<String, NodeError> {
    let names = volume.names()?;
    let numbers = names.iter().filter_map(|name| name.strip_prefix(VERSION));
    let numbers = numbers.filter_map(|number| number.parse::<u64>().ok());
    let next = numbers.max().map_or(0, |last| last.wrapping_add(1));
    Ok(format!("{VERSION}{next}"))
}

/// Files by directory.
#[derive(Default)]
struct Tree<'a>(BTreeMap<&'a str, Node<'a>>);

enum Node<'a> {
    File(&'a VolumeFile),
    Directory(Tree<'a>),
}

impl<'a> Tree<'a> {
    /// No file has the path of a directory: who makes the files sees to that. If one had,
    /// it would give way.
    fn of(files: &'a Files) -> Tree<'a> {
        let mut tree = Tree::default();
        for (path, file) in &files.files {
            tree.insert(path, file);
        }
        tree
    }

    fn insert(&mut self, path: &'a str, file: &'a VolumeFile) {
        let Some((directory, rest)) = path.split_once('/') else {
            self.0.insert(path, Node::File(file));
            return;
        };
        let inner = self.0.entry(directory);
        let inner = inner.or_insert_with(|| Node::Directory(Tree::default()));
        if let Node::Directory(inner) = inner {
            inner.insert(rest, file);
        }
    }

    fn write_to(&self, directory: &Directory) -> Result<(), NodeError> {
        for (name, node) in &self.0 {
            match node {
                Node::Directory(inner) => {
                    inner.write_to(&directory.make_child(name, DIRECTORY_MODE)?)?;
                }
                Node::File(wanted) => write_file(directory, name, wanted)?,
            }
        }
        Ok(())
    }

    fn is_in(&self, directory: &Directory) -> Result<bool, NodeError> {
        let names = directory.names()?;
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        if !names.iter().eq(self.0.keys()) {
            return Ok(false);
        }
        for (name, node) in &self.0 {
            let is_there = match node {
                Node::Directory(inner) => match directory.child(name)? {
                    Some(directory) => inner.is_in(&directory)?,
                    None => false,
                },
                Node::File(wanted) => is_file(directory, name, wanted)?,
            };
            if !is_there {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn write_file(directory: &Directory, name: &str, wanted: &VolumeFile) -> Result<(), NodeError> {
    let path = directory.path().join(name);
    let mut file = directory.create_file(name, wanted.mode)?;
    if wanted.user.is_some() || wanted.group.is_some() {
        fchown(&file, wanted.user, wanted.group).context("change the owner of", &path)?;
    }
    let content = wanted.content.as_slice();
    file.write_all(content).context("write", &path)
}

fn is_file(directory: &Directory, name: &str, wanted: &VolumeFile) -> Result<bool, NodeError> {
    let Some(file) = directory.open_file(name)? else {
        return Ok(false);
    };
    let path = directory.path().join(name);
    let found = file.metadata().context("inspect", &path)?;
    let content = wanted.content.as_slice();
    let owner = wanted.user.unwrap_or_else(|| geteuid().as_raw());
    let group = wanted.group.unwrap_or_else(|| getegid().as_raw());
    let length = u64::try_from(content.len()).unwrap_or(u64::MAX);
    let is_owned = found.uid() == owner && found.gid() == group;
    if found.mode() & PERMISSIONS != wanted.mode || !is_owned || found.len() != length {
        return Ok(false);
    }
    let mut bytes = Vec::with_capacity(content.len());
    file.take(length.saturating_add(1))
        .read_to_end(&mut bytes)
        .context("read", &path)?;
    Ok(bytes == content)
}

#[cfg(test)]
mod tests;
