//! What containers use.

use std::collections::BTreeMap;
use std::sync::Mutex;

use cri::v1;

use super::{SimulatedRuntime, lock};
use crate::state::shown::ContainerView;

impl SimulatedRuntime {
    /// How many bytes of memory each running container of a pod uses from now on;
    /// without it none.
    pub fn set_memory_use(&self, pod_uid: &str, bytes: u64) {
        lock(&self.0.memory_use).insert(pod_uid.to_owned(), bytes);
    }

    /// How many bytes each container of a pod has written in its own layer, those that
    /// have ended too; without it none.
    pub fn set_layer_use(&self, pod_uid: &str, bytes: u64) {
        lock(&self.0.layer_use).insert(pod_uid.to_owned(), bytes);
    }

    /// What a container uses: one that has ended its layer alone.
    pub(super) fn stats_of(&self, container: ContainerView) -> v1::ContainerStats {
        let value = |value| Some(v1::UInt64Value { value });
        let of_pod = |all: &Mutex<BTreeMap<String, u64>>| {
            let all = lock(all);
            all.get(&container.pod_uid).copied().unwrap_or(0)
        };
        let memory = of_pod(&self.0.memory_use);
        v1::ContainerStats {
            memory: container.running.then(|| v1::MemoryUsage {
                working_set_bytes: value(memory),
                usage_bytes: value(memory),
                ..v1::MemoryUsage::default()
            }),
            writable_layer: Some(v1::FilesystemUsage {
                used_bytes: value(of_pod(&self.0.layer_use)),
                inodes_used: value(1),
                ..v1::FilesystemUsage::default()
            }),
            attributes: Some(v1::ContainerAttributes {
                id: container.id,
                labels: container.config.labels.clone(),
                ..v1::ContainerAttributes::default()
            }),
            ..v1::ContainerStats::default()
        }
    }
}
