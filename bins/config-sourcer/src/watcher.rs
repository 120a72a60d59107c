//! Notices changes of the manifest path at once, through inotify. Everything it
//! tells is a hint to look again: what is lost costs latency only.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use futures_util::{FutureExt, StreamExt};
use inotify::{EventMask, EventOwned, EventStream, Inotify, WatchDescriptor, WatchMask, Watches};
use tokio::time::Instant;

/// Room for some 50 events with long names; more are read the next time.
const BUFFER_BYTES: usize = 16 << 10;

/// What a watched directory is to us.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Role {
    /// The manifest path itself.
    Manifests,
    /// The directory around it: only this name in it matters.
    Around(OsString),
}

/// What changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hint {
    /// Names of files that are complete: their writers have closed them, or they
    /// came by a rename.
    pub settled: BTreeSet<OsString>,
}

/// Watches a path and the directory around it.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// `None` where the system had no inotify instance left when the process was started.
    events: Option<EventStream<Vec<u8>>>,
    roles: HashMap<WatchDescriptor, Role>,
    /// Why changes are not noticed at once, if they are not.
    failure: Option<String>,
}

impl Watcher {
    /// Watches nothing yet. Must be called inside a tokio runtime.
    pub(crate) fn new() -> Self {
        Self::of(Inotify::init().and_then(|it| it.into_event_stream(vec![0; BUFFER_BYTES])))
    }

    /// With this instance of inotify, or without, for tests of that.
    pub(crate) fn of(events: io::Result<EventStream<Vec<u8>>>) -> Self {
        let mut watcher = Self {
            events: None,
            roles: HashMap::new(),
            failure: None,
        };
        match events {
            // What it can watch is known when it is armed.
            Ok(events) => watcher.events = Some(events),
            Err(error) => watcher.tell(Some(format!("no inotify: {error}"))),
        }
        watcher
    }

    /// What adds watches, on a thread that may block.
    pub(crate) fn arming(&self) -> Option<Arming> {
        self.events.as_ref().map(|events| Arming(events.watches()))
    }

    /// Takes over what was added; what is not among it is watched no more.
    pub(crate) fn armed(&mut self, armed: Armed) {
        self.tell(armed.failure);
        let stale = self.roles.keys();
        let stale = stale.filter(|watch| !armed.roles.contains_key(watch));
        for watch in stale {
            if let Some(events) = &self.events {
                // It may be gone with its directory.
                drop(events.watches().remove(watch.clone()));
            }
        }
        self.roles = armed.roles;
    }

    /// Waits for a change that matters, at most until `deadline`. Cancel-safe: between
    /// taking the first event and returning it does not wait.
    pub(crate) async fn changed(&mut self, deadline: Instant) -> Option<Hint> {
        tokio::time::timeout_at(deadline, self.next()).await.ok()
    }

    async fn next(&mut self) -> Hint {
        loop {
            let Some(events) = &mut self.events else {
                return std::future::pending().await;
            };
            let mut hint = None;
            let mut next = events.next().await;
            loop {
                match next {
                    Some(Ok(event)) => note(&self.roles, &event, &mut hint),
                    // A broken queue: look again, and wait for the next re-list.
                    Some(Err(error)) => {
                        tracing::warn!(%error, "cannot read inotify events");
                        return hint.unwrap_or_default();
                    }
                    None => break,
                }
                match events.next().now_or_never() {
                    Some(event) => next = event,
                    None => break,
                }
            }
            if let Some(hint) = hint {
                return hint;
            }
        }
    }

    /// Why changes are not noticed at once, if they are not.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Logs a failure when it is another one, not at each look.
    fn tell(&mut self, failure: Option<String>) {
        if failure == self.failure {
            return;
        }
        match &failure {
            Some(failure) => {
                tracing::warn!(%failure, "changes of manifests are noticed late, by re-listing");
            }
            None => tracing::info!("changes of manifests are noticed at once again"),
        }
        self.failure = failure;
    }
}

