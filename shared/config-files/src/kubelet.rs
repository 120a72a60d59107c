//! `KubeletConfiguration` (kubelet.config.k8s.io/v1beta1): a file and a
//! directory of drop-in files, applied to a [`NodeConfig`].
//!
//! A field that is supported is applied, one that is known and not supported is
//! named in a warning, and any other is an error. What a process does with a
//! setting does not live here.

pub(crate) mod duration;
mod eviction_settings;
mod fields;
mod image_verification;
mod memory_qos;
mod node_object;
mod node_server;
mod node_shutdown;
mod problem;
mod relative_paths;
mod settings;
mod user_namespaces;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use node_config::NodeConfig;
use serde_json::{Map, Value};

use crate::document::{self, Kind};

pub use fields::{FIELDS, Field, Support};
pub use problem::{KubeletConfigError, Warning};
pub use user_namespaces::{SubordinateIdError, SubordinateIdFiles};

pub(crate) use duration::GoDuration;
use problem::WrongValue;
use settings::Settings;

const KIND: Kind = Kind {
    api_version: "kubelet.config.k8s.io/v1beta1",
    kind: "KubeletConfiguration",
};

/// Ending of drop-in files; others in the directory are left alone.
const DROP_IN_EXTENSION: &str = "conf";

/// Drop-in files that are read, and directories; more point to the wrong directory.
const MAX_DROP_INS: usize = 256;

/// A configuration that was read and not applied yet.
#[derive(Clone, Debug, Default)]
pub struct KubeletConfig {
    fields: Map<String, Value>,
    /// The files that it came from, the main one first.
    files: Vec<PathBuf>,
    /// By the path of each field, and of what is in it: the file that gave it last.
    origins: BTreeMap<String, PathBuf>,
}

impl KubeletConfig {
    /// Reads `file`, then the drop-ins of `directory` in the order of their
    /// paths. Objects are merged key by key; a list or a plain value replaces
    /// the one before it.
    ///
    /// # Errors
    /// When a file cannot be read, is of another kind, or has an unknown field.
    pub fn read(
        file: Option<&Path>,
        directory: Option<&Path>,
    ) -> Result<KubeletConfig, KubeletConfigError> {
        let mut files: Vec<PathBuf> = file.into_iter().map(Path::to_owned).collect();
        if let Some(directory) = directory {
            let drop_ins = drop_ins(directory).map_err(|source| KubeletConfigError::Directory {
                path: directory.to_owned(),
                source,
            })?;
            files.extend(drop_ins);
        }
        let mut config = KubeletConfig::default();
        for path in files {
            config.add(&path, document::read(&path, KIND)?)?;
        }
        Ok(config)
    }

    /// The same from texts; `path` serves messages and relative paths.
    ///
    /// # Errors
    /// As [`KubeletConfig::read`].
    pub fn parse(path: &Path, text: &str) -> Result<KubeletConfig, KubeletConfigError> {
        let mut config = KubeletConfig::default();
        config.add(path, document::parse(path, text, KIND)?)?;
        Ok(config)
    }

    fn add(
        &mut self,
        path: &Path,
        mut object: Map<String, Value>,
    ) -> Result<(), KubeletConfigError> {
        if let Some(field) = object.keys().find(|name| Field::named(name).is_none()) {
            return Err(KubeletConfigError::UnknownField {
                path: path.to_owned(),
                field: field.clone(),
                meant: value_errors::nearest(field, FIELDS.iter().map(|field| field.name)),
            });
        }
        relative_paths::resolve_paths(&mut object, path.parent().unwrap_or(Path::new("/")));
        note(&mut self.origins, "", &object, path);
        merge(&mut self.fields, object);
        self.files.push(path.to_owned());
        Ok(())
    }

    /// Puts a flag in the place of `containerRuntimeEndpoint`, before anything is compared
    /// with that.
    pub fn set_container_runtime(&mut self, endpoint: &str) {
        let field = "containerRuntimeEndpoint".to_owned();
        self.origins
            .insert(field.clone(), "--container-runtime-endpoint".into());
        self.fields.insert(field, Value::from(endpoint));
    }

