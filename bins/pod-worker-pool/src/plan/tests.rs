//! The tables of the kubelet's computePodActions, by behaviour, and ours.

use clock::UnixNanos;
use serde_json::{Value, json};

use super::sandbox::Unusable;
use super::*;
use crate::observation::{ContainerState, Exit, Sandbox, SandboxNetwork};
use crate::worker::desired::testing::{manifest, pod};

const SANDBOX: &str = "s1";
const NOW: UnixNanos = UnixNanos(1_000_000 * 1_000_000_000);

fn ago(seconds: u64) -> UnixNanos {
    UnixNanos(NOW.0 - i64::try_from(seconds).unwrap() * 1_000_000_000)
}

/// A pod of three containers, which all run as they should, and knobs to turn.
struct Case {
    pod: Value,
    observation: Observation,
    verdicts: Verdicts,
    kills: BTreeMap<String, KillReason>,
    started_at: Option<UnixNanos>,
}

fn spec_of(value: &Value, name: &str) -> pod::core::Container {
    let pod = pod(value.clone());
    pod.container(name).unwrap().1.clone()
}

fn sandbox(id: &str, attempt: u32, ready: bool) -> Sandbox {
    Sandbox {
        id: id.into(),
        attempt,
        ready,
        created_at: ago(100),
        network: SandboxNetwork::Pod {
            ips: vec!["10.0.0.1".into()],
        },
        pod_started_at: None,
    }
}

fn running() -> ContainerState {
    ContainerState::Running {
        started_at: ago(50),
    }
}

fn exited(exit_code: i32) -> ContainerState {
    exited_ago(exit_code, 40)
}

fn exited_ago(exit_code: i32, seconds: u64) -> ContainerState {
    ContainerState::Exited(Exit {
        started_at: ago(50),
        finished_at: ago(seconds),
        exit_code,
        reason: if exit_code == 0 { "Completed" } else { "Error" }.into(),
        message: String::new(),
    })
}

impl Case {
    fn new(policy: &str) -> Case {
        let mut case = Case::bare(policy);
        for name in ["a", "b", "c"] {
            case.has(name, running());
        }
        case
    }

    fn bare(policy: &str) -> Case {
        let mut value = manifest("p", "u1");
        value["spec"]["restartPolicy"] = json!(policy);
        value["spec"]["containers"] = ["a", "b", "c"]
            .map(|name| json!({"name": name, "image": "i:1"}))
            .into();
        Case {
            pod: value,
            observation: Observation {
                sandboxes: vec![sandbox(SANDBOX, 0, true)],
                ..Observation::default()
            },
            verdicts: Verdicts::default(),
            kills: BTreeMap::new(),
            started_at: None,
        }
    }

    /// With init containers i1, i2, i3, none of them started.
    fn with_init(policy: &str) -> Case {
        let mut case = Case::bare(policy);
        case.pod["spec"]["initContainers"] = ["i1", "i2", "i3"]
            .map(|name| json!({"name": name, "image": "i:1"}))
            .into();
        case
    }

    /// Sets the state of a container's newest instance, making it if needed.
    fn has(&mut self, name: &str, state: ContainerState) -> &mut Case {
        let id = format!("{name}-0");
        self.observation.containers.retain(|known| known.id != id);
        let spec = spec_of(&self.pod, name);
        self.observation.containers.push(Container {
            id,
            name: name.into(),
            sandbox_id: SANDBOX.into(),
            restart_count: 0,
            created_at: ago(60),
            state,
            image: "i:1".into(),
            image_id: "sha256:1".into(),
            spec_hash: pod::ContainerHash::of(&spec).to_string(),
            termination_grace: None,
            restart_wait: Some(Duration::ZERO),
        });
        self
    }

    fn lost(&mut self) -> &mut Case {
        self.observation.sandboxes[0].ready = false;
        self
    }

    fn container(&mut self, name: &str) -> &mut Container {
        self.observation
            .containers
            .iter_mut()
            .find(|container| container.name == name)
            .unwrap()
    }

    fn plan(&self) -> Plan {
        plan(&Inputs {
            pod: &pod(self.pod.clone()),
            observation: &self.observation,
            verdicts: &self.verdicts,
            kills: &self.kills,
            restart_curve: Curve {
                base: Duration::from_secs(10),
                cap: Duration::from_secs(300),
                immediate: 0,
            },
            started_at: self.started_at,
            now: NOW,
        })
    }

