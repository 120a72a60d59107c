//! The whole process: manifests on a real disk, consumers over sockets in memory.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::config_sourcer_client::ConfigSourcerClient;
use bulkhead_api::v1::watch_pods_response::Message;
use clock::WallClock;
use memory_network::MemoryHub;
use node_config::{DirectoryLayout, HttpSource, NodeConfig};
use process::{Context, Lifecycle};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Code, Streaming};
use topology::{Identities, Process};

/// Generous: it is only ever waited for when a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

struct Node {
    disk: TempDir,
    hub: MemoryHub,
    identities: Arc<Identities>,
    config: NodeConfig,
    shutdown: CancellationToken,
    runs: u32,
    running: Option<AbortOnDropHandle<Result<(), config_sourcer::Error>>>,
}

impl Node {
    fn new() -> Node {
        let disk = tempfile::tempdir().expect("a temporary directory");
        let below = |name: &str| disk.path().join(name);
        let directories = DirectoryLayout::below(disk.path());
        fs::create_dir(below("manifests")).expect("a directory");
        let mut config = NodeConfig::with_defaults("node", directories);
        config.static_pod_path = Some(below("manifests"));
        Node {
            disk,
            hub: MemoryHub::new(),
            identities: Arc::new(Identities::from_base(64_000).expect("identities")),
            config,
            shutdown: CancellationToken::new(),
            runs: 0,
            running: None,
        }
    }

    fn write(&self, name: &str, text: &str) {
        write(&self.disk.path().join("manifests").join(name), text);
    }

    /// Kills the process, if it runs, and starts it.
    fn start(&mut self) {
        self.running = None;
        self.hub.kill(Process::ConfigSourcer);
        self.runs += 1;
        let process = Process::ConfigSourcer;
        let context = Context {
            process,
            config: Arc::new(self.config.clone()),
            clock: WallClock::system(),
            network: self.hub.network(process, &self.identities),
            listener: self.hub.listener(process),
            identities: Arc::clone(&self.identities),
            boot_id: format!("run-{}", self.runs),
            seed: 1,
            lifecycle: Lifecycle::unsupervised(self.shutdown.clone()),
        };
        self.running = Some(AbortOnDropHandle::new(tokio::spawn(config_sourcer::serve(
            context,
        ))));
    }

    fn client(&self, caller: Process) -> ConfigSourcerClient<ipc::Channel> {
        let network = self.hub.network(caller, &self.identities);
        ConfigSourcerClient::new(network.channel(Process::ConfigSourcer))
    }

    async fn watch(&self) -> Streaming<v1::WatchPodsResponse> {
        self.client(Process::SyncLoop)
            .watch_pods(v1::WatchPodsRequest {})
            .await
            .expect("a stream")
            .into_inner()
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("a file can be written");
}

fn manifest(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: c, image: 'i:1'}}]\n"
    )
}

async fn next(stream: &mut Streaming<v1::WatchPodsResponse>) -> (String, Message) {
    let response = tokio::time::timeout(PATIENCE, stream.message())
        .await
        .expect("a message in time")
        .expect("no error")
        .expect("no end");
    (response.boot_id, response.message.expect("a message"))
}

/// Reads until a message is the one that is waited for.
async fn until(
    stream: &mut Streaming<v1::WatchPodsResponse>,
    condition: impl Fn(&Message) -> bool,
) -> Message {
    loop {
        let (_, message) = next(stream).await;
        if condition(&message) {
            return message;
        }
    }
}

/// Reads until all these pods have come, in whatever order.
async fn until_pods(stream: &mut Streaming<v1::WatchPodsResponse>, names: &[&str]) {
    let mut missing = names.to_vec();
    while !missing.is_empty() {
        let (_, message) = next(stream).await;
        missing.retain(|name| !is_pod(name)(&message));
    }
}

fn is_pod(name: &str) -> impl Fn(&Message) -> bool {
    move |message| {
        let pod = match message {
            Message::Pod(pod) => pod.pod.as_ref(),
            _ => None,
        };
        pod.and_then(|pod| pod.reference.as_ref())
            .is_some_and(|pod| pod.name == name)
    }
}

