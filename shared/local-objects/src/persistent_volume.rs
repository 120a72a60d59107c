//! PersistentVolumes of the node, and the pods that claim them.
//!
//! A volume that a pod claims is a path of the node, and becomes a `hostPath` of the pod
//! before anything is decided of it: so the node policy judges it as one, and it is opened
//! as one.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use pod::core::{HostPathVolumeSource, Volume};
use pod::{Pod, PodExt as _};

use crate::object::{LocalObject, ObjectBytes, ObjectKind};
use crate::objects::{Lookup, Objects};

/// Keys of what is kept of one.
const PATH: &str = "path";
const TYPE: &str = "type";
const LOCAL: &str = "local";

/// What a node needs to know of a PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistentVolume {
    /// Where it is.
    pub path: String,
    /// What is to be there, in the words of `hostPath.type`; empty: anything.
    pub path_type: String,
    /// Whether it is a `local` one, in which files belong to the `fsGroup` of pods.
    pub is_local: bool,
}

impl PersistentVolume {
    /// What a [`LocalObject`] has of it.
    #[must_use]
    pub fn data(&self) -> BTreeMap<String, ObjectBytes> {
        let mut data = BTreeMap::new();
        let mut add = |key: &str, value: &str| {
            let bytes = value.as_bytes().to_vec();
            data.insert(key.to_owned(), bytes.into());
        };
        add(PATH, &self.path);
        add(TYPE, &self.path_type);
        if self.is_local {
            add(LOCAL, "");
        }
        data
    }

    fn of(object: &LocalObject) -> Option<PersistentVolume> {
        let text = |key: &str| {
            let value = object.data.get(key)?;
            str::from_utf8(value.as_slice()).ok().map(str::to_owned)
        };
        Some(PersistentVolume {
            path: text(PATH)?,
            path_type: text(TYPE)?,
            is_local: object.data.contains_key(LOCAL),
        })
    }
}

/// What the volume is that a pod claims by this name.
///
/// # Errors
/// Why the pod cannot have it, for its owner.
pub fn claimed(pod: &Pod, claim: &str, objects: &Objects) -> Result<HostPathVolumeSource, String> {
    let object = match objects.get(ObjectKind::PersistentVolume, pod.namespace(), claim) {
        Lookup::Found(object) => object,
        Lookup::Missing => {
            return Err(format!(
                "no persistentvolume of the node is bound to the claim {claim:?}"
            ));
        }
        Lookup::Unknown(reason) => return Err(reason),
    };
    let volume = PersistentVolume::of(&object);
    let volume = volume.ok_or_else(|| format!("{} has no path", object.reference))?;
    let context = pod
        .spec
        .as_ref()
        .and_then(|it| it.security_context.as_ref());
    if volume.is_local && context.is_some_and(|context| context.fs_group.is_some()) {
        let reason = "fsGroup is not supported with a local persistentvolume: let it be a \
                      hostPath one, whose files stay as they are";
        return Err(reason.to_owned());
    }
    Ok(HostPathVolumeSource {
        path: volume.path,
        type_: Some(volume.path_type),
    })
}

/// Whether the pod has a claim whose volume it may have by what is known now: with
/// [`with_claimed_volumes`] it becomes another pod.
#[must_use]
pub fn has_found_claim(pod: &Pod, objects: &Objects) -> bool {
    let claims = pod.volumes().iter();
    let mut claims = claims.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.any(|source| claimed(pod, &source.claim_name, objects).is_ok())
}

