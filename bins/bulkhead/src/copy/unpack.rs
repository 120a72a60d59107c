//! Unpacking what a container sends. It may send anything: nothing is written but below what
//! was asked for, no link is followed and none is made.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use nix::fcntl::OFlag;
use tar::{Archive, Entry, EntryType};

/// Why something is not unpacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnpackError {
    /// It is not what was asked for.
    #[error("the container sends {path:?}, which is not what was asked for")]
    Elsewhere { path: PathBuf },
    /// What comes is no archive.
    #[error("what the container sends is no archive of tar")]
    NotAnArchive(#[source] io::Error),
    /// It cannot be written.
    #[error("cannot write {path}", path = path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Unpacks what is called `name` in the archive as `target`. The paths that were left out.
pub(crate) fn unpack(
    archive: impl Read,
    name: &str,
    target: &Path,
) -> Result<Vec<PathBuf>, UnpackError> {
    let mut left_out = Vec::new();
    let mut archive = Archive::new(archive);
    for entry in archive.entries().map_err(UnpackError::NotAnArchive)? {
        let mut entry = entry.map_err(UnpackError::NotAnArchive)?;
        let path = entry
            .path()
            .map_err(UnpackError::NotAnArchive)?
            .into_owned();
        let Some(below) = below(&path, name) else {
            return Err(UnpackError::Elsewhere { path });
        };
        let to = target.join(&below);
        let written = match entry.header().entry_type() {
            EntryType::Directory => directories(target, &below),
            EntryType::Regular | EntryType::Continuous => {
                let parent = below.parent().unwrap_or(Path::new(""));
                let is_target = below.as_os_str().is_empty();
                let made = if is_target {
                    Ok(())
                } else {
                    directories(target, parent)
                };
                let to = if is_target { target } else { &*to };
                made.and_then(|()| file(&mut entry, to, is_target))
            }
            // They say something of the entry that follows, which has it already.
            EntryType::XGlobalHeader | EntryType::XHeader => Ok(()),
            _ => {
                left_out.push(path);
                Ok(())
            }
        };
        written.map_err(|source| UnpackError::Write { path: to, source })?;
    }
    Ok(left_out)
}

/// What of a path comes below the name that was asked for; `None` if it is not below it.
fn below(path: &Path, name: &str) -> Option<PathBuf> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) => parts.push(part),
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    let below = match name {
        "." => &parts[..],
        name => parts.strip_prefix(&[name.as_ref()])?,
    };
    Some(below.iter().collect())
}

/// Makes the directories below `target`, and it itself, where they are not there.
fn directories(target: &Path, below: &Path) -> io::Result<()> {
    // Where it is a link, whoever named it means where it leads.
    if !target.is_dir() {
        DirBuilder::new().create(target)?;
    }
    let mut path = target.to_owned();
    for part in below.components() {
        path.push(part);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().mode(0o755).create(&path)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn file(entry: &mut Entry<'_, impl Read>, to: &Path, is_target: bool) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    if !is_target {
        options.custom_flags(OFlag::O_NOFOLLOW.bits());
    }
    let mut file = options.open(to)?;
    io::copy(entry, &mut file)?;
    let mode = entry.header().mode()? & 0o777;
    file.set_permissions(Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tar::{Builder, Header};

    use super::*;

    /// An archive of these entries; their paths are written as they are.
    fn archive(entries: &[(&str, EntryType, &str)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (path, kind, content) in entries {
            let mut header = Header::new_gnu();
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(0o4755);
            let data = match kind {
                EntryType::Symlink | EntryType::Link => {
                    header.set_link_name(content).unwrap();
                    ""
                }
                _ => content,
            };
            header.set_size(data.len() as u64);
            header.set_cksum();
            builder.append(&header, data.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    const FILE: EntryType = EntryType::Regular;
    const DIRECTORY: EntryType = EntryType::Directory;

    #[test]
    fn a_directory_comes_with_what_is_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("new");
        let sent = archive(&[
            ("./a", DIRECTORY, ""),
            ("./a/b", DIRECTORY, ""),
            ("./a/b/c", FILE, "text"),
            ("./a/link", EntryType::Symlink, "/etc/passwd"),
        ]);
        let left_out = unpack(&*sent, "a", &target).unwrap();
        assert_eq!(left_out, [Path::new("./a/link")]);
        assert_eq!(fs::read_to_string(target.join("b/c")).unwrap(), "text");
        let mode = fs::metadata(target.join("b/c"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o7777, 0o755, "neither set-user-ID");
        assert!(!target.join("link").exists());
        let again = archive(&[("./a/b/c", FILE, "te")]);
        unpack(&*again, "a", &target).unwrap();
        assert_eq!(fs::read_to_string(target.join("b/c")).unwrap(), "te");
    }

    #[test]
    fn a_file_comes_under_the_name_that_was_given() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("new");
        unpack(&*archive(&[("./a", FILE, "text")]), "a", &target).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "text");
    }

    #[test]
    fn nothing_is_written_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let outside = directory.path().join("outside");
        fs::create_dir(&outside).unwrap();
        let target = directory.path().join("target");
        fs::create_dir(&target).unwrap();
        symlink(&outside, target.join("out")).unwrap();
        symlink(outside.join("file"), target.join("file")).unwrap();
        for path in [
            "/a",
            "a/../../outside/x",
            "../a",
            "b",
            "ab",
            "a/out/x",
            "a/out/y/z",
            "a/file",
        ] {
            for kind in [FILE, DIRECTORY] {
                let sent = archive(&[(path, kind, "")]);
                let unpacked = unpack(&*sent, "a", &target);
                let is_harmless = path == "a/file" && kind == DIRECTORY;
                assert!(unpacked.is_err() || is_harmless, "{path} {kind:?}");
            }
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        // A link that was sent leads nowhere.
        let sent = archive(&[
            ("a/l", EntryType::Symlink, "../../outside"),
            ("a/l/x", FILE, "text"),
            ("a/h", EntryType::Link, "/etc/passwd"),
        ]);
        unpack(&*sent, "a", &target).unwrap();
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        assert!(!target.join("h").exists());
        assert_eq!(fs::read_to_string(target.join("l/x")).unwrap(), "text");
    }
}
