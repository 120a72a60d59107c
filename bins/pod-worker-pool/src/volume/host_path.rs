//! hostPath volumes: a path of the node, checked or made as its type says.
//!
//! Links are followed, as in the kubelet: who may have such a volume may have the node.

use std::fs::{self, File, FileType, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use pod::core::HostPathVolumeSource;

use crate::node::NodeError;
use crate::node::error::IoContext;

/// Modes of what is made, as the kubelet has them.
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// What is to be found at the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HostPathType {
    /// Anything or nothing: the runtime makes a directory where there is nothing.
    Unchecked,
    Directory {
        create: bool,
    },
    File {
        create: bool,
    },
    Socket,
    CharacterDevice,
    BlockDevice,
}

impl HostPathType {
    fn parse(word: &str) -> Option<HostPathType> {
        Some(match word {
            "" => HostPathType::Unchecked,
            "DirectoryOrCreate" => HostPathType::Directory { create: true },
            "Directory" => HostPathType::Directory { create: false },
            "FileOrCreate" => HostPathType::File { create: true },
            "File" => HostPathType::File { create: false },
            "Socket" => HostPathType::Socket,
            "CharDevice" => HostPathType::CharacterDevice,
            "BlockDevice" => HostPathType::BlockDevice,
            _ => return None,
        })
    }

    /// For people, in the kubelet's words.
    fn description(self) -> &'static str {
        match self {
            HostPathType::Unchecked => "path",
            HostPathType::Directory { .. } => "directory",
            HostPathType::File { .. } => "file",
            HostPathType::Socket => "socket file",
            HostPathType::CharacterDevice => "character device",
            HostPathType::BlockDevice => "block device",
        }
    }

    fn matches(self, kind: FileType) -> bool {
        match self {
            HostPathType::Unchecked => true,
            HostPathType::Directory { .. } => kind.is_dir(),
            HostPathType::File { .. } => kind.is_file(),
            HostPathType::Socket => kind.is_socket(),
            HostPathType::CharacterDevice => kind.is_char_device(),
            HostPathType::BlockDevice => kind.is_block_device(),
        }
    }
}

/// Checks, or makes, what the volume names.
pub(super) fn set_up(source: &HostPathVolumeSource) -> Result<PathBuf, NodeError> {
    let path = Path::new(&source.path);
    let backsteps = path.components().any(|part| part == Component::ParentDir);
    if !path.is_absolute() || backsteps {
        return Err(NodeError::refused(
            path,
            "must be an absolute path without '..'",
        ));
    }
    let word = source.type_.as_deref().unwrap_or_default();
    let Some(wanted) = HostPathType::parse(word) else {
        return Err(NodeError::refused(
            path,
            format!("{word} is an invalid volume type"),
        ));
    };
    if wanted == HostPathType::Unchecked {
        return Ok(path.to_owned());
    }
    match (fs::metadata(path), wanted) {
        (Ok(found), _) if wanted.matches(found.file_type()) => {}
        (Err(error), HostPathType::Directory { create: true }) if is_absent(&error) => {
            make_directories(path)?;
        }
        (Err(error), HostPathType::File { create: true }) if is_absent(&error) => {
            let file = File::create_new(path).context("create", path)?;
            // The umask of this process is stricter.
            file.set_permissions(Permissions::from_mode(FILE_MODE))
                .context("change the mode of", path)?;
        }
        (Err(error), _) if !is_absent(&error) => return Err(NodeError::io("inspect", path, error)),
        _ => {
            let (path, wanted) = (path.display(), wanted.description());
            let message = format!("hostPath type check failed: {path} is not a {wanted}");
            return Err(NodeError::CheckFailed { message });
        }
    }
    Ok(path.to_owned())
}

