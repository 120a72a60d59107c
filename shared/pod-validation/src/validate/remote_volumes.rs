//! Volumes that are not on this node: claims, CSI, and the many old kinds, most
//! of which need no more than a few texts.

use pod::core::{
    CSIVolumeSource, EphemeralVolumeSource, FCVolumeSource, FlockerVolumeSource,
    GitRepoVolumeSource, ISCSIVolumeSource, NFSVolumeSource, PersistentVolumeClaimSpec,
    QuobyteVolumeSource, ScaleIOVolumeSource, Volume,
};
use pod::{Pod, PodExt};

use super::only_one::OnlyOne;
use crate::field::{Errors, Path};
use crate::formats;
use crate::optional::{list, text};

/// Longest name of a CSI driver.
const MAX_DRIVER_NAME: usize = 63;
/// Longest tenant of a Quobyte volume.
const MAX_TENANT: usize = 64;

/// Those that the API server looks at before `secret`.
pub(super) fn before_objects(volume: &Volume, only: &mut OnlyOne<'_, '_>) {
    only.source("gitRepo", &volume.git_repo, git_repo);
    only.source(
        "gcePersistentDisk",
        &volume.gce_persistent_disk,
        |source, path, errors| {
            required(&[("pdName", &source.pd_name)], path, errors);
            partition(source.partition, path, errors);
        },
    );
    only.source(
        "awsElasticBlockStore",
        &volume.aws_elastic_block_store,
        |source, path, errors| {
            required(&[("volumeID", &source.volume_id)], path, errors);
            partition(source.partition, path, errors);
        },
    );
}

/// All others.
pub(super) fn after_objects(volume: &Volume, pod: &Pod, only: &mut OnlyOne<'_, '_>) {
    only.source("nfs", &volume.nfs, nfs);
    only.source("iscsi", &volume.iscsi, iscsi);
    only.source(
        "persistentVolumeClaim",
        &volume.persistent_volume_claim,
        |source, path, errors| {
            required(&[("claimName", &source.claim_name)], path, errors);
        },
    );
    only.source("fc", &volume.fc, fibre_channel);
    history(volume, only);
    clouds(volume, only);
    only.source("csi", &volume.csi, csi);
    only.source("ephemeral", &volume.ephemeral, |source, path, errors| {
        ephemeral(source, &volume.name, pod.name(), path, errors);
    });
    only.source("image", &volume.image, |source, path, errors| {
        if text(&source.reference).is_empty() {
            errors.required(path.child("reference"), "");
        }
        let policy = text(&source.pull_policy);
        errors.one_of(
            path.child("pullPolicy"),
            policy,
            &["Always", "IfNotPresent", "Never"],
        );
    });
}

/// Storage systems whose drivers have left Kubernetes.
fn history(volume: &Volume, only: &mut OnlyOne<'_, '_>) {
    only.source("glusterfs", &volume.glusterfs, |source, path, errors| {
        required(
            &[("endpoints", &source.endpoints), ("path", &source.path)],
            path,
            errors,
        );
    });
    only.source("flocker", &volume.flocker, flocker);
    only.source("rbd", &volume.rbd, |source, path, errors| {
        if source.monitors.is_empty() {
            errors.required(path.child("monitors"), "");
        }
        required(&[("image", &source.image)], path, errors);
    });
    only.source("cephfs", &volume.cephfs, |source, path, errors| {
        if source.monitors.is_empty() {
            errors.required(path.child("monitors"), "");
        }
    });
    only.source("quobyte", &volume.quobyte, quobyte);
    only.source("flexVolume", &volume.flex_volume, |source, path, errors| {
        required(&[("driver", &source.driver)], path, errors);
    });
    only.source(
        "portworxVolume",
        &volume.portworx_volume,
        |source, path, errors| {
            required(&[("volumeID", &source.volume_id)], path, errors);
        },
    );
    only.source("storageos", &volume.storageos, |source, path, errors| {
        let name = text(&source.volume_name);
        if name.is_empty() {
            errors.required(path.child("volumeName"), "");
        } else {
            errors.invalid_if(path.child("volumeName"), name, formats::dns1123_label(name));
        }
    });
    only.source("scaleIO", &volume.scale_io, scale_io);
}

