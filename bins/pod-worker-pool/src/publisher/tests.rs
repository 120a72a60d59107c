//! What others are told, and when they are told nothing.

use clock::UnixNanos;
use futures_util::FutureExt as _;
use ipc::StateEvent;
use pod_lifecycle::observation::{
    Container, ContainerState, Exit, Observation, Sandbox, SandboxNetwork,
};
use pod_lifecycle::{Termination, TerminationCause};
use serde_json::{Value, json};

use super::*;
use crate::testing::{desired, manifest, pod};

const NODE: &str = "10.0.0.1";

fn view(value: &Value, phase: v1::WorkerPhase) -> WorkerView {
    let desired = desired(value.clone());
    WorkerView {
        identity: desired.identity().clone(),
        desired: Some(desired),
        phase,
        termination: None,
        pending_resize: None,
    }
}

fn container(id: &str, state: ContainerState) -> Container {
    Container {
        id: id.into(),
        name: "c".into(),
        sandbox_id: "s1".into(),
        restart_count: 0,
        created_at: UnixNanos(1),
        state,
        image: "i".into(),
        image_id: "i".into(),
        stop_signal: None,
        user: None,
        is_recursively_read_only: false,
        spec_hash: String::new(),
        termination_grace: None,
        restart_wait: None,
        pre_stop: None,
        sidecar: None,
        round: 0,
        resources: None,
    }
}

fn running() -> ContainerState {
    ContainerState::Running {
        started_at: UnixNanos(2),
    }
}

fn exited() -> ContainerState {
    ContainerState::Exited(Exit {
        started_at: UnixNanos(2),
        finished_at: UnixNanos(3),
        exit_code: 1,
        reason: "Error".into(),
        message: String::new(),
    })
}

fn findings(containers: Vec<Container>) -> Findings {
    Findings {
        observation: Observation {
            sandboxes: vec![Sandbox {
                id: "s1".into(),
                attempt: 0,
                ready: true,
                created_at: UnixNanos(1),
                network: SandboxNetwork::Pod {
                    ips: vec!["10.88.0.2".into()],
                },
                pod_started_at: None,
                started_with: None,
            }],
            containers,
            ..Observation::default()
        },
        is_observed: true,
        ..Findings::default()
    }
}

fn probed() -> Value {
    let mut value = manifest("a", "u1");
    value["spec"]["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": 1}});
    value
}

#[test]
fn nothing_is_told_of_a_pod_before_the_runtime_was_asked() {
    let publisher = Publisher::new(NODE.into());
    publisher.worker(view(&probed(), v1::WorkerPhase::Syncing));
    assert!(publisher.observations().is_empty());
    publisher.findings("u1", findings(vec![container("c1", running())]));
    assert_eq!(publisher.observations().len(), 1);
    // Of one that waits for another there is nothing to ask.
    publisher.worker(view(&manifest("b", "u2"), v1::WorkerPhase::Waiting));
    assert_eq!(publisher.observations().len(), 2);
}

#[test]
fn all_is_known_once_every_pod_that_there_is_to_be_was_looked_at() {
    let publisher = Publisher::new(NODE.into());
    let is_complete = || publisher.clone().complete().now_or_never().is_some();
    let desired = |uids: &[&str]| {
        let uids = uids.iter().map(|uid| (*uid).to_owned());
        publisher.note_desired(&uids.collect());
    };
    publisher.worker(view(&manifest("b", "u2"), v1::WorkerPhase::Waiting));
    desired(&["u1", "u2"]);
    assert!(!is_complete(), "one has no worker yet");
    publisher.worker(view(&probed(), v1::WorkerPhase::Syncing));
    desired(&["u1", "u2"]);
    desired(&["u2"]);
    assert!(!is_complete(), "the runtime was not asked about one yet");
    publisher.findings("u1", findings(Vec::new()));
    assert!(
        !is_complete(),
        "nobody said since which pods there are to be"
    );
    desired(&["u1", "u2"]);
    assert!(is_complete());
    desired(&["u3"]);
    assert!(is_complete(), "what comes later is told as it comes");
}

