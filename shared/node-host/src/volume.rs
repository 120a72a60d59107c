//! Volumes of a pod: set up under the kubelet's paths, found again after a restart,
//! and taken down without ever leaving the pod's directory. Blocking.
//!
//! Each kind has a builder, which is called by an arm of [`make`].

mod empty_dir;
mod files;
mod host_path;
mod memory;
pub(crate) mod mount_table;
mod pinned;
pub(crate) mod sub_path;

use std::collections::BTreeMap;
use std::path::Path;

use node_layout::paths::{
    CONFIG_MAP, DOWNWARD_API, EMPTY_DIR, HOST_PATH, PROJECTED, SECRET, VOLUME_SUBPATHS, VOLUMES,
};
use node_policy::HostPathRules;
use pod::Pod;
use pod::identity::check_label;
use pod_volumes::{FilesKind, MountedVolume, Volume, VolumeSpec};

use crate::directory::Directory;
use crate::error::NodeError;

use host_path::HostPath;
pub(crate) use mount_table::MountTable;
use pinned::Place;

/// Mode of a pod's own directories: others have no business there.
pub(crate) const POD_DIRECTORY_MODE: u32 = 0o750;

/// Kinds of volumes, as their directories are called, that hold the pod's own data or
/// what is bound there, so that what is mounted there may be unmounted when the pod is
/// gone. Those that we do not set up are of a kubelet that ran the pod before us.
const OWN_KINDS: [&str; 6] = [
    EMPTY_DIR,
    HOST_PATH,
    CONFIG_MAP,
    DOWNWARD_API,
    PROJECTED,
    SECRET,
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

/// Makes these volumes of a pod, or finds them made, and says where they are.
/// `directory` is the pod's.
pub(crate) fn make(
    directory: &Directory,
    pod: &Pod,
    volumes: &[Volume],
    setting: &Setting<'_>,
) -> Result<BTreeMap<String, MountedVolume>, NodeError> {
    let group = empty_dir::group_of(pod);
    let mut made = BTreeMap::new();
    for Volume { name, spec } in volumes {
        check_label("volume name", name)?;
        let host_path = match spec {
            VolumeSpec::EmptyDir(wanted) => kind(directory, EMPTY_DIR)
                .and_then(|kind| empty_dir::make(&kind, name, wanted, setting.memory_bytes, group)),
            VolumeSpec::HostPath(wanted) => {
                let asked = HostPath {
                    pod,
                    wanted,
                    rules: setting.host_paths,
                };
                asked.open().and_then(|opened| {
                    let kind = kind(directory, HOST_PATH)?;
                    let place = Place {
                        directory: &kind,
                        name,
                        passes_back: wanted.passes_back,
                    };
                    pinned::bind(&opened, &place, setting.proc_dir)
                })
            }
            VolumeSpec::Files(wanted) => kind(directory, directory_of(wanted.kind))
                .and_then(|kind| files::write(&kind, name, wanted, setting.memory_bytes)),
            VolumeSpec::Impossible(reason) => Err(NodeError::CheckFailed {
                message: reason.clone(),
            }),
        };
        let host_path = host_path.map_err(|error| NodeError::Volume {
            volume: name.clone(),
            reason: telemetry::chain(&error),
        })?;
        let mounted = MountedVolume {
            host_path,
            read_only: spec.is_read_only(),
        };
        made.insert(name.clone(), mounted);
    }
    Ok(made)
}

fn directory_of(kind: FilesKind) -> &'static str {
    match kind {
        FilesKind::ConfigMap => CONFIG_MAP,
        FilesKind::DownwardApi => DOWNWARD_API,
        FilesKind::Projected => PROJECTED,
        FilesKind::Secret => SECRET,
    }
}

/// The directory of a pod's volumes of one kind.
fn kind(directory: &Directory, name: &str) -> Result<Directory, NodeError> {
    directory
        .make_child(VOLUMES, POD_DIRECTORY_MODE)?
        .make_child(name, POD_DIRECTORY_MODE)
}

/// Takes a pod's volumes down. What is mounted on or in those of its own is unmounted;
/// whatever else is mounted in its directory stops this: it may be somebody's data.
pub(crate) fn tear_down(directory: &Directory, mounts: &MountTable) -> Result<(), NodeError> {
    // They are parts of the volumes.
    mounts.unmount_all_below(directory, VOLUME_SUBPATHS)?;
    directory.remove_tree(VOLUME_SUBPATHS)?;
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
            &*mount.point,
            "something is still mounted there",
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
