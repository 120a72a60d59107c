//! The whole process on a disk that hangs. What it does over the wire on one that answers
//! is in `tests/over_the_wire.rs`.

use std::sync::{Arc, Condvar, Mutex};

use bulkhead_api::v1::list_pod_statuses_response::Message as StatusMessage;
use bulkhead_api::v1::status_reports_client::StatusReportsClient;
use bulkhead_api::v1::statuses_client::StatusesClient;
use clock::UnixNanos;
use memory_network::MemoryHub;
use node_config::{DirectoryLayout, NodeConfig};
use pod::{PodDocument, PodSource};
use state_file::SAVE_MAY_TAKE;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use topology::Identities;

use super::*;

/// By so much a test lets time pass at once; between two of them it asks for statuses.
const STEP: Duration = Duration::from_millis(100);

/// A disk that hangs as long as it is told to, and how often it was written to.
#[derive(Clone, Default)]
struct Disk(Arc<(Mutex<(bool, usize)>, Condvar)>);

impl Disk {
    fn hangs(&self, hangs: bool) {
        self.0.0.lock().unwrap().0 = hangs;
        self.0.1.notify_all();
    }

    fn write(&self) {
        let state = self.0.0.lock().unwrap();
        let patience = Duration::from_secs(600);
        let waited = self.0.1.wait_timeout_while(state, patience, |it| it.0);
        let (mut state, waited) = waited.unwrap();
        assert!(!waited.timed_out(), "the test hangs too");
        state.1 += 1;
    }

    fn writes(&self) -> usize {
        self.0.0.lock().unwrap().1
    }
}

/// Ends a hang when a test ends: its runtime waits for threads that write.
struct GoesOn(Disk);

impl Drop for GoesOn {
    fn drop(&mut self) {
        self.0.hangs(false);
    }
}

struct Node {
    hub: MemoryHub,
    identities: Arc<Identities>,
    _syncer: AbortOnDropHandle<()>,
}

impl Node {
    fn start(disk: Disk) -> Node {
        let hub = MemoryHub::new();
        let identities = Arc::new(Identities::from_base(700_000).unwrap());
        let directories = DirectoryLayout::below("/nonexistent");
        let context = Context {
            process: Process::StatusSyncer,
            config: Arc::new(NodeConfig::with_defaults("node", directories)),
            clock: WallClock::simulated(UnixNanos(1_700_000_000_000_000_000)),
            network: hub.network(Process::StatusSyncer, &identities),
            listener: hub.listener(Process::StatusSyncer),
            identities: Arc::clone(&identities),
            boot_id: "boot".to_owned(),
            seed: 1,
            lifecycle: Lifecycle::unsupervised(CancellationToken::new()),
        };
        let save = move |_: &[PodDocument]| {
            disk.write();
            Ok(())
        };
        let running = serve_saving(context, Vec::new(), save);
        let syncer = tokio::spawn(async { running.await.unwrap() });
        Node {
            hub,
            identities,
            _syncer: AbortOnDropHandle::new(syncer),
        }
    }

    /// Rejects a pod, which gives it a status, and waits for the answer.
    async fn reject(&self, uid: &str) {
        let json = format!(r#"{{"metadata":{{"name":"p","namespace":"d","uid":"{uid}"}}}}"#);
        let (document, _) = PodDocument::from_json(json.into_bytes(), PodSource::File).unwrap();
        let network = self.hub.network(Process::SyncLoop, &self.identities);
        let request = v1::RejectPodRequest {
            pod: Some(document.to_message()),
            reason: "OutOfpods".to_owned(),
            ..Default::default()
        };
        StatusReportsClient::new(network.channel(Process::StatusSyncer))
            .reject_pod(request)
            .await
            .unwrap();
    }

    /// How many pods have a published status.
    async fn published(&self) -> usize {
        let network = self.hub.network_of_operator();
        let mut stream = StatusesClient::new(network.channel(Process::StatusSyncer))
            .list_pod_statuses(v1::ListPodStatusesRequest::default())
            .await
            .unwrap()
            .into_inner();
        let mut count = 0;
        while let Some(response) = stream.message().await.unwrap() {
            count += usize::from(matches!(response.message, Some(StatusMessage::Entry(_))));
        }
        count
    }

    /// Lets time pass until so many pods are published; it does not pass by itself while
    /// a thread writes. Returns how long that took.
    async fn until_published(&self, count: usize) -> Duration {
        let begun = Instant::now();
        while self.published().await != count {
            tokio::time::advance(STEP).await;
            assert!(begun.elapsed() < Duration::from_secs(60), "never {count}");
        }
        begun.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_is_published_after_it_is_saved_and_calls_are_answered_meanwhile() {
    let disk = Disk::default();
    let _goes_on = GoesOn(disk.clone());
    disk.hangs(true);
    let node = Node::start(disk.clone());
    for uid in ["a", "b", "c"] {
        node.reject(uid).await;
        tokio::time::advance(SHORTEST_WINDOW).await;
        assert_eq!(node.published().await, 0, "told before it was saved");
    }
    disk.hangs(false);
    node.until_published(3).await;
    assert!(disk.writes() >= 1);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_holds_statuses_up_once_and_for_a_bounded_time() {
    let disk = Disk::default();
    let _goes_on = GoesOn(disk.clone());
    disk.hangs(true);
    let node = Node::start(disk.clone());
    node.reject("a").await;
    let took = node.until_published(1).await;
    assert!(took >= SAVE_MAY_TAKE, "{took:?}");
    assert!(took < SAVE_MAY_TAKE + Duration::from_secs(1), "{took:?}");
    // Now that it is known to hang nobody waits for it.
    node.reject("b").await;
    let took = node.until_published(2).await;
    assert!(took <= LONGEST_WINDOW + 2 * STEP, "{took:?}");
    assert_eq!(disk.writes(), 0);
}
