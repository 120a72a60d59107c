//! Limits of what a pod may use of the node's disks: `emptyDir.sizeLimit`, and the limits
//! of `ephemeral-storage`.

use pod::Quantity;
use pod::quantity::Format;

use crate::candidate::Candidate;
use crate::disks::DiskLayout;
use crate::usage::PodUsage;

/// Which limit a pod exceeds, in the kubelet's words and order: a volume's, that of all
/// its containers together, that of one container. A volume that lies too deep to be
/// measured exceeds its own limit and that of the pod: somebody made it so.
#[must_use]
pub fn exceeded_limit(pod: &Candidate, usage: &PodUsage, layout: DiskLayout) -> Option<String> {
    let limited = pod
        .empty_dirs
        .iter()
        .filter_map(|it| Some((&it.name, it.limit?)));
    for (name, limit) in limited {
        let used = usage.volumes.get(name);
        if used.is_some_and(|used| bytes(used.bytes) > limit) {
            return Some(format!(
                "Usage of EmptyDir volume {name:?} exceeds the limit \"{limit}\". "
            ));
        }
        if usage.too_deep.contains(name) {
            return Some(too_deep(name, limit));
        }
    }
    if let Some(limit) = pod.storage_limit
        && let Some(name) = usage.too_deep.first()
    {
        return Some(too_deep(name, limit));
    }
    if let Some(limit) = pod.storage_limit
        && bytes(usage.ephemeral_storage()) > limit
    {
        return Some(format!(
            "Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
        ));
    }
    let mut containers = pod.containers.iter();
    containers.find_map(|container| {
        let (limit, used) = (
            container.storage_limit?,
            usage.containers.get(&container.name)?,
        );
        let used = match layout {
            DiskLayout::Shared => used.logs.bytes.saturating_add(used.layer.bytes),
            DiskLayout::SeparateImages => used.logs.bytes,
        };
        (bytes(used) > limit).then(|| {
            let name = &container.name;
            format!("Container {name} exceeded its local ephemeral storage limit \"{limit}\". ")
        })
    })
}

fn too_deep(volume: &str, limit: Quantity) -> String {
    format!(
        "EmptyDir volume {volume:?} has directories that lie too deep to be measured, \
         which counts as more than the limit \"{limit}\". "
    )
}

fn bytes(amount: u64) -> Quantity {
    let amount = i64::try_from(amount).unwrap_or(i64::MAX);
    Quantity::from_whole(amount, Format::BinarySi)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidate::EmptyDirFacts;
    use crate::testing::{candidate, quantity, usage};
    use crate::usage::ContainerUsage;
    use node_layout::TreeSize;

    const MIB: u64 = 1 << 20;

    fn tree(bytes: u64) -> TreeSize {
        TreeSize { bytes, inodes: 1 }
    }

    /// A volume of at most 1 MiB, a container of 2 MiB, a pod of 4 MiB.
    fn limited() -> Candidate {
        let mut pod = candidate("u");
        pod.storage_limit = Some(quantity("4Mi"));
        pod.containers[0].storage_limit = Some(quantity("2Mi"));
        let volume = |name: &str, limit| EmptyDirFacts {
            name: name.to_owned(),
            limit,
        };
        pod.empty_dirs = vec![volume("v", Some(quantity("1Mi"))), volume("w", None)];
        pod
    }

    #[test]
    fn whatever_is_exceeded_first_is_told_in_the_words_of_a_kubelet() {
        let volume = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ";
        let whole = "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. ";
        let container = "Container c exceeded its local ephemeral storage limit \"2Mi\". ";
        let (shared, separate) = (DiskLayout::Shared, DiskLayout::SeparateImages);
        for (layout, [layer, logs, v, w, other], expected) in [
            (shared, [0; 5], None),
            (shared, [MIB, MIB, MIB, MIB, 0], None),
            (shared, [0, 0, MIB + 1, 0, 0], Some(volume)),
            (shared, [9 * MIB, 0, MIB + 1, 0, 0], Some(volume)),
            (shared, [MIB, MIB, MIB, MIB, 1], Some(whole)),
            (shared, [0, 0, 0, 5 * MIB, 0], Some(whole)),
            (shared, [MIB, MIB + 1, 0, 0, 0], Some(container)),
            (separate, [MIB, MIB + 1, 0, 0, 0], None),
            (separate, [0, 2 * MIB + 1, 0, 0, 0], Some(container)),
        ] {
            let mut used = usage(ContainerUsage {
                memory: 0,
                layer: tree(layer),
                logs: tree(logs),
            });
            used.volumes.insert("v".to_owned(), tree(v));
            used.volumes.insert("w".to_owned(), tree(w));
            used.other = tree(other);
            let found = exceeded_limit(&limited(), &used, layout);
            assert_eq!(found.as_deref(), expected, "{layer} {logs} {v} {w} {other}");
        }
    }

    /// One for which there was not time enough takes what was seen, and no more.
    #[test]
    fn a_volume_that_lies_too_deep_to_be_measured_exceeds_its_limit_and_that_of_the_pod() {
        let deep = |volume: &str, limit: &str| {
            format!(
                "EmptyDir volume \"{volume}\" has directories that lie too deep to be measured, \
                 which counts as more than the limit \"{limit}\". "
            )
        };
        let mut without_limit = limited();
        without_limit.storage_limit = None;
        for (pod, volume, expected) in [
            (limited(), Some("v"), Some(deep("v", "1Mi"))),
            (limited(), Some("w"), Some(deep("w", "4Mi"))),
            (without_limit, Some("w"), None),
            (limited(), None, None),
        ] {
            let used = PodUsage {
                too_deep: volume.map(str::to_owned).into_iter().collect(),
                is_partial: true,
                ..PodUsage::default()
            };
            let found = exceeded_limit(&pod, &used, DiskLayout::Shared);
            assert_eq!(found, expected, "{volume:?}");
        }
    }

    #[test]
    fn what_was_not_measured_exceeds_nothing() {
        let unknown = PodUsage::default();
        assert_eq!(
            exceeded_limit(&limited(), &unknown, DiskLayout::Shared),
            None
        );
    }
}
