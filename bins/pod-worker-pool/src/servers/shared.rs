//! What all services work with.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clock::WallClock;
use cri::Runtime;
use node_host::NodeHost;

use super::node_images::NodeImages;
use crate::events::Events;
use crate::eviction::NodeConditions;
use crate::garbage::GarbageCollector;
use crate::hints::Hints;
use crate::http_hooks::HttpHooks;
use crate::policy::NodePolicy;
use crate::pool::PoolHandle;
use crate::relist::Relister;
use crate::turns::Turns;

/// The parts of the pool that services reach. Cloning is cheap.
#[derive(Clone)]
pub(crate) struct Shared {
    /// Names this process.
    pub boot_id: String,
    /// The workers.
    pub pool: PoolHandle,
    /// The container runtime.
    pub runtime: Runtime,
    /// Files and logs.
    pub host: Arc<dyn NodeHost>,
    /// Lists the runtime.
    pub relister: Relister,
    /// Whether the runtime has been listed since the start.
    pub listed: Arc<AtomicBool>,
    /// What the runtime's events say, for pleg and for our own workers.
    pub hints: Hints,
    /// HTTP lifecycle hooks for the prober.
    pub http_hooks: HttpHooks,
    /// Events of the workers.
    pub events: Events,
    /// The images, as the Node tells them.
    pub node_images: NodeImages,
    /// What the node suffers from.
    pub conditions: NodeConditions,
    /// Collects garbage.
    pub garbage: GarbageCollector,
    /// What pods may be on this node.
    pub policy: NodePolicy,
    /// Turns at the runtime.
    pub turns: Turns,
    /// The time of day.
    pub clock: WallClock,
}

impl Shared {
    /// What people are told of these parts; empty lines for those with nothing to tell.
    /// What goes on all the time comes after what is wrong.
    pub(crate) fn status_lines(&self) -> [String; 4] {
        [
            self.policy.status_line(),
            self.conditions.status_line(),
            self.garbage.status_line(),
            self.turns.status_line(),
        ]
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}
