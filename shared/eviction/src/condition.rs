//! [`NodeCondition`]: what a node suffers from, and which pods may start meanwhile.

use std::fmt;

use pod::core::{PodSpec, Toleration};
use pod::{Pod, PodExt, QosClass};

/// The taint that goes with [`NodeCondition::MemoryPressure`].
const MEMORY_PRESSURE_TAINT: &str = "node.kubernetes.io/memory-pressure";

/// What a node suffers from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeCondition {
    /// Too little memory is left.
    MemoryPressure,
    /// Too little is left on a disk.
    DiskPressure,
    /// Too few process ids are left.
    PidPressure,
}

impl NodeCondition {
    /// All of them.
    pub const ALL: [NodeCondition; 3] = [
        NodeCondition::MemoryPressure,
        NodeCondition::DiskPressure,
        NodeCondition::PidPressure,
    ];

    /// Its name in a Node's status.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            NodeCondition::MemoryPressure => "MemoryPressure",
            NodeCondition::DiskPressure => "DiskPressure",
            NodeCondition::PidPressure => "PIDPressure",
        }
    }

    /// The condition of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<NodeCondition> {
        let mut all = NodeCondition::ALL.into_iter();
        all.find(|condition| condition.name() == name)
    }
}

impl fmt::Display for NodeCondition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What decides whether a pod may start on a node that suffers from something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPod {
    /// The node needs it most when it suffers.
    pub is_spared: bool,
    /// It requests and limits neither CPU nor memory.
    pub is_best_effort: bool,
    /// It tolerates the taint of a node that is short of memory.
    pub tolerates_memory_pressure: bool,
}

impl NewPod {
    /// Reads it from the pod.
    #[must_use]
    pub fn of(pod: &Pod) -> NewPod {
        NewPod {
            is_spared: pod.is_spared_from_eviction(),
            is_best_effort: QosClass::of(pod) == QosClass::BestEffort,
            tolerates_memory_pressure: tolerates_memory_pressure(pod.spec_or_default()),
        }
    }
}

/// As a toleration tolerates a taint without a value and with effect `NoSchedule`.
fn tolerates_memory_pressure(spec: &PodSpec) -> bool {
    let tolerates = |toleration: &Toleration| {
        let is = |field: &Option<String>, expected: &str| {
            let field = field.as_deref().unwrap_or_default();
            field.is_empty() || field == expected
        };
        if !is(&toleration.effect, "NoSchedule") || !is(&toleration.key, MEMORY_PRESSURE_TAINT) {
            return false;
        }
        match toleration.operator.as_deref() {
            Some("Exists") => true,
            None | Some("" | "Equal") => {
                toleration.value.as_deref().unwrap_or_default().is_empty()
                    && toleration.key.as_deref() == Some(MEMORY_PRESSURE_TAINT)
            }
            Some(_) => false,
        }
    };
    spec.tolerations.iter().flatten().any(tolerates)
}

/// Whether a pod may start on a node that suffers from these. Short of memory alone, it
/// takes pods that say what they need, or that tolerate it; short of anything else none
/// but those that are spared.
///
/// # Errors
/// With the kubelet's message for a pod that may not.
pub fn admit(conditions: &[NodeCondition], pod: NewPod) -> Result<(), String> {
    let is_memory_alone = conditions == [NodeCondition::MemoryPressure];
    let may_start = conditions.is_empty()
        || pod.is_spared
        || is_memory_alone && (!pod.is_best_effort || pod.tolerates_memory_pressure);
    if may_start {
        return Ok(());
    }
    let names: Vec<&str> = conditions.iter().map(|it| it.name()).collect();
    Err(format!("The node had condition: [{}]. ", names.join(" ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use NodeCondition::{DiskPressure, MemoryPressure, PidPressure};

    #[test]
    fn short_of_memory_a_node_takes_no_best_effort_pod_and_else_only_who_is_spared() {
        let of = |is_spared, is_best_effort, tolerates_memory_pressure| NewPod {
            is_spared,
            is_best_effort,
            tolerates_memory_pressure,
        };
        let (burstable, best_effort) = (of(false, false, false), of(false, true, false));
        let (tolerant, spared) = (of(false, true, true), of(true, true, false));
        for (conditions, pod, may_start) in [
            (&[][..], best_effort, true),
            (&[MemoryPressure], burstable, true),
            (&[MemoryPressure], best_effort, false),
            (&[MemoryPressure], tolerant, true),
            (&[MemoryPressure], spared, true),
            (&[DiskPressure], burstable, false),
            (&[DiskPressure], tolerant, false),
            (&[DiskPressure], spared, true),
            (&[PidPressure], burstable, false),
            (&[MemoryPressure, DiskPressure], tolerant, false),
            (&[MemoryPressure, DiskPressure], spared, true),
        ] {
            let answer = admit(conditions, pod);
            assert_eq!(answer.is_ok(), may_start, "{conditions:?} {pod:?}");
        }
        assert_eq!(
            admit(&[MemoryPressure, DiskPressure], burstable),
            Err("The node had condition: [MemoryPressure DiskPressure]. ".to_owned())
        );
    }

    #[test]
    fn tolerations_are_read_as_a_scheduler_reads_them() {
        for (toleration, tolerates) in [
            (json!({"operator": "Exists"}), true),
            (json!({"operator": "Exists", "effect": "NoExecute"}), false),
            (
                json!({"key": MEMORY_PRESSURE_TAINT, "operator": "Exists"}),
                true,
            ),
            (
                json!({"key": MEMORY_PRESSURE_TAINT, "effect": "NoSchedule"}),
                true,
            ),
            (json!({"key": MEMORY_PRESSURE_TAINT, "value": "x"}), false),
            (
                json!({"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"}),
                false,
            ),
        ] {
            let mut value = test_pods::manifest("a", "u");
            value["spec"]["tolerations"] = json!([toleration]);
            let pod = NewPod::of(&test_pods::pod(value));
            assert_eq!(pod.tolerates_memory_pressure, tolerates, "{toleration}");
            assert!(pod.is_best_effort && !pod.is_spared);
        }
    }
}
