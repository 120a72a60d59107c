//! What pods use now, as the runtime tells. Nothing is decided by it: it is for people.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bulkhead_api::v1 as api;
use clock::UnixNanos;
use cri::{RuntimeError, RuntimeReads, v1};
use ipc::limits::{MAX_CONTAINER_ID_BYTES, MAX_CONTAINER_NAME_BYTES, MAX_PODS};
use pod::metadata::{CONTAINER_NAME_LABEL, POD_UID_LABEL};
use tokio::time::Instant;

use crate::relist::{Relist, Relister};

/// How long the networks of all pods may take together; what is not told by then is
/// absent.
const NETWORKS_MAY_TAKE: Duration = Duration::from_secs(2);

/// Most containers of one pod that are told of: a pod of 1 MiB has fewer that run.
const MAX_CONTAINERS: usize = 1000;

/// Asks the runtime.
#[derive(Clone)]
pub(crate) struct UsageReader {
    runtime: Arc<dyn RuntimeReads>,
    relister: Relister,
}

impl UsageReader {
    pub(crate) fn new(runtime: Arc<dyn RuntimeReads>, relister: Relister) -> UsageReader {
        UsageReader { runtime, relister }
    }

    /// What the pods use of which anything runs, by UID.
    ///
    /// # Errors
    /// When the runtime does not tell of containers. Networks are left out instead.
    pub(crate) async fn read(&self) -> Result<Vec<api::PodUsage>, RuntimeError> {
        let relist = self.relister.all().await?;
        let filter = v1::ContainerStatsFilter::default();
        let stats = self.runtime.list_container_stats(filter).await?;
        let mut pods = of_containers(&relist, stats);
        for (uid, network) in self.networks(&relist).await {
            if let Some(pod) = pods.get_mut(&uid) {
                pod.network = Some(network);
            }
        }
        Ok(pods.into_values().collect())
    }

    async fn networks(&self, relist: &Relist) -> Vec<(String, api::NetworkUsage)> {
        let sandboxes = relist.pods.iter().filter_map(|(uid, pod)| {
            let ready = pod.sandboxes.iter().find(|sandbox| sandbox.ready)?;
            Some((uid.clone(), ready.id.clone()))
        });
        let sandboxes: Vec<(String, String)> = sandboxes.take(MAX_PODS).collect();
        let until = Instant::now() + NETWORKS_MAY_TAKE;
        let mut told = Vec::new();
        for (uid, id) in sandboxes {
            let asking = self.runtime.pod_sandbox_stats(&id);
            let Ok(stats) = tokio::time::timeout_at(until, asking).await else {
                break;
            };
            let network = stats.ok().and_then(|it| network_of(&it, relist.asked_at));
            told.extend(network.map(|network| (uid, network)));
        }
        told
    }
}

/// The usage of containers, by the pods that are alive.
fn of_containers(
    relist: &Relist,
    stats: Vec<v1::ContainerStats>,
) -> BTreeMap<String, api::PodUsage> {
    let alive = relist.pods.iter().filter(|(_, pod)| pod.is_alive());
    let mut pods: BTreeMap<String, api::PodUsage> = alive
        .take(MAX_PODS)
        .map(|(uid, pod)| {
            let usage = api::PodUsage {
                pod: Some((&pod.identity).into()),
                ..api::PodUsage::default()
            };
            (uid.clone(), usage)
        })
        .collect();
    for of_container in stats {
        let Some(attributes) = of_container.attributes else {
            continue;
        };
        let label = |name: &str| attributes.labels.get(name);
        let (Some(uid), Some(name)) = (label(POD_UID_LABEL), label(CONTAINER_NAME_LABEL)) else {
            continue;
        };
        let Some(pod) = pods.get_mut(uid) else {
            continue;
        };
        let is_too_long =
            name.len() > MAX_CONTAINER_NAME_BYTES || attributes.id.len() > MAX_CONTAINER_ID_BYTES;
        if is_too_long || pod.containers.len() >= MAX_CONTAINERS {
            continue;
        }
        let value = |value: Option<v1::UInt64Value>| value.map(|it| it.value);
        let (cpu, memory) = (of_container.cpu, of_container.memory);
        pod.containers.push(api::ContainerUsage {
            id: attributes.id.clone(),
            name: name.clone(),
            cpu_at_unix_nanos: cpu.as_ref().map_or(0, |cpu| cpu.timestamp),
            cpu_nanos: value(cpu.and_then(|cpu| cpu.usage_core_nano_seconds)),
            memory_bytes: value(memory.and_then(|memory| memory.working_set_bytes)),
            layer_bytes: value(of_container.writable_layer.and_then(|it| it.used_bytes)),
        });
    }
    pods
}

/// What a sandbox's interfaces carried; each counts once, however often it is listed.
/// containerd before 1.7 does not say when it looked.
fn network_of(stats: &v1::PodSandboxStats, asked_at: UnixNanos) -> Option<api::NetworkUsage> {
    let network = stats.linux.as_ref()?.network.as_ref()?;
    let all = network.default_interface.iter().chain(&network.interfaces);
    let by_name: BTreeMap<&str, &v1::NetworkInterfaceUsage> = all
        .filter(|interface| interface.name != "lo")
        .map(|interface| (interface.name.as_str(), interface))
        .collect();
    if by_name.is_empty() {
        return None;
    }
    let sum = |bytes: fn(&v1::NetworkInterfaceUsage) -> &Option<v1::UInt64Value>| {
        let values = by_name.values().map(|it| bytes(it).as_ref());
        let values = values.map(|value| value.map_or(0, |it| it.value));
        values.fold(0, u64::saturating_add)
    };
    Some(api::NetworkUsage {
        received_bytes: sum(|interface| &interface.rx_bytes),
        sent_bytes: sum(|interface| &interface.tx_bytes),
        at_unix_nanos: match network.timestamp {
            0 => asked_at.0,
            told => told,
        },
    })
}

