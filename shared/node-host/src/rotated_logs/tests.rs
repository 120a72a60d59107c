//! Logs in a directory of their own, as the runtime writes them.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use flate2::read::GzDecoder;
use node_config::{DirectoryLayout, NodeConfig};
use pod::PodIdentity;

use super::*;
use crate::host::Logs as _;
use crate::linux::LinuxNode;

struct Case {
    _temporary: tempfile::TempDir,
    node: LinuxNode,
    directory: PathBuf,
    log: LogTarget,
}

fn case() -> Case {
    let temporary = tempfile::tempdir().unwrap();
    let at = |path: &str| temporary.path().join(path);
    let directories = DirectoryLayout::below(temporary.path());
    let mut config = NodeConfig::with_defaults("n", directories);
    config.cgroups_per_qos = false;
    let directory = at("log/pods/ns_web_u1/c");
    fs::create_dir_all(&directory).unwrap();
    Case {
        node: LinuxNode::new(&config).unwrap(),
        directory,
        _temporary: temporary,
        log: LogTarget {
            pod: PodIdentity::new("u1", "ns", "web").unwrap(),
            container: "c".to_owned(),
            attempt: 3,
        },
    }
}

impl Case {
    fn write(&self, name: &str, text: &str) {
        fs::write(self.directory.join(name), text).unwrap();
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.directory).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn decompressed(&self, name: &str) -> String {
        let mut text = String::new();
        let file = File::open(self.directory.join(name)).unwrap();
        GzDecoder::new(file).read_to_string(&mut text).unwrap();
        text
    }

    async fn change(&self, change: LogChange) -> Result<(), NodeError> {
        self.node.change_log(&self.log, change).await
    }

    async fn size(&self, log: &LogTarget) -> LogSize {
        let sizes = self.node.log_sizes(std::slice::from_ref(log)).await;
        sizes.unwrap().remove(0)
    }
}

#[tokio::test]
async fn a_log_is_measured_and_never_one_behind_a_link() {
    let case = case();
    assert_eq!(case.size(&case.log).await.unwrap(), None);
    case.write("3.log", "12345");
    assert_eq!(case.size(&case.log).await.unwrap(), Some(5));
    let gone = LogTarget {
        container: "gone".to_owned(),
        ..case.log.clone()
    };
    assert_eq!(case.size(&gone).await.unwrap(), None);
    let hostile = LogTarget {
        container: "../c".to_owned(),
        ..case.log.clone()
    };
    assert!(case.size(&hostile).await.is_err());
    fs::remove_file(case.directory.join("3.log")).unwrap();
    symlink("/etc/passwd", case.directory.join("3.log")).unwrap();
    let error = case.size(&case.log).await.unwrap_err().to_string();
    assert!(error.ends_with("it is not a regular file"), "{error}");
}

#[tokio::test]
async fn the_files_beside_a_log_are_its_own_and_no_others() {
    let case = case();
    for name in ["3.log", "3.log.b", "3.log.a.gz", "13.log.c", "3.logs", "x"] {
        case.write(name, "");
    }
    let mut found = case.node.rotated_logs(&case.log).await.unwrap();
    found.sort();
    assert_eq!(found, ["a.gz", "b"]);
}

#[tokio::test]
async fn a_compressed_file_takes_the_place_of_the_other_with_its_mode() {
    let case = case();
    let text = "a line\n".repeat(100_000);
    case.write("3.log.a", &text);
    let path = case.directory.join("3.log.a");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
    // An earlier try was cut short.
    case.write("3.log.a.tmp", "half");
    case.change(LogChange::Compress("a".to_owned()))
        .await
        .unwrap();
    assert_eq!(case.names(), ["3.log.a.gz"]);
    assert_eq!(case.decompressed("3.log.a.gz"), text);
    let metadata = fs::metadata(case.directory.join("3.log.a.gz")).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o604);
    // Made before.
    case.change(LogChange::Compress("a".to_owned()))
        .await
        .unwrap();
    assert_eq!(case.names(), ["3.log.a.gz"]);
}

/// A kill, a removal or another round came while a file was being compressed.
#[tokio::test]
async fn what_changed_during_a_compression_stays_so() {
    let case = case();
    let end = |case: &Case| {
        let directory = Directory::open(&case.directory).unwrap();
        put_compressed(&directory, "3.log.a").unwrap();
        case.names()
    };
    case.write("3.log.a.tmp", "all of it");
    assert_eq!(end(&case), [""; 0], "the file was removed");
    case.write("3.log.a", "lines");
    assert_eq!(end(&case), ["3.log.a"], "the compressed form was removed");
    case.write("3.log.a.tmp", "all of it");
    assert_eq!(end(&case), ["3.log.a.gz"]);
}

#[tokio::test]
async fn what_is_no_file_is_not_compressed() {
    let case = case();
    symlink("/etc/passwd", case.directory.join("3.log.a")).unwrap();
    assert!(
        case.change(LogChange::Compress("a".to_owned()))
            .await
            .is_err()
    );
    assert_eq!(case.names(), ["3.log.a"]);
}

#[tokio::test]
async fn a_log_that_is_set_aside_replaces_no_other_and_comes_back_unless_there_is_one() {
    let case = case();
    let aside = || LogChange::SetAside("a".to_owned());
    let back = || LogChange::PutBack("a".to_owned());
    case.write("3.log", "new");
    case.write("3.log.a", "old");
    assert!(case.change(aside()).await.is_err());
    assert_eq!(case.names(), ["3.log", "3.log.a"]);
    case.change(LogChange::Remove("a".to_owned()))
        .await
        .unwrap();
    case.change(aside()).await.unwrap();
    assert_eq!(case.names(), ["3.log.a"]);
    case.change(aside()).await.unwrap();
    case.change(back()).await.unwrap();
    assert_eq!(case.names(), ["3.log"]);
    case.change(aside()).await.unwrap();
    // The runtime opened it anew although its answer was lost.
    case.write("3.log", "newest");
    case.change(back()).await.unwrap();
    assert_eq!(case.names(), ["3.log", "3.log.a"]);
}
