//! The process around the dispatcher: one loop that takes one event at a time, and
//! tasks that do what the loop says. The loop never waits for any of them.
//!
//! ```text
//! config-sourcer --+                        +--> pool: updates, questions, clean-up
//! pleg ------------+--> loop: handle -------+--> status-syncer: reports
//! prober ----------+        ^               +--> disk: admission records
//! ticks -----------+        |                              |
//!                           +---------- answers -----------+
//! ```

mod mailbox;
mod main_loop;
mod pool;
mod records;
mod reports;
mod status_syncer;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use node_config::NodeConfig;
use process::Context;
use tokio::sync::mpsc;
use topology::Process;

use crate::dispatcher::admission::{Kept, NodeDescription};
use crate::dispatcher::{Settings, SyncLoop};
use crate::peers::PeerBoard;
use crate::server::Server;

use main_loop::{Inputs, MainLoop, Outputs};
use pool::Pool;
use records::{Records, RecordsFile};
use status_syncer::StatusSyncer;

/// Keeps the randomness of the resync apart from any other in this process.
const RESYNC_RANDOMNESS: u64 = 1;

/// Answers of peers that wait for the loop. A sender that finds it full waits,
/// which delays nothing but its own next call.
const ANSWER_QUEUE: usize = 256;

/// Questions of readers that wait for the loop.
const QUERY_QUEUE: usize = 32;

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket failed.
    #[error("cannot go on serving")]
    Serve(#[from] ipc::ServeError),
}

/// What sync-loop opens before it is sealed.
#[derive(Debug)]
pub struct Opened {
    records: RecordsFile,
}

/// Opens the state file and reads it.
#[must_use]
pub fn open(config: &NodeConfig) -> Opened {
    Opened {
        records: RecordsFile::open(&config.directories.state(Process::SyncLoop)),
    }
}

/// Serves until shutdown.
///
/// # Errors
/// When the listening socket fails.
pub async fn serve(context: Context, opened: Opened) -> Result<(), Error> {
    let peers = PeerBoard::default();
    let (answers_in, answers) = mpsc::channel(ANSWER_QUEUE);
    let (queries_in, queries) = mpsc::channel(QUERY_QUEUE);
    let status_syncer = StatusSyncer::start(&context, answers_in.clone(), peers.clone());
    let (records, remembered) = Records::start(opened.records, status_syncer.clone());
    let pool = Pool::start(&context, answers_in, peers.clone());
    let settings = settings(&context);
    let sync_loop = SyncLoop::new(settings, remembered, context.random(RESYNC_RANDOMNESS));
    let inputs = Inputs::open(&context, answers, queries);
    let outputs = Outputs {
        pool,
        status_syncer,
        records,
    };
    let main_loop = MainLoop::new(sync_loop, inputs, outputs, &context, peers.clone());

    let server = Server::new(context.boot_id.clone(), queries_in, peers);
    let serving = ipc::serve(
        context.process,
        Arc::clone(&context.identities),
        context.listener,
        server.routes(),
        context.lifecycle.shutdown(),
    );
    context.lifecycle.ready();
    tokio::select! {
        // Cancel-safe: both end with the process.
        result = serving => Ok(result?),
        never = main_loop.run() => match never {},
    }
}

fn settings(context: &Context) -> Settings {
    let config = &context.config;
    Settings {
        node: NodeDescription {
            name: config.node_name.clone(),
            labels: config.node_labels.clone(),
            // Until the API server has the Node nobody can have tainted it.
            taints: Vec::new(),
            allowed_unsafe_sysctls: config.allowed_unsafe_sysctls.clone(),
        },
        max_pods: config.max_pods,
        kept: Kept {
            reserved: config.reserved.clone(),
            // The supervisor refuses those that cannot be.
            thresholds: eviction::thresholds(&config.eviction).unwrap_or_default(),
        },
        sync_frequency: config.sync_frequency,
    }
}
