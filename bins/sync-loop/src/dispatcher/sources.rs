//! The sources of pods, as config-sourcer tells of them: whether each has
//! delivered, the snapshot that is arriving, and what is wrong with it.
//!
//! A source counts as delivered once a snapshot with `ready` has been complete since
//! sync-loop started; nothing takes that back, since what it delivered is remembered.
//! What a snapshot lacks is gone only if it is one with `ready`; what is said to be gone
//! always is, since config-sourcer has seen it go.
//!
//! What does not live here: the pods (`desired_pods`), and what a pod that arrived asks
//! for (`operations`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bulkhead_api::v1;
use bulkhead_api::v1::SourceProblem;
use bulkhead_api::v1::watch_pods_response::Message;
use ipc::limits::truncate;
use pod::{PodDocument, PodSource};

use super::desired_pods::{DesiredPod, DesiredPods, MAX_BYTES, MAX_PODS, Uid};
use super::pod_facts::PodFacts;

/// Problems of one source that are kept, and pods that are turned away; more say nothing new.
const MAX_PROBLEMS: usize = 256;

/// Longest text of a problem, in bytes; the contract of an event's message.
const MAX_PROBLEM_BYTES: usize = 1 << 10;
/// Reason of events about manifests and sources.
pub(super) const FAILED_MANIFEST: &str = "FailedManifest";

/// What a message leads to, in this order.
#[derive(Clone, Debug)]
pub(crate) enum SourceEffect {
    /// These desired pods are gone from their source.
    Removed(Vec<Uid>),
    /// Pods as their source has them now; whether it has delivered does not matter.
    Arrived(Vec<DesiredPod>),
    /// Something is wrong with a source, and was not before.
    Problem {
        /// The file, URL or source.
        subject: String,
        /// For people.
        reason: String,
    },
    /// The Node, as the API server holds it.
    Node(v1::ApiNode),
}

/// A snapshot of one source, or changes of it that belong together.
#[derive(Clone, Debug, Default)]
struct Snapshot {
    /// Whether these are changes: what is missing stands, but for `gone`.
    changes: bool,
    /// Whether the source has delivered, so that what is missing may be removed.
    ready: bool,
    /// Pods that are gone, of changes.
    gone: BTreeSet<Uid>,
    pods: BTreeMap<Uid, DesiredPod>,
    /// Their JSON, in bytes.
    bytes: usize,
    /// Pods that are in it but cannot be read: their last version stands.
    unreadable: BTreeSet<Uid>,
    /// It had more pods than are accepted, so that nothing can be called missing.
    truncated: bool,
}

impl Snapshot {
    fn add(&mut self, mut pod: DesiredPod, known: Option<&PodDocument>) {
        // The same bytes need not be held twice, unless they are another source's.
        let is_same = |known: &&PodDocument| {
            known.hash() == pod.document.hash() && known.source() == pod.document.source()
        };
        if let Some(known) = known.filter(is_same) {
            pod.document = known.clone();
        }
        self.bytes += pod.document.json().len();
        if self.pods.len() < MAX_PODS && self.bytes <= MAX_BYTES {
            self.pods.insert(pod.uid(), pod);
        } else {
            self.truncated = true;
        }
    }

    fn add_unreadable(&mut self, uid: Option<Uid>) {
        match uid {
            Some(uid) if self.unreadable.len() < MAX_PODS => _ = self.unreadable.insert(uid),
            _ => self.truncated = true,
        }
    }

    /// Removals come first: what goes makes room for what comes. Of changes that were cut
    /// off by the end of a stream nothing counts: the next one begins with a snapshot.
    fn effects(self, source: PodSource, pods: &DesiredPods) -> Vec<SourceEffect> {
        let mut effects = Vec::new();
        if self.truncated {
            let reason = format!(
                "source {source} has pods that cannot be read, more than {MAX_PODS}, or more than \
                 {MAX_BYTES} bytes; nothing of it is removed"
            );
            tracing::warn!(reason, "a snapshot is incomplete");
            effects.push(SourceEffect::Problem {
                subject: source.to_string(),
                reason,
            });
        } else if self.ready || self.changes {
            let mut missing = pods.uids_of(source);
            missing.retain(|uid| !self.pods.contains_key(uid) && !self.unreadable.contains(uid));
            missing.retain(|uid| !self.changes || self.gone.contains(uid));
            effects.push(SourceEffect::Removed(missing));
        }
        effects.push(SourceEffect::Arrived(self.pods.into_values().collect()));
        effects
    }
}

