//! `/stats/summary` (kubelet, `staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go`).
//! Pure. What nobody knows is left out.

use bulkhead_api::v1;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::usage::{self, Look};

/// The summary of a node of this name; `only_cpu_and_memory` leaves out all else.
pub(crate) fn summary(look: &Look, node_name: &str, only_cpu_and_memory: bool) -> Value {
    let node = &look.node;
    let at = time(node.at_unix_nanos);
    let mut of_node = Map::new();
    of_node.insert("nodeName".to_owned(), node_name.into());
    if node.booted_at_unix_nanos > 0 {
        let booted = time(node.booted_at_unix_nanos);
        of_node.insert("startTime".to_owned(), booted.into());
    }
    of_node.insert("cpu".to_owned(), cpu(node.cpu_nanos, node.at_unix_nanos));
    of_node.insert("memory".to_owned(), memory(node.memory.as_ref(), &at));
    if !only_cpu_and_memory {
        if let Some(filesystem) = &node.filesystem {
            of_node.insert("fs".to_owned(), of_filesystem(filesystem, &at));
        }
        if let Some(filesystem) = &node.image_filesystem {
            let images = of_filesystem(filesystem, &at);
            of_node.insert(
                "runtime".to_owned(),
                json!({"imageFs": images, "containerFs": images}),
            );
        }
        let rlimit = json!({"time": at, "maxpid": node.max_pids, "curproc": node.pids});
        of_node.insert("rlimit".to_owned(), without_nulls(rlimit));
    }
    let pods: Vec<Value> = look
        .pods
        .iter()
        .map(|pod| of_pod(look, pod, only_cpu_and_memory))
        .collect();
    json!({"node": of_node, "pods": pods})
}

fn of_pod(look: &Look, pod: &v1::PodUsage, only_cpu_and_memory: bool) -> Value {
    let reference = pod.pod.clone().unwrap_or_default();
    let containers = pod.containers.iter();
    let sum = |part: fn(&v1::ContainerUsage) -> Option<u64>| usage::sum(pod, part);
    let newest = containers.clone().map(|it| it.cpu_at_unix_nanos).max();
    let newest = newest.unwrap_or(look.node.at_unix_nanos);
    let working_set = v1::MemoryUsage {
        working_set_bytes: sum(|container| container.memory_bytes),
        ..v1::MemoryUsage::default()
    };
    let mut json = json!({
        "podRef": {
            "name": reference.name,
            "namespace": reference.namespace,
            "uid": reference.uid,
        },
        "startTime": look.starts.pods.get(&reference.uid).map(Timestamp::to_string),
        "containers": containers
            .map(|container| of_container(look, container, only_cpu_and_memory))
            .collect::<Vec<_>>(),
        "cpu": cpu(sum(|container| container.cpu_nanos), newest),
        "memory": memory(Some(&working_set), &time(newest)),
    });
    if !only_cpu_and_memory {
        if let Some(network) = &pod.network {
            json["network"] = json!({
                "time": time(network.at_unix_nanos),
                "name": "eth0",
                "rxBytes": network.received_bytes,
                "txBytes": network.sent_bytes,
            });
        }
        let storage = sum(|container| container.layer_bytes);
        let storage = json!({"time": time(newest), "usedBytes": storage});
        json["ephemeral-storage"] = without_nulls(storage);
    }
    without_nulls(json)
}

fn of_container(look: &Look, container: &v1::ContainerUsage, only_cpu_and_memory: bool) -> Value {
    let at = container.cpu_at_unix_nanos;
    let used = v1::MemoryUsage {
        working_set_bytes: container.memory_bytes,
        ..v1::MemoryUsage::default()
    };
    let start = look.starts.containers.get(&container.id);
    let mut json = json!({
        "name": container.name,
        "startTime": start.map(Timestamp::to_string),
        "cpu": cpu(container.cpu_nanos, at),
        "memory": memory(Some(&used), &time(at)),
    });
    if !only_cpu_and_memory {
        let layer = json!({"time": time(at), "usedBytes": container.layer_bytes});
        json["rootfs"] = without_nulls(layer);
    }
    without_nulls(json)
}

fn cpu(nanos: Option<u64>, at: i64) -> Value {
    without_nulls(json!({"time": time(at), "usageCoreNanoSeconds": nanos}))
}

fn memory(used: Option<&v1::MemoryUsage>, at: &str) -> Value {
    let used = used.copied().unwrap_or_default();
    without_nulls(json!({
        "time": at,
        "availableBytes": used.available_bytes,
        "usageBytes": used.usage_bytes,
        "workingSetBytes": used.working_set_bytes,
        "rssBytes": used.rss_bytes,
        "pageFaults": used.page_faults,
        "majorPageFaults": used.major_page_faults,
    }))
}

fn of_filesystem(used: &v1::FilesystemUsage, at: &str) -> Value {
    without_nulls(json!({
        "time": at,
        "availableBytes": used.available_bytes,
        "capacityBytes": used.capacity_bytes,
        "usedBytes": used.used_bytes,
        "inodesFree": used.inodes_free,
        "inodes": used.inodes,
        "inodesUsed": used.inodes_used,
    }))
}

fn without_nulls(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

fn time(unix_nanos: i64) -> String {
    let time = Timestamp::from_nanosecond(unix_nanos.into());
    // An API server has seconds alone.
    time.map_or_else(
        |_| String::new(),
        |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Starts;

    #[test]
    fn what_is_known_is_in_the_summary_and_nothing_else() {
        let container = v1::ContainerUsage {
            id: "1".to_owned(),
            name: "c".to_owned(),
            cpu_nanos: Some(7),
            cpu_at_unix_nanos: 2_000_000_000,
            memory_bytes: Some(4096),
            layer_bytes: Some(10),
        };
        let pod = v1::PodUsage {
            pod: Some(v1::PodReference {
                uid: "u".to_owned(),
                namespace: "d".to_owned(),
                name: "p".to_owned(),
            }),
            containers: vec![container],
            network: None,
        };
        let look = Look {
            node: v1::NodeUsage::default(),
            pods: vec![pod],
            starts: Starts::default(),
        };
        let found = summary(&look, "n", true);
        let at = "1970-01-01T00:00:02Z";
        let cpu = json!({"time": at, "usageCoreNanoSeconds": 7});
        let memory = json!({"time": at, "workingSetBytes": 4096});
        let expected = json!([{
            "podRef": {"name": "p", "namespace": "d", "uid": "u"},
            "containers": [{"name": "c", "cpu": cpu, "memory": memory}],
            "cpu": cpu,
            "memory": memory,
        }]);
        assert_eq!(found["pods"], expected);
        assert_eq!(found["node"]["nodeName"], "n");
        assert_eq!(found["node"]["fs"], Value::Null);
        let whole = summary(&look, "n", false);
        assert_eq!(whole["pods"][0]["ephemeral-storage"]["usedBytes"], 10);
    }
}
