//! The latest state of every source, for everybody who watches.
//!
//! Desired state travels as the latest value: a consumer that is slow skips what
//! was in between, so that what waits for it is never more than one state.

use std::collections::BTreeMap;
use std::sync::Arc;

use bulkhead_api::v1::ApiNode;
use pod::PodSource;
use tokio::sync::watch;

use crate::snapshot::{PodSet, Problem};

/// Most problems of a source that are told; more help nobody.
const MAX_PROBLEMS: usize = 256;

/// What a source has delivered.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SourceState {
    /// Whether it has delivered since this process started, so that what is
    /// missing is gone.
    pub ready: bool,
    /// Its pods.
    pub pods: Arc<PodSet>,
    /// What is wrong with it.
    pub problems: Arc<Vec<Problem>>,
    /// What it says of the Node, once it has: of the API server alone.
    pub node: Option<Arc<ApiNode>>,
}

/// All configured sources.
pub(crate) type State = BTreeMap<PodSource, SourceState>;

/// Where sources put their state and consumers take it from. Cloning shares it.
#[derive(Debug, Clone)]
pub(crate) struct Publication {
    boot_id: Arc<str>,
    state: watch::Sender<Arc<State>>,
}

impl Publication {
    /// Sources that have not delivered yet.
    #[must_use]
    pub(crate) fn new(boot_id: &str, sources: impl IntoIterator<Item = PodSource>) -> Self {
        let state = sources
            .into_iter()
            .map(|source| (source, SourceState::default()))
            .collect();
        Self {
            boot_id: boot_id.into(),
            state: watch::Sender::new(Arc::new(state)),
        }
    }

    /// Names this run of the process.
    #[must_use]
    pub(crate) fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// The latest state, now and whenever it changes.
    #[must_use]
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<State>> {
        self.state.subscribe()
    }

    /// The pods of a source now.
    #[must_use]
    pub(crate) fn pods(&self, source: PodSource) -> Arc<PodSet> {
        self.state
            .borrow()
            .get(&source)
            .map(|state| Arc::clone(&state.pods))
            .unwrap_or_default()
    }

    /// Sets what a source says of the Node.
    pub(crate) fn set_node(&self, source: PodSource, node: ApiNode) {
        self.state.send_if_modified(|state| {
            let before = state.get(&source).cloned().unwrap_or_default();
            let node = Some(Arc::new(node));
            let is_changed = before.node != node;
            if is_changed {
                let after = SourceState { node, ..before };
                Arc::make_mut(state).insert(source, after);
            }
            is_changed
        });
    }

    /// Sets the state of a source. Without `pods` those that are known stay.
    pub(crate) fn set(
        &self,
        source: PodSource,
        ready: bool,
        pods: Option<PodSet>,
        mut problems: Vec<Problem>,
    ) {
        if problems.len() > MAX_PROBLEMS {
            let more = problems.len() - MAX_PROBLEMS;
            problems.truncate(MAX_PROBLEMS);
            problems.push(Problem::new(
                source.as_str(),
                format!("{more} more problems"),
            ));
        }
        self.state.send_if_modified(|state| {
            let before = state.get(&source).cloned().unwrap_or_default();
            let after = SourceState {
                ready: before.ready || ready,
                pods: match pods {
                    Some(pods) if pods != *before.pods => Arc::new(pods),
                    _ => Arc::clone(&before.pods),
                },
                problems: Arc::new(problems),
                node: before.node.clone(),
            };
            report(source, &before, &after);
            let changed = before != after;
            if changed {
                Arc::make_mut(state).insert(source, after);
            }
            changed
        });
    }
}

/// How the sources stand, and what is wrong with objects, in a line for people.
#[must_use]
pub(crate) fn summary(state: &State, of_objects: &[Problem]) -> String {
    let of_source = |(source, state): (&PodSource, &SourceState)| {
        let not_all = if state.ready { "" } else { ", not all known" };
        let text = format!("{source}: {} pods{not_all}", state.pods.len());
        text + &told(&state.problems)
    };
    let mut parts: Vec<String> = state.iter().map(of_source).collect();
    if parts.is_empty() {
        parts.push("neither staticPodPath nor staticPodURL nor --kubeconfig is given".to_owned());
    }
    if !of_objects.is_empty() {
        parts.push("objects".to_owned() + &told(of_objects));
    }
    parts.join("; ")
}

