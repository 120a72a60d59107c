//! The CPU and memory that an instance of a container runs with: noted on it when it is
//! made, and in the pod's record when they are changed while it runs.

use std::collections::BTreeMap;

use pod::core::Container;
use pod::quantity::Format;
use pod::resources::{
    CPU, MEMORY, MIN_CPU_LIMIT_MILLIS, MIN_CPU_REQUEST_MILLIS, container_limits_in_pod,
    container_requests,
};
use pod::{Pod, PodExt, QosClass, Quantity};
use serde::{Deserialize, Serialize};

/// What of CPU and memory can be changed while an instance runs, as far as the kernel
/// makes a difference. A request of memory is not among them: nothing of a container
/// depends on it that could be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceResources {
    /// What decides its share of the CPU: its request, or else its limit. In thousandths
    /// of a core.
    pub cpu_request_millis: i64,
    /// 0 without a limit.
    pub cpu_limit_millis: i64,
    /// 0 without a limit.
    pub memory_limit_bytes: i64,
}

impl InstanceResources {
    /// What a container of this pod is made with now.
    #[must_use]
    pub fn of(pod: &Pod, container: &Container) -> InstanceResources {
        let limits = container_limits_in_pod(pod, container);
        let requested = container_requests(container).get(CPU);
        let limit = limits.cpu_millis().max(0);
        let request = requested.map_or(limit, Quantity::milli_value);
        InstanceResources {
            cpu_request_millis: request.max(MIN_CPU_REQUEST_MILLIS),
            cpu_limit_millis: match limit {
                0 => 0,
                limit => limit.max(MIN_CPU_LIMIT_MILLIS),
            },
            memory_limit_bytes: limits.memory_bytes().max(0),
        }
    }

    /// Whether the CPU differs.
    #[must_use]
    pub fn differs_in_cpu(&self, other: &InstanceResources) -> bool {
        self.cpu_request_millis != other.cpu_request_millis
            || self.cpu_limit_millis != other.cpu_limit_millis
    }

    /// Whether this lacks a limit that the other one has: a runtime has no word for that,
    /// so an instance keeps its limit as long as it runs.
    #[must_use]
    pub fn lacks_a_limit_of(&self, other: &InstanceResources) -> bool {
        (self.cpu_limit_millis == 0 && other.cpu_limit_millis != 0)
            || (self.memory_limit_bytes == 0 && other.memory_limit_bytes != 0)
    }

    /// What holds an instance that has either: nothing is less than in either, and no limit
    /// is the most.
    #[must_use]
    pub fn widest(&self, other: &InstanceResources) -> InstanceResources {
        let limit = |one: i64, other: i64| match one.min(other) {
            0 => 0,
            _ => one.max(other),
        };
        InstanceResources {
            cpu_request_millis: self.cpu_request_millis.max(other.cpu_request_millis),
            cpu_limit_millis: limit(self.cpu_limit_millis, other.cpu_limit_millis),
            memory_limit_bytes: limit(self.memory_limit_bytes, other.memory_limit_bytes),
        }
    }

    /// Gives a container these instead of its own.
    fn put_into(&self, container: &mut Container) {
        let resources = container.resources.get_or_insert_default();
        let limits = resources.limits.get_or_insert_default();
        let cpu = Quantity::from_millis(self.cpu_limit_millis);
        let bytes = Quantity::from_whole(self.memory_limit_bytes, Format::BinarySi);
        for (name, limit) in [(CPU, cpu), (MEMORY, bytes)] {
            match limit.is_zero() {
                true => limits.remove(name),
                false => limits.insert(name.to_owned(), limit.to_api()),
            };
        }
        let requests = resources.requests.get_or_insert_default();
        let cpu = Quantity::from_millis(self.cpu_request_millis);
        requests.insert(CPU.to_owned(), cpu.to_api());
    }
}

/// What is known of the resources that an instance runs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KnownResources {
    /// What it runs with, unless a change was attempted; no more than these in any case
    /// but that.
    pub now: InstanceResources,
    /// A change that was begun, and whose end is not known.
    pub attempted: Option<InstanceResources>,
}

impl KnownResources {
    /// That nothing was attempted since it got these.
    #[must_use]
    pub fn certain(now: InstanceResources) -> KnownResources {
        KnownResources {
            now,
            attempted: None,
        }
    }

    /// What holds it, whatever became of a change.
    #[must_use]
    pub fn widest(&self) -> InstanceResources {
        let attempted = self.attempted.as_ref();
        attempted.map_or(self.now, |attempted| self.now.widest(attempted))
    }

