//! sync-loop alone, with everything around it made up: how long an event needs
//! from the stream of pleg to the UpdatePod that it causes, with 250 pods.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bulkhead_api::v1;
use bulkhead_api::v1::watch_pod_lifecycle_events_response::Message as PlegMessage;
use bulkhead_api::v1::watch_pods_response::Message as PodsMessage;
use clock::WallClock;
use memory_network::MemoryHub;
use node_config::{DirectoryLayout, NodeConfig};
use process::{Context, Lifecycle};
use tokio::sync::{broadcast, mpsc};
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use topology::{Identities, Process};

use crate::statistics::{Row, Samples};

/// Pods that sync-loop knows: the budget's number.
const PODS: usize = 250;

/// Events that are timed.
const EVENTS: usize = 2000;

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
type Updates = mpsc::UnboundedSender<(Instant, v1::UpdatePodRequest)>;

pub(crate) fn measure() -> Result<Vec<Row>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let samples = runtime.block_on(play())?;
    let what = format!("sync-loop, {PODS} pods: event in -> UpdatePod out");
    Ok(vec![Row::alone(&what, &samples, "p99 < 1 ms")])
}

async fn play() -> Result<Samples> {
    let disk = tempfile::tempdir()?;
    let identities = Arc::new(Identities::from_base(64_000)?);
    let hub = MemoryHub::new();
    let (updates, mut received) = mpsc::unbounded_channel();
    let (events, _) = broadcast::channel(64);
    let _servers = serve(&hub, &identities, updates, events.clone());
    let shutdown = CancellationToken::new();
    let context = Context {
        process: Process::SyncLoop,
        config: Arc::new(config(&disk)?),
        clock: WallClock::system(),
        network: hub.network(Process::SyncLoop, &identities),
        listener: hub.listener(Process::SyncLoop),
        identities,
        boot_id: "bench".to_owned(),
        seed: 1,
        lifecycle: Lifecycle::unsupervised(shutdown.clone()),
    };
    let opened = sync_loop::open(&context.config);
    let running = tokio::spawn(sync_loop::serve(context, opened));
    for _ in 0..PODS {
        received.recv().await.context("sync-loop ended")?;
    }
    let mut samples = Samples::default();
    for index in 0..EVENTS {
        // Spread, as events are: each one finds an idle loop.
        tokio::time::sleep(Duration::from_millis(2)).await;
        while received.try_recv().is_ok() {}
        let uid = uid(index * 7 % PODS);
        let begin = Instant::now();
        let event = v1::PodLifecycleEvent {
            pod_uid: uid.clone(),
            r#type: v1::PodLifecycleEventType::ContainerStarted.into(),
            container_id: format!("{index:064x}"),
        };
        events
            .send(event)
            .context("sync-loop does not watch pleg")?;
        loop {
            let (at, update) = received.recv().await.context("sync-loop ended")?;
            let reference = update.pod.unwrap_or_default();
            if reference.uid == uid {
                samples.push(at.duration_since(begin));
                break;
            }
        }
    }
    shutdown.cancel();
    running.abort();
    Ok(samples)
}

fn config(disk: &tempfile::TempDir) -> Result<NodeConfig> {
    let directories = DirectoryLayout::below(disk.path());
    std::fs::create_dir_all(directories.state(Process::SyncLoop))?;
    let mut config = NodeConfig::with_defaults("node", directories);
    config.max_pods = 500;
    config.static_pod_path = Some(disk.path().join("manifests"));
    Ok(config)
}

fn uid(index: usize) -> String {
    format!("{index:032x}")
}

fn pod(index: usize) -> v1::Pod {
    let json = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("p-{index}"),
            "namespace": "default",
            "uid": uid(index),
            "annotations": {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": uid(index)},
        },
        "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Always"},
    });
    let document: Result<_, _> = serde_json::from_value(json)
        .map_err(|error| error.to_string())
        .and_then(|pod| {
            pod::PodDocument::encode(&pod, pod::PodSource::File).map_err(|error| error.to_string())
        });
    document
        .map(|document: pod::PodDocument| document.to_message())
        .unwrap_or_default()
}