/// How many problems there are, and the first of them.
fn told(problems: &[Problem]) -> String {
    let Some(first) = problems.first() else {
        return String::new();
    };
    let mut text = match problems.len() {
        1 => ", problem".to_owned(),
        count => format!(", {count} problems, one is"),
    };
    let parts = [&first.subject, &first.field, &first.reason];
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        text += &format!(": {part}");
    }
    text
}

/// Logs what is new: problems, and the first delivery.
fn report(source: PodSource, before: &SourceState, after: &SourceState) {
    let (known, found) = (&before.problems, &after.problems);
    let new = found.iter().filter(|problem| !known.contains(problem));
    for Problem {
        subject,
        field,
        reason,
    } in new
    {
        tracing::warn!(%source, subject, field, reason, "problem with a manifest");
    }
    let solved = known.iter().filter(|problem| !found.contains(problem));
    for Problem {
        subject,
        field,
        reason,
    } in solved
    {
        tracing::info!(%source, subject, field, reason, "problem is solved");
    }
    if after.ready && !before.ready {
        tracing::info!(%source, pods = after.pods.len(), "source is ready");
    } else if versions(after).ne(versions(before)) {
        tracing::info!(%source, pods = after.pods.len(), "pods changed");
    }
}

/// Which pods in which versions: a status makes no other one.
fn versions(state: &SourceState) -> impl Iterator<Item = (&str, &str)> {
    let pods = state.pods.iter();
    pods.map(|(uid, pod)| (uid.as_str(), pod.hash()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_for_people_tells_what_is_ready_and_what_is_wrong() {
        let none = Publication::new("boot", []);
        let line = |publication: &Publication| summary(&publication.watch().borrow(), &[]);
        assert_eq!(
            line(&none),
            "neither staticPodPath nor staticPodURL nor --kubeconfig is given"
        );
        let both = Publication::new("boot", [PodSource::File, PodSource::Http]);
        assert_eq!(
            line(&both),
            "file: 0 pods, not all known; http: 0 pods, not all known"
        );
        both.set(PodSource::File, true, Some(PodSet::new()), Vec::new());
        both.set(PodSource::Http, false, None, vec![Problem::new("u", "x")]);
        assert_eq!(
            line(&both),
            "file: 0 pods; http: 0 pods, not all known, problem: u: x"
        );
        let two = vec![Problem::new("a", "x"), Problem::new("b", "y")];
        both.set(PodSource::File, true, None, two);
        let expected = "file: 0 pods, 2 problems, one is: a: x; http";
        assert!(line(&both).starts_with(expected), "{}", line(&both));
        let of_objects = [Problem::new("/o/a", "x")];
        let line = summary(&none.watch().borrow(), &of_objects);
        let expected = "neither staticPodPath nor staticPodURL nor --kubeconfig is given; objects, problem: /o/a: x";
        assert_eq!(line, expected);
    }

    #[test]
    fn what_changes_nothing_wakes_nobody() {
        let publication = Publication::new("boot", [PodSource::File]);
        publication.set(PodSource::File, true, Some(PodSet::new()), Vec::new());
        let mut watch = publication.watch();
        watch.mark_unchanged();
        publication.set(PodSource::File, true, Some(PodSet::new()), Vec::new());
        assert!(!watch.has_changed().unwrap());
        publication.set(PodSource::File, true, None, vec![Problem::new("a", "x")]);
        assert!(watch.has_changed().unwrap());
    }

    #[test]
    fn a_source_stays_ready_and_problems_are_bounded() {
        let publication = Publication::new("boot", [PodSource::File]);
        publication.set(PodSource::File, true, None, Vec::new());
        let many = (0..1000)
            .map(|n| Problem::new("a", n.to_string()))
            .collect();
        publication.set(PodSource::File, false, None, many);
        let state = publication.watch().borrow().clone();
        assert!(state[&PodSource::File].ready);
        assert_eq!(state[&PodSource::File].problems.len(), MAX_PROBLEMS + 1);
    }
}
