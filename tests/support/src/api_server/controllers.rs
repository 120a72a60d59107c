//! The smallest controllers that there can be, of Deployments, Jobs and `DaemonSets`. What has
//! lost its owner is deleted, and pods are bound to the one node at once. Pure.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use serde_json::{Value, json};

/// The label that pods of one version of a template have in common.
const HASH_LABEL: &str = "pod-template-hash";

/// Pods of a Deployment that are more than wished during an update: a quarter.
const SURGE_PARTS: usize = 4;

/// What is to be done next.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Action {
    /// Create this pod.
    Create(Value),
    /// Delete this pod with its own grace.
    Delete(Arc<Value>),
    /// Write this version of an object of a resource.
    Update(&'static str, Value),
}

/// What there is.
pub(super) struct Cluster {
    pub(super) nodes: Vec<Arc<Value>>,
    pub(super) pods: Vec<Arc<Value>>,
    pub(super) deployments: Vec<Arc<Value>>,
    pub(super) daemon_sets: Vec<Arc<Value>>,
    pub(super) jobs: Vec<Arc<Value>>,
    /// Different at each call; names pods.
    pub(super) number: u64,
    /// As objects have it.
    pub(super) now: String,
}

impl Cluster {
    /// The next step; none when all is as it should be.
    pub(super) fn next(&self) -> Option<Action> {
        self.orphan()
            .or_else(|| self.deployments.iter().find_map(|it| self.deployment(it)))
            .or_else(|| self.daemon_sets.iter().find_map(|it| self.daemon_set(it)))
            .or_else(|| self.jobs.iter().find_map(|it| self.job(it)))
            .or_else(|| self.binding())
    }

    fn orphan(&self) -> Option<Action> {
        let owners = [&self.deployments, &self.daemon_sets, &self.jobs];
        let owners = || owners.into_iter().flatten().chain(&self.nodes);
        let is_orphan = |pod: &&Arc<Value>| {
            let owner = &pod["metadata"]["ownerReferences"][0]["uid"];
            !owner.is_null()
                && !is_deleted(pod)
                && owners().all(|it| it["metadata"]["uid"] != *owner)
        };
        let found = self.pods.iter().find(is_orphan);
        found.map(|pod| Action::Delete(Arc::clone(pod)))
    }

    /// Pods of an owner that are not being deleted.
    fn pods_of(&self, owner: &Value) -> Vec<&Arc<Value>> {
        let uid = &owner["metadata"]["uid"];
        let own = self
            .pods
            .iter()
            .filter(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == *uid && !is_deleted(pod));
        own.collect()
    }

    /// New pods come first, then old ones go as new ones become ready.
    fn deployment(&self, deployment: &Value) -> Option<Action> {
        let wished = count(&deployment["spec"]["replicas"], 1);
        let hash = hash(&deployment["spec"]["template"]);
        let (new, old): (Vec<_>, Vec<_>) = self
            .pods_of(deployment)
            .into_iter()
            .partition(|pod| pod["metadata"]["labels"][HASH_LABEL] == *hash);
        let total = new.len() + old.len();
        let ready = new.iter().chain(&old).filter(|pod| is_ready(pod)).count();
        if new.len() < wished && total < wished + wished.div_ceil(SURGE_PARTS) {
            return Some(self.create("Deployment", deployment, &hash));
        }
        let unready =
            |pods: &[&Arc<Value>]| pods.iter().find(|pod| !is_ready(pod)).copied().cloned();
        let is_enough = ready > wished || wished == 0;
        let victim = match (old.first(), is_enough) {
            (Some(first), true) => Some(Arc::clone(first)),
            (Some(_), false) => unready(&old),
            (None, _) if new.len() > wished => {
                unready(&new).or_else(|| new.last().copied().cloned())
            }
            (None, _) => None,
        };
        victim.map(Action::Delete)
    }

    fn daemon_set(&self, daemon_set: &Value) -> Option<Action> {
        let is_wished = self.pods_of(daemon_set).is_empty() && !self.nodes.is_empty();
        let hash = hash(&daemon_set["spec"]["template"]);
        is_wished.then(|| self.create("DaemonSet", daemon_set, &hash))
    }

