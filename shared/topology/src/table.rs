//! The table itself: one row a process.

use std::time::Duration;

use crate::need::Need;
use crate::place::Place;
use crate::process::Process;
use crate::process_row::{Caller, Capability, ProcessRow, ServiceRow};
use crate::row_parts::{
    CERTIFICATE_VARIABLES, MIB, PEOPLE, PROGRAM_VARIABLES, STREAM, SYNC_LOOP,
    WITH_MOUNTS_OF_THE_NODE, WITH_NETWORK, WITHOUT_NETWORK, budget, read, write,
};
use crate::sight::{Sight, WITHOUT_WHAT_OTHERS_LEAVE};

const NODE_API: Caller = Caller::Process(Process::NodeApi);

/// All rows, in start order.
pub const PROCESSES: &[ProcessRow] = &[
    ProcessRow {
        process: Process::Supervisor,
        job: "starts, watches and restarts the others; owns their sockets",
        user: "root",
        static_id: 0,
        root: true,
        capabilities: &[
            (
                Capability("CAP_SETUID"),
                "to start the others as their users",
            ),
            (
                Capability("CAP_SETGID"),
                "to start the others in their groups",
            ),
            (
                Capability("CAP_SETPCAP"),
                "to take capabilities from the others",
            ),
            (Capability("CAP_KILL"), "to stop processes of other users"),
            (
                Capability("CAP_CHOWN"),
                "to hand each process its directories",
            ),
            (
                Capability("CAP_SYS_PTRACE"),
                "to read the memory use of the others",
            ),
            (
                Capability("CAP_SYS_ADMIN"),
                "to put the others into their namespaces",
            ),
            (
                Capability("CAP_SYS_CHROOT"),
                "to put the others into those of mounts, which changes their root directory",
            ),
        ],
        has_secrets: false,
        environment: &[],
        opens: &[
            write(
                Place::RunDirectory,
                "to make sockets anew and write the resolved configuration",
            ),
            read(Place::Programs, "to start the others, and see new versions"),
            read(
                Place::ConfigurationFiles,
                "to read them again when they change",
            ),
            write(
                Place::Cgroups,
                "to limit the others, and end what they leave behind",
            ),
            read(
                Place::Kernel,
                "to read the memory use and the confinement of the others",
            ),
        ],
        needs: &[
            (Need::Programs, "to start the others"),
            (Need::Mounts, "so that pod-worker-pool can, which it starts"),
            (
                Need::Internet,
                "so that prober, config-sourcer, api-gateway and node-api can, which it starts",
            ),
            (
                Need::FileEvents,
                "so that config-sourcer can, which it starts",
            ),
            (
                Need::Namespaces,
                "to put the others into those that it has made",
            ),
        ],
        namespaces: &[],
        sight: Sight::Listed,
        services: &[ServiceRow {
            service: "bulkhead.v1.Supervisor",
            callers: &[Caller::Operator],
            budget: PEOPLE,
        }],
        backoff_cap: Duration::from_secs(10),
        memory_max_bytes: 32 * MIB,
        tasks_max: 64,
        cpu_weight: 200,
        io_weight: 100,
        oom_score_adj: -999,
    },
    ProcessRow {
        process: Process::PodWorkerPool,
        job: "one worker per pod; the only one that talks to the container runtime",
        user: "root",
        static_id: 0,
        root: true,
        capabilities: &[
            (
                Capability("CAP_SYS_ADMIN"),
                "to mount memory-backed volumes",
            ),
            (
                Capability("CAP_CHOWN"),
                "to hand volumes to the pod's users",
            ),
            (
                Capability("CAP_FOWNER"),
                "to set modes of volumes that others own",
            ),
            (
                Capability("CAP_FSETID"),
                "to have what is made in volumes belong to the pod's group",
            ),
            (
                Capability("CAP_DAC_OVERRIDE"),
                "to read logs and clean volumes of others",
            ),
            (
                Capability("CAP_KILL"),
                "to end what is left in the cgroup of a pod that is gone",
            ),
        ],
        has_secrets: false,
        environment: &[],
        opens: &[
            write(
                Place::RunDirectory,
                "to reach config-sourcer and tell that it lives",
            ),
            write(
                Place::OwnState,
                "to keep deadlines of stops and the last good policy",
            ),
            write(Place::RuntimeSocket, "to start and stop containers"),
            read(Place::NodePolicy, "to read it again when it changes"),
            read(Place::PullCredentials, "to pull images by them"),
            write(Place::PodDirectories, "to make volumes and take them down"),
            write(
                Place::PodLogs,
                "to make, read and remove logs of containers",
            ),
            write(Place::Cgroups, "to make and remove those of pods"),
            write(
                Place::SystemBus,
                "to have systemd make and remove them, where it is the cgroup driver; to have \
                 a shutdown of the node wait for pods",
            ),
            write(
                Place::LoginManager,
                "to have a shutdown of the node wait long enough",
            ),
            read(Place::Kernel, "to see mounts, and what the machine has"),
            read(
                Place::NodeNames,
                "to make the host names and resolvers of pods",
            ),
            write(Place::HostPaths, "to check and make what a volume names"),
        ],
        needs: &[(
            Need::Mounts,
            "to mount memory-backed volumes, and to bind what volumes name",
        )],
        namespaces: WITH_MOUNTS_OF_THE_NODE,
        sight: Sight::Listed,
        services: &[
            ServiceRow {
                service: "bulkhead.v1.PodWorkers",
                callers: &[SYNC_LOOP],
                budget: budget(
                    256,
                    "a kill waits behind no update: the pool itself bounds these",
                ),
            },
            ServiceRow {
                service: "bulkhead.v1.RuntimePods",
                callers: &[Caller::Process(Process::Pleg)],
                budget: budget(
                    4,
                    "one list at a time, 10 ms apart at least, and a stream of hints",
                ),
            },
            ServiceRow {
                service: "bulkhead.v1.ProbeTargets",
                callers: &[Caller::Process(Process::Prober)],
                budget: budget(
                    96,
                    "64 exec probes in flight, two streams, reports of hooks",
                ),
            },
            ServiceRow {
                service: "bulkhead.v1.Observations",
                callers: &[Caller::Process(Process::StatusSyncer), Caller::Operator],
                budget: STREAM,
            },
            ServiceRow {
                service: "bulkhead.v1.Sessions",
                callers: &[NODE_API, Caller::Operator],
                budget: PEOPLE,
            },
            ServiceRow {
                service: "bulkhead.v1.ContainerLogs",
                callers: &[NODE_API, Caller::Operator],
                budget: PEOPLE,
            },
            ServiceRow {
                service: "bulkhead.v1.NodePolicy",
                callers: &[Caller::Operator],
                budget: PEOPLE,
            },
            ServiceRow {
                service: "bulkhead.v1.Usage",
                callers: &[NODE_API, Caller::Operator],
                budget: PEOPLE,
            },
        ],
        backoff_cap: Duration::from_secs(10),
        memory_max_bytes: 160 * MIB,
        // A pod on a network disk that hangs holds a thread; others must get one.
        tasks_max: 576,
        cpu_weight: 200,
        io_weight: 200,
        oom_score_adj: -998,
    },
    ProcessRow {
        process: Process::StatusSyncer,
        job: "turns observations into PodStatus and reports it; the Node; keeps events",
        user: "bulkhead-status-syncer",
        static_id: 60_802,
        root: false,
        capabilities: &[],
        has_secrets: false,
        environment: &[],
        opens: &[
            write(
                Place::RunDirectory,
                "to reach pod-worker-pool and api-gateway, and tell that it lives",
            ),
            write(Place::OwnState, "to keep published statuses"),
        ],
        needs: &[],
        namespaces: WITHOUT_NETWORK,
        sight: Sight::Listed,
        services: &[
            ServiceRow {
                service: "bulkhead.v1.StatusReports",
                callers: &[SYNC_LOOP],
                budget: budget(
                    32,
                    "verdicts, rejections and events, each kind one after the other",
                ),
            },
            ServiceRow {
                service: "bulkhead.v1.Statuses",
                callers: &[NODE_API, Caller::Operator],
                budget: PEOPLE,
            },
        ],
        backoff_cap: Duration::from_secs(10),
        // 2,000 pods with three containers each take 82 MiB while their statuses are saved.
        memory_max_bytes: 128 * MIB,
        tasks_max: 64,
        cpu_weight: 100,
        io_weight: 100,
        oom_score_adj: -960,
    },
    ProcessRow {
        process: Process::Pleg,
        job: "compares runtime states, emits pod lifecycle events",
        user: "bulkhead-pleg",
        static_id: 60_803,
        root: false,
        capabilities: &[],
        has_secrets: false,
        environment: &[],
        opens: &[write(
            Place::RunDirectory,
            "to reach pod-worker-pool and tell that it lives",
        )],
        needs: &[],
        namespaces: WITHOUT_NETWORK,
        sight: Sight::Listed,
        services: &[ServiceRow {
            service: "bulkhead.v1.Pleg",
            callers: &[SYNC_LOOP],
            budget: STREAM,
        }],
        backoff_cap: Duration::from_secs(10),
        memory_max_bytes: 48 * MIB,
        tasks_max: 64,
        cpu_weight: 100,
        io_weight: 100,
        oom_score_adj: -970,
    },
    ProcessRow {
        process: Process::Prober,
        job: "liveness, readiness and startup probes",
        user: "bulkhead-prober",
        static_id: 60_804,
        root: false,
        capabilities: &[],
        has_secrets: false,
        environment: &[],
        opens: &[
            write(
                Place::RunDirectory,
                "to reach pod-worker-pool and tell that it lives",
            ),
            write(Place::OwnState, "to keep verdicts"),
            read(Place::NameResolution, "to find hosts that probes name"),
        ],
        needs: &[(Need::Internet, "to probe pods")],
        namespaces: WITH_NETWORK,
        sight: Sight::Listed,
        services: &[ServiceRow {
            service: "bulkhead.v1.Prober",
            callers: &[SYNC_LOOP],
            budget: STREAM,
        }],
        backoff_cap: Duration::from_secs(10),
        memory_max_bytes: 96 * MIB,
        tasks_max: 64,
        cpu_weight: 100,
        io_weight: 100,
        oom_score_adj: -970,
    },
    ProcessRow {
        process: Process::ConfigSourcer,
        job: "pods from the API server, files and HTTP, merged into one stream",
        user: "bulkhead-config-sourcer",
        static_id: 60_805,
        root: false,
        capabilities: &[],
        has_secrets: true,
        environment: &CERTIFICATE_VARIABLES,
        opens: &[
            write(
                Place::RunDirectory,
                "to reach api-gateway and tell that it lives",
            ),
            read(Place::Manifests, "to read them when they change"),
            read(
                Place::LocalObjects,
                "to give pod-worker-pool the ConfigMaps and Secrets that pods name",
            ),
            read(
                Place::Authorities,
                "to check the certificate of the HTTP source",
            ),
            read(Place::NameResolution, "to find the host of the HTTP source"),
        ],
        needs: &[
            (Need::Internet, "to ask the HTTP source"),
            (Need::FileEvents, "to hear when manifests change"),
        ],
        namespaces: WITH_NETWORK,
        sight: Sight::Listed,
        services: &[
            ServiceRow {
                service: "bulkhead.v1.ConfigSourcer",
                callers: &[SYNC_LOOP],
                budget: STREAM,
            },
            ServiceRow {
                service: "bulkhead.v1.Pods",
                callers: &[Caller::Process(Process::PodWorkerPool)],
                budget: budget(
                    64,
                    "a pod for each worker that starts; 2,000 pods at a start",
                ),
            },
            ServiceRow {
                service: "bulkhead.v1.Objects",
                callers: &[Caller::Process(Process::PodWorkerPool)],
                budget: budget(64, "an object for each volume that is made, and a stream"),
            },
            ServiceRow {
                service: "bulkhead.v1.Services",
                callers: &[Caller::Process(Process::PodWorkerPool)],
                budget: STREAM,
            },
        ],
        backoff_cap: Duration::from_secs(10),
        // 32 MiB of them may be objects, twice while they are read again.
        memory_max_bytes: 128 * MIB,
        tasks_max: 64,
        cpu_weight: 100,
        io_weight: 100,
        oom_score_adj: -980,
    },
    ProcessRow {
        process: Process::SyncLoop,
        job: "the dispatcher: sync loop, pod manager, admission, housekeeping",
        user: "bulkhead-sync-loop",
        static_id: 60_806,
        root: false,
        capabilities: &[],
        has_secrets: false,
        environment: &[],
        opens: &[
            write(
                Place::RunDirectory,
                "to reach the others and tell that it lives",
            ),
            write(Place::OwnState, "to keep decisions of admission"),
        ],
        needs: &[],
        namespaces: WITHOUT_NETWORK,
        sight: Sight::Listed,
        services: &[ServiceRow {
            service: "bulkhead.v1.SyncLoop",
            callers: &[NODE_API, Caller::Operator],
            budget: PEOPLE,
        }],
        backoff_cap: Duration::from_secs(10),
        memory_max_bytes: 96 * MIB,
        tasks_max: 64,
        cpu_weight: 200,
        io_weight: 100,
        oom_score_adj: -990,
    },
    ProcessRow {
        process: Process::CredentialProvider,
        job: "asks programs of the node for credentials of registries; only where some are configured",
        user: "bulkhead-credential-provider",
        static_id: 60_807,
        root: false,
        capabilities: &[],
        has_secrets: true,
        environment: PROGRAM_VARIABLES,
        opens: &[
            write(Place::RunDirectory, "to tell that it lives"),
            read(
                Place::CredentialPrograms,
                "to run them, as its own user; they open what that user may",
            ),
            write(
                Place::OwnState,
                "so that they keep something in the one directory that lasts",
            ),
            read(
                Place::Authorities,
                "so that they check certificates of registries",
            ),
            read(Place::NameResolution, "so that they find registries"),
        ],
        needs: &[
            (Need::Programs, "to run those of the node"),
            (
                Need::Internet,
                "so that these can ask registries and metadata services",
            ),
        ],
        namespaces: WITH_NETWORK,
        sight: Sight::NodeBut(WITHOUT_WHAT_OTHERS_LEAVE),
        services: &[ServiceRow {
            service: "bulkhead.v1.CredentialProvider",
            callers: &[Caller::Process(Process::PodWorkerPool)],
            budget: budget(
                64,
                "one for each image that is pulled: 55 at once by default",
            ),
        }],
        backoff_cap: Duration::from_secs(10),
        // Most of both is for the programs, of which four run at once.
        memory_max_bytes: 256 * MIB,
        tasks_max: 192,
        cpu_weight: 50,
        io_weight: 50,
        oom_score_adj: -900,
    },
    ProcessRow {
        process: Process::ApiGateway,
        job: "the only one that talks to the API server; holds the node's credentials for it",
        user: "bulkhead-api-gateway",
        static_id: 60_808,
        root: false,
        capabilities: &[],
        has_secrets: true,
        environment: &[],
        opens: &[
            write(Place::RunDirectory, "to tell that it lives"),
            read(Place::NameResolution, "to find the API server"),
        ],
        needs: &[(Need::Internet, "to reach the API server")],
        namespaces: WITH_NETWORK,
        sight: Sight::Listed,
        services: &[
            ServiceRow {
                service: "bulkhead.v1.ApiObjects",
                callers: &[Caller::Process(Process::ConfigSourcer)],
                budget: STREAM,
            },
            ServiceRow {
                service: "bulkhead.v1.ApiReports",
                callers: &[Caller::Process(Process::StatusSyncer)],
                budget: budget(
                    64,
                    "a stream, a status of each of some pods, the Node, the Lease and events",
                ),
            },
            ServiceRow {
                service: "bulkhead.v1.ApiReviews",
                callers: &[NODE_API],
                budget: budget(32, "one for each caller that is new or comes back"),
            },
            ServiceRow {
                service: "bulkhead.v1.ApiConnection",
                callers: &[Caller::Operator],
                budget: PEOPLE,
            },
        ],
        backoff_cap: Duration::from_secs(10),
        // All pods of the node, and one list of them.
        memory_max_bytes: 128 * MIB,
        tasks_max: 64,
        cpu_weight: 100,
        io_weight: 100,
        oom_score_adj: -980,
    },
    ProcessRow {
        process: Process::NodeApi,
        job: "serves the node over the network: logs, commands, port-forwarding, statistics; only where somebody says who may",
        user: "bulkhead-node-api",
        static_id: 60_809,
        root: false,
        capabilities: &[],
        has_secrets: true,
        environment: &[],
        opens: &[
            write(
                Place::RunDirectory,
                "to reach pod-worker-pool, sync-loop, status-syncer and api-gateway, and tell \
                 that it lives",
            ),
            write(Place::OwnState, "to keep the certificate that it made"),
        ],
        needs: &[(
            Need::Internet,
            "to serve the node's address, and reach the runtime's sessions",
        )],
        namespaces: WITH_NETWORK,
        sight: Sight::Listed,
        services: &[],
        backoff_cap: Duration::from_secs(10),
        // Some 100 sessions, and what clients without credentials may take.
        memory_max_bytes: 96 * MIB,
        tasks_max: 64,
        cpu_weight: 100,
        io_weight: 50,
        oom_score_adj: -900,
    },
];

/// The row of a process.
#[must_use]
pub fn row(process: Process) -> &'static ProcessRow {
    // The table test proves that each process has exactly one row.
    PROCESSES
        .iter()
        .find(|row| row.process == process)
        .unwrap_or(&PROCESSES[0])
}