    fn work(&self) -> Work {
        match self.plan() {
            Plan::Work(work) => work,
            other => panic!("{other:?}"),
        }
    }

    fn starts(&self) -> Vec<String> {
        self.work()
            .starts
            .into_iter()
            .map(|start| start.name)
            .collect()
    }

    fn kills(&self) -> Vec<(String, KillReason)> {
        let kills = self.work().kills.into_iter();
        kills.map(|kill| (kill.container_id, kill.reason)).collect()
    }

    fn new_instance(&self) -> NewInstance {
        match self.work().starts.remove(0).how {
            StartHow::Create(instance) => instance,
            resume @ StartHow::Resume { .. } => panic!("{resume:?}"),
        }
    }
}

fn new_sandbox(attempt: u32, why: Option<Unusable>, first: &[&str]) -> Plan {
    Plan::NewSandbox {
        attempt,
        why,
        first: first.iter().map(|&name| name.to_owned()).collect(),
    }
}

const COMPLETED: Plan = Plan::End(TerminationCause::Completed);

#[test]
fn a_pod_that_is_as_desired_needs_nothing() {
    for policy in ["Always", "OnFailure", "Never"] {
        assert_eq!(Case::new(policy).plan(), Plan::Work(Work::default()));
    }
}

#[test]
fn a_new_pod_gets_a_sandbox_and_then_all_its_containers() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut case = Case::bare(policy);
        assert_eq!(case.starts(), ["a", "b", "c"]);
        case.observation.sandboxes.clear();
        assert_eq!(case.plan(), new_sandbox(0, None, &["a", "b", "c"]));
    }
}

#[test]
fn exited_containers_are_restarted_by_policy() {
    for (policy, codes, expected) in [
        ("Always", [0, 1], vec!["a", "b"]),
        ("OnFailure", [0, 1], vec!["b"]),
        ("Never", [0, 1], vec![]),
    ] {
        let mut case = Case::new(policy);
        case.has("a", exited(codes[0])).has("b", exited(codes[1]));
        assert_eq!(case.starts(), expected, "{policy}");
        assert!(case.kills().is_empty());
    }
}

#[test]
fn a_pod_whose_containers_are_all_done_is_at_its_end() {
    for (policy, codes, is_done) in [
        ("Always", [0, 0, 0], false),
        ("OnFailure", [0, 0, 0], true),
        ("OnFailure", [0, 0, 1], false),
        ("Never", [0, 0, 0], true),
        ("Never", [0, 1, 0], true),
    ] {
        let mut case = Case::new(policy);
        for (name, code) in ["a", "b", "c"].into_iter().zip(codes) {
            case.has(name, exited(code));
        }
        assert_eq!(case.plan() == COMPLETED, is_done, "{policy} {codes:?}");
    }
}

#[test]
fn a_lost_sandbox_is_replaced_with_what_still_has_to_run() {
    let mut case = Case::new("Always");
    for name in ["a", "b", "c"] {
        case.has(name, exited(0));
    }
    let lost = Some(Unusable::NotReady);
    assert_eq!(case.lost().plan(), new_sandbox(1, lost, &["a", "b", "c"]));
    let mut case = Case::new("OnFailure");
    case.has("a", exited(0)).has("b", exited(1));
    assert_eq!(case.lost().plan(), new_sandbox(1, lost, &["b", "c"]));
}

#[test]
fn a_lost_sandbox_of_a_pod_that_is_done_is_not_replaced() {
    for (policy, code) in [("Never", 1), ("Never", 0), ("OnFailure", 0)] {
        let mut case = Case::new(policy);
        for name in ["a", "b", "c"] {
            case.has(name, exited(code));
        }
        assert_eq!(case.lost().plan(), COMPLETED, "{policy}");
    }
    // One that was never restarted loses what still ran in it, too.
    assert_eq!(Case::new("Never").lost().plan(), COMPLETED);
}

#[test]
fn a_lost_sandbox_in_which_nothing_ever_ran_is_replaced_whatever_the_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut case = Case::bare(policy);
        case.lost();
        let all = ["a", "b", "c"];
        assert_eq!(case.plan(), new_sandbox(1, Some(Unusable::NotReady), &all));
        case.has("a", ContainerState::Created);
        assert_eq!(case.plan(), new_sandbox(1, Some(Unusable::NotReady), &all));
    }
}

