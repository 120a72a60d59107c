//! Volumes made of objects and of the pod itself: configMap, secret,
//! downwardAPI and projected.

use std::collections::HashSet;

use pod::core::{
    DownwardAPIVolumeFile, KeyToPath, ProjectedVolumeSource, Volume, VolumeProjection,
};

use super::environment::{self, Needs};
use super::only_one::OnlyOne;
use crate::field::{Errors, Path};
use crate::formats;
use crate::optional::{list, text};

pub(super) fn validate(volume: &Volume, only: &mut OnlyOne<'_, '_>) {
    only.source("secret", &volume.secret, |source, path, errors| {
        if text(&source.secret_name).is_empty() {
            errors.required(path.child("secretName"), "");
        }
        mode(source.default_mode, path.child("defaultMode"), errors);
        user(source.default_user, path.child("defaultUser"), errors);
        keys(list(&source.items), path, errors);
    });
    only.source(
        "downwardAPI",
        &volume.downward_api,
        |source, path, errors| {
            mode(source.default_mode, path.child("defaultMode"), errors);
            user(source.default_user, path.child("defaultUser"), errors);
            for file in list(&source.items) {
                downward_file(file, path, errors);
            }
        },
    );
    only.source("configMap", &volume.config_map, |source, path, errors| {
        if source.name.is_empty() {
            errors.required(path.child("name"), "");
        }
        mode(source.default_mode, path.child("defaultMode"), errors);
        user(source.default_user, path.child("defaultUser"), errors);
        keys(list(&source.items), path, errors);
    });
    only.source("projected", &volume.projected, projected);
}

fn mode(mode: Option<i32>, path: Path<'_>, errors: &mut Errors) {
    if let Some(mode) = mode
        && let Some(problem) = formats::file_mode(mode)
    {
        errors.invalid(path, mode, problem);
    }
}

fn user(user: Option<i64>, path: Path<'_>, errors: &mut Errors) {
    if let Some(user) = user
        && let Some(problem) = formats::user_id(user)
    {
        errors.invalid(path, user, problem);
    }
}

fn keys(items: &[KeyToPath], path: Path<'_>, errors: &mut Errors) {
    let items_path = path.child("items");
    for (index, item) in items.iter().enumerate() {
        let path = items_path.index(index);
        if item.key.is_empty() {
            errors.required(path.child("key"), "");
        }
        file_path(&item.path, path.child("path"), errors);
        mode(item.mode, path.child("mode"), errors);
        user(item.user, path.child("user"), errors);
    }
}

fn file_path(file: &str, path: Path<'_>, errors: &mut Errors) {
    if file.is_empty() {
        errors.required(path, "");
    }
    errors.invalid_if(path, file, formats::unreserved_path(file));
}

/// A file of a downward API volume. The API server reports its errors at the
/// volume.
fn downward_file(file: &DownwardAPIVolumeFile, path: Path<'_>, errors: &mut Errors) {
    file_path(&file.path, path.child("path"), errors);
    match (&file.field_ref, &file.resource_field_ref) {
        (Some(field), other) => {
            let field_path = path.child("fieldRef");
            environment::pod_field(field, environment::VOLUME_FIELDS, field_path, errors);
            if other.is_some() {
                errors.invalid(path, "", "must not have both fieldRef and resourceFieldRef");
            }
        }
        (None, Some(resource)) => {
            let resource_path = path.child("resourceFieldRef");
            environment::container_resource(resource, Needs::ContainerName, resource_path, errors);
        }
        (None, None) => errors.required(path, "must have fieldRef or resourceFieldRef"),
    }
    mode(file.mode, path.child("mode"), errors);
    user(file.user, path.child("user"), errors);
}

fn projected(source: &ProjectedVolumeSource, path: Path<'_>, errors: &mut Errors) {
    mode(source.default_mode, path.child("defaultMode"), errors);
    user(source.default_user, path.child("defaultUser"), errors);
    let mut files = HashSet::new();
    let sources = path.child("sources");
    for (index, projection) in list(&source.sources).iter().enumerate() {
        for file in explicit_paths(projection) {
            if !files.insert(file.to_owned()) {
                errors.invalid(path, file, "two sources have the same path");
            }
        }
        self::projection(projection, sources.index(index), errors);
    }
}

fn explicit_paths(projection: &VolumeProjection) -> Vec<&str> {
    let secret = projection
        .secret
        .iter()
        .flat_map(|source| list(&source.items));
    let config_map = projection
        .config_map
        .iter()
        .flat_map(|source| list(&source.items));
    let downward = projection
        .downward_api
        .iter()
        .flat_map(|source| list(&source.items));
    secret
        .chain(config_map)
        .map(|item| item.path.as_str())
        .chain(downward.map(|file| file.path.as_str()))
        .filter(|path| !path.is_empty())
        .collect()
}

fn projection(projection: &VolumeProjection, path: Path<'_>, errors: &mut Errors) {
    let VolumeProjection {
        // Refused, whatever it says; so are the certificate and the token.
        cluster_trust_bundle: _,
        config_map,
        downward_api,
        pod_certificate: _,
        secret,
        service_account_token: _,
    } = projection;
    let mut sources = 0;
    if let Some(source) = secret {
        sources += 1;
        object(
            &source.name,
            list(&source.items),
            path.child("secret"),
            errors,
        );
    }
    if let Some(source) = config_map {
        sources += 1;
        object(
            &source.name,
            list(&source.items),
            path.child("configMap"),
            errors,
        );
    }
    if let Some(source) = downward_api {
        sources += 1;
        for file in list(&source.items) {
            downward_file(file, path.child("downwardAPI"), errors);
        }
    }
    if sources > 1 {
        errors.forbidden(path, "a source has only one kind");
    }
}

fn object(name: &str, items: &[KeyToPath], path: Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.required(path.child("name"), "");
    }
    keys(items, path, errors);
}
