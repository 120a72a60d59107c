//! The file source from a disk to what it publishes, over restarts of ours.

mod hanging_disk;
mod retries;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use tempfile::TempDir;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::publication::SourceState;

/// Generous: it is only ever waited for when a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Only inotify can be fast enough for the tests' patience.
const CHECK_FREQUENCY: Duration = Duration::from_secs(3600);

struct Node {
    disk: TempDir,
    publication: Publication,
    source: Option<AbortOnDropHandle<()>>,
}

impl Node {
    fn new() -> Node {
        Node {
            disk: tempfile::tempdir().unwrap(),
            publication: Publication::new("boot", [PodSource::File]),
            source: None,
        }
    }

    fn with_directory() -> Node {
        let node = Node::new();
        fs::create_dir(node.manifests()).unwrap();
        node
    }

    fn manifests(&self) -> PathBuf {
        self.disk.path().join("manifests")
    }

    /// Starts the source in a new run, which knows nothing.
    fn start(&mut self) {
        self.start_at(&self.manifests());
    }

    fn start_at(&mut self, path: &Path) {
        self.start_altered(path, |_| {});
    }

    fn start_altered(&mut self, path: &Path, alter: impl FnOnce(&mut FileSource)) {
        self.publication = Publication::new("boot", [PodSource::File]);
        let mut source = FileSource::new(
            path.to_owned(),
            "node",
            CHECK_FREQUENCY,
            WallClock::system(),
            self.publication.clone(),
        );
        alter(&mut source);
        self.source = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            match source.run().await {}
        })));
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.manifests().join(name), text).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.manifests().join(name)).unwrap();
    }

    /// Waits until the state is as described.
    async fn until(&self, what: &str, condition: impl Fn(&SourceState) -> bool) -> SourceState {
        let mut watch = self.publication.watch();
        let waiting = watch.wait_for(|state| condition(&state[&PodSource::File]));
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(state) => state.unwrap()[&PodSource::File].clone(),
            Err(_) => panic!("not {what}: {:?}", self.publication.watch().borrow()),
        }
    }

    async fn until_images(&self, expected: &[&str]) -> SourceState {
        self.until(&format!("{expected:?}"), |state| {
            state.ready && images(state) == expected
        })
        .await
    }
}

fn manifest(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: c, image: '{image}'}}]\n"
    )
}

fn images(state: &SourceState) -> Vec<String> {
    let mut images: Vec<_> = state
        .pods
        .values()
        .filter_map(|pod| pod.decode().ok()?.spec?.containers[0].image.clone())
        .collect();
    images.sort();
    images
}

fn has_problem(state: &SourceState, text: &str) -> bool {
    state
        .problems
        .iter()
        .any(|problem| problem.reason.contains(text))
}

#[tokio::test]
async fn existing_manifests_are_delivered() {
    let mut node = Node::with_directory();
    node.write("a.yaml", &manifest("a", "i:1"));
    node.write("b.json", &manifest("b", "i:2"));
    node.write(".hidden", &manifest("h", "i:3"));
    node.start();
    node.until_images(&["i:1", "i:2"]).await;
}

#[tokio::test]
async fn an_empty_directory_is_an_answer_and_a_missing_one_is_none() {
    let mut node = Node::with_directory();
    node.start();
    node.until_images(&[]).await;
    let mut node = Node::new();
    node.start();
    let state = node
        .until("missed", |state| has_problem(state, "is not there"))
        .await;
    assert!(!state.ready, "there may be pods of an earlier run");
    fs::create_dir(node.manifests()).unwrap();
    node.until_images(&[]).await;
    node.write("a", &manifest("a", "i:1"));
    node.until_images(&["i:1"]).await;
}

