//! The process: makes everything, serves, and keeps the watchdog fed.

use std::convert::Infallible;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cri::{CriClient, Runtime};
use futures_util::FutureExt as _;
use ipc::Channel;
use node_config::{NodeConfig, SYSTEM_BUS};
use node_host::{LinuxNode, NodeError, NodeHost};
use process::{Context, Lifecycle, MAX_STATUS_BYTES};
use system_bus::{LoginManager, Logind};
use tokio::time::MissedTickBehavior;
use topology::Process;

use crate::assembly::{Assembly, Ingredients};
use crate::cgroup_driver::{DriverInUse, OtherDriver};
use crate::class_cgroups::ClassCgroups;
use crate::image::CredentialPrograms;
use crate::log_rotation::LogRotation;
use crate::node_shutdown::NodeShutdown;
use crate::node_source::NodeSource;
use crate::object_source::ObjectSource;
use crate::pod_source::PodsOfSources;
use crate::servers;
use crate::service_source::ServiceSource;

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
    /// The runtime makes cgroups in another way than this process.
    #[error(transparent)]
    CgroupDriver(#[from] OtherDriver),
    /// The endpoint of the runtime cannot be a socket's.
    #[error("the container runtime's endpoint cannot be used")]
    Runtime(#[from] cri::ConnectError),
}

/// What pod-worker-pool works with, opened before it is sealed.
pub struct Opened {
    /// The container runtime.
    pub runtime: Runtime,
    /// The node.
    pub host: Arc<dyn NodeHost>,
    /// Who tells of a shutdown of the node.
    pub login: Arc<dyn Logind>,
}

/// Opens the container runtime and the node that the configuration names. It connects to
/// the runtime when first needed, and again whenever that was restarted.
///
/// # Errors
/// When the runtime's endpoint or the control groups cannot be used.
pub fn open(config: &NodeConfig, lifecycle: &Lifecycle) -> Result<Opened, Error> {
    let socket = config.container_runtime.0.display();
    let lifecycle = lifecycle.clone();
    // A start or stop that is under way when this process dies is not cut short:
    // containerd would kill what it just started, or lose a SIGTERM.
    let keep = Arc::new(move |connection: BorrowedFd<'_>| {
        lifecycle.keep_open_of_run("runtime", connection);
    });
    let runtime = CriClient::observed(&format!("unix://{socket}"), keep)?;
    let host = LinuxNode::new(&DriverInUse::open(config).applied_to(config))?;
    Ok(Opened {
        runtime: runtime.into(),
        host: Arc::new(host),
        login: Arc::new(LoginManager::at(Path::new(SYSTEM_BUS))),
    })
}

/// Serves until shutdown. Containers keep running after it. As soon as it is dropped
/// another run may begin in the same process.
///
/// # Errors
/// When the listening socket fails or the node cannot be worked on.
pub async fn serve(context: Context, opened: Opened) -> Result<(), Error> {
    let (reads, host) = (Arc::clone(&opened.runtime.reads), opened.host);
    let driver = DriverInUse::found(&context.config, &*reads).await?;
    let config = driver.applied_to(&context.config);
    let class_cgroups = ClassCgroups::make(&host).await;
    let Assembly {
        actor,
        collection,
        evictions,
        state_writers,
        policy_writer,
        credentials,
        objects,
        shared,
    } = Assembly::new(Ingredients {
        config: &config,
        capacity: &host.capacity().await?,
        identities: &context.identities,
        clock: context.clock.clone(),
        boot_id: context.boot_id.clone(),
        random: context.random(1),
        runtime: opened.runtime,
        host,
        programs: CredentialPrograms::of(&context),
    })
    .map_err(Error::State)?;
    let node_shutdown = NodeShutdown::new(&config, &shared, &context, opened.login);
    node_shutdown.hold_starts().await;
    let (driver_line, other_driver) = (driver.status_line(), driver.watch(Arc::clone(&reads)));
    let listening = shared.hints.clone().listen(reads, shared.pool.clone());
    let collecting = shared.garbage.clone().run(collection);
    let rotating = LogRotation::new(&shared, &config.logs, &context.clock).run();
    let (told, policy) = (shared.clone(), shared.policy.clone());
    let source = || context.network.channel(Process::ConfigSourcer);
    let pods = PodsOfSources::new(source(), config.runtime_classes.clone());
    let following = follow(objects, NodeSource::new(&shared), [source(), source()]);
    let lifecycle = context.lifecycle;
    let serving = ipc::serve(
        context.process,
        context.identities,
        context.listener,
        servers::routes(shared, pods),
        lifecycle.shutdown(),
    );
    let acting = actor.run(lifecycle.shutdown());
    let finishing = async { tokio::try_join!(serving, acting.map(Ok)) };
    lifecycle.ready();
    let (known, shutdown_line) = (credentials.clone(), node_shutdown.line());
    let ticking = tick(&lifecycle, || {
        let own = [shutdown_line.status_line(), known.status_line()];
        let cgroups = [driver_line.clone(), class_cgroups.status_line()];
        joined(&[&own[..], &cgroups, &told.status_lines()].concat())
    });
    // One task for all of them: an actor that blocks feeds no watchdog. None but
    // the first ever ends.
    tokio::select! {
        // Polled in this order each time: a whole node must run the same way for
        // the same seed of `tests/simulation`.
        biased;
        // What is under way is dropped only now, when no connection is worked on any more.
        result = finishing => Ok(result.map(drop)?),
        other = other_driver => Err(other.into()),
        () = listening => Ok(()),
        () = collecting => Ok(()),
        () = rotating => Ok(()),
        never = state_writers.run() => match never {},
        never = policy.run(policy_writer) => match never {},
        never = credentials.run() => match never {},
        never = following => match never {},
        never = evictions.run() => match never {},
        never = class_cgroups.run() => match never {},
        never = node_shutdown.run() => match never {},
        () = ticking => Ok(()),
    }
}

/// Follows what config-sourcer has beside pods.
async fn follow(
    (objects, services): (ObjectSource, ServiceSource),
    node: NodeSource,
    [of_objects, of_cluster]: [Channel; 2],
) -> Infallible {
    tokio::select! {
        biased;
        never = objects.run(of_objects) => never,
        never = services.run(of_cluster.clone()) => never,
        never = node.run(of_cluster) => never,
    }
}

/// Feeds the watchdog, and shows what there is to tell of the process.
async fn tick(lifecycle: &Lifecycle, line: impl Fn() -> String) {
    let mut shown = String::new();
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        lifecycle.beat();
        let line = line();
        if line != shown {
            lifecycle.set_status(&line);
            shown = line;
        }
    }
}

/// Bytes of one part of the line: all of them fit into it.
const MAX_PART_BYTES: usize = MAX_STATUS_BYTES / 8;

/// One line of those parts that have something to tell. What is long is shortened where the
/// line would be too long else.
fn joined(parts: &[String]) -> String {
    let parts = parts.iter().filter(|part| !part.is_empty());
    let whole = parts.clone().map(String::as_str).collect::<Vec<_>>();
    let whole = whole.join("; ");
    if whole.len() <= MAX_STATUS_BYTES {
        return whole;
    }
    let short = parts.map(|part| process::shortened(part, MAX_PART_BYTES));
    short.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
