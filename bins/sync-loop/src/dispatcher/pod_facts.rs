//! What the loop needs to know of a pod, read once from its JSON.
//!
//! The decoded pod is ten times the size of its JSON, so it is dropped again:
//! the JSON travels on, these facts stay.

use std::collections::BTreeMap;

use eviction::NewPod;
use pod::core::{NodeSelector, Toleration};
use pod::metadata::CONFIG_SEEN_ANNOTATION;
use pod::resources::{ResourceAmounts, pod_requests};
use pod::update::resizable;
use pod::wire::content_hash;
use pod::{EVICTED, Pod, PodExt, PodPhase, QosClass};

use super::host_ports::{HostPort, host_ports};

/// The label that says for which operating system a pod is, the kubelet's word.
const OS_LABEL: &str = "kubernetes.io/os";

/// Where a pod stands among pods that arrive together: older ones are admitted
/// first, as the kubelet does; a pod without a date (a static one) is the oldest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AdmissionOrder {
    created: Option<i128>,
    seen: String,
    full_name: String,
}

/// What a pod's CPU and memory are compared by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodSize {
    /// CPU and memory of its containers, as `pod::update` has it.
    pub resizable: String,
    /// `spec.priority`.
    pub priority: i32,
    /// Its QoS class is Guaranteed.
    pub is_guaranteed: bool,
}

impl PodSize {
    fn of(pod: &Pod) -> PodSize {
        PodSize {
            resizable: resizable(pod),
            priority: pod.spec_or_default().priority.unwrap_or_default(),
            is_guaranteed: QosClass::of(pod) == QosClass::Guaranteed,
        }
    }
}

/// The facts.
#[derive(Clone, Debug)]
pub(crate) struct PodFacts {
    /// `namespace/name`.
    pub full_name: String,
    /// Place among pods that arrive together.
    pub order: AdmissionOrder,
    /// A hash of what admission may depend on: spec and labels. A pod that was rejected is
    /// judged again when it differs.
    pub admission_hash: String,
    /// It only shows a static pod in the API server.
    pub is_mirror: bool,
    /// Its source wants it gone.
    pub marked_for_deletion: bool,
    /// Phase in the status that the source delivered.
    pub phase: PodPhase,
    /// Its status says that it was evicted.
    pub evicted: bool,
    /// It shares the node's network.
    pub host_network: bool,
    /// It shares the node's IPC.
    pub host_ipc: bool,
    /// Kernel settings that it wants, as it writes their names.
    pub sysctls: Vec<String>,
    /// Its groups are to be those that it names, and none of its images.
    pub wants_strict_groups: bool,
    /// A container of it has an AppArmor profile.
    pub wants_app_armor: bool,
    /// What decides whether it may start while the node is short of something.
    pub under_pressure: NewPod,
    /// What a resize may change of it, and who comes first.
    pub size: PodSize,
    /// What it needs of the node.
    pub requests: ResourceAmounts,
    /// Ports of the node that it uses.
    pub host_ports: Vec<HostPort>,
    /// `spec.nodeName`.
    pub node_name: Option<String>,
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// `requiredDuringSchedulingIgnoredDuringExecution` of its node affinity.
    pub required_affinity: Option<NodeSelector>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
    /// It comes from a manifest of this node.
    pub is_static: bool,
    /// `spec.os.name`.
    pub operating_system: Option<String>,
    /// Its own label `kubernetes.io/os`.
    pub operating_system_label: Option<String>,
}

impl PodFacts {
    /// Reads the facts of a pod.
    #[must_use]
    pub(crate) fn of(pod: &Pod) -> PodFacts {
        let spec = pod.spec_or_default();
        let status = pod.status.as_ref();
        let context = spec.security_context.as_ref();
        let created = pod.metadata.creation_timestamp.as_ref();
        let required_affinity = spec
            .affinity
            .as_ref()
            .and_then(|affinity| affinity.node_affinity.as_ref())
            .and_then(|affinity| {
                affinity
                    .required_during_scheduling_ignored_during_execution
                    .clone()
            });
        PodFacts {
            full_name: format!("{}/{}", pod.namespace(), pod.name()),
            order: AdmissionOrder {
                created: created.map(|time| time.0.as_nanosecond()),
                seen: pod
                    .annotation(CONFIG_SEEN_ANNOTATION)
                    .unwrap_or_default()
                    .to_owned(),
                full_name: format!("{}_{}", pod.name(), pod.namespace()),
            },
            admission_hash: admission_hash(pod),
            is_mirror: pod.is_mirror(),
            marked_for_deletion: pod.is_marked_for_deletion(),
            phase: pod.status_phase(),
            evicted: status.and_then(|status| status.reason.as_deref()) == Some(EVICTED),
            host_network: pod.host_network(),
            host_ipc: pod.host_ipc(),
            sysctls: context
                .and_then(|context| context.sysctls.as_ref())
                .map(|sysctls| sysctls.iter().map(|sysctl| sysctl.name.clone()).collect())
                .unwrap_or_default(),
            wants_strict_groups: context
                .and_then(|context| context.supplemental_groups_policy.as_deref())
                == Some("Strict"),
            wants_app_armor: wants_app_armor(pod),
            under_pressure: NewPod::of(pod),
            size: PodSize::of(pod),
            requests: pod_requests(pod),
            host_ports: host_ports(pod),
            node_name: spec.node_name.clone().filter(|name| !name.is_empty()),
            node_selector: spec.node_selector.clone().unwrap_or_default(),
            required_affinity,
            tolerations: spec.tolerations.clone().unwrap_or_default(),
            is_static: pod.is_static(),
            operating_system: spec.os.as_ref().map(|system| system.name.clone()),
            operating_system_label: pod.label(OS_LABEL).map(str::to_owned),
        }
    }
}

fn admission_hash(pod: &Pod) -> String {
    // Types of the API are always JSON.
    let json = serde_json::to_vec(&(&pod.spec, &pod.metadata.labels));
    content_hash(&json.unwrap_or_default())
}

/// Whether somebody has to enforce an AppArmor profile for it.
fn wants_app_armor(pod: &Pod) -> bool {
    let of_pod = pod.spec_or_default().security_context.as_ref();
    let of_pod = of_pod.and_then(|context| context.app_armor_profile.as_ref());
    let of_containers = pod.all_containers().filter_map(|(_, container)| {
        let context = container.security_context.as_ref()?;
        context.app_armor_profile.as_ref()
    });
    let mut profiles = of_pod.into_iter().chain(of_containers);
    profiles.any(|profile| profile.type_ != "Unconfined")
}
