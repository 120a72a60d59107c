//! A containerd and Bulkhead on it, for one measurement; both sides of a
//! comparison use the same containerd.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clock::{UnixNanos, WallClock};
use cri::{RuntimeReads as _, v1};
use serde_json::{Value, json};
use test_support::images::TESTAPP;
use test_support::wait::wait_for_every;
use test_support::{
    BulkheadInstance, BulkheadOptions, ContainerdOptions, PrivateContainerd, journal,
};

/// How long anything may take before the measurement is given up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks: short against what is measured.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Between two looks where the times are read from the journal or from the runtime. Each
/// look takes time on the same processors as what is measured.
const SELDOM: Duration = Duration::from_millis(50);

/// Between two looks at a burst, which takes seconds.
const VERY_SELDOM: Duration = Duration::from_millis(250);

/// Where containers find the journal.
pub(crate) const JOURNAL_DIRECTORY: &str = "/journal";

pub(crate) struct World {
    // Dropped first: Bulkhead is stopped before the containerd below it.
    pub(crate) bulkhead: BulkheadInstance,
    pub(crate) containerd: PrivateContainerd,
}

impl World {
    pub(crate) fn create() -> Result<World> {
        let containerd = PrivateContainerd::start(&ContainerdOptions::default())?;
        let mut options = BulkheadOptions::default();
        options
            .kubelet_configuration
            .insert("maxPods".to_owned(), json!(250));
        let bulkhead = BulkheadInstance::start(&containerd, &options)?;
        let world = World {
            bulkhead,
            containerd,
        };
        std::fs::write(world.mounted_file(), "127.0.0.1 localhost\n")?;
        Ok(world)
    }

    /// A file that direct calls mount into their containers.
    pub(crate) fn mounted_file(&self) -> PathBuf {
        self.bulkhead.paths().shared.join("mounted")
    }

    /// Now, by the clock that journals use.
    pub(crate) fn now() -> UnixNanos {
        WallClock::system().now()
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.bulkhead.paths().shared.join("journal")
    }

    /// The arguments of a test program that notes its life under `name`.
    pub(crate) fn program_arguments(name: &str, more: &[&str]) -> Vec<String> {
        let journal = format!("{JOURNAL_DIRECTORY}/journal");
        let words = ["--journal", &journal, "--name", name];
        words
            .iter()
            .chain(more)
            .map(|word| (*word).to_owned())
            .collect()
    }

    /// A pod with one container that notes its life.
    pub(crate) fn manifest(&self, name: &str, more: &[&str]) -> Value {
        let mut manifest = World::smallest(name);
        let journal =
            json!({"name": "journal", "hostPath": {"path": self.bulkhead.paths().shared}});
        manifest["spec"]["volumes"] = json!([journal]);
        let main = &mut manifest["spec"]["containers"][0];
        main["args"] = json!(World::program_arguments(name, more));
        main["volumeMounts"] = json!([{"name": "journal", "mountPath": JOURNAL_DIRECTORY}]);
        manifest
    }

    /// The smallest pod that goes on running: one container, no volume.
    pub(crate) fn smallest(name: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "terminationGracePeriodSeconds": 5,
                "containers": [{"name": "main", "image": TESTAPP}],
            },
        })
    }

    /// Lets Bulkhead run the pod of [`World::manifest`].
    pub(crate) fn put(&self, name: &str, more: &[&str]) -> Result<()> {
        self.put_manifest(name, &self.manifest(name, more))
    }

    /// Lets Bulkhead run a pod.
    pub(crate) fn put_manifest(&self, name: &str, manifest: &Value) -> Result<()> {
        self.bulkhead
            .write_manifest(&format!("{name}.json"), &manifest.to_string())
    }

    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        self.bulkhead.remove_manifest(&format!("{name}.json"))
    }

    /// When the `nth` (from 0) `event` of `name` was noted.
    pub(crate) fn noted(&self, name: &str, event: &str, nth: usize) -> Result<UnixNanos> {
        let entry = poll_every(SELDOM, &format!("{event} of {name}"), || {
            let entries = journal::read(&self.journal())?;
            let mut matching = entries
                .into_iter()
                .filter(|entry| entry.name == name && entry.event.starts_with(event));
            Ok(matching.nth(nth))
        })?;
        Ok(UnixNanos(
            i64::try_from(entry.unix_nanoseconds).context("a time of a journal")?,
        ))
    }

    /// Waits until so many containers run that were made since `begin`; their ids.
    pub(crate) fn until_run(&self, containers: usize, begin: UnixNanos) -> Result<Vec<String>> {
        let runtime = self.containerd.client();
        poll_every(
            VERY_SELDOM,
            &format!("{containers} running containers"),
            || {
                let all = self
                    .containerd
                    .block_on(runtime.list_containers(v1::ContainerFilter::default()))?;
                let run = all.into_iter().filter(|container| {
                    container.state() == v1::ContainerState::ContainerRunning
                        && container.created_at >= begin.0
                });
                let run: Vec<_> = run.map(|container| container.id).collect();
                Ok((run.len() >= containers).then_some(run))
            },
        )
    }

    /// When the runtime had started each of these.
    pub(crate) fn starts(&self, containers: &[String]) -> Result<Vec<UnixNanos>> {
        let runtime = self.containerd.client();
        let starts = containers.iter().map(|id| {
            let status = self.containerd.block_on(runtime.container_status(id))?;
            Ok(UnixNanos(status.started_at))
        });
        starts.collect()
    }

    /// Waits until the runtime has no pod left, not even a dead one.
    pub(crate) fn until_runtime_is_empty(&self) -> Result<()> {
        let runtime = self.containerd.client();
        poll_every(SELDOM, "the removal of all sandboxes", || {
            let all = runtime.list_pod_sandboxes(v1::PodSandboxFilter::default());
            let all = self.containerd.block_on(all)?;
            Ok(all.is_empty().then_some(()))
        })
    }

    /// Waits until the agent has nothing left of a pod of this name.
    pub(crate) fn until_gone(&self, name: &str) -> Result<()> {
        let full = format!("{name}-{}", self.bulkhead.node_name());
        self.bulkhead.wait_until_pod_gone(&full, PATIENCE)?;
        Ok(())
    }
}

/// Asks again and again, at short intervals; an error ends it at once.
pub(crate) fn poll<T>(what: &str, ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    poll_every(LOOK_INTERVAL, what, ask)
}

/// Asks again and again, at such intervals; an error ends it at once.
pub(crate) fn poll_every<T>(
    interval: Duration,
    what: &str,
    mut ask: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    wait_for_every(interval, what, PATIENCE, || match ask() {
        Ok(Some(answer)) => Ok(Ok(answer)),
        Ok(None) => Err("it is not there"),
        Err(error) => Ok(Err(error)),
    })?
}
