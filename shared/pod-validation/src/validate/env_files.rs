//! Environment variables that come from files of volumes.

use pod::core::{Container, FileKeySelector};

use super::volumes;
use crate::field::{Errors, Path};
use crate::formats;
use crate::optional::list;

/// Longest key of such a file, in bytes.
const MAX_FILE_KEY_BYTES: usize = 128;

pub(super) fn validate(
    container: &Container,
    volumes: &volumes::ByName<'_>,
    path: Path<'_>,
    errors: &mut Errors,
) {
    let variables = path.child("env");
    for (index, variable) in list(&container.env).iter().enumerate() {
        let source = variable.value_from.as_ref();
        if let Some(selector) = source.and_then(|source| source.file_key_ref.as_ref()) {
            let variable = variables.index(index);
            let source = variable.child("valueFrom");
            file_key(selector, volumes, source.child("fileKeyRef"), errors);
        }
    }
}

/// A key of a file in an emptyDir, as API servers since 1.34 have it.
fn file_key(
    selector: &FileKeySelector,
    volumes: &volumes::ByName<'_>,
    path: Path<'_>,
    errors: &mut Errors,
) {
    let FileKeySelector {
        key,
        optional: _,
        path: file,
        volume_name,
    } = selector;
    let field = path.child("key");
    let is_name = |key: &str| {
        key.bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'=')
    };
    if key.is_empty() {
        errors.required(field, "");
    } else if !is_name(key) {
        let detail = "must have printable ASCII characters other than '=' and blanks";
        errors.invalid(field, key, detail);
    } else if key.len() > MAX_FILE_KEY_BYTES {
        errors.invalid(field, key, "must have at most 128 characters");
    }
    let field = path.child("path");
    match file.is_empty() {
        true => errors.required(field, ""),
        false => errors.invalid_if(field, file, formats::unreserved_path(file)),
    }
    let field = path.child("volumeName");
    match volumes.get(volume_name.as_str()) {
        _ if volume_name.is_empty() => errors.required(field, ""),
        None => errors.not_found(field, volume_name),
        Some(volume) if volume.empty_dir.is_none() => {
            errors.invalid(field, volume_name, "must be an emptyDir");
        }
        Some(_) => {}
    }
}
