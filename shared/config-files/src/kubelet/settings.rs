//! The fields that are applied, their bounds, and where they go.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use node_config::{
    CgroupDriver, ContainerRuntimeEndpoint, HttpSource, ImageSettings, LogSettings, NodeConfig,
    NodeServer,
};
use pod::sysctl::SysctlNamespace;
use pod::{Quantity, sysctl};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::duration::{GoDuration, set_duration};
use super::eviction_settings::Given;
use super::problem::{Applied, Warning, WrongValue, refused};
use super::user_namespaces;
use super::{image_verification, memory_qos, node_object, node_server, node_shutdown};

/// The kubelet's own place for container logs.
const DEFAULT_POD_LOGS_DIR: &str = "/var/log/pods";

/// Pulls at once where the kubelet would have no limit.
const UNLIMITED_PULLS: u32 = 64;

/// The kubelet takes no shorter `containerLogMonitorInterval`.
const MIN_LOG_MONITOR_INTERVAL: Duration = Duration::from_secs(3);

/// Servers in a resolv.conf that a resolver uses.
const MAX_DNS_SERVERS: usize = 3;

/// Resources that can be reserved.
const RESERVABLE: [&str; 4] = ["cpu", "memory", "ephemeral-storage", "pid"];

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Settings {
    static_pod_path: String,
    #[serde(rename = "staticPodURL")]
    static_pod_url: String,
    #[serde(rename = "staticPodURLHeader")]
    static_pod_url_header: BTreeMap<String, Vec<String>>,
    file_check_frequency: Option<GoDuration>,
    http_check_frequency: Option<GoDuration>,
    sync_frequency: Option<GoDuration>,
    max_pods: i32,
    pods_per_core: i32,
    pod_pids_limit: Option<i64>,
    cgroup_driver: String,
    cgroup_root: String,
    #[serde(rename = "cgroupsPerQOS")]
    cgroups_per_qos: Option<bool>,
    #[serde(rename = "cpuCFSQuota")]
    cpu_cfs_quota: Option<bool>,
    #[serde(rename = "cpuCFSQuotaPeriod")]
    cpu_cfs_quota_period: Option<GoDuration>,
    system_reserved: BTreeMap<String, String>,
    kube_reserved: BTreeMap<String, String>,
    enforce_node_allocatable: Option<Vec<String>>,
    resolv_conf: Option<String>,
    #[serde(rename = "clusterDNS")]
    cluster_dns: Vec<String>,
    cluster_domain: String,
    crash_loop_back_off: CrashLoopBackOff,
    pod_logs_dir: String,
    run_once: bool,
    container_runtime_endpoint: String,
    image_service_endpoint: String,
    serialize_image_pulls: Option<bool>,
    max_parallel_image_pulls: Option<i32>,
    #[serde(rename = "registryPullQPS")]
    registry_pull_qps: Option<i32>,
    registry_burst: Option<i32>,
    #[serde(rename = "imageMinimumGCAge")]
    image_minimum_gc_age: Option<GoDuration>,
    #[serde(rename = "imageMaximumGCAge")]
    image_maximum_gc_age: Option<GoDuration>,
    #[serde(rename = "imageGCHighThresholdPercent")]
    image_gc_high_threshold_percent: Option<i32>,
    #[serde(rename = "imageGCLowThresholdPercent")]
    image_gc_low_threshold_percent: Option<i32>,
    image_pull_credentials_verification_policy: String,
    preloaded_images_verification_allowlist: Vec<String>,
    container_log_max_size: String,
    container_log_max_files: Option<i32>,
    container_log_max_workers: Option<i32>,
    container_log_monitor_interval: Option<GoDuration>,
    seccomp_default: Option<bool>,
    allowed_unsafe_sysctls: Vec<String>,
    user_namespaces: user_namespaces::Given,
    eviction_hard: Option<BTreeMap<String, String>>,
    eviction_soft: BTreeMap<String, String>,
    eviction_soft_grace_period: BTreeMap<String, GoDuration>,
    eviction_minimum_reclaim: BTreeMap<String, String>,
    eviction_pressure_transition_period: Option<GoDuration>,
    eviction_max_pod_grace_period: i32,
    merge_default_eviction_settings: Option<bool>,
    local_storage_capacity_isolation: Option<bool>,
    volume_stats_agg_period: String,
    memory_throttling_factor: Option<f64>,
    memory_reservation_policy: String,
    #[serde(rename = "singleProcessOOMKill")]
    single_process_oom_kill: Option<bool>,
    feature_gates: BTreeMap<String, bool>,
    shutdown_grace_period: Option<GoDuration>,
    shutdown_grace_period_critical_pods: Option<GoDuration>,
    shutdown_grace_period_by_pod_priority: Vec<node_shutdown::ByPriority>,
    register_node: Option<bool>,
    register_with_taints: Vec<Value>,
    #[serde(rename = "providerID")]
    provider_id: String,
    node_status_update_frequency: Option<GoDuration>,
    node_status_report_frequency: Option<GoDuration>,
    node_lease_duration_seconds: i32,
    node_status_max_images: Option<i32>,
    enable_server: Option<bool>,
    address: String,
    port: i32,
    healthz_bind_address: String,
    healthz_port: Option<i32>,
    tls_cert_file: String,
    tls_private_key_file: String,
    tls_min_version: String,
    #[serde(deserialize_with = "node_server::object")]
    authentication: node_server::Authentication,
    #[serde(deserialize_with = "node_server::object")]
    authorization: node_server::GivenAuthorization,
    enable_debugging_handlers: Option<bool>,
    streaming_connection_idle_timeout: Option<GoDuration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct CrashLoopBackOff {
    max_container_restart_period: Option<GoDuration>,
}

/// Whether a URL has this scheme, in letters of any case.
fn has_prefix(url: &str, scheme: &str) -> bool {
    url.get(..scheme.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
}

impl Settings {
    pub(super) fn apply(
        &self,
        config: &mut NodeConfig,
        cores: u32,
        warnings: &mut Vec<Warning>,
    ) -> Applied {
        if self.run_once {
            return refused("runOnce", "not supported: leave it out");
        }
        self.apply_sources(config)?;
        self.apply_pods(config, cores)?;
        self.user_namespaces.apply(config)?;
        self.apply_cgroups(config)?;
        self.apply_security(config)?;
        self.apply_reservations(config, warnings)?;
        self.apply_names(config, warnings)?;
        self.apply_runtime(config)?;
        self.apply_images(config)?;
        let verification = image_verification::Given {
            policy: &self.image_pull_credentials_verification_policy,
            allowlist: &self.preloaded_images_verification_allowlist,
            gates: &self.feature_gates,
        };
        verification.apply(&mut config.images)?;
        let memory_qos = memory_qos::Given {
            factor: self.memory_throttling_factor,
            policy: &self.memory_reservation_policy,
            gates: &self.feature_gates,
        };
        memory_qos.apply(config, warnings)?;
        config.single_process_oom_kill = self.single_process_oom_kill;
        self.eviction().apply(&mut config.eviction)?;
        self.shutdown().apply(&mut config.shutdown)?;
        self.node_object().apply(&mut config.node_object)?;
        self.apply_logs(&mut config.logs)
    }

    /// The node's own server; none where it is off.
    pub(super) fn node_server(
        &self,
        configuration: Map<String, Value>,
    ) -> Result<Option<NodeServer>, WrongValue> {
        let given = node_server::Given {
            enabled: self.enable_server,
            address: &self.address,
            port: self.port,
            health_address: &self.healthz_bind_address,
            health_port: self.healthz_port,
            certificate_file: &self.tls_cert_file,
            key_file: &self.tls_private_key_file,
            min_version: &self.tls_min_version,
            authentication: &self.authentication,
            authorization: &self.authorization,
            debugging_handlers: self.enable_debugging_handlers,
            stream_idle_timeout: self.streaming_connection_idle_timeout,
            configuration,
        };
        given.server()
    }

    fn node_object(&self) -> node_object::Given<'_> {
        node_object::Given {
            register: self.register_node,
            taints: &self.register_with_taints,
            provider_id: &self.provider_id,
            status_update_frequency: self.node_status_update_frequency,
            status_report_frequency: self.node_status_report_frequency,
            lease_seconds: self.node_lease_duration_seconds,
            max_images: self.node_status_max_images,
        }
    }

    fn shutdown(&self) -> node_shutdown::Given<'_> {
        node_shutdown::Given {
            all: self.shutdown_grace_period,
            critical: self.shutdown_grace_period_critical_pods,
            by_priority: &self.shutdown_grace_period_by_pod_priority,
        }
    }

    fn eviction(&self) -> Given<'_> {
        Given {
            hard: self.eviction_hard.as_ref(),
            soft: &self.eviction_soft,
            soft_grace: &self.eviction_soft_grace_period,
            minimum_reclaim: &self.eviction_minimum_reclaim,
            pressure_transition_period: self.eviction_pressure_transition_period,
            max_pod_grace_seconds: self.eviction_max_pod_grace_period,
            merges_defaults: self.merge_default_eviction_settings == Some(true),
            local_storage_limits: self.local_storage_capacity_isolation,
            storage_look_period: &self.volume_stats_agg_period,
        }
    }

    fn apply_sources(&self, config: &mut NodeConfig) -> Applied {
        if !self.static_pod_path.is_empty() {
            config.static_pod_path = Some(PathBuf::from(&self.static_pod_path));
        }
        set_duration(&mut config.file_check_frequency, self.file_check_frequency);
        set_duration(&mut config.sync_frequency, self.sync_frequency);
        let mut check_frequency = Duration::from_secs(20);
        set_duration(&mut check_frequency, self.http_check_frequency);
        if self.static_pod_url.is_empty() {
            return match self.static_pod_url_header.is_empty() {
                true => Ok(()),
                false => refused("staticPodURLHeader", "staticPodURL is missing"),
            };
        }
        let schemes = ["http://", "https://"];
        if !schemes
            .iter()
            .any(|scheme| has_prefix(&self.static_pod_url, scheme))
        {
            return refused("staticPodURL", "give an http:// or https:// address");
        }
        config.static_pod_url = Some(HttpSource {
            url: self.static_pod_url.clone(),
            headers: self.static_pod_url_header.clone(),
            check_frequency,
        });
        Ok(())
    }

    fn apply_pods(&self, config: &mut NodeConfig, cores: u32) -> Applied {
        match u32::try_from(self.max_pods) {
            Ok(0) => {}
            Ok(pods) => config.max_pods = pods,
            Err(_) => return refused("maxPods", format!("{} is negative", self.max_pods)),
        }
        match u32::try_from(self.pods_per_core) {
            Ok(0) => {}
            Ok(pods) => config.max_pods = config.max_pods.min(pods.saturating_mul(cores)),
            Err(_) => return refused("podsPerCore", format!("{} is negative", self.pods_per_core)),
        }
        if let Some(limit) = self.pod_pids_limit {
            if limit < -1 {
                return refused("podPidsLimit", format!("{limit}: give -1 for no limit"));
            }
            // The kubelet sets no limit for 0 either.
            config.pod_pids_limit = if limit == 0 { -1 } else { limit };
        }
        let field = "crashLoopBackOff.maxContainerRestartPeriod";
        if let Some(GoDuration(period)) = self.crash_loop_back_off.max_container_restart_period {
            if !(Duration::from_secs(1)..=Duration::from_secs(300)).contains(&period) {
                return refused(field, "give between 1s and 300s");
            }
            config.max_container_restart_period = period;
        }
        Ok(())
    }

    fn apply_security(&self, config: &mut NodeConfig) -> Applied {
        if let Some(default) = self.seccomp_default {
            config.seccomp_default = default;
        }
        for (index, pattern) in self.allowed_unsafe_sysctls.iter().enumerate() {
            let name = sysctl::dotted(pattern);
            let beginning = name.strip_suffix('*').unwrap_or(&name);
            let is_namespaced = SysctlNamespace::of(beginning).is_some();
            if beginning.contains('*') || !is_namespaced {
                let field = format!("allowedUnsafeSysctls[{index}]");
                let reason = format!(
                    "{pattern:?} is not known to be a setting of its own for each pod, like \
                     kernel.msgmax or net.core.*"
                );
                return refused(&field, reason);
            }
        }
        config
            .allowed_unsafe_sysctls
            .clone_from(&self.allowed_unsafe_sysctls);
        Ok(())
    }

    fn apply_cgroups(&self, config: &mut NodeConfig) -> Applied {
        match self.cgroup_driver.as_str() {
            "" => {}
            "cgroupfs" => config.cgroup_driver = CgroupDriver::Cgroupfs,
            "systemd" => config.cgroup_driver = CgroupDriver::Systemd,
            other => {
                let reason = format!("{other:?}: give cgroupfs or systemd");
                return refused("cgroupDriver", reason);
            }
        }
        if !self.cgroup_root.is_empty() {
            let root = &self.cgroup_root;
            if !root.starts_with('/') || root.split('/').any(|part| part == "..") {
                let reason = format!("{root:?} is not an absolute path of a cgroup");
                return refused("cgroupRoot", reason);
            }
            config.cgroup_root.clone_from(root);
        }
        if let Some(per_qos) = self.cgroups_per_qos {
            config.cgroups_per_qos = per_qos;
        }
        if let Some(quota) = self.cpu_cfs_quota {
            config.cpu_cfs_quota = quota;
        }
        if let Some(GoDuration(period)) = self.cpu_cfs_quota_period
            && !period.is_zero()
        {
            if !(Duration::from_millis(1)..=Duration::from_secs(1)).contains(&period) {
                return refused("cpuCFSQuotaPeriod", "give between 1ms and 1s");
            }
            config.cpu_cfs_quota_period = period;
        }
        Ok(())
    }

    fn apply_reservations(&self, config: &mut NodeConfig, warnings: &mut Vec<Warning>) -> Applied {
        let mut sums: BTreeMap<String, Quantity> = BTreeMap::new();
        for (field, reserved) in [
            ("systemReserved", &self.system_reserved),
            ("kubeReserved", &self.kube_reserved),
        ] {
            for (resource, text) in reserved {
                let path = format!("{field}.{resource}");
                if !RESERVABLE.contains(&resource.as_str()) {
                    let reason = format!("only {} can be reserved", RESERVABLE.join(", "));
                    return refused(&path, reason);
                }
                let quantity: Quantity = match text.parse() {
                    Ok(quantity) => quantity,
                    Err(error) => return refused(&path, format!("{text:?} is {error}")),
                };
                if quantity.is_negative() {
                    return refused(&path, format!("{text} is negative"));
                }
                let sum = match sums.get(resource) {
                    Some(sum) => sum.plus(quantity),
                    None => quantity,
                };
                sums.insert(resource.clone(), sum);
            }
        }
        config.reserved = sums
            .into_iter()
            .map(|(resource, sum)| (resource, sum.to_string()))
            .collect();
        let Some(enforced) = &self.enforce_node_allocatable else {
            return Ok(());
        };
        // An empty list enforces nothing, as in the kubelet: no tool writes one.
        config.enforce_allocatable = enforced.iter().any(|word| word == "pods");
        for word in enforced {
            match word.as_str() {
                "pods" => {}
                "none" if enforced.len() == 1 => {}
                "none" => {
                    let reason = "\"none\" stands alone";
                    return refused("enforceNodeAllocatable", reason);
                }
                "system-reserved" | "system-reserved-compressible" | "kube-reserved"
                | "kube-reserved-compressible" => warnings.push(Warning {
                    field: "enforceNodeAllocatable".to_owned(),
                    text: "not supported yet beside \"pods\": reservations count for admission only",
                }),
                other => {
                    let reason = format!("{other:?} cannot be enforced");
                    return refused("enforceNodeAllocatable", reason);
                }
            }
        }
        Ok(())
    }

    fn apply_names(&self, config: &mut NodeConfig, warnings: &mut Vec<Warning>) -> Applied {
        match self.resolv_conf.as_deref() {
            None => {}
            Some("") => config.resolv_conf = None,
            Some(path) => config.resolv_conf = Some(path.into()),
        }
        if self.cluster_dns.len() > MAX_DNS_SERVERS {
            warnings.push(Warning {
                field: "clusterDNS".to_owned(),
                text: "only the first 3 servers are used: a resolver takes no more",
            });
        }
        for (index, text) in self.cluster_dns.iter().enumerate() {
            match text.parse::<IpAddr>() {
                Ok(address) if index < MAX_DNS_SERVERS => config.cluster_dns.push(address),
                Ok(_) => {}
                Err(_) => {
                    let field = format!("clusterDNS[{index}]");
                    return refused(&field, format!("{text:?} is not an IP address"));
                }
            }
        }
        if !self.cluster_domain.is_empty() {
            config.cluster_domain.clone_from(&self.cluster_domain);
        }
        let logs = Path::new(&self.pod_logs_dir);
        let expected = config.directories.pod_logs();
        if !self.pod_logs_dir.is_empty()
            && logs != expected
            && logs != Path::new(DEFAULT_POD_LOGS_DIR)
        {
            let reason = "not supported: --log-dir says where logs are, in its subdirectory pods";
            return refused("podLogsDir", reason);
        }
        Ok(())
    }

    fn apply_runtime(&self, config: &mut NodeConfig) -> Applied {
        if !self.container_runtime_endpoint.is_empty() {
            config.container_runtime =
                endpoint("containerRuntimeEndpoint", &self.container_runtime_endpoint)?;
        }
        if !self.image_service_endpoint.is_empty()
            && endpoint("imageServiceEndpoint", &self.image_service_endpoint)?
                != config.container_runtime
        {
            let runtime = config.container_runtime.0.display();
            let reason = format!("not supported: it must be the runtime's own, {runtime}");
            return refused("imageServiceEndpoint", reason);
        }
        Ok(())
    }

    /// A burst of zero is the default one, as in the kubelet; a rate of zero is none.
    fn apply_pull_rate(&self, images: &mut ImageSettings) -> Applied {
        let number = |field: &str, given: i32| match u32::try_from(given) {
            Ok(number) => Ok(number),
            Err(_) => refused(field, format!("{given}: it cannot be negative")),
        };
        if let Some(given) = self.registry_pull_qps {
            images.pulls_per_second = number("registryPullQPS", given)?;
        }
        match self.registry_burst {
            None | Some(0) => {}
            Some(given) => images.pull_burst = number("registryBurst", given)?,
        }
        Ok(())
    }

    /// The kubelet's bounds; a negative size switches rotation off, and with 0 each look
    /// rotates all logs.
    fn apply_logs(&self, logs: &mut LogSettings) -> Applied {
        if !self.container_log_max_size.is_empty() {
            let text = &self.container_log_max_size;
            let size: Quantity = match text.parse() {
                Ok(size) => size,
                Err(error) => {
                    return refused("containerLogMaxSize", format!("{text:?} is {error}"));
                }
            };
            if !size.is_whole() {
                let reason = format!("{text}: give a whole number of bytes");
                return refused("containerLogMaxSize", reason);
            }
            logs.max_size = match size.is_negative() {
                true => None,
                false => u64::try_from(size.value()).ok(),
            };
        }
        let at_least = |field: &str, given: Option<i32>, least: i32, default: u32| match given {
            None => Ok(default),
            Some(given) if given < least => {
                refused(field, format!("{given}: give at least {least}"))
            }
            Some(given) => Ok(given.unsigned_abs()),
        };
        let (files, workers) = (self.container_log_max_files, self.container_log_max_workers);
        logs.max_files = at_least("containerLogMaxFiles", files, 2, logs.max_files)?;
        logs.max_workers = at_least("containerLogMaxWorkers", workers, 1, logs.max_workers)?;
        set_duration(
            &mut logs.monitor_interval,
            self.container_log_monitor_interval,
        );
        if logs.monitor_interval < MIN_LOG_MONITOR_INTERVAL {
            return refused("containerLogMonitorInterval", "give at least 3s");
        }
        Ok(())
    }

    fn apply_images(&self, config: &mut NodeConfig) -> Applied {
        let images = &mut config.images;
        images.max_parallel_pulls =
            match (self.serialize_image_pulls, self.max_parallel_image_pulls) {
                (_, Some(pulls)) if pulls < 1 => {
                    return refused("maxParallelImagePulls", format!("{pulls}: give at least 1"));
                }
                (Some(true), Some(pulls)) if pulls > 1 => {
                    let reason = "cannot be set above 1 together with serializeImagePulls: true";
                    return refused("maxParallelImagePulls", reason);
                }
                (_, Some(pulls)) => pulls.unsigned_abs(),
                (Some(true), None) => 1,
                (Some(false), None) => UNLIMITED_PULLS,
                (None, None) => images.max_parallel_pulls,
            };
        self.apply_pull_rate(images)?;
        set_duration(&mut images.minimum_gc_age, self.image_minimum_gc_age);
        set_duration(&mut images.maximum_gc_age, self.image_maximum_gc_age);
        let (least, most) = (images.minimum_gc_age, images.maximum_gc_age);
        if !most.is_zero() && most <= least {
            let reason = format!("{most:?} is not more than imageMinimumGCAge ({least:?})");
            return refused("imageMaximumGCAge", reason);
        }
        let percent = |field: &str, value: Option<i32>, default: u8| match value {
            None => Ok(default),
            Some(value) => match u8::try_from(value) {
                Ok(value) if value <= 100 => Ok(value),
                _ => refused(field, format!("{value} is not a percentage")),
            },
        };
        images.gc_high_threshold_percent = percent(
            "imageGCHighThresholdPercent",
            self.image_gc_high_threshold_percent,
            images.gc_high_threshold_percent,
        )?;
        images.gc_low_threshold_percent = percent(
            "imageGCLowThresholdPercent",
            self.image_gc_low_threshold_percent,
            images.gc_low_threshold_percent,
        )?;
        if images.gc_low_threshold_percent >= images.gc_high_threshold_percent {
            let reason = format!(
                "{} must be below imageGCHighThresholdPercent, {}",
                images.gc_low_threshold_percent, images.gc_high_threshold_percent
            );
            return refused("imageGCLowThresholdPercent", reason);
        }
        Ok(())
    }
}

fn endpoint(field: &str, text: &str) -> Result<ContainerRuntimeEndpoint, WrongValue> {
    match text.parse() {
        Ok(endpoint) => Ok(endpoint),
        Err(error) => refused(field, format!("{error}")),
    }
}
