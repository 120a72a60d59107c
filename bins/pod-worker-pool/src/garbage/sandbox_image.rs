//! The image of sandboxes, which no container has: without it no pod can start, and
//! containerd before 1.7 does not say that it is pinned.

use std::collections::BTreeSet;

use cri::{RuntimeError, v1};
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

/// By which names and ids the runtime may list the image; none if it does not tell.
pub(super) async fn names(with: &Collection) -> Result<BTreeSet<String>, RuntimeError> {
    let Some(image) = configured(&with.runtime.status(true).await?) else {
        return Ok(BTreeSet::new());
    };
    // It may be configured in a shorter form than it is listed in.
    let spec = v1::ImageSpec {
        image: image.clone(),
        ..v1::ImageSpec::default()
    };
    let found = with.runtime.image_status(spec).await?;
    Ok(found
        .map(|found| found.id)
        .into_iter()
        .chain([image])
        .collect())
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
