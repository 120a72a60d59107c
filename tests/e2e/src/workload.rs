//! Pods of the test program that keep a journal on the node: how often
//! containers really started and when they ended. And what the runtime has of a
//! pod.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use cri::{ContainerRuntime as _, v1};
use serde_json::{Value, json};
use test_support::journal::{self, Entry};
use test_support::{images, wait_for};
use topology::Process;

use crate::ground::{Ground, TIMEOUT};

/// Where a container finds the directory of journals that it shares with the node.
pub const JOURNALS: &str = "/journals";

/// A pod's spec with these containers, which keep journals on the node.
#[must_use]
pub fn spec(ground: &Ground, containers: &[Value]) -> Value {
    let path = &ground.bulkhead.paths().shared;
    json!({
        "containers": containers,
        "volumes": [{"name": "journals", "hostPath": {"path": path, "type": "Directory"}}],
    })
}

/// A container that is the test program with these words and journals as
/// `journal_name`.
#[must_use]
pub fn container(name: &str, journal_name: &str, words: &[&str]) -> Value {
    let file = format!("{JOURNALS}/journal");
    let mut arguments = vec!["--journal", &*file, "--name", journal_name];
    arguments.extend(words);
    with_journals(json!({"name": name, "image": images::TESTAPP, "args": arguments}))
}

/// The names as which the containers of a pod journal that are the test program.
pub(crate) fn journal_names(pod: &Value) -> impl Iterator<Item = &str> {
    let containers = pod["spec"]["containers"].as_array();
    containers.into_iter().flatten().filter_map(|container| {
        let mut arguments = container["args"].as_array()?.iter().map(Value::as_str);
        arguments.find(|argument| *argument == Some("--journal"))?;
        arguments.find(|argument| *argument == Some("--name"))?;
        arguments.next()?
    })
}

/// A container that runs a script, with the journals at [`JOURNALS`].
#[must_use]
pub fn script(name: &str, script: &str) -> Value {
    let command = ["sh", "-c", script];
    with_journals(json!({"name": name, "image": images::BUSYBOX, "command": command}))
}

fn with_journals(mut container: Value) -> Value {
    container["volumeMounts"] = json!([{"name": "journals", "mountPath": JOURNALS}]);
    container
}

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