    fn job(&self, job: &Value) -> Option<Action> {
        let pods = self.pods_of(job);
        let of_phase = |phase: &str| {
            let phase = json!(phase);
            pods.iter()
                .filter(|pod| pod["status"]["phase"] == phase)
                .count()
        };
        let succeeded = of_phase("Succeeded");
        let active = pods.len() - succeeded - of_phase("Failed");
        let completions = count(&job["spec"]["completions"], 1);
        let parallelism = count(&job["spec"]["parallelism"], 1);
        if active < parallelism.min(completions.saturating_sub(succeeded)) {
            let hash = hash(&job["spec"]["template"]);
            return Some(self.create("Job", job, &hash));
        }
        let mut status = json!({"active": active, "succeeded": succeeded});
        if succeeded >= completions {
            status["conditions"] = json!([{"type": "Complete", "status": "True"}]);
        }
        let mut new = job.clone();
        new["status"] = status;
        (new != *job).then_some(Action::Update("jobs", new))
    }

    fn create(&self, kind: &str, owner: &Value, hash: &str) -> Action {
        let mut pod = owner["spec"]["template"].clone();
        let name = owner["metadata"]["name"].as_str().unwrap_or_default();
        let metadata = &mut pod["metadata"];
        metadata["name"] = json!(format!("{name}-{hash}-{}", self.number));
        metadata["namespace"] = owner["metadata"]["namespace"].clone();
        metadata["labels"][HASH_LABEL] = json!(hash);
        metadata["ownerReferences"] = json!([{
            "apiVersion": owner["apiVersion"],
            "kind": kind,
            "name": name,
            "uid": owner["metadata"]["uid"],
            "controller": true,
        }]);
        Action::Create(pod)
    }

    fn binding(&self) -> Option<Action> {
        let mut nodes = self.nodes.iter();
        let node = nodes.find(|node| node["spec"]["unschedulable"] != true)?;
        let is_free = |pod: &&Arc<Value>| pod["spec"]["nodeName"].is_null() && !is_deleted(pod);
        let mut pod = (**self.pods.iter().find(is_free)?).clone();
        pod["spec"]["nodeName"] = node["metadata"]["name"].clone();
        let scheduled = json!({
            "type": "PodScheduled",
            "status": "True",
            "lastTransitionTime": self.now,
        });
        pod["status"]["conditions"] = json!([scheduled]);
        Some(Action::Update("pods", pod))
    }
}

fn is_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
}

fn count(value: &Value, usual: usize) -> usize {
    let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
    count.unwrap_or(usual)
}

fn hash(template: &Value) -> String {
    let mut hasher = DefaultHasher::new();
    template.to_string().hash(&mut hasher);
    format!("{:08x}", hasher.finish() >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deployment(replicas: usize, version: &str) -> Arc<Value> {
        Arc::new(
            json!({"metadata": {"name": "web", "uid": "d"}, "spec": {"replicas": replicas,
            "template": {"metadata": {"annotations": {"version": version}}, "spec": {}}}}),
        )
    }

    fn pod_of(deployment: &Value, is_ready: bool) -> Arc<Value> {
        let status = if is_ready { "True" } else { "False" };
        Arc::new(json!({
            "metadata": {"labels": {HASH_LABEL: hash(&deployment["spec"]["template"])},
                "ownerReferences": [{"uid": "d"}]},
            "spec": {"nodeName": "n"},
            "status": {"conditions": [{"type": "Ready", "status": status}]},
        }))
    }

    #[test]
    fn an_update_makes_new_pods_before_old_ones_go() {
        let (old, new) = (deployment(2, "1"), deployment(2, "2"));
        let of = |old_pods: &[bool], new_pods: &[bool]| {
            let old_pods = old_pods.iter().map(|ready| pod_of(&old, *ready));
            let new_pods = new_pods.iter().map(|ready| pod_of(&new, *ready));
            let cluster = Cluster {
                nodes: Vec::new(),
                pods: old_pods.chain(new_pods).collect(),
                deployments: vec![Arc::clone(&new)],
                daemon_sets: Vec::new(),
                jobs: Vec::new(),
                number: 7,
                now: String::new(),
            };
            match cluster.next() {
                Some(Action::Create(_)) => "create",
                Some(Action::Delete(pod)) if *pod == *pod_of(&old, true) => "delete old",
                Some(Action::Delete(pod)) if *pod == *pod_of(&old, false) => "delete unready",
                Some(other) => panic!("{other:?}"),
                None => "wait",
            }
        };
        for (old_pods, new_pods, expected) in [
            (&[true, true][..], &[][..], "create"),
            (&[true, true], &[false], "wait"),
            (&[true, true], &[true], "delete old"),
            (&[true, false], &[false], "delete unready"),
            (&[true], &[true], "create"),
            (&[true], &[true, false], "wait"),
            (&[true], &[true, true], "delete old"),
            (&[], &[true, true], "wait"),
        ] {
            assert_eq!(
                of(old_pods, new_pods),
                expected,
                "{old_pods:?} {new_pods:?}"
            );
        }
    }
}