/// Disks and shares of clouds.
fn clouds(volume: &Volume, only: &mut OnlyOne<'_, '_>) {
    only.source("cinder", &volume.cinder, |source, path, errors| {
        required(&[("volumeID", &source.volume_id)], path, errors);
        if source
            .secret_ref
            .as_ref()
            .is_some_and(|secret| secret.name.is_empty())
        {
            let secret = path.child("secretRef");
            errors.required(secret.child("name"), "");
        }
    });
    only.source("azureFile", &volume.azure_file, |source, path, errors| {
        let fields = [
            ("secretName", &source.secret_name),
            ("shareName", &source.share_name),
        ];
        required(&fields, path, errors);
    });
    only.source("azureDisk", &volume.azure_disk, |source, path, errors| {
        required(
            &[
                ("diskName", &source.disk_name),
                ("diskURI", &source.disk_uri),
            ],
            path,
            errors,
        );
    });
    only.source(
        "vsphereVolume",
        &volume.vsphere_volume,
        |source, path, errors| {
            required(&[("volumePath", &source.volume_path)], path, errors);
        },
    );
    only.source(
        "photonPersistentDisk",
        &volume.photon_persistent_disk,
        |source, path, errors| {
            required(&[("pdID", &source.pd_id)], path, errors);
        },
    );
}

fn required(fields: &[(&str, &String)], path: Path<'_>, errors: &mut Errors) {
    for (name, value) in fields {
        if value.is_empty() {
            errors.required(path.child(name), "");
        }
    }
}

fn partition(partition: Option<i32>, path: Path<'_>, errors: &mut Errors) {
    if let Some(number) = partition.filter(|number| !(0..=255).contains(number)) {
        errors.invalid(path.child("partition"), number, "must be between 0 and 255");
    }
}

fn unit_number(number: i32, path: Path<'_>, errors: &mut Errors) {
    if !(0..=255).contains(&number) {
        errors.invalid(path.child("lun"), number, "must be between 0 and 255");
    }
}

fn git_repo(source: &GitRepoVolumeSource, path: Path<'_>, errors: &mut Errors) {
    required(&[("repository", &source.repository)], path, errors);
    let directory = text(&source.directory);
    let problem = formats::descending_path(directory);
    errors.invalid_if(path.child("directory"), directory, problem);
}

fn nfs(source: &NFSVolumeSource, path: Path<'_>, errors: &mut Errors) {
    required(
        &[("server", &source.server), ("path", &source.path)],
        path,
        errors,
    );
    if !source.path.starts_with('/') {
        errors.invalid(path.child("path"), &source.path, "must be an absolute path");
    }
}

fn iscsi(source: &ISCSIVolumeSource, path: Path<'_>, errors: &mut Errors) {
    required(
        &[
            ("targetPortal", &source.target_portal),
            ("iqn", &source.iqn),
        ],
        path,
        errors,
    );
    let names = [
        ("iqn", Some(&source.iqn)),
        ("initiatorname", source.initiator_name.as_ref()),
    ];
    for (field, name) in names {
        let Some(name) = name.filter(|name| field != "iqn" || !name.is_empty()) else {
            continue;
        };
        if !is_iscsi_name(name) {
            errors.invalid(path.child(field), name, "must be an iqn, eui or naa name");
        }
    }
    unit_number(source.lun, path, errors);
    let authenticates =
        source.chap_auth_discovery == Some(true) || source.chap_auth_session == Some(true);
    if authenticates && source.secret_ref.is_none() {
        errors.required(path.child("secretRef"), "");
    }
}