#[derive(Clone, Debug, Default)]
struct Source {
    delivered: bool,
    arriving: Option<Snapshot>,
    /// Pods that arrived and could not be taken, a line for people each. config-sourcer
    /// sends each once: while there are any, housekeeping opens the stream again.
    turned_away: BTreeMap<Uid, String>,
    problems: Vec<SourceProblem>,
}

/// All sources.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// Known once config-sourcer has said which there are.
    configured: Option<BTreeSet<PodSource>>,
    sources: BTreeMap<PodSource, Source>,
}

impl Sources {
    /// Takes a message in. `pods` are those that are desired now.
    pub(crate) fn on(&mut self, message: Message, pods: &DesiredPods) -> Vec<SourceEffect> {
        match message {
            Message::Sources(configured) => {
                let gone = self.configure(&configured.names).into_iter();
                let removed = gone.map(|source| {
                    tracing::info!(%source, "a source is no longer configured; its pods go");
                    SourceEffect::Removed(pods.uids_of(source))
                });
                removed.collect()
            }
            Message::SnapshotBegin(begin) => {
                if let Some(source) = known_source(&begin.source) {
                    self.snapshot_began(source, begin.ready);
                }
                Vec::new()
            }
            Message::ChangesBegin(begin) => {
                if let Some(source) = known_source(&begin.source) {
                    self.changes_began(source);
                }
                Vec::new()
            }
            Message::Pod(arrived) => match (known_source(&arrived.source), arrived.pod) {
                (Some(source), Some(pod)) => self.pod_arrived(source, pod, pods),
                _ => Vec::new(),
            },
            Message::Gone(gone) => known_source(&gone.source)
                .and_then(|source| self.pod_gone(source, &gone.uid, pods))
                .into_iter()
                .collect(),
            Message::SnapshotEnd(end) => known_source(&end.source)
                .and_then(|source| Some(self.snapshot_ended(source)?.effects(source, pods)))
                .unwrap_or_default(),
            Message::Problems(problems) => known_source(&problems.source)
                .map(|source| self.set_problems(source, problems.problems))
                .unwrap_or_default(),
            Message::Node(node) => vec![SourceEffect::Node(node)],
        }
    }

    /// A pod as its source has it now: of the snapshot if one is arriving, else by
    /// itself.
    fn pod_arrived(
        &mut self,
        source: PodSource,
        message: v1::Pod,
        pods: &DesiredPods,
    ) -> Vec<SourceEffect> {
        let Some(state) = self.sources.get_mut(&source) else {
            return Vec::new();
        };
        let uid = uid_of(&message);
        match (read_pod(source, message), &mut state.arriving) {
            (Ok(pod), Some(snapshot)) => {
                let known = pods.document(&pod.uid());
                snapshot.add(pod, known);
                Vec::new()
            }
            (Ok(pod), None) => vec![SourceEffect::Arrived(vec![pod])],
            (Err(reason), arriving) => {
                tracing::warn!(%source, reason, "a pod cannot be read; its last version stands");
                if let Some(snapshot) = arriving {
                    snapshot.add_unreadable(uid);
                }
                let subject = source.to_string();
                vec![SourceEffect::Problem { subject, reason }]
            }
        }
    }

    /// A source no longer has a pod.
    fn pod_gone(
        &mut self,
        source: PodSource,
        uid: &str,
        pods: &DesiredPods,
    ) -> Option<SourceEffect> {
        let state = self.sources.get_mut(&source)?;
        let is_known = pods.is_of(uid, source);
        if let Some(snapshot) = &mut state.arriving {
            snapshot.pods.remove(uid);
            if snapshot.changes && pod::identity::check_uid(uid).is_ok() {
                match snapshot.gone.len() < MAX_PODS {
                    true => _ = snapshot.gone.insert(uid.into()),
                    false => snapshot.truncated = true,
                }
            }
            return None;
        }
        state.turned_away.remove(uid);
        if !is_known {
            return None;
        }
        Some(SourceEffect::Removed(vec![uid.into()]))
    }

    /// A new stream has begun. A snapshot that had not ended on the former stream is thrown
    /// away: the new stream begins with one of each source.
    pub(crate) fn stream_began(&mut self) {
        for source in self.sources.values_mut() {
            source.arriving = None;
        }
    }

    /// Sets which sources are configured; returns those that no longer are.
    fn configure(&mut self, names: &[String]) -> Vec<PodSource> {
        let configured: BTreeSet<PodSource> = names
            .iter()
            .filter_map(|name| PodSource::parse(name))
            .collect();
        let gone: Vec<PodSource> = self
            .sources
            .keys()
            .filter(|source| !configured.contains(source))
            .copied()
            .collect();
        for source in &gone {
            self.sources.remove(source);
        }
        for source in &configured {
            self.sources.entry(*source).or_default();
        }
        self.configured = Some(configured);
        gone
    }

