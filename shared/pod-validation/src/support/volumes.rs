//! What Bulkhead does not do yet in volumes.

use pod::core::{
    EmptyDirVolumeSource, HostPathVolumeSource, ImageVolumeSource, ProjectedVolumeSource, Volume,
    VolumeProjection,
};

use super::refuse::refuse;
use crate::field::{Errors, Path};
use crate::optional::{list, text};

#[expect(
    clippy::too_many_lines,
    reason = "every field is named, so that a new one cannot be forgotten"
)]
pub(super) fn volume(volume: &Volume, path: Path<'_>, errors: &mut Errors) {
    let Volume {
        aws_elastic_block_store,
        azure_disk,
        azure_file,
        cephfs,
        cinder,
        // All of it is supported.
        config_map: _,
        csi,
        // All of it is supported.
        downward_api: _,
        empty_dir,
        ephemeral,
        fc,
        flex_volume,
        flocker,
        gce_persistent_disk,
        git_repo,
        glusterfs,
        host_path,
        // Up to the runtime, which has them or not.
        image,
        iscsi,
        name: _,
        nfs,
        // A PersistentVolume of the node.
        persistent_volume_claim: _,
        photon_persistent_disk,
        portworx_volume,
        projected,
        quobyte,
        rbd,
        scale_io,
        // All of it is supported.
        secret: _,
        storageos,
        vsphere_volume,
    } = volume;
    refuse(
        &[
            ("awsElasticBlockStore", aws_elastic_block_store.is_some()),
            ("azureDisk", azure_disk.is_some()),
            ("azureFile", azure_file.is_some()),
            ("cephfs", cephfs.is_some()),
            ("cinder", cinder.is_some()),
            ("csi", csi.is_some()),
            ("ephemeral", ephemeral.is_some()),
            ("fc", fc.is_some()),
            ("flexVolume", flex_volume.is_some()),
            ("flocker", flocker.is_some()),
            ("gcePersistentDisk", gce_persistent_disk.is_some()),
            ("gitRepo", git_repo.is_some()),
            ("glusterfs", glusterfs.is_some()),
            ("iscsi", iscsi.is_some()),
            ("nfs", nfs.is_some()),
            ("photonPersistentDisk", photon_persistent_disk.is_some()),
            ("portworxVolume", portworx_volume.is_some()),
            ("quobyte", quobyte.is_some()),
            ("rbd", rbd.is_some()),
            ("scaleIO", scale_io.is_some()),
            ("storageos", storageos.is_some()),
            ("vsphereVolume", vsphere_volume.is_some()),
        ],
        path,
        errors,
    );
    if let Some(source) = host_path {
        let HostPathVolumeSource { path: _, type_: _ } = source;
    }
    if let Some(source) = image {
        let ImageVolumeSource {
            pull_policy: _,
            reference: _,
        } = source;
    }
    if let Some(source) = projected {
        self::projected(source, path.child("projected"), errors);
    }
    if let Some(source) = empty_dir {
        self::empty_dir(source, path.child("emptyDir"), errors);
    }
}

fn projected(volume: &ProjectedVolumeSource, path: Path<'_>, errors: &mut Errors) {
    let ProjectedVolumeSource {
        default_mode: _,
        default_user: _,
        sources,
    } = volume;
    let sources_path = path.child("sources");
    for (index, source) in list(sources).iter().enumerate() {
        let VolumeProjection {
            cluster_trust_bundle,
            config_map: _,
            downward_api: _,
            pod_certificate,
            secret: _,
            service_account_token,
        } = source;
        refuse(
            &[
                ("clusterTrustBundle", cluster_trust_bundle.is_some()),
                ("podCertificate", pod_certificate.is_some()),
                ("serviceAccountToken", service_account_token.is_some()),
            ],
            sources_path.index(index),
            errors,
        );
    }
}

fn empty_dir(source: &EmptyDirVolumeSource, path: Path<'_>, errors: &mut Errors) {
    let EmptyDirVolumeSource {
        medium,
        mode: _,
        size_limit: _,
    } = source;
    match text(medium) {
        "" | "Memory" | "HugePages" => {}
        medium if medium.starts_with("HugePages-") => {}
        _ => {
            let detail = "only Memory, HugePages, or none";
            errors.unsupported(path.child("medium"), detail);
        }
    }
}
