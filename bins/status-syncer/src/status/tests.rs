//! The rules of a status, one claim a test.

use bulkhead_api::v1::{
    ContainerObservation, ContainerWaiting, ProbeKind, ProbeResult, ProbeVerdict, RuntimeState,
    SandboxObservation,
};
use pod::core::{ContainerState, ContainerStatus, PodCondition};
use serde_json::{Value, json};

use super::*;

const SECOND: i64 = 1_000_000_000;

/// A pod and what is seen of it, edited by a test and computed step by step.
struct Node {
    pod: Pod,
    observation: PodObservation,
    verdicts: Verdicts,
    published: Option<PodStatus>,
    now: i64,
}

impl Node {
    fn new(spec: Value) -> Node {
        let pod = json!({
            "metadata": {
                "name": "p", "namespace": "default", "uid": "u",
                "annotations": {"kubernetes.io/config.source": "file"},
            },
            "spec": spec,
        });
        Node {
            pod: serde_json::from_value(pod).unwrap(),
            observation: PodObservation {
                phase: WorkerPhase::Syncing.into(),
                observed_at_unix_nanos: 1,
                ..PodObservation::default()
            },
            verdicts: Verdicts::default(),
            published: None,
            now: 100,
        }
    }

    fn with_policy(policy: &str) -> Node {
        Node::new(json!({"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}))
    }

    fn with_init(policy: &str) -> Node {
        Node::new(json!({
            "restartPolicy": policy,
            "initContainers": [{"name": "i1"}, {"name": "i2"}],
            "containers": [{"name": "c"}],
        }))
    }

    fn api_pod(mut self) -> Node {
        self.pod.metadata.annotations = None;
        self
    }

    fn phase(&mut self, phase: WorkerPhase) -> &mut Node {
        self.observation.set_phase(phase);
        self
    }

    /// Adds an instance; a later one is newer.
    fn instance(&mut self, name: &str, id: &str, state: RuntimeState, exit_code: i32) -> &mut Node {
        let number = i64::try_from(self.observation.containers.len()).unwrap();
        let same = self
            .observation
            .containers
            .iter()
            .filter(|other| other.name == name)
            .count();
        self.observation.containers.push(ContainerObservation {
            name: name.to_owned(),
            id: id.to_owned(),
            state: state.into(),
            created_at_unix_nanos: (10 + number) * SECOND,
            started_at_unix_nanos: (11 + number) * SECOND,
            finished_at_unix_nanos: if state == RuntimeState::Exited {
                20 * SECOND
            } else {
                0
            },
            exit_code,
            reason: if exit_code == 0 { "Completed" } else { "Error" }.to_owned(),
            restart_count: u32::try_from(same).unwrap(),
            image: "i@runtime".to_owned(),
            ..ContainerObservation::default()
        });
        self
    }

    fn running(&mut self, name: &str, id: &str) -> &mut Node {
        self.instance(name, id, RuntimeState::Running, 0)
    }

    fn exited(&mut self, name: &str, id: &str, exit_code: i32) -> &mut Node {
        self.instance(name, id, RuntimeState::Exited, exit_code)
    }

    fn gone(&mut self) -> &mut Node {
        self.observation.containers.clear();
        self
    }

    fn waiting(&mut self, name: &str, reason: &str) -> &mut Node {
        self.observation.waiting.push(ContainerWaiting {
            name: name.to_owned(),
            reason: reason.to_owned(),
            message: "why".to_owned(),
        });
        self
    }

    fn verdict(&mut self, id: &str, kind: ProbeKind, result: ProbeResult) -> &mut Node {
        self.verdicts.set(&ProbeVerdict {
            container_id: id.to_owned(),
            kind: kind.into(),
            result: result.into(),
            ..ProbeVerdict::default()
        });
        self
    }

    /// Computes, publishes and lets ten seconds pass.
    fn compute(&mut self) -> PodStatus {
        let status = pod_status(StatusInput {
            pod: &self.pod,
            observation: &self.observation,
            verdicts: &self.verdicts,
            published: self.published.as_ref(),
            now: UnixNanos(self.now * SECOND),
        });
        self.now += 10;
        self.published = Some(status.clone());
        status
    }
}

fn container<'a>(status: &'a PodStatus, name: &str) -> &'a ContainerStatus {
    let init = status.init_container_statuses.iter().flatten();
    let mut all = init.chain(status.container_statuses.iter().flatten());
    all.find(|status| status.name == name).unwrap()
}

/// A state in a few words: `running`, `waiting Reason`, `terminated 1 Error`.
fn words(state: Option<&ContainerState>) -> String {
    let Some(state) = state else {
        return "absent".to_owned();
    };
    if state.running.is_some() {
        "running".to_owned()
    } else if let Some(waiting) = &state.waiting {
        format!("waiting {}", waiting.reason.as_deref().unwrap_or("-"))
    } else if let Some(ended) = &state.terminated {
        format!(
            "terminated {} {}",
            ended.exit_code,
            ended.reason.as_deref().unwrap_or("-")
        )
    } else {
        "empty".to_owned()
    }
}

fn state_of(status: &PodStatus, name: &str) -> String {
    words(container(status, name).state.as_ref())
}

fn last_of(status: &PodStatus, name: &str) -> String {
    words(container(status, name).last_state.as_ref())
}

fn condition<'a>(status: &'a PodStatus, type_: &str) -> &'a PodCondition {
    status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == type_)
        .unwrap()
}

