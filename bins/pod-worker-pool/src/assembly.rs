//! How the parts of the pool are put together: once for the process, and the same
//! way for the tests of this crate.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use backoff::Curve;
use clock::WallClock;
use cri::Runtime;
use cri_requests::NodeFacts;
use node_config::NodeConfig;
use node_host::NodeHost;
use node_layout::NodeCapacity;
use rand::rngs::SmallRng;
use runtime_gate::Gate;
use topology::{Identities, Process};
use turns::Purpose;

use crate::doorbell::Doorbell;
use crate::events::Events;
use crate::eviction::{self, Evictions, Gauge, NodeConditions};
use crate::files_in_memory::FilesInMemory;
use crate::garbage::{Collection, GarbageCollector};
use crate::hints::Hints;
use crate::http_hooks::HttpHooks;
use crate::image::{
    CredentialPrograms, Images, NodeCredentials, PullLimits, PulledImages, PulledWriter,
};
use crate::locks::PodLocks;
use crate::object_source::ObjectSource;
use crate::observe::Observer;
use crate::policy::{self, NodePolicy, PolicyIngredients, PolicyWriter};
use crate::pool::actor::{Actor, ActorConfig};
use crate::publisher::Publisher;
use crate::record::{KernelBoot, RecordWriter, Records};
use crate::relist::{Owners, Relister};
use crate::removed_pods::RemovedPods;
use crate::servers::{NodeImages, Shared};
use crate::service_source::ServiceSource;
use crate::steps::{ProcessStart, StepContext};
use crate::turns::Turns;
use crate::turns::runtime::RuntimeInTurns;

/// First wait of the crash-loop back-off; the longest comes from the configuration.
const RESTART_BASE: Duration = Duration::from_secs(10);

/// What the parts are made from.
pub(crate) struct Ingredients<'a> {
    pub(crate) config: &'a NodeConfig,
    pub(crate) capacity: &'a NodeCapacity,
    pub(crate) identities: &'a Identities,
    pub(crate) clock: WallClock,
    pub(crate) boot_id: String,
    pub(crate) random: SmallRng,
    pub(crate) runtime: Runtime,
    pub(crate) host: Arc<dyn NodeHost>,
    pub(crate) programs: CredentialPrograms,
}

fn publisher(config: &NodeConfig, observer: &Observer) -> Publisher {
    let node_ip = config.node_ip.map(|ip| ip.to_string());
    Publisher::new(node_ip.unwrap_or_default()).with_runtime_name(observer.runtime_name())
}

/// What saves the state of this process.
pub(crate) struct StateWriters(RecordWriter, PulledWriter);

impl StateWriters {
    /// Saves what there is to save, for ever.
    pub(crate) async fn run(self) -> Infallible {
        let StateWriters(records, pulled) = self;
        tokio::select! {
            biased;
            never = records.run() => never,
            never = pulled.run() => never,
        }
    }
}

/// The parts. Each is to be run by whoever owns them.
pub(crate) struct Assembly {
    pub(crate) actor: Actor,
    pub(crate) collection: Collection,
    pub(crate) evictions: Evictions,
    pub(crate) state_writers: StateWriters,
    pub(crate) policy_writer: PolicyWriter,
    /// What images are pulled by.
    pub(crate) credentials: NodeCredentials,
    /// What asks config-sourcer for ConfigMaps and Secrets, and what for Services.
    pub(crate) objects: (ObjectSource, ServiceSource),
    /// What the servers work with, the other parts' handles among it.
    pub(crate) shared: Shared,
}

