//! What a test of pods stands on: a private containerd, all parts running on
//! it, and pods written as plain values.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use test_support::observe::container_id;
use test_support::{
    BulkheadInstance, BulkheadOptions, ContainerdOptions, PrivateContainerd, TestNode, wait_for,
};

use crate::workload::journal_names;

/// Long enough for anything that takes seconds on an idle machine.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// A node with everything on it. The fields are dropped in their order: the
/// containers go with the node.
#[derive(Debug)]
pub struct Ground {
    /// The parts.
    pub bulkhead: BulkheadInstance,
    /// The runtime.
    pub containerd: PrivateContainerd,
}

impl Ground {
    /// With these fields in the KubeletConfiguration.
    ///
    /// # Errors
    /// When something does not come up.
    pub fn start(kubelet_configuration: Value) -> Result<Self> {
        let kubelet_configuration = match kubelet_configuration {
            Value::Object(fields) => fields,
            _ => serde_json::Map::new(),
        };
        let options = BulkheadOptions {
            kubelet_configuration,
            ..BulkheadOptions::default()
        };
        Self::start_with(&options)
    }

    /// With all that can be chosen.
    ///
    /// # Errors
    /// When something does not come up.
    pub fn start_with(options: &BulkheadOptions) -> Result<Self> {
        let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
        Ok(Self {
            bulkhead: BulkheadInstance::start(&containerd, options)?,
            containerd,
        })
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &TestNode {
        self.bulkhead.node()
    }

    /// Puts the manifest of a pod in place. Its containers take a second to
    /// stop unless it says otherwise.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn apply(&self, name: &str, mut spec: Value) -> Result<()> {
        if spec.get("terminationGracePeriodSeconds").is_none() {
            spec["terminationGracePeriodSeconds"] = json!(1);
        }
        let manifest = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name },
            "spec": spec,
        });
        let file_name = format!("{name}.json");
        self.bulkhead
            .write_manifest(&file_name, &manifest.to_string())
    }

    /// Removes the manifest of a pod and waits until the pod is gone.
    ///
    /// # Errors
    /// When it stays.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.bulkhead.remove_manifest(&format!("{name}.json"))?;
        Ok(self.bulkhead.wait_until_pod_gone(name, TIMEOUT)?)
    }

    /// The pod as it is now.
    ///
    /// # Errors
    /// When there is none.
    pub fn pod(&self, name: &str) -> Result<Value> {
        let pod = self.bulkhead.pod(name)?;
        pod.with_context(|| format!("there is no pod {name}"))
    }

    /// Waits until a pod is ready, and what its containers note first is noted: a
    /// container without a readiness probe is ready before its program has done
    /// anything. Returns the pod.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn ready(&self, name: &str) -> Result<Value> {
        let pod = self.bulkhead.wait_until_pod_ready(name, TIMEOUT)?;
        for journal_name in journal_names(&pod) {
            self.note(journal_name, "started", 1)?;
        }
        Ok(pod)
    }

    /// Runs a command in one of a pod's containers and returns its output.
    ///
    /// # Errors
    /// When it fails.
    pub fn exec(&self, pod: &str, container: &str, command: &[&str]) -> Result<String> {
        let pod = self.pod(pod)?;
        let id = container_id(&pod, container).context("the container never ran")?;
        self.containerd.exec(id, command)
    }

    /// Waits for a pod's event of this reason whose message holds `words`, and
    /// returns the message.
    ///
    /// # Errors
    /// When there is none in time; with the pod's events.
    pub fn event(&self, pod: &str, reason: &str, words: &str) -> Result<String> {
        let found = wait_for(
            &format!("the event {reason} of {pod} with {words:?}"),
            TIMEOUT,
            || {
                let events = self.events_of(pod).map_err(|error| format!("{error:#}"))?;
                let mut matching = events.iter();
                matching
                    .find(|(found, message)| found == reason && message.contains(words))
                    .map(|(_, message)| message.clone())
                    .ok_or_else(|| format!("{events:?}"))
            },
        );
        Ok(found?)
    }

    /// Reasons and messages of a pod's events so far.
    ///
    /// # Errors
    /// When nobody answers.
    pub fn events_of(&self, pod: &str) -> Result<Vec<(String, String)>> {
        let full_name = format!("{pod}-{}", self.bulkhead.node_name());
        let of_pod = |event: &bulkhead_api::v1::Event| {
            let reference = event.pod.as_ref();
            reference.is_some_and(|pod| pod.name == full_name)
        };
        let events = self.bulkhead.events()?.into_iter().filter(of_pod);
        Ok(events.map(|event| (event.reason, event.message)).collect())
    }
}

/// A pod's address with a port.
///
/// # Errors
/// When it has none yet.
pub fn address(pod: &Value, port: u16) -> Result<SocketAddr> {
    let ip = pod["status"]["podIP"].as_str().context("no address yet")?;
    Ok(SocketAddr::new(ip.parse::<IpAddr>()?, port))
}
