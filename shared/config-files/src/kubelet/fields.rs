//! All fields of a `KubeletConfiguration` v1beta1, and what becomes of each.

/// What becomes of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Support {
    /// It is applied.
    Applied,
    /// It has no effect, for this reason, and a warning says so.
    Ignored(&'static str),
}

/// A field by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// As in the file.
    pub name: &'static str,
    /// What becomes of it.
    pub support: Support,
}

impl Field {
    /// The field of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Field> {
        FIELDS.iter().find(|field| field.name == name)
    }
}

const fn applied(name: &'static str) -> Field {
    Field {
        name,
        support: Support::Applied,
    }
}

const fn ignored(name: &'static str, reason: &'static str) -> Field {
    Field {
        name,
        support: Support::Ignored(reason),
    }
}

const NO_SERVER: &str = "not supported yet by the node's own server";
const NO_CLUSTER: &str = "not supported yet for nodes of a cluster";
const NO_RESOURCE_MANAGER: &str = "not supported yet: there is no CPU, memory or topology manager";
const NO_EFFECT: &str = "has no effect here";

/// The table, by subject.
pub const FIELDS: &[Field] = &[
    // Sources of pods.
    applied("staticPodPath"),
    applied("staticPodURL"),
    applied("staticPodURLHeader"),
    applied("fileCheckFrequency"),
    applied("httpCheckFrequency"),
    applied("syncFrequency"),
    // Pods and their resources.
    applied("maxPods"),
    applied("podsPerCore"),
    applied("podPidsLimit"),
    applied("cgroupDriver"),
    applied("cgroupRoot"),
    applied("cgroupsPerQOS"),
    applied("cpuCFSQuota"),
    applied("cpuCFSQuotaPeriod"),
    applied("systemReserved"),
    applied("kubeReserved"),
    applied("enforceNodeAllocatable"),
    applied("resolvConf"),
    applied("clusterDNS"),
    applied("clusterDomain"),
    applied("crashLoopBackOff"),
    applied("podLogsDir"),
    applied("runOnce"),
    // The runtime and its images.
    applied("containerRuntimeEndpoint"),
    applied("imageServiceEndpoint"),
    applied("serializeImagePulls"),
    applied("maxParallelImagePulls"),
    applied("registryPullQPS"),
    applied("registryBurst"),
    applied("imageMinimumGCAge"),
    applied("imageGCHighThresholdPercent"),
    applied("imageGCLowThresholdPercent"),
    applied("imageMaximumGCAge"),
    applied("imagePullCredentialsVerificationPolicy"),
    applied("preloadedImagesVerificationAllowlist"),
    ignored(
        "runtimeRequestTimeout",
        "not supported yet: each request has its own time limit",
    ),
    // The node API server.
    applied("enableServer"),
    applied("address"),
    applied("port"),
    ignored("readOnlyPort", NO_SERVER),
    applied("healthzPort"),
    applied("healthzBindAddress"),
    applied("tlsCertFile"),
    applied("tlsPrivateKeyFile"),
    ignored("tlsCipherSuites", NO_SERVER),
    ignored("tlsCurvePreferences", NO_SERVER),
    applied("tlsMinVersion"),
    ignored("serverTLSBootstrap", NO_SERVER),
    applied("authentication"),
    applied("authorization"),
    applied("enableDebuggingHandlers"),
    ignored("enableContentionProfiling", NO_SERVER),
    ignored("enableProfilingHandler", NO_SERVER),
    ignored("enableDebugFlagsHandler", NO_SERVER),
    ignored("enableSystemLogHandler", NO_SERVER),
    ignored("enableSystemLogQuery", NO_SERVER),
    applied("streamingConnectionIdleTimeout"),
    ignored("showHiddenMetricsForVersion", NO_SERVER),
    // The cluster.
    ignored("rotateCertificates", NO_CLUSTER),
    applied("nodeStatusUpdateFrequency"),
    applied("nodeStatusReportFrequency"),
    applied("nodeStatusMaxImages"),
    applied("nodeLeaseDurationSeconds"),
    ignored("eventRecordQPS", NO_CLUSTER),
    ignored("eventBurst", NO_CLUSTER),
    ignored("contentType", NO_CLUSTER),
    ignored("kubeAPIQPS", NO_CLUSTER),
    ignored("kubeAPIBurst", NO_CLUSTER),
    ignored("configMapAndSecretChangeDetectionStrategy", NO_CLUSTER),
    applied("registerNode"),
    applied("registerWithTaints"),
    applied("providerID"),
    ignored("podCIDR", NO_CLUSTER),
    ignored("enableControllerAttachDetach", NO_CLUSTER),
    ignored("volumePluginDir", "not supported: FlexVolume is deprecated"),
    // Eviction.
    applied("evictionHard"),
    applied("evictionSoft"),
    applied("evictionSoftGracePeriod"),
    applied("evictionPressureTransitionPeriod"),
    applied("evictionMaxPodGracePeriod"),
    applied("evictionMinimumReclaim"),
    applied("mergeDefaultEvictionSettings"),
    ignored(
        "kernelMemcgNotification",
        "not supported: memory is looked at every 10 s",
    ),
    applied("localStorageCapacityIsolation"),
    applied("volumeStatsAggPeriod"),
    // Container logs.
    applied("containerLogMaxSize"),
    applied("containerLogMaxFiles"),
    applied("containerLogMaxWorkers"),
    applied("containerLogMonitorInterval"),
    // Resource managers.
    ignored("cpuManagerPolicy", NO_RESOURCE_MANAGER),
    ignored("cpuManagerPolicyOptions", NO_RESOURCE_MANAGER),
    ignored("cpuManagerReconcilePeriod", NO_RESOURCE_MANAGER),
    ignored("memoryManagerPolicy", NO_RESOURCE_MANAGER),
    ignored("topologyManagerPolicy", NO_RESOURCE_MANAGER),
    ignored("topologyManagerScope", NO_RESOURCE_MANAGER),
    ignored("topologyManagerPolicyOptions", NO_RESOURCE_MANAGER),
    ignored("reservedMemory", NO_RESOURCE_MANAGER),
    ignored("reservedSystemCPUs", NO_RESOURCE_MANAGER),
    ignored(
        "qosReserved",
        "not supported yet: memory is not reserved for QoS classes",
    ),
    applied("memoryThrottlingFactor"),
    applied("memoryReservationPolicy"),
    ignored(
        "memorySwap",
        "not supported yet: pods get no swap (cgroup version 2)",
    ),
    applied("singleProcessOOMKill"),
    ignored(
        "systemReservedCgroup",
        "not supported yet: reservations count for admission only",
    ),
    ignored(
        "kubeReservedCgroup",
        "not supported yet: reservations count for admission only",
    ),
    ignored(
        "kubeletCgroups",
        "not supported yet: processes stay in the cgroup that they are started in",
    ),
    ignored(
        "systemCgroups",
        "not supported yet: processes stay in the cgroup that they are started in",
    ),
    // Security of pods.
    applied("seccompDefault"),
    applied("allowedUnsafeSysctls"),
    applied("userNamespaces"),
    // Shutdown of the node.
    applied("shutdownGracePeriod"),
    applied("shutdownGracePeriodCriticalPods"),
    applied("shutdownGracePeriodByPodPriority"),
    // The host and the process itself.
    ignored(
        "oomScoreAdj",
        "not supported yet: unit files set it for each process",
    ),
    ignored(
        "maxOpenFiles",
        "not supported: set openFiles for each process in --bulkhead-config",
    ),
    ignored(
        "failSwapOn",
        "not supported: swap never keeps it from starting",
    ),
    ignored("failCgroupV1", "not supported: cgroup v1 is fine"),
    ignored(
        "protectKernelDefaults",
        "not supported: kernel settings are left to sysctl.d",
    ),
    ignored(
        "makeIPTablesUtilChains",
        "not supported: bulkhead-loopback.service keeps pods off 127.0.0.0/8, the rest is left to network plugins",
    ),
    ignored(
        "hairpinMode",
        "not supported: the network is left to its plugins",
    ),
    ignored("iptablesMasqueradeBit", NO_EFFECT),
    ignored("iptablesDropBit", NO_EFFECT),
    applied("featureGates"),
    ignored(
        "logging",
        "not supported: the environment variables BULKHEAD_LOG and BULKHEAD_LOG_FORMAT do it",
    ),
    ignored("tracing", "not supported yet: nothing is traced"),
];
