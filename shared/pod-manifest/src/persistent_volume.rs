//! PersistentVolumes in a manifest: paths of the node that are bound to a claim.

use local_objects::PersistentVolume;
use pod::identity::{check_label, check_name};
use serde::Deserialize;
use serde_json::Value;
use value_errors::{for_people, shown};

/// Longest path, as for the kernel.
const MAX_PATH_BYTES: usize = 4096;

/// A volume and whose it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// Namespace and name of the claim.
    pub(crate) claim: (String, String),
    pub(crate) volume: PersistentVolume,
}

/// The fields that are known; any other is an error.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Spec {
    /// Told to who binds claims: here the claim is named.
    #[serde(rename = "accessModes", default)]
    _access_modes: Option<Vec<String>>,
    #[serde(rename = "capacity", default)]
    _capacity: Option<Value>,
    #[serde(rename = "storageClassName", default)]
    _storage_class_name: Option<String>,
    /// The directory that the manifest is in is of this node.
    #[serde(rename = "nodeAffinity", default)]
    _node_affinity: Option<Value>,
    claim_ref: Option<ClaimRef>,
    host_path: Option<HostPath>,
    local: Option<Local>,
    persistent_volume_reclaim_policy: Option<String>,
    volume_mode: Option<String>,
}

/// The others are notes of an API server about its own object.
#[derive(Deserialize)]
struct ClaimRef {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostPath {
    path: String,
    #[serde(rename = "type", default)]
    path_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Local {
    path: String,
}

/// What a `hostPath.type` may say.
const PATH_TYPES: [&str; 5] = ["", "Directory", "DirectoryOrCreate", "File", "FileOrCreate"];

/// The volume of a `spec`.
///
/// # Errors
/// What is wrong with it, or not supported.
pub(crate) fn decoded(spec: Option<Value>) -> Result<Bound, String> {
    let spec = spec.ok_or("spec: required")?;
    let spec: Spec = serde_path_to_error::deserialize(spec).map_err(|error| {
        let path = error.path().to_string();
        let path = match path.as_str() {
            "." => String::new(),
            path => format!(".{}", shown(path)),
        };
        format!(
            "spec{path}: {}",
            for_people(&error.inner().to_string(), None)
        )
    })?;
    let unsupported = |field: &str, value: &str, only: &str| {
        let value = shown(value);
        Err(format!(
            "spec.{field}: \"{value}\" is not supported, only {only:?}"
        ))
    };
    match spec.volume_mode.as_deref() {
        None | Some("Filesystem") => {}
        Some(mode) => return unsupported("volumeMode", mode, "Filesystem"),
    }
    match spec.persistent_volume_reclaim_policy.as_deref() {
        None | Some("Retain") => {}
        Some(policy) => {
            return unsupported("persistentVolumeReclaimPolicy", policy, "Retain");
        }
    }
    let claim = spec.claim_ref.ok_or(
        "spec.claimRef: required: nobody binds volumes to claims on this node, so it names the \
         claim",
    )?;
    check_label("namespace", &claim.namespace)
        .map_err(|error| format!("spec.claimRef.namespace: {error}"))?;
    check_name("object name", &claim.name)
        .map_err(|error| format!("spec.claimRef.name: {error}"))?;
    let volume = match (spec.local, spec.host_path) {
        (Some(Local { path }), None) => PersistentVolume {
            path: checked("local", path)?,
            path_type: "Directory".to_owned(),
            is_local: true,
        },
        (None, Some(HostPath { path, path_type })) => {
            let path_type = path_type.unwrap_or_default();
            if !PATH_TYPES.contains(&path_type.as_str()) {
                let kinds = PATH_TYPES.join(" ");
                return unsupported("hostPath.type", &path_type, kinds.trim());
            }
            PersistentVolume {
                path: checked("hostPath", path)?,
                path_type,
                is_local: false,
            }
        }
        _ => return Err("spec: exactly one of local and hostPath is required".to_owned()),
    };
    Ok(Bound {
        claim: (claim.namespace, claim.name),
        volume,
    })
}

fn checked(kind: &str, path: String) -> Result<String, String> {
    let is_good = path.starts_with('/')
        && path.len() <= MAX_PATH_BYTES
        && !path.split('/').any(|name| name == "..");
    match is_good {
        true => Ok(path),
        false => Err(format!(
            "spec.{kind}.path: \"{}\" is not an absolute path without \"..\" of at most \
             {MAX_PATH_BYTES} bytes",
            shown(&path)
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(fields: &Value) -> Value {
        let mut spec = json!({
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "claimRef": {"namespace": "shop", "name": "data", "kind": "PersistentVolumeClaim"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": []}},
        });
        let given = fields.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(given);
        spec
    }

    #[test]
    fn paths_of_the_node_are_volumes() {
        for (fields, path, path_type, is_local) in [
            (
                json!({"local": {"path": "/srv/a"}}),
                "/srv/a",
                "Directory",
                true,
            ),
            (json!({"hostPath": {"path": "/srv/a"}}), "/srv/a", "", false),
            (
                json!({
                    "hostPath": {"path": "/srv/a", "type": "DirectoryOrCreate"},
                    "volumeMode": "Filesystem",
                    "persistentVolumeReclaimPolicy": "Retain",
                }),
                "/srv/a",
                "DirectoryOrCreate",
                false,
            ),
        ] {
            let expected = Bound {
                claim: ("shop".to_owned(), "data".to_owned()),
                volume: PersistentVolume {
                    path: path.to_owned(),
                    path_type: path_type.to_owned(),
                    is_local,
                },
            };
            assert_eq!(decoded(Some(spec(&fields))), Ok(expected), "{fields}");
        }
    }

    #[test]
    fn what_is_wrong_or_not_done_is_named() {
        assert_eq!(decoded(None).unwrap_err(), "spec: required");
        let local = json!({"path": "/srv/a"});
        for (fields, words) in [
            (
                json!({}),
                "spec: exactly one of local and hostPath is required",
            ),
            (
                json!({"local": local, "hostPath": {"path": "/b"}}),
                "spec: exactly one of local and hostPath is required",
            ),
            (
                json!({"nfs": {"server": "s", "path": "/"}}),
                "unknown field `nfs`",
            ),
            (
                json!({"local": {"path": "/a", "fsType": "ext4"}}),
                "unknown field `fsType`",
            ),
            (
                json!({"local": {"path": "a"}}),
                "spec.local.path: \"a\" is not an absolute path",
            ),
            (
                json!({"hostPath": {"path": "/a/../b"}}),
                "spec.hostPath.path",
            ),
            (
                json!({"hostPath": {"path": "/a", "type": "Socket"}}),
                "spec.hostPath.type",
            ),
            (
                json!({"local": local, "claimRef": null}),
                "spec.claimRef: required",
            ),
            (
                json!({"local": local, "claimRef": {"name": "data"}}),
                "spec.claimRef.namespace",
            ),
            (
                json!({"local": local, "claimRef": {"namespace": "d", "name": "../a"}}),
                "spec.claimRef.name",
            ),
            (
                json!({"local": local, "volumeMode": "Block"}),
                "spec.volumeMode: \"Block\"",
            ),
            (
                json!({"local": local, "persistentVolumeReclaimPolicy": "Delete"}),
                "spec.persistentVolumeReclaimPolicy: \"Delete\"",
            ),
            (
                json!({"local": local, "mountOptions": ["ro"]}),
                "unknown field `mountOptions`",
            ),
        ] {
            let error = decoded(Some(spec(&fields))).unwrap_err();
            assert!(error.contains(words), "{fields}: {error}");
        }
    }

    #[test]
    fn errors_are_short_and_show_no_value_that_has_the_wrong_type() {
        let local = json!({"path": "/srv/a"});
        let long = "\n".repeat(10_000);
        for (fields, expected) in [
            (
                json!({"local": "hunter2"}),
                "spec.local: expected a mapping",
            ),
            (
                json!({"local": {"path": ["hunter2"]}}),
                "spec.local.path: expected a text",
            ),
            (
                json!({"local": local, "claimRef": {"name": {"hunter2, expected b": 1}}}),
                "spec.claimRef.name: expected a text",
            ),
        ] {
            assert_eq!(decoded(Some(spec(&fields))).unwrap_err(), expected);
        }
        for fields in [
            json!({"local": {"path": format!("/{long}")}}),
            json!({"local": {"path": long}}),
            json!({"hostPath": {"path": "/a", "type": long}}),
            json!({"local": local, "volumeMode": long}),
            json!({"local": local, "claimRef": {"namespace": long, "name": "a"}}),
            json!({"local": local, "claimRef": {"namespace": "a", "name": long}}),
            json!({"local": {long.clone(): 1}}),
            json!({long.clone(): 1}),
        ] {
            let error = decoded(Some(spec(&fields))).unwrap_err();
            let is_plain = error.len() < 600 && !error.contains('\n');
            assert!(is_plain, "{} bytes: {error:.700}", error.len());
        }
    }
}
