//! hostPath volumes: a path of the node, opened as the node's policy allows, and checked
//! or made as its type says. It is walked name by name from opened directories, so what
//! is judged, made and given to the pod is one thing. Binding it is `pinned`.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat, openat2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, mkdirat, umask};
use node_policy::{HostPathRules, NodePath, PathAccess};
use pod::Pod;

use crate::descriptor::{self, real_path};
use crate::error::IoContext as _;
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

    fn matches(self, kind: SFlag) -> bool {
        match self {
            HostPathType::Unchecked => true,
            HostPathType::Directory { .. } => kind == SFlag::S_IFDIR,
            HostPathType::File { .. } => kind == SFlag::S_IFREG,
            HostPathType::Socket => kind == SFlag::S_IFSOCK,
            HostPathType::CharacterDevice => kind == SFlag::S_IFCHR,
            HostPathType::BlockDevice => kind == SFlag::S_IFBLK,
        }
    }
}

/// A hostPath volume of a pod, and what the node's policy says of it.
pub(super) struct HostPath<'a> {
    pub(super) pod: &'a Pod,
    pub(super) wanted: &'a pod_volumes::HostPath,
    pub(super) rules: &'a HostPathRules,
}

impl HostPath<'_> {
    /// Opens what the volume names, or makes it as its type says. What is opened is what
    /// was judged, whatever becomes of its path. It can be bound and inspected, not read.
    pub(super) fn open(&self) -> Result<OwnedFd, NodeError> {
        let given = Path::new(&self.wanted.path);
        let path = NodePath::parse(&self.wanted.path)
            .map_err(|error| NodeError::refused(given, error.to_string()))?;
        let word = self.wanted.path_type.as_str();
        let Some(wanted) = HostPathType::parse(word) else {
            let reason = format!("{word} is an invalid volume type");
            return Err(NodeError::refused(given, reason));
        };
        let access = match self.rules.access(self.pod, self.wanted.index) {
            Ok(access) => access.ok_or_else(|| NodeError::refused(given, "nobody asks for it"))?,
            Err(refusal) => {
                self.refused(refusal.to_string())?;
                PathAccess::unrestricted()
            }
        };
        let walk = Walk {
            volume: self,
            path: &path,
            access,
            wanted,
        };
        let opened = walk.walk()?;
        let kind = SFlag::from_bits_truncate(descriptor::status(&opened)?.st_mode) & SFlag::S_IFMT;
        self.check(&real_path(&opened)?, kind == SFlag::S_IFBLK)?;
        match wanted.matches(kind) {
            true => Ok(opened),
            false => Err(walk.is_of_wrong_type()),
        }
    }

    /// Whether the policy gives what is at this path, which has no links.
    fn check(&self, real: &Path, is_disk: bool) -> Result<(), NodeError> {
        let Some(text) = real.to_str() else {
            return Err(NodeError::refused(real, "the path is not UTF-8"));
        };
        let checked = self
            .rules
            .check_opened(self.pod, self.wanted.index, text, is_disk);
        checked.or_else(|refusal| self.refused(refusal.to_string()))
    }

    /// The error of a refusal, unless the policy only audits.
    fn refused(&self, message: String) -> Result<(), NodeError> {
        match self.rules.refuses(&message) {
            true => Err(NodeError::CheckFailed { message }),
            false => Ok(()),
        }
    }
}

/// The way from the root to what a volume names, one name after the other.
struct Walk<'a> {
    volume: &'a HostPath<'a>,
    path: &'a NodePath,
    access: PathAccess,
    wanted: HostPathType,
}

