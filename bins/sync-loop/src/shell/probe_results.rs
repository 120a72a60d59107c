//! The prober's stream, parted by kind: liveness, readiness and startup are
//! inputs of their own, so that many results of one kind do not delay another.

use bulkhead_api::v1;
use bulkhead_api::v1::prober_client::ProberClient;
use bulkhead_api::v1::watch_results_response::Message;
use ipc::{Subscription, SubscriptionEvent};
use process::Context;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use topology::Process;
use v1::ProbeKind;

use crate::dispatcher::Event;

/// Results of one kind that wait for the loop; the stream waits beyond.
const RESULT_QUEUE: usize = 64;

/// Largest message of the prober, as the interface says.
const MAX_RESULT_BYTES: usize = 4 << 10;

type Results = mpsc::Receiver<SubscriptionEvent<Event>>;

/// The three inputs. Dropping it closes the stream.
pub(super) struct ProbeResults {
    pub(super) liveness: Results,
    /// Tells of the stream itself and of single tries too.
    pub(super) readiness: Results,
    pub(super) startup: Results,
    _parting: AbortOnDropHandle<()>,
}

impl ProbeResults {
    /// Opens the stream.
    pub(super) fn open(context: &Context) -> ProbeResults {
        let client = ProberClient::new(context.network.channel(Process::Prober))
            .max_decoding_message_size(MAX_RESULT_BYTES);
        let stream = ipc::subscribe("probe results", move || {
            let mut client = client.clone();
            async move { client.watch_results(v1::WatchResultsRequest {}).await }
        });
        let (liveness_in, liveness) = mpsc::channel(RESULT_QUEUE);
        let (readiness_in, readiness) = mpsc::channel(RESULT_QUEUE);
        let (startup_in, startup) = mpsc::channel(RESULT_QUEUE);
        let parting = tokio::spawn(part(stream, liveness_in, readiness_in, startup_in));
        ProbeResults {
            liveness,
            readiness,
            startup,
            _parting: AbortOnDropHandle::new(parting),
        }
    }
}

async fn part(
    mut stream: Subscription<v1::WatchResultsResponse>,
    liveness: mpsc::Sender<SubscriptionEvent<Event>>,
    readiness: mpsc::Sender<SubscriptionEvent<Event>>,
    startup: mpsc::Sender<SubscriptionEvent<Event>>,
) {
    loop {
        let (kind, event) = match stream.next().await {
            SubscriptionEvent::Connected => (ProbeKind::Readiness, SubscriptionEvent::Connected),
            SubscriptionEvent::Lost { reason } => {
                (ProbeKind::Readiness, SubscriptionEvent::Lost { reason })
            }
            SubscriptionEvent::Message(message) => match message.message {
                Some(Message::Verdict(verdict)) => {
                    let kind = verdict.kind();
                    (
                        kind,
                        SubscriptionEvent::Message(Event::ProbeVerdict(verdict)),
                    )
                }
                Some(Message::Removed(removed)) => {
                    let kind = removed.kind();
                    (
                        kind,
                        SubscriptionEvent::Message(Event::ProbeRemoved(removed)),
                    )
                }
                Some(Message::Attempt(attempt)) => (
                    ProbeKind::Readiness,
                    SubscriptionEvent::Message(Event::ProbeTry(attempt)),
                ),
                // What is missing from a snapshot is not known yet, so there is
                // nothing to do at its begin or end.
                Some(Message::SnapshotBegin(_) | Message::SnapshotEnd(_)) | None => continue,
            },
        };
        let queue = match kind {
            ProbeKind::Liveness => &liveness,
            ProbeKind::Startup => &startup,
            ProbeKind::Readiness | ProbeKind::Unspecified => &readiness,
        };
        if queue.send(event).await.is_err() {
            return;
        }
    }
}