fn note(roles: &HashMap<WatchDescriptor, Role>, event: &EventOwned, hint: &mut Option<Hint>) {
    let name = event.name.as_deref();
    let matters = event.mask.contains(EventMask::Q_OVERFLOW)
        || match roles.get(&event.wd) {
            Some(Role::Manifests) => !name.is_some_and(is_hidden),
            Some(Role::Around(watched)) => name.is_none_or(|name| name == watched),
            // Of a watch that was given up.
            None => false,
        };
    if !matters {
        return;
    }
    let hint = hint.get_or_insert_default();
    let complete = EventMask::CLOSE_WRITE | EventMask::MOVED_TO;
    if event.mask.intersects(complete)
        && let Some(name) = name
    {
        hint.settled.insert(name.to_owned());
    }
}

/// Adds watches to a [`Watcher`].
#[derive(Debug)]
pub(crate) struct Arming(Watches);

/// What was added.
#[derive(Debug)]
pub(crate) struct Armed {
    roles: HashMap<WatchDescriptor, Role>,
    /// Why changes may be missed: what is there and could not be watched.
    failure: Option<String>,
}

impl Arming {
    /// Watches what the path names now. To be called before each look at it, so
    /// that nothing is missed in between; what is watched already stays watched.
    /// Blocks as long as the file system does.
    #[must_use]
    pub(crate) fn add(&self, path: &Path) -> Armed {
        let around = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let name = path.file_name().unwrap_or_default().to_owned();
        let metadata = path.symlink_metadata();
        let is_link = metadata.is_ok_and(|metadata| metadata.is_symlink());
        let mut watches = self.0.clone();
        let mut armed = Armed {
            roles: HashMap::new(),
            failure: None,
        };
        let wanted = [
            (path, inside(), Role::Manifests),
            (around, above(), Role::Around(name)),
        ];
        for (watched, mask, role) in wanted {
            match watches.add(watched, mask) {
                Ok(watch) => _ = armed.roles.entry(watch).or_insert(role),
                // What is not there is noticed through the directory around it, or by looking.
                Err(error)
                    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                // A path that is watched itself tells when it is moved or deleted; of a
                // link what it leads to is watched, and not the link.
                Err(_) if !armed.roles.is_empty() && !is_link => {}
                Err(error) => {
                    let failure = || format!("cannot watch {}: {error}", watched.display());
                    armed.failure.get_or_insert_with(failure);
                }
            }
        }
        armed
    }
}

/// Names of working files. `..data` is none: it is what a set of links points
/// through, and switching it changes all of them.
fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".") && !name.as_bytes().starts_with(b"..")
}

fn inside() -> WatchMask {
    WatchMask::CLOSE_WRITE
        | WatchMask::MOVED_TO
        | WatchMask::MOVED_FROM
        | WatchMask::CREATE
        | WatchMask::DELETE
        | WatchMask::ATTRIB
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF
}

