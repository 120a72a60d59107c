//! References to objects of the API server, which a static pod cannot have:
//! nobody could resolve them on a node that runs without. ConfigMaps and Secrets are not
//! among them: a node can have its own.

use pod::core::{PodSpec, Volume, VolumeProjection};

use crate::field::{Errors, Path};
use crate::optional::{list, text};

/// The service account that every namespace has; naming it asks for nothing.
pub(super) const DEFAULT_SERVICE_ACCOUNT: &str = "default";

const DETAIL: &str = "a static pod cannot refer to objects of the API server";

pub(super) fn forbidden(spec: &PodSpec, path: Path<'_>, errors: &mut Errors) {
    let account = text(&spec.service_account_name);
    forbid(
        &[
            (
                "serviceAccountName",
                !["", DEFAULT_SERVICE_ACCOUNT].contains(&account),
            ),
            ("resourceClaims", !list(&spec.resource_claims).is_empty()),
        ],
        path,
        errors,
    );
    let volumes_path = path.child("volumes");
    for (index, each) in list(&spec.volumes).iter().enumerate() {
        volume(each, volumes_path.index(index), errors);
    }
}

fn volume(volume: &Volume, path: Path<'_>, errors: &mut Errors) {
    forbid(
        &[
            ("csi", volume.csi.is_some()),
            ("ephemeral", volume.ephemeral.is_some()),
        ],
        path,
        errors,
    );
    let secret_of_volume = [
        ("azureFile", volume.azure_file.is_some()),
        (
            "cephfs",
            volume
                .cephfs
                .iter()
                .any(|source| source.secret_ref.is_some()),
        ),
        (
            "cinder",
            volume
                .cinder
                .iter()
                .any(|source| source.secret_ref.is_some()),
        ),
        (
            "flexVolume",
            volume
                .flex_volume
                .iter()
                .any(|source| source.secret_ref.is_some()),
        ),
        (
            "iscsi",
            volume
                .iscsi
                .iter()
                .any(|source| source.secret_ref.is_some()),
        ),
        (
            "rbd",
            volume.rbd.iter().any(|source| source.secret_ref.is_some()),
        ),
        ("scaleIO", volume.scale_io.is_some()),
        (
            "storageos",
            volume
                .storageos
                .iter()
                .any(|source| source.secret_ref.is_some()),
        ),
    ];
    for (name, refers) in secret_of_volume {
        if refers {
            let source = path.child(name);
            errors.forbidden(source.child("secretRef"), DETAIL);
        }
    }
    projected(volume, path.child("projected"), errors);
}

fn projected(volume: &Volume, path: Path<'_>, errors: &mut Errors) {
    let sources_path = path.child("sources");
    let sources = volume
        .projected
        .iter()
        .flat_map(|source| list(&source.sources));
    for (index, source) in sources.enumerate() {
        let VolumeProjection {
            cluster_trust_bundle,
            // Of the node's own objects.
            config_map: _,
            downward_api: _,
            pod_certificate,
            secret: _,
            service_account_token,
        } = source;
        forbid(
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

fn forbid(fields: &[(&str, bool)], path: Path<'_>, errors: &mut Errors) {
    for (name, _) in fields.iter().filter(|(_, set)| *set) {
        errors.forbidden(path.child(name), DETAIL);
    }
}