/// The pod with the paths of the node in place of the claims that are known. A claim that
/// is only to be read is read-only in all containers, known or not.
#[must_use]
pub fn with_claimed_volumes<'a>(pod: &'a Pod, objects: &Objects) -> Cow<'a, Pod> {
    let is_claim = |volume: &Volume| volume.persistent_volume_claim.is_some();
    if !pod.volumes().iter().any(is_claim) {
        return Cow::Borrowed(pod);
    }
    let sources = pod.volumes().iter().filter_map(|volume| {
        let source = volume.persistent_volume_claim.as_ref()?;
        Some((volume.name.clone(), source))
    });
    let read_only: BTreeSet<String> = sources
        .clone()
        .filter(|(_, source)| source.read_only == Some(true))
        .map(|(name, _)| name)
        .collect();
    let paths: BTreeMap<String, HostPathVolumeSource> = sources
        .filter_map(|(name, source)| {
            let path = claimed(pod, &source.claim_name, objects).ok()?;
            Some((name, path))
        })
        .collect();
    let mut pod = pod.clone();
    let spec = pod.spec.get_or_insert_default();
    for volume in spec.volumes.iter_mut().flatten() {
        if let Some(path) = paths.get(&volume.name) {
            *volume = Volume {
                name: volume.name.clone(),
                host_path: Some(path.clone()),
                ..Volume::default()
            };
        }
    }
    let init = spec.init_containers.iter_mut().flatten();
    let containers = init.chain(&mut spec.containers);
    for mount in containers.flat_map(|it| it.volume_mounts.iter_mut().flatten()) {
        if read_only.contains(&mount.name) {
            mount.read_only = Some(true);
        }
    }
    Cow::Owned(pod)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::object::ObjectRef;

    fn objects(is_local: bool) -> Objects {
        let volume = PersistentVolume {
            path: "/srv/data".to_owned(),
            path_type: "Directory".to_owned(),
            is_local,
        };
        let reference = |name: &str| ObjectRef {
            kind: ObjectKind::PersistentVolume,
            namespace: "default".to_owned(),
            name: name.to_owned(),
        };
        let object = LocalObject {
            reference: reference("data"),
            version: "1".to_owned(),
            data: volume.data(),
            binary_keys: BTreeSet::new(),
        };
        let mut objects = Objects::default();
        objects.insert(reference("data"), Lookup::Found(Arc::new(object)));
        objects.insert(reference("none"), Lookup::Missing);
        objects
    }

    fn pod(volumes: Value, security: Value) -> Pod {
        let mut value = test_pods::manifest("a", "u");
        value["spec"]["volumes"] = volumes;
        value["spec"]["securityContext"] = security;
        value["spec"]["containers"][0]["volumeMounts"] = json!([
            {"name": "v", "mountPath": "/v"}, {"name": "w", "mountPath": "/w"},
        ]);
        test_pods::pod(value)
    }

    fn claims(name: &str, read_only: bool) -> Value {
        json!([
            {"name": "v", "persistentVolumeClaim": {"claimName": name, "readOnly": read_only}},
            {"name": "w", "emptyDir": {}},
        ])
    }

    #[test]
    fn a_claim_becomes_the_path_of_its_volume() {
        for is_local in [false, true] {
            let pod = pod(claims("data", false), json!({}));
            assert!(has_found_claim(&pod, &objects(is_local)));
            let found = with_claimed_volumes(&pod, &objects(is_local));
            assert!(!has_found_claim(&found, &objects(is_local)));
            let expected = json!([
                {"name": "v", "hostPath": {"path": "/srv/data", "type": "Directory"}},
                {"name": "w", "emptyDir": {}},
            ]);
            assert_eq!(serde_json::to_value(found.volumes()).unwrap(), expected);
            assert_eq!(
                found.containers()[0].volume_mounts,
                pod.containers()[0].volume_mounts
            );
        }
    }

    #[test]
    fn a_claim_that_is_not_known_stays_one_and_read_only_holds_all_the_same() {
        for name in ["none", "unheard-of", "data"] {
            let pod = pod(claims(name, true), json!({}));
            let found = with_claimed_volumes(&pod, &objects(true));
            let is_claim = found.volumes()[0].persistent_volume_claim.is_some();
            assert_eq!(is_claim, name != "data");
            assert!(!has_found_claim(&found, &objects(true)));
            let mounts = found.containers()[0].volume_mounts.clone().unwrap();
            let read_only: Vec<_> = mounts.iter().map(|mount| mount.read_only).collect();
            assert_eq!(read_only, [Some(true), None], "{name}");
        }
    }

    #[test]
    fn who_cannot_have_a_volume_is_told_why() {
        let (plain, group) = (json!({}), json!({"fsGroup": 7}));
        for (claim, security, is_local, words) in [
            (
                "none",
                &plain,
                false,
                "no persistentvolume of the node is bound to the claim",
            ),
            ("unheard-of", &plain, false, "was not asked for"),
            ("data", &group, true, "fsGroup is not supported"),
        ] {
            let pod = pod(claims(claim, false), security.clone());
            let reason = claimed(&pod, claim, &objects(is_local)).unwrap_err();
            assert!(reason.contains(words), "{reason}");
        }
        let pod = pod(claims("data", false), group);
        assert!(claimed(&pod, "data", &objects(false)).is_ok());
    }
}
