//! What containers use.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use cri::v1;

use crate::state::shown::ContainerView;

/// What the containers of a pod use, by its UID; without it none.
#[derive(Debug, Default)]
pub(super) struct ContainerUse {
    /// Bytes of memory of each one that runs.
    memory: Mutex<BTreeMap<String, u64>>,
    /// What each has written in its own layer, those that have ended too.
    layers: Mutex<BTreeMap<String, u64>>,
}

impl ContainerUse {
    pub(super) fn set_memory(&self, pod_uid: &str, bytes: u64) {
        set(&self.memory, pod_uid, bytes);
    }

    pub(super) fn set_layers(&self, pod_uid: &str, bytes: u64) {
        set(&self.layers, pod_uid, bytes);
    }

    /// What a container uses: one that has ended its layer alone.
    pub(super) fn stats_of(&self, container: ContainerView) -> v1::ContainerStats {
        let value = |value| Some(v1::UInt64Value { value });
        let memory = of_pod(&self.memory, &container.pod_uid);
        v1::ContainerStats {
            memory: container.running.then(|| v1::MemoryUsage {
                working_set_bytes: value(memory),
                usage_bytes: value(memory),
                ..v1::MemoryUsage::default()
            }),
            writable_layer: Some(v1::FilesystemUsage {
                used_bytes: value(of_pod(&self.layers, &container.pod_uid)),
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

fn set(all: &Mutex<BTreeMap<String, u64>>, pod_uid: &str, bytes: u64) {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    all.insert(pod_uid.to_owned(), bytes);
}

fn of_pod(all: &Mutex<BTreeMap<String, u64>>, pod_uid: &str) -> u64 {
    let all = all.lock().unwrap_or_else(PoisonError::into_inner);
    all.get(pod_uid).copied().unwrap_or(0)
}
