//! Paths of the node, and kinds of volumes that the level `restricted` does not know.

use pod::core::{HostPathVolumeSource, PodSpec, Volume};

use super::list::{ContainerView, Demands};
use crate::demand::Demand;

/// The `hostPath.type` that asks for a disk.
const BLOCK_DEVICE: &str = "BlockDevice";

pub(super) fn demands(spec: &PodSpec, containers: &[ContainerView<'_>], demands: &mut Demands) {
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let field = format!("spec.volumes[{index}]");
        if let Some(source) = &volume.host_path {
            host_path(volume, source, &field, containers, demands);
        }
        for kind in uncommon_kinds(volume) {
            let field = format!("{field}.{kind}");
            demands.of_pod(field, Demand::VolumeKind(kind.to_owned()));
        }
    }
}

/// Each container that mounts the volume asks for its path. One that no container
/// mounts is asked for by the pod: nobody opens it today, and it is in the pod.
fn host_path(
    volume: &Volume,
    source: &HostPathVolumeSource,
    field: &str,
    containers: &[ContainerView<'_>],
    demands: &mut Demands,
) {
    let HostPathVolumeSource { path, type_ } = source;
    let is_disk = type_.as_deref() == Some(BLOCK_DEVICE);
    let field = format!("{field}.hostPath.path");
    let creates = type_
        .as_deref()
        .is_some_and(|type_| type_.ends_with("OrCreate"));
    let demand = |read_only| Demand::HostPath {
        path: path.clone(),
        // What makes it where it is missing writes, whoever reads it then.
        read_only: read_only && !creates,
    };
    let disk = || Demand::Device {
        path: path.clone(),
        block: true,
    };
    let mut is_mounted = false;
    for container in containers {
        let mounts = container.mounts.iter();
        let mounts = mounts.filter(|mount| mount.name == volume.name);
        let mut read_only = mounts.map(|mount| mount.read_only == Some(true));
        let Some(first) = read_only.next() else {
            continue;
        };
        is_mounted = true;
        let read_only = first && read_only.all(|read_only| read_only);
        demands.of_owner(container, field.clone(), demand(read_only));
        if is_disk {
            demands.of_owner(container, field.clone(), disk());
        }
    }
    if !is_mounted {
        demands.of_pod(field.clone(), demand(true));
        if is_disk {
            demands.of_pod(field, disk());
        }
    }
}

/// The kinds of a volume that are not allowed to restricted pods, by their fields.
fn uncommon_kinds(volume: &Volume) -> Vec<&'static str> {
    let Volume {
        name: _,
        // Allowed to restricted pods.
        config_map: _,
        csi: _,
        downward_api: _,
        empty_dir: _,
        ephemeral: _,
        persistent_volume_claim: _,
        projected: _,
        secret: _,
        // A demand of its own.
        host_path: _,
        aws_elastic_block_store,
        azure_disk,
        azure_file,
        cephfs,
        cinder,
        fc,
        flex_volume,
        flocker,
        gce_persistent_disk,
        git_repo,
        glusterfs,
        image,
        iscsi,
        nfs,
        photon_persistent_disk,
        portworx_volume,
        quobyte,
        rbd,
        scale_io,
        storageos,
        vsphere_volume,
    } = volume;
    let kinds = [
        ("awsElasticBlockStore", aws_elastic_block_store.is_some()),
        ("azureDisk", azure_disk.is_some()),
        ("azureFile", azure_file.is_some()),
        ("cephfs", cephfs.is_some()),
        ("cinder", cinder.is_some()),
        ("fc", fc.is_some()),
        ("flexVolume", flex_volume.is_some()),
        ("flocker", flocker.is_some()),
        ("gcePersistentDisk", gce_persistent_disk.is_some()),
        ("gitRepo", git_repo.is_some()),
        ("glusterfs", glusterfs.is_some()),
        ("image", image.is_some()),
        ("iscsi", iscsi.is_some()),
        ("nfs", nfs.is_some()),
        ("photonPersistentDisk", photon_persistent_disk.is_some()),
        ("portworxVolume", portworx_volume.is_some()),
        ("quobyte", quobyte.is_some()),
        ("rbd", rbd.is_some()),
        ("scaleIO", scale_io.is_some()),
        ("storageos", storageos.is_some()),
        ("vsphereVolume", vsphere_volume.is_some()),
    ];
    let asked = kinds.into_iter().filter(|(_, asked)| *asked);
    asked.map(|(kind, _)| kind).collect()
}