#[test]
fn a_pod_that_is_stopped_is_told_of_before_the_runtime_was_asked() {
    let publisher = Publisher::new(NODE.into());
    publisher.worker(view(&probed(), v1::WorkerPhase::Terminating));
    let observation = publisher.observations().get(&"u1".to_owned()).unwrap();
    assert_eq!(observation.phase(), v1::WorkerPhase::Terminating);
    assert!(!observation.is_observed, "nothing is known");
}

#[test]
fn what_a_late_step_finds_of_a_forgotten_pod_is_not_told() {
    let publisher = Publisher::new(NODE.into());
    publisher.worker(view(&probed(), v1::WorkerPhase::Syncing));
    publisher.findings("u1", findings(vec![container("c1", running())]));
    publisher.remove("u1");
    publisher.findings("u1", findings(vec![container("c1", running())]));
    assert!(publisher.observations().is_empty() && publisher.targets().is_empty());
}

#[tokio::test]
async fn having_looked_again_is_no_news() {
    let publisher = Publisher::new(NODE.into());
    publisher.worker(view(&probed(), v1::WorkerPhase::Syncing));
    publisher.findings("u1", findings(vec![container("c1", running())]));
    let mut watch = publisher.observations().subscribe();
    for _ in 0..3 {
        watch.next().await;
    }
    publisher.findings("u1", findings(vec![container("c1", running())]));
    publisher.findings("u1", findings(vec![container("c1", exited())]));
    let StateEvent::Item(_, observation) = watch.next().await else {
        panic!("no observation");
    };
    assert_eq!(observation.containers[0].state(), v1::RuntimeState::Exited);
}

#[test]
fn an_error_is_told_beside_what_was_found_before() {
    let publisher = Publisher::new(NODE.into());
    publisher.worker(view(&probed(), v1::WorkerPhase::Syncing));
    publisher.failed("u1", "the runtime is away");
    assert!(publisher.observations().is_empty());
    publisher.findings("u1", findings(vec![container("c1", running())]));
    publisher.failed("u1", "the runtime is away");
    let observation = publisher.observations().get(&"u1".to_owned()).unwrap();
    assert_eq!(observation.sync_error, "the runtime is away");
    assert_eq!(observation.containers.len(), 1);
}

#[test]
fn a_termination_tells_its_cause_and_its_grace() {
    let publisher = Publisher::new(NODE.into());
    let mut worker = view(&probed(), v1::WorkerPhase::Finished);
    worker.termination = Some(Termination::new(
        TerminationCause::Evicted {
            reason: "Evicted".into(),
            message: "low on memory".into(),
            is_disruption: true,
        },
        UnixNanos(9),
        worker.desired.as_ref(),
        None,
    ));
    publisher.worker(worker);
    publisher.findings("u1", findings(vec![container("c1", exited())]));
    let observation = publisher.observations().get(&"u1".to_owned()).unwrap();
    assert_eq!(observation.failed_reason, "Evicted");
    assert_eq!(observation.failed_message, "low on memory");
    assert!(observation.is_disruption);
    assert_eq!(observation.termination_grace_period_seconds, 30);
    assert_eq!(observation.termination_requested_at_unix_nanos, 9);
    assert!(!observation.terminal);
    let target = publisher.targets().get(&"c1".to_owned()).unwrap();
    assert!(target.terminating && !target.running);
}

#[test]
fn each_instance_with_probes_is_a_target_until_a_newer_one_shows() {
    let publisher = Publisher::new(NODE.into());
    publisher.worker(view(&probed(), v1::WorkerPhase::Syncing));
    publisher.findings("u1", findings(vec![container("c1", running())]));
    let target = publisher.targets().get(&"c1".to_owned()).unwrap();
    assert_eq!(
        (target.pod_ip.as_str(), target.started_at_unix_nanos),
        ("10.88.0.2", 2)
    );
    let mut newer = container("c2", running());
    newer.restart_count = 1;
    publisher.findings("u1", findings(vec![newer, container("c1", exited())]));
    assert_eq!(publisher.targets().keys(), ["c2"]);
    publisher.remove("u1");
    assert!(publisher.targets().is_empty());
}

