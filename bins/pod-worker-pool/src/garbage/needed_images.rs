//! Images that no container has and that are needed all the same: that of sandboxes, without
//! which no pod can start and of which containerd before 1.7 does not say that it is pinned,
//! and those of pods that are to start, since nobody may be there to pull them from.

use std::collections::BTreeSet;

use bulkhead_api::v1::WorkerPhase;
use cri::{RuntimeError, v1};
use pod::PodExt;
use serde::Deserialize;

use super::collection::Collection;

/// Longest configuration of a runtime that is looked into; that of containerd has 3 KiB.
const MAX_CONFIG_BYTES: usize = 1 << 20;

/// What of the configuration matters; that of containerd and of CRI-O has it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    sandbox_image: String,
}

/// What is needed at a moment.
pub(super) struct NeededImages {
    /// What the pods call theirs.
    of_pods: BTreeSet<String>,
    /// By which names and ids the runtime may list them all.
    all: BTreeSet<String>,
}

impl NeededImages {
    /// What is needed now; `None` if that cannot be found out.
    pub(super) async fn find(with: &Collection) -> Option<NeededImages> {
        NeededImages::with_those_of_pods(with, of_pods(with).await?).await
    }

    /// The same after a while, in which pods may have come. The runtime is asked only then.
    pub(super) async fn renewed(self, with: &Collection) -> Option<NeededImages> {
        let of_pods = of_pods(with).await?;
        if of_pods == self.of_pods {
            return Some(self);
        }
        NeededImages::with_those_of_pods(with, of_pods).await
    }

    async fn with_those_of_pods(
        with: &Collection,
        of_pods: BTreeSet<String>,
    ) -> Option<NeededImages> {
        let mut all = of_pods.clone();
        let ids = ids(with, &mut all)
            .await
            .inspect_err(|error| tracing::warn!(%error, "no image is removed: it may be needed"));
        all.extend(ids.ok()?);
        Some(NeededImages { of_pods, all })
    }

    pub(super) fn names(&self) -> &BTreeSet<String> {
        &self.all
    }
}

/// The ids of all these images and of that of sandboxes, whose name is added.
async fn ids(
    with: &Collection,
    names: &mut BTreeSet<String>,
) -> Result<BTreeSet<String>, RuntimeError> {
    names.extend(configured(&with.runtime.reads.status(true).await?));
    let mut ids = BTreeSet::new();
    for image in &*names {
        // It may be listed in a longer form.
        let spec = v1::ImageSpec {
            image: image.clone(),
            ..v1::ImageSpec::default()
        };
        match with.runtime.reads.image_status(spec).await {
            Ok(found) => ids.extend(found.map(|it| it.id)),
            // Of a name that no image can have there is none.
            Err(error) if error.is_refusal() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ids)
}

/// What the pods that have not ended call their images.
async fn of_pods(with: &Collection) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for (uid, worker) in with.pool.summaries().await.ok()? {
        if worker.phase == WorkerPhase::Finished {
            continue;
        }
        let Some(pod) = with.pool.desired(&uid).await.ok()? else {
            continue;
        };
        let pod = pod.decode().ok()?;
        let of_containers = pod.all_containers().map(|(_, it)| it.image.clone());
        let volumes = pod.spec.iter().flat_map(|spec| &spec.volumes).flatten();
        let of_volumes = volumes.map(|it| it.image.as_ref()?.reference.clone());
        names.extend(of_containers.chain(of_volumes).flatten());
    }
    names.remove("");
    Some(names)
}

fn configured(status: &v1::StatusResponse) -> Option<String> {
    let config = status.info.get("config")?;
    let config = (config.len() <= MAX_CONFIG_BYTES).then_some(config)?;
    let config: Config = serde_json::from_str(config).ok()?;
    Some(config.sandbox_image).filter(|image| !image.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the answer of containerd 1.6.20.
    const RECORDED: &str = r#"{"containerd":{"snapshotter":"overlayfs"},"enableSelinux":false,
        "selinuxCategoryRange":1024,"sandboxImage":"registry.local/mirrored-pause:3.6",
        "statsCollectPeriod":10,"rootDir":"/var/lib/containerd/io.containerd.grpc.v1.cri"}"#;

    #[test]
    fn the_runtime_tells_what_image_its_sandboxes_have() {
        let of = |key: &str, config: &str| {
            configured(&v1::StatusResponse {
                info: [(key.to_owned(), config.to_owned())].into(),
                ..v1::StatusResponse::default()
            })
        };
        let image = "registry.local/mirrored-pause:3.6";
        assert_eq!(of("config", RECORDED).as_deref(), Some(image));
        let too_long = format!("{RECORDED}{}", " ".repeat(MAX_CONFIG_BYTES));
        for (key, config) in [
            ("golang", RECORDED),
            ("config", r#"{"sandboxImage":""}"#),
            ("config", "{}"),
            ("config", "no JSON"),
            ("config", &too_long),
        ] {
            assert_eq!(of(key, config), None, "{key}: {}", config.len());
        }
    }
}
