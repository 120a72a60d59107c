//! One pod as a row of `bulkhead pods`: the words that kubectl uses.

use clock::UnixNanos;
use pod::core::{ContainerStatus, Pod, PodStatus};

use crate::words::age;

/// Headings of the ordinary table.
pub(crate) const HEADINGS: [&str; 6] = ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"];

/// Headings that `-o wide` adds.
pub(crate) const WIDE_HEADINGS: [&str; 3] = ["IP", "SOURCE", "UID"];

/// The cells of a pod, without those of `-o wide`.
pub(crate) fn cells(pod: &Pod, now: UnixNanos) -> Vec<String> {
    let status = pod.status.clone().unwrap_or_default();
    let containers = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
    let statuses = status.container_statuses.clone().unwrap_or_default();
    let ready = statuses
        .iter()
        .filter(|status| status.ready && is_running(status))
        .count();
    vec![
        pod.metadata.namespace.clone().unwrap_or_default(),
        pod.metadata.name.clone().unwrap_or_default(),
        format!("{ready}/{containers}"),
        status_word(pod, &status),
        restarts(&status, now),
        begin(&status).map_or("-".to_owned(), |begin| age(now.since(begin))),
    ]
}

/// The cells that `-o wide` adds.
pub(crate) fn wide_cells(pod: &Pod) -> Vec<String> {
    let status = pod.status.clone().unwrap_or_default();
    let annotations = pod.metadata.annotations.clone().unwrap_or_default();
    let or_dash = |text: Option<String>| text.filter(|text| !text.is_empty()).unwrap_or("-".into());
    vec![
        or_dash(status.pod_ip),
        or_dash(annotations.get("kubernetes.io/config.source").cloned()),
        or_dash(pod.metadata.uid.clone()),
    ]
}

fn begin(status: &PodStatus) -> Option<UnixNanos> {
    let time = status.start_time.as_ref()?;
    Some(UnixNanos(
        i64::try_from(time.0.as_nanosecond()).unwrap_or(0),
    ))
}

fn is_running(status: &ContainerStatus) -> bool {
    status
        .state
        .as_ref()
        .is_some_and(|state| state.running.is_some())
}

fn restarts(status: &PodStatus, now: UnixNanos) -> String {
    let of = |statuses: &Option<Vec<ContainerStatus>>| statuses.clone().unwrap_or_default();
    let statuses = [
        of(&status.init_container_statuses),
        of(&status.container_statuses),
    ]
    .concat();
    let count: i32 = statuses.iter().map(|status| status.restart_count).sum();
    let last = statuses
        .iter()
        .filter_map(|status| {
            let ended = status.last_state.as_ref()?.terminated.as_ref()?;
            i64::try_from(ended.finished_at.as_ref()?.0.as_nanosecond()).ok()
        })
        .max();
    match last {
        Some(last) if count > 0 => format!("{count} ({} ago)", age(now.since(UnixNanos(last)))),
        _ => count.to_string(),
    }
}

/// The STATUS column.
pub(crate) fn status_word(pod: &Pod, status: &PodStatus) -> String {
    let phase = status.phase.clone().unwrap_or_else(|| "Unknown".to_owned());
    let reason = status.reason.clone().filter(|reason| !reason.is_empty());
    let mut word = reason.unwrap_or(phase);
    match init_word(pod, status) {
        Some(init) => word = init,
        None => {
            if let Some(of_containers) = container_word(status) {
                word = of_containers;
            }
        }
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return "Terminating".to_owned();
    }
    word
}

/// What an init container that is not done says.
fn init_word(pod: &Pod, status: &PodStatus) -> Option<String> {
    let total = pod
        .spec
        .as_ref()?
        .init_containers
        .as_ref()
        .map_or(0, Vec::len);
    let statuses = status.init_container_statuses.clone().unwrap_or_default();
    for (index, container) in statuses.iter().enumerate() {
        let state = container.state.clone().unwrap_or_default();
        if let Some(terminated) = state.terminated {
            if terminated.exit_code == 0 {
                continue;
            }
            let reason = terminated.reason.filter(|reason| !reason.is_empty());
            return Some(
                match (reason, terminated.signal.filter(|signal| *signal != 0)) {
                    (Some(reason), _) => format!("Init:{reason}"),
                    (None, Some(signal)) => format!("Init:Signal:{signal}"),
                    (None, None) => format!("Init:ExitCode:{}", terminated.exit_code),
                },
            );
        }
        let waiting = state.waiting.and_then(|waiting| waiting.reason);
        return Some(match waiting {
            Some(reason) if !reason.is_empty() && reason != "PodInitializing" => {
                format!("Init:{reason}")
            }
            _ => format!("Init:{index}/{total}"),
        });
    }
    None
}

