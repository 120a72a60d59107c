//! `logs`: the log of a container, also while it grows and while processes of
//! the node agent restart.

use std::process::ExitCode;

use bulkhead_api::v1;
use bulkhead_api::v1::container_logs_client::ContainerLogsClient;
use clock::WallClock;
use pod::{Pod, PodExt as _};
use topology::Process;

use crate::arguments::LogsOptions;
use crate::connection::{Connection, Next, REOPEN, next};
use crate::failure::Failure;
use crate::output::{Output, note};
use crate::pod_list::{self, pick};

/// The container that kubectl takes when none is named.
const DEFAULT_CONTAINER_ANNOTATION: &str = "kubectl.kubernetes.io/default-container";

/// Prints the log of a container.
pub(crate) async fn logs(
    connection: &Connection,
    options: &LogsOptions,
    output: Output,
) -> Result<ExitCode, Failure> {
    let pod = pick(&pod_list::all(connection).await?, &options.pod)?.pod;
    let container_name = container(&pod, options.container.as_deref())?;
    let since = options.since.map(|since| {
        let back = i64::try_from(since.0.as_nanos()).unwrap_or(i64::MAX);
        WallClock::system().now().0.saturating_sub(back).max(0)
    });
    let mut request = v1::ReadLogsRequest {
        pod_uid: pod.uid().to_owned(),
        follow: options.follow,
        previous: options.previous && !is_between_instances(&pod, &container_name),
        container_name,
        tail_lines: options.tail,
        since_unix_nanos: since.unwrap_or(0),
        timestamps: options.timestamps,
    };
    let process = Process::PodWorkerPool;
    let client = ContainerLogsClient::new(connection.channel(process)?);
    loop {
        let mut stream = connection
            .call(process, || {
                let (mut client, request) = (client.clone(), request.clone());
                async move { client.read_logs(request).await }
            })
            .await?;
        loop {
            match next(process, &mut stream).await? {
                Next::Message(part) => {
                    output.write(&part.content)?;
                    go_on_after(&mut request, &part);
                }
                Next::Ended => return Ok(ExitCode::SUCCESS),
                Next::Broken => break,
            }
        }
        tokio::time::sleep(REOPEN).await;
    }
}

/// Whether the newest instance has ended and the next waits: then the newest is
/// what `--previous` means, as for kubectl.
fn is_between_instances(pod: &Pod, container_name: &str) -> bool {
    let status = pod.status.as_ref();
    let init = status.and_then(|status| status.init_container_statuses.as_deref());
    let ordinary = status.and_then(|status| status.container_statuses.as_deref());
    let mut statuses = init.into_iter().chain(ordinary).flatten();
    statuses.any(|status| {
        let waits = status
            .state
            .as_ref()
            .is_some_and(|state| state.waiting.is_some());
        let last = status
            .last_state
            .as_ref()
            .and_then(|last| last.terminated.as_ref());
        let newest = last.is_some_and(|last| last.container_id == status.container_id);
        status.name == container_name && waits && newest
    })
}

/// What to ask for when the stream breaks after `part`: the lines after it.
fn go_on_after(request: &mut v1::ReadLogsRequest, part: &v1::ReadLogsResponse) {
    if part.unix_nanos > 0 {
        request.since_unix_nanos = part.unix_nanos.saturating_add(1);
        request.tail_lines = None;
    }
}

/// The container that is meant: the named one, the default, or the first.
fn container(pod: &Pod, wanted: Option<&str>) -> Result<String, Failure> {
    let names: Vec<&str> = pod
        .all_containers()
        .map(|(_, container)| container.name.as_str())
        .collect();
    let annotated = pod.annotation(DEFAULT_CONTAINER_ANNOTATION);
    let annotated = annotated.filter(|name| names.contains(name));
    match (wanted, pod.containers()) {
        (Some(wanted), _) if names.contains(&wanted) => Ok(wanted.to_owned()),
        (Some(wanted), _) => Err(Failure::NotFound(format!(
            "pod {} has no container {wanted}; it has: {}",
            pod.name(),
            names.join(", ")
        ))),
        (None, containers) => {
            let first = containers.first().map(|container| container.name.as_str());
            let Some(name) = annotated.or(first) else {
                return Err(Failure::NotFound(format!(
                    "pod {} has no containers",
                    pod.name()
                )));
            };
            if containers.len() > 1 {
                note(&format!(
                    "container {name} is taken out of: {}",
                    names.join(", ")
                ));
            }
            Ok(name.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(containers: Value, default: Option<&str>) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "annotations": {DEFAULT_CONTAINER_ANNOTATION: default.unwrap_or("?")}},
            "spec": {"containers": containers, "initContainers": [{"name": "init"}]},
        }))
        .unwrap()
    }

    #[test]
    fn the_container_is_the_named_the_default_or_the_first() {
        let one = json!([{"name": "a"}]);
        let two = json!([{"name": "a"}, {"name": "b"}]);
        let name = |pod: &Pod, wanted| container(pod, wanted).ok();
        assert_eq!(name(&pod(one.clone(), None), None).as_deref(), Some("a"));
        assert_eq!(name(&pod(two.clone(), None), None).as_deref(), Some("a"));
        assert_eq!(
            name(&pod(two.clone(), Some("b")), None).as_deref(),
            Some("b")
        );
        assert_eq!(
            name(&pod(two.clone(), None), Some("b")).as_deref(),
            Some("b")
        );
        assert_eq!(
            name(&pod(two.clone(), None), Some("init")).as_deref(),
            Some("init")
        );
        let error = container(&pod(two, None), Some("c")).unwrap_err();
        assert!(matches!(error, Failure::NotFound(text) if text.ends_with("init, a, b")));
        assert!(container(&pod(json!([]), None), None).is_err());
    }

    #[test]
    fn while_the_next_instance_waits_the_newest_is_the_previous_one() {
        let with_state = |state: Value, last_id: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "p"},
                "status": {"containerStatuses": [{
                    "name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 1,
                    "containerID": "containerd://b", "state": state,
                    "lastState": {"terminated": {"exitCode": 1, "containerID": last_id}},
                }]},
            }))
            .unwrap()
        };
        let waiting = || json!({"waiting": {"reason": "CrashLoopBackOff"}});
        assert!(is_between_instances(
            &with_state(waiting(), "containerd://b"),
            "c"
        ));
        assert!(!is_between_instances(
            &with_state(waiting(), "containerd://b"),
            "d"
        ));
        assert!(!is_between_instances(
            &with_state(waiting(), "containerd://a"),
            "c"
        ));
        let running = with_state(json!({"running": {}}), "containerd://a");
        assert!(!is_between_instances(&running, "c"));
    }

    #[test]
    fn a_log_that_is_opened_again_goes_on_after_the_last_line() {
        let mut request = v1::ReadLogsRequest {
            tail_lines: Some(5),
            ..Default::default()
        };
        go_on_after(&mut request, &v1::ReadLogsResponse::default());
        assert_eq!(request.tail_lines, Some(5), "nothing came yet");
        go_on_after(
            &mut request,
            &v1::ReadLogsResponse {
                unix_nanos: 7,
                ..Default::default()
            },
        );
        assert_eq!((request.tail_lines, request.since_unix_nanos), (None, 8));
    }
}
