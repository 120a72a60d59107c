//! The tables of the kubelet's computePodActions, by behaviour, and ours.

mod changed_pods;
mod crash_loop;
mod described;
mod ephemeral;
mod failed_stops;
mod init_containers;
mod kubelet_tables;
mod refused;
mod resizes;
mod restart_all;
mod restart_policies;
mod sandboxes;
mod sidecars;
mod terminations;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use backoff::Curve;
use clock::UnixNanos;
use local_objects::Objects;
use pod_volumes::Content;
use serde_json::{Value, json};

use super::*;
use crate::instance_resources::InstanceResources;
use crate::known::Known;
use crate::name_conflict::NextName;
use crate::observation::{Container, ContainerState, Exit, Observation, Sandbox, SandboxNetwork};
use crate::stop::{KillReason, Moment};
use crate::testing::{manifest, pod};

const SANDBOX: &str = "s1";
const NOW: UnixNanos = UnixNanos(1_000_000 * 1_000_000_000);

fn ago(seconds: u64) -> UnixNanos {
    UnixNanos(NOW.0 - i64::try_from(seconds).unwrap() * 1_000_000_000)
}

/// A pod of three containers, which all run as they should, and knobs to turn.
struct Case {
    pod: Value,
    observation: Observation,
    failed_probes: ProbeVerdicts,
    kills: BTreeMap<String, KillReason>,
    /// What else is known.
    known: Known,
    pulls: BTreeSet<String>,
    started_at: Option<UnixNanos>,
    /// By the node policy.
    refused: Option<Refused>,
    /// What is known of ConfigMaps and Secrets.
    objects: Objects,
    longest_restart_wait: Duration,
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
        started_with: None,
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
            failed_probes: ProbeVerdicts::default(),
            kills: BTreeMap::new(),
            known: Known::default(),
            pulls: BTreeSet::new(),
            started_at: None,
            refused: None,
            objects: Objects::default(),
            longest_restart_wait: Duration::from_secs(300),
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
            stop_signal: None,
            user: None,
            is_recursively_read_only: false,
            spec_hash: pod::ContainerHash::of(&spec).to_string(),
            termination_grace: None,
            restart_wait: Some(Duration::ZERO),
            pre_stop: None,
            sidecar: None,
            round: 0,
            resources: Some(InstanceResources::of(&pod(self.pod.clone()), &spec)),
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
        let pod = pod(self.pod.clone());
        let mut plan = self.plan_for(Goal::Run {
            started_with: &pod::update::started_with(&pod),
            pod: &pod,
            refused: self.refused.as_ref(),
        });
        if let Plan::NewSandbox { why, stop, .. } = &mut plan {
            self.is_all_there_is(why.is_some(), &std::mem::take(stop));
        }
        plan
    }

    /// That a plan stops all containers and sandboxes of the pod, or none.
    fn is_all_there_is(&self, is_all: bool, stop: &StopPod) {
        let stops = stop.containers.iter();
        let stops = stops.map(|stop| (stop.container_id.clone(), stop.reason));
        let alive = self.observation.possibly_running();
        let lost = alive.map(|container| (container.id.clone(), Some(KillReason::SandboxLost)));
        assert!(stops.eq(lost.filter(|_| is_all)));
        let sandboxes = self.observation.sandboxes.iter();
        let sandboxes = sandboxes.map(|sandbox| &sandbox.id);
        assert!(stop.sandboxes.iter().eq(sandboxes.filter(|_| is_all)));
        assert!(stop.created.is_empty());
    }

    fn plan_for(&self, goal: Goal<'_>) -> Plan {
        let mut known = self.known.clone();
        for (id, reason) in &self.kills {
            known.note_kill(id, *reason);
        }
        plan(&Facts {
            goal,
            observation: &self.observation,
            known: &known,
            pulls: &self.pulls,
            probe_verdicts: &self.failed_probes,
            noted_start: self.started_at,
            content: Content {
                objects: &self.objects,
                allocatable: &BTreeMap::new(),
            },
            settings: Settings {
                restart_curve: Curve {
                    base: Duration::from_secs(10),
                    cap: self.longest_restart_wait,
                    immediate: 0,
                },
                sandbox_name_is_held: Duration::from_secs(300),
                instance_name_is_held: Duration::from_secs(300),
            },
            now: Moment {
                wall: NOW,
                monotonic: Instant::now(),
                since_boot: Duration::from_secs(1000),
            },
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
        let stops = self.work().stops.into_iter();
        stops
            .map(|stop| (stop.container_id, stop.reason.unwrap()))
            .collect()
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
        stop: StopPod::default(),
        volumes: Vec::new(),
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
fn a_changed_definition_restarts_that_container_whatever_the_policy() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut case = Case::new(policy);
        case.pod["spec"]["containers"][1]["image"] = json!("i:2");
        let kills = [("b-0".to_owned(), KillReason::DefinitionChanged)];
        assert_eq!(case.kills(), kills, "{policy}");
        assert!(case.starts().is_empty(), "the old instance may run");
        // Stopped, perhaps in an earlier process, with any exit code.
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
                KillReason::LivenessFailed => &mut case.failed_probes.not_live,
                _ => &mut case.failed_probes.not_started,
            };
            failed.insert("b-0".into());
            let work = case.work();
            let suffix = if restarts { ", will be restarted" } else { "" };
            assert_eq!(work.stops[0].reason, Some(reason));
            assert_eq!(work.stops[0].message, format!("{message}{suffix}"));
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
    case.failed_probes.not_live.insert("b-0".into());
    case.failed_probes.not_started.insert("b-0".into());
    assert_eq!(case.plan(), Plan::Work(Work::default()));
}

#[test]
fn a_verdict_on_an_earlier_instance_harms_nobody() {
    let mut case = Case::new("Always");
    case.failed_probes.not_live.insert("b-older".into());
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
    case.failed_probes
        .not_live
        .extend(["a-0".into(), "b-0".into()]);
    let graces: Vec<u64> = case
        .work()
        .stops
        .iter()
        .map(|stop| stop.grace.as_secs())
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

fn discard(id: &str, start_was_abandoned: bool) -> Discard {
    Discard {
        container_id: id.to_owned(),
        start_was_abandoned,
    }
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
    assert_eq!(case.new_instance().discard, [discard("b-0", false)]);
    assert_eq!(case.new_instance().restart_count, 3);
    case.has("b", ContainerState::Created);
    case.pod["spec"]["containers"][1]["image"] = json!("i:2");
    assert_eq!(case.new_instance().discard, [discard("b-0", false)]);
}

#[test]
fn a_start_that_our_death_cut_short_costs_no_restart_and_no_wait() {
    for policy in ["Always", "OnFailure", "Never"] {
        let mut case = Case::new(policy);
        let ContainerState::Exited(exit) = exited_ago(128, 0) else {
            unreachable!();
        };
        case.has("b", ContainerState::StartAbandoned(exit.clone()));
        case.container("b").restart_wait = Some(Duration::from_secs(20));
        let instance = case.new_instance();
        assert_eq!(instance.restart_count, 0);
        assert_eq!(instance.discard, [discard("b-0", true)]);
        let mut case = Case::with_init(policy);
        case.has("i1", exited(0));
        case.has("i2", ContainerState::StartAbandoned(exit));
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
    case.has("b", ContainerState::StartAbandoned(exit));
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
fn the_active_deadline_ends_the_pod_and_is_woken_for() {
    let mut case = Case::new("Always");
    case.pod["spec"]["activeDeadlineSeconds"] = json!(60);
    // It counts from its sandbox, or from an earlier start that was noted.
    case.observation.sandboxes[0].created_at = ago(20);
    assert_eq!(case.work().wake_at, Some(NOW.plus(Duration::from_secs(40))));
    case.started_at = Some(ago(60));
    assert_eq!(case.plan(), Plan::End(TerminationCause::DeadlineExceeded));
}

#[test]
fn the_active_deadline_ends_a_pod_that_has_no_sandbox_or_a_lost_one() {
    let never_had: fn(&mut Case) = |case| case.observation.sandboxes.clear();
    let lost: fn(&mut Case) = |case| case.lost().observation.sandboxes[0].created_at = ago(2);
    for change in [never_had, lost] {
        for (started_at, has_ended) in [(None, false), (Some(59), false), (Some(60), true)] {
            let mut case = Case::bare("Always");
            change(&mut case);
            case.pod["spec"]["activeDeadlineSeconds"] = json!(60);
            case.started_at = started_at.map(ago);
            let plan = case.plan();
            let end = Plan::End(TerminationCause::DeadlineExceeded);
            assert_eq!(plan == end, has_ended, "{started_at:?} {plan:?}");
            assert_eq!(matches!(plan, Plan::NewSandbox { .. }), !has_ended);
        }
    }
}

#[test]
fn nothing_is_made_for_a_pod_that_is_marked_for_deletion() {
    let mut case = Case::bare("Always");
    case.observation.sandboxes.clear();
    case.pod["metadata"]["deletionTimestamp"] = json!("2026-11-20T10:00:00Z");
    assert_eq!(case.plan(), Plan::End(TerminationCause::Deleted));
}

#[test]
fn a_container_whose_image_is_being_pulled_is_not_started_before_it_is_there() {
    let mut case = Case::bare("Always");
    case.pulls.insert("b".into());
    assert_eq!(case.starts(), ["a", "c"]);
    assert_eq!(case.work().pulls, ["b"]);
    // One that was made has its image.
    case.has("b", ContainerState::Created);
    assert_eq!(case.starts(), ["a", "b", "c"]);
}

#[test]
fn a_name_that_may_be_held_is_used_again_until_no_call_can_hold_it() {
    let mut case = Case::new("Always");
    case.has("a", exited(1));
    let a_while_ago = Instant::now().checked_sub(Duration::from_secs(301));
    for (since, number) in [(Some(Instant::now()), 1), (a_while_ago, 2)] {
        let Some(since) = since else { continue };
        let refused = NextName::Conflict { number: 1, since };
        case.known.next_instances.insert("a".into(), refused);
        assert_eq!(case.new_instance().restart_count, number);
        let mut case = Case::bare("Always");
        case.lost().known.next_sandbox = refused;
        let expected = new_sandbox(number, Some(Unusable::NotReady), &["a", "b", "c"]);
        assert_eq!(case.plan(), expected);
    }
}
