//! The whole process over sockets in memory, on a simulated runtime, asked by those
//! who may and with what nobody should send.

mod by_reference;
mod capacity;
mod exec_probes;
mod log_readers;
mod node_shutdown;
mod source;

use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1;
use bulkhead_api::v1::container_logs_client::ContainerLogsClient;
use bulkhead_api::v1::observations_client::ObservationsClient;
use bulkhead_api::v1::pod_workers_client::PodWorkersClient;
use bulkhead_api::v1::probe_targets_client::ProbeTargetsClient;
use bulkhead_api::v1::runtime_pods_client::RuntimePodsClient;
use bulkhead_api::v1::usage_client::UsageClient;
use bulkhead_api::v1::watch_hints_response::Message as Hint;
use bulkhead_api::v1::watch_observations_response::Message as Observed;
use bulkhead_api::v1::watch_probe_targets_response::Message as Targeted;
use clock::WallClock;
use ipc::Channel;
use memory_network::MemoryHub;
use node_config::{DirectoryLayout, NodeConfig, ShutdownGroup};
use process::{Context, Lifecycle};
use serde_json::{Value, json};
use simulated_node::{MemoryHost, SimulatedLogind};
use simulated_runtime::{Faults, Happening, SimulatedRuntime};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;
use topology::{Identities, Process};

use simulated_node::ROOT_DIR;
use source::FakeSource;

use crate::testing::{IMAGE, START, eventually, pod_running};

struct Pool {
    source: FakeSource,
    runtime: SimulatedRuntime,
    hub: MemoryHub,
    identities: Arc<Identities>,
    state: tempfile::TempDir,
    process: Option<AbortOnDropHandle<()>>,
    clock: WallClock,
    runs: u32,
    logind: SimulatedLogind,
    shutdown: Vec<ShutdownGroup>,
    /// Has the process that runs end by itself.
    stop: CancellationToken,
    /// What is kept open for it, as by a supervisor.
    lifecycle: Lifecycle,
}

impl Pool {
    fn start() -> Pool {
        let clock = WallClock::simulated(START);
        let runtime = SimulatedRuntime::new(1, clock.clone(), true);
        runtime.add_image(IMAGE, true);
        let hub = MemoryHub::new();
        let identities = Arc::new(Identities::from_base(600_000).unwrap());
        let stop = CancellationToken::new();
        let mut pool = Pool {
            lifecycle: Lifecycle::unsupervised(stop.clone()),
            stop,
            source: FakeSource::start(&hub, &identities),
            runtime,
            hub,
            identities,
            state: tempfile::tempdir().unwrap(),
            process: None,
            clock,
            runs: 0,
            logind: SimulatedLogind::default(),
            shutdown: Vec::new(),
        };
        pool.restart();
        pool
    }

    fn restart(&mut self) {
        self.process = None;
        self.hub.kill(Process::PodWorkerPool);
        self.runs += 1;
        self.stop = CancellationToken::new();
        self.lifecycle = Lifecycle::unsupervised(self.stop.clone());
        let root = self.state.path();
        let directories = DirectoryLayout {
            root_dir: ROOT_DIR.into(),
            ..DirectoryLayout::below(root)
        };
        let mut config = NodeConfig::with_defaults("node", directories);
        config.policy_path = root.join("policy.toml");
        config.pull_credentials_path = root.join("pull-credentials.json");
        config.shutdown.clone_from(&self.shutdown);
        let context = Context {
            process: Process::PodWorkerPool,
            config: Arc::new(config),
            clock: self.clock.clone(),
            network: self.hub.network(Process::PodWorkerPool, &self.identities),
            listener: self.hub.listener(Process::PodWorkerPool),
            identities: Arc::clone(&self.identities),
            boot_id: format!("run-{}", self.runs),
            seed: 1,
            lifecycle: self.lifecycle.clone(),
        };
        let opened = crate::Opened {
            runtime: self.runtime.clone().into(),
            host: Arc::new(MemoryHost::default()),
            login: Arc::new(self.logind.clone()),
        };
        self.process = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            Box::pin(crate::serve(context, opened)).await.unwrap();
        })));
    }

    fn channel(&self, caller: Process) -> Channel {
        self.hub
            .network(caller, &self.identities)
            .channel(Process::PodWorkerPool)
    }

    fn workers(&self) -> PodWorkersClient<Channel> {
        PodWorkersClient::new(self.channel(Process::SyncLoop))
    }

    fn observations(&self) -> ObservationsClient<Channel> {
        ObservationsClient::new(self.channel(Process::StatusSyncer))
    }

    fn targets(&self) -> ProbeTargetsClient<Channel> {
        ProbeTargetsClient::new(self.channel(Process::Prober))
    }

    /// The logs, as an operator asks for them.
    fn logs(&self) -> ContainerLogsClient<Channel> {
        let network = self.hub.network_of_operator();
        ContainerLogsClient::new(network.channel(Process::PodWorkerPool))
    }

    /// Has a pod started and waits until it is told of as running.
    async fn run(&self, value: &Value) -> v1::PodObservation {
        let mut client = self.observations();
        let watch = client.watch_observations(v1::WatchObservationsRequest {});
        let mut stream = watch.await.unwrap().into_inner();
        self.source.put(value);
        self.workers().update_pod(update(value)).await.unwrap();
        loop {
            let message = stream.message().await.unwrap().unwrap().message.unwrap();
            if let Observed::Observation(observation) = message
                && observation
                    .containers
                    .iter()
                    .any(|it| it.state() == v1::RuntimeState::Running)
            {
                return observation;
            }
        }
    }
}

