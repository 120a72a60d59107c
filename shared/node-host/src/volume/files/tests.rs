//! The swap, and whatever a killed process or somebody else can have left of one.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use pod_volumes::FilesKind;

use super::*;

struct Case {
    _temporary: tempfile::TempDir,
    volume: Directory,
}

fn case() -> Case {
    let temporary = tempfile::tempdir().unwrap();
    let all = Directory::open(temporary.path()).unwrap();
    Case {
        volume: all.make_child("v", MODE).unwrap(),
        _temporary: temporary,
    }
}

fn files(list: &[(&str, &str, u32)]) -> Files {
    let files = list.iter().map(|(path, content, mode)| {
        let file = VolumeFile {
            content: content.as_bytes().to_vec().into(),
            mode: *mode,
            user: None,
            group: None,
        };
        ((*path).to_owned(), file)
    });
    Files {
        kind: FilesKind::ConfigMap,
        files: files.collect(),
    }
}

fn one() -> Files {
    files(&[
        ("a", "1", 0o644),
        ("d/b", "2", 0o400),
        ("d/e/c", "3", 0o640),
    ])
}

/// Another value, another mode, one file less and one more.
fn two() -> Files {
    files(&[("a", "1+", 0o644), ("d/b", "2", 0o440), ("n", "4", 0o600)])
}

impl Case {
    fn at(&self, name: &str) -> PathBuf {
        self.volume.path().join(name)
    }

    fn bring_to(&self, files: &Files) {
        bring_to(&self.volume, files).unwrap();
        self.has_exactly(files);
    }

    fn version(&self) -> PathBuf {
        fs::read_link(self.at(DATA)).unwrap()
    }

    /// These files by their own paths, and nothing else but the link and its version.
    fn has_exactly(&self, files: &Files) {
        for (path, file) in &files.files {
            let found = self.at(path);
            assert_eq!(fs::read(&found).unwrap(), file.content.as_slice(), "{path}");
            let mode = fs::metadata(&found).unwrap().permissions().mode();
            assert_eq!(mode & 0o7777, file.mode, "{path}");
        }
        let tops = files
            .files
            .keys()
            .map(|path| path.split('/').next().unwrap());
        let mut expected: BTreeSet<String> = tops.map(str::to_owned).collect();
        expected.insert(DATA.to_owned());
        expected.insert(self.version().to_str().unwrap().to_owned());
        let names = self.volume.names().unwrap();
        assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
        assert!(
            Tree::of(files)
                .is_in(
                    &self
                        .volume
                        .child(self.version().to_str().unwrap())
                        .unwrap()
                        .unwrap()
                )
                .unwrap()
        );
    }
}

#[test]
fn files_belong_to_the_group_of_the_pod() {
    assert!(geteuid().is_root(), "nobody else can give files away");
    let case = case();
    let mut wanted = one();
    case.bring_to(&wanted);
    for file in wanted.files.values_mut() {
        file.group = Some(4711);
    }
    case.bring_to(&wanted);
    let version = case.version();
    for path in wanted.files.keys() {
        let found = fs::metadata(case.at(path)).unwrap();
        assert_eq!((found.uid(), found.gid()), (0, 4711), "{path}");
    }
    case.bring_to(&wanted);
    assert_eq!(case.version(), version);
}

#[test]
fn files_are_replaced_all_at_once_and_only_when_they_differ() {
    let case = case();
    case.bring_to(&one());
    let (version, inode) = (case.version(), fs::metadata(case.at("a")).unwrap().ino());
    case.bring_to(&one());
    assert_eq!(case.version(), version);
    assert_eq!(fs::metadata(case.at("a")).unwrap().ino(), inode);
    // Who has opened the old version goes on reading it.
    let opened = fs::File::open(case.at("a")).unwrap();
    case.bring_to(&two());
    assert_ne!(case.version(), version);
    assert_eq!(std::io::read_to_string(opened).unwrap(), "1");
    case.bring_to(&files(&[]));
    case.bring_to(&one());
}

#[test]
fn a_file_becomes_a_directory_and_a_directory_a_file() {
    let case = case();
    case.bring_to(&files(&[("a", "1", 0o644), ("d/b", "2", 0o644)]));
    case.bring_to(&files(&[("a/b", "1", 0o644), ("d", "2", 0o644)]));
}

