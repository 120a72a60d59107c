//! What is known of each manifest file: the last version that was good, and
//! what is wrong with the present one. Pure: `reader` reads, this decides.
//!
//! ```text
//!            good content                 bad content, unreadable
//!   (new) ----------------> Good --------------------------------> Bad, with the
//!     |                       ^  \                                 last good pods
//!     | bad content           |   \ gone                             |    |
//!     v                       |    v                                 |    |
//!   Bad, without pods --------+   (forgotten) <----------------------+----+ gone
//! ```
//!
//! - new to Good: its pods run.
//! - new to Bad: it has no pods yet; the other files carry on.
//! - Good to Bad: its pods keep running; the problem is shown.
//! - Bad to Good: the new pods replace the old ones.
//! - any to forgotten: the file is not in the directory any more, its pods stop.

use std::collections::{BTreeMap, BTreeSet};

use ipc::limits::{MAX_PODS, MAX_SOURCE_BYTES};
use manifest_files::Fingerprint;
use pod::metadata::CONFIG_SEEN_ANNOTATION;
use pod::wire::content_hash;
use pod::{Pod, PodDocument, PodExt, PodSource};
use pod_manifest::ManifestError;

use crate::snapshot::{self, LastPublished, PodSet, Problem};

/// What is new of a file in the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Observation {
    /// It was read.
    Content {
        /// All of it.
        bytes: Vec<u8>,
        /// By which it is recognised, if that is safe.
        fingerprint: Option<Fingerprint>,
    },
    /// It cannot or must not be read.
    Unreadable {
        /// Why.
        reason: String,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Manifest {
    fingerprint: Option<Fingerprint>,
    /// Hash of the content that this run has judged last: another version of this program may
    /// judge otherwise, which is to show at once, and not with some later edit.
    judged: Option<String>,
    /// The pods of the last good content; `None` if there was none.
    good: Option<Vec<PodDocument>>,
    /// What is wrong with the present content; empty if it is good.
    problems: Vec<Problem>,
    /// There was no room for the present content: it is read again at each look.
    has_no_room: bool,
}

/// Pods, and bytes of their JSON.
fn size(pods: &[PodDocument]) -> (usize, usize) {
    let bytes = pods.iter().map(|pod| pod.json().len());
    (pods.len(), bytes.sum())
}

/// A manifest as it is kept over a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remembered {
    /// The file's path.
    pub path: String,
    /// The pods of the last good content.
    pub pods: Vec<PodDocument>,
}

/// All manifest files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manifests {
    files: BTreeMap<String, Manifest>,
    /// Counts what is worth remembering.
    revision: u64,
}

impl Manifests {
    /// What was remembered before a restart.
    #[must_use]
    pub(crate) fn from_remembered(remembered: Vec<Remembered>) -> Self {
        let files = remembered
            .into_iter()
            .map(|each| {
                let manifest = Manifest {
                    good: Some(each.pods),
                    ..Manifest::default()
                };
                (each.path, manifest)
            })
            .collect();
        Self { files, revision: 0 }
    }

    /// What is to be remembered over a restart.
    #[must_use]
    pub(crate) fn to_remember(&self) -> Vec<Remembered> {
        self.files
            .iter()
            .filter_map(|(path, manifest)| {
                Some(Remembered {
                    path: path.clone(),
                    pods: manifest.good.clone()?,
                })
            })
            .collect()
    }

    /// Changes whenever `to_remember` does.
    #[must_use]
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The files that are known, by their paths, and what they are recognised by.
    #[must_use]
    pub(crate) fn fingerprints(&self) -> BTreeMap<String, Option<Fingerprint>> {
        self.files
            .iter()
            .map(|(path, manifest)| (path.clone(), manifest.fingerprint))
            .collect()
    }

    /// Whether there is no file at all.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether some file is bad and none of its pods are known.
    #[must_use]
    pub(crate) fn has_bad_without_pods(&self) -> bool {
        self.files
            .values()
            .any(|manifest| manifest.good.is_none() && !manifest.problems.is_empty())
    }

    /// Takes in what was found of a file. `judge` turns content into pods; `seen`
    /// is the present time as an annotation has it.
    pub(crate) fn observe(
        &mut self,
        path: &str,
        observation: Observation,
        seen: &str,
        judge: impl FnOnce(&[u8]) -> Result<Vec<Pod>, Vec<ManifestError>>,
    ) {
        let (bytes, fingerprint) = match observation {
            Observation::Unreadable { reason } => {
                let manifest = self.files.entry(path.to_owned()).or_default();
                let problems = vec![Problem::new(path, reason)];
                if manifest.problems != problems {
                    self.revision += 1;
                }
                manifest.fingerprint = None;
                manifest.judged = None;
                manifest.has_no_room = false;
                manifest.problems = problems;
                return;
            }
            Observation::Content { bytes, fingerprint } => (bytes, fingerprint),
        };
        let hash = content_hash(&bytes);
        let others = self.size_without(path);
        let first_seen = self.first_seen(path);
        let manifest = self.files.entry(path.to_owned()).or_default();
        manifest.fingerprint = fingerprint;
        if manifest.judged.as_ref() == Some(&hash) {
            return;
        }
        let had_no_room = std::mem::take(&mut manifest.has_no_room);
        let judged = judge(&bytes);
        let warned = warned(path, judged.as_deref().unwrap_or_default());
        match judged {
            Ok(pods) => match encode(pods, &first_seen, seen) {
                Ok(pods) if !fits(others, size(&pods)) => {
                    // Forgotten, so that it is judged again when there may be room.
                    manifest.fingerprint = None;
                    manifest.judged = None;
                    manifest.has_no_room = true;
                    let reason = format!(
                        "left out: all files may have {MAX_PODS} pods and {MAX_SOURCE_BYTES} bytes"
                    );
                    manifest.problems = vec![Problem::new(path, reason)];
                    self.revision += u64::from(!had_no_room);
                    return;
                }
                Ok(pods) => {
                    manifest.good = Some(pods);
                    manifest.problems = warned;
                }
                Err(reason) => manifest.problems = vec![Problem::new(path, reason)],
            },
            Err(errors) => {
                manifest.problems = errors
                    .into_iter()
                    .map(|error| problem(path, error))
                    .collect();
            }
        }
        manifest.judged = Some(hash);
        self.revision += 1;
    }

