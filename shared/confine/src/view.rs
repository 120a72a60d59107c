//! A mount namespace in which a process sees nothing but what it is shown: an empty root
//! directory, and in it binds of the node's directories, with the links that lead there. Or
//! it sees the node's files, read-only, where some places are empty but for what it is shown.
//!
//! Beside rights to files (Landlock) this keeps sockets with a path from it, which
//! everybody may connect to on many nodes, such as that of the system's message bus.
//!
//! What does not live here: who is shown what (`topology` and `process`).

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CString, OsString};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Component, Path, PathBuf};

use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, pivot_root};
use topology::{Hidden, Sight};

use crate::files::Files;

/// What a process sees of the node's files; beside it an own `/proc`, which shows no other
/// process. Paths that do not exist are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// What it may read and, the second kind, change, as far as modes permit.
    pub files: Files,
    /// What it may read and run.
    pub programs: Vec<PathBuf>,
    /// What it sees beside that.
    pub sight: Sight,
}

/// Where the new root directory is put together: a directory that every node has, and
/// that holds nothing to be shown.
const ASSEMBLY: &str = "/proc";

/// Enough for directories and links that lead to what is shown.
const ROOT_OPTIONS: &str = "mode=0755,size=64k,nr_inodes=1024";

/// Beside the size of what everybody may write to: the kernel needs memory for each file.
const ROOM_OPTIONS: &str = "mode=1777,nr_inodes=4096";

/// Of processes, only those of the same user; of the kernel, nothing else (proc(5)).
const PROC_OPTIONS: &str = "hidepid=invisible,subset=pid";

/// As path_resolution(7) has it.
const MAX_LINKS: usize = 40;

/// What a mount of the view has; the rest is forbidden to all of them.
const EVERY_MOUNT: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// Where there are no programs.
const NOTHING_RUNS: u64 = EVERY_MOUNT | libc::MOUNT_ATTR_NOEXEC;

/// What is a device, or leads to one.
const DEVICE: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC | libc::MOUNT_ATTR_RDONLY;

/// Makes the view the whole file system of the calling thread, which must be in a new mount
/// namespace. The node's later mounts below what is shown appear in it, not the other way.
pub(crate) fn enter(view: &View) -> io::Result<()> {
    let slave = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    mount(None::<&str>, "/", None::<&str>, slave, None::<&str>)?;
    let root = Path::new(ASSEMBLY);
    let covers = match view.sight {
        Sight::Listed => {
            mount_new("tmpfs", root, ROOT_OPTIONS)?;
            Covers::from([(PathBuf::from("/"), None)])
        }
        Sight::NodeBut(hidden) => {
            bind(Path::new("/"), root)?;
            restrict(root, true, EVERY_MOUNT | libc::MOUNT_ATTR_RDONLY)?;
            hide(root, hidden)?
        }
    };
    let laid_out = LaidOut::of(view, &covers)?;
    let make = |directory: &Path| make_directories(root, directory, view.sight);
    for (path, attributes) in &laid_out.shown {
        let target = below(root, path);
        make_mount_point(path, &target, make)?;
        bind(path, &target)?;
        restrict(&target, true, *attributes)?;
    }
    for (link, leads_to) in &laid_out.links {
        link.parent().map_or(Ok(()), make)?;
        symlink(leads_to, below(root, link))?;
    }
    make(Path::new("/proc"))?;
    let processes = root.join("proc");
    mount_new("proc", &processes, PROC_OPTIONS)?;
    restrict(&processes, false, NOTHING_RUNS)?;
    for (path, _) in covers.iter().filter(|(_, room)| room.is_none()) {
        restrict(
            &below(root, path),
            false,
            NOTHING_RUNS | libc::MOUNT_ATTR_RDONLY,
        )?;
    }
    // The node's root directory comes to lie above the new one, and is taken off.
    chdir(root)?;
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    chdir("/")?;
    Ok(())
}

/// Where empty directories lie over the node's, and what may be written there. Parents come
/// first.
type Covers = BTreeMap<PathBuf, Option<u64>>;

