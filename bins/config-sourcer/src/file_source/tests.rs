//! The file source from a disk to its snapshots, over restarts of ours.

mod hanging_disk;
mod links;
mod retries;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use state_file::{StateFile, StateFileError};
use tempfile::TempDir;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::last_good::LastGoodFile;
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
        let disk = tempfile::tempdir().unwrap();
        fs::create_dir(disk.path().join("state")).unwrap();
        let publication = Publication::new("boot", [PodSource::File]);
        Node {
            disk,
            publication,
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

    fn state_file(&self) -> PathBuf {
        self.disk.path().join("state/last-good-manifests.json")
    }

    /// Starts the source in a new run, knowing only what is on the disk.
    fn start(&mut self) {
        self.start_at(&self.manifests());
    }

    fn start_at(&mut self, path: &Path) {
        self.start_with(path, Disk::new(reader::read));
    }

    fn start_with(&mut self, path: &Path, disk: Disk) {
        self.start_on(path, disk, None);
    }

    /// Its state is on a disk that hangs while this gate is shut.
    fn start_on(&mut self, path: &Path, disk: Disk, state: Option<Gate>) {
        let gated = Gated(self.last_good_file(path), state.unwrap_or_default());
        self.start_altered(path, gated, |source| source.disk = disk);
    }

    fn last_good_file(&self, path: &Path) -> LastGoodFile {
        LastGoodFile::new(&self.disk.path().join("state"), "node", path)
    }

    fn start_altered(
        &mut self,
        path: &Path,
        store: impl Store + 'static,
        alter: impl FnOnce(&mut FileSource),
    ) {
        self.source = None;
        self.publication = Publication::new("boot", [PodSource::File]);
        let (mut source, writer) = FileSource::new(
            path.to_owned(),
            "node",
            CHECK_FREQUENCY,
            WallClock::system(),
            self.publication.clone(),
            Arc::new(store),
        );
        alter(&mut source);
        self.source = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            match source.run(writer).await {}
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

    /// Waits until what is good is on the disk.
    async fn until_saved(&self, text: &str) {
        let file = self.state_file();
        let saved = async {
            while !fs::read_to_string(&file).is_ok_and(|content| content.contains(text)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, saved).await.unwrap();
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
async fn an_empty_or_missing_path_is_ready_with_nothing() {
    let mut node = Node::with_directory();
    node.start();
    node.until_images(&[]).await;
    let mut node = Node::new();
    node.start();
    node.until_images(&[]).await;
    fs::create_dir(node.manifests()).unwrap();
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
async fn the_last_good_version_survives_our_restart() {
    let mut node = Node::with_directory();
    node.write("a", &manifest("a", "i:1"));
    node.start();
    let before = node.until_images(&["i:1"]).await;
    node.until_saved("i:1").await;
    node.source = None;
    node.write("a", "apiVersion: v1\nkind: Pod\n");
    node.start();
    let after = node
        .until("ready", |state| state.ready && !state.problems.is_empty())
        .await;
    assert_eq!(after.pods, before.pods, "down to when it was first seen");
    // And the next restart too.
    node.start();
    let after = node
        .until("ready", |state| state.ready && !state.problems.is_empty())
        .await;
    assert_eq!(after.pods, before.pods);
    // A file that was removed meanwhile is gone.
    node.source = None;
    node.remove("a");
    node.start();
    node.until_images(&[]).await;
}

#[tokio::test]
async fn what_is_not_remembered_is_not_called_removed() {
    let damage = |node: &Node| fs::write(node.state_file(), "damaged").unwrap();
    let write_another_format = |node: &Node| {
        let file = StateFile::new(node.state_file(), 2);
        file.save(&"of a later version").unwrap();
    };
    for lose in [&damage as &dyn Fn(&Node), &write_another_format] {
        let mut node = Node::with_directory();
        node.write("a", "bad: [");
        lose(&node);
        node.start();
        let state = node
            .until("a problem", |state| !state.problems.is_empty())
            .await;
        assert!(!state.ready, "a pod of the bad file may be running");
        node.write("a", &manifest("a", "i:1"));
        node.until_images(&["i:1"]).await;
    }
    // At a first start there is nothing to remember.
    let mut node = Node::with_directory();
    node.write("a", "bad: [");
    node.start();
    node.until("ready", |state| state.ready && !state.problems.is_empty())
        .await;
}

#[tokio::test]
async fn what_is_lost_stays_lost_until_all_is_read_well() {
    let mut node = Node::with_directory();
    node.write("a", "bad: [");
    node.write("b", &manifest("b", "i:2"));
    fs::write(node.state_file(), "damaged").unwrap();
    for run in 1..=3 {
        node.start();
        let state = node
            .until("a problem", |state| {
                !state.problems.is_empty() && images(state) == ["i:2"]
            })
            .await;
        assert!(!state.ready, "run {run}: a pod of the bad file may run");
        node.until_saved("i:2").await;
    }
    // What became good meanwhile is remembered.
    node.source = None;
    node.write("b", "bad: [");
    node.start();
    let state = node
        .until("two problems", |state| state.problems.len() == 2)
        .await;
    assert_eq!(
        (images(&state), state.ready),
        (vec!["i:2".to_owned()], false)
    );
    // All is known again, and from the next run on a bad new file is only that.
    node.write("a", &manifest("a", "i:1"));
    node.until_images(&["i:1", "i:2"]).await;
    node.until_saved("Complete").await;
    node.source = None;
    node.write("c", "bad: [");
    node.start();
    node.until_images(&["i:1", "i:2"]).await;
}

#[tokio::test]
async fn a_path_that_is_gone_is_no_answer_where_nothing_is_remembered() {
    let mut node = Node::new();
    fs::write(node.state_file(), "damaged").unwrap();
    for run in 1..=2 {
        node.start();
        let state = node
            .until("missed", |state| has_problem(state, "is not there"))
            .await;
        assert!(!state.ready, "run {run}");
        node.until_saved("Lost").await;
    }
    // A directory whose only file is bad, in a run of its own.
    let aside = node.disk.path().join("aside");
    fs::create_dir(&aside).unwrap();
    fs::write(aside.join("a"), "bad: [").unwrap();
    fs::rename(&aside, node.manifests()).unwrap();
    node.until("a problem", |state| !has_problem(state, "is not there"))
        .await;
    node.until_saved("Directory").await;
    node.source = None;
    fs::remove_dir_all(node.manifests()).unwrap();
    node.start();
    let state = node
        .until("a problem", |state| has_problem(state, "is gone"))
        .await;
    assert!(!state.ready);
    fs::create_dir(node.manifests()).unwrap();
    node.until_images(&[]).await;
}

#[tokio::test]
async fn a_path_that_is_gone_after_a_first_look_without_an_end_takes_no_pods_along() {
    let mut node = Node::with_directory();
    node.write("a", &manifest("a", "i:1"));
    node.start();
    node.until_images(&["i:1"]).await;
    node.until_saved("i:1").await;
    node.source = None;
    // As a run leaves it that is killed in a look that takes long.
    let store = node.last_good_file(&node.manifests());
    let mut left = store.load().unwrap().unwrap();
    left.kind = None;
    store.save(&left).unwrap();
    fs::remove_dir_all(node.manifests()).unwrap();
    node.start();
    let state = node
        .until("missed", |state| has_problem(state, "is not there"))
        .await;
    let expected = (vec!["i:1".to_owned()], false);
    assert_eq!((images(&state), state.ready), expected);
}

#[tokio::test]
async fn a_directory_that_vanishes_takes_no_pods_along() {
    let mut node = Node::with_directory();
    node.write("a", &manifest("a", "i:1"));
    node.start();
    node.until_images(&["i:1"]).await;
    fs::rename(node.manifests(), node.disk.path().join("elsewhere")).unwrap();
    let state = node
        .until("a problem", |state| has_problem(state, "gone"))
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
    node.until_saved("i:1").await;
    fs::rename(node.manifests(), node.disk.path().join("elsewhere")).unwrap();
    nix::unistd::mkfifo(&node.manifests(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let state = node
        .until("a problem", |state| has_problem(state, "FIFO"))
        .await;
    assert_eq!(images(&state), ["i:1"]);
    // Also in the next run.
    node.start();
    let state = node.until("ready", |state| state.ready).await;
    assert_eq!(images(&state), ["i:1"]);
    assert!(has_problem(&state, "FIFO"));
}

#[tokio::test]
async fn a_path_that_was_never_readable_is_not_ready() {
    let mut node = Node::new();
    nix::unistd::mkfifo(&node.manifests(), nix::sys::stat::Mode::S_IRWXU).unwrap();
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
async fn a_failing_state_directory_stops_nothing() {
    let mut node = Node::with_directory();
    fs::remove_dir(node.disk.path().join("state")).unwrap();
    node.start();
    node.write("a", &manifest("a", "i:1"));
    node.until_images(&["i:1"]).await;
    node.write("a", &manifest("a", "i:2"));
    node.until_images(&["i:2"]).await;
}

#[tokio::test]
async fn hostile_names_stop_nothing() {
    let mut node = Node::with_directory();
    let at = |name: &str| node.manifests().join(name);
    nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", at("link")).unwrap();
    fs::create_dir(at("directory")).unwrap();
    node.write("deep", &"[".repeat(100_000));
    let file = fs::File::create(at("large")).unwrap();
    file.set_len(1 << 40).unwrap();
    fs::set_permissions(at("large"), fs::Permissions::from_mode(0o600)).unwrap();
    node.write("good", &manifest("a", "i:1"));
    node.start();
    let state = node.until_images(&["i:1"]).await;
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
    // Nor after our restarts, although it comes first by name.
    node.until_saved("i:2").await;
    for run in 1..=2 {
        node.start();
        let state = node
            .until("ready", |state| {
                state.ready && has_problem(state, "already in")
            })
            .await;
        assert_eq!(images(&state), ["i:1"], "run {run}");
    }
    // It may be edited, also while nobody looks: the copy does not get its turn by that.
    node.write("b.yaml", &manifest("a", "i:4"));
    node.until_images(&["i:4"]).await;
    node.until_saved("i:4").await;
    node.source = None;
    node.write("b.yaml", &manifest("a", "i:5"));
    node.start();
    let state = node.until_images(&["i:5"]).await;
    assert!(has_problem(&state, "b.yaml"), "{state:?}");
    // Without the pod that ran, it is the copy's turn, and the next run keeps that.
    node.remove("b.yaml");
    node.until_images(&["i:2"]).await;
    node.write("a", &manifest("a", "i:3"));
    node.until("a problem", |state| has_problem(state, "already in"))
        .await;
    node.until_saved("i:3").await;
    node.start();
    node.until_images(&["i:2"]).await;
}

#[test]
fn times_look_like_the_kubelets() {
    assert_eq!(timestamp(UnixNanos(0)), "1970-01-01T00:00:00Z");
    assert_eq!(
        timestamp(UnixNanos(1_767_225_600_000_000_001)),
        "2026-01-01T00:00:00.000000001Z"
    );
    assert!(!timestamp(UnixNanos(i64::MAX)).is_empty());
}

/// A disk that hangs while it is shut.
#[derive(Debug, Clone, Default)]
struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Debug, Default)]
struct GateState {
    shut: bool,
    waiting: usize,
    most_waiting: usize,
}

impl Gate {
    fn set_shut(&self, shut: bool) {
        self.0.0.lock().unwrap().shut = shut;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let mut state = self.0.0.lock().unwrap();
        state.waiting += 1;
        state.most_waiting = state.most_waiting.max(state.waiting);
        let (mut state, waited) = (self
            .0
            .1
            .wait_timeout_while(state, PATIENCE, |state| state.shut))
        .unwrap();
        state.waiting -= 1;
        // As bad as for ever: nobody who could open it goes on.
        assert!(!waited.timed_out(), "the test's own thread hangs too");
    }

    fn most_waiting(&self) -> usize {
        self.0.0.lock().unwrap().most_waiting
    }
}

/// A state file on a disk that may hang.
#[derive(Debug)]
struct Gated(LastGoodFile, Gate);

impl Store for Gated {
    fn place(&self) -> String {
        Store::place(&self.0)
    }

    fn load(&self) -> Result<Option<LastGood>, StateFileError> {
        self.1.pass();
        self.0.load()
    }

    fn save(&self, last_good: &LastGood) -> Result<(), StateFileError> {
        self.1.pass();
        self.0.save(last_good)
    }
}
