//! The manifest path as a source of pods: looks when something changes there,
//! and every `fileCheckFrequency` anyway.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use backoff::{Backoff, Curve};
use clock::{UnixNanos, WallClock};
use pod::PodSource;
use pod_manifest::{ManifestNode, Origin, static_pods};
use state_file::{Saver, Writer};
use tokio::time::Instant;

use crate::files::Manifests;
use crate::last_good::{Completeness, LastGood, PathKind, Store};
use crate::publication::Publication;
use crate::reader::{self, Disk, Finding, Listing, Order, Report, Settled, reporter};
use crate::snapshot::{LastPublished, Problem};
use crate::watcher::{Hint, Watch, Watcher};

/// When a file that is just being written is looked at again.
const SETTLING: Duration = Duration::from_millis(50);

/// So often in a row a file may be found being written; then it is read as it
/// is. One that is appended to for ever must not hold up the others.
const MAX_SETTLING_LOOKS: u32 = 20;

/// Writing down what is good takes the disk's time, which pods that are about to
/// start should have: it waits until nothing has changed for so long.
const SAVE_DELAY: Duration = Duration::from_millis(200);

/// So many changes in a row may delay it.
const MAX_UNSAVED_LOOKS: u32 = 20;

/// A file that takes longer than this to be read is a problem to be told. The
/// process is none the worse for it: reading has a thread of its own. So often, too,
/// a look that takes longer publishes what it has read.
const SLOW: Duration = Duration::from_secs(5);

/// When a path that could not be listed is looked at again (the kubelet's retry),
/// doubled at each failure up to `fileCheckFrequency`.
const FIRST_RETRY: Duration = Duration::from_secs(1);

/// The manifest path.
#[derive(Debug)]
pub(crate) struct FileSource {
    path: PathBuf,
    node: ManifestNode,
    check_frequency: Duration,
    /// Looks in a row that could not list the path.
    failed_looks: Backoff,
    clock: WallClock,
    publication: Publication,
    store: Arc<dyn Store>,
    saver: Saver<(), LastGood>,
    /// What was last handed to the saver.
    saved: Option<Version>,
    completeness: Completeness,
    kind: Option<PathKind>,
    manifests: Manifests,
    last_published: LastPublished,
    /// Whether it is what an earlier run published: until this one has delivered.
    is_of_an_earlier_run: bool,
    /// Looks in a row that found a file being written.
    settling_looks: u32,
    /// Looks since writing down the manifests was begun.
    unsaved_looks: u32,
    disk: Disk,
    watch: Watch,
}

/// Differs whenever what is worth writing down does: the completeness, the kind, the revision
/// of the manifests, on which the pods that are published depend, and whether those are
/// still an earlier run's.
type Version = (Completeness, Option<PathKind>, u64, bool);

/// What a look at the path found out.
enum Look {
    /// The manifests are up to date.
    Complete {
        settling: bool,
        problems: Vec<Problem>,
    },
    /// The path cannot be listed: what was known stands.
    Failed(Problem),
    /// It is still being read, with a problem if that hangs.
    Unfinished(Option<Problem>),
}

impl FileSource {
    /// Nothing is known yet. Runs with the writer of what is to be kept in `store`.
    #[must_use]
    pub(crate) fn new(
        path: PathBuf,
        node: impl Into<ManifestNode>,
        check_frequency: Duration,
        clock: WallClock,
        publication: Publication,
        store: Arc<dyn Store>,
    ) -> (Self, Writer<(), LastGood>) {
        let of_writer = Arc::clone(&store);
        let write = move |(): &(), last_good: &LastGood| of_writer.save(last_good);
        let (saver, writer) = Saver::new("the last good manifests", write);
        let source = Self {
            path,
            node: node.into(),
            check_frequency,
            failed_looks: failed_looks(check_frequency),
            clock,
            publication,
            store,
            saver,
            saved: None,
            completeness: Completeness::Lost,
            kind: None,
            manifests: Manifests::default(),
            last_published: LastPublished::default(),
            is_of_an_earlier_run: false,
            settling_looks: 0,
            unsaved_looks: 0,
            disk: Disk::new(reader::read),
            watch: Watch::new(Watcher::new),
        };
        (source, writer)
    }

    /// Takes up what an earlier run has left, then follows the path for ever.
    pub(crate) async fn run(self, writer: Writer<(), LastGood>) -> Infallible {
        tokio::select! {
            never = writer.run() => never,
            never = self.follow() => never,
        }
    }

