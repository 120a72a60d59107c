//! How volumes are mounted into containers, and as whom these were started, as newer kubelets
//! tell it (since 1.31 and 1.33).

use bulkhead_api::v1::{ContainerObservation, RuntimeState};
use ipc::limits::MAX_TOLD_GROUPS;
use pod::PodExt;
use pod::core::{
    Container, ContainerStatus, ContainerUser, LinuxContainerUser, Pod, VolumeMountStatus,
};

/// Most mounts of one pod that are told. A status has them beside the spec, and all statuses
/// of a node have to fit.
const MAX_MOUNTS: usize = 64;

/// Most bytes of their names and paths.
const MAX_MOUNT_BYTES: usize = 4 << 10;

/// Whether the mounts of a pod are told.
pub(super) fn are_few(pod: &Pod) -> bool {
    let containers = pod.all_containers().map(|(_, container)| container);
    let mounts = containers.flat_map(|it| it.volume_mounts.iter().flatten());
    let (count, bytes) = mounts.fold((0, 0), |(count, bytes), mount| {
        (count + 1, bytes + mount.name.len() + mount.mount_path.len())
    });
    count <= MAX_MOUNTS && bytes <= MAX_MOUNT_BYTES
}

/// The mounts of a container, whose newest instance this is; `before` is what was published
/// of that.
/// None are told while it is not known how one is mounted.
pub(super) fn told(
    container: &Container,
    newest: Option<&ContainerObservation>,
    before: Option<&ContainerStatus>,
) -> Option<Vec<VolumeMountStatus>> {
    let was_started = |instance: &&ContainerObservation| {
        [RuntimeState::Running, RuntimeState::Exited].contains(&instance.state())
    };
    let is_recursive = newest.filter(was_started);
    let is_recursive = is_recursive.map(|instance| instance.is_recursively_read_only);
    let mounts = container.volume_mounts.iter().flatten();
    let statuses: Option<Vec<_>> = mounts
        .map(|mount| {
            let read_only = mount.read_only.filter(|read_only| *read_only);
            let asks = mount.recursive_read_only.as_deref();
            let mode = match (read_only, asks) {
                (None, _) => None,
                (Some(_), Some("Enabled")) => Some("Enabled"),
                (Some(_), Some("IfPossible")) => match is_recursive? {
                    true => Some("Enabled"),
                    false => Some("Disabled"),
                },
                (Some(_), _) => Some("Disabled"),
            };
            Some(VolumeMountStatus {
                mount_path: mount.mount_path.clone(),
                name: mount.name.clone(),
                read_only,
                recursive_read_only: mode.map(str::to_owned),
                ..VolumeMountStatus::default()
            })
        })
        .collect();
    let statuses = statuses.or_else(|| before?.volume_mounts.clone());
    statuses.filter(|statuses| !statuses.is_empty())
}

/// As whom an instance was started.
pub(super) fn user(instance: &ContainerObservation) -> Option<ContainerUser> {
    let user = instance.user.as_ref()?;
    let (groups, rest) = user.supplemental_groups.as_chunks();
    if groups.len() > MAX_TOLD_GROUPS || !rest.is_empty() {
        return None;
    }
    let groups = groups.iter().map(|group| u32::from_le_bytes(*group).into());
    let groups: Vec<i64> = groups.collect();
    Some(ContainerUser {
        linux: Some(LinuxContainerUser {
            gid: user.gid.into(),
            supplemental_groups: (!groups.is_empty()).then_some(groups),
            uid: user.uid.into(),
        }),
    })
}
