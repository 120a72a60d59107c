//! hostPath volumes: a path of the node, checked or made as its type says.
//!
//! Links are followed, as in the kubelet: who may have such a volume may have the node.

use std::fs::{self, DirBuilder, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, umask};
use pod::core::HostPathVolumeSource;

use crate::error::IoContext;
use crate::error::NodeError;

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

    /// What is made where nothing is.
    fn created(self) -> Option<Missing> {
        match self {
            HostPathType::Directory { create: true } => Some(Missing::Directory),
            HostPathType::File { create: true } => Some(Missing::File),
            _ => None,
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
    if let Some(missing) = wanted.created()
        && is_absent(path)?
    {
        missing.make(path).context("create", path)?;
    }
    check(path, wanted)?;
    Ok(path.to_owned())
}

/// Also of what was just made: something else may have been faster, and a link that
/// leads nowhere is as good as absent until something is to be made in its place.
fn check(path: &Path, wanted: HostPathType) -> Result<(), NodeError> {
    match fs::metadata(path) {
        Ok(found) if wanted.matches(found.file_type()) => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(NodeError::io("inspect", path, error))
        }
        _ => {
            let (path, wanted) = (path.display(), wanted.description());
            let message = format!("hostPath type check failed: {path} is not a {wanted}");
            Err(NodeError::CheckFailed { message })
        }
    }
}

fn is_absent(path: &Path) -> Result<bool, NodeError> {
    let exists = fs::exists(path).context("inspect", path)?;
    Ok(!exists)
}

/// What may be made where it is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// With those above it.
    Directory,
    /// In a directory that is there.
    File,
}

impl Missing {
    /// Makes it unless it is there by now: somebody else may make the same.
    fn make(self, path: &Path) -> io::Result<()> {
        let made = with_exact_modes(|| match self {
            Missing::Directory => {
                let mut builder = DirBuilder::new();
                builder.recursive(true).mode(DIRECTORY_MODE).create(path)
            }
            Missing::File => {
                let mut options = OpenOptions::new();
                options.write(true).create_new(true).mode(FILE_MODE);
                options.open(path).map(drop)
            }
        });
        match made {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }
}

/// Does `work` without the umask of this process, which is stricter than the modes
/// that are wanted here: in a thread of its own, because a umask is that of all
/// threads which do not have one of theirs. A mode that is given afterwards would
/// never be given if the process were killed in between.
fn with_exact_modes<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().spawn_scoped(scope, || {
            unshare(CloneFlags::CLONE_FS)?;
            umask(Mode::empty());
            work()
        })?;
        let result = thread.join();
        result.unwrap_or_else(|_| Err(io::Error::other("the thread that makes it panicked")))
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn source(path: &Path, type_: &str) -> HostPathVolumeSource {
        HostPathVolumeSource {
            path: path.display().to_string(),
            type_: Some(type_.to_owned()),
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    /// As in a confined process, for this thread and those that it starts.
    fn strict_umask() {
        unshare(CloneFlags::CLONE_FS).unwrap();
        umask(Mode::from_bits_truncate(0o077));
    }

    #[test]
    fn each_type_takes_its_own_kind_and_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("directory")).unwrap();
        fs::write(at("file"), "").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        symlink(at("directory"), at("link")).unwrap();
        let (mode, major_minor) = (Mode::S_IRUSR, nix::sys::stat::makedev(7, 250));
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
        strict_umask();
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
    fn what_is_made_is_never_seen_without_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        strict_umask();
        for (type_, expected) in [("DirectoryOrCreate", 0o755), ("FileOrCreate", 0o644)] {
            for attempt in 0..200 {
                let path = directory.path().join(format!("{type_}-{attempt}"));
                let seen = path.clone();
                let witness = thread::spawn(move || {
                    loop {
                        if let Ok(found) = fs::metadata(&seen) {
                            return found.permissions().mode() & 0o777;
                        }
                    }
                });
                set_up(&source(&path, type_)).unwrap();
                assert_eq!(witness.join().unwrap(), expected, "{type_}");
            }
        }
    }

    #[test]
    fn what_somebody_else_made_first_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        for missing in [Missing::Directory, Missing::File] {
            let path = directory.path().join(format!("{missing:?}"));
            missing.make(&path).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o711)).unwrap();
            missing.make(&path).unwrap();
            assert_eq!(mode(&path), 0o711);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn several_pods_may_make_the_same_at_once() {
        let directory = tempfile::tempdir().unwrap();
        strict_umask();
        for (type_, name, expected) in [
            ("DirectoryOrCreate", "directory/deep", 0o755),
            ("FileOrCreate", "file", 0o644),
        ] {
            for attempt in 0..50 {
                let above = directory.path().join(format!("{type_}-{attempt}"));
                fs::create_dir(&above).unwrap();
                let path = above.join(name);
                let barrier = std::sync::Barrier::new(4);
                thread::scope(|scope| {
                    for _ in 0..4 {
                        scope.spawn(|| {
                            barrier.wait();
                            set_up(&source(&path, type_)).unwrap();
                            assert_eq!(mode(&path), expected, "{type_}");
                        });
                    }
                });
                assert_eq!(fs::read_dir(&above).unwrap().count(), 1);
            }
        }
    }

    #[test]
    fn what_cannot_be_made_is_an_error_that_names_the_path() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        symlink(at("nowhere"), at("dangling")).unwrap();
        fs::write(at("file"), "").unwrap();
        let names = ["dangling", "dangling/below", "file/below"];
        for type_ in ["DirectoryOrCreate", "FileOrCreate"] {
            for path in names.map(at) {
                let error = set_up(&source(&path, type_)).unwrap_err().to_string();
                let named = path.display().to_string();
                assert!(error.contains(&named), "{type_}: {error}");
            }
        }
        assert!(!at("nowhere").exists(), "nothing was made behind a link");
        let error = set_up(&source(&at("dangling"), "FileOrCreate")).unwrap_err();
        let expected = format!(
            "hostPath type check failed: {} is not a file",
            at("dangling").display()
        );
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn of_two_pods_that_make_different_types_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for attempt in 0..200 {
            let path = directory.path().join(attempt.to_string());
            let barrier = std::sync::Barrier::new(2);
            let made = thread::scope(|scope| {
                let threads = ["DirectoryOrCreate", "FileOrCreate"].map(|type_| {
                    scope.spawn(|| {
                        barrier.wait();
                        set_up(&source(&path, type_))
                    })
                });
                threads.map(|thread| thread.join().unwrap())
            });
            let refused = made.into_iter().filter_map(Result::err);
            let refused: Vec<String> = refused.map(|error| error.to_string()).collect();
            assert_eq!(refused.len(), 1, "{refused:?}");
            assert!(refused[0].starts_with("hostPath type check failed"));
        }
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