#[test]
fn a_sandbox_that_cannot_be_trusted_is_replaced() {
    let all = ["a", "b", "c"];
    let mut case = Case::new("Always");
    case.observation.sandboxes[0].network = SandboxNetwork::Pod { ips: Vec::new() };
    assert_eq!(case.plan(), new_sandbox(1, Some(Unusable::NoAddress), &all));
    case.observation.sandboxes[0].network = SandboxNetwork::Host;
    assert_eq!(
        case.plan(),
        new_sandbox(1, Some(Unusable::NetworkChanged), &all)
    );
    case.pod["spec"]["hostNetwork"] = json!(true);
    assert_eq!(case.plan(), Plan::Work(Work::default()));
    let mut case = Case::new("Always");
    case.observation.sandboxes = vec![sandbox("s2", 4, true), sandbox(SANDBOX, 3, true)];
    assert_eq!(
        case.plan(),
        new_sandbox(5, Some(Unusable::SeveralReady), &all)
    );
    case.observation.sandboxes[0].ready = false;
    assert_eq!(case.plan(), new_sandbox(5, Some(Unusable::NotReady), &all));
}

#[test]
fn a_sandbox_that_was_made_just_now_is_given_a_moment() {
    let made = |created_at| {
        let mut case = Case::bare("Always");
        case.lost();
        case.observation.sandboxes[0].created_at = created_at;
        case.plan()
    };
    let replaced = new_sandbox(1, Some(Unusable::NotReady), &["a", "b", "c"]);
    assert_eq!(made(ago(1)), replaced);
    let waits = Plan::Work(Work {
        wake_at: Some(NOW.plus(Duration::from_secs(1))),
        ..Work::default()
    });
    assert_eq!(made(NOW), waits);
    let of_the_future = NOW.plus(Duration::from_nanos(1));
    assert_eq!(made(of_the_future), replaced, "the clock was set back");
    let mut case = Case::new("Never");
    case.lost().observation.sandboxes[0].created_at = NOW;
    assert_eq!(case.plan(), Plan::End(TerminationCause::Completed));
}

#[test]
fn a_changed_definition_restarts_that_container_whatever_the_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut case = Case::new(policy);
        case.pod["spec"]["containers"][1]["image"] = json!("i:2");
        let kills = [("b-0".to_owned(), KillReason::DefinitionChanged)];
        assert_eq!(case.kills(), kills, "{policy}");
        assert!(case.starts().is_empty(), "the old instance may run");
        // Stopped, perhaps in an earlier life of ours, with any exit code.
        case.container("b").state = exited(0);
        case.kills.extend(kills);
        assert_eq!(case.starts(), ["b"], "{policy}");
    }
}

#[test]
fn failed_probes_restart_a_container_unless_the_policy_is_never() {
    for (policy, restarts) in [("Always", true), ("OnFailure", true), ("Never", false)] {
        for (reason, message) in [
            (
                KillReason::LivenessFailed,
                "Container b failed liveness probe",
            ),
            (
                KillReason::StartupFailed,
                "Container b failed startup probe",
            ),
        ] {
            let mut case = Case::new(policy);
            case.pod["spec"]["containers"][1]["livenessProbe"] = json!({"tcpSocket": {"port": 1}});
            case.pod["spec"]["containers"][1]["startupProbe"] = json!({"tcpSocket": {"port": 1}});
            let failed = match reason {
                KillReason::LivenessFailed => &mut case.verdicts.not_live,
                _ => &mut case.verdicts.not_started,
            };
            failed.insert("b-0".into());
            let work = case.work();
            let suffix = if restarts { ", will be restarted" } else { "" };
            assert_eq!(work.kills[0].reason, reason);
            assert_eq!(work.kills[0].message, format!("{message}{suffix}"));
            // Exits with 0 on SIGTERM.
            case.container("b").state = exited(0);
            case.kills.insert("b-0".into(), reason);
            assert_eq!(case.starts() == ["b"], restarts, "{policy} {reason:?}");
        }
    }
}

#[test]
fn a_verdict_of_a_probe_that_the_container_does_not_have_harms_nobody() {
    let mut case = Case::new("Always");
    case.verdicts.not_live.insert("b-0".into());
    case.verdicts.not_started.insert("b-0".into());
    assert_eq!(case.plan(), Plan::Work(Work::default()));
}

#[test]
fn a_verdict_on_an_earlier_instance_harms_nobody() {
    let mut case = Case::new("Always");
    case.verdicts.not_live.insert("b-older".into());
    assert_eq!(case.plan(), Plan::Work(Work::default()));
}