impl Walk<'_> {
    fn walk(&self) -> Result<OwnedFd, NodeError> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = Path::new("/");
        let mut opened = open(root, flags, Mode::empty()).context("open", root)?;
        let mut names = self.path.components().enumerate().peekable();
        while let Some((number, name)) = names.next() {
            let is_last = names.peek().is_none();
            opened = match self.step(&opened, number, is_last, name)? {
                Some(opened) => opened,
                None => {
                    self.make(&opened, number, is_last, name)?;
                    // A link that leads nowhere is as good as absent until something
                    // is to be made in its place.
                    let made = self.step(&opened, number, is_last, name)?;
                    made.ok_or_else(|| self.is_of_wrong_type())?
                }
            };
        }
        Ok(opened)
    }

    /// What has this name in a directory; `None` if nothing has.
    fn step(
        &self,
        directory: &OwnedFd,
        number: usize,
        is_last: bool,
        name: &str,
    ) -> Result<Option<OwnedFd>, NodeError> {
        let mut follows = self.access.follows_link_at(number);
        let mut stepped = step(directory, name, is_last, follows);
        if matches!(stepped, Err(Errno::ELOOP)) && !follows {
            let at = real_path(directory)?.join(name);
            self.volume.refused(format!(
                "{} is a link, and links below {} are not followed for this pod: a grant with \
                 followLinks = true would allow it",
                at.display(),
                self.access.trusted
            ))?;
            follows = true;
            stepped = step(directory, name, is_last, follows);
        }
        match stepped {
            Ok(opened) => Ok(Some(opened)),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(NodeError::io("open", self.path.as_str(), error.into())),
        }
    }

    /// Makes what is missing, if the volume's type says so and the policy allows it.
    fn make(
        &self,
        directory: &OwnedFd,
        number: usize,
        is_last: bool,
        name: &str,
    ) -> Result<(), NodeError> {
        let missing = match self.wanted {
            HostPathType::Directory { create: true } => Missing::Directory,
            HostPathType::File { create: true } => Missing::File,
            // The runtime would make a directory.
            HostPathType::Unchecked if !self.access.read_only => Missing::Directory,
            HostPathType::Unchecked => {
                let reason = "it is missing, and is not made for a pod that only reads it";
                return Err(NodeError::refused(self.path.as_str(), reason));
            }
            _ => return Err(self.is_of_wrong_type()),
        };
        // What the owner of the node named can only be where the directories above it are.
        if !self.access.is_above_trusted(number) {
            self.volume
                .check(&real_path(directory)?.join(name), false)?;
        }
        let made = match missing {
            // A file's directory is not made.
            Missing::File if !is_last => Err(Errno::ENOENT.into()),
            missing => missing.make(directory, name),
        };
        made.context("create", Path::new(self.path.as_str()))
    }

    fn is_of_wrong_type(&self) -> NodeError {
        let (path, wanted) = (&self.volume.wanted.path, self.wanted.description());
        let message = format!("hostPath type check failed: {path} is not a {wanted}");
        NodeError::CheckFailed { message }
    }
}

fn step(directory: &OwnedFd, name: &str, is_last: bool, follows: bool) -> nix::Result<OwnedFd> {
    let mut resolve = ResolveFlag::RESOLVE_NO_MAGICLINKS;
    if !follows {
        resolve |= ResolveFlag::RESOLVE_NO_SYMLINKS;
    }
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    let how = OpenHow::new().resolve(resolve);
    // What is mounted on demand is mounted only for who asks for a directory.
    match openat2(directory, name, how.flags(flags | OFlag::O_DIRECTORY)) {
        Err(Errno::ENOTDIR) if is_last => openat2(directory, name, how.flags(flags)),
        opened => opened,
    }
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
    fn make(self, directory: &OwnedFd, name: &str) -> io::Result<()> {
        let made = with_exact_modes(|| match self {
            Missing::Directory => {
                let mode = Mode::from_bits_truncate(DIRECTORY_MODE);
                Ok(mkdirat(directory, name, mode)?)
            }
            Missing::File => {
                let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
                let mode = Mode::from_bits_truncate(FILE_MODE);
                Ok(openat(directory, name, flags, mode).map(drop)?)
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
pub(super) fn with_exact_modes<T: Send>(
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
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
mod tests;
