//! A node with Bulkhead on it, and pods of the test program that keep a journal
//! there: how often containers really started, and when they ended.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bulkhead_api::v1::Event;
use cri::{ContainerRuntime as _, v1};
use serde_json::{Map, Value, json};
use test_support::journal::{self, Entry};
use test_support::{
    BulkheadInstance, BulkheadOptions, ContainerdOptions, PrivateContainerd, images, wait_for,
};

/// The longest that anything prompt may take: the machine may be busy.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Where the node's directory of journals is in a container.
pub const JOURNALS: &str = "/journals";

/// The node. What it runs is ended with it.
#[derive(Debug)]
pub struct Node {
    /// The programs under test.
    pub bulkhead: BulkheadInstance,
    /// What they use.
    pub containerd: PrivateContainerd,
}

impl Node {
    /// Starts both with an ordinary configuration.
    ///
    /// # Errors
    /// When one does not come up.
    pub fn start() -> Result<Self> {
        Self::start_with(&Map::new())
    }

    /// Starts both with more fields in the `KubeletConfiguration`.
    ///
    /// # Errors
    /// When one does not come up.
    pub fn start_with(kubelet_configuration: &Map<String, Value>) -> Result<Self> {
        let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
        let options = BulkheadOptions {
            kubelet_configuration: kubelet_configuration.clone(),
            ..BulkheadOptions::default()
        };
        let bulkhead = BulkheadInstance::start(&containerd, &options)?;
        Ok(Self {
            bulkhead,
            containerd,
        })
    }

    /// A pod whose one container `app` is the test program with these words
    /// after `--name NAME`; it keeps the node's journal.
    #[must_use]
    pub fn pod(&self, name: &str, words: &[&str]) -> Value {
        pod(name, json!([self.container("app", name, words)]))
            .with_spec("volumes", json!([self.journals_volume()]))
    }

    /// A container that is the test program under the journal name `journal_name`.
    /// Its pod has to have [`Node::journals_volume`].
    #[must_use]
    pub fn container(&self, name: &str, journal_name: &str, words: &[&str]) -> Value {
        let file = format!("{JOURNALS}/journal");
        let mut arguments = vec!["--journal", &*file, "--name", journal_name];
        arguments.extend(words);
        json!({
            "name": name,
            "image": images::TESTAPP,
            "args": arguments,
            "volumeMounts": [{"name": "journals", "mountPath": JOURNALS}],
        })
    }

    /// The volume with the node's journals.
    #[must_use]
    pub fn journals_volume(&self) -> Value {
        let path = &self.bulkhead.paths().shared;
        json!({"name": "journals", "hostPath": {"path": path, "type": "Directory"}})
    }