    /// Begins a snapshot.
    fn snapshot_began(&mut self, source: PodSource, ready: bool) {
        if let Some(source) = self.sources.get_mut(&source) {
            source.arriving = Some(Snapshot {
                ready,
                ..Snapshot::default()
            });
        }
    }

    /// Begins changes that belong together.
    fn changes_began(&mut self, source: PodSource) {
        if let Some(source) = self.sources.get_mut(&source) {
            source.arriving = Some(Snapshot {
                changes: true,
                ..Snapshot::default()
            });
        }
    }

    /// Ends a snapshot, or changes, and returns them.
    fn snapshot_ended(&mut self, source: PodSource) -> Option<Snapshot> {
        let source = self.sources.get_mut(&source)?;
        let snapshot = source.arriving.take()?;
        source.delivered |= snapshot.ready;
        source.turned_away.retain(|uid, _| match snapshot.changes {
            true => !snapshot.gone.contains(uid),
            false => snapshot.pods.contains_key(uid),
        });
        Some(snapshot)
    }

    /// A pod cannot be taken now; whether that is news.
    pub(crate) fn turn_away(&mut self, pod: &PodDocument, reason: &str) -> bool {
        let Some(source) = self.sources.get_mut(&pod.source()) else {
            return false;
        };
        let (lines, uid) = (&mut source.turned_away, pod.identity().uid());
        let line = format!("pod {}: {reason}", pod.identity());
        let is_noted = lines.len() < MAX_PROBLEMS || lines.contains_key(uid);
        is_noted && lines.insert(uid.into(), line.clone()) != Some(line)
    }

    /// A pod was taken.
    pub(crate) fn take_in(&mut self, pod: &PodDocument) {
        if let Some(source) = self.sources.get_mut(&pod.source()) {
            source.turned_away.remove(pod.identity().uid());
        }
    }

    /// Whether there are pods that could not be taken when they arrived.
    pub(crate) fn turned_any_away(&self) -> bool {
        let mut all = self.sources.values();
        all.any(|source| !source.turned_away.is_empty())
    }

    /// Whether a source is one that is configured.
    #[must_use]
    fn is_configured(&self, source: PodSource) -> bool {
        self.sources.contains_key(&source)
    }

    /// Whether a source has delivered since sync-loop started.
    #[must_use]
    fn has_delivered(&self, source: PodSource) -> bool {
        self.sources
            .get(&source)
            .is_some_and(|source| source.delivered)
    }

    /// Whether every configured source has delivered since sync-loop started.
    #[must_use]
    pub(crate) fn all_delivered(&self) -> bool {
        self.configured.is_some() && self.sources.values().all(|source| source.delivered)
    }

    /// The sources whose pods may be forgotten when nothing wants them.
    #[must_use]
    pub(crate) fn delivered(&self) -> Vec<PodSource> {
        let all = PodSource::ALL.into_iter();
        all.filter(|source| self.permit_removal_of(source.as_str()))
            .collect()
    }

    /// Whether a pod that no source wants may be stopped: its own source has
    /// delivered or, when the source is none that is configured, all have.
    #[must_use]
    pub(crate) fn permit_removal_of(&self, source: &str) -> bool {
        match PodSource::parse(source).filter(|source| self.is_configured(*source)) {
            Some(source) => self.has_delivered(source),
            None => self.all_delivered(),
        }
    }

    /// Replaces the problems of a source; tells those that are new.
    fn set_problems(
        &mut self,
        source: PodSource,
        mut problems: Vec<SourceProblem>,
    ) -> Vec<SourceEffect> {
        let Some(source) = self.sources.get_mut(&source) else {
            return Vec::new();
        };
        problems.truncate(MAX_PROBLEMS);
        for problem in &mut problems {
            truncate(&mut problem.subject, MAX_PROBLEM_BYTES);
            truncate(&mut problem.field, MAX_PROBLEM_BYTES);
            truncate(&mut problem.reason, MAX_PROBLEM_BYTES);
        }
        let known: BTreeSet<_> = source.problems.iter().map(problem_key).collect();
        let new = problems
            .iter()
            .filter(|problem| !known.contains(&problem_key(problem)))
            .map(|problem| SourceEffect::Problem {
                subject: problem.subject.clone(),
                reason: problem_text(problem),
            })
            .collect();
        source.problems = problems;
        new
    }

