//! The process: makes everything, serves, and keeps the watchdog fed.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use backoff::Curve;
use cri::{ContainerRuntime, CriClient};
use process::Context;
use tokio::time::MissedTickBehavior;

use crate::config::NodeFacts;
use crate::events::Events;
use crate::garbage::{Collection, GarbageCollector};
use crate::hints::Hints;
use crate::image::Images;
use crate::locks::PodLocks;
use crate::node::{LinuxNode, NodeError, NodeHost};
use crate::observe::Observer;
use crate::pool::{Actor, ActorConfig};
use crate::publisher::Publisher;
use crate::record::Records;
use crate::relist::{Owners, Relister};
use crate::servers::{self, Shared};
use crate::steps::Steps;

/// First wait of the crash-loop back-off; the longest comes from the configuration.
const RESTART_BASE: Duration = Duration::from_secs(10);

/// The watchdog is fed this often.
const TICK: Duration = Duration::from_secs(1);

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket failed.
    #[error("cannot go on serving")]
    Serve(#[from] ipc::ServeError),
    /// The node cannot be worked on.
    #[error("cannot find out what the machine has")]
    Node(#[from] NodeError),
    /// The state directory cannot be used.
    #[error("cannot make the state directory")]
    State(#[source] std::io::Error),
    /// The endpoint of the runtime cannot be a socket's.
    #[error("the container runtime's endpoint cannot be used")]
    Runtime(#[from] cri::ConnectError),
}

/// [`run`] with the container runtime and the node that the configuration names.
///
/// # Errors
/// As [`run`].
pub async fn run_on_this_node(context: Context) -> Result<(), Error> {
    let socket = context.config.container_runtime.0.display();
    let runtime = CriClient::new(&format!("unix://{socket}"))?;
    let host = LinuxNode::new(&context.config)?;
    run(context, Arc::new(runtime), Arc::new(host)).await
}

/// Runs until shutdown. Containers keep running after it.
///
/// # Errors
/// When the listening socket fails or the node cannot be worked on.
pub async fn run(
    context: Context,
    runtime: Arc<dyn ContainerRuntime>,
    host: Arc<dyn NodeHost>,
) -> Result<(), Error> {
    let random = context.random(1);
    let config = &context.config;
    let state = config.directories.state(context.process);
    let records = Records::new(&state);
    records.prepare().map_err(Error::State)?;
    if let Err(error) = host.ensure_qos_cgroups().await {
        // Pods make theirs again, and say why if that fails.
        tracing::error!(
            error = telemetry::chain(&error),
            "the cgroups of pods cannot be made"
        );
    }
    let facts = NodeFacts::new(config, &host.capacity().await?);
    let clock = context.clock.clone();
    let owners = Owners::default();
    let events = Events::new(clock.clone());
    let locks = PodLocks::default();
    let listed = Arc::new(AtomicBool::new(false));
    let relister = Relister::new(Arc::clone(&runtime), clock.clone(), owners.clone());
    let cap = config.max_container_restart_period;
    let steps = Arc::new(Steps {
        observer: Observer::new(Arc::clone(&runtime), Arc::clone(&host), owners.clone()),
        images: Images::new(
            Arc::clone(&runtime),
            config.images.max_parallel_pulls,
            clock.clone(),
        ),
        runtime: Arc::clone(&runtime),
        host: Arc::clone(&host),
        facts,
        events: events.clone(),
        publisher: Publisher::new(config.node_ip.map(|ip| ip.to_string()).unwrap_or_default()),
        records: records.clone(),
        clock,
        restart_curve: Curve {
            base: RESTART_BASE.min(cap),
            cap,
            immediate: 0,
        },
    });
    let (actor, pool) = Actor::new(ActorConfig {
        steps,
        relister: relister.clone(),
        random,
        listed: Arc::clone(&listed),
        locks: locks.clone(),
    });
    let hints = Hints::new(owners);
    let garbage = GarbageCollector::default();
    let collection = Collection {
        runtime: Arc::clone(&runtime),
        host: Arc::clone(&host),
        relister: relister.clone(),
        pool: pool.clone(),
        records,
        locks,
    };
    let listening = hints.clone().listen(Arc::clone(&runtime), pool.clone());
    let collecting = garbage.clone().run(collection);
    let routes = servers::routes(Shared {
        boot_id: context.boot_id,
        pool,
        runtime,
        host,
        relister,
        listed,
        hints,
        events,
        garbage,
    });
    let lifecycle = context.lifecycle;
    let serving = ipc::serve(
        context.process,
        context.identities,
        context.listener,
        routes,
        lifecycle.shutdown(),
    );
    lifecycle.ready();
    let ticking = async {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            lifecycle.beat();
        }
    };
    // One task for all of them: an actor that hangs feeds no watchdog. None but
    // serving ever ends.
    tokio::select! {
        // Polled in this order each time: a whole node must run the same way for
        // the same seed.
        biased;
        result = serving => Ok(result?),
        () = actor.run() => Ok(()),
        () = listening => Ok(()),
        () = collecting => Ok(()),
        () = ticking => Ok(()),
    }
}