/// What the containers say, the first one having the last word.
fn container_word(status: &PodStatus) -> Option<String> {
    let mut word = None;
    let mut one_runs = false;
    for container in status.container_statuses.iter().flatten().rev() {
        let state = container.state.clone().unwrap_or_default();
        let waiting = state.waiting.and_then(|waiting| waiting.reason);
        if let Some(reason) = waiting.filter(|reason| !reason.is_empty()) {
            word = Some(reason);
        } else if let Some(terminated) = state.terminated {
            let reason = terminated.reason.filter(|reason| !reason.is_empty());
            word = Some(
                match (reason, terminated.signal.filter(|signal| *signal != 0)) {
                    (Some(reason), _) => reason,
                    (None, Some(signal)) => format!("Signal:{signal}"),
                    (None, None) => format!("ExitCode:{}", terminated.exit_code),
                },
            );
        } else if container.ready && state.running.is_some() {
            one_runs = true;
        }
    }
    if word.as_deref() == Some("Completed") && one_runs {
        let conditions = status.conditions.iter().flatten();
        let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
        let is_ready = ready.any(|condition| condition.status == "True");
        return Some(if is_ready { "Running" } else { "NotReady" }.to_owned());
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: serde_json::Value) -> Pod {
        serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"containers": [{"name": "c", "image": "i"}], "initContainers": [{"name": "i", "image": "i"}]},
            "status": status,
        }))
        .unwrap()
    }

    fn word(status: serde_json::Value) -> String {
        let pod = pod(status);
        status_word(&pod, pod.status.as_ref().unwrap())
    }

    #[test]
    fn the_status_column_says_what_kubectl_says() {
        let state = |state: serde_json::Value| {
            serde_json::json!({"name": "c", "image": "i", "imageID": "", "ready": true,
                "restartCount": 0, "state": state})
        };
        let running = state(serde_json::json!({"running": {}}));
        let done = state(serde_json::json!({"terminated": {"exitCode": 0, "reason": "Completed"}}));
        let looping = state(serde_json::json!({"waiting": {"reason": "CrashLoopBackOff"}}));
        let failed = state(serde_json::json!({"terminated": {"exitCode": 2}}));
        let plain = |phase: &str, containers: &[&serde_json::Value]| serde_json::json!({"phase": phase, "containerStatuses": containers});
        assert_eq!(word(plain("Running", &[&running])), "Running");
        assert_eq!(
            word(plain("Running", &[&looping, &running])),
            "CrashLoopBackOff"
        );
        assert_eq!(word(plain("Succeeded", &[&done])), "Completed");
        assert_eq!(word(plain("Running", &[&done, &running])), "NotReady");
        assert_eq!(word(plain("Failed", &[&failed])), "ExitCode:2");
        assert_eq!(
            word(serde_json::json!({"phase": "Failed", "reason": "Evicted"})),
            "Evicted"
        );
        let init = |one: &serde_json::Value| serde_json::json!({"phase": "Pending", "initContainerStatuses": [one]});
        assert_eq!(word(init(&running)), "Init:0/1");
        assert_eq!(word(init(&looping)), "Init:CrashLoopBackOff");
        assert_eq!(word(init(&failed)), "Init:ExitCode:2");
        assert_eq!(word(init(&done)), "Pending");
    }

    #[test]
    fn a_pod_that_is_being_stopped_is_terminating() {
        let mut pod = pod(serde_json::json!({"phase": "Running"}));
        let time = serde_json::from_value(serde_json::json!("2026-01-01T00:00:00Z")).unwrap();
        pod.metadata.deletion_timestamp = time;
        assert_eq!(
            status_word(&pod, pod.status.as_ref().unwrap()),
            "Terminating"
        );
    }
}