#[test]
fn a_kill_that_was_begun_is_ended_though_its_reason_is_gone() {
    let mut case = Case::new("Always");
    case.kills.insert("b-0".into(), KillReason::LivenessFailed);
    assert_eq!(
        case.kills(),
        [("b-0".to_owned(), KillReason::LivenessFailed)]
    );
}

#[test]
fn the_probes_own_grace_period_applies_to_its_kills() {
    let mut case = Case::new("Always");
    case.pod["spec"]["containers"][0]["livenessProbe"] =
        json!({"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 7});
    case.pod["spec"]["containers"][1]["livenessProbe"] = json!({"tcpSocket": {"port": 1}});
    case.pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
    case.verdicts.not_live.extend(["a-0".into(), "b-0".into()]);
    let graces: Vec<u64> = case
        .work()
        .kills
        .iter()
        .map(|kill| kill.grace.as_secs())
        .collect();
    assert_eq!(graces, [7, 2]);
}

#[test]
fn a_container_of_unknown_state_is_killed_before_another_is_started() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut case = Case::new(policy);
        case.has("b", ContainerState::Unknown);
        assert_eq!(case.kills(), [("b-0".to_owned(), KillReason::StateUnknown)]);
        assert!(case.starts().is_empty());
        case.has("b", exited(137));
        case.kills.insert("b-0".into(), KillReason::StateUnknown);
        assert_eq!(case.starts(), ["b"], "{policy}");
    }
}

#[test]
fn an_older_instance_that_runs_beside_the_newest_is_stopped() {
    let mut case = Case::new("Always");
    case.has("b", exited(1));
    let mut older = case.container("b").clone();
    older.id = "b-old".into();
    older.state = running();
    case.observation.containers.push(older);
    assert_eq!(case.kills(), [("b-old".to_owned(), KillReason::Superseded)]);
    assert!(case.starts().is_empty(), "an instance of it may run");
}

#[test]
fn a_created_instance_is_started_and_not_made_again() {
    let mut case = Case::new("Never");
    case.has("b", ContainerState::Created);
    case.container("b").restart_count = 3;
    let resume = StartHow::Resume {
        container_id: "b-0".into(),
        restart_count: 3,
    };
    assert_eq!(case.work().starts[0].how, resume);
    // Unless it is of an old spec or an old sandbox: then it is in the way.
    case.container("b").sandbox_id = "s0".into();
    assert_eq!(case.new_instance().discard, ["b-0"]);
    assert_eq!(case.new_instance().restart_count, 3);
    case.has("b", ContainerState::Created);
    case.pod["spec"]["containers"][1]["image"] = json!("i:2");
    assert_eq!(case.new_instance().discard, ["b-0"]);
}

#[test]
fn a_start_that_our_death_cut_short_costs_no_restart_and_no_wait() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut case = Case::new(policy);
        let ContainerState::Exited(exit) = exited_ago(128, 0) else {
            unreachable!();
        };
        case.has("b", ContainerState::Interrupted(exit.clone()));
        case.container("b").restart_wait = Some(Duration::from_secs(20));
        let instance = case.new_instance();
        assert_eq!(instance.restart_count, 0);
        assert_eq!(instance.discard, ["b-0"]);
        let mut case = Case::with_init(policy);
        case.has("i1", exited(0));
        case.has("i2", ContainerState::Interrupted(exit));
        assert_eq!(case.starts(), ["i2"]);
        assert_eq!(case.new_instance().restart_count, 0);
    }
}

#[test]
fn count_and_back_off_go_on_from_an_instance_that_never_ran() {
    let ContainerState::Exited(exit) = exited_ago(128, 0) else {
        unreachable!();
    };
    let mut case = Case::new("Always");
    // Those before it have been collected already.
    case.has("b", ContainerState::Interrupted(exit));
    case.container("b").restart_count = 6;
    case.container("b").restart_wait = Some(Duration::from_secs(160));
    let instance = case.new_instance();
    assert_eq!(instance.restart_count, 6);
    assert_eq!(instance.restart_wait, Duration::from_secs(160));
    case.pod["spec"]["containers"][1]["image"] = json!("i:2");
    let instance = case.new_instance();
    assert_eq!(instance.restart_count, 6);
    assert_eq!(instance.restart_wait, Duration::ZERO, "of another spec");
}

