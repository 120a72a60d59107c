//! What a test of pods stands on: a private containerd, all parts running on
//! it, and pods written as plain values.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use cri::{RuntimeReads as _, v1};
use serde_json::{Value, json};
use test_support::journal::{self, Entry};
use test_support::observe::container_id;
use test_support::{
    BulkheadInstance, BulkheadOptions, ContainerdOptions, PrivateContainerd, TestNode, wait_for,
};
use topology::Process;

use crate::workload::{container, journal_names};
use crate::{credential_program, unreachable_cluster};

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

/// Options with which each process runs, those too that not every node has.
///
/// # Errors
/// When their files cannot be written.
pub fn every_process(directory: &Path) -> Result<BulkheadOptions> {
    let mut options = credential_program::install(directory, "exit 1", &["a.io".to_owned()])?;
    options.flags.push(unreachable_cluster::install(directory)?);
    Ok(options)
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

    /// With every process that there is: a program gives credentials of a registry that
    /// nobody asks for.
    ///
    /// # Errors
    /// When something does not come up.
    pub fn with_every_process() -> Result<Self> {
        let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
        let directory = containerd.node().directory_of(0);
        let options = every_process(&directory)?;
        Ok(Self {
            bulkhead: BulkheadInstance::start(&containerd, &options)?,
            containerd,
        })
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

    /// On a containerd that runs.
    ///
    /// # Errors
    /// When Bulkhead does not come up.
    pub fn on(containerd: PrivateContainerd, options: &BulkheadOptions) -> Result<Self> {
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
    /// anything. Returns the pod with its spec.
    ///
    /// # Errors
    /// When it does not get ready.
    pub fn ready(&self, name: &str) -> Result<Value> {
        let pod = self.bulkhead.wait_until_pod_ready(name, TIMEOUT)?;
        // A status may be known again before the pod is, after a restart.
        let pod = wait_for(&format!("the spec of {name}"), TIMEOUT, || {
            let found = self.bulkhead.with_spec(pod.clone());
            found.map_err(|error| format!("{error:#}"))
        })?;
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

/// A pod's spec with these containers, which keep journals on the node.
#[must_use]
pub fn spec(ground: &Ground, containers: &[Value]) -> Value {
    let path = &ground.bulkhead.paths().shared;
    json!({
        "containers": containers,
        "volumes": [{"name": "journals", "hostPath": {"path": path, "type": "Directory"}}],
    })
}

/// What tests look at and do on the way.
impl Ground {
    /// A spec with one container `app`, which journals as `journal_name`.
    #[must_use]
    pub fn app(&self, journal_name: &str, words: &[&str]) -> Value {
        spec(self, &[container("app", journal_name, words)])
    }

    /// Removes the manifest of a pod and waits for nothing.
    ///
    /// # Errors
    /// When there is none.
    pub fn take_away(&self, name: &str) -> Result<()> {
        self.bulkhead.remove_manifest(&format!("{name}.json"))
    }

    /// Everything that containers noted so far.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn journal(&self) -> Result<Vec<Entry>> {
        Ok(journal::read(
            &self.bulkhead.paths().shared.join("journal"),
        )?)
    }

    /// How often `event` was noted as `name`.
    ///
    /// # Errors
    /// When the journal cannot be read.
    pub fn noted(&self, name: &str, event: &str) -> Result<usize> {
        Ok(journal::count(&self.journal()?, name, event))
    }

    /// Waits until `event` was noted `count` times as `name`; when that was, in
    /// Unix nanoseconds.
    ///
    /// # Errors
    /// When it was not in time.
    pub fn note(&self, name: &str, event: &str, count: usize) -> Result<u128> {
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
        at.with_context(|| self.bulkhead.log_ends())
    }

    /// Waits until a pod has this phase and returns it.
    ///
    /// # Errors
    /// When it has not in time.
    pub fn phase(&self, name: &str, phase: &str) -> Result<Value> {
        let what = format!("to be {phase}");
        let pod = self.bulkhead.wait_for_pod(name, &what, TIMEOUT, |pod| {
            if pod["status"]["phase"] == phase {
                Ok(pod.clone())
            } else {
                Err("it is not".to_owned())
            }
        });
        pod.with_context(|| self.bulkhead.log_ends())
    }

    /// Waits until no status of a pod is left.
    ///
    /// # Errors
    /// When there is one in the end.
    pub fn gone(&self, name: &str) -> Result<()> {
        let gone = self.bulkhead.wait_until_pod_gone(name, TIMEOUT);
        gone.with_context(|| self.bulkhead.log_ends())
    }

    /// What the runtime has of the pods that are called so, of every UID.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn containers(&self, name: &str) -> Result<Vec<v1::Container>> {
        let filter = v1::ContainerFilter {
            label_selector: self.selector(name),
            ..v1::ContainerFilter::default()
        };
        let client = self.containerd.client();
        Ok(self.containerd.block_on(client.list_containers(filter))?)
    }

    /// How many of [`Ground::containers`] run.
    ///
    /// # Errors
    /// When the runtime does not answer.
    pub fn running(&self, name: &str) -> Result<usize> {
        let containers = self.containers(name)?.into_iter();
        Ok(containers
            .filter(|it| it.state() == v1::ContainerState::ContainerRunning)
            .count())
    }

    /// The sandboxes of the pods that are called so.
    ///
    /// # Errors
    /// When the runtime does not answer.
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

    /// The name that a static pod gets on this node.
    #[must_use]
    pub fn full_name(&self, name: &str) -> String {
        format!("{name}-{}", self.bulkhead.node_name())
    }

    fn selector(&self, name: &str) -> BTreeMap<String, String> {
        let label = "io.kubernetes.pod.name".to_owned();
        [(label, self.full_name(name))].into()
    }

    /// What `bulkhead` prints; it has to succeed.
    ///
    /// # Errors
    /// When it does not.
    pub fn printed(&self, words: &[&str]) -> Result<String> {
        let output = self.bulkhead.command_line(words)?;
        if !output.status.success() {
            bail!(
                "bulkhead {}: {}: {}",
                words.join(" "),
                output.status,
                output.stderr.trim_end()
            );
        }
        Ok(output.stdout)
    }

    /// Waits until what `bulkhead logs` prints with these words begins with what is
    /// expected, and returns it: the runtime copies a log from its container, and takes
    /// its time.
    ///
    /// # Errors
    /// When it does not in time, or the command fails.
    pub fn logged(&self, words: &[&str], expected: &str) -> Result<String> {
        let log = wait_for(
            &format!("the log to begin with {expected:?}"),
            TIMEOUT,
            || {
                let log = self.printed(&[&["logs"], words].concat());
                let log = log.map_err(|error| format!("{error:#}"))?;
                match log.starts_with(expected) {
                    true => Ok(log),
                    false => Err(log),
                }
            },
        )?;
        Ok(log)
    }

    /// Has the next round of garbage collection come within seconds: it comes
    /// once a minute, and soon after sync-loop has started.
    ///
    /// # Errors
    /// When sync-loop cannot be restarted.
    pub fn collect_garbage_soon(&self) -> Result<()> {
        self.printed(&["restart", Process::SyncLoop.name()])
            .map(drop)
    }

    /// Where a manifest of this file name is.
    #[must_use]
    pub fn manifest(&self, file_name: &str) -> PathBuf {
        self.bulkhead.paths().manifests.join(file_name)
    }
}