    async fn follow(mut self) -> Infallible {
        self.remember().await;
        let mut hint = Hint::default();
        loop {
            self.watch.begin();
            let look = self.look(hint).await;
            let wait = self.wait_after(&look);
            self.publish(look);
            hint = self.wait(Instant::now() + wait).await;
        }
    }

    /// How long the path is left alone after a look, unless it changes.
    fn wait_after(&mut self, look: &Look) -> Duration {
        if let Look::Failed(_) = look {
            return self.failed_looks.failed();
        }
        self.failed_looks.reset();
        match look {
            Look::Complete { settling: true, .. } => SETTLING,
            _ => self.check_frequency,
        }
    }

    /// Reads what an earlier run has left, however long it takes: without it a
    /// pod whose manifest is bad would look removed.
    async fn remember(&mut self) {
        let store = Arc::clone(&self.store);
        let mut loading = blocking::spawn(move || store.load());
        let loaded = loop {
            match tokio::time::timeout(SLOW, &mut loading).await {
                Ok(loaded) => break loaded,
                Err(_) => {
                    let problem = slow(&self.store.place());
                    self.publish(Look::Unfinished(Some(problem)));
                }
            }
        };
        let lost = |error: &(dyn std::error::Error + 'static)| {
            let error = telemetry::chain(error);
            tracing::warn!(error, "last good manifests are lost");
        };
        match loaded {
            Ok(Ok(None)) => self.completeness = Completeness::Complete,
            Ok(Ok(Some(last_good))) => {
                self.completeness = last_good.completeness;
                self.kind = last_good.kind;
                self.manifests = Manifests::from_remembered(last_good.manifests);
                self.is_of_an_earlier_run = !last_good.last_published.uids.is_empty();
                self.last_published = last_good.last_published;
            }
            Ok(Err(error)) => lost(&error),
            // It panicked.
            Err(error) => lost(&error),
        }
    }

    /// Waits for a change, at most until `deadline`, and has what is good written
    /// down meanwhile.
    async fn wait(&mut self, deadline: Instant) -> Hint {
        if self.is_unsaved() {
            let quiet = deadline.min(Instant::now() + SAVE_DELAY);
            // Cancel-safe: a change stays in the watch until this returns it.
            if let Some(hint) = self.watch.changed(quiet).await {
                self.unsaved_looks += 1;
                if self.unsaved_looks >= MAX_UNSAVED_LOOKS {
                    self.save();
                }
                return hint;
            }
            self.save();
        }
        self.watch.changed(deadline).await.unwrap_or_default()
    }

    /// Has everything read, and judges what comes; at most one reading goes on at
    /// a time, however long it takes.
    async fn look(&mut self, hint: Hint) -> Look {
        let order = Order {
            path: self.path.clone(),
            clock: self.clock.clone(),
            known: self.manifests.fingerprints(),
            settled: if self.settling_looks >= MAX_SETTLING_LOOKS {
                Settled::All
            } else {
                Settled::Names(hint.settled)
            },
            arming: self.watch.arming(),
        };
        let (reporter, mut reports) = reporter(&self.path);
        let disk = self.disk.clone();
        let reading = blocking::spawn(move || disk.read(order, &reporter));
        let mut published = Instant::now();
        loop {
            match tokio::time::timeout(SLOW, reports.next()).await {
                Ok(Report::End) => break,
                Ok(Report::Finding(finding)) => {
                    self.judge(finding);
                    tokio::task::yield_now().await;
                }
                Ok(Report::Progress) => {}
                Err(_) => {
                    self.publish_so_far(Some(slow(&reports.place())));
                    published = Instant::now();
                }
            }
            // Many files may take long without any of them doing so.
            if published.elapsed() >= SLOW {
                self.publish_so_far(None);
                published = Instant::now();
            }
        }
        match reading.await {
            Ok(listing) => self.conclude(listing),
            // It panicked: as bad as a directory that cannot be read.
            Err(error) => Look::Failed(self.problem(error.to_string())),
        }
    }

    /// Publishes what has been read of a look that goes on. It counts after a restart too.
    fn publish_so_far(&mut self, problem: Option<Problem>) {
        self.publish(Look::Unfinished(problem));
        self.save();
    }

    /// What a whole reading comes to.
    fn conclude(&mut self, listing: Listing) -> Look {
        if let Some(armed) = listing.armed {
            self.watch.armed(armed);
        }
        match listing.kind {
            Err(reason) => return Look::Failed(self.problem(reason)),
            Ok(None) => return self.absent(listing.dangling),
            Ok(kind) => self.kind = kind,
        }
        let has_new_room = self.manifests.retain(&listing.listed);
        let mut problems = Vec::new();
        if listing.left_out > 0 {
            problems.push(self.problem(format!(
                "{} files are not read: at most {} are",
                listing.left_out,
                manifest_files::MAX_FILES
            )));
        }
        Look::Complete {
            // Like one that is being written, a file that was left out is soon read again.
            settling: listing.settling || has_new_room,
            problems,
        }
    }

