//! Reading a pod without `Option` noise: the defaults of absent fields are in
//! one place.

use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};

use crate::identity;
use crate::metadata::{SYSTEM_CLUSTER_CRITICAL, SYSTEM_CRITICAL_PRIORITY, SYSTEM_NODE_CRITICAL};
use crate::phase::{PodPhase, RestartPolicy};

/// Grace period of a pod that does not state one, in seconds.
pub const DEFAULT_TERMINATION_GRACE_PERIOD_SECONDS: i64 = 30;

/// Which list of its pod a container is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ContainerKind {
    /// Runs to its end before the next one, and before any ordinary container.
    Init,
    /// An init container with `restartPolicy: Always`.
    Sidecar,
    /// An ordinary container.
    Application,
    /// One that an API server has added to a pod that runs; see [`crate::ephemeral`].
    Ephemeral,
}

/// Accessors over a core/v1 Pod.
pub trait PodExt {
    /// The spec; an empty one if the pod has none.
    fn spec_or_default(&self) -> &PodSpec;
    /// UID, or the empty string.
    fn uid(&self) -> &str;
    /// Namespace, or the empty string.
    fn namespace(&self) -> &str;
    /// Name, or the empty string.
    fn name(&self) -> &str;
    /// Value of an annotation.
    fn annotation(&self, key: &str) -> Option<&str>;
    /// Value of a label.
    fn label(&self, key: &str) -> Option<&str>;
    /// Ordinary containers, in order.
    fn containers(&self) -> &[Container];
    /// Init containers, in order.
    fn init_containers(&self) -> &[Container];
    /// Init containers in order, then the ordinary ones; no ephemeral ones.
    fn all_containers(&self) -> impl Iterator<Item = (ContainerKind, &Container)>;
    /// The container of this name that is not ephemeral.
    fn container(&self, name: &str) -> Option<(ContainerKind, &Container)>;
    /// Volumes, in order.
    fn volumes(&self) -> &[Volume];
    /// The volume of this name.
    fn volume(&self, name: &str) -> Option<&Volume>;
    /// Restart policy; `Always` if absent (or not a word that exists).
    fn restart_policy(&self) -> RestartPolicy;
    /// `spec.terminationGracePeriodSeconds`, 30 if absent; never negative.
    fn termination_grace_period_seconds(&self) -> i64;
    /// The grace period of a termination that the source has asked for
    /// (`metadata.deletionGracePeriodSeconds`), else that of the spec.
    fn effective_grace_period_seconds(&self) -> i64;
    /// `spec.activeDeadlineSeconds`.
    fn active_deadline_seconds(&self) -> Option<i64>;
    /// Whether the pod uses the node's network.
    fn host_network(&self) -> bool;
    /// Whether the pod sees the node's processes.
    fn host_pid(&self) -> bool;
    /// Whether the pod uses the node's IPC namespace.
    fn host_ipc(&self) -> bool;
    /// Whether the pod's containers see each other's processes.
    fn share_process_namespace(&self) -> bool;
    /// Whether the source has marked the pod for deletion.
    fn is_marked_for_deletion(&self) -> bool;
    /// Whether the pod comes from a manifest of this node.
    fn is_static(&self) -> bool;
    /// Whether the pod mirrors a static pod.
    fn is_mirror(&self) -> bool;
    /// Whether the pod is critical: static, mirror, or of a system priority.
    fn is_critical(&self) -> bool;
    /// Whether the pod is never evicted and starts on a node that is short of something:
    /// a mirror pod, or one of a system priority. A kubelet spares all static pods; here
    /// a static pod is like any other unless it has such a priority or its class.
    fn is_spared_from_eviction(&self) -> bool;
    /// Whether the pod is critical for this very node.
    fn is_node_critical(&self) -> bool;
    /// Phase in the pod's status; `Pending` if absent.
    fn status_phase(&self) -> PodPhase;
}

static NO_SPEC: LazyLock<PodSpec> = LazyLock::new(PodSpec::default);

impl PodExt for Pod {
    fn spec_or_default(&self) -> &PodSpec {
        self.spec.as_ref().unwrap_or(&NO_SPEC)
    }

    fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        identity::annotation(self, key)
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    fn containers(&self) -> &[Container] {
        &self.spec_or_default().containers
    }

    fn init_containers(&self) -> &[Container] {
        self.spec_or_default()
            .init_containers
            .as_deref()
            .unwrap_or_default()
    }

    fn all_containers(&self) -> impl Iterator<Item = (ContainerKind, &Container)> {
        let init = self.init_containers().iter().map(|container| {
            let kind = if is_restartable(container) {
                ContainerKind::Sidecar
            } else {
                ContainerKind::Init
            };
            (kind, container)
        });
        let ordinary = self
            .containers()
            .iter()
            .map(|container| (ContainerKind::Application, container));
        init.chain(ordinary)
    }

    fn container(&self, name: &str) -> Option<(ContainerKind, &Container)> {
        self.all_containers()
            .find(|(_, container)| container.name == name)
    }

    fn volumes(&self) -> &[Volume] {
        self.spec_or_default()
            .volumes
            .as_deref()
            .unwrap_or_default()
    }

    fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes().iter().find(|volume| volume.name == name)
    }

    fn restart_policy(&self) -> RestartPolicy {
        self.spec_or_default()
            .restart_policy
            .as_deref()
            .and_then(RestartPolicy::parse)
            .unwrap_or_default()
    }

    fn termination_grace_period_seconds(&self) -> i64 {
        self.spec_or_default()
            .termination_grace_period_seconds
            .unwrap_or(DEFAULT_TERMINATION_GRACE_PERIOD_SECONDS)
            .max(0)
    }

    fn effective_grace_period_seconds(&self) -> i64 {
        match self.metadata.deletion_grace_period_seconds {
            Some(seconds) => seconds.max(0),
            None => self.termination_grace_period_seconds(),
        }
    }

    fn active_deadline_seconds(&self) -> Option<i64> {
        self.spec_or_default().active_deadline_seconds
    }

    fn host_network(&self) -> bool {
        self.spec_or_default().host_network == Some(true)
    }

    fn host_pid(&self) -> bool {
        self.spec_or_default().host_pid == Some(true)
    }

    fn host_ipc(&self) -> bool {
        self.spec_or_default().host_ipc == Some(true)
    }

    fn share_process_namespace(&self) -> bool {
        self.spec_or_default().share_process_namespace == Some(true)
    }

    fn is_marked_for_deletion(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn is_static(&self) -> bool {
        identity::is_static(self)
    }

    fn is_mirror(&self) -> bool {
        identity::is_mirror(self)
    }

    fn is_critical(&self) -> bool {
        let spec = self.spec_or_default();
        self.is_static()
            || self.is_mirror()
            || spec
                .priority
                .is_some_and(|priority| priority >= SYSTEM_CRITICAL_PRIORITY)
    }

    fn is_spared_from_eviction(&self) -> bool {
        let spec = self.spec_or_default();
        let class = spec.priority_class_name.as_deref();
        let is_system_class = matches!(class, Some(SYSTEM_NODE_CRITICAL | SYSTEM_CLUSTER_CRITICAL));
        self.is_mirror()
            || is_system_class
            || spec
                .priority
                .is_some_and(|priority| priority >= SYSTEM_CRITICAL_PRIORITY)
    }

    fn is_node_critical(&self) -> bool {
        self.is_critical()
            && self.spec_or_default().priority_class_name.as_deref() == Some(SYSTEM_NODE_CRITICAL)
    }

    fn status_phase(&self) -> PodPhase {
        self.status
            .as_ref()
            .and_then(|status| status.phase.as_deref())
            .and_then(PodPhase::parse)
            .unwrap_or_default()
    }
}

/// Whether an init container is a sidecar.
pub fn is_restartable(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Which of the pod's init containers the one of this name is, if it is a sidecar.
#[must_use]
pub fn sidecar_index(pod: &Pod, name: &str) -> Option<u32> {
    let mut init = pod.init_containers().iter();
    let index = init.position(|it| it.name == name && is_restartable(it))?;
    u32::try_from(index).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(json: &str) -> Pod {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn absent_fields_have_the_api_servers_defaults() {
        let pod = Pod::default();
        assert_eq!(pod.restart_policy(), RestartPolicy::Always);
        assert_eq!(pod.termination_grace_period_seconds(), 30);
        assert!(!pod.host_network() && !pod.host_pid() && !pod.host_ipc());
        assert_eq!(pod.status_phase(), PodPhase::Pending);
        assert_eq!(pod.all_containers().count(), 0);
    }

    #[test]
    fn a_deletions_grace_period_beats_that_of_the_spec() {
        let mut pod = pod(r#"{"spec":{"containers":[],"terminationGracePeriodSeconds":60}}"#);
        assert_eq!(pod.effective_grace_period_seconds(), 60);
        pod.metadata.deletion_grace_period_seconds = Some(5);
        assert_eq!(pod.effective_grace_period_seconds(), 5);
        pod.metadata.deletion_grace_period_seconds = Some(-5);
        assert_eq!(pod.effective_grace_period_seconds(), 0);
    }

    #[test]
    fn init_containers_come_before_the_ordinary_ones() {
        let pod = pod(
            r#"{"spec":{"initContainers":[{"name":"i"},{"name":"s","restartPolicy":"Always"}],
                "containers":[{"name":"c"}]}}"#,
        );
        let kinds: Vec<_> = pod
            .all_containers()
            .map(|(kind, container)| (kind, container.name.as_str()))
            .collect();
        assert_eq!(
            kinds,
            [
                (ContainerKind::Init, "i"),
                (ContainerKind::Sidecar, "s"),
                (ContainerKind::Application, "c")
            ]
        );
        assert_eq!(pod.container("c").unwrap().0, ContainerKind::Application);
        assert!(pod.container("x").is_none());
    }

    #[test]
    fn only_critical_pods_with_the_node_class_are_node_critical() {
        for (json, critical, node_critical) in [
            (
                r#"{"spec":{"containers":[],"priority":2000000000}}"#,
                true,
                false,
            ),
            (
                r#"{"spec":{"containers":[],"priorityClassName":"system-node-critical"}}"#,
                false,
                false,
            ),
            (
                r#"{"spec":{"containers":[],"priority":2000001000,"priorityClassName":"system-node-critical"}}"#,
                true,
                true,
            ),
            (
                r#"{"metadata":{"annotations":{"kubernetes.io/config.source":"file"}},"spec":{"containers":[],"priorityClassName":"system-node-critical"}}"#,
                true,
                true,
            ),
            (
                r#"{"spec":{"containers":[],"priority":1000}}"#,
                false,
                false,
            ),
        ] {
            let pod = pod(json);
            assert_eq!(pod.is_critical(), critical, "{json}");
            assert_eq!(pod.is_node_critical(), node_critical, "{json}");
        }
    }
}
