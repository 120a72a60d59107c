//! The node's mounts, as the kernel lists them.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use node_layout::mount_path;

use crate::descriptor::{magic_path, open_beneath};
use crate::directory::Directory;
use crate::error::IoContext;
use crate::error::NodeError;

/// Below `/proc`: the mounts of our own mount namespace.
const TABLE: &str = "self/mountinfo";

/// One line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mount<'a> {
    /// The kernel's number for it.
    pub(crate) id: u64,
    /// Where it is, without links.
    pub(crate) point: Cow<'a, Path>,
    /// The number of the group of mounts that pass mounts on to each other, if it is in one.
    pub(crate) peer_group: Option<u64>,
    /// Its kind, as the kernel calls it.
    pub(crate) filesystem: &'a str,
}

/// Mounts in the order in which they were mounted, as the kernel wrote them: a node has
/// some for each container, and few of them are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountTable {
    text: Vec<u8>,
}

impl MountTable {
    /// The table as it is now.
    pub(crate) fn read(proc_dir: &Path) -> Result<MountTable, NodeError> {
        let path = proc_dir.join(TABLE);
        let text = std::fs::read(&path).context("read", &path)?;
        Ok(MountTable { text })
    }

    fn mounts(&self) -> impl DoubleEndedIterator<Item = Mount<'_>> {
        self.text.split(|byte| *byte == b'\n').filter_map(parse)
    }

    /// The file system that one sees at a mount point, if it is one.
    pub(crate) fn filesystem(&self, point: &Path) -> Option<&str> {
        let mut mounts = self.mounts().rev();
        mounts
            .find(|mount| mount.point == point)
            .map(|mount| mount.filesystem)
    }

    /// The group of mounts that pass mounts on to each other which a mount is in.
    pub(crate) fn peer_group(&self, id: u64) -> Option<u64> {
        let mut mounts = self.mounts();
        mounts.find(|mount| mount.id == id)?.peer_group
    }

    /// The mounts below a directory or on it, the first one mounted first.
    pub(crate) fn below<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = Mount<'a>> {
        let mounts = self.mounts();
        mounts.filter(move |mount| mount.point.starts_with(directory))
    }

    /// Unmounts everything on what has this name in a directory, and below it. Each
    /// mount is reached from the directory without following links, since a container
    /// may have renamed what is on the way to it.
    pub(crate) fn unmount_all_below(
        &self,
        directory: &Directory,
        name: &str,
    ) -> Result<(), NodeError> {
        let top = directory.real_path()?;
        for Mount { point, .. } in self.below(&top.join(name)) {
            let Ok(relative) = point.strip_prefix(&top) else {
                continue;
            };
            match open_beneath(directory.fd(), relative) {
                Ok(mounted) => unmount(&mounted, &point)?,
                // Gone with the mount that it was on.
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {}
                Err(error) => return Err(NodeError::io("open", &*point, error.into())),
            }
        }
        Ok(())
    }
}

/// Unmounts what was opened at a mount point, with all that is mounted in it; fine if
/// nothing is mounted there. At once and without waiting for those who still use it: the
/// pod is gone, and its files go with the last user.
///
/// It is taken out of the groups in which mounts and unmounts are passed on before that:
/// what is unmounted in it must stay mounted where it was bound from.
pub(crate) fn unmount(mounted: &OwnedFd, point: &Path) -> Result<(), NodeError> {
    const NONE: Option<&str> = None;
    let path = magic_path(mounted);
    let alone = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
    let unmounted =
        mount(NONE, &path, NONE, alone, NONE).and_then(|()| umount2(&path, MntFlags::MNT_DETACH));
    match unmounted {
        // Not a mount point, or not any more.
        Ok(()) | Err(Errno::EINVAL) => Ok(()),
        Err(error) => Err(NodeError::io("unmount", point, error.into())),
    }
}

/// One line. Paths may be any bytes, with blanks and backslashes in octal.
pub(crate) fn parse(line: &[u8]) -> Option<Mount<'_>> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let point = fields.nth(3)?;
    let point = match point.contains(&b'\\') {
        true => Cow::Owned(mount_path(point)),
        false => Cow::Borrowed(Path::new(OsStr::from_bytes(point))),
    };
    let mut peer_group = None;
    let optional = fields.by_ref().take_while(|field| field != b"-");
    for field in optional {
        if let Some(number) = field.strip_prefix(b"shared:") {
            peer_group = str::from_utf8(number).ok()?.parse().ok();
        }
    }
    let filesystem = fields.next()?;
    let filesystem = str::from_utf8(filesystem).unwrap_or_default();
    Some(Mount {
        id,
        point,
        peer_group,
        filesystem,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
        22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
        40 22 0:50 / /pods/u/volumes/a rw - tmpfs tmpfs rw\n\
        41 40 0:51 / /pods/u/volumes/a/in\\040side rw master:3 propagate_from:2 - ext4 x rw\n\
        42 22 0:52 / /pods/u2/volumes rw - tmpfs tmpfs rw\n\
        43 22 0:53 / /pods/u/volumes/a rw - xfs over rw\n\
        nonsense\n";

    #[test]
    fn mounts_are_found_by_their_point() {
        let table = MountTable {
            text: TABLE.to_vec(),
        };
        assert_eq!(
            table.filesystem(Path::new("/pods/u2/volumes")),
            Some("tmpfs")
        );
        // The one on top is what one sees.
        assert_eq!(
            table.filesystem(Path::new("/pods/u/volumes/a")),
            Some("xfs")
        );
        assert_eq!(table.filesystem(Path::new("/pods/u")), None);
        let groups = [22, 40, 41, 99].map(|id| table.peer_group(id));
        assert_eq!(groups, [Some(1), None, None, None]);
    }

    #[test]
    fn those_below_a_directory_come_first_mounted_first() {
        let table = MountTable {
            text: TABLE.to_vec(),
        };
        let below: Vec<_> = table.below(Path::new("/pods/u")).collect();
        let below: Vec<_> = below.iter().map(|it| (it.id, it.point.to_str())).collect();
        let expected = [
            (40, Some("/pods/u/volumes/a")),
            (41, Some("/pods/u/volumes/a/in side")),
            (43, Some("/pods/u/volumes/a")),
        ];
        assert_eq!(below, expected);
        assert_eq!(
            table.below(Path::new("/pods/u/volumes/a/inside")).count(),
            0
        );
    }
}
