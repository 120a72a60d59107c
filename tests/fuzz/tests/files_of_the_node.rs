//! What the owner of a node writes, and what a process finds of what it wrote before.

use std::path::Path;

use config_files::bulkhead::BulkheadConfig;
use config_files::kubelet::KubeletConfig;
use cri_requests::parse_resolv_conf;
use fuzz::{changed, changed_text, files, texts};
use node_policy::{Policy, Protected};
use proptest::prelude::*;
use serde_json::{Value, json};
use state_file::StateFile;

/// What a process remembers, as bytes on a disk.
fn saved(directory: &Path) -> (StateFile, Value, Vec<u8>) {
    let file = StateFile::new(directory.join("state.json"), 3).without_sync();
    let content = json!({"pods": {"a": {"starts": 3, "at": "2026-11-20T10:00:00Z"}}, "on": true});
    file.save(&content).expect("it is written");
    let bytes = std::fs::read(file.path()).expect("it is there");
    (file, content, bytes)
}

fn is_changed_state_never_taken_for_another(bytes: &[u8]) -> Result<(), TestCaseError> {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, content, _) = saved(directory.path());
    std::fs::write(file.path(), bytes).expect("it is written");
    if let Ok(Some(loaded)) = file.load::<Value>() {
        prop_assert_eq!(loaded, content);
    }
    Ok(())
}

fn state_files() -> Vec<Vec<u8>> {
    let directory = tempfile::tempdir().expect("a directory");
    vec![saved(directory.path()).2]
}

#[test]
fn the_seeds_are_good() {
    let texts = |directory| {
        let files = files(&[directory]).into_iter();
        files.map(|bytes| String::from_utf8(bytes).expect("text"))
    };
    let path = Path::new("/etc/kubernetes/config.yaml");
    for text in texts("tests/fuzz/corpus/configuration") {
        let good = KubeletConfig::parse(path, &text).is_ok();
        assert!(good || BulkheadConfig::parse(path, &text).is_ok(), "{text}");
    }
    for text in texts("tests/fuzz/corpus/policies") {
        let policy = Policy::parse(&text, Protected::default());
        assert!(policy.is_ok(), "{policy:?}");
    }
}

proptest! {
    #[test]
    fn a_state_file_that_was_changed_is_never_taken_for_another(bytes in changed(state_files())) {
        is_changed_state_never_taken_for_another(&bytes)?;
    }

    #[test]
    fn configurations_are_read_or_refused(
        text in changed_text(files(&["tests/fuzz/corpus/configuration"])),
    ) {
        let path = Path::new("/etc/kubernetes/config.yaml");
        let _ = KubeletConfig::parse(path, &text);
        let _ = BulkheadConfig::parse(path, &text);
    }

    #[test]
    fn a_policy_is_read_or_refused(text in changed_text(files(&["tests/fuzz/corpus/policies"]))) {
        let _ = Policy::parse(&text, Protected::default());
    }

    #[test]
    fn a_resolv_conf_is_read_or_refused(
        text in changed_text(texts(&[
            "nameserver 10.0.0.1\nnameserver fd00::1%eth0\nsearch a.example b.example\n",
            "# none\noptions ndots:5 timeout:2 rotate\ndomain local\n; more\n",
        ])),
    ) {
        let _ = parse_resolv_conf(&text);
    }
}
