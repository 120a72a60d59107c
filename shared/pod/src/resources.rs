//! What a pod asks for and what follows from it: effective requests and limits,
//! QoS class, OOM score and the kernel's CPU figures. All as the kubelet
//! computes them.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource;

use crate::accessors::{PodExt, is_restartable, sidecar_index};
use crate::huge_pages::{by_page_size, page_size};
use crate::quantity::Quantity;

/// Resource name of CPU time, in cores.
pub const CPU: &str = "cpu";
/// Resource name of memory, in bytes.
pub const MEMORY: &str = "memory";
/// Resource name of the node's own disk, in bytes.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// Resource name of the number of pods.
pub const PODS: &str = "pods";
/// Resource name of process ids, as reservations name it.
pub const PID: &str = "pid";

/// Fewest CPU shares that the kernel takes.
pub const MIN_CPU_SHARES: u64 = 2;
/// Most CPU shares that the kernel takes.
pub const MAX_CPU_SHARES: u64 = 262_144;
/// CPU shares of one core.
pub const CPU_SHARES_PER_CORE: u64 = 1024;
/// The kernel makes no difference between requests of CPU below this, in thousandths of a core.
pub const MIN_CPU_REQUEST_MILLIS: i64 = 2;
/// Nor between limits of CPU below this.
pub const MIN_CPU_LIMIT_MILLIS: i64 = 10;
/// Length of the CFS period, in microseconds.
pub const CPU_PERIOD_MICROS: u64 = 100_000;
/// Smallest CFS quota that the kernel takes, in microseconds.
pub const MIN_CPU_QUOTA_MICROS: u64 = 1_000;

/// OOM score of guaranteed and node-critical pods.
pub const GUARANTEED_OOM_SCORE_ADJ: i32 = -997;
/// OOM score of best-effort pods.
pub const BEST_EFFORT_OOM_SCORE_ADJ: i32 = 1000;

/// Amounts by resource name. What is absent is zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceAmounts(BTreeMap<String, Quantity>);

impl ResourceAmounts {
    /// The amounts of a `requests` or `limits` field. A text that is no
    /// quantity counts as absent: validation refuses it before it gets here.
    pub fn of(list: Option<&BTreeMap<String, resource::Quantity>>) -> Self {
        let amounts = list.into_iter().flatten();
        Self(
            amounts
                .filter_map(|(name, text)| Some((name.clone(), Quantity::from_api(text).ok()?)))
                .collect(),
        )
    }

    /// The amount of a resource, if one is named.
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.0.get(name).copied()
    }

    /// Thousandths of a core; 0 if none are named.
    pub fn cpu_millis(&self) -> i64 {
        self.get(CPU).map_or(0, Quantity::milli_value)
    }

    /// Bytes of memory; 0 if none are named.
    pub fn memory_bytes(&self) -> i64 {
        self.get(MEMORY).map_or(0, Quantity::value)
    }

    /// Bytes of ephemeral storage; 0 if none are named.
    pub fn ephemeral_storage_bytes(&self) -> i64 {
        self.get(EPHEMERAL_STORAGE).map_or(0, Quantity::value)
    }

    /// Names and amounts, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Sets an amount.
    pub fn insert(&mut self, name: &str, amount: Quantity) {
        self.0.insert(name.to_owned(), amount);
    }

    fn add(&mut self, other: &ResourceAmounts) {
        for (name, amount) in &other.0 {
            let sum = self.get(name).unwrap_or(Quantity::ZERO).plus(*amount);
            self.0.insert(name.clone(), sum);
        }
    }

    /// Those of `pod_level` instead of our own, as far as a pod can state them for itself.
    fn replace_by(&mut self, pod_level: &ResourceAmounts) {
        for (name, amount) in &pod_level.0 {
            if is_pod_level(name) {
                self.0.insert(name.clone(), *amount);
            }
        }
    }

    fn raise_to(&mut self, other: &ResourceAmounts) {
        for (name, amount) in &other.0 {
            if self.get(name).is_none_or(|present| present < *amount) {
                self.0.insert(name.clone(), *amount);
            }
        }
    }
}