fn serve(
    hub: &MemoryHub,
    identities: &Arc<Identities>,
    updates: Updates,
    events: broadcast::Sender<v1::PodLifecycleEvent>,
) -> tokio::task::JoinSet<()> {
    let world = World {
        updates,
        events,
        workers: Arc::default(),
    };
    let served = [
        (
            Process::ConfigSourcer,
            Routes::new(v1::config_sourcer_server::ConfigSourcerServer::new(
                world.clone(),
            )),
        ),
        (
            Process::Pleg,
            Routes::new(v1::pleg_server::PlegServer::new(world.clone())),
        ),
        (
            Process::PodWorkerPool,
            Routes::new(v1::pod_workers_server::PodWorkersServer::new(world.clone())),
        ),
        (
            Process::StatusSyncer,
            Routes::new(v1::status_reports_server::StatusReportsServer::new(
                world.clone(),
            )),
        ),
        (
            Process::Prober,
            Routes::new(v1::prober_server::ProberServer::new(world)),
        ),
    ];
    let mut servers = tokio::task::JoinSet::new();
    for (process, routes) in served {
        let listener = hub.listener(process);
        let never = CancellationToken::new();
        let serving = ipc::serve(process, Arc::clone(identities), listener, routes, never);
        servers.spawn(async move { drop(serving.await) });
    }
    servers
}

/// Everything that sync-loop talks to.
#[derive(Clone)]
struct World {
    updates: Updates,
    events: broadcast::Sender<v1::PodLifecycleEvent>,
    workers: Arc<Mutex<BTreeMap<String, v1::PodReference>>>,
}

fn boot_id() -> String {
    "bench".to_owned()
}

#[tonic::async_trait]
impl v1::config_sourcer_server::ConfigSourcer for World {
    type WatchPodsStream = Answers<v1::WatchPodsResponse>;

    async fn watch_pods(
        &self,
        _: Request<v1::WatchPodsRequest>,
    ) -> Result<Response<Self::WatchPodsStream>, Status> {
        let source = || "file".to_owned();
        let mut messages = vec![
            PodsMessage::Sources(v1::ConfiguredSources {
                names: vec![source()],
            }),
            PodsMessage::SnapshotBegin(v1::SourceSnapshotBegin {
                source: source(),
                ready: true,
            }),
        ];
        messages.extend((0..PODS).map(|index| {
            PodsMessage::Pod(v1::SourcePod {
                source: source(),
                pod: Some(pod(index)),
            })
        }));
        messages.push(PodsMessage::SnapshotEnd(v1::SourceSnapshotEnd {
            source: source(),
        }));
        let snapshot = messages.into_iter().map(|message| {
            Ok(v1::WatchPodsResponse {
                boot_id: boot_id(),
                message: Some(message),
            })
        });
        let open = futures_util::StreamExt::chain(
            futures_util::stream::iter(snapshot),
            futures_util::stream::pending(),
        );
        Ok(Response::new(Box::pin(open)))
    }
}

#[tonic::async_trait]
impl v1::pleg_server::Pleg for World {
    type WatchEventsStream = Answers<v1::WatchPodLifecycleEventsResponse>;

    async fn watch_events(
        &self,
        _: Request<v1::WatchPodLifecycleEventsRequest>,
    ) -> Result<Response<Self::WatchEventsStream>, Status> {
        let health = v1::PlegHealth {
            healthy: true,
            ..v1::PlegHealth::default()
        };
        let snapshot = PlegMessage::Snapshot(v1::PlegSnapshot {
            health: Some(health),
            pod_uids: Vec::new(),
        });
        let answer = |message| {
            Ok(v1::WatchPodLifecycleEventsResponse {
                boot_id: boot_id(),
                message: Some(message),
            })
        };
        let events =
            futures_util::stream::unfold(self.events.subscribe(), move |mut events| async move {
                let event = events.recv().await.ok()?;
                Some((answer(PlegMessage::Event(event)), events))
            });
        let first = futures_util::stream::iter([answer(snapshot)]);
        Ok(Response::new(Box::pin(futures_util::StreamExt::chain(
            first, events,
        ))))
    }
}