/// `iqn.2001-04.com.example:storage`, `eui.` and 16, or `naa.` and 32 characters.
fn is_iscsi_name(name: &str) -> bool {
    let alphanumeric = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    if let Some(rest) = name.strip_prefix("eui.") {
        return alphanumeric(rest, 16);
    }
    if let Some(rest) = name.strip_prefix("naa.") {
        return alphanumeric(rest, 32);
    }
    let Some(rest) = name.strip_prefix("iqn.") else {
        return false;
    };
    let mut parts = rest.splitn(2, '.');
    let (Some(date), Some(authority)) = (parts.next(), parts.next()) else {
        return false;
    };
    let is_date = date.len() == 7
        && date.bytes().enumerate().all(|(at, byte)| match at {
            4 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    let (authority, target) = match authority.split_once(':') {
        Some((authority, target)) => (authority, target),
        None => return false,
    };
    let is_authority = !authority.is_empty()
        && authority
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    let is_target = !target.is_empty()
        && !target
            .contains(|character: char| character.is_whitespace() || ",;*&$|".contains(character));
    is_date && is_authority && is_target
}

fn flocker(source: &FlockerVolumeSource, path: Path<'_>, errors: &mut Errors) {
    let name = text(&source.dataset_name);
    match (name.is_empty(), text(&source.dataset_uuid).is_empty()) {
        (true, true) => errors.required(path, "must have datasetName or datasetUUID"),
        (false, false) => errors.invalid(path, "", "has either datasetName or datasetUUID"),
        _ => {}
    }
    if name.contains('/') {
        errors.invalid(path.child("datasetName"), name, "must not contain '/'");
    }
}

fn quobyte(source: &QuobyteVolumeSource, path: Path<'_>, errors: &mut Errors) {
    let is_pair = |pair: &str| {
        pair.rsplit_once(':')
            .is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'))
    };
    if source.registry.is_empty() {
        errors.required(path.child("registry"), "");
    } else if text(&source.tenant).len() > MAX_TENANT {
        errors.required(path.child("tenant"), "must have at most 64 characters");
    } else if !source.registry.split(',').all(is_pair) {
        let detail = "must be host:port pairs, separated by commas";
        errors.invalid(path.child("registry"), &source.registry, detail);
    }
    required(&[("volume", &source.volume)], path, errors);
}

fn fibre_channel(source: &FCVolumeSource, path: Path<'_>, errors: &mut Errors) {
    let names = path.child("targetWWNs");
    match (
        list(&source.target_wwns).is_empty(),
        list(&source.wwids).is_empty(),
    ) {
        (true, true) => errors.required(names, "must have targetWWNs or wwids"),
        (false, false) => errors.invalid(names, "", "has either targetWWNs or wwids"),
        _ => {}
    }
    if !list(&source.target_wwns).is_empty() {
        match source.lun {
            None => errors.required(path.child("lun"), "is needed with targetWWNs"),
            Some(number) => unit_number(number, path, errors),
        }
    }
}

fn scale_io(source: &ScaleIOVolumeSource, path: Path<'_>, errors: &mut Errors) {
    required(
        &[("gateway", &source.gateway), ("system", &source.system)],
        path,
        errors,
    );
    if text(&source.volume_name).is_empty() {
        errors.required(path.child("volumeName"), "");
    }
}

fn csi(source: &CSIVolumeSource, path: Path<'_>, errors: &mut Errors) {
    let driver = &source.driver;
    let field = path.child("driver");
    if driver.is_empty() {
        errors.required(field, "");
    } else if driver.len() > MAX_DRIVER_NAME {
        errors.invalid(field, driver, "must have at most 63 characters");
    } else {
        let problem = formats::dns1123_subdomain(&driver.to_ascii_lowercase());
        errors.invalid_if(field, driver, problem);
    }
    if source
        .node_publish_secret_ref
        .as_ref()
        .is_some_and(|secret| secret.name.is_empty())
    {
        let secret = path.child("nodePublishSecretRef");
        errors.required(secret.child("name"), "");
    }
}

fn ephemeral(
    source: &EphemeralVolumeSource,
    volume: &str,
    pod: &str,
    path: Path<'_>,
    errors: &mut Errors,
) {
    let template_path = path.child("volumeClaimTemplate");
    let Some(template) = &source.volume_claim_template else {
        return errors.required(template_path, "");
    };
    let claim = format!("{pod}-{volume}");
    if !pod.is_empty()
        && !volume.is_empty()
        && let Some(problem) = formats::dns1123_subdomain(&claim)
    {
        errors.invalid(path.child("name"), claim, problem);
    }
    claim_template(&template.spec, template_path.child("spec"), errors);
}

fn claim_template(spec: &PersistentVolumeClaimSpec, path: Path<'_>, errors: &mut Errors) {
    let modes = path.child("accessModes");
    if list(&spec.access_modes).is_empty() {
        errors.required(modes, "must have at least one");
    }
    for mode in list(&spec.access_modes) {
        let known = &[
            "ReadWriteOnce",
            "ReadOnlyMany",
            "ReadWriteMany",
            "ReadWriteOncePod",
        ];
        if !known.contains(&mode.as_str()) {
            errors.not_supported(modes, mode, known);
        }
    }
    let requests = spec
        .resources
        .as_ref()
        .and_then(|all| all.requests.as_ref());
    if requests.is_none_or(|requests| !requests.contains_key("storage")) {
        let resources = path.child("resources");
        errors.required(resources.key("storage"), "");
    }
    if let Some(mode) = &spec.volume_mode {
        errors.one_of(path.child("volumeMode"), mode, &["Block", "Filesystem"]);
    }
    let class = text(&spec.storage_class_name);
    if !class.is_empty() {
        let field = path.child("storageClassName");
        errors.invalid_if(field, class, formats::dns1123_subdomain(class));
    }
}