#[tokio::test]
async fn written_changed_moved_and_removed_files_are_followed() {
    let mut node = Node::with_directory();
    node.start();
    node.until_images(&[]).await;
    node.write("a", &manifest("a", "i:1"));
    let first = node.until_images(&["i:1"]).await;
    node.write("a", &manifest("a", "i:2"));
    node.until_images(&["i:2"]).await;
    node.write("a", &manifest("a", "i:1"));
    let again = node.until_images(&["i:1"]).await;
    assert_eq!(
        first.pods.keys().collect::<Vec<_>>(),
        again.pods.keys().collect::<Vec<_>>(),
        "the same manifest is the same pod"
    );
    // As careful editors do it.
    fs::write(node.manifests().join(".a.new"), manifest("a", "i:3")).unwrap();
    fs::rename(node.manifests().join(".a.new"), node.manifests().join("a")).unwrap();
    node.until_images(&["i:3"]).await;
    node.remove("a");
    node.until_images(&[]).await;
}

#[tokio::test]
async fn a_bad_file_keeps_its_last_good_version_and_the_others_carry_on() {
    let mut node = Node::with_directory();
    node.start();
    node.write("a", &manifest("a", "i:1"));
    node.until_images(&["i:1"]).await;
    node.write("a", &manifest("a", ""));
    let state = node
        .until("a problem", |state| has_problem(state, "Required"))
        .await;
    assert_eq!(images(&state), ["i:1"]);
    assert_eq!(state.problems[0].field, "spec.containers[0].image");
    node.write("b", &manifest("b", "i:2"));
    node.until_images(&["i:1", "i:2"]).await;
    node.write("a", &manifest("a", "i:3"));
    let state = node.until_images(&["i:2", "i:3"]).await;
    assert!(state.problems.is_empty());
}

#[tokio::test]
async fn a_file_that_is_being_written_never_looks_empty() {
    let mut node = Node::with_directory();
    node.start();
    node.write("a", &manifest("a", "i:1"));
    node.until_images(&["i:1"]).await;
    // Truncated by its writer, who takes its time.
    let file = fs::File::create(node.manifests().join("a")).unwrap();
    node.write("b", &manifest("b", "i:2"));
    let state = node.until("b", |state| state.pods.len() == 2).await;
    assert_eq!(images(&state), ["i:1", "i:2"]);
    drop(file);
    let state = node
        .until("a problem", |state| has_problem(state, "empty"))
        .await;
    assert_eq!(images(&state), ["i:1", "i:2"]);
}

#[tokio::test]
async fn a_file_that_is_bad_while_we_are_restarted_is_not_called_removed() {
    let mut node = Node::with_directory();
    node.write("a", "bad: [");
    node.write("b", &manifest("b", "i:2"));
    for run in 1..=2 {
        node.start();
        let state = node
            .until("a problem", |state| {
                !state.problems.is_empty() && images(state) == ["i:2"]
            })
            .await;
        assert!(!state.ready, "run {run}: a pod of the bad file may run");
    }
    // The others are followed.
    node.write("b", &manifest("b", "i:3"));
    node.until("the new version", |state| images(state) == ["i:3"])
        .await;
    node.remove("b");
    let state = node.until("b gone", |state| state.pods.is_empty()).await;
    assert!(!state.ready);
    // All is known, and what becomes bad from now on is known, too.
    node.write("a", &manifest("a", "i:1"));
    node.until_images(&["i:1"]).await;
    node.write("c", "bad: [");
    let state = node
        .until("a problem", |state| !state.problems.is_empty())
        .await;
    assert!(state.ready);
}

#[tokio::test]
async fn a_directory_that_vanishes_takes_no_pods_along() {
    let mut node = Node::with_directory();
    node.write("a", &manifest("a", "i:1"));
    node.start();
    node.until_images(&["i:1"]).await;
    fs::rename(node.manifests(), node.disk.path().join("elsewhere")).unwrap();
    let state = node
        .until("a problem", |state| has_problem(state, "is not there"))
        .await;
    assert_eq!(images(&state), ["i:1"]);
    fs::create_dir(node.manifests()).unwrap();
    // Back, and empty: that is an answer.
    let state = node.until_images(&[]).await;
    assert!(state.problems.is_empty());
}

