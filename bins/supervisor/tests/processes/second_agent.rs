//! A supervisor that is started where the processes of another agent run: it is refused
//! before it changes anything of theirs.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::node::Node;

/// The inode and the content of each file, sockets without one.
fn files(directory: &Path) -> BTreeMap<String, (u64, Vec<u8>)> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let seen = entries.map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        let content = fs::read(entry.path()).unwrap_or_default();
        (name, (entry.metadata().unwrap().ino(), content))
    });
    seen.collect()
}

#[test]
fn beside_a_bundle_a_supervisor_is_refused_and_changes_no_file() {
    let mut node = Node::prepare();
    // What comes next would refuse it as well, by another code.
    node.stop_runtime();
    let run = node.path("run");
    fs::create_dir(&run).unwrap();
    fs::set_permissions(&run, Permissions::from_mode(0o711)).unwrap();
    fs::write(run.join("node.json"), "what its processes read").unwrap();
    // Nobody holds a lock: systemd holds the sockets, as this test does here.
    for name in ["pleg.sock", "sync-loop.sock"] {
        let _listener = UnixListener::bind(run.join(name)).unwrap();
        let before = files(&run);
        let (code, errors) = Node::refusal(node.command());
        assert_eq!(code, 13, "{name}: {errors}");
        assert!(errors.contains("bulkhead.target"), "{errors}");
        assert_eq!(files(&run), before, "{name}");
        assert!(!node.path("state").exists());
    }
}