fn since(status: &PodStatus, type_: &str) -> i64 {
    condition(status, type_)
        .last_transition_time
        .as_ref()
        .unwrap()
        .0
        .as_second()
}

// Containers.

#[test]
fn before_the_first_instance_a_container_is_being_created() {
    let mut node = Node::with_policy("Always");
    let status = node.compute();
    assert_eq!(state_of(&status, "c"), "waiting ContainerCreating");
    assert_eq!(last_of(&status, "c"), "empty");
    assert_eq!(container(&status, "c").image, "i");
    assert_eq!(status.phase.as_deref(), Some("Pending"));

    let mut node = Node::with_init("Always");
    let status = node.compute();
    for name in ["i1", "i2", "c"] {
        assert_eq!(state_of(&status, name), "waiting PodInitializing");
    }
}

#[test]
fn a_restarted_container_shows_how_the_last_instance_ended() {
    let mut node = Node::with_policy("Always");
    let status = node.exited("c", "a", 3).running("c", "b").compute();
    assert_eq!(state_of(&status, "c"), "running");
    assert_eq!(last_of(&status, "c"), "terminated 3 Error");
    assert_eq!(container(&status, "c").restart_count, 1);
    assert_eq!(
        container(&status, "c").container_id.as_deref(),
        Some("containerd://b")
    );
    assert_eq!(container(&status, "c").image, "i@runtime");
}

#[test]
fn the_end_of_a_collected_instance_stays_known() {
    let mut node = Node::with_policy("Always");
    node.exited("c", "a", 3).compute();
    let mut only_new = node.gone().running("c", "b").compute();
    assert_eq!(last_of(&only_new, "c"), "terminated 3 Error");
    only_new = node.compute();
    assert_eq!(last_of(&only_new, "c"), "terminated 3 Error");
}

#[test]
fn the_restart_count_never_decreases() {
    let mut node = Node::with_policy("Always");
    node.exited("c", "a", 1)
        .exited("c", "b", 1)
        .running("c", "d");
    assert_eq!(container(&node.compute(), "c").restart_count, 2);
    node.gone().running("c", "d");
    assert_eq!(container(&node.compute(), "c").restart_count, 2);
}