    /// Puts a pod's manifest in place, in the file `<name>.yaml`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&self, pod: &Value) -> Result<()> {
        let name = pod["metadata"]["name"].as_str().context("a pod's name")?;
        self.bulkhead
            .write_manifest(&format!("{name}.yaml"), &pod.to_string())
    }

    /// Removes the file that [`Node::put`] made.
    ///
    /// # Errors
    /// When there is none.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.bulkhead.remove_manifest(&format!("{name}.yaml"))
    }

    /// Everything in the journal so far.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn journal(&self) -> Result<Vec<Entry>> {
        let path = self.bulkhead.paths().shared.join("journal");
        Ok(journal::read(&path)?)
    }

    /// How often `event` was noted under `name`.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn noted(&self, name: &str, event: &str) -> Result<usize> {
        Ok(journal::count(&self.journal()?, name, event))
    }

    /// Waits until `event` was noted `count` times under `name`, and returns when
    /// that was, in Unix nanoseconds.
    ///
    /// # Errors
    /// When it is not in time.
    pub fn wait_for_note(&self, name: &str, event: &str, count: usize) -> Result<u128> {
        let what = format!("{name} to note {event:?} {count} times");
        let at = wait_for(&what, TIMEOUT, || {
            let journal = self.journal().map_err(|error| error.to_string())?;
            let mut noted = journal
                .iter()
                .filter(|entry| entry.name == name && entry.event == event);
            match noted.nth(count - 1) {
                Some(entry) => Ok(entry.unix_nanoseconds),
                None => Err(format!("{journal:?}")),
            }
        });
        at.with_context(|| self.report(name))
    }

    /// [`BulkheadInstance::wait_until_pod_ready`], with what a failure needs.
    ///
    /// # Errors
    /// When it is not in time.
    pub fn wait_until_ready(&self, name: &str) -> Result<Value> {
        self.bulkhead
            .wait_until_pod_ready(name, TIMEOUT)
            .with_context(|| self.report(name))
    }

    /// Waits until no status of the pod is left.
    ///
    /// # Errors
    /// When there still is one in the end.
    pub fn wait_until_gone(&self, name: &str) -> Result<()> {
        self.bulkhead
            .wait_until_pod_gone(name, TIMEOUT)
            .with_context(|| self.report(name))
    }

    /// Waits until a pod is as `check` wants it.
    ///
    /// # Errors
    /// When it is not in time.
    pub fn wait_for_pod<T>(
        &self,
        name: &str,
        what: &str,
        check: impl FnMut(&Value) -> Result<T, String>,
    ) -> Result<T> {
        self.bulkhead
            .wait_for_pod(name, what, TIMEOUT, check)
            .with_context(|| self.report(name))
    }

    /// Waits until a pod has this phase.
    ///
    /// # Errors
    /// When it has not in time.
    pub fn wait_for_phase(&self, name: &str, phase: &str) -> Result<Value> {
        self.wait_for_pod(name, &format!("to be {phase}"), |pod| {
            if pod["status"]["phase"] == phase {
                Ok(pod.clone())
            } else {
                Err(format!("phase {}", pod["status"]["phase"]))
            }
        })
    }

    /// The name that a static pod gets on this node.
    #[must_use]
    pub fn full_name(&self, name: &str) -> String {
        format!("{name}-{}", self.bulkhead.node_name())
    }

    /// The containers that the runtime has of the pods called `name`, of all
    /// their UIDs.
    ///
    /// # Errors
    /// When containerd does not answer.
    pub fn containers(&self, name: &str) -> Result<Vec<v1::Container>> {
        let filter = v1::ContainerFilter {
            label_selector: self.selector(name),
            ..v1::ContainerFilter::default()
        };
        let client = self.containerd.client();
        Ok(self.containerd.block_on(client.list_containers(filter))?)
    }

    /// How many of them run.
    ///
    /// # Errors
    /// When containerd does not answer.
    pub fn running(&self, name: &str) -> Result<usize> {
        let containers = self.containers(name)?.into_iter();
        Ok(containers
            .filter(|it| it.state() == v1::ContainerState::ContainerRunning)
            .count())
    }

    /// The sandboxes of the pods called `name`.
    ///
    /// # Errors
    /// When containerd does not answer.
    pub fn sandboxes(&self, name: &str) -> Result<Vec<v1::PodSandbox>> {
        let filter = v1::PodSandboxFilter {
            label_selector: self.selector(name),
            ..v1::PodSandboxFilter::default()
        };
        let client = self.containerd.client();
        Ok(self
            .containerd
            .block_on(client.list_pod_sandboxes(filter))?)
    }

    fn selector(&self, name: &str) -> std::collections::HashMap<String, String> {
        let full_name = self.full_name(name);
        [("io.kubernetes.pod.name".to_owned(), full_name)].into()
    }

    /// Runs `bulkhead` with these words, which has to succeed, and returns what
    /// it printed.
    ///
    /// # Errors
    /// When it fails.
    pub fn bulkhead(&self, words: &[&str]) -> Result<String> {
        let output = self.bulkhead.command_line(words)?;
        if !output.status.success() {
            anyhow::bail!(
                "bulkhead {}: {}: {}",
                words.join(" "),
                output.status,
                output.stderr.trim_end()
            );
        }
        Ok(output.stdout)
    }

    /// Waits for an event that `wanted` takes.
    ///
    /// # Errors
    /// When there is none in time.
    pub fn wait_for_event(&self, what: &str, wanted: impl Fn(&Event) -> bool) -> Result<Event> {
        let event = wait_for(&format!("an event: {what}"), TIMEOUT, || {
            let events = self
                .bulkhead
                .events()
                .map_err(|error| format!("{error:#}"))?;
            let seen = events.iter().map(|event| event.message.clone());
            let seen: Vec<String> = seen.collect();
            events
                .into_iter()
                .find(&wanted)
                .ok_or_else(|| format!("{seen:?}"))
        })?;
        Ok(event)
    }

    /// The manifests' directory joined with a file's name, as the node shows it.
    #[must_use]
    pub fn manifest_path(&self, file_name: &str) -> PathBuf {
        self.bulkhead.paths().manifests.join(file_name)
    }

    /// What helps to find out why a pod is not as it should be.
    fn report(&self, name: &str) -> String {
        let described = self.bulkhead.command_line(&["describe", name]);
        let described = described.map_or_else(
            |error| format!("{error:#}"),
            |output| output.stdout + &output.stderr,
        );
        format!("{described}\n{}", self.bulkhead.log_ends())
    }
}

/// A pod with these containers.
#[must_use]
pub fn pod(name: &str, containers: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 5, "containers": containers},
    })
}

/// Fields of pods in tests.
pub trait PodFields {
    /// The same with a field of the spec.
    #[must_use]
    fn with_spec(self, field: &str, value: Value) -> Value;
    /// The same with a field of the first container.
    #[must_use]
    fn with_container(self, field: &str, value: Value) -> Value;
}

impl PodFields for Value {
    fn with_spec(mut self, field: &str, value: Value) -> Value {
        self["spec"][field] = value;
        self
    }

    fn with_container(mut self, field: &str, value: Value) -> Value {
        self["spec"]["containers"][0][field] = value;
        self
    }
}
