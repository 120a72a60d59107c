//! Reading the objects directory. What may be in it are Secrets and what decides over pods,
//! so only root's files count, and nothing outside is ever read. All of it may block for as
//! long as the file system likes.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use manifest_files::{ListError, Place, display_path, names, open_place};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, SFlag, fstat};
use pod_manifest::local_objects;

use crate::object_set::{Findings, MAX_TOTAL_BYTES, Room};

/// Largest file: an object of 1 MiB in base64, and what is around it.
const MAX_FILE_BYTES: u64 = 3 << 20;

/// Most files. Each has an object at least.
const MAX_FILES: usize = 1024;

/// So many of the names that are not read are told: they end up in a log line.
const TOLD_NAMES: usize = 8;

/// Most bytes of all files: twice what the objects may have, for what is around them.
pub(crate) const MAX_READ_BYTES: usize = 2 * MAX_TOTAL_BYTES;

/// Whoever may write so may put something else there.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Whose files count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner(pub(crate) u32);

impl Owner {
    /// The only one on a node.
    pub(crate) const ROOT: Owner = Owner(0);

    fn check(self, status: &FileStat) -> Result<(), String> {
        if status.st_uid != self.0 {
            return Err("does not belong to root, and is not read".to_owned());
        }
        if status.st_mode & WRITABLE_BY_OTHERS != 0 {
            return Err("others than its owner may write it, and it is not read".to_owned());
        }
        Ok(())
    }
}

/// What is in the directory, by path of each file, of at most `max_bytes` of files, and of
/// objects for which there is room; `None` if there is no directory. Of too many names those
/// are read that were good at the last look, by `known` paths, and then the first; of the
/// others the directory's own path tells.
///
/// # Errors
/// When the directory cannot be listed, or is not root's alone.
pub(crate) fn look(
    path: &Path,
    owner: Owner,
    known: &BTreeSet<String>,
    max_bytes: usize,
    mut room: Room,
) -> Result<Option<Findings>, String> {
    let directory = match open_place(path) {
        Ok(Place::Directory(directory)) => directory,
        // Of either, what was good before is kept.
        Ok(Place::Absent) | Err(ListError::LeadsNowhere) => return Ok(None),
        Err(error) => return Err(error.to_string()),
        Ok(Place::File) => return Err("is a file, not a directory".to_owned()),
    };
    let status = fstat(&directory).map_err(|error| error.desc().to_owned())?;
    owner.check(&status)?;
    let names = names(&directory).map_err(|error| error.to_string())?;
    let is_known = |name: &OsStr| known.contains(&display_path(path, name));
    let mut findings = Findings::new();
    let (chosen, left_out) = choose(names, is_known);
    if !left_out.is_empty() {
        findings.insert(path.display().to_string(), Err(not_read(&left_out)));
    }
    let mut left = max_bytes;
    for name in chosen {
        let read = match read(&directory, &name, owner) {
            Ok(None) => continue,
            Ok(Some(bytes)) if bytes.len() > left => Err(format!(
                "is not read: there may be {max_bytes} bytes of files at most"
            )),
            Ok(Some(bytes)) => {
                left -= bytes.len();
                local_objects(&bytes).and_then(|objects| {
                    room.take(objects.iter().map(|it| &it.object))?;
                    Ok(objects)
                })
            }
            Err(problem) => Err(problem),
        };
        findings.insert(display_path(path, &name), read);
    }
    Ok(Some(findings))
}

/// The names that are read, those that are known first, so that new ones never displace
/// them; and those that are left out. Both sorted.
fn choose(
    names: BTreeSet<OsString>,
    is_known: impl Fn(&OsStr) -> bool,
) -> (Vec<OsString>, Vec<OsString>) {
    let (mut chosen, new): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| is_known(name));
    let room = MAX_FILES.saturating_sub(chosen.len());
    let mut new = new.into_iter();
    chosen.extend(new.by_ref().take(room));
    chosen.sort();
    (chosen, new.collect())
}

fn not_read(left_out: &[OsString]) -> String {
    let told = left_out.iter().take(TOLD_NAMES);
    let told: Vec<_> = told.map(|name| name.display().to_string()).collect();
    let more = match left_out.len() - told.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let told = told.join(", ");
    format!("at most {MAX_FILES} names are read, and not {told}{more}")
}