#[test]
fn what_an_ordinary_kubelet_started_is_adopted() {
    let mut case = Case::new("Always");
    for name in ["a", "b", "c"] {
        let container = case.container(name);
        container.spec_hash = "194f884f".into();
        container.restart_wait = None;
    }
    assert_eq!(case.plan(), Plan::Work(Work::default()));
    case.container("a").state = exited_ago(1, 1);
    assert_eq!(case.new_instance().restart_wait, Duration::from_secs(10));
}

#[test]
fn init_containers_run_one_after_the_other() {
    let mut case = Case::with_init("Always");
    assert_eq!(case.starts(), ["i1"]);
    case.has("i1", running());
    assert_eq!(case.plan(), Plan::Work(Work::default()));
    case.has("i1", exited(0));
    assert_eq!(case.starts(), ["i2"]);
    case.has("i2", ContainerState::Created);
    assert_eq!(case.starts(), ["i2"]);
    case.has("i2", exited(0)).has("i3", exited(0));
    assert_eq!(case.starts(), ["a", "b", "c"]);
    assert!(is_initialized(&pod(case.pod.clone()), &case.observation));
}

#[test]
fn a_failed_init_container_is_tried_again_or_ends_the_pod_by_policy() {
    for (policy, retried) in [("Always", true), ("OnFailure", true), ("Never", false)] {
        let mut case = Case::with_init(policy);
        case.has("i1", exited(0)).has("i2", exited(1));
        if retried {
            assert_eq!(case.starts(), ["i2"], "{policy}");
        } else {
            assert_eq!(case.plan(), COMPLETED);
        }
    }
}

#[test]
fn an_init_container_that_ran_out_of_memory_has_failed() {
    let mut case = Case::with_init("Always");
    case.has("i1", exited(0));
    if let ContainerState::Exited(exit) = &mut case.container("i1").state {
        exit.reason = "OOMKilled".into();
    }
    assert_eq!(case.starts(), ["i1"]);
}

#[test]
fn an_init_container_of_unknown_state_is_killed_and_tried_again() {
    for policy in ["Always", "OnFailure"] {
        let mut case = Case::with_init(policy);
        case.has("i1", ContainerState::Unknown);
        assert_eq!(
            case.kills(),
            [("i1-0".to_owned(), KillReason::StateUnknown)]
        );
        case.has("i1", exited(0));
        case.kills.insert("i1-0".into(), KillReason::StateUnknown);
        assert_eq!(case.starts(), ["i1"], "{policy}");
    }
    let mut case = Case::with_init("Never");
    case.has("i1", ContainerState::Unknown);
    assert_eq!(case.plan(), COMPLETED);
}

#[test]
fn init_containers_run_again_in_a_new_sandbox() {
    let lost = Some(Unusable::NotReady);
    for policy in ["Always", "OnFailure"] {
        let mut case = Case::with_init(policy);
        case.has("i1", exited(0)).has("i2", exited(1));
        assert_eq!(
            case.lost().plan(),
            new_sandbox(1, lost, &["i1"]),
            "{policy}"
        );
        case.observation.sandboxes.insert(0, sandbox("s2", 1, true));
        assert_eq!(case.starts(), ["i1"]);
        assert_eq!(case.new_instance().restart_count, 1);
    }
    let mut case = Case::with_init("Never");
    case.has("i1", exited(1));
    assert_eq!(case.lost().plan(), COMPLETED);
    let mut case = Case::with_init("Never");
    assert_eq!(case.lost().plan(), new_sandbox(1, lost, &["i1"]));
}

#[test]
fn init_containers_never_run_again_in_a_live_sandbox() {
    let mut case = Case::with_init("Always");
    for name in ["a", "b"] {
        case.has(name, running());
    }
    case.has("c", exited(1));
    // Their instances were collected as garbage.
    assert_eq!(case.starts(), ["c"]);
    case.has("a", exited(1)).has("b", exited(1));
    assert_eq!(case.starts(), ["a", "b", "c"]);
}

