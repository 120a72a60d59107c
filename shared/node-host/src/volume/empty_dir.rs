//! emptyDir volumes: a directory on the node's disk, or in memory.

use std::path::PathBuf;

use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, fchown};
use pod::Pod;
use pod_volumes::{EmptyDir, Medium};

use super::memory::{self, Content, Root};
use crate::directory::Directory;
use crate::error::{IoContext as _, NodeError};

/// Anyone in the pod may write there, unless the pod says otherwise.
const MODE: u32 = 0o777;

/// Nobody removes files of others there.
const STICKY: u32 = 0o1000;

/// What is made there belongs to the group that the directory has, which may do there what
/// it likes.
const FOR_GROUP: u32 = 0o2770;

/// The pod's `fsGroup`. A number that is no group was refused when the pod was accepted.
pub(super) fn group_of(pod: &Pod) -> Option<Gid> {
    let context = pod.spec.as_ref()?.security_context.as_ref()?;
    u32::try_from(context.fs_group?).ok().map(Gid::from_raw)
}

/// Makes the volume's directory in that of its kind; one in memory gets a file system
/// of its own, no larger than its limit and `memory_bytes`, what the node has for pods.
/// One that is there stays as its pod changed it.
pub(super) fn make(
    kind: &Directory,
    name: &str,
    wanted: &EmptyDir,
    memory_bytes: u64,
    group: Option<Gid>,
) -> Result<PathBuf, NodeError> {
    let mode = wanted.mode.unwrap_or(MODE);
    let give = |volume: &Directory| {
        if group.is_none() {
            return Ok(());
        }
        let mode = Mode::from_bits_truncate(mode | FOR_GROUP);
        let given = fchown(volume.fd(), None, group).and_then(|()| fchmod(volume.fd(), mode));
        given.context("give to the pod's group", volume.path())
    };
    let content = match wanted.medium {
        Medium::Disk => {
            kind.child_or_make(name, mode, give)?;
            return Ok(kind.path().join(name));
        }
        Medium::Memory { limit_bytes } => Content::Memory {
            bytes: limit_bytes.map_or(memory_bytes, |limit| limit.min(memory_bytes)),
        },
        Medium::HugePages {
            page_bytes,
            limit_bytes,
        } => Content::HugePages {
            page_bytes,
            limit_bytes,
        },
    };
    // Everybody may make files in memory, and nobody remove those of others.
    let mode = match (wanted.medium, wanted.mode) {
        (Medium::Memory { .. }, None) => STICKY | MODE,
        (_, _) => mode,
    };
    let root = Root {
        mode: Some(group.map_or(mode, |_| mode | FOR_GROUP)),
        group,
    };
    memory::mount_on(kind, name, content, root)?;
    let path = kind.path().join(name);
    if group.is_some() && matches!(wanted.medium, Medium::HugePages { .. }) {
        let gone = || NodeError::refused(&*path, "it was removed meanwhile");
        give_to_group(&kind.child(name)?.ok_or_else(gone)?)?;
    }
    Ok(path)
}

/// A mount of huge pages takes all of a mode but this.
fn give_to_group(volume: &Directory) -> Result<(), NodeError> {
    let mode = Mode::from_bits_truncate(volume.status()?.st_mode);
    if mode.contains(Mode::S_ISGID) {
        return Ok(());
    }
    fchmod(volume.fd(), mode | Mode::S_ISGID).context("change the mode of", volume.path())
}