    /// The files that it came from.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Applies it to `config`. `cores` is the number of processors that
    /// `podsPerCore` counts.
    ///
    /// # Errors
    /// When a value is wrong; `config` may then be changed in part.
    pub fn apply(
        &self,
        config: &mut NodeConfig,
        cores: u32,
    ) -> Result<Vec<Warning>, KubeletConfigError> {
        let mut supported = self.fields.clone();
        let mut warnings = Vec::new();
        for (name, value) in &self.fields {
            match Field::named(name).map(|field| field.support) {
                Some(Support::Applied) => continue,
                Some(Support::Ignored(text)) if !is_zero(value) => warnings.push(Warning {
                    field: name.clone(),
                    text,
                }),
                _ => {}
            }
            supported.remove(name);
        }
        // Headers may have a password in them.
        document::typed(supported, |field| field.starts_with("staticPodURLHeader"))
            .map_err(|(field, reason)| WrongValue { field, reason })
            .and_then(|settings: Settings| {
                settings.apply(config, cores, &mut warnings)?;
                config.node_server = settings.node_server(self.shown())?;
                Ok(())
            })
            .map_err(|wrong| KubeletConfigError::Value {
                place: self.place(&wrong.field),
                field: wrong.field,
                reason: wrong.reason,
            })?;
        Ok(warnings)
    }

    /// What of it everybody may see.
    fn shown(&self) -> Map<String, Value> {
        let mut fields = self.fields.clone();
        // Headers may have a password in them.
        fields.remove("staticPodURLHeader");
        fields
    }

    /// Where a field came from: the file that gave it last, or gave what it is in; all of
    /// them for one that nobody gave, which is wrong beside another.
    fn place(&self, field: &str) -> String {
        let ends = field.match_indices(['.', '[']).map(|(end, _)| end);
        let mut outwards = ends.chain([field.len()]).rev();
        let given = outwards.find_map(|end| self.origins.get(field.get(..end)?));
        match (given, &self.files[..]) {
            (Some(path), _) | (None, [path]) => path.display().to_string(),
            (None, [first, others @ ..]) => {
                format!("{} and {} more", first.display(), others.len())
            }
            (None, []) => "the flags".to_owned(),
        }
    }
}

/// Whether a value means the same as none: tools write every field of the type,
/// most of them with Go's zero values.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text == "0s",
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}

fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(into)), Value::Object(from)) => merge(into, from),
            // Not given.
            (_, Value::Null) => {}
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}

/// Notes `file` for all that an object gives, which is at the path `at`.
fn note(
    origins: &mut BTreeMap<String, PathBuf>,
    at: &str,
    object: &Map<String, Value>,
    file: &Path,
) {
    for (name, value) in object.iter().filter(|(_name, value)| !value.is_null()) {
        let path = format!("{at}{name}");
        if let Value::Object(below) = value {
            note(origins, &format!("{path}."), below, file);
        }
        origins.insert(path, file.to_owned());
    }
}

/// The drop-in files of a directory and of those in it, in the order of their paths, as a
/// kubelet walks them. Links to directories are not followed.
///
/// # Errors
/// When a directory cannot be listed, or there are too many.
pub fn drop_ins(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut directories = vec![directory.to_owned()];
    let mut listed = 0;
    let mut files = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let path = entry.path();
            let is_drop_in = path.extension().is_some_and(|it| it == DROP_IN_EXTENSION);
            if entry.file_type()?.is_dir() {
                directories.push(path);
            } else if is_drop_in && path.is_file() {
                files.push(path);
            }
        }
        listed += 1;
        if files.len() > MAX_DROP_INS || listed + directories.len() > MAX_DROP_INS {
            let error =
                format!("it holds more than {MAX_DROP_INS} drop-in files, or directories of them");
            return Err(io::Error::other(error));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests;
