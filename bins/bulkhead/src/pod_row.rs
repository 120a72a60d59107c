//! One pod as a row of `bulkhead pods`: the words that kubectl uses.

use clock::UnixNanos;
use pod::core::{ContainerState, ContainerStateTerminated, ContainerStatus, PodStatus};
use pod::meta::Time;
use pod::metadata::CONFIG_SEEN_ANNOTATION;
use pod::{Pod, PodExt as _, PodPhase};

use crate::escape::plain;
use crate::table::{Cell, Tone};
use crate::words::{age, age_since, nanos};

/// Headings of the ordinary table.
pub(crate) const HEADINGS: [&str; 6] = ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"];

/// Headings that `-o wide` adds.
pub(crate) const WIDE_HEADINGS: [&str; 2] = ["IP", "NODE"];

/// The cells of a pod, without those of `-o wide`.
pub(crate) fn cells(pod: &Pod, now: UnixNanos) -> Vec<Cell> {
    let status = pod.status.clone().unwrap_or_default();
    // As kubectl: a sidecar counts as a container does.
    let (ready, all) = ready_of(pod, &status);
    vec![
        plain(pod.namespace()).into(),
        plain(pod.name()).into(),
        format!("{ready}/{all}").into(),
        status_cell(pod, &status, ready == all),
        restarts(pod, &status, now).into(),
        begin(pod, &status)
            .map_or_else(|| "<unknown>".to_owned(), |begin| age_since(&begin, now))
            .into(),
    ]
}

/// Since when a pod has its age. A static pod that was not started yet has neither of the
/// first two.
fn begin(pod: &Pod, status: &PodStatus) -> Option<Time> {
    let created = pod.metadata.creation_timestamp.clone();
    let seen = || pod.annotation(CONFIG_SEEN_ANNOTATION)?.parse().ok();
    created
        .or(status.start_time.clone())
        .or_else(|| seen().map(Time))
}

/// A pod's age and the word of its STATUS column, for a sentence.
pub(crate) fn age_and_status(pod: &Pod, now: UnixNanos) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let age = begin(pod, &status).map_or_else(
        || "of unknown age".to_owned(),
        |begin| format!("{} old", age_since(&begin, now)),
    );
    format!("{age}, {}", status_word(pod, &status))
}

/// The cells that `-o wide` adds.
pub(crate) fn wide_cells(pod: &Pod) -> Vec<Cell> {
    let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    let node = pod.spec_or_default().node_name.clone();
    let or_none = |text: Option<String>| {
        let text = text.filter(|text| !text.is_empty());
        plain(&text.unwrap_or_else(|| "<none>".to_owned()))
    };
    vec![or_none(ip).into(), or_none(node).into()]
}

/// The names of the init containers that run on beside the others.
fn sidecars(pod: &Pod) -> Vec<&str> {
    let init = pod.init_containers().iter();
    let sidecars = init.filter(|it| it.restart_policy.as_deref() == Some("Always"));
    sidecars.map(|it| it.name.as_str()).collect()
}

/// How many containers are ready, of how many: sidecars, and those that are no init
/// containers.
fn ready_of(pod: &Pod, status: &PodStatus) -> (usize, usize) {
    let sidecars = sidecars(pod);
    let init = status.init_container_statuses.iter().flatten();
    let init = init.filter(|it| it.started == Some(true) && sidecars.contains(&it.name.as_str()));
    let counted = init.chain(status.container_statuses.iter().flatten());
    let ready = counted.filter(|status| status.ready && is_running(status));
    (ready.count(), sidecars.len() + pod.containers().len())
}

fn status_cell(pod: &Pod, status: &PodStatus, all_are_ready: bool) -> Cell {
    let word = status_word(pod, status);
    let phase = status
        .phase
        .as_deref()
        .and_then(PodPhase::parse)
        .unwrap_or_default();
    let tone = match word.as_str() {
        "Running" if all_are_ready => Tone::Good,
        "Completed" | "Succeeded" => Tone::Good,
        "Running" | "Pending" | "Terminating" | "ContainerCreating" | "PodInitializing"
        | "NotReady" => Tone::Notable,
        word if word.starts_with("Init:") && word.contains('/') => Tone::Notable,
        _ if phase == PodPhase::Succeeded => Tone::Good,
        _ => Tone::Bad,
    };
    Cell::toned(plain(&word), tone)
}

