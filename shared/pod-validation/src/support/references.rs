//! References to objects of the API server, which a static pod cannot have:
//! nobody could resolve them on a node that runs without.

use pod::core::{Container, PodSpec, Volume, VolumeProjection};

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
            (
                "imagePullSecrets",
                !list(&spec.image_pull_secrets).is_empty(),
            ),
            ("resourceClaims", !list(&spec.resource_claims).is_empty()),
        ],
        path,
        errors,
    );
    for (name, containers) in [
        ("initContainers", list(&spec.init_containers)),
        ("containers", spec.containers.as_slice()),
    ] {
        let containers_path = path.child(name);
        for (index, each) in containers.iter().enumerate() {
            container(each, containers_path.index(index), errors);
        }
    }
    let volumes_path = path.child("volumes");
    for (index, each) in list(&spec.volumes).iter().enumerate() {
        volume(each, volumes_path.index(index), errors);
    }
}

fn container(container: &Container, path: Path<'_>, errors: &mut Errors) {
    let sources = path.child("envFrom");
    for (index, source) in list(&container.env_from).iter().enumerate() {
        forbid(
            &[
                ("configMapRef", source.config_map_ref.is_some()),
                ("secretRef", source.secret_ref.is_some()),
            ],
            sources.index(index),
            errors,
        );
    }
    let variables = path.child("env");
    for (index, variable) in list(&container.env).iter().enumerate() {
        let Some(source) = &variable.value_from else {
            continue;
        };
        let variable_path = variables.index(index);
        forbid(
            &[
                ("configMapKeyRef", source.config_map_key_ref.is_some()),
                ("secretKeyRef", source.secret_key_ref.is_some()),
            ],
            variable_path.child("valueFrom"),
            errors,
        );
    }
}

fn volume(volume: &Volume, path: Path<'_>, errors: &mut Errors) {
    forbid(
        &[
            ("configMap", volume.config_map.is_some()),
            ("csi", volume.csi.is_some()),
            ("ephemeral", volume.ephemeral.is_some()),
            (
                "persistentVolumeClaim",
                volume.persistent_volume_claim.is_some(),
            ),
            ("secret", volume.secret.is_some()),
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
            config_map,
            downward_api: _,
            pod_certificate,
            secret,
            service_account_token,
        } = source;
        forbid(
            &[
                ("clusterTrustBundle", cluster_trust_bundle.is_some()),
                ("configMap", config_map.is_some()),
                ("podCertificate", pod_certificate.is_some()),
                ("secret", secret.is_some()),
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
