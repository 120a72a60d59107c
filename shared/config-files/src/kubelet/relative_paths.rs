//! Paths that count from the directory of the file that names them. Pure.

use std::path::Path;

use serde_json::{Map, Value};

/// Fields with a path that is relative to the file that names it.
const RELATIVE_PATHS: [&str; 6] = [
    "staticPodPath",
    "resolvConf",
    "podLogsDir",
    "tlsCertFile",
    "tlsPrivateKeyFile",
    "authentication.x509.clientCAFile",
];

/// Makes paths that are relative to the file absolute, before files are merged.
pub(super) fn resolve_paths(object: &mut Map<String, Value>, directory: &Path) {
    for name in RELATIVE_PATHS {
        if let Some(Value::String(path)) = at(object, name)
            && !path.is_empty()
            && let Some(joined) = directory.join(&*path).to_str()
        {
            *path = joined.to_owned();
        }
    }
}

/// The value at a path of names with dots between.
fn at<'a>(object: &'a mut Map<String, Value>, path: &str) -> Option<&'a mut Value> {
    match path.split_once('.') {
        Some((first, rest)) => at(object.get_mut(first)?.as_object_mut()?, rest),
        None => object.get_mut(path),
    }
}