fn is_running(status: &ContainerStatus) -> bool {
    status
        .state
        .as_ref()
        .is_some_and(|state| state.running.is_some())
}

fn has_condition(status: &PodStatus, type_: &str) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == type_ && condition.status == "True")
}

/// How often containers were restarted, and how long ago one ended last. While
/// the pod initializes, its init containers count, later the others and sidecars.
fn restarts(pod: &Pod, status: &PodStatus, now: UnixNanos) -> String {
    let init = status.init_container_statuses.iter().flatten();
    let statuses: Vec<&ContainerStatus> = if initializes(pod, status) {
        init.collect()
    } else {
        let sidecars = sidecars(pod);
        let init = init.filter(|it| sidecars.contains(&it.name.as_str()));
        init.chain(status.container_statuses.iter().flatten())
            .collect()
    };
    let count: i64 = statuses
        .iter()
        .map(|status| i64::from(status.restart_count))
        .sum();
    let ended = |status: &ContainerStatus| {
        let ended = status.last_state.as_ref()?.terminated.as_ref()?;
        ended.finished_at.as_ref().map(nanos)
    };
    match statuses.iter().filter_map(|it| ended(it)).max() {
        Some(last) if count > 0 => format!("{count} ({} ago)", age(now.since(last))),
        _ => count.to_string(),
    }
}

/// Whether an init container is not done and keeps the pod from running.
fn initializes(pod: &Pod, status: &PodStatus) -> bool {
    let sidecars = sidecars(pod);
    let mut init = status.init_container_statuses.iter().flatten();
    let done = |status: &ContainerStatus| {
        if status.started == Some(true) && sidecars.contains(&status.name.as_str()) {
            return true;
        }
        let ended = status
            .state
            .as_ref()
            .and_then(|state| state.terminated.as_ref());
        ended.is_some_and(|ended| ended.exit_code == 0)
    };
    !has_condition(status, "Initialized") && !init.all(done)
}

/// The STATUS column.
pub(crate) fn status_word(pod: &Pod, status: &PodStatus) -> String {
    let non_empty = |word: &Option<String>| word.clone().filter(|word| !word.is_empty());
    let phase = non_empty(&status.phase).unwrap_or_else(|| "Unknown".to_owned());
    let ended = PodPhase::parse(&phase).is_some_and(PodPhase::is_terminal);
    if pod.metadata.deletion_timestamp.is_some() && !ended {
        return "Terminating".to_owned();
    }
    let word = non_empty(&status.reason).unwrap_or(phase);
    if initializes(pod, status) {
        init_word(pod, status).unwrap_or(word)
    } else {
        container_word(word, status)
    }
}

/// What the first init container that is not done says.
fn init_word(pod: &Pod, status: &PodStatus) -> Option<String> {
    let total = pod.init_containers().len();
    let sidecars = sidecars(pod);
    let statuses = status.init_container_statuses.iter().flatten();
    let not_done = |(_, status): &(usize, &ContainerStatus)| {
        let runs_on = status.started == Some(true) && sidecars.contains(&status.name.as_str());
        let ended = status.state.as_ref().and_then(|it| it.terminated.as_ref());
        !runs_on && ended.is_none_or(|ended| ended.exit_code != 0)
    };
    let (index, status) = statuses.enumerate().find(not_done)?;
    let state = status.state.clone().unwrap_or_default();
    Some(match (&state.terminated, waiting_reason(&state)) {
        (Some(ended), _) => format!("Init:{}", ending_word(ended)),
        (None, Some(reason)) if reason != "PodInitializing" => format!("Init:{reason}"),
        (None, _) => format!("Init:{index}/{total}"),
    })
}

/// What the containers say; the first has the last word. `word` stands when
/// all run.
fn container_word(mut word: String, status: &PodStatus) -> String {
    let mut one_is_ready = false;
    for container in status.container_statuses.iter().flatten().rev() {
        let state = container.state.clone().unwrap_or_default();
        if let Some(reason) = waiting_reason(&state) {
            reason.clone_into(&mut word);
        } else if let Some(ended) = &state.terminated {
            word = ending_word(ended);
        } else if container.ready && state.running.is_some() {
            one_is_ready = true;
        }
    }
    if word == "Completed" && one_is_ready {
        let ready = has_condition(status, "Ready");
        return if ready { "Running" } else { "NotReady" }.to_owned();
    }
    word
}

