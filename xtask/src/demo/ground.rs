//! What the demo stands on: a containerd of its own, or a given one that must
//! be left as it was found.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use cri::{RuntimeChanges as _, RuntimeReads as _, v1};
use test_support::{
    BulkheadInstance, Containerd, ContainerdOptions, PrivateContainerd, TestNode, images, wait_for,
};

/// The examples' longest grace period, and some.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(60);

/// The label that every Kubernetes sandbox has with its pod's uid.
const POD_NAME_LABEL: &str = "io.kubernetes.pod.name";

/// A containerd with the test images in it.
pub(crate) enum Ground {
    /// Ends with the demo, so nothing in it needs care.
    Private(PrivateContainerd),
    /// Somebody else's.
    Existing {
        containerd: Containerd,
        /// Images that were brought along and are taken away again.
        brought: Vec<String>,
    },
}

impl Ground {
    /// A containerd of our own.
    pub(crate) fn private() -> Result<Self> {
        Ok(Self::Private(PrivateContainerd::start(
            &ContainerdOptions::default(),
        )?))
    }

    /// The containerd that listens on `socket`.
    pub(crate) fn existing(socket: &Path) -> Result<Self> {
        let node = Arc::new(TestNode::create_on_this_machine()?);
        let containerd = Containerd::attach(&node, socket)?;
        containerd
            .check_ready()
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("containerd behind {} is not ready", socket.display()))?;
        let foreign = sandboxes(&containerd, "")?;
        if !foreign.is_empty() {
            bail!(
                "containerd behind {} has {} pods of another node agent, which Bulkhead would \
                 remove: give one without pods",
                socket.display(),
                foreign.len()
            );
        }
        let before = image_names(&containerd)?;
        for archive in images::archives()? {
            containerd.import(&archive)?;
        }
        let after = image_names(&containerd)?;
        let brought = after.difference(&before).cloned().collect();
        Ok(Self::Existing {
            containerd,
            brought,
        })
    }

    /// The containerd, whosever it is.
    pub(crate) fn containerd(&self) -> &Containerd {
        match self {
            Self::Private(containerd) => containerd,
            Self::Existing { containerd, .. } => containerd,
        }
    }

    /// Has the pods of this instance ended by Bulkhead, the way a user would,
    /// where they would be left behind otherwise. What its garbage collection
    /// would remove within minutes is removed when this is dropped.
    pub(crate) fn remove_pods(&self, bulkhead: &BulkheadInstance) -> Result<()> {
        let Self::Existing { containerd, .. } = self else {
            return Ok(());
        };
        for entry in std::fs::read_dir(&bulkhead.paths().manifests)? {
            std::fs::remove_file(entry?.path())?;
        }
        let suffix = format!("-{}", bulkhead.node_name());
        wait_for("the example pods to be removed", REMOVAL_TIMEOUT, || {
            let mut left = sandboxes(containerd, &suffix)?;
            left.retain(|sandbox| sandbox.state() == v1::PodSandboxState::SandboxReady);
            if left.is_empty() {
                Ok(())
            } else {
                Err(anyhow::anyhow!("{} are left", left.len()))
            }
        })?;
        Ok(())
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let Self::Existing {
            containerd,
            brought,
        } = self
        else {
            return;
        };
        // Dead ones; and living ones, if Bulkhead failed.
        let suffix = format!("-{}", containerd.node().host_name());
        for sandbox in sandboxes(containerd, &suffix).unwrap_or_default() {
            let client = containerd.client();
            let _ = containerd.block_on(client.stop_pod_sandbox(&sandbox.id));
            let _ = containerd.block_on(client.remove_pod_sandbox(&sandbox.id));
        }
        for image in brought.iter() {
            let _ = containerd.ctr(&["images", "remove", image]);
        }
    }
}

fn image_names(containerd: &Containerd) -> Result<BTreeSet<String>> {
    let names = containerd.ctr(&["images", "list", "--quiet"])?;
    Ok(names.lines().map(str::to_owned).collect())
}

/// The sandboxes of pods whose name ends so.
fn sandboxes(containerd: &Containerd, suffix: &str) -> Result<Vec<v1::PodSandbox>> {
    let all = containerd
        .block_on(
            containerd
                .client()
                .list_pod_sandboxes(v1::PodSandboxFilter::default()),
        )
        .context("cannot list the sandboxes")?;
    let ours = all.into_iter().filter(|sandbox| {
        sandbox
            .labels
            .get(POD_NAME_LABEL)
            .is_some_and(|name| name.ends_with(suffix))
    });
    Ok(ours.collect())
}
