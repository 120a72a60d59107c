//! From flags to a running supervisor, in the order that safety asks for.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use bulkhead_api::v1::supervisor_server::SupervisorServer;
use clock::WallClock;
use config_files::bulkhead::Protection;
use confine::{Calls, Permitted};
use node_config::NodeConfig;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::service::Routes;
use topology::{Identities, Process, row};

use crate::bundle::Task;
use crate::cgroups::Cgroups;
use crate::command::MAX_WAITING_COMMANDS;
use crate::configuration_files::ConfigurationFiles;
use crate::degradation::{Degradation, check_minimum, of_kernel};
use crate::directories::InstanceLock;
use crate::failure::Failure;
use crate::fd_store::FdStore;
use crate::flags::Flags;
use crate::launcher::{Launcher, Privileges, Shares};
use crate::listeners::Listeners;
use crate::log_pipe::LogPipe;
use crate::namespaces::Namespaces;
use crate::notify::NotifySockets;
use crate::oom_score::OomScores;
use crate::policy::{Fleet, Heartbeat};
use crate::record::CrashRing;
use crate::server::{Facts, Service};
use crate::settings::Settings;
use crate::shell::Shell;
use crate::snapshot::Snapshot;
use crate::{directories, preflight, settings};

/// Runs the supervisor until it was stopped: opens what it needs, seals itself, serves.
///
/// To be called from the main thread, and with no other thread running:
/// capabilities belong to threads, and the processes end with the thread that
/// started them.
///
/// # Errors
/// See [`Failure`]; each has its own exit code.
pub fn run(flags: Flags) -> Result<(), Failure> {
    if let Some(task) = Task::of(&flags) {
        return task.carry_out(&flags);
    }
    let opened = open(&flags)?;
    seal(&opened.privileges)?;
    serve(flags, opened)
}

/// What the supervisor opens before it is sealed.
struct Opened {
    settings: Settings,
    identities: Identities,
    /// Held to the end.
    instance: InstanceLock,
    listeners: Listeners,
    shares: Shares,
    privileges: Privileges,
    /// What this machine does not give, for people.
    degradations: Vec<Degradation>,
}

/// Checks the node, and makes directories, files and sockets.
fn open(flags: &Flags) -> Result<Opened, Failure> {
    preflight::check_root()?;
    let settings = settings::resolve(flags)?;
    let config = &settings.node;
    let identities = settings::identities(config)?;
    preflight::check_alone(&config.directories)?;
    let instance = directories::lock_run_dir(&config.directories.run_dir)?;
    preflight::check_runtime(&config.container_runtime.0)?;
    preflight::check_binaries(config, &identities)?;
    directories::prepare(config, &identities)?;
    directories::write_node_config(config, &identities)?;
    let listeners = Listeners::open(config, &identities)?;
    let privileges = Privileges::find()?;
    let run_dir = &config.directories.run_dir;
    let (cgroups, unlimited) = Cgroups::open(run_dir, |process| config.runs(process));
    let (oom_scores, unspared) = OomScores::open();
    let mut degradations: Vec<Degradation> = unlimited.into_iter().collect();
    degradations.extend(privileges.degradations.iter().cloned());
    let (namespaces, shared) = Namespaces::open(config);
    let of = |protection| move |text| Degradation::of(protection, text);
    degradations.extend(unspared.map(of(Protection::OomScores)));
    degradations.extend(shared.into_iter().map(of(Protection::Namespaces)));
    degradations.extend(of_kernel());
    degradations.extend(listeners.degradation().map(of(Protection::SocketAccess)));
    check_minimum(&degradations, &settings.bulkhead.minimum_confinement)?;
    Ok(Opened {
        listeners,
        shares: Shares {
            cgroups,
            oom_scores,
            namespaces,
        },
        privileges,
        degradations,
        identities,
        instance,
        settings,
    })
}

