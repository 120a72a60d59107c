//! The node's mounts, as the kernel lists them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use crate::error::IoContext;
use crate::error::NodeError;

/// Below `/proc`: the mounts of our own mount namespace.
const TABLE: &str = "self/mountinfo";

/// Mount points and what is mounted there, in the order in which they were mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountTable {
    mounts: Vec<(PathBuf, String)>,
}

impl MountTable {
    /// The table as it is now.
    pub(crate) fn read(proc_dir: &Path) -> Result<MountTable, NodeError> {
        let path = proc_dir.join(TABLE);
        let table = std::fs::read(&path).context("read", &path)?;
        Ok(MountTable::parse(&table))
    }

    /// Paths may be any bytes, with blanks and backslashes in octal.
    fn parse(table: &[u8]) -> MountTable {
        let mount = |line: &[u8]| {
            let mut fields = line.split(|byte| *byte == b' ');
            let point = fields.nth(4)?;
            let filesystem = fields.skip_while(|field| field != b"-").nth(1)?;
            let point = PathBuf::from(OsString::from_vec(unescaped(point)));
            Some((point, String::from_utf8_lossy(filesystem).into_owned()))
        };
        let lines = table.split(|byte| *byte == b'\n');
        MountTable {
            mounts: lines.filter_map(mount).collect(),
        }
    }

    /// The file system that one sees at a mount point, if it is one.
    pub(crate) fn filesystem(&self, point: &Path) -> Option<&str> {
        let mut mounts = self.mounts.iter().rev();
        mounts
            .find(|(path, _)| path == point)
            .map(|(_, filesystem)| filesystem.as_str())
    }

    /// The mount points below a directory or on it, the last one mounted first.
    pub(crate) fn below(&self, directory: &Path) -> impl Iterator<Item = &Path> {
        let mounts = self.mounts.iter().rev().map(|(path, _)| path.as_path());
        mounts.filter(move |path| path.starts_with(directory))
    }

    /// Unmounts everything below a directory and on it. At once and without waiting for
    /// those who still use it: the pod is gone, and its files go with the last user.
    pub(crate) fn unmount_all_below(&self, directory: &Path) -> Result<(), NodeError> {
        for point in self.below(directory) {
            match umount2(point, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
                // Not mounted any more, or gone with the mount that it was on.
                Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
                Err(error) => return Err(NodeError::io("unmount", point, error.into())),
            }
        }
        Ok(())
    }
}

fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let digits = (first == b'\\').then(|| after.get(..3)).flatten();
        let code = digits
            .and_then(|digits| str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    bytes
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
        let table = MountTable::parse(TABLE);
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
    }

    #[test]
    fn those_below_a_directory_come_last_mounted_first() {
        let table = MountTable::parse(TABLE);
        let below: Vec<_> = table.below(Path::new("/pods/u")).collect();
        let expected = [
            "/pods/u/volumes/a",
            "/pods/u/volumes/a/in side",
            "/pods/u/volumes/a",
        ]
        .map(Path::new);
        assert_eq!(below, expected);
        assert_eq!(
            table.below(Path::new("/pods/u/volumes/a/inside")).count(),
            0
        );
    }
}
