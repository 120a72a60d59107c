//! CPU and memory of containers whose pod pins its UID, so that they change while the
//! containers run.

use std::collections::BTreeMap;

use clock::UnixNanos;
use cri::v1::LinuxContainerResources;
use rand::Rng;
use rand::seq::IndexedRandom as _;

/// Thousandths of a core that a container may have: those of all pods of a node, and of
/// the pods before them, are less than the node has.
const CPU: [u32; 3] = [50, 100, 200];

/// MiB of memory that a container may have.
const MEMORY: [u32; 3] = [32, 64, 128];

/// MiB that a container uses that uses much: one of the limits is below that.
pub(crate) const MUCH_MEMORY: u32 = 40;

/// What a container requests, and may use at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    cpu_millis: u32,
    memory_mib: u32,
}

impl Size {
    /// The least: an init container of that size takes no more than any other.
    const LEAST: Size = Size {
        cpu_millis: CPU[0],
        memory_mib: MEMORY[0],
    };

    pub(crate) fn random(random: &mut impl Rng) -> Size {
        Size {
            cpu_millis: CPU.choose(random).copied().unwrap_or(CPU[0]),
            memory_mib: MEMORY.choose(random).copied().unwrap_or(MEMORY[0]),
        }
    }

    /// What the runtime was told of a container.
    pub(crate) fn of(resources: &LinuxContainerResources) -> Size {
        let number = |amount: i64| u32::try_from(amount).unwrap_or(u32::MAX);
        Size {
            cpu_millis: number(resources.cpu_quota / 100),
            memory_mib: number(resources.memory_limit_in_bytes >> 20),
        }
    }

    /// As a status tells the limits.
    pub(crate) fn quantities(self) -> [(&'static str, String); 2] {
        let (cpu, memory) = (self.cpu_millis, self.memory_mib);
        [
            ("cpu", format!("{cpu}m")),
            ("memory", format!("{memory}Mi")),
        ]
    }
}

/// The sizes of the containers of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    of: BTreeMap<&'static str, Size>,
    /// Whether another memory limit has `main` started again.
    restarts_main: bool,
    /// Whether its containers use [`MUCH_MEMORY`], else nothing.
    pub(crate) uses_much: bool,
    /// When `main` was first to be started again for its size.
    main_restarts_since: Option<UnixNanos>,
}

impl Sizes {
    pub(crate) fn random(containers: &[&'static str], random: &mut impl Rng) -> Sizes {
        let sized = containers.iter().map(|name| (*name, Size::random(random)));
        Sizes {
            of: sized.collect(),
            restarts_main: random.random_bool(0.3),
            uses_much: random.random_bool(0.4),
            main_restarts_since: None,
        }
    }

    /// Whether a container has to be started again for this size.
    pub(crate) fn restarts(&self, container: &str, size: Size) -> bool {
        let before = self.of.get(container);
        let is_other = before.is_some_and(|before| before.memory_mib != size.memory_mib);
        container == "main" && self.restarts_main && is_other
    }

    pub(crate) fn set(&mut self, container: &'static str, size: Size, now: UnixNanos) {
        if self.restarts(container, size) {
            self.main_restarts_since.get_or_insert(now);
        }
        self.of.insert(container, size);
    }

    /// Since when a container may have been stopped to be started again for its size.
    pub(crate) fn restarts_since(&self, container: &str) -> Option<UnixNanos> {
        self.main_restarts_since.filter(|_| container == "main")
    }

    /// The fields of a container that say what it may have.
    pub(crate) fn fields(&self, container: &str) -> String {
        let size = self.of.get(container).copied().unwrap_or(Size::LEAST);
        let [(cpu, millis), (memory, mib)] = size.quantities();
        let amounts = format!(r#"{{"{cpu}":"{millis}","{memory}":"{mib}"}}"#);
        let policy = match container == "main" && self.restarts_main {
            true => {
                r#","resizePolicy":[{"resourceName":"memory","restartPolicy":"RestartContainer"}]"#
            }
            false => "",
        };
        format!(r#","resources":{{"requests":{amounts},"limits":{amounts}}}{policy}"#)
    }

    /// What a container is to have, if it is one of those that go on running.
    pub(crate) fn of(&self, container: &str) -> Option<Size> {
        self.of.get(container).copied()
    }

    /// Whether no limit may be set that takes this container from one size to another: it
    /// uses more memory.
    pub(crate) fn is_refused(&self, had: Size, wanted: Size) -> bool {
        // Where the node does not know whether a resize to more was done, the one back counts
        // as a resize to less, though the limit is the same.
        self.uses_much && had != wanted && wanted.memory_mib <= MUCH_MEMORY
    }

    /// Thousandths of a core and MiB of all containers that run together.
    pub(crate) fn sum(&self) -> (u64, i64) {
        let cpu = self.of.values().map(|size| u64::from(size.cpu_millis));
        let memory = self.of.values().map(|size| i64::from(size.memory_mib));
        (cpu.sum(), memory.sum())
    }
}
