//! Notices changes of the manifest path at once, through inotify. Everything it
//! tells is a hint to look again: what is lost costs latency only.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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
    /// A directory above it: only this name in it matters.
    Ancestor(OsString),
}

/// What changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Hint {
    /// Names of files that are complete: their writers have closed them, or they
    /// came by a rename.
    pub settled: BTreeSet<OsString>,
}

/// A [`Watcher`] as soon as there can be one, and why changes are not noticed at
/// once as long as they are not. What the system lacks now (instances, watches) it
/// may have later, so all of it is tried again at each look.
pub(crate) struct Watch {
    make: Box<dyn Fn() -> io::Result<Watcher> + Send + Sync>,
    watcher: Option<Watcher>,
    failure: Option<String>,
}

impl Watch {
    /// Watches with what this makes: [`Watcher::new`], but for tests of failures.
    pub(crate) fn new(make: impl Fn() -> io::Result<Watcher> + Send + Sync + 'static) -> Self {
        Self {
            make: Box::new(make),
            watcher: None,
            failure: None,
        }
    }

    /// Makes the watcher if there is none.
    pub(crate) fn begin(&mut self) {
        if self.watcher.is_some() {
            return;
        }
        match (self.make)() {
            // What it can watch is known when it is armed.
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => self.tell(Some(format!("no inotify: {error}"))),
        }
    }

    /// What adds watches, if there is a watcher.
    pub(crate) fn arming(&self) -> Option<Arming> {
        self.watcher.as_ref().map(Watcher::arming)
    }

    /// Takes over what was added.
    pub(crate) fn armed(&mut self, mut armed: Armed) {
        self.tell(armed.failure.take());
        if let Some(watcher) = &mut self.watcher {
            watcher.armed(armed);
        }
    }

    /// Waits for a change, at most until `deadline`. Cancel-safe: a change is taken
    /// when it is returned.
    pub(crate) async fn changed(&mut self, deadline: Instant) -> Option<Hint> {
        let Some(watcher) = &mut self.watcher else {
            tokio::time::sleep_until(deadline).await;
            return None;
        };
        tokio::time::timeout_at(deadline, watcher.changed())
            .await
            .ok()
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

impl fmt::Debug for Watch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            make: _,
            watcher,
            failure,
        } = self;
        formatter
            .debug_struct("Watch")
            .field("watcher", watcher)
            .field("failure", failure)
            .finish_non_exhaustive()
    }
}

/// Watches a path and the directories above it as far as they exist.
#[derive(Debug)]
pub(crate) struct Watcher {
    events: EventStream<Vec<u8>>,
    roles: HashMap<WatchDescriptor, Role>,
}

impl Watcher {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// When the system has no inotify instance left. Must be called inside a
    /// tokio runtime.
    pub(crate) fn new() -> io::Result<Self> {
        let events = Inotify::init()?.into_event_stream(vec![0; BUFFER_BYTES])?;
        Ok(Self {
            events,
            roles: HashMap::new(),
        })
    }

    /// What adds watches, on a thread that may block.
    #[must_use]
    pub(crate) fn arming(&self) -> Arming {
        Arming(self.events.watches())
    }

    /// Takes over what was added; what is not among it is watched no more.
    pub(crate) fn armed(&mut self, armed: Armed) {
        let stale = self.roles.keys();
        let stale = stale.filter(|watch| !armed.roles.contains_key(watch));
        let mut watches = self.events.watches();
        for watch in stale {
            // It may be gone with its directory.
            drop(watches.remove(watch.clone()));
        }
        self.roles = armed.roles;
    }

    /// Waits until something changed that matters. Cancel-safe: between taking
    /// the first event and returning it does not wait.
    pub(crate) async fn changed(&mut self) -> Hint {
        loop {
            let mut hint = None;
            let mut next = self.events.next().await;
            loop {
                match next {
                    Some(Ok(event)) => self.note(&event, &mut hint),
                    // A broken queue: look again, and wait for the next re-list.
                    Some(Err(error)) => {
                        tracing::warn!(%error, "cannot read inotify events");
                        return hint.unwrap_or_default();
                    }
                    None => break,
                }
                match self.events.next().now_or_never() {
                    Some(event) => next = event,
                    None => break,
                }
            }
            if let Some(hint) = hint {
                return hint;
            }
        }
    }