    fn judge(&mut self, finding: Finding) {
        let Finding {
            path,
            observation,
            at,
        } = finding;
        let node = &self.node;
        self.manifests
            .observe(&path, observation, &timestamp(at), |bytes| {
                static_pods(bytes, Origin::File(&path), node)
            });
    }

    /// Nothing is there. Where nothing ever was, or a single file, that is an
    /// answer; a directory that vanished with all its pods is a mishap, and so is a link
    /// with pods behind it that leads to nothing that this process can see.
    fn absent(&mut self, dangling: Option<String>) -> Look {
        let had_pods = !self.manifests.is_empty() || self.completeness == Completeness::Lost;
        let dangling = dangling.map(|reason| self.problem(reason));
        let mishap = match (self.kind, &dangling) {
            _ if !had_pods => None,
            (_, Some(dangling)) => Some(dangling.clone()),
            (Some(PathKind::Directory), None) => {
                let reason = "the directory is gone; its pods keep running until it is back";
                Some(self.problem(reason))
            }
            // A run that ended in its first look knew no more.
            (None, None) => Some(self.problem(
                "is not there, and it is not remembered what it was; \
                 its pods keep running until it is back, be it empty",
            )),
            (Some(PathKind::File), None) => None,
        };
        if let Some(mishap) = mishap {
            return Look::Failed(mishap);
        }
        self.manifests.retain(&BTreeSet::new());
        Look::Complete {
            settling: false,
            problems: dangling.into_iter().collect(),
        }
    }

    /// A problem with the whole path.
    fn problem(&self, reason: impl Into<String>) -> Problem {
        Problem::new(self.path.display().to_string(), reason)
    }

    fn publish(&mut self, look: Look) {
        let (pods, published, mut problems) = self.manifests.snapshot(&self.last_published);
        let delivered = match look {
            Look::Complete {
                settling,
                problems: more,
            } => {
                let left_out = !more.is_empty();
                problems.extend(more);
                self.settling_looks = if settling { self.settling_looks + 1 } else { 0 };
                // A bad file of which nothing is remembered may have pods running, and
                // so may one that is left out: they must not look like removed ones.
                let unread = left_out || self.manifests.has_bad_without_pods();
                let unknown = self.completeness == Completeness::Lost && unread;
                !unknown && !settling
            }
            Look::Failed(problem) => {
                problems.push(problem);
                // What an earlier run knew is still the last good state.
                self.kind.is_some() && self.completeness == Completeness::Complete
            }
            Look::Unfinished(problem) => {
                problems.extend(problem);
                // What is gone by now is not known before the reading ends.
                false
            }
        };
        if let Some(failure) = self.watch.failure() {
            // What is read is right, though late: this holds up nothing.
            let seconds = self.check_frequency.as_secs();
            problems.push(self.problem(format!(
                "changes are noticed late, by looking every {seconds} s: {failure}"
            )));
        }
        if delivered {
            self.completeness = Completeness::Complete;
            self.is_of_an_earlier_run = false;
        }
        if !self.is_of_an_earlier_run {
            self.last_published = published;
        }
        self.publication
            .set(PodSource::File, delivered, Some(pods), problems);
    }

    fn version(&self) -> Version {
        let revision = self.manifests.revision();
        (
            self.completeness,
            self.kind,
            revision,
            self.is_of_an_earlier_run,
        )
    }

    fn is_unsaved(&self) -> bool {
        self.saved != Some(self.version())
    }

    /// Has what is good now written down.
    fn save(&mut self) {
        if self.is_unsaved() {
            let last_good = LastGood {
                completeness: self.completeness,
                kind: self.kind,
                last_published: self.last_published.clone(),
                manifests: self.manifests.to_remember(),
            };
            // Nobody waits for it: it costs nothing until a file is bad and this process
            // is restarted.
            drop(self.saver.put((), last_good));
            self.saved = Some(self.version());
            self.unsaved_looks = 0;
        }
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

/// A time as annotations have it: RFC 3339 with nanoseconds.
pub(crate) fn timestamp(time: UnixNanos) -> String {
    // Any number of nanoseconds in 64 bits is a time that jiff knows.
    k8s_openapi::jiff::Timestamp::from_nanosecond(i128::from(time.0))
        .map(|time| time.to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
