//! The manifest path as a source of pods: looks when something changes there,
//! and every `fileCheckFrequency` anyway.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use clock::{UnixNanos, WallClock};
use pod::PodSource;
use pod_validation::{Origin, static_pods};
use tokio::time::Instant;

use crate::directory::{self, Expectation, Found, ListError, Location, Place};
use crate::files::{Manifests, Observation};
use crate::last_good::{LastGood, Memory, PathKind};
use crate::publication::Publication;
use crate::snapshot::Problem;
use crate::watcher::{Hint, Watcher};

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

/// What of an earlier life could be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recall {
    /// All that was good then, or there was no earlier life.
    Complete,
    /// The file with it was damaged.
    Lost,
}

/// The manifest path.
#[derive(Debug)]
pub struct FileSource {
    path: PathBuf,
    node_name: String,
    check_frequency: Duration,
    clock: WallClock,
    publication: Publication,
    memory: Memory,
    recall: Recall,
    kind: Option<PathKind>,
    manifests: Manifests,
    /// The revision of the manifests that is on the disk, with the kind.
    saved: Option<(u64, Option<PathKind>)>,
    save_fails: bool,
    /// Looks in a row that found a file being written.
    settling_looks: u32,
    /// Looks since the manifests were written down.
    unsaved_looks: u32,
}

/// What a look at the path found out.
enum Look {
    /// The manifests are up to date.
    Complete {
        settling: bool,
        problems: Vec<Problem>,
    },
    /// The path cannot be listed: what was known stands.
    Failed(Problem),
}

impl FileSource {
    /// Takes up what an earlier life has left.
    #[must_use]
    pub fn new(
        path: PathBuf,
        node_name: &str,
        check_frequency: Duration,
        clock: WallClock,
        publication: Publication,
        memory: Memory,
    ) -> Self {
        let (last_good, recall) = match memory.load() {
            Ok(last_good) => (last_good, Recall::Complete),
            Err(error) => {
                tracing::warn!(
                    error = telemetry::chain(&error),
                    "last good manifests are lost"
                );
                (None, Recall::Lost)
            }
        };
        let kind = last_good.as_ref().and_then(|last_good| last_good.kind);
        let manifests = last_good.map(|last_good| Manifests::from_remembered(last_good.manifests));
        Self {
            path,
            node_name: node_name.to_owned(),
            check_frequency,
            clock,
            publication,
            memory,
            recall,
            kind,
            manifests: manifests.unwrap_or_default(),
            saved: None,
            save_fails: false,
            settling_looks: 0,
            unsaved_looks: 0,
        }
    }