/// The bytes of a file; `None` of a directory, and of what is gone. Nothing is opened
/// before it is known to be a file: a device may act when it is opened.
fn read(directory: &OwnedFd, name: &OsStr, owner: Owner) -> Result<Option<Vec<u8>>, String> {
    let handle = match open(directory, name, OFlag::O_PATH) {
        Ok(handle) => handle,
        Err(Errno::ENOENT) => return Ok(None),
        Err(error) => return Err(said(error)),
    };
    let status = fstat(&handle).map_err(said)?;
    match SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG => {}
        SFlag::S_IFDIR => return Ok(None),
        _ => return Err("is no file".to_owned()),
    }
    owner.check(&status)?;
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::from(open(directory, name, flags).map_err(said)?);
    // What was opened, and not what was looked at: it may have been replaced.
    let status = fstat(&file).map_err(said)?;
    owner.check(&status)?;
    let mut bytes = Vec::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    match u64::try_from(bytes.len()) {
        Ok(length) if length <= MAX_FILE_BYTES => Ok(Some(bytes)),
        _ => Err(format!("has more than {MAX_FILE_BYTES} bytes")),
    }
}

fn open(directory: &OwnedFd, name: &OsStr, flags: OFlag) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(resolve);
    openat2(directory.as_fd(), name, how)
}

