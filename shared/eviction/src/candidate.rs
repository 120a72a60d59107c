//! [`Candidate`]: what has to be known of a pod to judge whether it has to go.

use pod::core::{Container, Volume};
use pod::resources::{
    EPHEMERAL_STORAGE, MEMORY, ResourceAmounts, container_limits, container_requests, pod_limits,
    pod_requests,
};
use pod::{Pod, PodExt, Quantity};

/// A container's requests and limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerFacts {
    /// Its name.
    pub name: String,
    /// Memory that it requests; zero if none.
    pub memory_request: Quantity,
    /// Ephemeral storage that it requests; zero if none.
    pub storage_request: Quantity,
    /// Its limit of ephemeral storage, but for init containers: theirs count in the
    /// pod's.
    pub storage_limit: Option<Quantity>,
}

/// An `emptyDir` volume on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmptyDirFacts {
    /// Its name.
    pub name: String,
    /// `sizeLimit`, if it has one.
    pub limit: Option<Quantity>,
}

/// A pod that may have to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its UID.
    pub uid: String,
    /// Its priority; 0 if none is given.
    pub priority: i32,
    /// It never goes.
    pub is_spared: bool,
    /// Bytes of memory that it requests.
    pub memory_request: i64,
    /// Bytes of ephemeral storage that it requests.
    pub storage_request: i64,
    /// The most ephemeral storage that it may use, if its containers limit it.
    pub storage_limit: Option<Quantity>,
    /// Its containers, then its init containers.
    pub containers: Vec<ContainerFacts>,
    /// Its `emptyDir` volumes on disk.
    pub empty_dirs: Vec<EmptyDirFacts>,
}

impl Candidate {
    /// Reads it from the pod.
    #[must_use]
    pub fn of(pod: &Pod) -> Candidate {
        let requests = pod_requests(pod);
        let ordinary = pod.containers().iter().map(|it| facts(it, true));
        let init = pod.init_containers().iter().map(|it| facts(it, false));
        Candidate {
            uid: pod.uid().to_owned(),
            priority: pod.spec_or_default().priority.unwrap_or(0),
            is_spared: pod.is_spared_from_eviction(),
            memory_request: requests.memory_bytes(),
            storage_request: requests.ephemeral_storage_bytes(),
            storage_limit: pod_limits(pod).get(EPHEMERAL_STORAGE),
            containers: ordinary.chain(init).collect(),
            empty_dirs: pod.volumes().iter().filter_map(empty_dir).collect(),
        }
    }

    /// Whether something limits what it may use of the node's disks.
    #[must_use]
    pub fn has_storage_limits(&self) -> bool {
        self.storage_limit.is_some() || self.empty_dirs.iter().any(|it| it.limit.is_some())
    }
}

fn facts(container: &Container, is_ordinary: bool) -> ContainerFacts {
    let requests = container_requests(container);
    let requested = |amounts: &ResourceAmounts, name| amounts.get(name).unwrap_or(Quantity::ZERO);
    let limit = container_limits(container).get(EPHEMERAL_STORAGE);
    ContainerFacts {
        name: container.name.clone(),
        memory_request: requested(&requests, MEMORY),
        storage_request: requested(&requests, EPHEMERAL_STORAGE),
        storage_limit: limit.filter(|limit| is_ordinary && !limit.is_zero()),
    }
}

fn empty_dir(volume: &Volume) -> Option<EmptyDirFacts> {
    let source = volume.empty_dir.as_ref()?;
    let is_on_disk = source.medium.as_deref().unwrap_or_default().is_empty();
    let limit = source.size_limit.as_ref();
    let limit = limit.and_then(|limit| Quantity::from_api(limit).ok());
    is_on_disk.then(|| EmptyDirFacts {
        name: volume.name.clone(),
        limit: limit.filter(|limit| !limit.is_zero() && !limit.is_negative()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::quantity;

    #[test]
    fn limits_of_a_pod_are_read_with_its_requests() {
        let mut value = test_pods::manifest("a", "u1");
        let spec = &mut value["spec"];
        spec["containers"][0]["resources"] = json!({
            "requests": {"memory": "64Mi", "ephemeral-storage": "1Mi"},
            "limits": {"ephemeral-storage": "2Mi"},
        });
        spec["initContainers"] = json!([{
            "name": "i", "image": "x", "resources": {"limits": {"ephemeral-storage": "5Mi"}},
        }]);
        spec["volumes"] = json!([
            {"name": "limited", "emptyDir": {"sizeLimit": "1Mi"}},
            {"name": "free", "emptyDir": {}},
            {"name": "zero", "emptyDir": {"sizeLimit": "0"}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "host", "hostPath": {"path": "/x"}},
        ]);
        spec["priority"] = json!(7);
        let found = Candidate::of(&test_pods::pod(value));
        assert_eq!((found.priority, found.is_spared), (7, false));
        assert_eq!(found.memory_request, 64 << 20);
        assert_eq!(found.storage_request, 1 << 20);
        assert_eq!(found.storage_limit, Some(quantity("5Mi")));
        assert_eq!(found.containers[0].storage_limit, Some(quantity("2Mi")));
        assert_eq!(found.containers[1].storage_limit, None);
        let limits: Vec<_> = found
            .empty_dirs
            .iter()
            .map(|it| (&*it.name, it.limit))
            .collect();
        let limited = ("limited", Some(quantity("1Mi")));
        assert_eq!(limits, [limited, ("free", None), ("zero", None)]);
        assert!(found.has_storage_limits());
        assert!(
            !Candidate::of(&test_pods::pod(test_pods::manifest("b", "u2"))).has_storage_limits()
        );
    }
}