    /// Whether it runs with exactly these for certain.
    #[must_use]
    pub fn are(&self, wanted: &InstanceResources) -> bool {
        self.attempted.is_none() && self.now == *wanted
    }

    /// Whether it may have a limit that is to go.
    #[must_use]
    pub fn may_keep_a_limit(&self, wanted: &InstanceResources) -> bool {
        let mut all = [self.now].into_iter().chain(self.attempted);
        all.any(|had| wanted.lacks_a_limit_of(&had))
    }
}

/// The pod with containers that have these resources, by name.
#[must_use]
pub fn with_resources(pod: &Pod, of_containers: &BTreeMap<&str, InstanceResources>) -> Pod {
    let mut pod = pod.clone();
    let spec = pod.spec.get_or_insert_default();
    let init = spec.init_containers.iter_mut().flatten();
    for container in spec.containers.iter_mut().chain(init) {
        if let Some(resources) = of_containers.get(container.name.as_str()) {
            resources.put_into(container);
        }
    }
    pod
}

/// The pod with containers that keep these resources, by name, as long as the node has no
/// room for others. A request of memory is not noted of any instance: it is what the pod
/// says, as far as the limit and the QoS class allow. That class stays in any case; a pod
/// that would get another one is what it is without this.
#[must_use]
pub fn with_kept_resources(pod: &Pod, kept: &BTreeMap<String, InstanceResources>) -> Pod {
    let class = QosClass::of(pod);
    let others: BTreeMap<&str, InstanceResources> = pod
        .all_containers()
        .filter_map(|(_, spec)| Some((spec, *kept.get(&spec.name)?)))
        .filter(|(spec, kept)| InstanceResources::of(pod, spec) != *kept)
        .map(|(spec, kept)| (spec.name.as_str(), kept))
        .collect();
    let mut changed = with_resources(pod, &others);
    let spec = changed.spec.get_or_insert_default();
    let init = spec.init_containers.iter_mut().flatten();
    for container in spec.containers.iter_mut().chain(init) {
        if let Some(kept) = others.get(container.name.as_str()) {
            fit_requests(container, kept, class);
        }
    }
    match QosClass::of(&changed) == class {
        true => changed,
        false => pod.clone(),
    }
}

/// Makes what else a container says fit to limits that it keeps.
fn fit_requests(container: &mut Container, kept: &InstanceResources, class: QosClass) {
    let resources = container.resources.get_or_insert_default();
    let limits = resources.limits.get_or_insert_default();
    let requests = resources.requests.get_or_insert_default();
    if class == QosClass::Guaranteed {
        // Both are the same, also where the kernel makes no difference.
        if let Some(cpu) = requests.get(CPU) {
            limits.insert(CPU.to_owned(), cpu.clone());
        }
        if let Some(memory) = limits.get(MEMORY) {
            requests.insert(MEMORY.to_owned(), memory.clone());
        }
        return;
    }
    let requested = requests.get(MEMORY).map(Quantity::from_api);
    let requested = requested.and_then(Result::ok).map(Quantity::value);
    // Below the limit: with all requests equal to limits the pod would be guaranteed.
    let most = kept.memory_limit_bytes - 1;
    if kept.memory_limit_bytes != 0 && requested.is_some_and(|bytes| bytes > most) {
        let most = Quantity::from_whole(most, Format::BinarySi);
        requests.insert(MEMORY.to_owned(), most.to_api());
    }
}

#[cfg(test)]
mod tests {
    use pod::resources::pod_cgroup_resources;
    use serde_json::json;

    use super::*;
    use crate::testing::{manifest, pod};

    fn pod_with(resources: &[serde_json::Value]) -> Pod {
        let mut value = manifest("p", "u1");
        let containers = resources.iter().enumerate().map(|(index, resources)| {
            json!({"name": format!("c{index}"), "image": "i:1", "resources": resources})
        });
        value["spec"]["containers"] = containers.collect();
        pod(value)
    }

    fn of(resources: serde_json::Value) -> (i64, i64, i64) {
        let pod = pod_with(&[resources]);
        let found = InstanceResources::of(&pod, &pod.containers()[0]);
        let InstanceResources {
            cpu_request_millis,
            cpu_limit_millis,
            memory_limit_bytes,
        } = found;
        (cpu_request_millis, cpu_limit_millis, memory_limit_bytes)
    }