/// Each state that a process can leave when it is killed within a swap from one to two.
#[test]
fn a_swap_that_was_cut_short_is_completed() {
    type Left = fn(&Case);
    let states: [(&str, Left); 6] = [
        ("an empty version", |case| {
            fs::create_dir(case.at("..v7")).unwrap();
        }),
        ("half a version", |case| {
            fs::create_dir(case.at("..v7")).unwrap();
            fs::write(case.at("..v7/a"), "1").unwrap();
        }),
        ("a link that is not in its place yet", |case| {
            symlink("..v7", case.at(".bulkhead-..data")).unwrap();
        }),
        ("the new version and the old links", |case| {
            let new = case.volume.make_child("..v7", 0o755).unwrap();
            Tree::of(&two()).write_to(&new).unwrap();
            case.volume.replace_link(DATA, Path::new("..v7")).unwrap();
        }),
        ("some links only", |case| {
            let new = case.volume.make_child("..v7", 0o755).unwrap();
            Tree::of(&two()).write_to(&new).unwrap();
            case.volume.replace_link(DATA, Path::new("..v7")).unwrap();
            fs::remove_file(case.at("a")).unwrap();
        }),
        ("no old version", |case| {
            fs::remove_dir_all(case.at("..v0")).unwrap();
        }),
    ];
    for (what, leave) in states {
        for (kind, wanted) in [("on", two()), ("back", one())] {
            let case = case();
            case.bring_to(&one());
            assert_eq!(case.version(), Path::new("..v0"));
            leave(&case);
            bring_to(&case.volume, &wanted)
                .unwrap_or_else(|error| panic!("{what} {kind}: {error}"));
            case.has_exactly(&wanted);
        }
    }
}

#[test]
fn what_somebody_has_changed_is_put_right() {
    type Change = fn(&Case);
    let changes: [(&str, Change); 8] = [
        ("content", |case| fs::write(case.at("a"), "2").unwrap()),
        ("a longer content", |case| {
            fs::write(case.at("a"), "1 and more").unwrap();
        }),
        ("a mode", |case| {
            let mode = fs::Permissions::from_mode(0o666);
            fs::set_permissions(case.at("d/b"), mode).unwrap();
        }),
        ("a file more", |case| {
            fs::write(case.at("..data/d/more"), "").unwrap();
        }),
        ("a file less", |case| {
            fs::remove_file(case.at("..data/a")).unwrap()
        }),
        ("a link in a file's place", |case| {
            fs::remove_file(case.at("..data/a")).unwrap();
            symlink("/etc/passwd", case.at("..data/a")).unwrap();
        }),
        ("a directory in a link's place", |case| {
            fs::remove_file(case.at("a")).unwrap();
            fs::create_dir(case.at("a")).unwrap();
        }),
        ("data elsewhere", |case| {
            fs::remove_file(case.at(DATA)).unwrap();
            symlink("/etc", case.at(DATA)).unwrap();
        }),
    ];
    for (what, change) in changes {
        let case = case();
        case.bring_to(&one());
        change(&case);
        bring_to(&case.volume, &one()).unwrap_or_else(|error| panic!("{what}: {error}"));
        case.has_exactly(&one());
    }
}

/// A kubelet names versions by the time; what it wrote is kept as it is.
#[test]
fn what_a_kubelet_wrote_is_taken_over() {
    let case = case();
    let version = "..2026_11_22_07_00_00.123456789";
    let written = case.volume.make_child(version, 0o755).unwrap();
    Tree::of(&one()).write_to(&written).unwrap();
    symlink(version, case.at(DATA)).unwrap();
    symlink("..data/a", case.at("a")).unwrap();
    symlink("..data/d", case.at("d")).unwrap();
    case.bring_to(&one());
    assert_eq!(case.version(), Path::new(version));
    case.bring_to(&two());
    assert!(!case.at(version).exists());
}

#[test]
fn a_file_belongs_to_the_user_that_it_names() {
    let case = case();
    let mut wanted = one();
    wanted.files.get_mut("a").unwrap().user = Some(1234);
    case.bring_to(&wanted);
    assert_eq!(fs::metadata(case.at("a")).unwrap().uid(), 1234);
    case.bring_to(&one());
    assert_eq!(fs::metadata(case.at("a")).unwrap().uid(), 0);
}
