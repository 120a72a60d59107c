//! The files of a guest: a Debian of its own, what is put into it, and a disk made of both.
//! Nothing is mounted for that.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use test_support::{binaries, images};

use crate::report;

/// Of the guest's disk; what is not used takes no room on this machine's.
const DISK_SIZE: &str = "6G";

/// The tree of a Debian release below `directory`, made when it is not there. It is kept
/// for the next time, until it is removed or has to have other packages beside the smallest
/// Debian.
pub(crate) fn debian(directory: &Path, release: &str, wanted: &str) -> Result<PathBuf> {
    let (root, stamp) = (directory.join("root"), directory.join("packages"));
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    if fs::read_to_string(&stamp).is_ok_and(|text| text == wanted) {
        return Ok(root);
    }
    report::step(&format!("fetching Debian {release}"));
    remove(&root)?;
    // What debootstrap mounts goes with it, however it ends.
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "debootstrap", "--variant=minbase"])
        .arg(format!("--include={wanted}"))
        .args([release.as_ref(), root.as_os_str()])
        .args(mirror());
    run(&mut command)?;
    fs::write(&stamp, wanted).context("the list of the guest's packages")?;
    Ok(root)
}

/// Where this machine gets its Debian packages; nothing where it has none, and then
/// debootstrap knows.
fn mirror() -> Option<String> {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI)"])
        .args(["Created-By: Packages", "Origin: Debian", "Label: Debian"])
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(str::to_owned)
}

/// Copies files and directories to the same places in the tree, instead of what was put
/// there before.
pub(crate) fn put_in(root: &Path, paths: &[PathBuf]) -> Result<()> {
    for directory in [binaries::workspace(), binaries::target_directory()?] {
        remove(&inside(root, &directory)?)?;
    }
    for path in paths {
        let place = inside(root, path)?;
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        }
        run(Command::new("cp").arg("--archive").arg(path).arg(&place))?;
    }
    // The images are made of this one: with another they would have to be built anew.
    let busybox = root.join("usr/bin/busybox");
    fs::copy(images::static_busybox()?, &busybox).context("the guest's busybox")?;
    Ok(())
}

/// The same place in the tree.
fn inside(root: &Path, path: &Path) -> Result<PathBuf> {
    let rest = path.strip_prefix("/").unwrap_or(Path::new(""));
    let mut parts = rest.components();
    let leads_down = parts.all(|part| matches!(part, Component::Normal(_)));
    if rest.as_os_str().is_empty() || !leads_down {
        bail!("{} cannot be put into a guest", path.display());
    }
    Ok(root.join(rest))
}

/// Makes a disk with the files of the tree.
pub(crate) fn disk(root: &Path, directory: &Path) -> Result<PathBuf> {
    let disk = directory.join("disk.ext4");
    let _ = fs::remove_file(&disk);
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-t", "ext4", "-d"]);
    run(command.arg(root).arg(&disk).arg(DISK_SIZE))?;
    Ok(disk)
}

/// Removes a tree, but nothing that is mounted in it.
fn remove(tree: &Path) -> Result<()> {
    run(Command::new("rm")
        .args(["--recursive", "--force", "--one-file-system", "--"])
        .arg(tree))
}

/// Makes a symbolic link in the place of whatever is there.
pub(crate) fn link(to: &str, link: &Path) -> Result<()> {
    let _ = fs::remove_file(link);
    symlink(to, link).with_context(|| format!("cannot make {}", link.display()))
}

/// Runs a program, which has to succeed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{}: {status}", command.get_program().display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_keep_their_places_and_the_tree_itself_is_none() {
        let root = Path::new("/tree");
        let place = inside(root, Path::new("/home/a/b")).unwrap();
        assert_eq!(place, Path::new("/tree/home/a/b"));
        for path in ["/", "relative", "", "/a/../.."] {
            assert!(inside(root, Path::new(path)).is_err(), "{path}");
        }
    }
}