/// Makes a directory and those above it that are missing.
fn make_directories(path: &Path) -> Result<(), NodeError> {
    let missing: Vec<&Path> = path
        .ancestors()
        .take_while(|ancestor| !ancestor.exists())
        .collect();
    for directory in missing.into_iter().rev() {
        match fs::create_dir(directory) {
            // Somebody else was faster: then the mode is theirs too.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            result => result.context("create", directory)?,
        }
        // The umask of this process is stricter.
        fs::set_permissions(directory, Permissions::from_mode(DIRECTORY_MODE))
            .context("change the mode of", directory)?;
    }
    Ok(())
}

fn is_absent(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &Path, type_: &str) -> HostPathVolumeSource {
        HostPathVolumeSource {
            path: path.display().to_string(),
            type_: Some(type_.to_owned()),
        }
    }

    #[test]
    fn each_type_takes_its_own_kind_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("directory")).unwrap();
        fs::write(at("file"), "").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        std::os::unix::fs::symlink(at("directory"), at("link")).unwrap();
        let (mode, major_minor) = (
            nix::sys::stat::Mode::S_IRUSR,
            nix::sys::stat::makedev(7, 250),
        );
        nix::sys::stat::mknod(
            &at("block"),
            nix::sys::stat::SFlag::S_IFBLK,
            mode,
            major_minor,
        )
        .unwrap();
        let paths = [
            at("directory"),
            at("link"),
            at("file"),
            at("socket"),
            PathBuf::from("/dev/null"),
            at("block"),
            at("none"),
        ];
        for (type_, accepted) in [
            ("", [true, true, true, true, true, true, true]),
            ("Directory", [true, true, false, false, false, false, false]),
            ("File", [false, false, true, false, false, false, false]),
            ("Socket", [false, false, false, true, false, false, false]),
            (
                "CharDevice",
                [false, false, false, false, true, false, false],
            ),
            (
                "BlockDevice",
                [false, false, false, false, false, true, false],
            ),
            (
                "DirectoryOrCreate",
                [true, true, false, false, false, false, true],
            ),
            (
                "FileOrCreate",
                [false, false, true, false, false, false, false],
            ),
            (
                "Nonsense",
                [false, false, false, false, false, false, false],
            ),
        ] {
            let outcome: Vec<_> = paths
                .iter()
                .map(|path| set_up(&source(path, type_)).is_ok())
                .collect();
            assert_eq!(outcome, accepted, "{type_}");
        }
    }

    #[test]
    fn what_is_missing_is_made_with_the_kubelets_modes() {
        let directory = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        // As in a confined process, in this thread alone.
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).unwrap();
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
        let made = set_up(&source(&directory.path().join("a/b"), "DirectoryOrCreate")).unwrap();
        assert_eq!(mode(&made), 0o755);
        assert_eq!(mode(&directory.path().join("a")), 0o755);
        let made = set_up(&source(&made.join("file"), "FileOrCreate")).unwrap();
        assert_eq!(mode(&made), 0o644);
        // A file's directory is not made.
        let missing = source(&directory.path().join("none/file"), "FileOrCreate");
        assert!(set_up(&missing).is_err());
        // What is there keeps its content.
        fs::write(&made, "kept").unwrap();
        set_up(&source(&made, "FileOrCreate")).unwrap();
        assert_eq!(fs::read(&made).unwrap(), b"kept");
    }

    #[test]
    fn a_path_is_absolute_and_has_no_backsteps() {
        for path in ["", "a", "./a", "/a/../b", ".."] {
            assert!(set_up(&source(Path::new(path), "")).is_err(), "{path:?}");
        }
        let plain = HostPathVolumeSource {
            path: "/x".to_owned(),
            type_: None,
        };
        assert_eq!(set_up(&plain).unwrap(), Path::new("/x"));
    }

    #[test]
    fn the_refusal_says_what_was_expected() {
        let error = set_up(&source(Path::new("/dev/null"), "Directory")).unwrap_err();
        let expected = "hostPath type check failed: /dev/null is not a directory";
        assert_eq!(error.to_string(), expected);
    }
}
