//! What the workers see, as the kubelet would record it: a bounded feed of events.

use bulkhead_api::v1;
use clock::WallClock;
use ipc::Feed;
use pod::PodIdentity;
use topology::Process;

/// Events that are kept for who reconnects: some for each pod of a full node.
const KEPT_EVENTS: usize = 1024;

/// Longest message, as in the API.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Records events. Clones share the feed.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    feed: Feed<v1::Event>,
    clock: WallClock,
}

impl Events {
    /// An empty feed.
    #[must_use]
    pub(crate) fn new(clock: WallClock) -> Events {
        Events {
            feed: Feed::new(KEPT_EVENTS),
            clock,
        }
    }

    /// The feed, for who watches it.
    #[must_use]
    pub(crate) fn feed(&self) -> &Feed<v1::Event> {
        &self.feed
    }

    /// Something went as it should.
    pub(crate) fn normal(&self, pod: &PodIdentity, container: &str, reason: &str, message: &str) {
        self.record(v1::EventType::Normal, Some(pod), container, reason, message);
    }

    /// Something went wrong.
    pub(crate) fn warning(&self, pod: &PodIdentity, container: &str, reason: &str, message: &str) {
        self.record(
            v1::EventType::Warning,
            Some(pod),
            container,
            reason,
            message,
        );
    }

    /// Something went wrong that is not about one pod.
    pub(crate) fn node_warning(&self, reason: &str, message: &str) {
        self.record(v1::EventType::Warning, None, "", reason, message);
    }

    fn record(
        &self,
        kind: v1::EventType,
        pod: Option<&PodIdentity>,
        container: &str,
        reason: &str,
        message: &str,
    ) {
        tracing::debug!(
            pod = pod.map(PodIdentity::uid),
            container,
            reason,
            message,
            "event"
        );
        self.feed.push(&v1::Event {
            pod: pod.map(Into::into),
            container: container.to_owned(),
            r#type: kind.into(),
            reason: reason.to_owned(),
            message: message[..message.floor_char_boundary(MAX_MESSAGE_BYTES)].to_owned(),
            unix_nanos: self.clock.now().0,
            reporter: Process::PodWorkerPool.name().to_owned(),
            ..v1::Event::default()
        });
    }
}
