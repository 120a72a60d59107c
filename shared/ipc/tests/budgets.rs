//! A caller that asks for far more than its budget: what it gets, and what the others
//! notice of it.
#![expect(clippy::unwrap_used, reason = "a failing unwrap fails the test")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bulkhead_api::v1;
use ipc::{MemoryHub, Network};
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

/// Counts the lists that were asked for, and answers.
#[derive(Clone, Debug, Default)]
struct FakePool {
    lists: Arc<AtomicUsize>,
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
        self.lists.fetch_add(1, Ordering::Relaxed);
        // The runtime is asked, and others have their turn.
        tokio::task::yield_now().await;
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
    let pleg = Network::memory(hub.clone(), Process::Pleg, &identities);
    (pool, pleg, Network::memory_as_operator(hub))
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

#[tokio::test(start_paused = true)]
async fn a_flood_of_lists_does_not_reach_the_callers_beside_it() {
    for hub in [MemoryHub::new(), MemoryHub::without_http2()] {
        let (pool, pleg, operator) = serve(hub);
        let mut client = UsageClient::new(operator.channel(Process::PodWorkerPool));
        client.get_usage(v1::GetUsageRequest {}).await.unwrap();
        let budget = row(Process::PodWorkerPool).services[1].budget;
        let flood = attack(&pleg);
        // Ten calls one after the other, while the clock stands still: what the server does
        // for the flood meanwhile is at most what a second of its budget has.
        let begun = tokio::time::Instant::now();
        for _ in 0..10 {
            client.get_usage(v1::GetUsageRequest {}).await.unwrap();
        }
        let lists = pool.lists.load(Ordering::Relaxed);
        let most = usize::try_from(budget.a_second).unwrap();
        assert_eq!(begun.elapsed().as_millis(), 0, "nobody waited for a turn");
        assert!(lists <= most, "{lists} lists were made meanwhile");
        drop(flood);
    }
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_too_much_waits_its_turn_or_is_refused() {
    for hub in [MemoryHub::new(), MemoryHub::without_http2()] {
        let (pool, pleg, _) = serve(hub);
        let begun = tokio::time::Instant::now();
        let answers = attack(&pleg).join_all().await;
        let served = answers.iter().filter(|answer| answer.is_ok()).count();
        let refused = answers.iter().filter_map(|answer| answer.err());
        // Beyond its connections it is hung up on, beyond those that may wait it is told.
        for code in refused {
            assert_ne!(code, Code::PermissionDenied);
        }
        assert_eq!(served, pool.lists.load(Ordering::Relaxed));
        assert!(answers.contains(&Err(Code::ResourceExhausted)));
        let seconds = usize::try_from(begun.elapsed().as_secs()).unwrap();
        let budget = row(Process::PodWorkerPool).services[1].budget;
        let a_second = usize::try_from(budget.a_second).unwrap();
        assert!(served > a_second, "{served} served: the others waited");
        assert!(
            served <= a_second * (seconds + 2),
            "{served} in {seconds} s"
        );
    }
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
        let long = std::time::Duration::from_secs(10);
        assert!(tokio::time::timeout(long, &mut waits).await.is_err());
        streams.pop();
        waits.await.unwrap().unwrap();
    }
}