#[tokio::test]
async fn a_consumer_follows_the_manifests_over_our_restart() {
    let mut node = Node::new();
    node.write("a", &manifest("a"));
    node.start();
    let mut stream = node.watch().await;
    let (boot_id, first) = next(&mut stream).await;
    assert_eq!(boot_id, "run-1");
    assert!(matches!(first, Message::Sources(sources) if sources.names == ["file"]));
    until(&mut stream, is_pod("a-node")).await;
    node.write("b", &manifest("b"));
    let Message::Pod(pod) = until(&mut stream, is_pod("b-node")).await else {
        unreachable!("it was asked for");
    };
    assert_eq!(pod.source, "file");

    node.start();
    // A stream of the old run ends with an error or quietly, in any case soon.
    let ended = tokio::time::timeout(PATIENCE, async {
        while let Ok(Some(_)) = stream.message().await {}
    });
    ended.await.expect("the stream ends with the process");
    let mut stream = node.watch().await;
    assert_eq!(next(&mut stream).await.0, "run-2");
    // By UID, which differs from directory to directory.
    until_pods(&mut stream, &["a-node", "b-node"]).await;
}

#[tokio::test]
async fn a_bad_manifest_is_told_with_its_place_and_its_field() {
    let mut node = Node::new();
    node.write("a", &manifest("a").replace("i:1", ""));
    node.start();
    let mut stream = node.watch().await;
    let is_problem = |message: &Message| matches!(message, Message::Problems(_));
    let Message::Problems(problems) = until(&mut stream, is_problem).await else {
        unreachable!("it was asked for");
    };
    assert_eq!(problems.source, "file");
    assert_eq!(problems.problems[0].field, "spec.containers[0].image");
    assert!(problems.problems[0].subject.ends_with("/manifests/a"));
}

#[tokio::test]
async fn both_sources_are_served() {
    let mut node = Node::new();
    node.write("a", &manifest("a"));
    let server = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a listener");
    let url = format!("http://{}/pods", server.local_addr().expect("an address"));
    let _server = AbortOnDropHandle::new(tokio::spawn(async move {
        while let Ok((mut stream, _)) = server.accept().await {
            let mut request = [0; 1024];
            drop(stream.read(&mut request).await);
            let body = manifest("web");
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            drop(stream.write_all(answer.as_bytes()).await);
        }
    }));
    node.config.static_pod_url = Some(HttpSource {
        url,
        headers: Default::default(),
        check_frequency: Duration::from_secs(20),
    });
    node.start();
    let mut stream = node.watch().await;
    let (_, first) = next(&mut stream).await;
    assert!(matches!(first, Message::Sources(sources) if sources.names == ["file", "http"]));
    until(&mut stream, is_pod("web-node")).await;
    let mut stream = node.watch().await;
    until(&mut stream, is_pod("a-node")).await;
}

#[tokio::test]
async fn only_the_sync_loop_may_watch() {
    let mut node = Node::new();
    node.start();
    for (caller, may_call_others) in [
        (Process::Prober, false),
        (Process::StatusSyncer, false),
        (Process::PodWorkerPool, true),
    ] {
        let error = node
            .client(caller)
            .watch_pods(v1::WatchPodsRequest {})
            .await
            .expect_err("it may not");
        if may_call_others {
            assert_eq!(error.code(), Code::PermissionDenied, "{caller}");
        } else {
            assert!(ipc::is_broken_connection(&error), "{caller}: {error}");
        }
    }
}

#[tokio::test]
async fn without_sources_it_serves_that_there_are_none() {
    let mut node = Node::new();
    node.config.static_pod_path = None;
    node.start();
    let mut stream = node.watch().await;
    let (_, first) = next(&mut stream).await;
    assert!(matches!(first, Message::Sources(sources) if sources.names.is_empty()));
}

#[tokio::test]
async fn it_stops_when_it_is_told_to() {
    let mut node = Node::new();
    node.start();
    let mut stream = node.watch().await;
    next(&mut stream).await;
    node.shutdown.cancel();
    let running = node.running.take().expect("it runs");
    let ended = tokio::time::timeout(PATIENCE, running)
        .await
        .expect("it ends");
    assert!(matches!(ended, Ok(Ok(()))));
}