#[cfg(test)]
mod tests {
    use clock::UnixNanos;
    use pod::PodIdentity;

    use super::*;
    use crate::relist::{ListedSandbox, RuntimePod};

    fn relist(pods: &[(&str, bool)]) -> Relist {
        let pod = |&(uid, alive): &(&str, bool)| {
            let sandbox = ListedSandbox {
                id: format!("sandbox-{uid}"),
                ready: alive,
                created_at: UnixNanos(1),
            };
            let pod = RuntimePod {
                identity: PodIdentity::new(uid, "default", "web").unwrap(),
                source: "file".to_owned(),
                sandboxes: vec![sandbox],
                containers: Vec::new(),
            };
            (uid.to_owned(), pod)
        };
        Relist {
            pods: pods.iter().map(pod).collect(),
            asked_at: UnixNanos(1),
        }
    }

    fn stats(uid: &str, name: &str, value: Option<u64>) -> v1::ContainerStats {
        let value = || value.map(|value| v1::UInt64Value { value });
        let labels = [(POD_UID_LABEL, uid), (CONTAINER_NAME_LABEL, name)];
        let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
        v1::ContainerStats {
            attributes: Some(v1::ContainerAttributes {
                id: format!("{uid}-{name}"),
                labels: labels
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
                ..v1::ContainerAttributes::default()
            }),
            cpu: Some(v1::CpuUsage {
                timestamp: 5,
                usage_core_nano_seconds: value(),
                ..v1::CpuUsage::default()
            }),
            memory: Some(v1::MemoryUsage {
                working_set_bytes: value(),
                ..v1::MemoryUsage::default()
            }),
            ..v1::ContainerStats::default()
        }
    }

    #[test]
    fn usage_is_told_of_containers_of_pods_that_are_alive() {
        let relist = relist(&[("u1", true), ("u2", false), ("u3", true)]);
        let told = of_containers(
            &relist,
            vec![
                stats("u1", "c", Some(7)),
                stats("u1", "d", None),
                stats("u2", "c", Some(7)),
                stats("stranger", "c", Some(7)),
                stats("", "c", Some(7)),
                stats("u1", "", Some(7)),
                stats("u1", &"n".repeat(300), Some(7)),
                v1::ContainerStats::default(),
            ],
        );
        let uids: Vec<&String> = told.keys().collect();
        assert_eq!(uids, ["u1", "u3"]);
        assert_eq!(told["u3"].containers, []);
        let container = |name: &str, value: Option<u64>| api::ContainerUsage {
            id: format!("u1-{name}"),
            name: name.to_owned(),
            cpu_nanos: value,
            cpu_at_unix_nanos: 5,
            memory_bytes: value,
            layer_bytes: None,
        };
        assert_eq!(
            told["u1"].containers,
            [container("c", Some(7)), container("d", None)]
        );
    }

    #[test]
    fn one_pod_cannot_fill_the_answer() {
        let stats = (0..MAX_CONTAINERS + 5).map(|number| stats("u1", &format!("c{number}"), None));
        let told = of_containers(&relist(&[("u1", true)]), stats.collect());
        assert_eq!(told["u1"].containers.len(), MAX_CONTAINERS);
    }

    fn interface(name: &str, received: Option<u64>, sent: u64) -> v1::NetworkInterfaceUsage {
        v1::NetworkInterfaceUsage {
            name: name.to_owned(),
            rx_bytes: received.map(|value| v1::UInt64Value { value }),
            tx_bytes: Some(v1::UInt64Value { value: sent }),
            ..v1::NetworkInterfaceUsage::default()
        }
    }

    #[test]
    fn each_interface_of_a_pod_counts_once_and_its_loopback_not() {
        let told_at = |timestamp, default, interfaces: Vec<v1::NetworkInterfaceUsage>| {
            let network = v1::NetworkUsage {
                timestamp,
                default_interface: default,
                interfaces,
            };
            let linux = v1::LinuxPodSandboxStats {
                network: Some(network),
                ..v1::LinuxPodSandboxStats::default()
            };
            let stats = v1::PodSandboxStats {
                linux: Some(linux),
                ..v1::PodSandboxStats::default()
            };
            let told = network_of(&stats, UnixNanos(4));
            told.map(|it| (it.received_bytes, it.sent_bytes, it.at_unix_nanos))
        };
        let told = |default, interfaces| told_at(9, default, interfaces);
        let eth0 = || interface("eth0", Some(5), 7);
        assert_eq!(told_at(0, Some(eth0()), vec![]), Some((5, 7, 4)));
        assert_eq!(told(Some(eth0()), vec![]), Some((5, 7, 9)));
        assert_eq!(told(Some(eth0()), vec![eth0()]), Some((5, 7, 9)));
        assert_eq!(
            told(Some(eth0()), vec![interface("net1", None, u64::MAX)]),
            Some((5, u64::MAX, 9))
        );
        assert_eq!(told(None, vec![interface("lo", Some(1), 1)]), None);
        let nothing = v1::PodSandboxStats::default();
        assert_eq!(network_of(&nothing, UnixNanos(4)), None);
    }
}