/// A container's requests.
pub fn container_requests(container: &Container) -> ResourceAmounts {
    ResourceAmounts::of(
        container
            .resources
            .as_ref()
            .and_then(|all| all.requests.as_ref()),
    )
}

/// A container's limits.
pub fn container_limits(container: &Container) -> ResourceAmounts {
    ResourceAmounts::of(
        container
            .resources
            .as_ref()
            .and_then(|all| all.limits.as_ref()),
    )
}

/// Whether a resource can be stated for a pod as a whole: cpu, memory, huge pages.
#[must_use]
pub fn is_pod_level(name: &str) -> bool {
    name == CPU || name == MEMORY || page_size(name).is_some()
}

/// What the pod states for itself as a whole, if it states anything.
#[must_use]
pub fn pod_level(pod: &Pod) -> Option<&ResourceRequirements> {
    let stated = pod.spec.as_ref()?.resources.as_ref()?;
    let mut lists = stated.requests.iter().chain(&stated.limits).flatten();
    lists.any(|(name, _)| is_pod_level(name)).then_some(stated)
}

/// The limits that the pod states for itself as a whole; empty for none.
#[must_use]
pub fn pod_level_limits(pod: &Pod) -> ResourceAmounts {
    ResourceAmounts::of(pod_level(pod).and_then(|stated| stated.limits.as_ref()))
}

/// The requests that the pod states for itself as a whole; empty for none.
#[must_use]
pub fn pod_level_requests(pod: &Pod) -> ResourceAmounts {
    ResourceAmounts::of(pod_level(pod).and_then(|stated| stated.requests.as_ref()))
}

/// What the containers of the pod request together: as [`pod_requests`] of a pod that
/// states nothing for itself.
#[must_use]
pub fn all_container_requests(pod: &Pod) -> ResourceAmounts {
    of_containers(pod, container_requests)
}

/// The limits of the containers of the pod together, likewise.
#[must_use]
pub fn all_container_limits(pod: &Pod) -> ResourceAmounts {
    of_containers(pod, container_limits)
}

/// A container's limits; of cpu and memory, where it states none, those of its pod.
#[must_use]
pub fn container_limits_in_pod(pod: &Pod, container: &Container) -> ResourceAmounts {
    let mut limits = container_limits(container);
    let of_pod = pod_level_limits(pod);
    for name in [CPU, MEMORY] {
        let own = limits.get(name).filter(|amount| !amount.is_zero());
        if let (None, Some(amount)) = (own, of_pod.get(name)) {
            limits.insert(name, amount);
        }
    }
    limits
}

/// What the pod needs of the node: what it states for itself, or the sum over its
/// containers and sidecars, or what an init container needs at its time if that is more;
/// plus overhead.
pub fn pod_requests(pod: &Pod) -> ResourceAmounts {
    let mut total = pod_requests_without_overhead(pod);
    total.add(&ResourceAmounts::of(
        pod.spec_or_default().overhead.as_ref(),
    ));
    total
}

/// The most that the pod may use; like `pod_requests`, but overhead only adds
/// to a limit that exists.
pub fn pod_limits(pod: &Pod) -> ResourceAmounts {
    let mut total = pod_limits_without_overhead(pod);
    let overhead = ResourceAmounts::of(pod.spec_or_default().overhead.as_ref());
    for (name, amount) in overhead.iter() {
        if let Some(present) = total.get(name).filter(|present| !present.is_zero()) {
            total.insert(name, present.plus(amount));
        }
    }
    total
}

/// What the containers alone need: `pod_requests` without the pod's overhead.
pub fn pod_requests_without_overhead(pod: &Pod) -> ResourceAmounts {
    let mut total = all_container_requests(pod);
    total.replace_by(&pod_level_requests(pod));
    total
}

/// The most that the containers alone may use: `pod_limits` without overhead.
pub fn pod_limits_without_overhead(pod: &Pod) -> ResourceAmounts {
    let mut total = all_container_limits(pod);
    total.replace_by(&pod_level_limits(pod));
    total
}