/// Starts the others, and watches them to the end. Opens by path only what the
/// supervisor's row in the topology lists.
fn serve(flags: Flags, opened: Opened) -> Result<(), Failure> {
    let Opened {
        settings,
        identities,
        instance: _instance,
        listeners,
        shares,
        privileges,
        degradations,
    } = opened;
    let config = settings.node.clone();
    let system = |action| move |source| Failure::System { action, source };
    let own_socket = listeners
        .own()
        .map_err(system("use its own listening socket"))?;
    for degradation in &degradations {
        tracing::warn!(degradation = degradation.text, "degraded");
    }
    let facts = facts(&config, &identities, &degradations);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("start the runtime"))?;
    runtime.block_on(async {
        let start = Instant::now();
        let (published, snapshots) = watch::channel(Snapshot::empty(start));
        let (sender, commands) = mpsc::channel(MAX_WAITING_COMMANDS);
        let service = Service {
            facts: Arc::new(facts),
            snapshots,
            commands: sender,
        };
        let server = answer(service, own_socket, &identities)?;
        let logs = open_logs(&config)?;
        let _pumps: Vec<_> = logs.values().map(pump).collect();
        let shell = Shell {
            fd_store: FdStore::default(),
            notify: NotifySockets::open(&config.directories.run_dir, &identities)?,
            launcher: Launcher::new(&config, listeners, shares, identities, privileges),
            files: ConfigurationFiles::of(&flags, &config.directories.bin_dir),
            files_checked: start,
            settings,
            flags,
            logs,
            clock: WallClock::system(),
            start,
            random: SmallRng::from_os_rng(),
            fleet: Fleet::new(|process| config.runs(process)),
            heartbeat: sd_notify::watchdog_enabled().and_then(Heartbeat::within),
            records: BTreeMap::new(),
            crashes: CrashRing::default(),
            left_over: BTreeMap::new(),
            degradations,
            published,
        };
        Box::pin(shell.run(commands, server)).await
    })
}

fn facts(config: &NodeConfig, identities: &Identities, degradations: &[Degradation]) -> Facts {
    Facts {
        boot_id: format!("{:016x}", rand::random::<u64>()),
        config: config.clone(),
        identities: identities.clone(),
        degradations: degradations.to_vec(),
    }
}

/// Keeps what it and the others need, for good; orphans become its children.
fn seal(privileges: &Privileges) -> Result<(), Failure> {
    let system = |action| move |source: std::io::Error| Failure::System { action, source };
    confine::reduce_to(privileges.own()).map_err(system("drop capabilities"))?;
    let permitted = Permitted {
        files: None,
        calls: Calls::of(row(Process::Supervisor)),
    };
    confine::seal(&permitted)
        .map_err(std::io::Error::other)
        .map_err(system("confine itself"))?;
    nix::sys::prctl::set_child_subreaper(true)
        .map_err(std::io::Error::from)
        .map_err(system("adopt orphans"))
}

fn answer(
    service: Service,
    socket: std::os::unix::net::UnixListener,
    identities: &Identities,
) -> Result<impl Future<Output = Result<(), ipc::ServeError>> + use<>, Failure> {
    let listener = ipc::Listener::from_unix(socket).map_err(|source| Failure::System {
        action: "use its own listening socket",
        source,
    })?;
    // Serves to the last moment, so that a stop can be watched.
    Ok(ipc::serve(
        Process::Supervisor,
        Arc::new(identities.clone()),
        listener,
        Routes::new(SupervisorServer::new(service)),
        CancellationToken::new(),
    ))
}

/// The pipe of each process that the node runs but the supervisor itself.
fn open_logs(config: &NodeConfig) -> Result<BTreeMap<Process, Arc<LogPipe>>, Failure> {
    let children = Process::ALL.into_iter();
    let children =
        children.filter(|process| *process != Process::Supervisor && config.runs(*process));
    let open = |process| Ok((process, Arc::new(LogPipe::open(process)?)));
    children.map(open).collect()
}

fn pump(log: &Arc<LogPipe>) -> AbortOnDropHandle<()> {
    let log = Arc::clone(log);
    AbortOnDropHandle::new(tokio::spawn(async move { log.pump().await }))
}