    #[test]
    fn what_makes_no_difference_to_the_kernel_is_the_same() {
        for (resources, expected) in [
            (json!({}), (2, 0, 0)),
            (json!({"requests": {"cpu": "1m"}}), (2, 0, 0)),
            (
                json!({"requests": {"cpu": "0", "memory": "1Gi"}}),
                (2, 0, 0),
            ),
            (json!({"requests": {"cpu": "100m"}}), (100, 0, 0)),
            (json!({"limits": {"cpu": "5m"}}), (5, 10, 0)),
            (
                json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Mi"}}),
                (1000, 2000, 1 << 20),
            ),
        ] {
            assert_eq!(of(resources.clone()), expected, "{resources}");
        }
    }

    #[test]
    fn limits_of_the_pod_are_those_of_its_containers() {
        let mut pod = pod_with(&[json!({"requests": {"cpu": "100m"}})]);
        let spec = pod.spec.as_mut().unwrap();
        let stated = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
        spec.resources = serde_json::from_value(stated).unwrap();
        let found = InstanceResources::of(&pod, &pod.containers()[0]);
        assert_eq!(
            (found.cpu_limit_millis, found.memory_limit_bytes),
            (1000, 1 << 30)
        );
    }

    #[test]
    fn a_pod_is_as_wide_as_its_containers_are_before_and_after() {
        let resources = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}});
        let pod = pod_with(&[resources("1", "64Mi"), resources("300m", "16Mi")]);
        let before = InstanceResources {
            cpu_request_millis: 500,
            cpu_limit_millis: 500,
            memory_limit_bytes: 128 << 20,
        };
        let former = with_resources(&pod, &BTreeMap::from([("c0", before)]));
        let former = pod_cgroup_resources(&former);
        assert_eq!(former.cpu_quota_micros, Some(80_000));
        assert_eq!(former.memory_limit_bytes, Some(144 << 20));
        let widest = pod_cgroup_resources(&pod).widest(&former);
        assert_eq!(widest.cpu_quota_micros, Some(130_000));
        assert_eq!(widest.memory_limit_bytes, Some(144 << 20));
        // One of them had no limit, so neither had the pod.
        let unlimited = InstanceResources {
            cpu_limit_millis: 0,
            ..before
        };
        let former = with_resources(&pod, &BTreeMap::from([("c0", unlimited)]));
        let former = pod_cgroup_resources(&former);
        let widest = pod_cgroup_resources(&pod).widest(&former);
        assert_eq!(widest.cpu_quota_micros, None);
    }

    #[test]
    fn a_pod_that_keeps_resources_stays_in_its_class_and_has_what_was_noted() {
        let both = |cpu: &str, memory: &str| {
            let amounts = json!({"cpu": cpu, "memory": memory});
            json!({"requests": amounts, "limits": amounts})
        };
        let limited = |request: &str, limit: &str| {
            json!({"requests": {"cpu": "100m", "memory": request},
                   "limits": {"cpu": "100m", "memory": limit}})
        };
        for (old, new) in [
            (both("100m", "64Mi"), both("8", "64Gi")),
            (both("1m", "64Mi"), both("5m", "128Mi")),
            (limited("32Mi", "64Mi"), limited("64Mi", "128Mi")),
            (limited("32Mi", "64Mi"), limited("96Mi", "128Mi")),
            (
                json!({"requests": {"cpu": "100m"}}),
                json!({"requests": {"cpu": "9", "memory": "1Gi"}}),
            ),
            (
                json!({"requests": {"memory": "1Mi"}}),
                json!({"requests": {"memory": "1Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}}),
            ),
        ] {
            let (then, now) = (pod_with(&[old]), pod_with(std::slice::from_ref(&new)));
            let noted = InstanceResources::of(&then, &then.containers()[0]);
            let kept = BTreeMap::from([("c0".to_owned(), noted)]);
            let pod = with_kept_resources(&now, &kept);
            let found = InstanceResources::of(&pod, &pod.containers()[0]);
            assert_eq!(found, noted, "{new}");
            assert_eq!(QosClass::of(&pod), QosClass::of(&now), "{new}");
        }
    }

    #[test]
    fn a_pod_of_another_class_keeps_no_resources() {
        let now = pod_with(&[json!({})]);
        let noted = InstanceResources {
            cpu_request_millis: 100,
            cpu_limit_millis: 0,
            memory_limit_bytes: 0,
        };
        let kept = BTreeMap::from([("c0".to_owned(), noted)]);
        assert_eq!(with_kept_resources(&now, &kept), now);
    }
}
