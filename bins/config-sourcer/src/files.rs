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

use manifest_files::Fingerprint;
use pod::metadata::CONFIG_SEEN_ANNOTATION;
use pod::wire::content_hash;
use pod::{Pod, PodDocument, PodExt, PodSource};
use pod_manifest::ManifestError;

use crate::snapshot::{Owners, PodSet, Problem, assemble, fits, no_room};

/// All of a file, and by what it is recognised, if that is safe; or why it cannot or must not
/// be read.
pub(crate) type Content = Result<(Vec<u8>, Option<Fingerprint>), String>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Manifest {
    fingerprint: Option<Fingerprint>,
    /// Hash of the content that was judged last.
    judged: Option<String>,
    /// The pods of the last good content; `None` if there was none.
    good: Option<Vec<PodDocument>>,
    /// What is wrong with the present content; empty if it is good.
    problems: Vec<Problem>,
}

impl Manifest {
    fn pods(&self) -> &[PodDocument] {
        self.good.as_deref().unwrap_or_default()
    }

    /// It is to be read again, whether it changes or not.
    fn unread(self, problem: Problem) -> Manifest {
        Manifest {
            good: self.good,
            problems: vec![problem],
            ..Manifest::default()
        }
    }
}

/// All manifest files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manifests {
    files: BTreeMap<String, Manifest>,
    owners: Owners,
}

impl Manifests {
    /// What a file that is known is recognised by.
    #[must_use]
    pub(crate) fn fingerprint(&self, path: &str) -> Option<Fingerprint> {
        self.files.get(path)?.fingerprint
    }

    /// Whether a file is known.
    #[must_use]
    pub(crate) fn knows(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// Takes in what was found of a file. `judge` turns content into pods; `seen`
    /// is the present time as an annotation has it.
    pub(crate) fn observe(
        &mut self,
        path: &str,
        content: Content,
        seen: &str,
        judge: impl FnOnce(&[u8]) -> Result<Vec<Pod>, Vec<ManifestError>>,
    ) {
        let before = self.files.remove(path).unwrap_or_default();
        let after = self.beside_others(path, before, content, seen, judge);
        self.files.insert(path.to_owned(), after);
    }

    fn beside_others(
        &self,
        path: &str,
        mut manifest: Manifest,
        content: Content,
        seen: &str,
        judge: impl FnOnce(&[u8]) -> Result<Vec<Pod>, Vec<ManifestError>>,
    ) -> Manifest {
        let (bytes, fingerprint) = match content {
            Ok(content) => content,
            Err(reason) => return manifest.unread(Problem::new(path, reason)),
        };
        manifest.fingerprint = fingerprint;
        let hash = content_hash(&bytes);
        if manifest.judged.as_ref() == Some(&hash) {
            return manifest;
        }
        let others = self.files.values().flat_map(Manifest::pods);
        match documents(path, judge(&bytes), manifest.pods(), seen, PodSource::File) {
            // It is judged again when there may be room.
            Ok((pods, _)) if !fits(others.chain(&pods)) => manifest.unread(no_room(path)),
            Ok((pods, warned)) => Manifest {
                judged: Some(hash),
                good: Some(pods),
                problems: warned,
                ..manifest
            },
            Err(problems) => Manifest {
                judged: Some(hash),
                problems,
                ..manifest
            },
        }
    }

    /// Forgets the files that are not among `listed`.
    pub(crate) fn retain(&mut self, listed: &BTreeSet<String>) {
        self.files.retain(|path, _| listed.contains(path));
    }

    /// The pods that should run, and everything that is wrong. Whether these are all pods
    /// that the files may stand for: none was bad ever since this process was started, nor is
    /// left out.
    pub(crate) fn publish(&mut self) -> (PodSet, Vec<Problem>, bool) {
        let files = self.files.iter();
        let manifests = files.map(|(path, manifest)| (path.as_str(), manifest.pods()));
        let (set, owners, mut problems) = assemble(manifests, &self.owners);
        self.owners = owners;
        let is_complete = problems.is_empty() && self.files.values().all(|it| it.good.is_some());
        let of_files = self.files.values();
        problems.extend(of_files.flat_map(|manifest| manifest.problems.clone()));
        (set, problems, is_complete)
    }
}

/// The pods of a manifest, and what is to be known of them; or what is wrong with it. `before`
/// are those of the version before.
pub(crate) fn documents<'a>(
    subject: &str,
    judged: Result<Vec<Pod>, Vec<ManifestError>>,
    before: impl IntoIterator<Item = &'a PodDocument>,
    now: &str,
    source: PodSource,
) -> Result<(Vec<PodDocument>, Vec<Problem>), Vec<Problem>> {
    let pods = judged.map_err(|errors| {
        let errors = errors.into_iter();
        let problems = errors.map(|error| problem(subject, error));
        problems.collect::<Vec<_>>()
    })?;
    let warned = warned(subject, &pods);
    let first_seen = first_seen(before);
    let pods = pods.into_iter();
    let pods = pods.map(|pod| mark_seen(pod, &first_seen, now, source));
    match pods.collect() {
        Ok(pods) => Ok((pods, warned)),
        Err(reason) => Err(vec![Problem::new(subject, reason)]),
    }
}

/// When pods were first seen, by UID: a pod that keeps its UID keeps the time.
fn first_seen<'a>(pods: impl IntoIterator<Item = &'a PodDocument>) -> BTreeMap<String, String> {
    let seen = pods.into_iter().filter_map(|pod| {
        let decoded = pod.decode().ok()?;
        let seen = decoded.annotation(CONFIG_SEEN_ANNOTATION)?.to_owned();
        Some((pod.identity().uid().to_owned(), seen))
    });
    seen.collect()
}

/// Writes down when a pod was first seen and encodes it.
fn mark_seen(
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
fn warned(subject: &str, pods: &[Pod]) -> Vec<Problem> {
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
fn problem(subject: &str, error: ManifestError) -> Problem {
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
