//! Log directories of pods and the legacy links to their files. Blocking.
//!
//! The runtime writes the files; `<pod>/<container>/<attempt>.log` is agreed with it.

use std::ffi::OsStr;
use std::path::Path;

use node_layout::paths::{container_logs, log_link_name, pod_logs_name, pod_of_logs};
use pod::PodIdentity;

use crate::directory::Directory;
use crate::error::NodeError;
use crate::opened_log::OpenedLog;
use crate::shared::Shared;

/// Log shippers that are not root read there.
pub(super) const MODE: u32 = 0o755;

const SUFFIX: &str = ".log";

/// Makes a pod's log directory, or finds it.
pub(super) fn make(node: &Shared, pod: &PodIdentity) -> Result<Directory, NodeError> {
    let all = Directory::open_or_make(&node.pod_logs_dir, MODE)?;
    all.make_child(&pod_logs_name(pod), MODE)
}

/// A pod's log directory, if there is one.
pub(super) fn find(node: &Shared, pod: &PodIdentity) -> Result<Option<Directory>, NodeError> {
    match Directory::open_if_there(&node.pod_logs_dir)? {
        Some(all) => all.child(&pod_logs_name(pod)),
        None => Ok(None),
    }
}

/// The log directory of a container, if there is one.
pub(super) fn of_container(
    node: &Shared,
    pod: &PodIdentity,
    container: &str,
) -> Result<Option<Directory>, NodeError> {
    match find(node, pod)? {
        Some(pod) => pod.child(container),
        None => Ok(None),
    }
}

pub(super) fn open(
    node: &Shared,
    pod: &PodIdentity,
    container: &str,
    attempt: u32,
) -> Result<Option<OpenedLog>, NodeError> {
    let Some(directory) = of_container(node, pod, container)? else {
        return Ok(None);
    };
    let name = file_name(attempt);
    match directory.open_file(&name)? {
        Some(file) => OpenedLog::new(file, directory.path().join(name)).map(Some),
        None => Ok(None),
    }
}

/// What the log of an attempt is called.
pub(super) fn file_name(attempt: u32) -> String {
    format!("{attempt}{SUFFIX}")
}

/// The attempt that a file is of: `3.log`, or `3.log.20261120-101500` once rotated.
fn attempt_of(name: &str) -> Option<u32> {
    let (attempt, rest) = name.split_once('.')?;
    let of_log = rest == "log" || rest.starts_with("log.");
    let decimal = !attempt.is_empty() && attempt.bytes().all(|byte| byte.is_ascii_digit());
    if of_log && decimal {
        attempt.parse().ok()
    } else {
        None
    }
}

pub(super) fn last_attempt(
    node: &Shared,
    pod: &PodIdentity,
    container: &str,
) -> Result<Option<u32>, NodeError> {
    let Some(directory) = of_container(node, pod, container)? else {
        return Ok(None);
    };
    Ok(directory
        .names()?
        .iter()
        .filter_map(|name| attempt_of(name))
        .max())
}

pub(super) fn link(
    node: &Shared,
    pod: &PodIdentity,
    container: &str,
    container_id: &str,
    attempt: u32,
) -> Result<(), NodeError> {
    let links = Directory::open_or_make(&node.log_links_dir, MODE)?;
    let target = container_logs(&node.pod_logs_dir, pod, container).join(file_name(attempt));
    let name = log_link_name(pod, container, container_id);
    if links.link_target(&name)?.as_deref() == Some(&target) {
        return Ok(());
    }
    links.replace_link(&name, &target)
}

pub(super) fn remove(
    node: &Shared,
    pod: &PodIdentity,
    container: &str,
    container_id: &str,
    attempt: u32,
) -> Result<(), NodeError> {
    if let Some(directory) = of_container(node, pod, container)? {
        for name in directory.names()? {
            if attempt_of(&name) == Some(attempt) {
                directory.remove_file(&name)?;
            }
        }
    }
    match Directory::open_if_there(&node.log_links_dir)? {
        Some(links) => links.remove_file(&log_link_name(pod, container, container_id)),
        None => Ok(()),
    }
}

pub(super) fn remove_all(node: &Shared, pod: &PodIdentity) -> Result<(), NodeError> {
    match Directory::open_if_there(&node.pod_logs_dir)? {
        Some(all) => all.remove_tree(&pod_logs_name(pod)),
        None => Ok(()),
    }
}

pub(super) fn list(node: &Shared) -> Result<Vec<PodIdentity>, NodeError> {
    let names =
        Directory::open_if_there(&node.pod_logs_dir)?.map_or(Ok(Vec::new()), |all| all.names())?;
    Ok(names.iter().filter_map(|name| pod_of_logs(name)).collect())
}

/// Removes links into the log directories whose log is gone; others are not ours.
pub(super) fn prune_links(node: &Shared) -> Result<(), NodeError> {
    let Some(links) = Directory::open_if_there(&node.log_links_dir)? else {
        return Ok(());
    };
    for name in links.names()? {
        let ours = name.ends_with(SUFFIX);
        let Some(target) = links.link_target(&name)?.filter(|_| ours) else {
            continue;
        };
        if target.starts_with(&node.pod_logs_dir) && is_gone(&target) {
            links.remove_file(&name)?;
        }
    }
    Ok(())
}

/// Whether nothing is left of a container's log. Its file may be away for a moment: it is
/// set aside before the runtime makes a new one.
fn is_gone(log: &Path) -> bool {
    let number = |name: Option<&OsStr>| attempt_of(name?.to_str()?);
    let files = match log.parent().map(std::fs::read_dir) {
        Some(Ok(files)) => files,
        Some(Err(error)) => return error.kind() == std::io::ErrorKind::NotFound,
        None => return true,
    };
    let sought = number(log.file_name());
    let mut files = files.flatten();
    !files.any(|file| number(Some(&file.file_name())) == sought)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_tells_its_attempt() {
        for (name, attempt) in [
            ("0.log", Some(0)),
            ("12.log", Some(12)),
            ("12.log.20261120-101500", Some(12)),
            ("12.log.20261120-101500.gz", Some(12)),
            ("12.logs", None),
            ("log", None),
            (".log", None),
            ("+1.log", None),
            ("x.log", None),
            ("99999999999.log", None),
        ] {
            assert_eq!(attempt_of(name), attempt, "{name}");
        }
    }
}