/// Covers places of the node's files in `root`.
fn hide(root: &Path, hidden: &[Hidden]) -> io::Result<Covers> {
    let mut covers = Covers::new();
    for place in hidden {
        let path = Path::new(place.path);
        // What is mounted there is unmounted in this copy before anybody looks at it: it may be
        // a disk of the network that hangs.
        let flags = MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW;
        while umount2(&below(root, path), flags).is_ok() {}
        if covers.keys().any(|it| path.starts_with(it)) {
            make_directories(root, path, Sight::Listed)?;
        }
        let found = follow(root, path, &mut BTreeMap::new())?;
        // Two names may lead to one place.
        let Some(path) = found.filter(|it| !covers.contains_key(it)) else {
            continue;
        };
        let options = match place.room {
            Some(bytes) => format!("{ROOM_OPTIONS},size={bytes}"),
            None => ROOT_OPTIONS.to_owned(),
        };
        mount_new("tmpfs", &below(root, &path), &options)?;
        covers.insert(path, place.room);
    }
    Ok(covers)
}

/// What is to be bound and linked.
#[derive(Debug, Default, PartialEq, Eq)]
struct LaidOut {
    /// Paths without links, and what their mounts are forbidden. Parents come first.
    shown: BTreeMap<PathBuf, u64>,
    /// Links that lead to them and are in none of them, and where to.
    links: BTreeMap<PathBuf, PathBuf>,
}

impl LaidOut {
    fn of(view: &View, covers: &Covers) -> io::Result<LaidOut> {
        let (noexec, read_only) = (libc::MOUNT_ATTR_NOEXEC, libc::MOUNT_ATTR_RDONLY);
        let kinds = [
            (&view.programs, EVERY_MOUNT | read_only),
            (&view.files.read, EVERY_MOUNT | noexec | read_only),
            (&view.files.write, EVERY_MOUNT | noexec),
        ];
        let mut laid_out = LaidOut::default();
        let mut links = BTreeMap::new();
        for (paths, attributes) in kinds {
            for path in paths {
                if let Some(path) = follow(Path::new("/"), path, &mut links)? {
                    if path.parent().is_none() {
                        let whole = "it would be shown the whole file system";
                        return Err(io::Error::new(io::ErrorKind::InvalidInput, whole));
                    }
                    let entry = laid_out.shown.entry(path).or_insert(attributes);
                    // What is of two kinds is permitted what both are.
                    *entry &= attributes;
                }
            }
        }
        // What is not covered is seen anyway, as far as it is not to be changed.
        let is_covered = |path: &Path| path.ancestors().any(|it| covers.contains_key(it));
        laid_out
            .shown
            .retain(|path, attributes| *attributes & read_only == 0 || is_covered(path));
        if let Sight::NodeBut(hidden) = view.sight {
            let kept = hidden.iter().flat_map(|it| it.keeps);
            for path in kept.map(PathBuf::from).filter(|it| is_covered(it)) {
                match path.read_link() {
                    Ok(leads_to) => drop(links.insert(path, leads_to)),
                    Err(_) if path.exists() => drop(laid_out.shown.insert(path, DEVICE)),
                    Err(_) => {}
                }
            }
        }
        let is_shown = |link: &Path| link.ancestors().any(|it| laid_out.shown.contains_key(it));
        links.retain(|link, _| is_covered(link) && !is_shown(link));
        laid_out.links = links;
        Ok(laid_out)
    }
}

/// Where a path leads in a root directory, and the links on the way; none if there is nothing.
fn follow(
    root: &Path,
    path: &Path,
    links: &mut BTreeMap<PathBuf, PathBuf>,
) -> io::Result<Option<PathBuf>> {
    let mut at = PathBuf::from("/");
    let mut rest: VecDeque<OsString> = components(path).collect();
    let mut followed = 0;
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        let found = match fs::symlink_metadata(below(root, &next)) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !found.is_symlink() {
            at = next;
            continue;
        }
        followed += 1;
        if followed > MAX_LINKS {
            return Ok(None);
        }
        let leads_to = fs::read_link(below(root, &next))?;
        if leads_to.is_absolute() {
            at = PathBuf::from("/");
        }
        for name in components(&leads_to).rev() {
            rest.push_front(name);
        }
        links.insert(next, leads_to);
    }
    Ok(Some(at))
}

