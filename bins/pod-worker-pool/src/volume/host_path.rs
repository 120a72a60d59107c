//! hostPath volumes: a path of the node, checked or made as its type says.
//!
//! Links are followed, as in the kubelet: who may have such a volume may have the node.

use std::ffi::OsStr;
use std::fs::{self, File, FileType, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, RenameFlags, renameat2};
use pod::core::HostPathVolumeSource;

use crate::node::NodeError;
use crate::node::error::IoContext;

/// Modes of what is made, as the kubelet has them.
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// What is being made is called so, beside where it will be.
const TEMPORARY_PREFIX: &[u8] = b".bulkhead-";
/// Attempts when several pods make the same at once.
const MAX_ATTEMPTS: usize = 20;
/// Longest name that file systems take.
const MAX_NAME_BYTES: usize = 255;

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
            Missing::File.make(path)?;
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
    missing
        .into_iter()
        .rev()
        .try_for_each(|directory| Missing::Directory.make(directory))
}

/// What is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Directory,
    File,
}

impl Missing {
    /// Makes it with its mode at once: the umask of this process is stricter, and
    /// were it killed in between, nobody would give it its mode any more.
    fn make(self, path: &Path) -> Result<(), NodeError> {
        for _ in 1..MAX_ATTEMPTS {
            match self.try_to_make(path) {
                // Another pod makes the same at the same time.
                Err(NodeError::Io { source, .. })
                    if source.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made,
            }
            if path.exists() {
                return Ok(());
            }
        }
        self.try_to_make(path)
    }

    fn try_to_make(self, path: &Path) -> Result<(), NodeError> {
        let temporary = temporary_path(path);
        // An earlier life of this process may have left it.
        self.remove(&temporary);
        let made = self.create(&temporary).context("create", &temporary)?;
        self.set_mode(&made, &temporary)?;
        let flags = RenameFlags::RENAME_NOREPLACE;
        let renamed = renameat2(AT_FDCWD, &temporary, AT_FDCWD, path, flags);
        if renamed.is_err() {
            self.remove(&temporary);
        }
        match renamed {
            // If somebody else was faster, the mode is theirs too.
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(Errno::ENOENT) => {
                let error = taken_away(Errno::ENOENT.into());
                Err(NodeError::io("create", path, error))
            }
            // Not every file system can do that, NFS for one.
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::ENOTSUP) => self.make_in_place(path),
            Err(error) => Err(NodeError::io("create", path, error.into())),
        }
    }

    fn make_in_place(self, path: &Path) -> Result<(), NodeError> {
        match self.create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => self.set_mode(&made.context("create", path)?, path),
        }
    }

    fn create(self, path: &Path) -> io::Result<File> {
        match self {
            Missing::File => File::create_new(path),
            Missing::Directory => {
                fs::create_dir(path)?;
                let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
                let mut options = OpenOptions::new();
                let opened = options.read(true).custom_flags(flags.bits()).open(path);
                opened.map_err(taken_away)
            }
        }
    }

    fn set_mode(self, made: &File, path: &Path) -> Result<(), NodeError> {
        let mode = match self {
            Missing::Directory => DIRECTORY_MODE,
            Missing::File => FILE_MODE,
        };
        made.set_permissions(Permissions::from_mode(mode))
            .context("change the mode of", path)
    }

    /// What cannot be removed makes the next creation fail, which says why.
    fn remove(self, path: &Path) {
        drop(match self {
            Missing::Directory => fs::remove_dir(path),
            Missing::File => fs::remove_file(path),
        });
    }
}

/// What was just made and is gone was taken for one that was left by who makes the
/// same: as if they had made it first.
fn taken_away(error: io::Error) -> io::Error {
    if is_absent(&error) {
        return io::ErrorKind::AlreadyExists.into();
    }
    error
}

fn temporary_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let mut temporary = [TEMPORARY_PREFIX, name].concat();
    temporary.truncate(MAX_NAME_BYTES);
    path.with_file_name(OsStr::from_bytes(&temporary))
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
    fn what_is_made_is_never_seen_without_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        // As in a confined process, in this thread alone.
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).unwrap();
        nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
        for (type_, expected) in [("DirectoryOrCreate", 0o755), ("FileOrCreate", 0o644)] {
            for attempt in 0..200 {
                let path = directory.path().join(format!("{type_}-{attempt}"));
                let seen = path.clone();
                let witness = std::thread::spawn(move || {
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
    fn what_an_earlier_life_left_half_made_goes() {
        let directory = tempfile::tempdir().unwrap();
        let name = "x".repeat(MAX_NAME_BYTES);
        for (missing, type_) in [
            (Missing::Directory, "DirectoryOrCreate"),
            (Missing::File, "FileOrCreate"),
        ] {
            let path = directory.path().join(&name);
            missing.create(&temporary_path(&path)).unwrap();
            set_up(&source(&path, type_)).unwrap();
            let entries = fs::read_dir(directory.path()).unwrap();
            let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(names, [name.as_str()]);
            missing.remove(&path);
        }
    }

    #[test]
    fn what_somebody_else_made_first_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("theirs");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o711)).unwrap();
        Missing::Directory.make(&path).unwrap();
        Missing::Directory.make_in_place(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o711);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn several_pods_may_make_the_same_at_once() {
        let directory = tempfile::tempdir().unwrap();
        for attempt in 0..50 {
            let path = directory.path().join(format!("{attempt}/deep"));
            let barrier = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        barrier.wait();
                        set_up(&source(&path, "DirectoryOrCreate")).unwrap();
                        assert!(path.is_dir());
                    });
                }
            });
            let above = path.parent().unwrap();
            assert_eq!(fs::read_dir(above).unwrap().count(), 1);
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 50);
    }

    #[test]
    fn where_nothing_can_be_renamed_it_is_made_in_place() {
        let directory = tempfile::tempdir().unwrap();
        for (missing, expected) in [(Missing::Directory, 0o755), (Missing::File, 0o644)] {
            let path = directory.path().join(format!("{missing:?}"));
            missing.make_in_place(&path).unwrap();
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, expected);
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