#[test]
fn a_reason_for_no_start_shows_only_where_a_start_is_due() {
    // policy, exit code, state with the reason CrashLoopBackOff given
    for (policy, exit_code, expected) in [
        ("Always", 0, "waiting CrashLoopBackOff"),
        ("Always", 1, "waiting CrashLoopBackOff"),
        ("OnFailure", 0, "terminated 0 Completed"),
        ("OnFailure", 1, "waiting CrashLoopBackOff"),
        ("Never", 1, "terminated 1 Error"),
    ] {
        let mut node = Node::with_policy(policy);
        let status = node
            .exited("c", "a", exit_code)
            .waiting("c", "CrashLoopBackOff")
            .compute();
        assert_eq!(state_of(&status, "c"), expected, "{policy} {exit_code}");
        if expected.starts_with("waiting") {
            assert!(last_of(&status, "c").starts_with(&format!("terminated {exit_code}")));
        }
    }
    let mut node = Node::with_policy("Always");
    let status = node
        .running("c", "a")
        .waiting("c", "CrashLoopBackOff")
        .compute();
    assert_eq!(state_of(&status, "c"), "running");
    let mut node = Node::with_policy("Always");
    let status = node.waiting("c", "ErrImagePull").compute();
    assert_eq!(state_of(&status, "c"), "waiting ErrImagePull");
    assert_eq!(status.phase.as_deref(), Some("Pending"));
}

#[test]
fn a_terminating_pod_waits_for_no_start() {
    let mut node = Node::with_policy("Always");
    node.exited("c", "a", 1)
        .waiting("c", "CrashLoopBackOff")
        .phase(WorkerPhase::Terminating);
    assert_eq!(state_of(&node.compute(), "c"), "terminated 1 Error");
}

#[test]
fn a_default_reason_hides_no_known_end() {
    let mut node = Node::with_policy("Always");
    let status = node
        .exited("c", "a", 1)
        .waiting("c", "ContainerCreating")
        .compute();
    assert_eq!(state_of(&status, "c"), "terminated 1 Error");
}

#[test]
fn a_completed_init_container_waits_for_no_restart() {
    let mut node = Node::with_init("Always");
    node.exited("i1", "a", 0).waiting("i1", "CrashLoopBackOff");
    let status = node
        .exited("i2", "b", 1)
        .waiting("i2", "CrashLoopBackOff")
        .compute();
    assert_eq!(state_of(&status, "i1"), "terminated 0 Completed");
    assert_eq!(state_of(&status, "i2"), "waiting CrashLoopBackOff");
    assert!(container(&status, "i1").ready);
    assert!(!container(&status, "i2").ready);
}

#[test]
fn a_container_that_ran_and_vanished_counts_as_restarted() {
    let mut node = Node::with_policy("Always");
    node.running("c", "a").compute();
    for _ in 0..3 {
        let status = node.gone().compute();
        assert_eq!(state_of(&status, "c"), "waiting ContainerCreating");
        assert_eq!(
            last_of(&status, "c"),
            "terminated 137 ContainerStatusUnknown"
        );
        assert_eq!(container(&status, "c").restart_count, 1);
        assert_eq!(
            status.phase.as_deref(),
            Some("Running"),
            "it is not pending again"
        );
    }
}

#[test]
fn a_container_that_vanished_while_the_pod_ends_is_no_restart() {
    let mut node = Node::with_policy("Always");
    node.running("c", "a").compute();
    let status = node.gone().phase(WorkerPhase::Terminating).compute();
    assert_eq!(
        last_of(&status, "c"),
        "terminated 137 ContainerStatusUnknown"
    );
    assert_eq!(container(&status, "c").restart_count, 0);
}

#[test]
fn an_unobserved_pod_keeps_its_containers() {
    let mut node = Node::with_policy("Always");
    let before = node.running("c", "a").compute();
    node.observation.observed_at_unix_nanos = 0;
    let status = node.gone().compute();
    assert_eq!(status, before);
}

#[test]
fn an_instance_in_an_unknown_state_ended_if_it_was_seen_running() {
    let mut node = Node::with_policy("Never");
    node.running("c", "a").compute();
    for _ in 0..3 {
        let status = node
            .gone()
            .instance("c", "a", RuntimeState::Unknown, 0)
            .compute();
        assert_eq!(
            state_of(&status, "c"),
            "terminated 137 ContainerStatusUnknown"
        );
        assert_eq!(container(&status, "c").restart_count, 1);
    }
    let mut node = Node::with_policy("Never");
    let status = node.instance("c", "a", RuntimeState::Unknown, 0).compute();
    assert_eq!(state_of(&status, "c"), "waiting -");
}

