//! Calls and streams over a peer's restart, on real sockets and in memory, and
//! the refusal of callers that the topology does not know.
#![expect(clippy::unwrap_used, reason = "a failing unwrap fails the test")]

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use ipc::{CallError, Listener, MemoryHub, Network, SubscriptionEvent};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use topology::{Identities, Process};

/// Answers with its boot id, and holds streams open.
#[derive(Clone)]
struct FakePleg {
    boot_id: String,
    die_on_call: bool,
    dying: CancellationToken,
}

type Events =
    tokio_stream::Iter<std::vec::IntoIter<Result<v1::WatchPodLifecycleEventsResponse, Status>>>;

#[tonic::async_trait]
impl v1::pleg_server::Pleg for FakePleg {
    type WatchEventsStream = std::pin::Pin<
        Box<
            dyn tokio_stream::Stream<Item = Result<v1::WatchPodLifecycleEventsResponse, Status>>
                + Send,
        >,
    >;

    async fn watch_events(
        &self,
        _: Request<v1::WatchPodLifecycleEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        if self.die_on_call {
            self.dying.cancel();
            std::future::pending::<()>().await;
        }
        let first = v1::WatchPodLifecycleEventsResponse {
            boot_id: self.boot_id.clone(),
            message: None,
        };
        let events: Events = tokio_stream::iter(vec![Ok(first)]);
        let open = futures_util::StreamExt::chain(events, futures_util::stream::pending());
        Ok(Response::new(Box::pin(open)))
    }
}

fn identities() -> Arc<Identities> {
    Arc::new(Identities::from_base(64_000).unwrap())
}

fn serve(listener: Listener, fake: FakePleg) -> JoinHandle<()> {
    let routes = Routes::new(v1::pleg_server::PlegServer::new(fake));
    let serving = ipc::serve(
        Process::Pleg,
        identities(),
        listener,
        routes,
        CancellationToken::new(),
    );
    tokio::spawn(async move { serving.await.unwrap() })
}

async fn boot_id_of(network: &Network) -> Result<String, CallError> {
    let client = v1::pleg_client::PlegClient::new(network.channel(Process::Pleg));
    let mut stream = ipc::call(Duration::from_secs(5), || {
        let mut client = client.clone();
        async move {
            client
                .watch_events(v1::WatchPodLifecycleEventsRequest {})
                .await
        }
    })
    .await?;
    Ok(stream.message().await.unwrap().unwrap().boot_id)
}

fn fake(boot_id: &str) -> FakePleg {
    FakePleg {
        boot_id: boot_id.to_owned(),
        die_on_call: false,
        dying: CancellationToken::new(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_at_the_kill_is_answered_by_the_next_instance() {
    let hub = MemoryHub::new();
    let network = Network::memory(hub.clone(), Process::SyncLoop, &identities());
    let doomed = FakePleg {
        die_on_call: true,
        ..fake("one")
    };
    let dying = doomed.dying.clone();
    let first = serve(hub.listener(Process::Pleg), doomed);
    let restart = async {
        dying.cancelled().await;
        first.abort();
        hub.kill(Process::Pleg);
        // Down for a while: the call waits in the socket.
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(serve(hub.listener(Process::Pleg), fake("two")));
    };
    let (answer, ()) = tokio::join!(boot_id_of(&network), restart);
    assert_eq!(answer.unwrap(), "two");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_opens_again_after_a_restart() {
    let hub = MemoryHub::new();
    let network = Network::memory(hub.clone(), Process::SyncLoop, &identities());
    let first = serve(hub.listener(Process::Pleg), fake("one"));
    let client = v1::pleg_client::PlegClient::new(network.channel(Process::Pleg));
    let mut subscription = ipc::subscribe("pleg", move || {
        let mut client = client.clone();
        async move {
            client
                .watch_events(v1::WatchPodLifecycleEventsRequest {})
                .await
        }
    });
    assert!(matches!(
        subscription.next().await,
        SubscriptionEvent::Connected
    ));
    let SubscriptionEvent::Message(message) = subscription.next().await else {
        panic!()
    };
    assert_eq!(message.boot_id, "one");
    first.abort();
    hub.kill(Process::Pleg);
    let _second = serve(hub.listener(Process::Pleg), fake("two"));
    assert!(matches!(
        subscription.next().await,
        SubscriptionEvent::Lost { .. }
    ));
    loop {
        if let SubscriptionEvent::Message(message) = subscription.next().await {
            assert_eq!(message.boot_id, "two");
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_not_in_the_topology_is_refused() {
    let hub = MemoryHub::new();
    let _server = serve(hub.listener(Process::Pleg), fake("one"));
    for stranger in [
        Process::Prober,
        Process::StatusSyncer,
        Process::ConfigSourcer,
    ] {
        let network = Network::memory(hub.clone(), stranger, &identities());
        let refused = boot_id_of(&network).await.unwrap_err();
        assert_eq!(
            refused.code(),
            Some(tonic::Code::PermissionDenied),
            "{stranger}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_to_a_dead_peer_ends_with_its_deadline() {
    let hub = MemoryHub::new();
    let network = Network::memory(hub, Process::SyncLoop, &identities());
    let error = boot_id_of(&network).await.unwrap_err();
    assert!(matches!(error, CallError::Deadline { .. }), "{error}");
}

#[tokio::test]
async fn a_real_socket_queues_calls_while_its_server_is_down() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(Process::Pleg.socket_file_name());
    let socket = UnixListener::bind(&path).unwrap();
    let network = Network::unix(directory.path());
    let early = boot_id_of(&network);
    let late = async {
        tokio::task::yield_now().await;
        let listener = Listener::from_unix(socket.try_clone().unwrap()).unwrap();
        drop(serve(listener, fake("one")));
    };
    let (answer, ()) = tokio::join!(early, late);
    // This test's user is not the sync loop's: the call came through and was
    // refused by uid.
    assert_eq!(
        answer.unwrap_err().code(),
        Some(tonic::Code::PermissionDenied)
    );
}
