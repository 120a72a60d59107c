//! What must hold in the end of the CPU and memory of containers, their pods' cgroups, and
//! what is said about it.

use std::collections::BTreeMap;

use pod::core::{ContainerStatus, PodStatus};
use pod::{Pod, PodExt as _};
use simulated_node::MemoryHost;
use simulated_runtime::{ContainerView, SimulatedRuntime};

use crate::desired::Desired;
use crate::sizes::{Size, Sizes};

/// Pods whose containers, cgroup or status have other limits than they are to have, and
/// of which the status does not say why; empty when the node has converged.
pub(crate) fn wrong_sizes<'a>(
    runtime: &SimulatedRuntime,
    host: &MemoryHost,
    desired: impl Iterator<Item = &'a Desired>,
    served: &[Pod],
) -> Vec<String> {
    let containers = runtime.containers();
    let mut wrong = Vec::new();
    for pod in desired {
        let (Some(sizes), Some(uid)) = (pod.sizes(), pod.pinned_uid()) else {
            continue;
        };
        let of_pod = containers.iter().filter(|it| it.pod_uid == uid);
        let running: Vec<&ContainerView> = of_pod.filter(|it| it.running).collect();
        let mut said = Vec::new();
        let status = served.iter().find(|it| it.uid() == uid);
        let status = status.and_then(|it| it.status.clone()).unwrap_or_default();
        let outcome = compare_runtime(sizes, &running, &status, &mut said);
        let condition = resize_condition(&status);
        match outcome {
            Outcome::AsWanted => {
                if let Some(condition) = condition {
                    said.push(format!("is as wanted, and says {condition:?}"));
                }
                let given = host.state().cgroup_resources.get(&uid).cloned();
                let last = given.and_then(|given| given.last().cloned());
                let has = last.and_then(|last| {
                    let millis = last.cpu_quota_micros? / 100;
                    Some((millis, last.memory_limit_bytes? >> 20))
                });
                if has != Some(sizes.sum()) {
                    let sum = sizes.sum();
                    said.push(format!("has a cgroup of {has:?}, not {sum:?}"));
                }
            }
            Outcome::Refused => {
                let why = condition.unwrap_or_default();
                if !why.contains("below current usage") {
                    said.push(format!("is not as wanted, and says {why:?}"));
                }
            }
            Outcome::Wrong => {}
        }
        wrong.extend(said.into_iter().map(|what| format!("{pod} {what}")));
    }
    wrong
}

/// What a pod's containers have at the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// All of them what they are to have.
    AsWanted,
    /// So, but for those that use more memory than they are to have.
    Refused,
    /// Something else.
    Wrong,
}

/// Compares the containers with what they are to have, and with the pod's status.
fn compare_runtime(
    sizes: &Sizes,
    running: &[&ContainerView],
    status: &PodStatus,
    said: &mut Vec<String>,
) -> Outcome {
    let mut others = Vec::new();
    let mut is_refused = false;
    for container in running {
        let name = &*container.name;
        let Some(wanted) = sizes.of(name) else {
            continue;
        };
        let linux = container.config.linux.clone().unwrap_or_default();
        let had = Size::of(&linux.resources.unwrap_or_default());
        if had != wanted {
            if sizes.is_refused(had, wanted) {
                is_refused = true;
            } else {
                others.push(format!("has {name} with {had:?}, not {wanted:?}"));
            }
        }
        let told = told_limits(status, name);
        let told = told.iter().map(|(name, amount)| (&**name, amount.clone()));
        if !told.eq(had.quantities()) {
            said.push(format!("says another size of {name} than {had:?}"));
        }
    }
    match (others.is_empty(), is_refused) {
        (true, false) => Outcome::AsWanted,
        (true, true) => Outcome::Refused,
        (false, _) => {
            said.extend(others);
            Outcome::Wrong
        }
    }
}

/// The limits of a container that a status tells, by resource.
fn told_limits(status: &PodStatus, container: &str) -> BTreeMap<String, String> {
    let init = status.init_container_statuses.iter().flatten();
    let mut all = init.chain(status.container_statuses.iter().flatten());
    let found = all.find(|it| it.name == container);
    let limits = |status: &ContainerStatus| status.resources.clone()?.limits;
    let limits = found.and_then(limits).unwrap_or_default();
    let told = limits.into_iter().map(|(name, amount)| (name, amount.0));
    told.collect()
}

/// What a status says of a resize that is under way, or that fails.
fn resize_condition(status: &PodStatus) -> Option<String> {
    let mut conditions = status.conditions.iter().flatten();
    let found = conditions.find(|it| it.type_ == "PodResizeInProgress")?;
    Some(found.message.clone().unwrap_or_default())
}
