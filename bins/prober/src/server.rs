//! What this process serves: verdicts, as a snapshot and then changes, and between
//! them the tries that did not simply succeed.

use std::pin::Pin;

use bulkhead_api::v1;
use bulkhead_api::v1::watch_results_response::Message;
use futures_util::{StreamExt, stream};
use ipc::{Feed, FeedItem, FeedWatch, StateEvent, StateHub};
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

use crate::Kind;
use crate::ledger::Saved;
use crate::wire;

/// Tries that are kept for a reader that is slow: one of each probe of a full node.
const KEPT_TRIES: usize = 1024;

/// Where the probing side puts verdicts and the server takes them from. Cloning
/// shares it.
#[derive(Clone, Debug)]
pub(crate) struct Publication {
    boot_id: String,
    verdicts: StateHub<(String, Kind), v1::ProbeVerdict>,
    tries: Feed<v1::ProbeTry>,
}

impl Publication {
    pub(crate) fn new(boot_id: String) -> Publication {
        Publication {
            boot_id,
            verdicts: StateHub::new(),
            tries: Feed::new(KEPT_TRIES),
        }
    }

    /// Tells of a try.
    pub(crate) fn tell(&self, attempt: &v1::ProbeTry) {
        self.tries.push(attempt);
    }

    /// Publishes exactly these verdicts.
    pub(crate) fn publish(&self, all: &Saved) {
        for key in self.verdicts.keys() {
            let (container_id, kind) = &key;
            let known = all
                .get(container_id)
                .is_some_and(|instance| instance.verdicts.contains_key(kind));
            if !known {
                self.verdicts.remove(&key);
            }
        }
        for (container_id, instance) in all {
            for (kind, verdict) in &instance.verdicts {
                let message = wire::verdict(container_id, &instance.owner, *kind, verdict);
                self.verdicts.set((container_id.clone(), *kind), message);
            }
        }
    }
}

fn message(event: StateEvent<(String, Kind), v1::ProbeVerdict>) -> Message {
    match event {
        StateEvent::SnapshotBegin => Message::SnapshotBegin(v1::SnapshotBegin {}),
        StateEvent::SnapshotEnd => Message::SnapshotEnd(v1::SnapshotEnd {}),
        StateEvent::Item(_, verdict) => Message::Verdict(verdict),
        StateEvent::Removed((container_id, kind)) => Message::Removed(v1::ProbeVerdictRemoved {
            container_id,
            kind: wire::kind_to_wire(kind).into(),
        }),
    }
}

async fn next_try(
    mut tries: FeedWatch<v1::ProbeTry>,
) -> Option<(v1::ProbeTry, FeedWatch<v1::ProbeTry>)> {
    loop {
        match tries.next().await {
            FeedItem::Item(attempt) => return Some((attempt, tries)),
            FeedItem::Lost(count) => tracing::debug!(count, "a reader missed tries"),
        }
    }
}

#[tonic::async_trait]
impl v1::prober_server::Prober for Publication {
    type WatchResultsStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchResultsResponse, Status>> + Send>>;

    async fn watch_results(
        &self,
        _request: Request<v1::WatchResultsRequest>,
    ) -> Result<Response<Self::WatchResultsStream>, Status> {
        let boot_id = self.boot_id.clone();
        let verdicts = self.verdicts.subscribe().into_stream().map(message);
        let tries = stream::unfold(self.tries.subscribe(), next_try);
        let messages = stream::select(verdicts, tries.map(Message::Attempt));
        let responses = messages.map(move |message| {
            Ok(v1::WatchResultsResponse {
                boot_id: boot_id.clone(),
                message: Some(message),
            })
        });
        Ok(Response::new(Box::pin(responses)))
    }
}
