//! A manifest directory on a real disk: what is read, and what never is.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use nix::unistd::mkfifo;
use tempfile::TempDir;

use super::*;

/// Long after anything that a test writes.
const LATER: UnixNanos = UnixNanos(i64::MAX);

fn directory() -> (TempDir, OwnedFd) {
    let directory = tempfile::tempdir().unwrap();
    let Place::Directory(handle) = open_place(directory.path()).unwrap() else {
        panic!("no directory");
    };
    (directory, handle)
}

fn find(handle: &OwnedFd, name: &str) -> Found {
    let expected = Expectation {
        fingerprint: None,
        settled: false,
        now: LATER,
    };
    read(Location::Beneath(handle, OsStr::new(name)), expected)
}

fn content_of(found: Found) -> String {
    match found {
        Found::Content { bytes, .. } => String::from_utf8(bytes).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn reason(found: Found) -> String {
    match found {
        Found::Unreadable(reason) => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_and_links_within_the_directory_are_read() {
    let (directory, handle) = directory();
    fs::write(directory.path().join("a"), "content").unwrap();
    symlink("a", directory.path().join("link")).unwrap();
    fs::create_dir(directory.path().join("..2026")).unwrap();
    fs::write(directory.path().join("..2026/b"), "deep").unwrap();
    symlink("..2026", directory.path().join("..data")).unwrap();
    symlink("..data/b", directory.path().join("b")).unwrap();
    assert_eq!(content_of(find(&handle, "a")), "content");
    assert_eq!(content_of(find(&handle, "link")), "content");
    assert_eq!(content_of(find(&handle, "b")), "deep");
    assert_eq!(find(&handle, "..2026"), Found::Directory);
    assert_eq!(find(&handle, "nothing"), Found::Gone);
}

#[test]
fn what_is_no_file_is_not_opened() {
    let (directory, handle) = directory();
    let at = |name: &str| directory.path().join(name);
    mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    fs::create_dir(at("sub")).unwrap();
    symlink("fifo", at("link-to-fifo")).unwrap();
    assert!(reason(find(&handle, "fifo")).contains("FIFO"));
    assert!(reason(find(&handle, "link-to-fifo")).contains("FIFO"));
    assert!(reason(find(&handle, "socket")).contains("socket"));
    assert_eq!(find(&handle, "sub"), Found::Directory);
}

#[test]
fn links_that_leave_the_directory_are_not_followed() {
    let (directory, handle) = directory();
    let (outside, _) = self::directory();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    let at = |name: &str| directory.path().join(name);
    symlink(outside.path().join("secret"), at("absolute")).unwrap();
    symlink("../x", at("relative")).unwrap();
    symlink(directory.path().join("a"), at("absolute-inside")).unwrap();
    symlink(outside.path(), at("out")).unwrap();
    symlink("out/secret", at("through")).unwrap();
    symlink("/dev/zero", at("device")).unwrap();
    symlink("/proc/self/environ", at("magic")).unwrap();
    symlink("loop", at("loop")).unwrap();
    symlink("nothing", at("dangling")).unwrap();
    for name in [
        "absolute",
        "relative",
        "absolute-inside",
        "through",
        "device",
        "magic",
    ] {
        assert!(reason(find(&handle, name)).contains("leaves"), "{name}");
    }
    assert!(reason(find(&handle, "loop")).contains("nowhere"));
    assert!(reason(find(&handle, "dangling")).contains("nowhere"));
}

#[test]
fn a_file_over_the_cap_is_not_read() {
    let (directory, handle) = directory();
    let file = File::create(directory.path().join("a")).unwrap();
    file.set_len(MAX_MANIFEST_BYTES as u64 + 1).unwrap();
    assert!(reason(find(&handle, "a")).contains("more than"));
    file.set_len(MAX_MANIFEST_BYTES as u64).unwrap();
    assert_eq!(content_of(find(&handle, "a")).len(), MAX_MANIFEST_BYTES);
}

#[test]
fn a_known_file_is_not_read_again() {
    let (directory, handle) = directory();
    fs::write(directory.path().join("a"), "one").unwrap();
    let Found::Content { fingerprint, .. } = find(&handle, "a") else {
        panic!("no content");
    };
    assert!(fingerprint.is_some());
    let expected = Expectation {
        fingerprint,
        settled: false,
        now: LATER,
    };
    let location = Location::Beneath(&handle, OsStr::new("a"));
    assert_eq!(read(location, expected), Found::Unchanged);
    fs::write(directory.path().join("a"), "other").unwrap();
    assert_eq!(content_of(read(location, expected)), "other");
}

#[test]
fn a_file_that_may_be_half_written_is_left_alone() {
    let (directory, handle) = directory();
    fs::write(directory.path().join("a"), "half").unwrap();
    let location = Location::Beneath(&handle, OsStr::new("a"));
    let modified = {
        let handle = location.open(OFlag::O_PATH).unwrap();
        fingerprint(&fstat(&handle).unwrap()).modified
    };
    let now = UnixNanos(i64::try_from(modified).unwrap() + 1_000_000);
    let fresh = Expectation {
        fingerprint: None,
        settled: false,
        now,
    };
    assert_eq!(read(location, fresh), Found::Settling);
    // Its writer has closed it: read, but not recognised by its times yet.
    let Found::Content { fingerprint, .. } = read(
        location,
        Expectation {
            settled: true,
            ..fresh
        },
    ) else {
        panic!("no content");
    };
    assert_eq!(fingerprint, None);
    let later = UnixNanos(now.0 + 60_000_000);
    assert_eq!(
        content_of(read(
            location,
            Expectation {
                now: later,
                ..fresh
            }
        )),
        "half"
    );
}

#[test]
fn hidden_names_are_not_listed() {
    let (directory, handle) = directory();
    for name in ["b", "a", ".hidden", "..data", "c~"] {
        fs::write(directory.path().join(name), "").unwrap();
    }
    let names: Vec<_> = names(&handle).unwrap().into_iter().collect();
    assert_eq!(names, ["a", "b", "c~"]);
}

#[test]
fn places_are_told_apart() {
    let (directory, _) = directory();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("file"), "").unwrap();
    symlink("file", at("link")).unwrap();
    mkfifo(&at("fifo"), Mode::S_IRWXU).unwrap();
    assert!(matches!(open_place(&at("file")), Ok(Place::File)));
    assert!(matches!(open_place(&at("link")), Ok(Place::File)));
    assert!(matches!(open_place(&at("nothing")), Ok(Place::Absent)));
    symlink("nothing", at("dangling")).unwrap();
    symlink(".", at("here")).unwrap();
    for (name, leads_nowhere) in [
        ("dangling", true),
        ("dangling/below/it", true),
        ("here/nothing", false),
        ("here/dangling", true),
    ] {
        let is_so = matches!(open_place(&at(name)), Err(ListError::LeadsNowhere));
        assert_eq!(is_so, leads_nowhere, "{name}");
    }
    assert!(matches!(
        open_place(&at("fifo")),
        Err(ListError::WrongType("a FIFO"))
    ));
    assert!(matches!(
        open_place(&at("file/below")),
        Err(ListError::System { .. })
    ));
}

#[test]
fn new_files_never_displace_known_ones() {
    let names: BTreeSet<OsString> = (0..MAX_FILES + 3)
        .map(|number| format!("{number:06}").into())
        .collect();
    let last = OsString::from(format!("{:06}", MAX_FILES + 2));
    let (chosen, left_out) = chosen(names, |name| name == last);
    assert_eq!(left_out, 3);
    assert_eq!(chosen.len(), MAX_FILES);
    assert_eq!(chosen.last(), Some(&last));
}

#[test]
fn a_directory_with_more_names_than_any_manifest_directory_has_is_refused() {
    // In memory: there so many links take no time.
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let Place::Directory(handle) = open_place(directory.path()).unwrap() else {
        panic!("no directory");
    };
    for number in 0..MAX_NAMES {
        symlink("a", directory.path().join(number.to_string())).unwrap();
    }
    // Hidden ones do not count.
    symlink("a", directory.path().join(".hidden")).unwrap();
    assert_eq!(names(&handle).unwrap().len(), MAX_NAMES);
    symlink("a", directory.path().join("one-more")).unwrap();
    let refused = names(&handle).unwrap_err();
    assert!(matches!(refused, ListError::TooManyNames), "{refused}");
}