#[test]
fn a_pod_is_probed_at_its_address_of_the_nodes_family() {
    for (node, expected) in [("10.0.0.1", "10.88.0.2"), ("fd00::1", "fd00::2")] {
        let publisher = Publisher::new(node.into());
        publisher.worker(view(&probed(), v1::WorkerPhase::Syncing));
        let mut found = findings(vec![container("c1", running())]);
        let ips = ["fd00::2", "10.88.0.2"].map(str::to_owned).into();
        found.observation.sandboxes[0].network = SandboxNetwork::Pod { ips };
        publisher.findings("u1", found);
        let target = publisher.targets().get(&"c1".to_owned()).unwrap();
        assert_eq!(target.pod_ip, expected);
    }
}

fn address_of_target_in_the_nodes_network(host_ip: &str) -> String {
    let publisher = Publisher::new(host_ip.into());
    let mut value = probed();
    value["spec"]["hostNetwork"] = json!(true);
    publisher.worker(view(&value, v1::WorkerPhase::Syncing));
    let mut found = findings(vec![container("c1", running())]);
    found.observation.sandboxes[0].network = SandboxNetwork::Host;
    publisher.findings("u1", found);
    publisher.targets().get(&"c1".to_owned()).unwrap().pod_ip
}

#[test]
fn liveness_of_a_pod_that_the_policy_refuses_is_not_probed() {
    let publisher = Publisher::new(NODE.into());
    let mut value = probed();
    let container_spec = &mut value["spec"]["containers"][0];
    let probe = container_spec["readinessProbe"].clone();
    container_spec["livenessProbe"] = probe.clone();
    container_spec["startupProbe"] = probe;
    publisher.worker(view(&value, v1::WorkerPhase::Syncing));
    for is_refused in [false, true, false] {
        let found = Findings {
            is_refused,
            ..findings(vec![container("c1", running())])
        };
        publisher.findings("u1", found);
        let target = publisher.targets().get(&"c1".to_owned()).unwrap();
        assert_eq!(target.liveness_json.is_empty(), is_refused);
        assert!(!target.readiness_json.is_empty() && !target.startup_json.is_empty());
    }
}

#[test]
fn a_pod_on_the_nodes_network_is_probed_at_the_nodes_address() {
    assert_eq!(address_of_target_in_the_nodes_network(NODE), NODE);
}

#[test]
fn a_pod_in_the_nodes_network_is_probed_while_the_node_has_no_address() {
    assert_eq!(address_of_target_in_the_nodes_network(""), "127.0.0.1");
}

#[test]
fn a_container_that_does_not_run_says_why() {
    let mut value = manifest("a", "u1");
    let reasons: BTreeMap<String, (String, String)> =
        [("c".to_owned(), ("ErrImagePull".to_owned(), "no".to_owned()))].into();
    let none = BTreeMap::new();
    for (state, reasons, expected) in [
        (None, &none, Some("ContainerCreating")),
        (
            Some(ContainerState::Created),
            &none,
            Some("ContainerCreating"),
        ),
        (Some(running()), &reasons, None),
        (Some(exited()), &none, None),
        (Some(exited()), &reasons, Some("ErrImagePull")),
        (None, &reasons, Some("ErrImagePull")),
    ] {
        let observation = Observation {
            containers: state
                .map(|state| container("c1", state))
                .into_iter()
                .collect(),
            ..Observation::default()
        };
        let found = waiting(&pod(value.clone()), &observation, reasons);
        let reason = found.first().map(|waiting| waiting.reason.as_str());
        assert_eq!(reason, expected, "{:?}", observation.containers);
    }
    value["spec"]["initContainers"] = json!([{"name": "i", "image": "i"}]);
    let found = waiting(&pod(value), &Observation::default(), &none);
    let told: Vec<_> = found
        .iter()
        .map(|it| (it.name.as_str(), it.reason.as_str()))
        .collect();
    assert_eq!(told, [("i", "PodInitializing"), ("c", "PodInitializing")]);
}

#[test]
fn the_sandbox_that_the_pod_lives_in_is_told_first() {
    let value = manifest("a", "u1");
    let mut found = findings(vec![container("c1", running())]);
    let stray = Sandbox {
        id: "s2".into(),
        attempt: 1,
        ..found.observation.sandboxes[0].clone()
    };
    found.observation.sandboxes.insert(0, stray);
    let view = view(&value, v1::WorkerPhase::Syncing);
    let told = observation::message(&view, &found, NODE).sandboxes;
    let ids: Vec<&str> = told.iter().map(|sandbox| &*sandbox.id).collect();
    assert_eq!(ids, ["s1", "s2"]);
}