#[tonic::async_trait]
impl v1::pod_workers_server::PodWorkers for World {
    async fn update_pod(
        &self,
        request: Request<v1::UpdatePodRequest>,
    ) -> Result<Response<v1::UpdatePodResponse>, Status> {
        let at = Instant::now();
        let update = request.into_inner();
        if let Some(reference) = update.pod.clone() {
            let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
            workers.insert(reference.uid.clone(), reference);
        }
        // The measurement is over when nobody receives any more.
        drop(self.updates.send((at, update)));
        let phase = v1::WorkerPhase::Syncing.into();
        Ok(Response::new(v1::UpdatePodResponse {
            boot_id: boot_id(),
            phase,
        }))
    }

    async fn sync_known_pods(
        &self,
        _: Request<v1::SyncKnownPodsRequest>,
    ) -> Result<Response<v1::SyncKnownPodsResponse>, Status> {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let workers = workers
            .values()
            .map(|reference| v1::WorkerState {
                pod: Some(reference.clone()),
                phase: v1::WorkerPhase::Syncing.into(),
                ..v1::WorkerState::default()
            })
            .collect();
        Ok(Response::new(v1::SyncKnownPodsResponse {
            boot_id: boot_id(),
            workers,
            ..v1::SyncKnownPodsResponse::default()
        }))
    }

    async fn clean_up_containers(
        &self,
        _: Request<v1::CleanUpContainersRequest>,
    ) -> Result<Response<v1::CleanUpContainersResponse>, Status> {
        Ok(Response::new(v1::CleanUpContainersResponse {}))
    }

    async fn collect_garbage(
        &self,
        _: Request<v1::CollectGarbageRequest>,
    ) -> Result<Response<v1::CollectGarbageResponse>, Status> {
        Ok(Response::new(v1::CollectGarbageResponse {}))
    }

    async fn get_node_capacity(
        &self,
        _: Request<v1::GetNodeCapacityRequest>,
    ) -> Result<Response<v1::NodeCapacity>, Status> {
        Ok(Response::new(v1::NodeCapacity {
            boot_id: boot_id(),
            cpu_millis: 64_000,
            memory_bytes: 1 << 40,
            ephemeral_storage_bytes: 1 << 42,
            ..v1::NodeCapacity::default()
        }))
    }
}

#[tonic::async_trait]
impl v1::prober_server::Prober for World {
    type WatchResultsStream = Answers<v1::WatchResultsResponse>;

    async fn watch_results(
        &self,
        _: Request<v1::WatchResultsRequest>,
    ) -> Result<Response<Self::WatchResultsStream>, Status> {
        Ok(Response::new(Box::pin(futures_util::stream::pending())))
    }
}

#[tonic::async_trait]
impl v1::status_reports_server::StatusReports for World {
    async fn set_probe_verdicts(
        &self,
        _: Request<v1::SetProbeVerdictsRequest>,
    ) -> Result<Response<v1::SetProbeVerdictsResponse>, Status> {
        Ok(Response::new(v1::SetProbeVerdictsResponse {
            boot_id: boot_id(),
        }))
    }

    async fn set_node_health(
        &self,
        _: Request<v1::SetNodeHealthRequest>,
    ) -> Result<Response<v1::SetNodeHealthResponse>, Status> {
        Ok(Response::new(v1::SetNodeHealthResponse {
            boot_id: boot_id(),
        }))
    }

    async fn reject_pod(
        &self,
        _: Request<v1::RejectPodRequest>,
    ) -> Result<Response<v1::RejectPodResponse>, Status> {
        Ok(Response::new(v1::RejectPodResponse { boot_id: boot_id() }))
    }

    async fn report_events(
        &self,
        _: Request<v1::ReportEventsRequest>,
    ) -> Result<Response<v1::ReportEventsResponse>, Status> {
        Ok(Response::new(v1::ReportEventsResponse {
            boot_id: boot_id(),
        }))
    }

    async fn remove_orphaned_statuses(
        &self,
        _: Request<v1::RemoveOrphanedStatusesRequest>,
    ) -> Result<Response<v1::RemoveOrphanedStatusesResponse>, Status> {
        Ok(Response::new(v1::RemoveOrphanedStatusesResponse {
            boot_id: boot_id(),
        }))
    }
}
