//! A caller that asks for far more than its budget: what it gets, beside the others.
#![expect(clippy::unwrap_used, reason = "a failing unwrap fails the test")]

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bulkhead_api::v1;
use ipc::Network;
use memory_network::MemoryHub;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};
use topology::{Identities, Process, row};
use v1::runtime_pods_client::RuntimePodsClient;
use v1::runtime_pods_server::{RuntimePods, RuntimePodsServer};
use v1::usage_client::UsageClient;
use v1::usage_server::{Usage, UsageServer};

/// What a broken pleg asks for at once.
const ASKED: usize = 4_000;

/// Over so many connections.
const CONNECTIONS: usize = 16;

/// Answers, and counts the lists that are made at a time.
#[derive(Clone, Debug, Default)]
struct FakePool {
    lists: Arc<AtomicUsize>,
    most_lists: Arc<AtomicUsize>,
}

type Hints =
    Pin<Box<dyn tokio_stream::Stream<Item = Result<v1::WatchHintsResponse, Status>> + Send>>;

#[tonic::async_trait]
impl RuntimePods for FakePool {
    type WatchHintsStream = Hints;

    async fn list_pods(
        &self,
        _: Request<v1::ListPodsRequest>,
    ) -> Result<Response<v1::ListPodsResponse>, Status> {
        let at_once = self.lists.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_lists.fetch_max(at_once, Ordering::Relaxed);
        tokio::task::yield_now().await;
        self.lists.fetch_sub(1, Ordering::Relaxed);
        Ok(Response::new(v1::ListPodsResponse::default()))
    }

    async fn watch_hints(
        &self,
        _: Request<v1::WatchHintsRequest>,
    ) -> Result<Response<Hints>, Status> {
        Ok(Response::new(Box::pin(tokio_stream::pending())))
    }
}

#[tonic::async_trait]
impl Usage for FakePool {
    async fn get_usage(
        &self,
        _: Request<v1::GetUsageRequest>,
    ) -> Result<Response<v1::UsageReport>, Status> {
        tokio::task::yield_now().await;
        Ok(Response::new(v1::UsageReport::default()))
    }
}

/// A pool, and the network as pleg and as the operator see it.
fn serve(hub: MemoryHub) -> (FakePool, Network, Network) {
    let identities = Arc::new(Identities::from_base(64_000).unwrap());
    let pool = FakePool::default();
    let mut routes = Routes::builder();
    routes.add_service(RuntimePodsServer::new(pool.clone()));
    routes.add_service(UsageServer::new(pool.clone()));
    let server = Process::PodWorkerPool;
    let serving = ipc::serve(
        server,
        Arc::clone(&identities),
        hub.listener(server),
        routes.routes(),
        CancellationToken::new(),
    );
    tokio::spawn(serving);
    let pleg = hub.network(Process::Pleg, &identities);
    (pool, pleg, hub.network_of_operator())
}

/// As many lists as a broken pleg asks for.
fn attack(pleg: &Network) -> JoinSet<Result<(), Code>> {
    let mut calls = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let client = RuntimePodsClient::new(pleg.channel(Process::PodWorkerPool));
        for _ in 0..ASKED / CONNECTIONS {
            let mut client = client.clone();
            calls.spawn(async move {
                let answer = client.list_pods(v1::ListPodsRequest::default()).await;
                answer.map(|_| ()).map_err(|status| status.code())
            });
        }
    }
    calls
}

/// Longest delay of a caller beside the flood.
const MOST_DELAY: Duration = Duration::from_millis(100);

/// Floods until one delayed nobody for longer: other programs may keep the processors from
/// this test, but not each time.
const TRIES: usize = 10;

#[test]
fn four_thousand_lists_at_once_delay_nobody_by_more_than_100_ms() {
    let mut delays = (0..TRIES).map(|_| longest_delay_beside_a_flood());
    assert!(delays.any(|delay| delay <= MOST_DELAY));
}

/// Server, flood and the caller beside it are each on a thread of their own, as processes are.
fn longest_delay_beside_a_flood() -> Duration {
    let hub = MemoryHub::new();
    let (up, is_up) = mpsc::channel();
    thread::spawn(move || {
        block_on(async {
            up.send(serve(hub)).unwrap();
            std::future::pending::<()>().await;
        });
    });
    let (pool, pleg, operator) = is_up.recv().unwrap();
    let flood = thread::spawn(move || block_on(async { attack(&pleg).join_all().await }));
    let mut longest = Duration::ZERO;
    block_on(async {
        let mut client = UsageClient::new(operator.channel(Process::PodWorkerPool));
        while !flood.is_finished() {
            let begun = Instant::now();
            client.get_usage(v1::GetUsageRequest {}).await.unwrap();
            longest = longest.max(begun.elapsed());
        }
    });
    let answers = flood.join().unwrap();
    let most = usize::from(row(Process::PodWorkerPool).services[1].budget.at_once);
    assert_eq!(pool.most_lists.load(Ordering::Relaxed), most);
    // Beyond those that may wait a call is refused, and a connection beyond its number.
    assert!(answers.contains(&Err(Code::ResourceExhausted)));
    assert!(answers.iter().any(Result::is_ok));
    assert!(!answers.contains(&Err(Code::PermissionDenied)));
    longest
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}

#[tokio::test(start_paused = true)]
async fn a_stream_counts_until_it_ends() {
    for hub in [MemoryHub::new(), MemoryHub::without_http2()] {
        let (_pool, pleg, _) = serve(hub);
        let budget = row(Process::PodWorkerPool).services[1].budget;
        let mut client = RuntimePodsClient::new(pleg.channel(Process::PodWorkerPool));
        let mut streams = Vec::new();
        for _ in 0..budget.at_once {
            let stream = client.watch_hints(v1::WatchHintsRequest {}).await.unwrap();
            streams.push(stream);
        }
        let mut waits = client.clone();
        let mut waits =
            tokio::spawn(async move { waits.list_pods(v1::ListPodsRequest::default()).await });
        let long = Duration::from_secs(10);
        assert!(tokio::time::timeout(long, &mut waits).await.is_err());
        streams.pop();
        waits.await.unwrap().unwrap();
    }
}