#[test]
fn init_containers_that_were_collected_had_completed() {
    let mut node = Node::with_init("Always");
    let status = node.running("c", "a").compute();
    assert_eq!(state_of(&status, "i1"), "terminated 0 Completed");
    assert_eq!(condition(&status, "Initialized").status, "True");
    assert_eq!(status.phase.as_deref(), Some("Running"));
}

#[test]
fn containers_are_listed_by_name_and_init_containers_in_order() {
    let mut node = Node::new(json!({
        "initContainers": [{"name": "z"}, {"name": "a"}],
        "containers": [{"name": "y"}, {"name": "b"}],
    }));
    let status = node.compute();
    let names = |statuses: &Option<Vec<ContainerStatus>>| -> Vec<String> {
        statuses
            .iter()
            .flatten()
            .map(|status| status.name.clone())
            .collect()
    };
    assert_eq!(names(&status.init_container_statuses), ["z", "a"]);
    assert_eq!(names(&status.container_statuses), ["b", "y"]);
}

// The end of a pod.

#[test]
fn at_its_end_every_container_that_could_have_run_has_ended() {
    const LOST: &str = "terminated 137 ContainerStatusUnknown";
    type Setup = fn(&mut Node) -> &mut Node;
    // what was seen, then the states of i1, i2 and c
    let table: &[(&str, Setup, [&str; 3])] = &[
        (
            "nothing ran",
            |node| node,
            [LOST, "waiting PodInitializing", "waiting PodInitializing"],
        ),
        (
            "the first init container runs",
            |node| node.running("i1", "a"),
            [LOST, "waiting PodInitializing", "waiting PodInitializing"],
        ),
        (
            "the first init container failed",
            |node| node.exited("i1", "a", 1),
            [
                "terminated 1 Error",
                "waiting PodInitializing",
                "waiting PodInitializing",
            ],
        ),
        (
            "the second init container runs",
            |node| node.exited("i1", "a", 0).running("i2", "b"),
            ["terminated 0 Completed", LOST, "waiting PodInitializing"],
        ),
        (
            "all init containers completed",
            |node| node.exited("i1", "a", 0).exited("i2", "b", 0),
            ["terminated 0 Completed", "terminated 0 Completed", LOST],
        ),
        (
            "the container runs",
            |node| {
                node.exited("i1", "a", 0)
                    .exited("i2", "b", 0)
                    .running("c", "d")
            },
            ["terminated 0 Completed", "terminated 0 Completed", LOST],
        ),
        (
            "the container ended",
            |node| {
                node.exited("i1", "a", 0)
                    .exited("i2", "b", 0)
                    .exited("c", "d", 0)
            },
            [
                "terminated 0 Completed",
                "terminated 0 Completed",
                "terminated 0 Completed",
            ],
        ),
    ];
    for (what, setup, expected) in table {
        let mut node = Node::with_init("Always");
        setup(&mut node);
        let status = node.phase(WorkerPhase::Terminated).compute();
        let states = ["i1", "i2", "c"].map(|name| state_of(&status, name));
        assert_eq!(states, *expected, "{what}");
    }
}

#[test]
fn a_pod_of_the_api_server_that_was_told_to_end_is_failed_or_succeeded() {
    for (exit_code, expected) in [(0, "Succeeded"), (1, "Failed")] {
        let mut node = Node::with_policy("Always").api_pod();
        node.exited("c", "a", exit_code)
            .phase(WorkerPhase::Terminating);
        assert_eq!(node.compute().phase.as_deref(), Some("Running"));
        node.phase(WorkerPhase::Terminated);
        assert_eq!(node.compute().phase.as_deref(), Some(expected));
    }
}

#[test]
fn a_static_pod_that_was_removed_keeps_its_phase() {
    let mut node = Node::with_policy("Always");
    node.running("c", "a").compute();
    let status = node
        .gone()
        .exited("c", "a", 0)
        .phase(WorkerPhase::Terminated)
        .compute();
    assert_eq!(status.phase.as_deref(), Some("Running"));
}

// Phase, reason and message.

#[test]
fn a_terminal_phase_is_final() {
    let mut node = Node::with_policy("Never");
    let status = node.exited("c", "a", 1).compute();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    let status = node.gone().running("c", "a").compute();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    node.observation.failed_reason = "Evicted".to_owned();
    assert_eq!(
        node.compute().reason,
        None,
        "it failed before it was evicted"
    );
}