#[tokio::test]
async fn an_unreadable_path_keeps_what_was_known() {
    let mut node = Node::with_directory();
    node.write("a", &manifest("a", "i:1"));
    node.start();
    node.until_images(&["i:1"]).await;
    fs::rename(node.manifests(), node.disk.path().join("elsewhere")).unwrap();
    nix::unistd::mkfifo(&node.manifests(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let state = node
        .until("a problem", |state| has_problem(state, "FIFO"))
        .await;
    assert_eq!(images(&state), ["i:1"]);
    // Of the next run nothing has been seen.
    node.start();
    let state = node
        .until("a problem", |state| !state.problems.is_empty())
        .await;
    assert!(!state.ready);
}

#[tokio::test]
async fn the_path_may_be_one_file() {
    let mut node = Node::with_directory();
    node.write("pod.yaml", &manifest("a", "i:1"));
    let path = node.manifests().join("pod.yaml");
    node.start_at(&path);
    node.until_images(&["i:1"]).await;
    node.write("other.yaml", &manifest("b", "i:9"));
    node.write("pod.yaml", &manifest("a", "i:2"));
    node.until_images(&["i:2"]).await;
    node.remove("pod.yaml");
    node.until_images(&[]).await;
}

#[tokio::test]
async fn hostile_names_stop_nothing() {
    let mut node = Node::with_directory();
    let at = |name: &str| node.manifests().join(name);
    nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink("/etc/passwd", at("link")).unwrap();
    fs::create_dir(at("directory")).unwrap();
    node.write("deep", &"[".repeat(100_000));
    let file = fs::File::create(at("large")).unwrap();
    file.set_len(1 << 40).unwrap();
    fs::set_permissions(at("large"), fs::Permissions::from_mode(0o600)).unwrap();
    node.write("good", &manifest("a", "i:1"));
    node.start();
    let state = node.until("good", |state| images(state) == ["i:1"]).await;
    let mut subjects: Vec<_> = state
        .problems
        .iter()
        .filter_map(|problem| Some(problem.subject.rsplit_once('/')?.1.to_owned()))
        .collect();
    subjects.sort();
    assert_eq!(subjects, ["deep", "fifo", "large", "link"]);
}

#[tokio::test]
async fn a_duplicate_is_reported_and_does_not_displace_the_pod() {
    let mut node = Node::with_directory();
    node.start();
    node.write("b.yaml", &manifest("a", "i:1"));
    node.until_images(&["i:1"]).await;
    node.write("a.bak", &manifest("a", "i:2"));
    let state = node
        .until("a problem", |state| has_problem(state, "already in"))
        .await;
    assert_eq!(images(&state), ["i:1"]);
    // It may be edited: the copy does not get its turn by that.
    node.write("b.yaml", &manifest("a", "i:4"));
    node.until_images(&["i:4"]).await;
    // Which of the two runs is not known after our restart: neither is called removed.
    node.start();
    let state = node
        .until("a problem", |state| has_problem(state, "already in"))
        .await;
    assert!(!state.ready);
    node.remove("a.bak");
    node.until_images(&["i:4"]).await;
}

#[tokio::test]
async fn a_link_that_loses_its_target_takes_no_pods_along_until_it_is_removed() {
    let mut node = Node::new();
    let target = node.disk.path().join("target");
    symlink(&target, node.manifests()).unwrap();
    node.start();
    let state = node
        .until("told", |state| has_problem(state, "leads nowhere"))
        .await;
    assert!(!state.ready);
    fs::write(&target, manifest("a", "i:1")).unwrap();
    node.start();
    node.until_images(&["i:1"]).await;
    fs::remove_file(&target).unwrap();
    let state = node
        .until("told", |state| has_problem(state, "remove the link"))
        .await;
    assert_eq!(images(&state), ["i:1"]);
    fs::remove_file(node.manifests()).unwrap();
    node.until_images(&[]).await;
}
