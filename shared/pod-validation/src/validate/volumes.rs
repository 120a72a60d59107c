//! Volumes: their names, that each has one source, and the sources of this
//! node. Sources made of objects are in `projections`.

use std::collections::{HashMap, HashSet};

use pod::core::{EmptyDirVolumeSource, HostPathVolumeSource, ImageVolumeSource, Volume};
use pod::{Pod, PodExt, Quantity};

use super::only_one::OnlyOne;
use super::projections;
use crate::field::{Errors, Path};
use crate::formats;
use crate::optional::text;

/// Largest `mode` of an emptyDir: all permissions, and that nobody removes files of others.
const MAX_EMPTY_DIR_MODE: i32 = 0o1777;

/// The valid volumes of a pod: only these can be mounted.
pub(super) type ByName<'a> = HashMap<&'a str, &'a Volume>;

pub(super) fn validate<'a>(pod: &'a Pod, path: Path<'_>, errors: &mut Errors) -> ByName<'a> {
    let mut by_name = ByName::new();
    let mut names = HashSet::new();
    for (index, volume) in pod.volumes().iter().enumerate() {
        let path = path.index(index);
        let before = errors.count();
        source(volume, path, errors);
        let name = path.child("name");
        if volume.name.is_empty() {
            errors.required(name, "");
        } else if let Some(problem) = formats::dns1123_label(&volume.name) {
            errors.invalid(name, &volume.name, problem);
        } else if names.contains(&volume.name) {
            errors.duplicate(name, &volume.name);
        }
        if errors.count() == before {
            names.insert(&volume.name);
            by_name.insert(&volume.name, volume);
        }
    }
    by_name
}

fn source(volume: &Volume, path: Path<'_>, errors: &mut Errors) {
    let mut only = OnlyOne::new(path, errors);
    only.source("emptyDir", &volume.empty_dir, empty_dir);
    only.source("hostPath", &volume.host_path, host_path);
    projections::validate(volume, &mut only);
    only.source(
        "persistentVolumeClaim",
        &volume.persistent_volume_claim,
        |source, path, errors| {
            if source.claim_name.is_empty() {
                errors.required(path.child("claimName"), "");
            }
        },
    );
    only.source("image", &volume.image, image);
}

fn empty_dir(source: &EmptyDirVolumeSource, path: Path<'_>, errors: &mut Errors) {
    let limit = source
        .size_limit
        .as_ref()
        .and_then(|limit| Quantity::from_api(limit).ok());
    if limit.is_some_and(Quantity::is_negative) {
        errors.forbidden(path.child("sizeLimit"), "must not be negative");
    }
    if let Some(mode) = source.mode
        && !(0..=MAX_EMPTY_DIR_MODE).contains(&mode)
    {
        let detail = "must be between 0 and 01777 (octal)";
        errors.invalid(path.child("mode"), mode, detail);
    }
}

fn host_path(source: &HostPathVolumeSource, path: Path<'_>, errors: &mut Errors) {
    if source.path.is_empty() {
        return errors.required(path.child("path"), "");
    }
    errors.invalid_if(
        path.child("path"),
        &source.path,
        formats::no_backsteps(&source.path),
    );
    let kind = text(&source.type_);
    let kinds = &[
        "",
        "BlockDevice",
        "CharDevice",
        "Directory",
        "DirectoryOrCreate",
        "File",
        "FileOrCreate",
        "Socket",
    ];
    if !kinds.contains(&kind) {
        errors.not_supported(path.child("type"), kind, kinds);
    }
}

fn image(source: &ImageVolumeSource, path: Path<'_>, errors: &mut Errors) {
    if text(&source.reference).is_empty() {
        errors.required(path.child("reference"), "");
    }
    errors.one_of(
        path.child("pullPolicy"),
        text(&source.pull_policy),
        &["Always", "IfNotPresent", "Never"],
    );
}
