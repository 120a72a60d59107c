//! Volumes of a pod: set up under the kubelet's paths, found again after a restart,
//! and taken down without ever leaving the pod's directory. Blocking.
//!
//! Here: emptyDir and hostPath. Other kinds are refused before a pod gets here.

mod empty_dir;
mod host_path;
mod mount_table;

use std::collections::BTreeMap;

use cri_requests::MountedVolume;
use node_layout::paths::{EMPTY_DIR, VOLUMES};
use pod::Pod;
use pod::PodExt;
use pod::core::Volume;
use pod::identity::check_label;
use pod::resources::pod_cgroup_resources;

use crate::directory::Directory;
use crate::error::NodeError;

pub(crate) use mount_table::MountTable;

/// Mode of a pod's own directories: others have no business there.
pub(crate) const POD_DIRECTORY_MODE: u32 = 0o750;

/// Kinds of volumes, as their directories are called, that hold the pod's own data, so
/// that what is mounted there may be unmounted when the pod is gone. Those that we do
/// not set up are of a kubelet that ran the pod before us.
const OWN_KINDS: [&str; 5] = [
    EMPTY_DIR,
    "kubernetes.io~configmap",
    "kubernetes.io~downward-api",
    "kubernetes.io~projected",
    "kubernetes.io~secret",
];

/// Sets all volumes of a pod up, or finds them set up. `directory` is the pod's;
/// `memory_bytes` is what the node has for pods, the most that a volume in memory may
/// take.
pub(crate) fn set_up(
    directory: &Directory,
    pod: &Pod,
    mounts: &MountTable,
    memory_bytes: u64,
) -> Result<BTreeMap<String, MountedVolume>, NodeError> {
    let limit = pod_cgroup_resources(pod).memory_limit_bytes;
    let limit = limit
        .and_then(|limit| u64::try_from(limit).ok())
        .filter(|limit| *limit > 0);
    let memory_bytes = limit.map_or(memory_bytes, |limit| limit.min(memory_bytes));
    let mut volumes = BTreeMap::new();
    for volume in pod.volumes() {
        check_label("volume name", &volume.name)?;
        let mounted = set_up_one(directory, volume, mounts, memory_bytes).map_err(|error| {
            let reason = with_causes(&error);
            NodeError::Volume {
                volume: volume.name.clone(),
                reason,
            }
        })?;
        volumes.insert(volume.name.clone(), mounted);
    }
    Ok(volumes)
}

fn set_up_one(
    directory: &Directory,
    volume: &Volume,
    mounts: &MountTable,
    memory_bytes: u64,
) -> Result<MountedVolume, NodeError> {
    let host_path = if let Some(source) = &volume.empty_dir {
        let kind = directory
            .make_child(VOLUMES, POD_DIRECTORY_MODE)?
            .make_child(EMPTY_DIR, POD_DIRECTORY_MODE)?;
        empty_dir::set_up(&kind, &volume.name, source, mounts, memory_bytes)?
    } else if let Some(source) = &volume.host_path {
        host_path::set_up(source)?
    } else {
        return Err(NodeError::refused(
            &volume.name,
            "this kind of volume is not supported",
        ));
    };
    Ok(MountedVolume {
        host_path,
        read_only: false,
    })
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
        mounts.unmount_all_below(&volumes.path().join(kind))?;
        volumes.remove_tree(kind)?;
    }
    Ok(())
}

/// What is still mounted in a pod's directory, if anything.
pub(crate) fn check_nothing_mounted(
    directory: &Directory,
    mounts: &MountTable,
) -> Result<(), NodeError> {
    match mounts.below(directory.path()).next() {
        Some(mount) => Err(NodeError::refused(
            mount,
            "something is still mounted there",
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