    /// Forgets the files that are not among `listed`. Returns whether that makes room for
    /// others, which are to be read again.
    pub(crate) fn retain(&mut self, listed: &BTreeSet<String>) -> bool {
        let before = self.files.len();
        self.files.retain(|path, _| listed.contains(path));
        let is_less = self.files.len() != before;
        if is_less {
            self.revision += 1;
        }
        is_less && self.files.values().any(|manifest| manifest.has_no_room)
    }

    /// What the good pods of all other files come to.
    fn size_without(&self, path: &str) -> (usize, usize) {
        let others = self.files.iter().filter(|(other, _)| *other != path);
        let sizes = others.map(|(_, it)| size(it.good.as_deref().unwrap_or_default()));
        sizes.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
    }

    /// The pods that should run, what is then published, and everything that is wrong.
    #[must_use]
    pub(crate) fn snapshot(
        &self,
        last_published: &LastPublished,
    ) -> (PodSet, LastPublished, Vec<Problem>) {
        let manifests = self
            .files
            .iter()
            .map(|(path, manifest)| (path.as_str(), manifest.good.as_deref().unwrap_or_default()));
        let (set, now, mut problems) = snapshot::assemble(manifests, last_published);
        problems.extend(
            self.files
                .values()
                .flat_map(|manifest| manifest.problems.clone()),
        );
        (set, now, problems)
    }

    /// When the pods of a file were first seen, by UID: a pod that keeps its UID
    /// keeps the time.
    fn first_seen(&self, path: &str) -> BTreeMap<String, String> {
        let pods = self
            .files
            .get(path)
            .and_then(|manifest| manifest.good.as_ref());
        pods.into_iter()
            .flatten()
            .filter_map(|pod| {
                let decoded = pod.decode().ok()?;
                let seen = decoded.annotation(CONFIG_SEEN_ANNOTATION)?.to_owned();
                Some((pod.identity().uid().to_owned(), seen))
            })
            .collect()
    }
}

/// Whether there is room for pods beside others. All are in memory and in the state file,
/// also those that are not published, since another file has the same pod.
fn fits(others: (usize, usize), pods: (usize, usize)) -> bool {
    others.0 + pods.0 <= MAX_PODS && others.1 + pods.1 <= MAX_SOURCE_BYTES
}

fn encode(
    pods: Vec<Pod>,
    first_seen: &BTreeMap<String, String>,
    now: &str,
) -> Result<Vec<PodDocument>, String> {
    pods.into_iter()
        .map(|pod| mark_seen(pod, first_seen, now, PodSource::File))
        .collect()
}

/// Writes down when a pod was first seen and encodes it.
pub(crate) fn mark_seen(
    mut pod: Pod,
    first_seen: &BTreeMap<String, String>,
    now: &str,
    source: PodSource,
) -> Result<PodDocument, String> {
    let seen = first_seen
        .get(pod.uid())
        .map_or(now, String::as_str)
        .to_owned();
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(CONFIG_SEEN_ANNOTATION.to_owned(), seen);
    PodDocument::encode(&pod, source).map_err(|error| telemetry::chain(&error))
}

/// What is to be known of pods that are good.
pub(crate) fn warned(subject: &str, pods: &[Pod]) -> Vec<Problem> {
    let of_pod = |pod: &Pod| {
        let name = format!("{}/{}", pod.namespace(), pod.name());
        let warnings = pod_validation::warnings(pod).into_iter();
        let problems = warnings.map(|warning| Problem {
            subject: subject.to_owned(),
            reason: format!("pod {name} is accepted, but: {}", warning.message()),
            field: warning.field,
        });
        problems.collect::<Vec<_>>()
    };
    pods.iter().flat_map(of_pod).collect()
}

/// An error in a manifest as a problem of its source.
pub(crate) fn problem(subject: &str, error: ManifestError) -> Problem {
    let document = match error.document {
        0 | 1 => String::new(),
        number => format!("document {number}: "),
    };
    Problem {
        subject: subject.to_owned(),
        reason: format!("{document}{}", error.error.message()),
        field: error.error.field,
    }
}

#[cfg(test)]
mod tests;
