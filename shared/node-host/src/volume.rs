//! Volumes of a pod: set up under the kubelet's paths, found again after a restart,
//! and taken down without ever leaving the pod's directory. Blocking.
//!
//! Here: emptyDir and hostPath. Other kinds are refused before a pod gets here.

mod empty_dir;
mod host_path;
mod mount_table;
mod pinned;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cri_requests::MountedVolume;
use node_layout::paths::{EMPTY_DIR, HOST_PATH, VOLUMES};
use node_policy::HostPathRules;
use pod::Pod;
use pod::PodExt;
use pod::identity::check_label;
use pod::resources::pod_cgroup_resources;

use crate::directory::Directory;
use crate::error::NodeError;

use host_path::HostPath;
pub(crate) use mount_table::MountTable;

/// Mode of a pod's own directories: others have no business there.
pub(crate) const POD_DIRECTORY_MODE: u32 = 0o750;

/// Kinds of volumes, as their directories are called, that hold the pod's own data or
/// what is bound there, so that what is mounted there may be unmounted when the pod is
/// gone. Those that we do not set up are of a kubelet that ran the pod before us.
const OWN_KINDS: [&str; 6] = [
    EMPTY_DIR,
    HOST_PATH,
    "kubernetes.io~configmap",
    "kubernetes.io~downward-api",
    "kubernetes.io~projected",
    "kubernetes.io~secret",
];

/// What volumes are set up with, beside the pod.
pub(crate) struct Setting<'a> {
    /// Where the kernel tells of mounts.
    pub(crate) proc_dir: &'a Path,
    /// What the node has for pods, the most that a volume in memory may take.
    pub(crate) memory_bytes: u64,
    /// Which paths of the node the pod may have.
    pub(crate) host_paths: &'a HostPathRules,
}

/// Sets all volumes of a pod up, or finds them set up. `directory` is the pod's.
pub(crate) fn set_up(
    directory: &Directory,
    pod: &Pod,
    setting: &Setting<'_>,
) -> Result<BTreeMap<String, MountedVolume>, NodeError> {
    let mounts = MountTable::read(setting.proc_dir)?;
    let limit = pod_cgroup_resources(pod).memory_limit_bytes;
    let limit = limit
        .and_then(|limit| u64::try_from(limit).ok())
        .filter(|limit| *limit > 0);
    let node_memory = setting.memory_bytes;
    let memory_bytes = limit.map_or(node_memory, |limit| limit.min(node_memory));
    let mut volumes = BTreeMap::new();
    for (index, volume) in pod.volumes().iter().enumerate() {
        check_label("volume name", &volume.name)?;
        let set_up = if let Some(source) = &volume.empty_dir {
            kind(directory, EMPTY_DIR)
                .and_then(|kind| {
                    empty_dir::set_up(&kind, &volume.name, source, &mounts, memory_bytes)
                })
                .map(Some)
        } else if let Some(source) = &volume.host_path {
            let asked = HostPath {
                pod,
                index,
                source,
                rules: setting.host_paths,
            };
            set_up_host_path(directory, &volume.name, &asked, setting.proc_dir)
        } else {
            let reason = "this kind of volume is not supported";
            Err(NodeError::refused(&volume.name, reason))
        };
        let host_path = set_up.map_err(|error| NodeError::Volume {
            volume: volume.name.clone(),
            reason: with_causes(&error),
        })?;
        if let Some(host_path) = host_path {
            let mounted = MountedVolume {
                host_path,
                read_only: false,
            };
            volumes.insert(volume.name.clone(), mounted);
        }
    }
    Ok(volumes)
}

/// As in the kubelet, nobody looks for what no container mounts.
fn set_up_host_path(
    directory: &Directory,
    name: &str,
    asked: &HostPath<'_>,
    proc_dir: &Path,
) -> Result<Option<PathBuf>, NodeError> {
    if !is_mounted(asked.pod, name) {
        return Ok(None);
    }
    let opened = asked.open()?;
    pinned::bind(&opened, &kind(directory, HOST_PATH)?, name, proc_dir).map(Some)
}

/// The directory of a pod's volumes of one kind.
fn kind(directory: &Directory, name: &str) -> Result<Directory, NodeError> {
    directory
        .make_child(VOLUMES, POD_DIRECTORY_MODE)?
        .make_child(name, POD_DIRECTORY_MODE)
}

fn is_mounted(pod: &Pod, volume: &str) -> bool {
    let containers = pod.all_containers();
    let mut mounts = containers.flat_map(|(_, spec)| spec.volume_mounts.iter().flatten());
    mounts.any(|mount| mount.name == volume)
}

/// The error with what caused it, for the pod's owner.
fn with_causes(error: &NodeError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Takes a pod's volumes down. What is mounted on or in those of its own is unmounted;
/// whatever else is mounted in its directory stops this: it may be somebody's data.
pub(crate) fn tear_down(directory: &Directory, mounts: &MountTable) -> Result<(), NodeError> {
    let Some(volumes) = directory.child(VOLUMES)? else {
        return Ok(());
    };
    for kind in OWN_KINDS {
        mounts.unmount_all_below(&volumes, kind)?;
        volumes.remove_tree(kind)?;
    }
    Ok(())
}

/// What is still mounted in a pod's directory, if anything.
pub(crate) fn check_nothing_mounted(
    directory: &Directory,
    mounts: &MountTable,
) -> Result<(), NodeError> {
    match mounts.below(&directory.real_path()?).next() {
        Some(mount) => Err(NodeError::refused(
            &mount.point,
            "something is still mounted there",
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