#[test]
fn a_terminal_phase_in_the_api_is_final_too() {
    let mut node = Node::with_policy("Always").api_pod();
    node.pod.status = Some(PodStatus {
        phase: Some("Failed".to_owned()),
        reason: Some("Evicted".to_owned()),
        ..PodStatus::default()
    });
    let status = node.running("c", "a").compute();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
}

#[test]
fn a_pod_can_be_failed_whatever_its_containers_say() {
    let mut node = Node::with_policy("Always");
    node.running("c", "a").compute();
    node.observation.failed_reason = "DeadlineExceeded".to_owned();
    node.observation.failed_message = "too long".to_owned();
    let status = node.phase(WorkerPhase::Terminating).compute();
    assert_eq!(
        (status.phase.as_deref(), status.reason.as_deref()),
        (Some("Running"), None),
        "nobody may replace it while its container runs"
    );
    assert!(container(&status, "c").ready);

    let status = node.gone().exited("c", "a", 0).compute();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(status.message.as_deref(), Some("too long"));
    assert_eq!(
        condition(&status, "Ready").reason.as_deref(),
        Some("PodFailed")
    );

    // A pool that forgot why does not change it.
    node.observation.failed_reason.clear();
    let again = node.compute();
    assert_eq!(again.reason.as_deref(), Some("DeadlineExceeded"));
    assert_eq!(again.message.as_deref(), Some("too long"));
}

#[test]
fn a_rejected_pod_is_failed_and_stays_so() {
    let node = Node::with_policy("Always");
    let status = rejected_status(
        &node.pod,
        "OutOfcpu",
        "no room",
        None,
        UnixNanos(7 * SECOND),
    );
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
    assert_eq!(status.message.as_deref(), Some("Pod was rejected: no room"));
    assert_eq!(status.start_time.as_ref().unwrap().0.as_second(), 7);
    let again = rejected_status(
        &node.pod,
        "OutOfpods",
        "",
        Some(&status),
        UnixNanos(9 * SECOND),
    );
    assert_eq!(again, status);
}

// Readiness.

#[test]
fn readiness_follows_verdicts_of_the_same_instance() {
    use ProbeResult::{Failure, Success, Unspecified};
    // startup probe? readiness probe? verdicts, then started and ready
    for (startup, readiness, startup_verdict, readiness_verdict, started, ready) in [
        (false, false, Unspecified, Unspecified, true, true),
        (false, true, Unspecified, Unspecified, true, false),
        (false, true, Unspecified, Failure, true, false),
        (false, true, Unspecified, Success, true, true),
        (true, false, Unspecified, Unspecified, false, false),
        (true, false, Failure, Unspecified, false, false),
        (true, false, Success, Unspecified, true, true),
        (true, true, Success, Unspecified, true, false),
        (true, true, Success, Success, true, true),
        (true, true, Failure, Success, false, false),
    ] {
        let probe = |wanted: bool| wanted.then(|| json!({"tcpSocket": {"port": 1}}));
        let mut node = Node::new(json!({"containers": [{
            "name": "c", "startupProbe": probe(startup), "readinessProbe": probe(readiness),
        }]}));
        node.running("c", "a");
        node.verdict("a", ProbeKind::Startup, startup_verdict);
        node.verdict("a", ProbeKind::Readiness, readiness_verdict);
        // Of another instance: says nothing.
        node.verdict("b", ProbeKind::Readiness, Success)
            .verdict("b", ProbeKind::Startup, Success);
        let status = node.compute();
        let case = format!("{startup} {readiness} {startup_verdict:?} {readiness_verdict:?}");
        assert_eq!(container(&status, "c").started, Some(started), "{case}");
        assert_eq!(container(&status, "c").ready, ready, "{case}");
        let expected = if ready { "True" } else { "False" };
        assert_eq!(condition(&status, "Ready").status, expected, "{case}");
        assert_eq!(
            condition(&status, "ContainersReady").status,
            expected,
            "{case}"
        );
    }
}

