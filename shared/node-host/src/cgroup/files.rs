//! Directories and files of cgroups, as the kernel has them. Not here: which limits are
//! written, and whose cgroups there are.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::error::{IoContext as _, NodeError};

/// What the top of the unified hierarchy hands down. Not all kernels have all. Without
/// `cpuset`: Linux 6.1 takes that for a change of the processes that are there already,
/// of containerd for one, which needs capabilities that this process has not. No limit
/// here is written to it, and a runtime whose containers need it hands it down itself.
const UNIFIED_CONTROLLERS: [&str; 6] = ["cpu", "io", "memory", "hugetlb", "pids", "rdma"];

/// Makes a cgroup of the unified hierarchy, and hands the controllers down to it from
/// each level above.
pub(super) fn make_unified(mount: &Path, path: &str) -> Result<(), NodeError> {
    let mut directory = mount.to_owned();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        hand_down(&directory)?;
        directory.push(part);
        match fs::create_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.context("create", &directory)?,
        }
        let_through(&directory);
    }
    Ok(())
}

/// Makes a cgroup of a hierarchy of version 1: the directory that it is, with this path
/// below the hierarchy's mount.
pub(super) fn make_legacy(directory: &Path, path: &str) -> Result<(), NodeError> {
    fs::create_dir_all(directory).context("create", directory)?;
    let levels = path.split('/').filter(|part| !part.is_empty()).count();
    directory.ancestors().take(levels).for_each(let_through);
    Ok(())
}

/// Lets everybody pass through a cgroup and list it, as a kubelet's can be, whatever our
/// own mask: the root of a pod with users of its own is nobody here, and has to find the
/// cgroup that its container is in.
fn let_through(directory: &Path) {
    const ALL: u32 = 0o055;
    let ensure = || -> io::Result<()> {
        let mut permissions = fs::metadata(directory)?.permissions();
        let mode = permissions.mode();
        if mode & ALL == ALL {
            return Ok(());
        }
        permissions.set_mode(mode | ALL);
        fs::set_permissions(directory, permissions)
    };
    if let Err(error) = ensure() {
        let cgroup = directory.display();
        tracing::warn!(%cgroup, %error, "pods with users of their own cannot find their cgroup");
    }
}

/// Lets the children of a cgroup use the controllers that it has.
fn hand_down(directory: &Path) -> Result<(), NodeError> {
    let file = directory.join("cgroup.controllers");
    let available = fs::read_to_string(&file).context("read", &file)?;
    let available: Vec<_> = available.split_whitespace().collect();
    let file = directory.join("cgroup.subtree_control");
    let enabled = fs::read_to_string(&file).context("read", &file)?;
    let enabled: Vec<_> = enabled.split_whitespace().collect();
    for controller in UNIFIED_CONTROLLERS {
        if available.contains(&controller) && !enabled.contains(&controller) {
            // One at a time: one that is refused does not keep the others away. What
            // is missing shows when a limit is written.
            if let Err(error) = write(&file, &format!("+{controller}")) {
                tracing::warn!(file = %file.display(), controller, %error, "not handed down");
            }
        }
    }
    Ok(())
}

/// Whether a file of a cgroup has this content already. One that says the same in other
/// words is written once more, which changes nothing.
pub(super) fn has(file: &Path, content: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|now| now.trim_end() == content)
}

/// Writes to a file that the kernel made; it is never created.
pub(super) fn write(file: &Path, content: &str) -> io::Result<()> {
    let mut opened = fs::OpenOptions::new().write(true).open(file)?;
    io::Write::write_all(&mut opened, content.as_bytes())
}

/// The same, where this kernel has the file.
pub(super) fn write_if_there(file: &Path, content: &str) -> Result<(), NodeError> {
    match write(file, content) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        written => written.context("write", file),
    }
}