fn said(error: Errno) -> String {
    match error {
        Errno::EXDEV => "is a link that leaves the directory, or begins with /".to_owned(),
        Errno::ELOOP => "is a link that leads nowhere".to_owned(),
        error => format!("cannot be read: {}", error.desc()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use nix::sys::stat::Mode;
    use nix::unistd::{geteuid, mkfifo};

    use super::*;

    const OBJECT: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        set_mode(directory.path(), 0o750);
        directory
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mine() -> Owner {
        Owner(geteuid().as_raw())
    }

    /// With nothing known before.
    fn look_at(path: &Path) -> Result<Option<Findings>, String> {
        look(path, mine(), &BTreeSet::new(), MAX_READ_BYTES, Room::ALL)
    }

    /// Of the file `name`: how many objects it has, or what is wrong.
    fn found(directory: &tempfile::TempDir, name: &str) -> Option<Result<usize, String>> {
        let path = directory.path().join(name).display().to_string();
        let found = look_at(directory.path()).unwrap();
        let mut found = found.unwrap();
        found.remove(&path).map(|found| found.map(|it| it.len()))
    }

    #[test]
    fn files_that_only_their_owner_may_write_are_read() {
        let directory = directory();
        let path = directory.path().join("a.yaml");
        fs::write(&path, OBJECT).unwrap();
        for (mode, is_read) in [
            (0o600, true),
            (0o640, true),
            (0o644, true),
            (0o660, false),
            (0o602, false),
        ] {
            set_mode(&path, mode);
            let found = found(&directory, "a.yaml").unwrap();
            assert_eq!(found.is_ok(), is_read, "{mode:o}: {found:?}");
        }
        set_mode(&path, 0o600);
        let others = look(
            directory.path(),
            Owner(geteuid().as_raw() + 1),
            &BTreeSet::new(),
            MAX_READ_BYTES,
            Room::ALL,
        );
        assert!(others.unwrap_err().contains("does not belong"));
        set_mode(directory.path(), 0o770);
        assert!(look_at(directory.path()).unwrap_err().contains("may write"));
    }

    #[test]
    fn nothing_but_files_within_the_directory_is_read() {
        let (directory, outside) = (directory(), directory());
        let at = |name: &str| directory.path().join(name);
        fs::write(outside.path().join("secret"), OBJECT).unwrap();
        symlink(outside.path().join("secret"), at("out")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        mkfifo(&at("fifo"), Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        fs::create_dir(at("deeper")).unwrap();
        fs::write(at(".hidden"), OBJECT).unwrap();
        fs::write(at("large"), vec![b'x'; (3 << 20) + 1]).unwrap();
        fs::write(at("good"), OBJECT).unwrap();
        for name in ["large", "good", ".hidden"] {
            set_mode(&at(name), 0o600);
        }
        symlink("good", at("link")).unwrap();
        for (name, expected) in [
            (
                "out",
                Some(Err("is a link that leaves the directory, or begins with /")),
            ),
            ("dangling", None),
            ("fifo", Some(Err("is no file"))),
            ("deeper", None),
            (".hidden", None),
            ("large", Some(Err("has more than 3145728 bytes"))),
            ("good", Some(Ok(1))),
            ("link", Some(Ok(1))),
        ] {
            let expected = expected.map(|it| it.map_err(str::to_owned));
            assert_eq!(found(&directory, name), expected, "{name}");
        }
    }

    #[test]
    fn of_too_many_names_the_known_and_then_the_first_are_read_and_the_others_told() {
        let directory = directory();
        let path_of = |number: usize| directory.path().join(format!("{number:04}"));
        for number in 0..MAX_FILES + TOLD_NAMES + 2 {
            fs::write(path_of(number), OBJECT).unwrap();
            set_mode(&path_of(number), 0o600);
        }
        let path = directory.path().display().to_string();
        let last = path_of(MAX_FILES + TOLD_NAMES + 1).display().to_string();
        for (known, first, told) in [
            (
                BTreeSet::new(),
                MAX_FILES,
                "1024, 1025, 1026, 1027, 1028, 1029, 1030, 1031 and 2 more",
            ),
            (
                [last].into(),
                MAX_FILES - 1,
                "1023, 1024, 1025, 1026, 1027, 1028, 1029, 1030 and 2 more",
            ),
        ] {
            let found = look(directory.path(), mine(), &known, MAX_READ_BYTES, Room::ALL);
            let mut found = found.unwrap().unwrap();
            let reason = found.remove(&path).unwrap().unwrap_err();
            let expected = format!("at most 1024 names are read, and not {told}");
            assert_eq!(reason, expected);
            assert_eq!(found.len(), MAX_FILES);
            assert!(known.iter().all(|path| found.contains_key(path)));
            let first_left_out = path_of(first).display().to_string();
            assert!(!found.contains_key(&first_left_out));
        }
        for number in MAX_FILES..MAX_FILES + TOLD_NAMES + 2 {
            fs::remove_file(path_of(number)).unwrap();
        }
        let found = look_at(directory.path()).unwrap().unwrap();
        assert!(!found.contains_key(&path));
    }

    #[test]
    fn files_beyond_the_bound_of_all_are_not_read_and_smaller_ones_after_them_are() {
        let directory = directory();
        for (name, length) in [("a", 60), ("b", 100), ("c", 0)] {
            let path = directory.path().join(name);
            fs::write(&path, format!("{OBJECT}#{}", "x".repeat(length))).unwrap();
            set_mode(&path, 0o600);
        }
        let max_bytes = 2 * OBJECT.len() + 80;
        let found = look(
            directory.path(),
            mine(),
            &BTreeSet::new(),
            max_bytes,
            Room::ALL,
        );
        let found = found.unwrap().unwrap();
        let is_read: Vec<_> = found.values().map(Result::is_ok).collect();
        assert_eq!(is_read, [true, false, true], "{found:?}");
    }

    #[test]
    fn objects_beyond_the_bound_of_all_are_not_held_and_smaller_ones_after_them_are() {
        let directory = directory();
        for (name, length) in [("a", 60), ("b", 100), ("c", 0)] {
            let path = directory.path().join(name);
            let value = "x".repeat(length);
            fs::write(&path, format!("{OBJECT}data: {{k: \"{value}\"}}")).unwrap();
            set_mode(&path, 0o600);
        }
        for (objects, bytes, expected) in [
            (3, 80, [true, false, true]),
            (3, 200, [true, true, true]),
            (2, 200, [true, true, false]),
        ] {
            let room = Room { objects, bytes };
            let found = look(
                directory.path(),
                mine(),
                &BTreeSet::new(),
                MAX_READ_BYTES,
                room,
            );
            let found = found.unwrap().unwrap();
            let is_held: Vec<_> = found.values().map(Result::is_ok).collect();
            assert_eq!(is_held, expected, "{found:?}");
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_none_and_a_file_is_an_error() {
        let directory = directory();
        let absent = look_at(&directory.path().join("absent"));
        assert_eq!(absent, Ok(None));
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!(look_at(&file).unwrap_err(), "is a file, not a directory");
    }
}
