//! `WatchPods`: each source as a snapshot, then what changed since the consumer
//! was told last, each look's changes as one.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;

use bulkhead_api::v1;
use bulkhead_api::v1::config_sourcer_server::ConfigSourcer;
use bulkhead_api::v1::watch_pods_response::Message;
use futures_util::stream;
use pod::{PodDocument, PodSource};
use tokio::sync::watch;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::publication::{Publication, SourceState, State};
use crate::snapshot::{PodSet, Problem};

/// Longest text of a problem in bytes, field and subject each.
const MAX_TEXT_BYTES: usize = 1 << 10;

/// What is to be sent: without the pods' bytes, which are shared until then.
#[derive(Debug, Clone)]
enum Outgoing {
    Sources(Vec<PodSource>),
    Begin(PodSource, bool),
    Pod(PodDocument),
    /// Changes that belong together.
    Changes(PodSource),
    End(PodSource),
    Gone(PodSource, String),
    Problems(PodSource, Arc<Vec<Problem>>),
    Node(Arc<v1::ApiNode>),
}

/// One consumer and what it knows.
#[derive(Debug)]
struct Consumer {
    boot_id: String,
    state: watch::Receiver<Arc<State>>,
    /// What it will know once it has read all that waits.
    told: BTreeMap<PodSource, SourceState>,
    /// At most the size of two states: it is filled only when it is empty.
    waiting: VecDeque<Outgoing>,
}

impl Consumer {
    fn new(publication: &Publication) -> Self {
        let mut state = publication.watch();
        let now = Arc::clone(&state.borrow_and_update());
        let mut consumer = Self {
            boot_id: publication.boot_id().to_owned(),
            state,
            told: BTreeMap::new(),
            waiting: VecDeque::from([Outgoing::Sources(now.keys().copied().collect())]),
        };
        now.values().for_each(|state| consumer.tell_node(state));
        for (source, state) in now.iter() {
            consumer.tell_snapshot(*source, state);
            if !state.problems.is_empty() {
                consumer
                    .waiting
                    .push_back(Outgoing::Problems(*source, Arc::clone(&state.problems)));
            }
            consumer.told.insert(*source, state.clone());
        }
        consumer
    }

    /// The next message; `None` when the process stops. Only the server's stream
    /// polls it, and never drops it half-way.
    async fn next(&mut self) -> Option<v1::WatchPodsResponse> {
        loop {
            if let Some(outgoing) = self.waiting.pop_front() {
                return Some(v1::WatchPodsResponse {
                    boot_id: self.boot_id.clone(),
                    message: Some(message(outgoing)),
                });
            }
            self.state.changed().await.ok()?;
            let now = Arc::clone(&self.state.borrow_and_update());
            for (source, state) in now.iter() {
                self.tell_difference(*source, state);
            }
        }
    }

    /// Before the pods, which are judged by it.
    fn tell_node(&mut self, state: &SourceState) {
        let node = state.node.iter().cloned().map(Outgoing::Node);
        self.waiting.extend(node);
    }

    fn tell_snapshot(&mut self, source: PodSource, state: &SourceState) {
        self.waiting.push_back(Outgoing::Begin(source, state.ready));
        let pods = state.pods.values().cloned().map(Outgoing::Pod);
        self.waiting.extend(pods);
        self.waiting.push_back(Outgoing::End(source));
    }

    fn tell_difference(&mut self, source: PodSource, state: &SourceState) {
        let told = self.told.insert(source, state.clone()).unwrap_or_default();
        if told.node != state.node {
            self.tell_node(state);
        }
        if state.ready && !told.ready {
            self.tell_snapshot(source, state);
        } else if !same(&told.pods, &state.pods) {
            let mut changes: Vec<_> = changes(source, &told.pods, &state.pods).collect();
            if changes.len() > 1 {
                changes.insert(0, Outgoing::Changes(source));
                changes.push(Outgoing::End(source));
            }
            self.waiting.extend(changes);
        }
        if told.problems != state.problems {
            self.waiting
                .push_back(Outgoing::Problems(source, Arc::clone(&state.problems)));
        }
    }
}

fn same(one: &Arc<PodSet>, other: &Arc<PodSet>) -> bool {
    Arc::ptr_eq(one, other)
}

/// What a consumer of `old` has to be told to know `new`: first the pods that are
/// gone, then those that are new or of which any byte differs, each by UID. What
/// that means for a pod is for sync-loop to decide.
fn changes<'a>(
    source: PodSource,
    old: &'a PodSet,
    new: &'a PodSet,
) -> impl Iterator<Item = Outgoing> + use<'a> {
    let gone = old.keys().filter(|uid| !new.contains_key(*uid));
    let present = new.iter().filter(|(uid, pod)| old.get(*uid) != Some(pod));
    gone.map(move |uid| Outgoing::Gone(source, uid.clone()))
        .chain(present.map(|(_, pod)| Outgoing::Pod(pod.clone())))
}

fn message(outgoing: Outgoing) -> Message {
    match outgoing {
        Outgoing::Sources(sources) => Message::Sources(v1::ConfiguredSources {
            names: sources
                .into_iter()
                .map(|source| source.to_string())
                .collect(),
        }),
        Outgoing::Begin(source, ready) => Message::SnapshotBegin(v1::SourceSnapshotBegin {
            source: source.to_string(),
            ready,
        }),
        Outgoing::Changes(source) => Message::ChangesBegin(v1::SourceChangesBegin {
            source: source.to_string(),
        }),
        Outgoing::Pod(document) => Message::Pod(v1::SourcePod {
            source: document.source().to_string(),
            pod: Some(document.to_message()),
        }),
        Outgoing::End(source) => Message::SnapshotEnd(v1::SourceSnapshotEnd {
            source: source.to_string(),
        }),
        Outgoing::Gone(source, uid) => Message::Gone(v1::SourcePodGone {
            source: source.to_string(),
            uid,
        }),
        Outgoing::Problems(source, problems) => Message::Problems(v1::SourceProblems {
            source: source.to_string(),
            problems: problems.iter().map(source_problem).collect(),
        }),
        Outgoing::Node(node) => Message::Node(Arc::unwrap_or_clone(node)),
    }
}

fn source_problem(problem: &Problem) -> v1::SourceProblem {
    v1::SourceProblem {
        subject: cut(&problem.subject),
        field: cut(&problem.field),
        reason: cut(&problem.reason),
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}

#[tonic::async_trait]
impl ConfigSourcer for Publication {
    type WatchPodsStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchPodsResponse, Status>> + Send>>;

    async fn watch_pods(
        &self,
        _request: Request<v1::WatchPodsRequest>,
    ) -> Result<Response<Self::WatchPodsStream>, Status> {
        let messages = stream::unfold(Consumer::new(self), |mut consumer| async move {
            let message = consumer.next().await?;
            Some((Ok(message), consumer))
        });
        Ok(Response::new(Box::pin(messages)))
    }
}

#[cfg(test)]
mod tests;
