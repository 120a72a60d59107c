//! Who may connect to a socket, as the kernel checks it: root, and the users of an access
//! list (acl(5)). No group is needed, and the list is the one of the topology.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use rustix::fs::{XattrFlags, lsetxattr};
use rustix::io::Errno;

/// Where the kernel keeps an access list.
const ATTRIBUTE: &str = "system.posix_acl_access";

/// First of the list: which layout it has.
const VERSION: u32 = 2;

/// Kinds of entries: linux/posix_acl.h.
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// Read and write. To connect is to write.
const READ_WRITE: u16 = 6;
const NOTHING: u16 = 0;

/// Of an entry that names nobody.
const NO_ID: u32 = u32::MAX;

/// Lets `users` connect beside the owner of the socket at `path`, and nobody else. False if
/// the file system has no access lists, and one would be needed.
///
/// # Errors
/// When the kernel refuses the list.
pub(crate) fn permit(path: &Path, users: &BTreeSet<u32>) -> io::Result<bool> {
    if users.is_empty() {
        return Ok(true);
    }
    match lsetxattr(path, ATTRIBUTE, &list(users), XattrFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The list as the kernel reads it: entries by kind, and those of users by number.
fn list(users: &BTreeSet<u32>) -> Vec<u8> {
    let mut entries = vec![(OWNER, READ_WRITE, NO_ID)];
    entries.extend(users.iter().map(|&user| (USER, READ_WRITE, user)));
    entries.push((GROUP, NOTHING, NO_ID));
    entries.push((MASK, READ_WRITE, NO_ID));
    entries.push((OTHERS, NOTHING, NO_ID));
    let mut bytes = VERSION.to_le_bytes().to_vec();
    for (kind, permissions, id) in entries {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// The access list of a file.
#[cfg(test)]
pub(crate) fn lists(path: &Path) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 1024];
    let size = rustix::fs::lgetxattr(path, ATTRIBUTE, buffer.as_mut_slice()).ok()?;
    buffer.truncate(size);
    Some(buffer)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_list_names_the_users_and_nobody_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        let _socket = UnixListener::bind(&path).unwrap();
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode));
        mode(0o600).unwrap();
        assert!(permit(&path, &BTreeSet::new()).unwrap());
        assert_eq!(lists(&path), None);
        let users = BTreeSet::from([64_003, 64_001]);
        assert!(permit(&path, &users).unwrap());
        assert_eq!(lists(&path), Some(list(&users)), "as the kernel has it");
        let shown = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(shown & 0o777, 0o660, "the group's bits are the mask");
    }
}
