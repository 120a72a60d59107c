//! The `imagePullSecrets` of a pod: Secrets of the node that hold a configuration of Docker.

use local_objects::{Lookup, ObjectKind, Objects};
use pod::{Pod, PodExt as _};

use crate::docker_config::{CredentialsError, of_config, of_entries};
use crate::keyring::Keyring;

/// The key of a Secret of type `kubernetes.io/dockerconfigjson`.
const CONFIG_KEY: &str = ".dockerconfigjson";
/// The key of a Secret of type `kubernetes.io/dockercfg`.
const ENTRIES_KEY: &str = ".dockercfg";

/// What a pod has to pull by.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PodSecrets {
    /// All of its Secrets together.
    pub keyring: Keyring,
    /// The names of Secrets that are not there, or of which nothing is known.
    pub missing: Vec<String>,
}

/// A Secret has no configuration of Docker where it should be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("secret \"{name}\": {key}")]
pub struct SecretError {
    /// The Secret's name.
    pub name: String,
    /// Where in it.
    pub key: &'static str,
    /// What is wrong with it.
    pub source: CredentialsError,
}

impl PodSecrets {
    /// What a pod has to pull by, of the objects that are known. A Secret with other keys
    /// counts for nothing, as with a kubelet, and so does an entry whose name is none of a
    /// registry.
    ///
    /// # Errors
    /// When a Secret is not what it should be: then a kubelet pulls nothing either.
    pub fn of(pod: &Pod, objects: &Objects) -> Result<PodSecrets, SecretError> {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        let secrets = pod.spec.iter().flat_map(|spec| &spec.image_pull_secrets);
        let names = secrets.flatten().map(|secret| &secret.name);
        for name in names.filter(|name| !name.is_empty()) {
            let secret = match objects.get(ObjectKind::Secret, pod.namespace(), name) {
                Lookup::Found(secret) => secret,
                Lookup::Missing | Lookup::Unknown(_) => {
                    missing.push(name.clone());
                    continue;
                }
            };
            let value = |key: &str| secret.data.get(key).map(|value| value.as_slice());
            let (key, entries) = match (value(CONFIG_KEY), value(ENTRIES_KEY)) {
                (Some(bytes), _) => (CONFIG_KEY, of_config(bytes)),
                (None, Some(bytes)) => (ENTRIES_KEY, of_entries(bytes)),
                (None, None) => continue,
            };
            let entries = entries.map_err(|source| SecretError {
                name: name.clone(),
                key,
                source,
            })?;
            // As a kubelet does: a public image needs none of them.
            found.extend(entries.into_iter().flatten());
        }
        Ok(PodSecrets {
            keyring: Keyring::from_iter(found),
            missing,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use local_objects::{LocalObject, ObjectRef};

    use super::*;

    fn objects(secrets: &[(&str, &str, &str)]) -> Objects {
        let mut objects = Objects::default();
        let reference = |name: &str| ObjectRef {
            kind: ObjectKind::Secret,
            namespace: "default".to_owned(),
            name: name.to_owned(),
        };
        objects.insert(reference("absent"), Lookup::Missing);
        for (name, key, value) in secrets {
            let object = LocalObject {
                reference: reference(name),
                version: "1".to_owned(),
                data: BTreeMap::from([((*key).to_owned(), value.as_bytes().to_vec().into())]),
                binary_keys: BTreeSet::new(),
            };
            objects.insert(reference(name), Lookup::Found(Arc::new(object)));
        }
        objects
    }

    fn pod(secrets: &[&str]) -> Pod {
        let mut value = test_pods::manifest("a", "u");
        let secrets = secrets.iter();
        let secrets = secrets.map(|name| serde_json::json!({"name": name}));
        value["spec"]["imagePullSecrets"] = secrets.collect();
        test_pods::pod(value)
    }

    const CONFIG: &str = r#"{"auths":{"a.io":{"auth":"dTpw"}}}"#;
    const ENTRIES: &str = r#"{"b.io":{"auth":"dTpw"}}"#;

    #[test]
    fn secrets_of_both_types_count_and_others_do_not() {
        let objects = objects(&[
            ("one", CONFIG_KEY, CONFIG),
            ("two", ENTRIES_KEY, ENTRIES),
            ("three", "key", CONFIG),
        ]);
        let pod = pod(&["one", "", "absent", "two", "three", "nobody-knows"]);
        let secrets = PodSecrets::of(&pod, &objects).unwrap();
        assert_eq!(secrets.keyring.lookup("a.io/x").len(), 1);
        assert_eq!(secrets.keyring.lookup("b.io/x").len(), 1);
        assert_eq!(secrets.keyring.len(), 2);
        assert_eq!(secrets.missing, ["absent", "nobody-knows"]);
        let none = PodSecrets::of(&self::pod(&[]), &objects);
        assert_eq!(none, Ok(PodSecrets::default()));
    }

    #[test]
    fn an_entry_for_no_registry_takes_nothing_from_the_others() {
        let entry = r#"{"auth":"dTpw"}"#;
        let config = format!(r#"{{"auths":{{"":{entry},"a b.io":{entry},"a.io":{entry}}}}}"#);
        let objects = objects(&[("one", CONFIG_KEY, &config)]);
        let secrets = PodSecrets::of(&pod(&["one"]), &objects).unwrap();
        assert_eq!(secrets.keyring.lookup("a.io/x").len(), 1);
        assert_eq!(secrets.keyring.len(), 1);
    }

    #[test]
    fn a_secret_that_is_wrong_is_named_without_its_value() {
        let objects = objects(&[("one", CONFIG_KEY, r#"{"auths":"hunter2"}"#)]);
        let error = PodSecrets::of(&pod(&["one"]), &objects).unwrap_err();
        assert_eq!(error.to_string(), "secret \"one\": .dockerconfigjson");
        let source = "line 1, column 18: this is no configuration of Docker";
        assert_eq!(error.source.to_string(), source);
        assert!(!format!("{error:?}").contains("hunter2"));
    }
}
