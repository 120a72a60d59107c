//! A kubelet of the control plane's own build, on a node of its own: what Bulkhead is compared
//! with.

use std::fs::{self, File};
use std::process::Child;

use anyhow::{Context as _, Result};
use serde_json::json;
use test_support::{ContainerdOptions, PrivateContainerd, cgroup};

use crate::control_plane::ControlPlane;

/// A control plane with one node of a kubelet.
pub struct KubeletCluster {
    kubelet: Child,
    /// The control plane.
    pub plane: ControlPlane,
    /// The runtime.
    pub containerd: PrivateContainerd,
}

impl KubeletCluster {
    /// Starts both, and waits until the Node is ready. None where this machine has no control
    /// plane, which is said.
    ///
    /// # Errors
    /// When something does not come up.
    pub fn start() -> Result<Option<KubeletCluster>> {
        KubeletCluster::start_with_flags(&[])
    }

    /// The same with these flags of the API server.
    ///
    /// # Errors
    /// When something does not come up.
    pub fn start_with_flags(flags: &[&str]) -> Result<Option<KubeletCluster>> {
        let Some(assets) = ControlPlane::assets() else {
            test_support::not_tried("a kubelet beside: KUBEBUILDER_ASSETS is not set");
            return Ok(None);
        };
        let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
        let node = containerd.node();
        let plane = ControlPlane::start_with(node, &node.host_name(), flags)?;
        // A kubelet wants its cgroup to be there.
        for hierarchy in cgroup::hierarchies()? {
            fs::create_dir_all(hierarchy.join(node.name()))?;
        }
        let directory = node.directory().join("kubelet");
        fs::create_dir(&directory)?;
        let resolv_conf = directory.join("resolv.conf");
        fs::write(&resolv_conf, "nameserver 127.0.0.1\n")?;
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": node.cgroup_root(),
            "containerRuntimeEndpoint": containerd.endpoint(),
            "resolvConf": resolv_conf,
            "failSwapOn": false,
            "failCgroupV1": false,
            "evictionHard": {"imagefs.available": "0%"},
            // A full disk of this machine is no reason to remove the tests' images.
            "imageGCHighThresholdPercent": 100,
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": false},
                "x509": {"clientCAFile": plane.client_authority()},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "podLogsDir": directory.join("logs"),
        });
        let config_path = directory.join("config.json");
        fs::write(&config_path, config.to_string())?;
        let mut command = node.command(assets.join("kubelet"));
        let address = node.address();
        command.args([
            format!("--config={}", config_path.display()),
            format!("--kubeconfig={}", plane.node_kubeconfig()),
            format!("--root-dir={}", directory.join("root").display()),
            format!("--cert-dir={}", directory.join("pki").display()),
            format!("--hostname-override={}", node.host_name()),
            format!("--node-ip={address}"),
        ]);
        let log = File::create(directory.join("kubelet.log"))?;
        command.stdout(log.try_clone()?).stderr(log);
        let kubelet = node.spawn(command).context("cannot start the kubelet")?;
        let name = node.host_name();
        let cluster = KubeletCluster {
            kubelet,
            plane,
            containerd,
        };
        let ready = cluster.plane.until_node_ready(&name);
        ready.with_context(|| {
            let log = fs::read_to_string(directory.join("kubelet.log")).unwrap_or_default();
            let from = log.len().saturating_sub(4000);
            log.get(from..).unwrap_or_default().to_owned()
        })?;
        Ok(Some(cluster))
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.kubelet.id()
    }

    /// The Node's name.
    #[must_use]
    pub fn node_name(&self) -> String {
        self.containerd.node().host_name()
    }
}

impl Drop for KubeletCluster {
    fn drop(&mut self) {
        drop(self.kubelet.kill());
        drop(self.kubelet.wait());
    }
}