fn of_containers(pod: &Pod, part: fn(&Container) -> ResourceAmounts) -> ResourceAmounts {
    let mut total = ResourceAmounts::default();
    for container in pod.containers() {
        total.add(&part(container));
    }
    let mut sidecars = ResourceAmounts::default();
    let mut initial = ResourceAmounts::default();
    for container in pod.init_containers() {
        let mut needed = part(container);
        if is_restartable(container) {
            sidecars.add(&needed);
            needed = sidecars.clone();
        } else {
            needed.add(&sidecars);
        }
        initial.raise_to(&needed);
    }
    total.add(&sidecars);
    total.raise_to(&initial);
    total
}

/// The pod's quality of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QosClass {
    /// Every container has limits for CPU and memory, and requests equal them.
    Guaranteed,
    /// Something is requested or limited.
    Burstable,
    /// Nothing is requested or limited.
    BestEffort,
}

impl QosClass {
    /// The class of a pod, by the CPU and memory of all its containers, or by what it
    /// states for itself as a whole.
    pub fn of(pod: &Pod) -> QosClass {
        let mut requests = ResourceAmounts::default();
        let mut limits = ResourceAmounts::default();
        let mut all_limited = true;
        if pod_level(pod).is_some() {
            requests = computed(pod_level_requests(pod));
            limits = computed(pod_level_limits(pod));
            all_limited = limits.0.len() == 2;
        } else {
            for (_, container) in pod.all_containers() {
                requests.add(&computed(container_requests(container)));
                let limited = computed(container_limits(container));
                all_limited &= limited.0.len() == 2;
                limits.add(&limited);
            }
        }
        if requests.0.is_empty() && limits.0.is_empty() {
            QosClass::BestEffort
        } else if all_limited && requests == limits {
            QosClass::Guaranteed
        } else {
            QosClass::Burstable
        }
    }

