//! Sidecars: the kubelet's table of computePodActions with restartable init containers,
//! by behaviour, and the order of stops.

use pod::accessors::ContainerKind;

use super::*;
use crate::hook::PostStart;
use crate::known::SandboxKnown;

/// Init containers i1, s2, i3, s4, of which the even ones are sidecars.
fn case(policy: &str) -> Case {
    let mut case = Case::bare(policy);
    case.pod["spec"]["initContainers"] = json!([
        {"name": "i1", "image": "i:1"},
        {"name": "s2", "image": "i:1", "restartPolicy": "Always"},
        {"name": "i3", "image": "i:1"},
        {"name": "s4", "image": "i:1", "restartPolicy": "Always"},
    ]);
    case
}

/// One whose containers all run.
fn complete(policy: &str) -> Case {
    let mut case = case(policy);
    case.has("i1", exited(0)).has("s2", running());
    case.has("i3", exited(0)).has("s4", running());
    for name in ["a", "b", "c"] {
        case.has(name, running());
    }
    for (name, index) in [("s2", 1), ("s4", 3)] {
        case.container(name).sidecar = Some(index);
    }
    case
}

const POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

#[test]
fn sidecars_are_started_in_their_place_and_the_next_one_after_they_have_started() {
    for policy in POLICIES {
        let mut case = case(policy);
        assert_eq!(case.starts(), ["i1"]);
        case.has("i1", running());
        assert!(case.starts().is_empty());
        case.has("i1", exited(0));
        assert_eq!(case.starts(), ["s2"]);
        assert_eq!(case.work().starts[0].kind, ContainerKind::Sidecar);
        case.has("s2", ContainerState::Created);
        assert_eq!(case.starts(), ["s2"]);
        case.has("s2", running());
        assert_eq!(case.starts(), ["i3"]);
        case.has("i3", running());
        assert!(case.starts().is_empty());
        case.has("i3", exited(0));
        assert_eq!(case.starts(), ["s4"]);
        case.has("s4", running());
        assert_eq!(case.starts(), ["a", "b", "c"]);
        assert_eq!(complete(policy).plan(), Plan::Work(Work::default()));
    }
}

#[test]
fn a_sidecar_has_started_when_its_startup_probe_has_succeeded_and_its_hook_has_ended() {
    let mut case = case("Always");
    case.pod["spec"]["initContainers"][1]["startupProbe"] = json!({"exec": {"command": ["x"]}});
    case.has("i1", exited(0)).has("s2", running());
    assert_eq!(case.plan(), Plan::Work(Work::default()));
    case.failed_probes.started.insert("s2-0".into());
    assert_eq!(case.starts(), ["i3"]);
    case.known.note_start("s2-0", true);
    case.pod["spec"]["initContainers"][1]["lifecycle"] =
        json!({"postStart": {"sleep": {"seconds": 1}}});
    assert_eq!(case.work().post_starts.len(), 1);
    assert!(case.starts().is_empty());
    case.known.note_begun_post_start("s2-0");
    assert_eq!(case.known.post_start("s2-0"), Some(PostStart::Begun));
    assert_eq!(case.plan(), Plan::Work(Work::default()));
    case.known.note_ended_post_start("s2-0", true);
    assert_eq!(case.starts(), ["i3"]);
    case.failed_probes.started.clear();
    case.failed_probes.not_started.insert("s2-0".into());
    assert_eq!(case.kills(), [("s2-0".into(), KillReason::StartupFailed)]);
}

#[test]
fn a_sidecar_is_started_again_whatever_it_ended_with_and_whatever_the_policy() {
    for policy in POLICIES {
        for code in [0, 1] {
            // While another init container runs, and later.
            let mut early = case(policy);
            early.has("i1", exited(0)).has("s2", exited(code));
            assert_eq!(early.starts(), ["s2"], "{policy} {code}");
            early.has("i3", running());
            assert_eq!(early.starts(), ["s2"], "{policy} {code}");
            let mut late = complete(policy);
            late.has("s2", exited(code)).has("s4", exited(code));
            assert_eq!(late.starts(), ["s2", "s4"], "{policy} {code}");
            assert!(late.kills().is_empty());
        }
        let mut gone = complete(policy);
        gone.observation.containers.retain(|it| it.name != "s2");
        assert_eq!(gone.starts(), ["s2"], "{policy}");
        let mut unknown = complete(policy);
        unknown.has("s2", ContainerState::Unknown);
        assert_eq!(unknown.kills(), [("s2-0".into(), KillReason::StateUnknown)]);
        let mut not_live = complete(policy);
        not_live.pod["spec"]["initContainers"][1]["livenessProbe"] =
            json!({"exec": {"command": ["x"]}});
        not_live.failed_probes.not_live.insert("s2-0".into());
        assert_eq!(
            not_live.kills(),
            [("s2-0".into(), KillReason::LivenessFailed)]
        );
        not_live.has("s2", exited(137));
        not_live
            .kills
            .insert("s2-0".into(), KillReason::LivenessFailed);
        assert_eq!(not_live.starts(), ["s2"], "{policy}");
    }
}

