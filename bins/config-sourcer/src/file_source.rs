//! The manifest path as a source of pods: looks when something changes there,
//! and every `fileCheckFrequency` anyway.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use backoff::{Backoff, Curve};
use clock::WallClock;
use pod::PodSource;
use pod_manifest::ManifestNode;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::files::Manifests;
use crate::publication::Publication;
use crate::reader::{self, Listing, Order, PathKind};
use crate::snapshot::Problem;
use crate::watcher::{Hint, Watcher};

/// When a file that is just being written is looked at again.
const SETTLING: Duration = Duration::from_millis(50);

/// A look that takes longer than this is a problem to be told. The process is none
/// the worse for it: reading has a thread of its own.
const SLOW: Duration = Duration::from_secs(5);

/// When a path that could not be listed is looked at again (the kubelet's retry),
/// doubled at each failure up to `fileCheckFrequency`.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// [`reader::read`], but for tests of what hangs or fails.
type Read = dyn Fn(Order) -> Listing + Send + Sync;

/// The manifest path.
pub(crate) struct FileSource {
    path: PathBuf,
    node: ManifestNode,
    check_frequency: Duration,
    /// Looks in a row that could not list the path.
    failed_looks: Backoff,
    clock: WallClock,
    publication: Publication,
    /// What the path was when it was listed last.
    kind: Option<PathKind>,
    manifests: Manifests,
    read: Arc<Read>,
    watch: Watcher,
}

impl FileSource {
    /// Nothing is known yet.
    #[must_use]
    pub(crate) fn new(
        path: PathBuf,
        node: impl Into<ManifestNode>,
        check_frequency: Duration,
        clock: WallClock,
        publication: Publication,
    ) -> Self {
        Self {
            path,
            node: node.into(),
            check_frequency,
            failed_looks: failed_looks(check_frequency),
            clock,
            publication,
            kind: None,
            manifests: Manifests::default(),
            read: Arc::new(reader::read),
            watch: Watcher::new(),
        }
    }

    /// Follows the path for ever.
    pub(crate) async fn run(mut self) -> Infallible {
        let mut hint = Hint::default();
        loop {
            let wait = match self.look(hint).await {
                Ok(wait) => {
                    self.failed_looks.reset();
                    wait
                }
                // What was known stands.
                Err(reason) => {
                    let problem = self.problem(reason);
                    self.publish(false, Some(problem));
                    self.failed_looks.failed()
                }
            };
            let changed = self.watch.changed(Instant::now() + wait).await;
            hint = changed.unwrap_or_default();
        }
    }

    /// Has everything read, however long it takes, and publishes it. Returns how long the path
    /// is left alone then, unless it changes, or why it cannot be listed.
    async fn look(&mut self, hint: Hint) -> Result<Duration, String> {
        let (at, place) = watch::channel(self.path.display().to_string());
        let order = Order {
            path: self.path.clone(),
            node: self.node.clone(),
            clock: self.clock.clone(),
            manifests: self.manifests.clone(),
            settled: hint.settled,
            arming: self.watch.arming(),
            place: at,
        };
        let read = Arc::clone(&self.read);
        let mut reading = blocking::spawn(move || read(order));
        let listing = match tokio::time::timeout(SLOW, &mut reading).await {
            Ok(listing) => listing,
            Err(_) => {
                let problem = slow(&place.borrow());
                self.publish(false, Some(problem));
                reading.await
            }
        };
        // It panicked: as bad as a directory that cannot be read.
        let listing = listing.map_err(|error| error.to_string())?;
        if let Some(armed) = listing.armed {
            self.watch.armed(armed);
        }
        self.manifests = listing.manifests;
        match (listing.kind?, self.kind) {
            (None, Some(PathKind::File)) => self.manifests.retain(&BTreeSet::new()),
            // A directory that vanished with all its pods is a mishap, and nobody knows what
            // there was before this process was started.
            (None, _) => {
                let reason = "is not there; its pods run on until it is, be it an empty directory";
                return Err(reason.to_owned());
            }
            (kind, _) => self.kind = kind,
        }
        let left_out = (listing.left_out > 0).then(|| {
            self.problem(format!(
                "{} files are not read: at most {} are",
                listing.left_out,
                manifest_files::MAX_FILES
            ))
        });
        self.publish(!listing.settling, left_out);
        Ok(match listing.settling {
            true => SETTLING,
            false => self.check_frequency,
        })
    }

    /// A problem with the whole path.
    fn problem(&self, reason: impl Into<String>) -> Problem {
        Problem::new(self.path.display().to_string(), reason)
    }

    /// Publishes the pods that are known. The source has delivered once a look that `is_whole`
    /// knew all that may run: a file that was bad ever since this process was started, or is
    /// left out, may have pods that must not look like removed ones.
    fn publish(&mut self, is_whole: bool, problem: Option<Problem>) {
        let (pods, mut problems, is_complete) = self.manifests.publish();
        let delivered = is_whole && is_complete && problem.is_none();
        problems.extend(problem);
        if let Some(failure) = self.watch.failure() {
            // What is read is right, though late: this holds up nothing.
            let seconds = self.check_frequency.as_secs();
            problems.push(self.problem(format!(
                "changes are noticed late, by looking every {seconds} s: {failure}"
            )));
        }
        self.publication
            .set(PodSource::File, delivered, Some(pods), problems);
    }
}

/// When a path that could not be listed is looked at again.
fn failed_looks(check_frequency: Duration) -> Backoff {
    Backoff::new(Curve {
        base: FIRST_RETRY,
        cap: check_frequency,
        immediate: 0,
    })
}

/// The problem with a place that does not let itself be read. The same words
/// however long it takes: each change would be told as another problem.
fn slow(place: &str) -> Problem {
    let seconds = SLOW.as_secs();
    let reason = format!(
        "has been being read for more than {seconds} s: look whether its file system or disk \
         hangs; the pods that are known run on, and nothing is removed until all is read"
    );
    Problem::new(place, reason)
}

#[cfg(test)]
mod tests;