#[test]
fn an_unknown_verdict_keeps_what_was_published_for_the_instance() {
    let mut node = Node::new(json!({"containers": [{
        "name": "c",
        "startupProbe": {"tcpSocket": {"port": 1}},
        "readinessProbe": {"tcpSocket": {"port": 1}},
    }]}));
    node.running("c", "a");
    node.verdict("a", ProbeKind::Startup, ProbeResult::Success);
    node.verdict("a", ProbeKind::Readiness, ProbeResult::Success);
    let before = node.compute();
    assert!(container(&before, "c").ready);

    // A restart of this process: the verdicts are gone, what was published is not.
    node.verdicts = Verdicts::default();
    assert_eq!(node.compute(), before);

    // A new instance starts without any.
    node.gone().exited("c", "a", 1).running("c", "b");
    let status = node.compute();
    assert_eq!(container(&status, "c").started, Some(false));
    assert!(!container(&status, "c").ready);
}

#[test]
fn a_container_that_does_not_run_is_not_ready() {
    let mut node = Node::with_policy("Never");
    let status = node.exited("c", "a", 0).compute();
    assert_eq!(container(&status, "c").started, Some(false));
    assert!(!container(&status, "c").ready);
    assert_eq!(
        condition(&status, "Ready").reason.as_deref(),
        Some("PodCompleted")
    );
    assert_eq!(
        condition(&status, "Initialized").reason.as_deref(),
        Some("PodCompleted")
    );
}

// Conditions.

#[test]
fn a_transition_time_changes_with_the_status_only() {
    let mut node = Node::with_policy("Always");
    let status = node.compute(); // at 100
    assert_eq!(since(&status, "Ready"), 100);
    let status = node.waiting("c", "ErrImagePull").compute();
    assert_eq!(since(&status, "Ready"), 100);
    node.observation.waiting.clear();
    let status = node.running("c", "a").compute(); // at 120
    assert_eq!(
        (since(&status, "Ready"), since(&status, "Initialized")),
        (120, 100)
    );
    let status = node.compute();
    assert_eq!(
        (since(&status, "Ready"), since(&status, "ContainersReady")),
        (120, 120)
    );
    assert_eq!(status.start_time.as_ref().unwrap().0.as_second(), 100);
}

#[test]
fn conditions_name_the_containers_that_lack() {
    let mut node = Node::new(json!({
        "initContainers": [{"name": "i1"}, {"name": "i2"}],
        "containers": [{"name": "c"}, {"name": "d"}],
    }));
    let status = node.exited("i1", "a", 0).compute();
    let initialized = condition(&status, "Initialized");
    assert_eq!(
        initialized.reason.as_deref(),
        Some("ContainersNotInitialized")
    );
    assert_eq!(
        initialized.message.as_deref(),
        Some("containers with incomplete status: [i2]")
    );
    let ready = condition(&status, "Ready");
    assert_eq!(ready.reason.as_deref(), Some("ContainersNotReady"));
    assert_eq!(
        ready.message.as_deref(),
        Some("containers with unready status: [c d]")
    );
}

#[test]
fn readiness_gates_hold_ready_but_not_containers_ready() {
    let gate = |status: Option<&str>| {
        let mut node = Node::new(json!({
            "readinessGates": [{"conditionType": "example.com/gate"}],
            "containers": [{"name": "c"}],
        }));
        node.pod.status = status.map(|status| PodStatus {
            conditions: Some(vec![PodCondition {
                type_: "example.com/gate".to_owned(),
                status: status.to_owned(),
                ..PodCondition::default()
            }]),
            ..PodStatus::default()
        });
        node.running("c", "a").compute()
    };
    let status = gate(None);
    assert_eq!(condition(&status, "ContainersReady").status, "True");
    let ready = condition(&status, "Ready");
    assert_eq!(ready.reason.as_deref(), Some("ReadinessGatesNotReady"));
    assert_eq!(
        ready.message.as_deref(),
        Some("corresponding condition of pod readiness gate \"example.com/gate\" does not exist.")
    );
    assert_eq!(
        condition(&gate(Some("False")), "Ready").message.as_deref(),
        Some("the status of pod readiness gate \"example.com/gate\" is not \"True\", but False")
    );
    let status = gate(Some("True"));
    assert_eq!(condition(&status, "Ready").status, "True");
    assert_eq!(
        condition(&status, "example.com/gate").status,
        "True",
        "kept as it is"
    );
}