/// The names in a path, and `..`.
fn components(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

/// The path in the new root directory.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// A directory or a file to bind `path` over, unless what is above it is shown and has it.
fn make_mount_point(
    path: &Path,
    target: &Path,
    make: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<()> {
    if target.exists() {
        return Ok(());
    }
    if path.is_dir() {
        return make(path);
    }
    path.parent().map_or(Ok(()), make)?;
    fs::write(target, "")
}

/// A directory and those above it, which everybody may pass whatever the umask is. Beside
/// the node's files they have the owner and the mode of the node's: by these programs see
/// whether others can change what is there.
fn make_directories(root: &Path, directory: &Path, sight: Sight) -> io::Result<()> {
    let made = below(root, directory);
    if made.exists() {
        return Ok(());
    }
    let above = directory.parent();
    above.map_or(Ok(()), |above| make_directories(root, above, sight))?;
    fs::create_dir(&made)?;
    let mut mode = 0o755;
    if sight != Sight::Listed {
        let like = fs::metadata(directory)?;
        chown(&made, Some(like.uid()), Some(like.gid()))?;
        mode = like.mode() & 0o7777;
    }
    fs::set_permissions(&made, Permissions::from_mode(mode))
}

/// With all mounts below.
fn bind(path: &Path, target: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    Ok(mount(
        Some(path),
        target,
        None::<&str>,
        flags,
        None::<&str>,
    )?)
}

fn mount_new(kind: &str, target: &Path, options: &str) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    Ok(mount(Some(kind), target, Some(kind), flags, Some(options))?)
}

/// Forbids a mount, or it and those below it, what the attributes say (mount_setattr(2),
/// Linux 5.12).
fn restrict(target: &Path, recursively: bool, attributes: u64) -> io::Result<()> {
    let path = CString::new(target.as_os_str().as_bytes())?;
    let flags = match recursively {
        true => libc::AT_RECURSIVE,
        false => 0,
    };
    let attributes = libc::mount_attr {
        attr_set: attributes,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: reads the path up to its NUL and as many bytes of the structure as it has.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_on_the_way_are_shown_and_what_they_lead_to_is_bound() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        for name in ["usr/lib", "etc", "run"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("run/resolv.conf"), "").unwrap();
        symlink("usr/lib", at("lib")).unwrap();
        symlink("../run/resolv.conf", at("etc/resolv.conf")).unwrap();
        symlink("../etc", at("run/etc")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let view = View {
            files: Files {
                read: vec![at("etc/resolv.conf"), at("absent"), at("loop/x")],
                write: vec![at("run/etc")],
            },
            programs: vec![at("lib"), at("run/resolv.conf")],
            sight: Sight::Listed,
        };
        let covers = |path| Covers::from([(path, None)]);
        let laid_out = LaidOut::of(&view, &covers("/".into())).unwrap();
        let read_only = EVERY_MOUNT | libc::MOUNT_ATTR_RDONLY;
        let noexec = EVERY_MOUNT | libc::MOUNT_ATTR_NOEXEC;
        let shown = [
            (at("etc"), noexec),
            (at("run/resolv.conf"), read_only),
            (at("usr/lib"), read_only),
        ];
        assert_eq!(laid_out.shown, shown.into());
        // Not that in `etc`, which is bound with all that is in it.
        let links = [("lib", "usr/lib"), ("run/etc", "../etc"), ("loop", "loop")];
        let links = links.map(|(link, leads_to)| (at(link), PathBuf::from(leads_to)));
        assert_eq!(laid_out.links, links.into());

        // Beside the node's files only what is covered, and what may be changed.
        let laid_out = LaidOut::of(&view, &covers(at("run"))).unwrap();
        let shown = [(at("etc"), noexec), (at("run/resolv.conf"), read_only)];
        assert_eq!(laid_out.shown, shown.into());
        let links = [(at("run/etc"), PathBuf::from("../etc"))];
        assert_eq!(laid_out.links, links.into());
    }

    #[test]
    fn the_whole_file_system_is_no_view() {
        let mut view = View::default();
        view.files.read.push("/etc/..".into());
        let covers = Covers::from([(PathBuf::from("/"), None)]);
        assert!(LaidOut::of(&view, &covers).is_err());
    }
}
