//! What a process is given to work with. The simulation makes one by hand.

use std::sync::Arc;

use clock::WallClock;
use ipc::{Listener, Network};
use node_config::NodeConfig;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use topology::{Identities, Process};

use crate::Lifecycle;

/// What a process is given to work with.
#[derive(Debug)]
pub struct Context {
    /// Which process this is.
    pub process: Process,
    /// The node's configuration.
    pub config: Arc<NodeConfig>,
    /// Wall time.
    pub clock: WallClock,
    /// The way to the other processes.
    pub network: Network,
    /// Where callers arrive.
    pub listener: Listener,
    /// The users of the processes, for the check of callers.
    pub identities: Arc<Identities>,
    /// Names this run of the process: another one after each start.
    pub boot_id: String,
    /// Seed of all randomness in this run.
    pub seed: u64,
    /// Readiness, watchdog and shutdown.
    pub lifecycle: Lifecycle,
}

impl Context {
    /// A random generator; `purpose` keeps those of one process apart.
    #[must_use]
    pub fn random(&self, purpose: u64) -> SmallRng {
        SmallRng::seed_from_u64(self.seed ^ purpose.rotate_left(32))
    }
}