    fn note(&self, event: &EventOwned, hint: &mut Option<Hint>) {
        let name = event.name.as_deref();
        let matters = event.mask.contains(EventMask::Q_OVERFLOW)
            || match self.roles.get(&event.wd) {
                Some(Role::Manifests) => !name.is_some_and(is_hidden),
                Some(Role::Ancestor(watched)) => name.is_none_or(|name| name == watched),
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
        let mut watches = self.0.clone();
        let mut roles = HashMap::new();
        let mut failure = None;
        let mut failed = |path: &Path, error: &io::Error| {
            // What is not there is noticed through a directory above.
            if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
                failure.get_or_insert_with(|| format!("cannot watch {}: {error}", path.display()));
            }
        };
        match watches.add(path, inside()) {
            Ok(watch) => {
                roles.insert(watch, Role::Manifests);
            }
            Err(error) => failed(path, &error),
        }
        for (directory, name) in ancestors(path) {
            match watches.add(&directory, above()) {
                Ok(watch) => {
                    roles.entry(watch).or_insert(Role::Ancestor(name));
                    break;
                }
                // A path that is watched itself tells when it is moved or deleted; of
                // a link what it leads to is watched, and not the link.
                Err(error) if roles.is_empty() || is_link(path) => failed(&directory, &error),
                Err(error) => {
                    tracing::debug!(%error, directory = %directory.display(), "cannot be watched");
                }
            }
        }
        Armed { roles, failure }
    }
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata()
        .is_ok_and(|metadata| metadata.is_symlink())
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

/// The directories above a path, nearest first, with the name in each that
/// leads to it.
fn ancestors(path: &Path) -> impl Iterator<Item = (PathBuf, OsString)> {
    path.ancestors().filter_map(|below| {
        let parent = below.parent()?;
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        Some((parent.to_owned(), below.file_name()?.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    /// Generous: it is only ever waited for when a test fails.
    const PATIENCE: Duration = Duration::from_secs(10);

    fn arm(watcher: &mut Watcher, path: &Path) {
        let armed = watcher.arming().add(path);
        watcher.armed(armed);
    }

    async fn hint(watcher: &mut Watcher) -> Hint {
        tokio::time::timeout(PATIENCE, watcher.changed())
            .await
            .unwrap()
    }

    /// Reads hints until one names the file.
    async fn until_settled(watcher: &mut Watcher, name: &str) {
        while !hint(watcher).await.settled.contains(OsStr::new(name)) {}
    }

    #[tokio::test]
    async fn a_written_file_and_a_renamed_one_are_settled() {
        let directory = tempfile::tempdir().unwrap();
        let mut watcher = Watcher::new().unwrap();
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
        let mut watcher = Watcher::new().unwrap();
        arm(&mut watcher, directory.path());
        fs::write(directory.path().join(".a.swp"), "x").unwrap();
        fs::write(directory.path().join("z"), "x").unwrap();
        until_settled(&mut watcher, "z").await;
        fs::write(directory.path().join(".a.swp"), "y").unwrap();
        assert!(watcher.changed().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_directory_that_comes_late_is_noticed() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("x/manifests");
        let mut watcher = Watcher::new().unwrap();
        arm(&mut watcher, &path);
        fs::create_dir(above.path().join("x")).unwrap();
        hint(&mut watcher).await;
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
        let mut watcher = Watcher::new().unwrap();
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
        let mut watcher = Watcher::new().unwrap();
        arm(&mut watcher, &path);
        fs::write(directory.path().join("new"), "y").unwrap();
        fs::rename(directory.path().join("new"), &path).unwrap();
        until_settled(&mut watcher, "pod.yaml").await;
    }

    /// Looks at the path as the file source does.
    fn look(watch: &mut Watch, path: &Path) {
        watch.begin();
        if let Some(armed) = watch.arming().map(|arming| arming.add(path)) {
            watch.armed(armed);
        }
    }

    #[tokio::test]
    async fn a_watcher_that_cannot_be_made_is_made_at_a_later_look() {
        let directory = tempfile::tempdir().unwrap();
        let attempts = AtomicUsize::new(0);
        let mut watch = Watch::new(move || match attempts.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Err(io::Error::from_raw_os_error(nix::libc::EMFILE)),
            2 => Watcher::new(),
            _ => panic!("there is one already"),
        });
        for _ in 0..2 {
            look(&mut watch, directory.path());
            let failure = watch.failure.as_deref().unwrap();
            assert!(failure.contains("Too many open files"), "{failure}");
        }
        for _ in 0..2 {
            look(&mut watch, directory.path());
            assert_eq!(watch.failure, None);
        }
        fs::write(directory.path().join("a"), "x").unwrap();
        let hint = watch.changed(Instant::now() + PATIENCE).await;
        assert!(hint.is_some());
    }

    #[tokio::test]
    async fn what_is_there_and_cannot_be_watched_is_a_failure_until_it_can() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("manifests");
        let mut watch = Watch::new(Watcher::new);
        // What is not there yet is noticed through the directory above.
        look(&mut watch, &path);
        assert_eq!(watch.failure, None);
        symlink(&path, &path).unwrap();
        for _ in 0..2 {
            look(&mut watch, &path);
            let failure = watch.failure.as_deref().unwrap();
            assert!(
                failure.contains("Too many levels of symbolic links")
                    && failure.contains(&path.display().to_string()),
                "{failure}"
            );
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        look(&mut watch, &path);
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
        let mut watch = Watch::new(Watcher::new);
        look(&mut watch, &directory);
        let of_directory = watch.failure.clone();
        look(&mut watch, &link);
        let of_link = watch.failure.clone();
        nix::unistd::setfsuid(root);
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(of_directory, None);
        let of_link = of_link.unwrap();
        assert!(of_link.contains(&closed.display().to_string()), "{of_link}");
    }
}