    /// Follows the path for ever.
    pub async fn run(mut self) -> Infallible {
        let mut watcher = match Watcher::new() {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                tracing::warn!(%error, "no inotify: changes are noticed by re-listing only");
                None
            }
        };
        let mut hint = Hint::default();
        loop {
            if let Some(watcher) = &mut watcher
                && let Err(error) = watcher.arm(&self.path)
            {
                tracing::debug!(%error, "nothing of the manifest path can be watched");
            }
            let look = self.look(&hint).await;
            let wait = match &look {
                Look::Complete { settling: true, .. } => SETTLING,
                _ => self.check_frequency,
            };
            self.publish(look);
            let next = Instant::now() + wait;
            if self.is_unsaved() {
                let quiet = (Instant::now() + SAVE_DELAY).min(next);
                if let Some(early) = changed(&mut watcher, quiet).await {
                    self.unsaved_looks += 1;
                    if self.unsaved_looks >= MAX_UNSAVED_LOOKS {
                        self.save();
                    }
                    hint = early;
                    continue;
                }
                self.save();
            }
            hint = changed(&mut watcher, next).await.unwrap_or_default();
        }
    }

    async fn look(&mut self, hint: &Hint) -> Look {
        match directory::open_place(&self.path) {
            Err(error) => self.failed(&error),
            Ok(Place::Absent) => self.absent(),
            Ok(Place::File) => {
                self.kind = Some(PathKind::File);
                let path = self.path.clone();
                let shown = path.display().to_string();
                let settled = path
                    .file_name()
                    .is_some_and(|name| hint.settled.contains(name));
                let settling = self.observe(Location::Path(&path), &shown, settled);
                self.manifests.retain(&[shown].into());
                Look::Complete {
                    settling,
                    problems: Vec::new(),
                }
            }
            Ok(Place::Directory(handle)) => match directory::names(&handle) {
                Err(error) => self.failed(&error),
                Ok(names) => {
                    self.kind = Some(PathKind::Directory);
                    self.read_all(&handle, names, hint).await
                }
            },
        }
    }

    /// Reads the files of a directory; lets others run between two of them.
    async fn read_all(
        &mut self,
        handle: &std::os::fd::OwnedFd,
        names: BTreeSet<OsString>,
        hint: &Hint,
    ) -> Look {
        let manifests = &self.manifests;
        let path = self.path.clone();
        let shown = |name: &OsStr| directory::display_path(&path, name);
        let (names, left_out) = directory::chosen(names, |name| manifests.is_known(&shown(name)));
        let mut problems = Vec::new();
        if left_out > 0 {
            let reason = format!(
                "{left_out} files are not read: at most {} are",
                directory::MAX_FILES
            );
            problems.push(Problem::new(path.display().to_string(), reason));
        }
        let mut listed = BTreeSet::new();
        let mut settling = false;
        for name in names {
            let shown = shown(&name);
            let location = Location::Beneath(handle, &name);
            match self.look_at(location, &shown, hint.settled.contains(&name)) {
                Seen::Manifest => {}
                Seen::Settling => settling = true,
                Seen::Nothing => continue,
            }
            listed.insert(shown);
            tokio::task::yield_now().await;
        }
        self.manifests.retain(&listed);
        Look::Complete { settling, problems }
    }

    /// Looks at the one file of the path; returns whether it is being written.
    fn observe(&mut self, location: Location<'_>, shown: &str, settled: bool) -> bool {
        matches!(self.look_at(location, shown, settled), Seen::Settling)
    }

    fn look_at(&mut self, location: Location<'_>, shown: &str, settled: bool) -> Seen {
        let now = self.clock.now();
        let fingerprint = self.manifests.fingerprint(shown);
        let settled = settled || self.settling_looks >= MAX_SETTLING_LOOKS;
        match directory::read(
            location,
            Expectation {
                fingerprint,
                settled,
                now,
            },
        ) {
            Found::Manifest(observation) => {
                self.judge(shown, observation, now);
                Seen::Manifest
            }
            Found::Settling => Seen::Settling,
            Found::Directory | Found::Gone => Seen::Nothing,
        }
    }

    fn judge(&mut self, shown: &str, observation: Observation, now: UnixNanos) {
        let node_name = &self.node_name;
        self.manifests
            .observe(shown, observation, &timestamp(now), |bytes| {
                static_pods(bytes, Origin::File(shown), node_name)
            });
    }

    /// Nothing is there. Where nothing ever was, or a single file, that is an
    /// answer; a directory that vanished with all its pods is a mishap.
    fn absent(&mut self) -> Look {
        if self.kind == Some(PathKind::Directory) && !self.manifests.is_empty() {
            let reason = "the directory is gone; its pods keep running until it is back";
            return Look::Failed(Problem::new(self.path.display().to_string(), reason));
        }
        self.manifests.retain(&BTreeSet::new());
        Look::Complete {
            settling: false,
            problems: Vec::new(),
        }
    }

    fn failed(&self, error: &ListError) -> Look {
        Look::Failed(Problem::new(
            self.path.display().to_string(),
            error.to_string(),
        ))
    }

    fn publish(&mut self, look: Look) {
        let running = self.publication.pods(PodSource::File);
        let (pods, mut problems) = self.manifests.snapshot(&running);
        let delivered = match look {
            Look::Complete {
                settling,
                problems: more,
            } => {
                problems.extend(more);
                self.settling_looks = if settling { self.settling_looks + 1 } else { 0 };
                // A bad file of which nothing is remembered may have pods running:
                // they must not look like removed ones.
                let unknown = self.recall == Recall::Lost && self.manifests.has_bad_without_pods();
                !unknown && !settling
            }
            Look::Failed(problem) => {
                problems.push(problem);
                // What an earlier life knew is still the last good state.
                self.kind.is_some() && self.recall == Recall::Complete
            }
        };
        if delivered {
            self.recall = Recall::Complete;
        }
        self.publication
            .set(PodSource::File, delivered, Some(pods), problems);
    }

    fn is_unsaved(&self) -> bool {
        self.saved != Some((self.manifests.revision(), self.kind))
    }

    /// Writes down what is good now. Failing costs nothing until a file is bad
    /// and we are restarted, so it is logged once and tried again.
    fn save(&mut self) {
        let present = (self.manifests.revision(), self.kind);
        self.unsaved_looks = 0;
        let last_good = LastGood {
            kind: self.kind,
            manifests: self.manifests.to_remember(),
        };
        match self.memory.save(&last_good) {
            Ok(()) => {
                self.saved = Some(present);
                self.save_fails = false;
            }
            Err(error) => {
                if !self.save_fails {
                    let error = telemetry::chain(&error);
                    tracing::warn!(error, "last good manifests cannot be kept over a restart");
                }
                self.save_fails = true;
            }
        }
    }
}

/// What became of a name in the listing.
enum Seen {
    Manifest,
    Settling,
    Nothing,
}

/// Waits for a change, at most until `deadline`.
async fn changed(watcher: &mut Option<Watcher>, deadline: Instant) -> Option<Hint> {
    let Some(watcher) = watcher else {
        tokio::time::sleep_until(deadline).await;
        return None;
    };
    // Cancel-safe: events are taken when they are returned.
    tokio::time::timeout_at(deadline, watcher.changed())
        .await
        .ok()
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