impl Assembly {
    /// Makes everything; nothing runs yet.
    #[expect(clippy::too_many_lines, reason = "it names each part once")]
    pub(crate) fn new(
        Ingredients {
            config,
            capacity,
            identities,
            clock,
            boot_id,
            random,
            runtime,
            host,
            programs,
        }: Ingredients<'_>,
    ) -> std::io::Result<Assembly> {
        let state = config.directories.state(Process::PodWorkerPool);
        let (records, record_writer) = Records::open(&state, &KernelBoot::this())?;
        let (pulled, pulled_writer) = PulledImages::open(&state);
        let owners = Owners::default();
        let (events, doorbell) = (Events::new(clock.clone()), Doorbell::default());
        let (http_hooks, services) = (HttpHooks::default(), ServiceSource::default());
        let objects = ObjectSource::new(doorbell.clone());
        let (policy, policy_writer) = node_policy(config, identities, (&clock, &events, &doorbell));
        let credentials = NodeCredentials::open(&config.pull_credentials_path, events.clone());
        let runtime = gated(runtime, &policy, config);
        let (locks, listed) = (PodLocks::default(), Arc::new(AtomicBool::new(false)));
        let relister = Relister::new(Arc::clone(&runtime.reads), clock.clone(), owners.clone());
        let turns = Turns::new(processors(capacity));
        let observer = Observer::new(
            Arc::clone(&runtime.reads),
            Arc::clone(&host),
            owners.clone(),
        );
        let removed_pods = RemovedPods::default();
        let context = Arc::new(StepContext {
            removed_pods: removed_pods.clone(),
            publisher: publisher(config, &observer),
            observer,
            images: images(config, &runtime, (&credentials, programs), &pulled, &clock),
            http_hooks: http_hooks.clone(),
            objects: objects.clone(),
            services: services.clone(),
            files_in_memory: FilesInMemory::new(),
            doorbell,
            policy: policy.clone(),
            runtime: RuntimeInTurns::over(&runtime, &turns, &owners, None),
            turns: turns.clone(),
            host: Arc::clone(&host),
            facts: NodeFacts::new(config, capacity),
            agent_ids: identities.ids(),
            events: events.clone(),
            records: records.clone(),
            clock: clock.clone(),
            restart_curve: restart_curve(config),
            process_start: ProcessStart::now(&clock),
        });
        let (actor, pool) = Actor::new(ActorConfig {
            context,
            relister: relister.clone(),
            random,
            listed: Arc::clone(&listed),
            locks: locks.clone(),
        });
        let (garbage, conditions) = (GarbageCollector::default(), NodeConditions::default());
        let collection = Collection {
            runtime: RuntimeInTurns::over(&runtime, &turns, &owners, Some(Purpose::End)),
            runtime_at_once: runtime.clone(),
            turns: turns.clone(),
            host: Arc::clone(&host),
            relister: relister.clone(),
            pool: pool.clone(),
            records,
            locks,
            removals: PodLocks::default(),
            removed_pods,
            left: garbage.left(),
            events: events.clone(),
            images: config.images.clone(),
            pulled,
            clock: clock.clone(),
        };
        let evictions = evictions(config, &collection, &garbage, &conditions);
        Ok(Assembly {
            actor,
            collection,
            evictions,
            state_writers: StateWriters(record_writer, pulled_writer),
            policy_writer,
            credentials,
            objects: (objects, services),
            shared: Shared {
                boot_id,
                pool,
                runtime,
                host,
                relister,
                listed,
                hints: Hints::new(owners),
                http_hooks,
                events,
                node_images: NodeImages::default(),
                conditions,
                garbage,
                turns,
                policy,
                clock,
            },
        })
    }
}

/// Whole processors of the node, at least one.
fn processors(capacity: &NodeCapacity) -> usize {
    usize::try_from(capacity.cpu_millis.div_ceil(1000)).unwrap_or(1)
}

fn node_policy(
    config: &NodeConfig,
    identities: &Identities,
    (clock, events, doorbell): (&WallClock, &Events, &Doorbell),
) -> (NodePolicy, PolicyWriter) {
    NodePolicy::open(PolicyIngredients {
        config,
        identities,
        clock: clock.clone(),
        events: events.clone(),
        doorbell: doorbell.clone(),
    })
}

/// Whatever asks for something new passes the gate: this is the only runtime that any
/// part gets.
fn gated(runtime: Runtime, policy: &NodePolicy, config: &NodeConfig) -> Runtime {
    let reads = Arc::clone(&runtime.reads);
    let gate = Gate::new(runtime, policy.held(), policy::places(config));
    let gate = Arc::new(gate);
    Runtime {
        reads,
        changes: Arc::clone(&gate) as _,
        sessions: gate,
    }
}

fn evictions(
    config: &NodeConfig,
    collection: &Collection,
    garbage: &GarbageCollector,
    conditions: &NodeConditions,
) -> Evictions {
    Evictions::new(eviction::Ingredients {
        settings: config.eviction.clone(),
        gauge: Gauge::new(
            Arc::clone(&collection.runtime.reads),
            Arc::clone(&collection.host),
            collection.relister.clone(),
        ),
        pool: collection.pool.clone(),
        records: collection.records.clone(),
        garbage: garbage.clone(),
        events: collection.events.clone(),
        clock: collection.clock.clone(),
        conditions: conditions.clone(),
    })
}

fn restart_curve(config: &NodeConfig) -> Curve {
    let cap = config.max_container_restart_period;
    Curve {
        base: RESTART_BASE.min(cap),
        cap,
        immediate: 0,
    }
}

fn images(
    config: &NodeConfig,
    runtime: &Runtime,
    (credentials, programs): (&NodeCredentials, CredentialPrograms),
    pulled: &PulledImages,
    clock: &WallClock,
) -> Arc<Images> {
    let limits = PullLimits {
        at_once: config.images.max_parallel_pulls,
        per_second: config.images.pulls_per_second,
        burst: config.images.pull_burst,
    };
    let (runtime, credentials) = (runtime.clone(), credentials.clone());
    let credentials = (credentials, programs);
    let pulled = (config.images.verification.clone(), pulled.clone());
    Arc::new(Images::new(
        runtime,
        limits,
        credentials,
        pulled,
        clock.clone(),
    ))
}