#[test]
fn a_crashing_sidecar_waits_and_holds_up_what_comes_after_it_only_at_the_start() {
    let waits = |case: &mut Case| {
        case.has("s2", exited_ago(1, 1));
        case.container("s2").restart_wait = Some(Duration::from_secs(20));
        let work = case.work();
        assert_eq!(work.waits.len(), 1);
        assert_eq!(work.waits[0].name, "s2");
        work.starts
            .into_iter()
            .map(|it| it.name)
            .collect::<Vec<_>>()
    };
    let mut early = case("Always");
    early.has("i1", exited(0));
    assert_eq!(waits(&mut early), Vec::<String>::new());
    let mut late = complete("Always");
    late.has("b", exited(1));
    assert_eq!(waits(&mut late), ["b"]);
}

#[test]
fn sidecars_keep_no_finished_pod_alive() {
    for policy in ["OnFailure", "Never"] {
        for sidecar in [running(), exited(1)] {
            let mut case = complete(policy);
            for name in ["a", "b", "c"] {
                case.has(name, exited(0));
            }
            case.has("s4", sidecar);
            assert_eq!(case.plan(), COMPLETED, "{policy}");
        }
    }
    let mut case = case("Never");
    case.has("i1", exited(0))
        .has("s2", running())
        .has("i3", exited(1));
    assert_eq!(case.plan(), COMPLETED);
}

#[test]
fn sidecars_begin_again_in_a_new_sandbox() {
    let mut case = complete("Always");
    case.lost();
    let first = new_sandbox(1, Some(Unusable::NotReady), &["i1"]);
    assert_eq!(case.plan(), first);
    case.observation.sandboxes.insert(0, sandbox("s2", 1, true));
    for container in &mut case.observation.containers {
        container.state = exited(0);
    }
    assert_eq!(case.starts(), ["i1"]);
}

#[test]
fn sidecars_are_stopped_last_and_in_reverse_order() {
    let case = complete("Always");
    let ids = |names: &[&str]| names.iter().map(|it| format!("{it}-0")).collect::<Vec<_>>();
    let stops = case.stop_pod().containers.into_iter();
    let order = stops.map(|stop| (stop.container_id, stop.after));
    let mut order: Vec<(String, Vec<String>)> = order.collect();
    order.sort();
    let expected = [
        ("a", ids(&[])),
        ("b", ids(&[])),
        ("c", ids(&[])),
        ("s2", ids(&["s4", "a", "b", "c"])),
        ("s4", ids(&["a", "b", "c"])),
    ];
    assert_eq!(
        order,
        expected.map(|(name, after)| (format!("{name}-0"), after))
    );
}

#[test]
fn sidecars_wait_for_a_container_that_may_be_starting_within_the_one_grace() {
    let mut case = complete("Always");
    case.has("a", ContainerState::Created);
    case.observation.containers.sort_by(|a, b| a.id.cmp(&b.id));
    let after = |stop: &StopPod| -> Vec<(String, bool)> {
        let stops = stop.containers.iter();
        stops
            .map(|it| (it.name.clone(), it.after.contains(&"a-0".to_owned())))
            .collect()
    };
    let waits = |names: [(&str, bool); 4]| names.map(|(name, waits)| (name.to_owned(), waits));
    let stop = case.stop_pod();
    let (b, c) = (("b", false), ("c", false));
    assert_eq!(after(&stop), waits([b, c, ("s2", true), ("s4", true)]));
    assert_eq!(stop.created[0].container_id, "a-0");
    // It has been removed, or has started and been stopped.
    for is_left in [false, true] {
        case.observation.containers.retain(|it| it.name != "a");
        if is_left {
            case.has("a", exited(0));
        }
        case.observation.containers.sort_by(|a, b| a.id.cmp(&b.id));
        let stop = case.stop_pod();
        assert_eq!(after(&stop), waits([b, c, ("s2", false), ("s4", false)]));
        assert_eq!(stop.sandboxes, [SANDBOX]);
    }
}

#[test]
fn what_was_created_in_a_sandbox_that_is_stopped_goes_with_that() {
    let mut case = Case::bare("Always");
    case.has("a", ContainerState::Created);
    case.lost();
    assert_eq!(case.stop_pod().created.len(), 1);
    case.known.note_sandbox(SANDBOX, SandboxKnown::Stopped);
    assert_eq!(case.end(), Plan::Stopped);
}

#[test]
fn sidecars_that_others_made_are_told_by_the_pod() {
    let mut case = complete("Always");
    for (name, made_by_others) in [("s2", true), ("s4", false), ("a", true)] {
        let container = case.container(name);
        container.sidecar = None;
        if made_by_others {
            container.restart_wait = None;
        }
    }
    let stops = case.stop_pod().containers.into_iter();
    let after: BTreeMap<String, Vec<String>> = stops.map(|it| (it.name, it.after)).collect();
    let others = ["s4-0", "a-0", "b-0", "c-0"].map(str::to_owned);
    assert_eq!(after["s2"], others);
    // What this agent makes notes it itself.
    assert!(after["s4"].is_empty() && after["a"].is_empty());
}
