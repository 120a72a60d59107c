//! Between messages and plain values. Lists come from a peer: what makes no
//! sense is left out, and never stops the rest.

use bulkhead_api::v1;
use ipc::limits::{MAX_BOOT_ID_BYTES, MAX_CONTAINER_ID_BYTES, MAX_PODS};
use pod::identity::check_uid;

use crate::health::Health;
use crate::relist::{ContainerState, Event, EventKind, PodRecord, Pods, SandboxState};

/// Pods of a list: all that there may be, and as many that are being stopped.
const MAX_LISTED: usize = 2 * MAX_PODS;

/// A list has more pods than are kept. What was known stands: part of a list would tell that
/// the other pods are gone.
#[derive(Debug, thiserror::Error)]
#[error("the list has more than {MAX_LISTED} pods")]
pub(crate) struct TooManyPods;

/// The pool's boot id, as much of it as is passed on.
pub(crate) fn boot_id(mut boot_id: String) -> String {
    ipc::limits::truncate(&mut boot_id, MAX_BOOT_ID_BYTES);
    boot_id
}

/// The pods of a relist. Pods without a usable uid and parts without a usable id
/// are left out; entries of one uid are joined.
///
/// # Errors
/// When there are too many.
pub(crate) fn pods(listed: Vec<v1::RuntimePod>) -> Result<Pods, TooManyPods> {
    let mut pods = Pods::new();
    for pod in listed {
        let uid = pod.pod.map(|reference| reference.uid).unwrap_or_default();
        if check_uid(&uid).is_err() {
            tracing::debug!("left out a listed pod without a usable uid");
            continue;
        }
        if pods.len() >= MAX_LISTED && !pods.contains_key(&uid) {
            return Err(TooManyPods);
        }
        let record: &mut PodRecord = pods.entry(uid).or_default();
        for container in pod.containers {
            let state = container_state(container.state());
            if is_usable_id(&container.id) {
                record.containers.insert(container.id, state);
            }
        }
        for sandbox in pod.sandboxes {
            let state = match sandbox.ready {
                true => SandboxState::Ready,
                false => SandboxState::NotReady,
            };
            if is_usable_id(&sandbox.id) {
                record.sandboxes.insert(sandbox.id, state);
            }
        }
    }
    Ok(pods)
}

fn is_usable_id(id: &str) -> bool {
    (1..=MAX_CONTAINER_ID_BYTES).contains(&id.len())
}

fn container_state(state: v1::RuntimeState) -> ContainerState {
    match state {
        v1::RuntimeState::Created => ContainerState::Created,
        v1::RuntimeState::Running => ContainerState::Running,
        v1::RuntimeState::Exited => ContainerState::Exited,
        v1::RuntimeState::Unknown | v1::RuntimeState::Unspecified => ContainerState::Unknown,
    }
}

pub(crate) fn event(event: Event) -> v1::PodLifecycleEvent {
    let kind = match event.kind {
        EventKind::ContainerStarted => v1::PodLifecycleEventType::ContainerStarted,
        EventKind::ContainerDied => v1::PodLifecycleEventType::ContainerDied,
        EventKind::ContainerRemoved => v1::PodLifecycleEventType::ContainerRemoved,
        EventKind::ContainerChanged => v1::PodLifecycleEventType::ContainerChanged,
        EventKind::PodSync => v1::PodLifecycleEventType::PodSync,
    };
    v1::PodLifecycleEvent {
        pod_uid: event.pod_uid,
        r#type: kind.into(),
        container_id: event.id,
    }
}

pub(crate) fn health(health: &Health, pool_boot_id: &str) -> v1::PlegHealth {
    v1::PlegHealth {
        healthy: *health == Health::Healthy,
        reason: health.reason().to_owned(),
        pool_boot_id: pool_boot_id.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime_pod(uid: &str, container: &str, state: v1::RuntimeState) -> v1::RuntimePod {
        v1::RuntimePod {
            pod: Some(v1::PodReference {
                uid: uid.to_owned(),
                ..Default::default()
            }),
            sandboxes: vec![v1::RuntimeSandbox {
                id: format!("s-{container}"),
                ready: true,
            }],
            containers: vec![v1::RuntimeContainer {
                id: container.to_owned(),
                name: "c".to_owned(),
                state: state.into(),
            }],
        }
    }

    #[test]
    fn entries_of_one_pod_are_joined_and_senseless_ones_left_out() {
        let long = "x".repeat(MAX_CONTAINER_ID_BYTES + 1);
        let mut nonsense = runtime_pod("a", "c3", v1::RuntimeState::Running);
        nonsense.containers[0].state = 99;
        let pods = pods(vec![
            runtime_pod("a", "c1", v1::RuntimeState::Running),
            runtime_pod("", "c", v1::RuntimeState::Running),
            runtime_pod("../a", "c", v1::RuntimeState::Running),
            v1::RuntimePod::default(),
            runtime_pod(&long, "c", v1::RuntimeState::Running),
            runtime_pod("a", "c2", v1::RuntimeState::Exited),
            runtime_pod("a", &long, v1::RuntimeState::Exited),
            nonsense,
        ])
        .unwrap();
        assert_eq!(pods.len(), 1);
        let containers: Vec<_> = pods["a"].containers.clone().into_iter().collect();
        assert_eq!(
            containers,
            [
                ("c1".to_owned(), ContainerState::Running),
                ("c2".to_owned(), ContainerState::Exited),
                ("c3".to_owned(), ContainerState::Unknown),
            ]
        );
        assert_eq!(pods["a"].sandboxes.len(), 3);
    }

    #[test]
    fn a_list_of_too_many_pods_is_none() {
        let list = |count| {
            let pod = |uid: usize| runtime_pod(&uid.to_string(), "c", v1::RuntimeState::Running);
            pods((0..count).map(pod).collect())
        };
        assert_eq!(list(MAX_LISTED).unwrap().len(), MAX_LISTED);
        assert!(list(MAX_LISTED + 1).is_err());
    }
}