// Addresses, times and bounds.

#[test]
fn a_pod_keeps_its_address_when_its_sandbox_is_gone() {
    let mut node = Node::with_policy("Never");
    let sandbox = |ready: bool, ips: &[&str]| SandboxObservation {
        ready,
        ips: ips.iter().map(|&ip| ip.to_owned()).collect(),
        ..SandboxObservation::default()
    };
    let ip = |status: PodStatus| status.pod_ip.unwrap_or_default();
    node.observation.sandboxes = vec![sandbox(true, &["10.0.0.5"])];
    assert_eq!(ip(node.compute()), "10.0.0.5");
    node.observation.sandboxes = vec![sandbox(false, &[])];
    assert_eq!(ip(node.compute()), "10.0.0.5");
    node.observation.sandboxes.clear();
    assert_eq!(ip(node.compute()), "10.0.0.5");
    node.observation.sandboxes = vec![sandbox(true, &[]), sandbox(false, &["10.0.0.5"])];
    assert_eq!(ip(node.compute()), "", "a new sandbox has no address yet");
    node.observation.sandboxes = vec![sandbox(true, &["10.0.0.6", "not an address"])];
    assert_eq!(ip(node.compute()), "10.0.0.6");
}

#[test]
fn the_first_address_is_of_the_nodes_family() {
    let mut node = Node::with_policy("Always");
    node.observation.sandboxes = vec![SandboxObservation {
        ready: true,
        ips: ["10.0.0.5", "10.0.0.6", "fd00::5"]
            .map(str::to_owned)
            .into(),
        ..SandboxObservation::default()
    }];
    node.observation.host_ip = "fd00::1".to_owned();
    let status = node.compute();
    let ips: Vec<_> = status
        .pod_ips
        .iter()
        .flatten()
        .map(|ip| ip.ip.as_str())
        .collect();
    assert_eq!(ips, ["fd00::5", "10.0.0.5"]);
    assert_eq!(status.pod_ip.as_deref(), Some("fd00::5"));
    assert_eq!(status.host_ip.as_deref(), Some("fd00::1"));
}

#[test]
fn a_pod_that_ran_before_we_came_is_as_old_as_it_is() {
    let mut node = Node::with_policy("Always");
    let status = node.running("c", "a").compute();
    assert_eq!(status.start_time.unwrap().0.as_second(), 10);
}

#[test]
fn messages_are_bounded_per_container_and_per_pod() {
    let length = |containers: usize| {
        let list: Vec<_> = (0..containers)
            .map(|number| json!({"name": format!("c{number}")}))
            .collect();
        let mut node = Node::new(json!({"restartPolicy": "Never", "containers": list}));
        for number in 0..containers {
            node.exited(&format!("c{number}"), &format!("id{number}"), 1);
        }
        for instance in &mut node.observation.containers {
            instance.message = "ä".repeat(10_000);
        }
        let status = node.compute();
        let state = container(&status, "c0").state.clone().unwrap();
        state.terminated.unwrap().message.unwrap().len()
    };
    assert_eq!(length(1), 4096);
    assert_eq!(length(3), 4096);
    assert_eq!(length(6), 2048);
    assert_eq!(length(12), 1024);
}

#[test]
fn hostile_observations_do_no_harm() {
    let mut node = Node::with_policy("Always");
    node.running("c", "a")
        .running("not in the spec", "b")
        .waiting("neither is this", "X");
    let instance = &mut node.observation.containers[0];
    instance.started_at_unix_nanos = i64::MIN;
    instance.created_at_unix_nanos = i64::MAX;
    instance.restart_count = u32::MAX;
    instance.state = 77;
    node.observation.phase = -5;
    node.observation.host_ip = "; rm".to_owned();
    let status = node.compute();
    assert_eq!(status.container_statuses.as_ref().map(Vec::len), Some(1));
    assert_eq!(status.host_ip, None);
}
