//! What is known of each source of pods: whether it has delivered, the snapshot
//! that is arriving, and what is wrong with it.
//!
//! A source counts as delivered once a snapshot with `ready` has been complete in
//! this life; nothing takes that back, since what it delivered is remembered. A
//! removal counts only while the present stream has shown it ready.

use std::collections::{BTreeMap, BTreeSet};

use bulkhead_api::v1::SourceProblem;
use pod::PodSource;

use super::pod_manager::{ArrivedPod, Uid};
use ipc::limits::truncate;

/// Problems of one source that are kept; more say nothing new.
const MAX_PROBLEMS: usize = 256;

/// Longest text of a problem, in bytes; the contract of an event's message.
const MAX_PROBLEM_BYTES: usize = 1 << 10;

/// A complete snapshot of one source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// Whether the source has delivered, so that what is missing is gone.
    pub ready: bool,
    /// Its pods.
    pub pods: BTreeMap<Uid, ArrivedPod>,
    /// Their JSON, in bytes.
    pub bytes: usize,
    /// Pods that are in it but cannot be read: their last version stands.
    pub unreadable: BTreeSet<Uid>,
    /// It had more pods than are accepted, so that nothing can be called missing.
    pub truncated: bool,
}

#[derive(Clone, Debug, Default)]
struct Source {
    delivered: bool,
    /// Whether the present stream has shown it ready.
    ready_now: bool,
    arriving: Option<Snapshot>,
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
    /// A new stream has begun: half a snapshot is none.
    pub(crate) fn stream_began(&mut self) {
        for source in self.sources.values_mut() {
            source.arriving = None;
            source.ready_now = false;
        }
    }

    /// Sets which sources are configured; returns those that no longer are.
    pub(crate) fn configure(&mut self, names: &[String]) -> Vec<PodSource> {
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
    pub(crate) fn snapshot_began(&mut self, source: PodSource, ready: bool) {
        if let Some(source) = self.sources.get_mut(&source) {
            source.arriving = Some(Snapshot {
                ready,
                ..Snapshot::default()
            });
        }
    }

    /// The snapshot of a source that is arriving.
    pub(crate) fn arriving(&mut self, source: PodSource) -> Option<&mut Snapshot> {
        self.sources.get_mut(&source)?.arriving.as_mut()
    }

    /// Ends a snapshot and returns it.
    pub(crate) fn snapshot_ended(&mut self, source: PodSource) -> Option<Snapshot> {
        let source = self.sources.get_mut(&source)?;
        let snapshot = source.arriving.take()?;
        source.ready_now = snapshot.ready;
        source.delivered |= snapshot.ready;
        Some(snapshot)
    }

    /// Whether a source is one that is configured.
    #[must_use]
    pub(crate) fn is_configured(&self, source: PodSource) -> bool {
        self.sources.contains_key(&source)
    }

    /// Whether the present stream has shown a source ready: its removals count.
    #[must_use]
    pub(crate) fn is_ready_now(&self, source: PodSource) -> bool {
        self.sources
            .get(&source)
            .is_some_and(|source| source.ready_now)
    }

    /// Whether a source has delivered in this life.
    #[must_use]
    pub(crate) fn has_delivered(&self, source: PodSource) -> bool {
        self.sources
            .get(&source)
            .is_some_and(|source| source.delivered)
    }

    /// Whether every configured source has delivered in this life.
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

    /// Replaces the problems of a source; returns those that are new.
    pub(crate) fn set_problems(
        &mut self,
        source: PodSource,
        mut problems: Vec<SourceProblem>,
    ) -> Vec<SourceProblem> {
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
            .filter(|problem| !known.contains(&problem_key(problem)));
        let new = new.cloned().collect();
        source.problems = problems;
        new
    }

    /// Every source with whether it has delivered, and its problems.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PodSource, bool, &[SourceProblem])> {
        self.sources
            .iter()
            .map(|(name, source)| (*name, source.delivered, source.problems.as_slice()))
    }
}

fn problem_key(problem: &SourceProblem) -> (&str, &str, &str) {
    (&problem.subject, &problem.field, &problem.reason)
}

/// A problem as one line.
#[must_use]
pub(crate) fn problem_text(problem: &SourceProblem) -> String {
    let mut text = match problem.field.as_str() {
        "" => problem.reason.clone(),
        field => format!("{field}: {}", problem.reason),
    };
    truncate(&mut text, MAX_PROBLEM_BYTES);
    text
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
        assert!(sources.is_ready_now(PodSource::File));
        sources.snapshot_began(PodSource::File, true);
        sources.stream_began();
        assert!(sources.snapshot_ended(PodSource::File).is_none());
        assert!(sources.has_delivered(PodSource::File));
        assert!(!sources.is_ready_now(PodSource::File));
        deliver(&mut sources, PodSource::File, false);
        assert!(!sources.is_ready_now(PodSource::File));
        assert!(sources.has_delivered(PodSource::File));
    }

    #[test]
    fn only_new_problems_are_news() {
        let mut sources = sources(&["file"]);
        let problem = |subject: &str| SourceProblem {
            subject: subject.to_owned(),
            field: "spec".to_owned(),
            reason: "is wrong".to_owned(),
            since_unix_nanos: 1,
        };
        let news = sources.set_problems(PodSource::File, vec![problem("a"), problem("b")]);
        assert_eq!(news.len(), 2);
        let news = sources.set_problems(PodSource::File, vec![problem("b"), problem("c")]);
        assert_eq!(news, [problem("c")]);
        let flood = (0..1000).map(|index| problem(&index.to_string())).collect();
        assert_eq!(
            sources.set_problems(PodSource::File, flood).len(),
            MAX_PROBLEMS
        );
        assert_eq!(problem_text(&problem("a")), "spec: is wrong");
    }
}
