//! A pod's directory: volumes, hosts file, termination messages. Blocking.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use node_layout::paths::{CONTAINERS, HOSTS_FILE, VOLUMES, pods};
use node_policy::HostPathRules;
use pod::Pod;
use pod::identity::{check_container_name, check_uid};

use pod_volumes::{MountedVolume, SubPath, Volume};

use crate::directory::Directory;
use crate::error::IoContext as _;
use crate::error::NodeError;
use crate::shared::Shared;
use crate::tree_size::BLOCK_BYTES;
use crate::volume::{self, MountTable, POD_DIRECTORY_MODE, Setting};

/// A pod's hosts file: all may read it.
const HOSTS_FILE_MODE: u32 = 0o644;
/// Whatever user the container runs as writes its message.
const TERMINATION_LOG_MODE: u32 = 0o666;

/// Makes a pod's directory with what belongs in it, or finds it.
pub(super) fn make(node: &Shared, pod_uid: &str) -> Result<Directory, NodeError> {
    let pods = Directory::open_or_make(&pods(&node.root_dir), POD_DIRECTORY_MODE)?;
    let pod = pods.make_child(pod_uid, POD_DIRECTORY_MODE)?;
    pod.make_child(VOLUMES, POD_DIRECTORY_MODE)?;
    pod.make_child(CONTAINERS, POD_DIRECTORY_MODE)?;
    Ok(pod)
}

/// The directory of all pods, if it has been made.
pub(super) fn all(node: &Shared) -> Result<Option<Directory>, NodeError> {
    Directory::open_if_there(&pods(&node.root_dir))
}

fn find(node: &Shared, pod_uid: &str) -> Result<Option<Directory>, NodeError> {
    match all(node)? {
        Some(pods) => pods.child(pod_uid),
        None => Ok(None),
    }
}

/// The UIDs that have directories.
pub(super) fn list(node: &Shared) -> Result<Vec<String>, NodeError> {
    let mut names = all(node)?.map_or(Ok(Vec::new()), |pods| pods.names())?;
    names.retain(|name| check_uid(name).is_ok());
    Ok(names)
}

pub(super) fn make_volumes(
    node: &Shared,
    pod_uid: &str,
    (pod, volumes): (&Pod, &[Volume]),
    memory_bytes: u64,
    host_paths: &HostPathRules,
) -> Result<BTreeMap<String, MountedVolume>, NodeError> {
    let directory = make(node, pod_uid)?;
    let setting = Setting {
        proc_dir: &node.system.proc_dir,
        memory_bytes,
        host_paths,
    };
    volume::make(&directory, pod, volumes, &setting)
}

pub(super) fn bind_sub_path(
    node: &Shared,
    pod_uid: &str,
    container: &str,
    sub_path: &SubPath,
) -> Result<PathBuf, NodeError> {
    let directory = make(node, pod_uid)?;
    volume::sub_path::bind(&directory, container, sub_path, &node.system.proc_dir)
}

pub(super) fn read_volume_file(
    node: &Shared,
    pod_uid: &str,
    (volume_path, path): (&Path, &str),
    limit: usize,
) -> Result<Option<Vec<u8>>, NodeError> {
    let directory = make(node, pod_uid)?;
    volume::sub_path::read(&directory, (volume_path, path), limit)
}

/// Of an evicted pod the hosts file would stay with all that containers wrote into it, as
/// long as its source has the pod.
pub(super) fn tear_down_volumes(node: &Shared, pod_uid: &str) -> Result<(), NodeError> {
    let Some(directory) = find(node, pod_uid)? else {
        return Ok(());
    };
    volume::tear_down(&directory, &MountTable::read(&node.system.proc_dir)?)?;
    directory.remove_file(HOSTS_FILE)
}

/// Removes a pod's directory, unless something that is not the pod's own is mounted in
/// it.
pub(super) fn remove(node: &Shared, pod_uid: &str) -> Result<(), NodeError> {
    let Some(pods) = all(node)? else {
        return Ok(());
    };
    let Some(directory) = pods.child(pod_uid)? else {
        return Ok(());
    };
    let mounts = MountTable::read(&node.system.proc_dir)?;
    // Mostly nothing: the volumes were taken down when the pod ended.
    if volume::check_nothing_mounted(&directory, &mounts).is_err() {
        volume::tear_down(&directory, &mounts)?;
        volume::check_nothing_mounted(&directory, &MountTable::read(&node.system.proc_dir)?)?;
    }
    drop(directory);
    pods.remove_tree(pod_uid)
}