fn above() -> WatchMask {
    WatchMask::CREATE
        | WatchMask::CLOSE_WRITE
        | WatchMask::MOVED_TO
        | WatchMask::MOVED_FROM
        | WatchMask::DELETE
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF
        | WatchMask::ONLYDIR
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::time::Duration;

    use super::*;

    /// Generous: it is only ever waited for when a test fails.
    const PATIENCE: Duration = Duration::from_secs(10);

    fn arm(watcher: &mut Watcher, path: &Path) {
        let armed = watcher.arming().unwrap().add(path);
        watcher.armed(armed);
    }

    async fn hint(watcher: &mut Watcher) -> Hint {
        watcher.changed(Instant::now() + PATIENCE).await.unwrap()
    }

    /// Reads hints until one names the file.
    async fn until_settled(watcher: &mut Watcher, name: &str) {
        while !hint(watcher).await.settled.contains(OsStr::new(name)) {}
    }

    #[tokio::test]
    async fn a_written_file_and_a_renamed_one_are_settled() {
        let directory = tempfile::tempdir().unwrap();
        let mut watcher = Watcher::new();
        arm(&mut watcher, directory.path());
        fs::write(directory.path().join("a"), "x").unwrap();
        until_settled(&mut watcher, "a").await;
        fs::rename(directory.path().join("a"), directory.path().join("b")).unwrap();
        until_settled(&mut watcher, "b").await;
        fs::remove_file(directory.path().join("b")).unwrap();
        assert_eq!(hint(&mut watcher).await, Hint::default());
    }

    #[tokio::test]
    async fn hidden_files_do_not_matter() {
        let directory = tempfile::tempdir().unwrap();
        let mut watcher = Watcher::new();
        arm(&mut watcher, directory.path());
        fs::write(directory.path().join(".a.swp"), "x").unwrap();
        fs::write(directory.path().join("z"), "x").unwrap();
        until_settled(&mut watcher, "z").await;
        fs::write(directory.path().join(".a.swp"), "y").unwrap();
        assert!(watcher.next().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_directory_that_comes_late_is_noticed() {
        let around = tempfile::tempdir().unwrap();
        let path = around.path().join("manifests");
        let mut watcher = Watcher::new();
        arm(&mut watcher, &path);
        fs::create_dir(&path).unwrap();
        hint(&mut watcher).await;
        arm(&mut watcher, &path);
        fs::write(path.join("a"), "x").unwrap();
        until_settled(&mut watcher, "a").await;
    }

    #[tokio::test]
    async fn a_replaced_directory_is_noticed() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("manifests");
        fs::create_dir(&path).unwrap();
        let mut watcher = Watcher::new();
        arm(&mut watcher, &path);
        fs::rename(&path, above.path().join("old")).unwrap();
        fs::create_dir(&path).unwrap();
        hint(&mut watcher).await;
        arm(&mut watcher, &path);
        fs::write(path.join("a"), "x").unwrap();
        until_settled(&mut watcher, "a").await;
    }

    #[tokio::test]
    async fn a_single_file_is_watched_through_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pod.yaml");
        fs::write(&path, "x").unwrap();
        let mut watcher = Watcher::new();
        arm(&mut watcher, &path);
        fs::write(directory.path().join("new"), "y").unwrap();
        fs::rename(directory.path().join("new"), &path).unwrap();
        until_settled(&mut watcher, "pod.yaml").await;
    }

    #[tokio::test]
    async fn what_is_there_and_cannot_be_watched_is_a_failure_until_it_can() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("manifests");
        let mut watch = Watcher::new();
        // What is not there yet is noticed through the directory above.
        arm(&mut watch, &path);
        assert_eq!(watch.failure, None);
        symlink(&path, &path).unwrap();
        for _ in 0..2 {
            arm(&mut watch, &path);
            let failure = watch.failure.as_deref().unwrap();
            assert!(
                failure.contains("Too many levels of symbolic links")
                    && failure.contains(&path.display().to_string()),
                "{failure}"
            );
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        arm(&mut watch, &path);
        assert_eq!(watch.failure, None);
    }

    #[tokio::test]
    async fn a_link_in_a_directory_that_cannot_be_watched_is_a_failure() {
        let above = tempfile::tempdir().unwrap();
        let closed = above.path().join("closed");
        let (directory, link) = (closed.join("directory"), closed.join("link"));
        fs::create_dir_all(&directory).unwrap();
        symlink(&directory, &link).unwrap();
        // May be passed through and not read, by anybody but root.
        fs::set_permissions(above.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o311)).unwrap();
        let root = nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
        let mut watch = Watcher::new();
        arm(&mut watch, &directory);
        let of_directory = watch.failure.clone();
        arm(&mut watch, &link);
        let of_link = watch.failure.clone();
        nix::unistd::setfsuid(root);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(of_directory, None);
        let of_link = of_link.unwrap();
        assert!(of_link.contains(&closed.display().to_string()), "{of_link}");
    }
}