fn waiting_reason(state: &ContainerState) -> Option<&str> {
    let reason = state.waiting.as_ref()?.reason.as_deref()?;
    (!reason.is_empty()).then_some(reason)
}

/// How a container ended: its reason, signal or exit code.
pub(crate) fn ending_word(ended: &ContainerStateTerminated) -> String {
    let reason = ended.reason.as_deref().filter(|reason| !reason.is_empty());
    match (reason, ended.signal.filter(|signal| *signal != 0)) {
        (Some(reason), _) => reason.to_owned(),
        (None, Some(signal)) => format!("Signal:{signal}"),
        (None, None) => format!("ExitCode:{}", ended.exit_code),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn state(state: &str) -> Value {
        let state = match state.split_once(' ').unwrap_or((state, "")) {
            ("running", _) => json!({"running": {}}),
            ("waiting", "") => json!({"waiting": {}}),
            ("waiting", reason) => json!({"waiting": {"reason": reason}}),
            ("signal", number) => {
                json!({"terminated": {"exitCode": 137, "signal": number.parse::<i32>().unwrap()}})
            }
            ("exit", code) => json!({"terminated": {"exitCode": code.parse::<i32>().unwrap()}}),
            (_, reason) => {
                let exit_code = i32::from(reason != "Completed");
                json!({"terminated": {"exitCode": exit_code, "reason": reason}})
            }
        };
        let ready = state.get("running").is_some();
        json!({"name": "c", "image": "i", "imageID": "", "ready": ready, "restartCount": 1, "state": state})
    }

    /// A pod from its phase, reason, and the states of its containers.
    fn pod(
        phase: &str,
        reason: &str,
        init: &[&str],
        ordinary: &[&str],
        conditions: &[&str],
    ) -> Pod {
        let states = |states: &[&str]| states.iter().map(|&one| state(one)).collect::<Vec<_>>();
        let containers = |count: usize| vec![json!({"name": "c"}); count];
        let condition = |type_: &&str| json!({"type": type_, "status": "True"});
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {
                "containers": containers(ordinary.len()),
                "initContainers": containers(init.len()),
            },
            "status": {
                "phase": phase, "reason": reason,
                "initContainerStatuses": states(init),
                "containerStatuses": states(ordinary),
                "conditions": conditions.iter().map(condition).collect::<Vec<_>>(),
            },
        }))
        .unwrap()
    }

    fn word(pod: &Pod) -> String {
        status_word(pod, pod.status.as_ref().unwrap())
    }

    #[test]
    fn the_status_says_what_kubectl_says() {
        for (phase, reason, ordinary, conditions, expected) in [
            (
                "Pending",
                "",
                &["waiting ContainerCreating"][..],
                &[][..],
                "ContainerCreating",
            ),
            ("Pending", "", &["waiting"], &[], "Pending"),
            (
                "Running",
                "",
                &["running", "running"],
                &["Ready"],
                "Running",
            ),
            (
                "Running",
                "",
                &["waiting CrashLoopBackOff", "running"],
                &[],
                "CrashLoopBackOff",
            ),
            (
                "Running",
                "",
                &["ended Error", "waiting ErrImagePull"],
                &[],
                "Error",
            ),
            (
                "Running",
                "",
                &["ended Completed", "running"],
                &["Ready"],
                "Running",
            ),
            (
                "Running",
                "",
                &["ended Completed", "running"],
                &[],
                "NotReady",
            ),
            ("Succeeded", "", &["ended Completed"], &[], "Completed"),
            ("Failed", "", &["ended OOMKilled"], &[], "OOMKilled"),
            ("Failed", "", &["exit 3"], &[], "ExitCode:3"),
            ("Failed", "", &["signal 9"], &[], "Signal:9"),
            ("Failed", "Evicted", &[], &[], "Evicted"),
            ("Failed", "OutOfcpu", &[], &[], "OutOfcpu"),
        ] {
            let pod = pod(phase, reason, &[], ordinary, conditions);
            assert_eq!(word(&pod), expected, "{phase} {ordinary:?}");
        }
    }

    #[test]
    fn an_init_container_that_is_not_done_has_the_word() {
        for (init, expected) in [
            (&["running", "waiting PodInitializing"][..], "Init:0/2"),
            (&["ended Completed", "running"], "Init:1/2"),
            (&["ended Completed", "waiting PodInitializing"], "Init:1/2"),
            (
                &["waiting ErrImagePull", "waiting PodInitializing"],
                "Init:ErrImagePull",
            ),
            (
                &["waiting CrashLoopBackOff", "waiting"],
                "Init:CrashLoopBackOff",
            ),
            (&["ended Error", "waiting"], "Init:Error"),
            (&["exit 2", "waiting"], "Init:ExitCode:2"),
            (&["signal 9", "waiting"], "Init:Signal:9"),
            (&["ended Completed", "ended Completed"], "PodInitializing"),
        ] {
            let pod = pod("Pending", "", init, &["waiting PodInitializing"], &[]);
            assert_eq!(word(&pod), expected, "{init:?}");
        }
        // Collected init containers of a pod that is initialized do not matter.
        let pod = pod(
            "Running",
            "",
            &["waiting"],
            &["running"],
            &["Initialized", "Ready"],
        );
        assert_eq!(word(&pod), "Running");
    }

    #[test]
    fn a_pod_that_is_being_deleted_is_terminating_unless_it_has_ended() {
        for (phase, expected) in [("Running", "Terminating"), ("Failed", "Error")] {
            let mut pod = pod(phase, "", &[], &["ended Error"], &[]);
            pod.metadata.deletion_timestamp =
                serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
            assert_eq!(word(&pod), expected);
        }
    }

    #[test]
    fn restarts_are_of_the_containers_that_matter_now() {
        let count = |pod: &Pod| restarts(pod, pod.status.as_ref().unwrap(), UnixNanos(0));
        assert_eq!(
            count(&pod(
                "Pending",
                "",
                &["running"],
                &["waiting", "waiting"],
                &[]
            )),
            "1"
        );
        assert_eq!(
            count(&pod(
                "Running",
                "",
                &["ended Completed"],
                &["running", "running"],
                &[]
            )),
            "2"
        );
    }

    #[test]
    fn a_sidecar_counts_as_a_container_does() {
        let status = |name: &str, ready: bool, started: bool, restarts: i32| {
            json!({
                "name": name, "image": "i", "imageID": "", "ready": ready, "started": started,
                "restartCount": restarts, "state": {"running": {}},
            })
        };
        let pod = |sidecar: Value, phase: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "p", "namespace": "default", "uid": "u"},
                "spec": {
                    "containers": [{"name": "c"}],
                    "initContainers": [
                        {"name": "once"}, {"name": "side", "restartPolicy": "Always"},
                    ],
                },
                "status": {
                    "phase": phase,
                    "initContainerStatuses": [
                        {"name": "once", "image": "i", "imageID": "", "ready": true,
                         "restartCount": 5, "state": {"terminated": {"exitCode": 0}}},
                        sidecar,
                    ],
                    "containerStatuses": [status("c", true, true, 1)],
                },
            }))
            .unwrap()
        };
        for (sidecar, ready, word, restarts) in [
            (status("side", true, true, 2), "2/2", "Running", "3"),
            (status("side", false, true, 2), "1/2", "Running", "3"),
            // While it starts, the pod initializes.
            (status("side", false, false, 2), "1/2", "Init:1/2", "7"),
        ] {
            let pod = pod(sidecar, "Running");
            let cells = cells(&pod, UnixNanos(0));
            let texts: Vec<&str> = cells.iter().map(|cell| cell.text.as_str()).collect();
            assert_eq!(texts[2..5], [ready, word, restarts]);
        }
    }

    #[test]
    fn tones_tell_good_from_bad() {
        let tone = |pod: &Pod| cells(pod, UnixNanos(0))[3].tone;
        assert_eq!(
            tone(&pod("Running", "", &[], &["running"], &[])),
            Tone::Good
        );
        assert_eq!(
            tone(&pod("Succeeded", "", &[], &["ended Completed"], &[])),
            Tone::Good
        );
        assert_eq!(
            tone(&pod("Pending", "", &["running"], &["waiting"], &[])),
            Tone::Notable
        );
        assert_eq!(
            tone(&pod("Running", "", &[], &["waiting CrashLoopBackOff"], &[])),
            Tone::Bad
        );
    }
}