#[test]
fn the_crash_loop_back_off_doubles_to_its_cap_and_waits_from_the_exit() {
    // What the exited instance carries, how long ago it exited, what follows.
    for (carried, exited_for, starts, next) in [
        (0, 0, true, 10),
        (10, 3, false, 0),
        (10, 10, true, 20),
        (20, 19, false, 0),
        (20, 21, true, 40),
        (160, 160, true, 300),
        (300, 299, false, 0),
        (300, 300, true, 300),
    ] {
        let mut case = Case::new("Always");
        case.has("a", exited_ago(0, exited_for));
        case.container("a").created_at = ago(exited_for + 1);
        case.container("a").restart_wait = Some(Duration::from_secs(carried));
        let work = case.work();
        if starts {
            let next = Duration::from_secs(next);
            assert_eq!(case.new_instance().restart_wait, next, "{carried}");
            assert!(work.waits.is_empty());
        } else {
            let wait = &work.waits[0];
            assert_eq!(wait.wait, Duration::from_secs(carried));
            assert_eq!(wait.until, ago(exited_for).plus(wait.wait));
            assert_eq!(work.wake_at, Some(wait.until));
            assert!(work.is_empty());
        }
    }
}

#[test]
fn a_long_run_or_a_new_definition_ends_the_back_off() {
    let mut case = Case::new("Always");
    case.has("a", exited_ago(1, 1));
    case.container("a").restart_wait = Some(Duration::from_secs(300));
    case.container("a").created_at = ago(602);
    assert_eq!(case.new_instance().restart_wait, Duration::from_secs(10));
    case.container("a").created_at = ago(2);
    assert!(case.starts().is_empty());
    case.pod["spec"]["containers"][0]["image"] = json!("i:2");
    assert_eq!(case.new_instance().restart_wait, Duration::from_secs(10));
}

#[test]
fn a_clock_that_was_set_back_neither_lengthens_the_wait_nor_repeats_it() {
    let mut case = Case::new("Always");
    case.has("a", exited_ago(1, 0));
    case.container("a").restart_wait = Some(Duration::from_secs(40));
    let mut exit_in = |seconds| {
        let exited_at = NOW.plus(Duration::from_secs(seconds));
        case.container("a").created_at = exited_at;
        if let ContainerState::Exited(exit) = &mut case.container("a").state {
            exit.finished_at = exited_at;
        }
        case.work()
    };
    for seconds in [0, 1, 40] {
        let wake_at = NOW.plus(Duration::from_secs(40));
        assert_eq!(exit_in(seconds).wake_at, Some(wake_at), "{seconds}");
    }
    for seconds in [41, 3600, 10 * 365 * 86_400] {
        let work = exit_in(seconds);
        assert_eq!(work.starts.len(), 1, "{seconds}");
        assert_eq!(work.waits, [], "{seconds}");
    }
}

#[test]
fn the_kubelets_words_for_a_crash_loop() {
    let wait = RestartWait {
        name: "c".into(),
        container_id: "c-0".into(),
        wait: Duration::from_secs(160),
        until: NOW,
    };
    assert_eq!(
        wait.message(&PodIdentity::new("u1", "default", "p").unwrap()),
        "back-off 2m40s restarting failed container=c pod=p_default(u1)"
    );
    for (seconds, text) in [(10, "10s"), (60, "1m0s"), (300, "5m0s"), (3700, "1h1m40s")] {
        assert_eq!(go_duration(Duration::from_secs(seconds)), text);
    }
}

#[test]
fn restart_counts_go_on_from_instances_or_from_the_names_of_logs() {
    let mut case = Case::new("Always");
    case.has("a", exited(1));
    case.container("a").restart_count = 4;
    let mut older = case.container("a").clone();
    older.id = "older".into();
    older.restart_count = 3;
    case.observation.containers.push(older);
    assert_eq!(case.new_instance().restart_count, 5);
    case.observation
        .containers
        .retain(|container| container.name != "a");
    assert_eq!(case.new_instance().restart_count, 0);
    case.observation.starts_in_logs.insert("a".into(), 6);
    assert_eq!(case.new_instance().restart_count, 6);
}

#[test]
fn the_active_deadline_ends_the_pod_and_is_woken_for() {
    let mut case = Case::new("Always");
    case.pod["spec"]["activeDeadlineSeconds"] = json!(60);
    assert_eq!(case.work().wake_at, None, "not started yet");
    case.started_at = Some(ago(20));
    assert_eq!(case.work().wake_at, Some(NOW.plus(Duration::from_secs(40))));
    case.started_at = Some(ago(60));
    assert_eq!(case.plan(), Plan::End(TerminationCause::DeadlineExceeded));
}

#[test]
fn nothing_is_made_for_a_pod_that_is_marked_for_deletion() {
    let mut case = Case::bare("Always");
    case.observation.sandboxes.clear();
    case.pod["metadata"]["deletionTimestamp"] = json!("2026-11-20T10:00:00Z");
    assert_eq!(case.plan(), Plan::End(TerminationCause::Deleted));
}