fn update(value: &Value) -> v1::UpdatePodRequest {
    let pod = source::message(value);
    v1::UpdatePodRequest {
        r#type: v1::UpdateType::Create.into(),
        pod: pod.reference,
        hash: pod.hash,
        ..v1::UpdatePodRequest::default()
    }
}

fn probed_pod() -> Value {
    let mut value = pod_running("a", "u1", &["run"]);
    value["spec"]["containers"][0]["livenessProbe"] =
        json!({"exec": {"command": ["check", "secret"]}, "timeoutSeconds": 2});
    value["spec"]["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": 80}});
    value
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_run_and_told_of_to_all_who_watch() {
    let pool = Pool::start();
    let observation = pool.run(&probed_pod()).await;
    let id = &observation.containers[0].id;

    let mut pleg = RuntimePodsClient::new(pool.channel(Process::Pleg));
    let listed = pleg
        .list_pods(v1::ListPodsRequest::default())
        .await
        .unwrap();
    let listed = listed.into_inner();
    assert_eq!(listed.boot_id, "run-1");
    assert_eq!(&listed.pods[0].containers[0].id, id);
    assert_eq!(
        listed.pods[0].containers[0].state(),
        v1::RuntimeState::Running
    );

    let watch = pool
        .targets()
        .watch_probe_targets(v1::WatchProbeTargetsRequest {})
        .await;
    let mut targets = watch.unwrap().into_inner();
    let mut next = async || targets.message().await.unwrap().unwrap().message.unwrap();
    assert!(matches!(next().await, Targeted::SnapshotBegin(_)));
    let Targeted::Target(target) = next().await else {
        panic!("no target");
    };
    assert_eq!(&target.container_id, id);
    assert!(target.running && !target.terminating && !target.pod_ip.is_empty());
    let liveness = String::from_utf8(target.liveness_json).unwrap();
    assert!(
        liveness.contains("exec") && !liveness.contains("secret"),
        "{liveness}"
    );
    assert!(target.startup_json.is_empty());
    assert!(matches!(next().await, Targeted::SnapshotEnd(_)));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_is_slow_to_start_a_command_fails_no_probe() {
    let pool = Pool::start();
    let observation = pool.run(&probed_pod()).await;
    pool.runtime.set_exec_result("c", 0, Duration::ZERO);
    let slow = |seconds: u64| Faults {
        exec_delay: Duration::from_secs(seconds),
        ..Faults::NONE
    };
    pool.runtime.set_faults(slow(25));
    let request = v1::ExecProbeRequest {
        pod_uid: "u1".into(),
        container_name: "c".into(),
        container_id: observation.containers[0].id.clone(),
        kind: v1::ProbeKind::Liveness.into(),
    };
    let asked = pool.targets().exec_probe(request.clone()).await;
    let answer = asked.unwrap().into_inner();
    assert_eq!(answer, v1::ExecProbeResponse::default());
    // Who never starts it has failed, and gives the place back.
    pool.runtime.set_faults(slow(600));
    let begun = tokio::time::Instant::now();
    let answer = pool.targets().exec_probe(request).await.unwrap();
    assert!(answer.into_inner().timed_out);
    assert!(begun.elapsed() < Duration::from_secs(35));
}

#[tokio::test(start_paused = true)]
async fn an_exec_probe_runs_the_command_of_the_pod_within_its_timeout() {
    let pool = Pool::start();
    let observation = pool.run(&probed_pod()).await;
    let request = |container: &str, id: &str, kind: v1::ProbeKind| v1::ExecProbeRequest {
        pod_uid: "u1".into(),
        container_name: container.into(),
        container_id: id.into(),
        kind: kind.into(),
    };
    let id = observation.containers[0].id.as_str();
    let liveness = v1::ProbeKind::Liveness;
    pool.runtime.set_exec_result("c", 3, Duration::ZERO);
    let answer = pool
        .targets()
        .exec_probe(request("c", id, liveness))
        .await
        .unwrap();
    assert_eq!(answer.into_inner().exit_code, 3);
    pool.runtime
        .set_exec_result("c", 0, Duration::from_secs(60));
    let begun = tokio::time::Instant::now();
    let answer = pool
        .targets()
        .exec_probe(request("c", id, liveness))
        .await
        .unwrap();
    assert!(answer.into_inner().timed_out);
    assert!(begun.elapsed() < Duration::from_secs(4));
    for (container, id, kind) in [
        ("c", "0000", liveness),
        ("d", id, liveness),
        ("c", id, v1::ProbeKind::Startup),
        ("c", id, v1::ProbeKind::Unspecified),
    ] {
        let refused = pool
            .targets()
            .exec_probe(request(container, id, kind))
            .await;
        assert_eq!(
            refused.unwrap_err().code(),
            Code::NotFound,
            "{container} {kind:?}"
        );
    }
    let readiness = request("c", id, v1::ProbeKind::Readiness);
    let refused = pool.targets().exec_probe(readiness).await;
    assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_should_send_is_refused() {
    let pool = Pool::start();
    let good = update(&pod_running("a", "u1", &["run"]));
    let with = |change: &dyn Fn(&mut v1::UpdatePodRequest)| {
        let mut request = good.clone();
        change(&mut request);
        request
    };
    let reference = |uid: &str| v1::PodReference {
        uid: uid.into(),
        namespace: "default".into(),
        name: "a".into(),
    };
    let bad = [
        with(&|it| it.r#type = 0),
        with(&|it| it.r#type = 77),
        with(&|it| it.pod = None),
        with(&|it| it.pod = Some(reference("../../etc"))),
        with(&|it| it.verdicts = vec![v1::ProbeVerdict::default(); 5000]),
        with(&|it| {
            it.pod = Some(reference("a/b"));
            it.hash = String::new();
        }),
    ];
    for request in bad {
        let shown = format!("{request:?}");
        let refused = pool.workers().update_pod(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{shown}");
    }
    let orphan = with(&|it| {
        it.pod = Some(reference("u9"));
        it.hash = String::new();
    });
    let refused = pool.workers().update_pod(orphan).await.unwrap_err();
    assert_eq!(
        refused.code(),
        Code::FailedPrecondition,
        "it may only be killed"
    );
    let uids = v1::SyncKnownPodsRequest {
        desired_pod_uids: vec!["..".into()],
        delivered_sources: vec!["file".into()],
    };
    let refused = pool.workers().sync_known_pods(uids).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(pool.runtime.sandboxes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn known_pods_tell_workers_and_what_the_runtime_has() {
    let mut pool = Pool::start();
    pool.run(&pod_running("a", "u1", &["run"])).await;
    let ask = |desired: &[&str]| v1::SyncKnownPodsRequest {
        desired_pod_uids: desired.iter().map(|&uid| uid.to_owned()).collect(),
        delivered_sources: vec!["file".into()],
    };
    let answer = pool
        .workers()
        .sync_known_pods(ask(&["u1"]))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(answer.workers.len(), 1);
    assert_eq!(answer.workers[0].phase(), v1::WorkerPhase::Syncing);
    assert!(answer.runtime_pods[0].has_running_container);
    assert_eq!(answer.runtime_pods[0].source, "file");
    // Another run has no workers until it is told, and the runtime has the pod.
    pool.restart();
    let answer = pool
        .workers()
        .sync_known_pods(ask(&[]))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(answer.boot_id, "run-2");
    assert!(answer.workers.is_empty());
    assert_eq!(answer.runtime_pods.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn hints_say_first_whether_there_are_events_and_then_which_pod() {
    let pool = Pool::start();
    pool.run(&pod_running("a", "u1", &["run"])).await;
    let mut pleg = RuntimePodsClient::new(pool.channel(Process::Pleg));
    let watch = pleg.watch_hints(v1::WatchHintsRequest {}).await.unwrap();
    let mut hints = watch.into_inner();
    let mut next = async || hints.message().await.unwrap().unwrap().message.unwrap();
    assert_eq!(next().await, Hint::EventsAvailable(true));
    let running = pool.runtime.containers().remove(0);
    pool.runtime.crash_container(&running.id, 1);
    assert_eq!(next().await, Hint::PodUid("u1".into()));
}

/// containerd reports an end before its lists show it.
#[tokio::test(start_paused = true)]
async fn the_next_instance_starts_within_200_ms_of_an_end() {
    for hidden in [0, 30, 90].map(Duration::from_millis) {
        let pool = Pool::start();
        pool.run(&pod_running("a", "u1", &["run"])).await;
        pool.runtime.set_faults(Faults {
            clean_up: hidden,
            ..Faults::NONE
        });
        let first = pool.runtime.containers().remove(0);
        let begun = tokio::time::Instant::now();
        pool.runtime.crash_container(&first.id, 1);
        let second = || {
            let mut containers = pool.runtime.containers().into_iter();
            containers.find(|it| it.running && it.id != first.id)
        };
        eventually("another one runs", || second().is_some()).await;
        let took = begun.elapsed();
        assert!(took <= Duration::from_millis(200), "{hidden:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn usage_is_told_to_the_operator_and_to_nobody_else() {
    let pool = Pool::start();
    pool.run(&pod_running("a", "u1", &["run"])).await;
    pool.runtime.set_memory_use("u1", 5 << 20);
    let operator = pool.hub.network_of_operator();
    let mut client = UsageClient::new(operator.channel(Process::PodWorkerPool));
    let mut used = async || {
        let answer = client.get_usage(v1::GetUsageRequest {}).await.unwrap();
        let [pod] = &answer.into_inner().pods[..] else {
            panic!("one pod runs")
        };
        assert_eq!(pod.pod.as_ref().unwrap().uid, "u1");
        pod.containers[0].memory_bytes.unwrap()
    };
    assert_eq!(used().await, 5 << 20);
    // However often it is asked for: the runtime is asked after half a second.
    pool.runtime.set_memory_use("u1", 7 << 20);
    assert_eq!(used().await, 5 << 20);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(used().await, 7 << 20);
    for process in [Process::SyncLoop, Process::Prober, Process::StatusSyncer] {
        let mut client = UsageClient::new(pool.channel(process));
        let refused = client.get_usage(v1::GetUsageRequest {}).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{process}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_of_usage_waits_for_no_runtime_that_hangs_nor_for_the_questions_before_it() {
    let pool = Pool::start();
    pool.run(&pod_running("a", "u1", &["run"])).await;
    pool.runtime.set_faults(Faults {
        slowness: 1e9,
        ..Faults::default()
    });
    let begun = tokio::time::Instant::now();
    let mut questions = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let operator = pool.hub.network_of_operator();
        let mut client = UsageClient::new(operator.channel(Process::PodWorkerPool));
        questions.spawn(async move { client.get_usage(v1::GetUsageRequest {}).await });
    }
    for answer in questions.join_all().await {
        assert_eq!(answer.unwrap_err().code(), Code::DeadlineExceeded);
    }
    let waited = begun.elapsed();
    assert!(waited < Duration::from_secs(11), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn logs_are_asked_for_by_names_that_exist() {
    let pool = Pool::start();
    pool.run(&pod_running("a", "u1", &["run"])).await;
    let mut client = pool.logs();
    let request = |uid: &str, container: &str, previous: bool| v1::ReadLogsRequest {
        pod_uid: uid.into(),
        container_name: container.into(),
        previous,
        ..v1::ReadLogsRequest::default()
    };
    for (request, code) in [
        (request("u2", "c", false), Code::NotFound),
        (request("u1", "d", false), Code::NotFound),
        (request("u1", "c", true), Code::NotFound),
        (request("..", "c", false), Code::InvalidArgument),
        (request("u1", "../c", false), Code::InvalidArgument),
    ] {
        let shown = format!("{request:?}");
        let refused = client.read_logs(request).await;
        assert_eq!(
            refused.err().map(|status| status.code()),
            Some(code),
            "{shown}"
        );
    }
    // The node in memory has no log files.
    let read = client.read_logs(request("u1", "c", false)).await.unwrap();
    let refused = read.into_inner().message().await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_log_is_waited_for_until_a_new_run_knows_the_pod() {
    let mut pool = Pool::start();
    let pod = pod_running("a", "u1", &["run"]);
    pool.run(&pod).await;
    pool.restart();
    let mut client = pool.logs();
    let request = v1::ReadLogsRequest {
        pod_uid: "u1".into(),
        container_name: "c".into(),
        ..v1::ReadLogsRequest::default()
    };
    let telling = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        pool.workers().update_pod(update(&pod)).await.unwrap();
    };
    let (answer, ()) = tokio::join!(client.read_logs(request), telling);
    answer.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_log_is_found_of_a_pod_that_only_the_runtime_knows() {
    let mut pool = Pool::start();
    pool.run(&pod_running("a", "u1", &["run"])).await;
    pool.restart();
    let mut client = pool.logs();
    for (uid, previous, is_found) in [
        ("u1", false, true),
        ("u1", true, false),
        ("u2", false, false),
    ] {
        let request = v1::ReadLogsRequest {
            pod_uid: uid.into(),
            container_name: "c".into(),
            previous,
            ..v1::ReadLogsRequest::default()
        };
        let refused = client.read_logs(request).await.err();
        let refused = refused.map(|status| status.code());
        assert_eq!(refused, (!is_found).then_some(Code::NotFound), "{uid}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_waits_for_a_runtime_that_is_away_where_only_that_knows_the_pod() {
    let mut pool = Pool::start();
    pool.run(&pod_running("a", "u1", &["run"])).await;
    pool.restart();
    tokio::time::sleep(Duration::from_secs(10)).await;
    pool.runtime.set_faults(Faults {
        unavailable: true,
        ..Faults::NONE
    });
    let mut client = pool.logs();
    let request = v1::ReadLogsRequest {
        pod_uid: "u1".into(),
        container_name: "c".into(),
        ..v1::ReadLogsRequest::default()
    };
    let coming_back = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        pool.runtime.set_faults(Faults::NONE);
    };
    let (answer, ()) = tokio::join!(client.read_logs(request), coming_back);
    answer.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_pod_is_denied_while_the_runtime_has_told_nothing() {
    let mut pool = Pool::start();
    let pod = pod_running("a", "u1", &["run"]);
    pool.run(&pod).await;
    pool.runtime.set_faults(Faults {
        unavailable: true,
        ..Faults::NONE
    });
    pool.restart();
    let mut client = pool.logs();
    let request = v1::ReadLogsRequest {
        pod_uid: "u1".into(),
        container_name: "c".into(),
        ..v1::ReadLogsRequest::default()
    };
    let telling = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        pool.runtime.set_faults(Faults::NONE);
        pool.workers().update_pod(update(&pod)).await.unwrap();
    };
    let (answer, ()) = tokio::join!(client.read_logs(request.clone()), telling);
    answer.unwrap();
    pool.runtime.set_faults(Faults {
        unavailable: true,
        ..Faults::NONE
    });
    pool.restart();
    let mut client = pool.logs();
    let refused = client.read_logs(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
}

#[test]
fn each_part_of_the_status_line_is_seen_however_long_the_others_are() {
    let parts = |long: usize| {
        let policy = format!("node policy: {}", "x".repeat(long));
        ["", "degraded: no logind", &policy, "turns: 4"].map(str::to_owned)
    };
    let short = super::joined(&parts(500));
    assert!(
        short.ends_with("xxx; turns: 4") && short.len() > 500,
        "{short}"
    );
    let cut = super::joined(&parts(5000));
    assert!(
        cut.starts_with("degraded: no logind; node policy: xxx"),
        "{cut}"
    );
    assert!(cut.ends_with("x…; turns: 4"), "{cut}");
    assert!(cut.len() <= process::MAX_STATUS_BYTES);
}
