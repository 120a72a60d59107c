//! A control plane with one node of Bulkhead.

use std::time::Duration;

use anyhow::{Context as _, Result};
use cri::{RuntimeReads as _, v1};
use e2e::Ground;
use serde_json::{Value, json};
use test_support::{BulkheadOptions, ContainerdOptions, PrivateContainerd, wait_for};

use crate::condition::condition;
use crate::control_plane::ControlPlane;

/// How long anything may take, on a busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Both; the node goes first.
pub struct Cluster {
    /// The node.
    pub ground: Ground,
    /// The control plane.
    pub plane: ControlPlane,
}

impl Cluster {
    /// Starts both, on a node that trusts the API server as a kubelet does, and waits until the
    /// Node is ready.
    ///
    /// # Errors
    /// When something does not come up.
    pub fn start() -> Result<Cluster> {
        Cluster::start_with(None, &[], |_, _| Ok(()))
    }

    /// The same with this node policy.
    ///
    /// # Errors
    /// When something does not come up.
    pub fn start_with_policy(policy: Option<String>) -> Result<Cluster> {
        Cluster::start_with(policy, &[], |_, _| Ok(()))
    }

    /// The same, after something was done with the control plane and the node's name.
    ///
    /// # Errors
    /// When something does not come up.
    pub fn start_after(prepare: impl FnOnce(&ControlPlane, &str) -> Result<()>) -> Result<Cluster> {
        Cluster::start_with(None, &[], prepare)
    }

    /// The same with these flags of a real API server.
    ///
    /// # Errors
    /// When something does not come up.
    pub fn start_with_flags(flags: &[&str]) -> Result<Cluster> {
        Cluster::start_with(None, flags, |_, _| Ok(()))
    }

    fn start_with(
        policy: Option<String>,
        flags: &[&str],
        prepare: impl FnOnce(&ControlPlane, &str) -> Result<()>,
    ) -> Result<Cluster> {
        let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
        let name = containerd.node().host_name();
        let plane = ControlPlane::start_with(containerd.node(), &name, flags)?;
        prepare(&plane, &name)?;
        let authentication = json!({"x509": {"clientCAFile": plane.client_authority()}});
        let options = BulkheadOptions {
            kubelet_configuration: [("authentication".to_owned(), authentication)]
                .into_iter()
                .collect(),
            flags: vec![format!("--kubeconfig={}", plane.node_kubeconfig())],
            policy,
            ..BulkheadOptions::default()
        };
        let ground = Ground::on(containerd, &options)?;
        let cluster = Cluster { ground, plane };
        let ready = cluster.plane.until_node_ready(&name);
        ready.with_context(|| cluster.ground.bulkhead.log_ends())?;
        Ok(cluster)
    }

    /// Waits until something holds.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn until(&self, what: &str, holds: impl Fn() -> Result<bool>) -> Result<()> {
        wait_for(what, TIMEOUT, || match holds() {
            Ok(true) => Ok(()),
            Ok(false) => Err("it does not hold".to_owned()),
            Err(error) => Err(format!("{error:#}")),
        })
        .map(drop)
        .with_context(|| self.ground.bulkhead.log_ends())
    }

    /// The Node's name.
    #[must_use]
    pub fn node_name(&self) -> &str {
        self.ground.bulkhead.node_name()
    }

    /// Waits until that many pods with a label `app` are ready, and there are no others.
    ///
    /// # Errors
    /// When they are not in time.
    pub fn until_ready(&self, app: &str, count: usize) -> Result<Vec<Value>> {
        self.until(&format!("{count} pods of {app} to be ready"), || {
            let pods = self.pods(app)?;
            let is_ready = |pod: &&Value| condition(pod, "Ready") == "True";
            Ok(pods.len() == count && pods.iter().filter(is_ready).count() == count)
        })?;
        self.pods(app)
    }

    /// The ids of the containers that a pod of this name, as the API server has it, has at the
    /// runtime, and whether they run.
    ///
    /// # Errors
    /// When the runtime does not answer.
    pub fn containers(&self, pod: &str) -> Result<Vec<(String, bool)>> {
        let label = ("io.kubernetes.pod.name".to_owned(), pod.to_owned());
        let filter = v1::ContainerFilter {
            label_selector: [label].into(),
            ..v1::ContainerFilter::default()
        };
        let containerd = &self.ground.containerd;
        let found = containerd.block_on(containerd.client().list_containers(filter))?;
        let is_running = |it: &v1::Container| it.state() == v1::ContainerState::ContainerRunning;
        let told = found.into_iter().map(|it| (it.id.clone(), is_running(&it)));
        Ok(told.collect())
    }

    /// The pods with a label `app`.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub fn pods(&self, app: &str) -> Result<Vec<Value>> {
        self.plane.pods(app)
    }
}