    /// The API's word.
    pub fn as_str(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "Guaranteed",
            QosClass::Burstable => "Burstable",
            QosClass::BestEffort => "BestEffort",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// CPU and memory that are more than zero: what decides the QoS class.
fn computed(amounts: ResourceAmounts) -> ResourceAmounts {
    ResourceAmounts(
        amounts
            .0
            .into_iter()
            .filter(|(name, amount)| {
                (name == CPU || name == MEMORY) && !amount.is_zero() && !amount.is_negative()
            })
            .collect(),
    )
}

/// The kernel's `oom_score_adj` of a container: who dies first.
pub fn oom_score_adj(pod: &Pod, container: &Container, memory_capacity_bytes: i64) -> i32 {
    if pod.is_node_critical() {
        return GUARANTEED_OOM_SCORE_ADJ;
    }
    match QosClass::of(pod) {
        QosClass::Guaranteed => GUARANTEED_OOM_SCORE_ADJ,
        QosClass::BestEffort => BEST_EFFORT_OOM_SCORE_ADJ,
        QosClass::Burstable => {
            let own = container_requests(container).memory_bytes();
            // A sidecar does not die before the containers that it serves.
            let of_others = pod.containers().iter();
            let of_others = of_others.map(|it| container_requests(it).memory_bytes());
            let least = of_others.min().filter(|_| is_sidecar(pod, container));
            let request = own.max(least.unwrap_or(own));
            let request = i128::from(request.saturating_add(unshared_memory(pod)));
            let capacity = i128::from(memory_capacity_bytes.max(1));
            let score = (1000 - 1000 * request / capacity).clamp(3, 999);
            i32::try_from(score).unwrap_or(BEST_EFFORT_OOM_SCORE_ADJ)
        }
    }
}

/// What each container counts with, beyond its own, of the memory that the pod requests
/// for itself: what the containers do not request is shared out among them evenly.
fn unshared_memory(pod: &Pod) -> i64 {
    let of_pod = pod_level_requests(pod).memory_bytes();
    let count = i64::try_from(pod.all_containers().count()).unwrap_or(i64::MAX);
    if of_pod == 0 || count == 0 {
        return 0;
    }
    of_pod.saturating_sub(all_container_requests(pod).memory_bytes()) / count
}

fn is_sidecar(pod: &Pod, container: &Container) -> bool {
    sidecar_index(pod, &container.name).is_some()
}

/// CPU shares (cgroup v1) of so many thousandths of a core.
pub fn cpu_shares(millis: i64) -> u64 {
    let millis = u64::try_from(millis).unwrap_or(0);
    (millis.saturating_mul(CPU_SHARES_PER_CORE) / 1000).clamp(MIN_CPU_SHARES, MAX_CPU_SHARES)
}

/// CPU weight (cgroup v2, 1 to 10000) of CPU shares.
pub fn cpu_weight(shares: u64) -> u64 {
    (shares.clamp(MIN_CPU_SHARES, MAX_CPU_SHARES) - MIN_CPU_SHARES) * 9999
        / (MAX_CPU_SHARES - MIN_CPU_SHARES)
        + 1
}

/// CFS quota in microseconds per period, or `None` for no limit (0 or less).
pub fn cpu_quota_micros(millis: i64, period_micros: u64) -> Option<u64> {
    let millis = u64::try_from(millis).ok().filter(|millis| *millis > 0)?;
    Some((millis.saturating_mul(period_micros) / 1000).max(MIN_CPU_QUOTA_MICROS))
}

/// What a pod's own cgroup gets. `None` means no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodCgroupResources {
    /// CPU shares (cgroup v1).
    pub cpu_shares: u64,
    /// What the pod requests of CPU, in thousandths of a core.
    pub cpu_request_millis: i64,
    /// CFS quota, in microseconds per period of 100 ms.
    pub cpu_quota_micros: Option<u64>,
    /// Memory, in bytes.
    pub memory_limit_bytes: Option<i64>,
    /// What the pod requests of memory, in bytes.
    pub memory_request_bytes: i64,
    /// Bytes of huge pages, by page size in bytes; of sizes that are not named, none.
    pub huge_pages: BTreeMap<u64, u64>,
}

impl PodCgroupResources {
    /// What holds containers of both: nothing is less than in either.
    #[must_use]
    pub fn widest(self, other: &PodCgroupResources) -> PodCgroupResources {
        fn higher<T: Ord + Copy>(one: Option<T>, other: Option<T>) -> Option<T> {
            Some(one?.max(other?))
        }
        PodCgroupResources {
            cpu_shares: self.cpu_shares.max(other.cpu_shares),
            cpu_request_millis: self.cpu_request_millis.max(other.cpu_request_millis),
            cpu_quota_micros: higher(self.cpu_quota_micros, other.cpu_quota_micros),
            memory_limit_bytes: higher(self.memory_limit_bytes, other.memory_limit_bytes),
            memory_request_bytes: self.memory_request_bytes.max(other.memory_request_bytes),
            huge_pages: self.huge_pages,
        }
    }
}

/// The limits of a pod's cgroup: a limit holds for the pod only if it states one for
/// itself, or all of its containers have one.
pub fn pod_cgroup_resources(pod: &Pod) -> PodCgroupResources {
    let requests = pod_requests(pod);
    let limits = pod_limits(pod);
    let of_pod = pod_level_limits(pod);
    let all_have = |name| {
        let stated = of_pod.get(name).is_some_and(|amount| !amount.is_zero());
        let is_limited = |container: &Container| {
            let limit = container_limits(container).get(name);
            limit.is_some_and(|limit| !limit.is_zero())
        };
        stated
            || pod
                .all_containers()
                .all(|(_, container)| is_limited(container))
    };
    match QosClass::of(pod) {
        QosClass::BestEffort => PodCgroupResources {
            cpu_shares: MIN_CPU_SHARES,
            cpu_request_millis: requests.cpu_millis(),
            cpu_quota_micros: None,
            memory_limit_bytes: None,
            memory_request_bytes: requests.memory_bytes(),
            huge_pages: by_page_size(requests.iter()),
        },
        QosClass::Burstable | QosClass::Guaranteed => PodCgroupResources {
            cpu_shares: cpu_shares(requests.cpu_millis()),
            cpu_request_millis: requests.cpu_millis(),
            cpu_quota_micros: all_have(CPU)
                .then(|| cpu_quota_micros(limits.cpu_millis(), CPU_PERIOD_MICROS))
                .flatten(),
            memory_limit_bytes: Some(limits.memory_bytes())
                .filter(|bytes| *bytes > 0 && all_have(MEMORY)),
            memory_request_bytes: requests.memory_bytes(),
            huge_pages: by_page_size(requests.iter()),
        },
    }
}

#[cfg(test)]
mod tests;
