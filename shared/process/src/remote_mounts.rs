//! Where file systems are mounted that another machine or a program serves. Whoever looks
//! at one may have to wait for ever.

use std::path::{Path, PathBuf};

use node_layout::mount_path;

/// The mounts that this process sees (proc_pid_mountinfo(5)).
const TABLE: &str = "/proc/self/mountinfo";

/// Kinds of file systems whose files are elsewhere. `fuse` has kinds of its own, such as
/// `fuse.sshfs`.
const REMOTE: [&str; 14] = [
    "9p", "afs", "autofs", "beegfs", "ceph", "cifs", "fuse", "gfs2", "lustre", "nfs", "nfs4",
    "ocfs2", "smb3", "virtiofs",
];

/// Their mount points.
#[derive(Debug, Default)]
pub(crate) struct RemoteMounts(Vec<PathBuf>);

impl RemoteMounts {
    /// Those that there are now.
    pub(crate) fn read() -> RemoteMounts {
        // Without the table all count as files of this machine.
        RemoteMounts::parse(&std::fs::read(TABLE).unwrap_or_default())
    }

    fn parse(table: &[u8]) -> RemoteMounts {
        let lines = table.split(|&byte| byte == b'\n');
        RemoteMounts(lines.filter_map(mount_point).collect())
    }

    /// The first one on the way to a path, or at it. Links on the way are not followed.
    pub(crate) fn on_the_way_to(&self, path: &Path) -> Option<&Path> {
        let on_the_way = self.0.iter().filter(|mount| path.starts_with(mount));
        let first = on_the_way.min_by_key(|mount| mount.as_os_str().len());
        first.map(PathBuf::as_path)
    }
}

/// The mount point in a line of the table, if what is mounted there is elsewhere. Where that
/// is all of the node's files, our own programs too, it is not told apart.
fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let mut fields = line.split(|&byte| byte == b' ');
    let mount_point = fields.nth(4)?;
    // A number of optional fields ends with this one.
    fields.find(|&field| field == b"-")?;
    let kind = str::from_utf8(fields.next()?).ok()?;
    let kind = kind.split_once('.').map_or(kind, |(kind, _)| kind);
    let is_remote = REMOTE.contains(&kind) && mount_point != b"/";
    is_remote.then(|| mount_path(mount_point))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outermost_file_system_of_another_machine_on_the_way_is_found() {
        let table = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            30 22 8:2 / /data rw - xfs /dev/sdb1 rw\n\
            31 22 0:40 / /mnt/nfs rw shared:3 master:2 - nfs4 server:/x rw,addr=::1\n\
            32 31 0:41 / /mnt/nfs/inner rw - fuse.sshfs host:/ rw\n\
            33 22 0:42 / /mnt/a\\040b\\134c rw - cifs //host/share rw\n\
            34 22 0:43 / /sys/fs/fuse/connections rw - fusectl none rw\n\
            nonsense\n";
        let mounts = RemoteMounts::parse(table);
        for (path, found) in [
            ("/mnt/nfs/cluster/manifests", Some("/mnt/nfs")),
            ("/mnt/nfs", Some("/mnt/nfs")),
            ("/mnt/nfs/inner/manifests", Some("/mnt/nfs")),
            ("/mnt/nfs2/manifests", None),
            ("/mnt/a b\\c/manifests", Some("/mnt/a b\\c")),
            ("/data/manifests", None),
            ("/sys/fs/fuse/connections/x", None),
        ] {
            let expected = found.map(Path::new);
            assert_eq!(mounts.on_the_way_to(Path::new(path)), expected, "{path}");
        }
        // A node without a disk.
        let root = b"22 1 0:30 / / rw - virtiofs root rw\n31 22 0:40 / /nfs rw - nfs s:/x rw\n";
        let mounts = RemoteMounts::parse(root);
        assert_eq!(mounts.on_the_way_to(Path::new("/etc/manifests")), None);
        let found = mounts.on_the_way_to(Path::new("/nfs/manifests"));
        assert_eq!(found, Some(Path::new("/nfs")));
        let none = RemoteMounts::parse(b"");
        assert_eq!(none.on_the_way_to(Path::new("/mnt/nfs")), None);
    }
}