    /// Every source with whether it has delivered, and its problems, a line each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PodSource, bool, Vec<String>)> {
        self.sources.iter().map(|(name, source)| {
            let problems = source.problems.iter();
            let problems = problems.map(|it| format!("{}: {}", it.subject, problem_text(it)));
            let lines = problems
                .chain(source.turned_away.values().cloned())
                .collect();
            (*name, source.delivered, lines)
        })
    }
}

fn problem_key(problem: &SourceProblem) -> (&str, &str, &str) {
    (&problem.subject, &problem.field, &problem.reason)
}

/// A problem as one line.
#[must_use]
fn problem_text(problem: &SourceProblem) -> String {
    let mut text = match problem.field.as_str() {
        "" => problem.reason.clone(),
        field => format!("{field}: {}", problem.reason),
    };
    truncate(&mut text, MAX_PROBLEM_BYTES);
    text
}

fn known_source(name: &str) -> Option<PodSource> {
    let source = PodSource::parse(name);
    if source.is_none() {
        tracing::warn!(source = ?name.chars().take(16).collect::<String>(), "unknown source");
    }
    source
}

/// The uid in a message's header, if it can be one.
fn uid_of(pod: &v1::Pod) -> Option<Uid> {
    let uid = &pod.reference.as_ref()?.uid;
    pod::identity::check_uid(uid).ok()?;
    Some(uid.as_str().into())
}

/// Checks and decodes a pod; the reason is for people.
fn read_pod(source: PodSource, message: v1::Pod) -> Result<DesiredPod, String> {
    let read = || -> Result<DesiredPod, pod::wire::WireError> {
        let document = PodDocument::from_message(message)?;
        let facts = Arc::new(PodFacts::of(&document.decode()?));
        Ok(DesiredPod { document, facts })
    };
    let arrived = read().map_err(|error| telemetry::chain(&error))?;
    if arrived.document.source() == source {
        Ok(arrived)
    } else {
        Err(format!(
            "pod {} says that it is of another source",
            arrived.document.identity()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(names: &[&str]) -> Sources {
        let mut sources = Sources::default();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        sources.configure(&names);
        sources
    }

    fn deliver(sources: &mut Sources, source: PodSource, ready: bool) {
        sources.snapshot_began(source, ready);
        sources.snapshot_ended(source).unwrap();
    }

    #[test]
    fn nothing_is_delivered_before_the_sources_are_known() {
        assert!(!Sources::default().all_delivered());
        assert!(!Sources::default().permit_removal_of("file"));
        assert!(
            sources(&[]).all_delivered(),
            "no sources have nothing to deliver"
        );
    }

    #[test]
    fn each_source_is_gated_by_itself() {
        let mut sources = sources(&["file", "http"]);
        deliver(&mut sources, PodSource::Http, false);
        deliver(&mut sources, PodSource::File, true);
        assert!(sources.permit_removal_of("file"));
        assert!(!sources.permit_removal_of("http"));
        assert!(!sources.all_delivered());
        for unknown in ["api", "", "moon"] {
            assert!(!sources.permit_removal_of(unknown), "{unknown:?}");
        }
        deliver(&mut sources, PodSource::Http, true);
        for any in ["file", "http", "api", "", "moon"] {
            assert!(sources.permit_removal_of(any), "{any:?}");
        }
    }

    #[test]
    fn a_new_stream_forgets_half_a_snapshot_but_not_what_was_delivered() {
        let mut sources = sources(&["file"]);
        deliver(&mut sources, PodSource::File, true);
        sources.snapshot_began(PodSource::File, true);
        sources.stream_began();
        assert!(sources.snapshot_ended(PodSource::File).is_none());
        assert!(sources.has_delivered(PodSource::File));
        deliver(&mut sources, PodSource::File, false);
        assert!(sources.has_delivered(PodSource::File));
    }

    #[test]
    fn only_new_problems_are_news() {
        let mut sources = sources(&["file"]);
        let problem = |subject: &str| SourceProblem {
            subject: subject.to_owned(),
            field: "spec".to_owned(),
            reason: "is wrong".to_owned(),
        };
        let news = sources.set_problems(PodSource::File, vec![problem("a"), problem("b")]);
        assert_eq!(news.len(), 2);
        let news = sources.set_problems(PodSource::File, vec![problem("b"), problem("c")]);
        let [SourceEffect::Problem { subject, reason }] = news.as_slice() else {
            panic!("{news:?}")
        };
        assert_eq!((subject.as_str(), reason.as_str()), ("c", "spec: is wrong"));
        let flood = (0..1000).map(|index| problem(&index.to_string())).collect();
        assert_eq!(
            sources.set_problems(PodSource::File, flood).len(),
            MAX_PROBLEMS
        );
    }
}
