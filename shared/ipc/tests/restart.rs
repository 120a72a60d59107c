//! Calls and streams over a peer's restart, on real sockets and in memory, and
//! the refusal of callers that the topology does not know.
#![expect(clippy::unwrap_used, reason = "a failing unwrap fails the test")]

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use ipc::{CallError, Listener, Network, SubscriptionEvent};
use memory_network::MemoryHub;
use tokio::net::UnixStream;
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
    for hub in [MemoryHub::new(), MemoryHub::without_http2()] {
        let network = hub.network(Process::SyncLoop, &identities());
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
}

#[tokio::test(start_paused = true)]
async fn a_subscription_opens_again_after_a_restart() {
    for hub in [MemoryHub::new(), MemoryHub::without_http2()] {
        let network = hub.network(Process::SyncLoop, &identities());
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
}

#[tokio::test(start_paused = true)]
async fn who_may_call_nothing_is_hung_up_on() {
    for hub in [MemoryHub::new(), MemoryHub::without_http2()] {
        let _server = serve(hub.listener(Process::Pleg), fake("one"));
        for stranger in [
            Process::Prober,
            Process::StatusSyncer,
            Process::ConfigSourcer,
        ] {
            let network = hub.network(stranger, &identities());
            let error = boot_id_of(&network).await.unwrap_err();
            assert!(matches!(error, CallError::Deadline { .. }), "{error}");
        }
        let network = hub.network(Process::SyncLoop, &identities());
        assert_eq!(boot_id_of(&network).await.unwrap(), "one");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_to_a_dead_peer_ends_with_its_deadline() {
    for hub in [MemoryHub::new(), MemoryHub::without_http2()] {
        let network = hub.network(Process::SyncLoop, &identities());
        let error = boot_id_of(&network).await.unwrap_err();
        assert!(matches!(error, CallError::Deadline { .. }), "{error}");
    }
}

/// Serves a real socket, whose callers are this test's user.
fn serve_socket(path: &std::path::Path, server: Process) -> JoinHandle<()> {
    serve_listener(UnixListener::bind(path).unwrap(), server)
}

fn serve_listener(socket: UnixListener, server: Process) -> JoinHandle<()> {
    let listener = Listener::from_unix(socket).unwrap();
    let routes = Routes::new(v1::pleg_server::PlegServer::new(fake("one")));
    let token = CancellationToken::new();
    let serving = ipc::serve(server, identities(), listener, routes, token);
    tokio::spawn(async move { serving.await.unwrap() })
}

#[tokio::test]
async fn who_may_call_nothing_is_not_even_greeted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pleg.sock");
    // Neither root nor any other user of a test is sync-loop.
    let _server = serve_socket(&path, Process::Pleg);
    let mut connection = UnixStream::connect(&path).await.unwrap();
    let mut heard = Vec::new();
    // A server of HTTP/2 speaks first: whatever it says, it says before it has read.
    tokio::io::AsyncReadExt::read_to_end(&mut connection, &mut heard)
        .await
        .unwrap();
    assert_eq!(heard, b"");
}

/// Needs root: then the test is the operator to the server.
#[tokio::test]
async fn a_real_socket_queues_calls_while_its_server_is_down() {
    let directory = tempfile::tempdir().unwrap();
    let server = Process::PodWorkerPool;
    let path = directory.path().join(server.socket_file_name());
    let socket = UnixListener::bind(&path).unwrap();
    let network = Network::unix(directory.path());
    let client = v1::usage_client::UsageClient::new(network.channel(server));
    let early = ipc::call(Duration::from_secs(5), || {
        let mut client = client.clone();
        async move { client.get_usage(v1::GetUsageRequest {}).await }
    });
    let late = async {
        tokio::task::yield_now().await;
        drop(serve_listener(socket, server));
    };
    let (answer, ()) = tokio::join!(early, late);
    // Nobody implements it here: the call came through.
    assert_eq!(answer.unwrap_err().code(), Some(tonic::Code::Unimplemented));
}

/// Who started it makes the socket anew.
#[tokio::test]
async fn a_server_whose_socket_does_not_listen_ends() {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    let (kind, flags) = (SockType::Stream, SockFlag::empty());
    let deaf = socket(AddressFamily::Unix, kind, flags, None).unwrap();
    let listener = Listener::from_unix(UnixListener::from(deaf)).unwrap();
    let routes = Routes::new(v1::pleg_server::PlegServer::new(fake("one")));
    let token = CancellationToken::new();
    let ended = ipc::serve(Process::Pleg, identities(), listener, routes, token).await;
    let error = ended.unwrap_err();
    assert_eq!(error.to_string(), "pleg cannot serve its socket");
}

/// Needs root, as above.
#[tokio::test]
async fn answers_carry_no_date() {
    let directory = tempfile::tempdir().unwrap();
    let server = Process::PodWorkerPool;
    let path = directory.path().join(server.socket_file_name());
    let _server = serve_socket(&path, server);
    let network = Network::unix(directory.path());
    let mut client = v1::usage_client::UsageClient::new(network.channel(server));
    let answer = client.get_usage(v1::GetUsageRequest {}).await.unwrap_err();
    let headers = answer.metadata().clone().into_headers();
    assert!(headers.contains_key("content-type"));
    assert!(!headers.contains_key("date"));
}