/// Writes a pod's hosts file, unless it says the same already. One that is there is written
/// in place: a container that runs has it mounted. With another in its place that container
/// would not see what is written, and what it writes itself would count for nobody.
pub(super) fn write_hosts_file(
    node: &Shared,
    pod_uid: &str,
    text: &str,
) -> Result<PathBuf, NodeError> {
    let directory = make(node, pod_uid)?;
    let path = directory.path().join(HOSTS_FILE);
    let Some(file) = directory.open_file_to_change(HOSTS_FILE)? else {
        directory.replace_file(HOSTS_FILE, text.as_bytes(), HOSTS_FILE_MODE)?;
        return Ok(path);
    };
    let limit = u64::try_from(text.len())
        .unwrap_or(u64::MAX)
        .saturating_add(1);
    let mut present = Vec::new();
    (&file)
        .take(limit)
        .read_to_end(&mut present)
        .context("read", &path)?;
    if present != text.as_bytes() {
        // A kill in between leaves another text, which the next start writes anew.
        overwrite(&file, text.as_bytes()).context("write", &path)?;
        file.set_permissions(Permissions::from_mode(HOSTS_FILE_MODE))
            .context("change the mode of", &path)?;
    }
    Ok(path)
}

/// Never empties the file on the way, for those who read it meanwhile.
fn overwrite(file: &File, content: &[u8]) -> io::Result<()> {
    file.write_all_at(content, 0)?;
    file.set_len(u64::try_from(content.len()).unwrap_or(u64::MAX))
}

/// Makes the file for the termination message of one start of a container.
pub(super) fn make_termination_log(
    node: &Shared,
    pod_uid: &str,
    container: &str,
    start_id: u32,
) -> Result<PathBuf, NodeError> {
    let containers = make(node, pod_uid)?.make_child(CONTAINERS, POD_DIRECTORY_MODE)?;
    let container = containers.make_child(container, POD_DIRECTORY_MODE)?;
    let name = termination_log_name(start_id);
    container.create_file(&name, TERMINATION_LOG_MODE)?;
    Ok(container.path().join(name))
}

fn termination_log_name(start_id: u32) -> String {
    format!("{start_id:08x}")
}

/// Removes that file; fine if there is none.
pub(super) fn remove_termination_log(
    node: &Shared,
    pod_uid: &str,
    container: &str,
    start_id: u32,
) -> Result<(), NodeError> {
    match termination_logs(node, pod_uid, container)? {
        Some(directory) => directory.remove_file(&termination_log_name(start_id)),
        None => Ok(()),
    }
}

/// The directory of a container's files for termination messages, if there is one.
fn termination_logs(
    node: &Shared,
    pod_uid: &str,
    container: &str,
) -> Result<Option<Directory>, NodeError> {
    let Some(pod) = find(node, pod_uid)? else {
        return Ok(None);
    };
    match pod.child(CONTAINERS)? {
        Some(containers) => containers.child(container),
        None => Ok(None),
    }
}

/// The last `limit` bytes of a file for termination messages; empty when it is gone. The
/// container has ended, and more than that is not kept: it would fill the disk until the
/// pod's directory goes. The path comes from the runtime, so it is split and looked up
/// again below the pod's directory.
pub(super) fn read_termination_log(
    node: &Shared,
    pod_uid: &str,
    file: &Path,
    limit: usize,
) -> Result<Vec<u8>, NodeError> {
    let containers = pods(&node.root_dir).join(pod_uid).join(CONTAINERS);
    let (container, name) = file
        .strip_prefix(&containers)
        .ok()
        .and_then(two_names)
        .ok_or_else(|| NodeError::refused(file, "it is not a file of the pod's containers"))?;
    check_container_name(container)?;
    let Some(directory) = termination_logs(node, pod_uid, container)? else {
        return Ok(Vec::new());
    };
    let Some(mut opened) = directory.open_file(name)? else {
        return Ok(Vec::new());
    };
    let limit = u64::try_from(limit)
        .unwrap_or(u64::MAX / 2)
        .min(u64::MAX / 2);
    let status = opened.metadata().context("inspect", file)?;
    opened
        .seek(SeekFrom::Start(status.len().saturating_sub(limit)))
        .context("read", file)?;
    let mut message = Vec::new();
    (&opened)
        .take(limit)
        .read_to_end(&mut message)
        .context("read", file)?;
    let is_large = status.blocks().saturating_mul(BLOCK_BYTES) > 2 * limit;
    // Of a file that the message overlaps with where it goes, a kill in the midst would leave
    // a mixture of both.
    let would_overlap = (limit + 1..2 * limit).contains(&status.len());
    if is_large
        && !would_overlap
        && let Err(error) = cut(&directory, name, &message)
    {
        // For example on a disk that can only be read.
        tracing::warn!(file = %file.display(), %error, "a termination message stays too long");
    }
    Ok(message)
}

fn cut(directory: &Directory, name: &str, message: &[u8]) -> Result<(), NodeError> {
    match directory.open_file_to_change(name)? {
        Some(file) => overwrite(&file, message).context("cut", &directory.path().join(name)),
        None => Ok(()),
    }
}

/// The two parts of a path that has exactly two, both plain names.
fn two_names(path: &Path) -> Option<(&str, &str)> {
    let mut parts = path.components().map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let (first, second) = (parts.next()??, parts.next()??);
    parts.next().is_none().then_some((first, second))
}
