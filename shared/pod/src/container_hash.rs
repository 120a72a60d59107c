//! Hash of the part of a container's spec whose change means: start it anew.
//!
//! The kubelet's users lost containers to upgrades because its hash covered
//! the whole type. Ours covers a named list of fields and carries the version of
//! that list. A value of another list cannot be compared, so no upgrade starts a
//! container anew.
//!
//! The value is 64 bits: the version in the highest byte, then 56 bits of
//! SHA-256. A kubelet's own value has 32 bits, so the two are told apart, and a
//! kubelet reads ours as the hexadecimal number that it expects.
//!
//! Version 1 covers what takes effect when a container is created: name, image,
//! command, args, workingDir, env, envFrom, ports, resources, volumeMounts,
//! volumeDevices, securityContext, stdin, stdinOnce, tty and the termination
//! message. Not covered, because it acts at once or only at the next start:
//! probes, lifecycle, imagePullPolicy, restartPolicy, resizePolicy, and cpu and memory in
//! resources, which can be changed while the container runs.

use std::fmt;

use k8s_openapi::api::core::v1::Container;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::resources::{CPU, MEMORY};

/// The list of fields that is covered: see the module's header.
const VERSION: u64 = 1;
const VERSION_SHIFT: u32 = 56;

/// Hash of a container's spec; see the module's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContainerHash(u64);

/// What a hash found on a container says about a container in a spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashComparison {
    /// It was created from the same fields.
    Same,
    /// Something has changed that needs a new container.
    Changed,
    /// It was made by something else (a kubelet, another version): it cannot be
    /// compared. Adopt it as it is.
    Incomparable,
}

impl ContainerHash {
    /// The hash of a container.
    pub fn of(container: &Container) -> Self {
        let mut resources = container.resources.clone();
        if let Some(resources) = &mut resources {
            let lists = [&mut resources.limits, &mut resources.requests];
            for amounts in lists.into_iter().flatten() {
                amounts.retain(|name, _| ![CPU, MEMORY].contains(&name.as_str()));
            }
        }
        let mut digest = Sha256::new();
        let mut field = |name: &str, value: Value| {
            if let Some(value) = without_empty(value) {
                // serde_json keeps keys sorted, so the text is canonical.
                digest.update(name.as_bytes());
                digest.update([0]);
                digest.update(value.to_string().as_bytes());
                digest.update([0]);
            }
        };
        field("name", json(&container.name));
        field("image", json(&container.image));
        field("command", json(&container.command));
        field("args", json(&container.args));
        field("workingDir", json(&container.working_dir));
        field("env", json(&container.env));
        field("envFrom", json(&container.env_from));
        field("ports", json(&container.ports));
        field("resources", json(&resources));
        field("volumeMounts", json(&container.volume_mounts));
        field("volumeDevices", json(&container.volume_devices));
        field("securityContext", json(&container.security_context));
        field("stdin", json(&container.stdin));
        field("stdinOnce", json(&container.stdin_once));
        field("tty", json(&container.tty));
        field(
            "terminationMessagePath",
            json(&container.termination_message_path),
        );
        field(
            "terminationMessagePolicy",
            json(&container.termination_message_policy),
        );
        let digest = digest.finalize();
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&digest[..8]);
        let low = u64::from_be_bytes(bytes) >> (64 - VERSION_SHIFT);
        Self(VERSION << VERSION_SHIFT | low)
    }

    /// Compares the value of a container's hash annotation with a container in
    /// a pod's spec.
    pub fn compare(recorded: &str, container: &Container) -> HashComparison {
        let Ok(recorded) = u64::from_str_radix(recorded, 16) else {
            return HashComparison::Incomparable;
        };
        if recorded >> VERSION_SHIFT != VERSION {
            return HashComparison::Incomparable;
        }
        if Self::of(container).0 == recorded {
            HashComparison::Same
        } else {
            HashComparison::Changed
        }
    }
}

/// The annotation's value: lower-case hexadecimal.
impl fmt::Display for ContainerHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:x}", self.0)
    }
}

/// A core/v1 field as JSON. These types have string keys and finite numbers, so
/// this cannot fail; `Null` would only make the field count as absent.
fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or(Value::Null)
}

/// The value without nulls, false, empty strings, lists and objects, so that an
/// absent field and an empty one are the same; `None` if nothing is left.
/// Elements of lists stay: their position matters.
fn without_empty(value: Value) -> Option<Value> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => Some(Value::Array(
            items
                .into_iter()
                .map(|item| without_empty(item).unwrap_or(Value::Null))
                .collect(),
        )),
        Value::Object(fields) => {
            let fields: serde_json::Map<_, _> = fields
                .into_iter()
                .filter_map(|(name, value)| Some((name, without_empty(value)?)))
                .collect();
            if fields.is_empty() {
                None
            } else {
                Some(Value::Object(fields))
            }
        }
        other => Some(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(json: &str) -> Container {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_value_of_a_version_never_changes() {
        // If this fails, containers of a running node would be restarted by an
        // upgrade: it needs another version.
        let container = container(
            r#"{"name":"c","image":"i:1","command":["a"],"env":[{"name":"X","value":"1"}],
                "ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"1"}}}"#,
        );
        let value = "1426caa328cf4fc";
        assert_eq!(ContainerHash::of(&container).to_string(), value);
        let compared = ContainerHash::compare(value, &container);
        assert_eq!(compared, HashComparison::Same);
    }

    #[test]
    fn fields_that_act_at_creation_change_the_hash() {
        let base = container(r#"{"name":"c","image":"i:1"}"#);
        let recorded = ContainerHash::of(&base).to_string();
        for changed in [
            r#"{"name":"c","image":"i:2"}"#,
            r#"{"name":"c","image":"i:1","command":["x"]}"#,
            r#"{"name":"c","image":"i:1","args":["x"]}"#,
            r#"{"name":"c","image":"i:1","env":[{"name":"A"}]}"#,
            r#"{"name":"c","image":"i:1","tty":true}"#,
            r#"{"name":"c","image":"i:1","resources":{"requests":{"hugepages-2Mi":"2Mi"}}}"#,
            r#"{"name":"c","image":"i:1","volumeMounts":[{"name":"v","mountPath":"/v"}]}"#,
        ] {
            assert_eq!(
                ContainerHash::compare(&recorded, &container(changed)),
                HashComparison::Changed,
                "{changed}"
            );
        }
    }

    #[test]
    fn fields_that_act_at_once_and_empty_fields_do_not() {
        let base = container(r#"{"name":"c","image":"i:1"}"#);
        let recorded = ContainerHash::of(&base).to_string();
        for same in [
            r#"{"name":"c","image":"i:1","livenessProbe":{"tcpSocket":{"port":1}}}"#,
            r#"{"name":"c","image":"i:1","imagePullPolicy":"Always"}"#,
            r#"{"name":"c","image":"i:1","resources":{"requests":{"cpu":"1"},"limits":{"memory":"1Mi"}}}"#,
            r#"{"name":"c","image":"i:1","resizePolicy":[{"resourceName":"cpu","restartPolicy":"NotRequired"}]}"#,
            r#"{"name":"c","image":"i:1","env":[],"resources":{},"tty":false,"workingDir":""}"#,
        ] {
            assert_eq!(
                ContainerHash::compare(&recorded, &container(same)),
                HashComparison::Same,
                "{same}"
            );
        }
    }

    #[test]
    fn values_of_others_are_adopted() {
        let container = container(r#"{"name":"c"}"#);
        for other in ["", "zz", "7f3a9c01", "ffffffff", "ff00000000000001", "-1"] {
            assert_eq!(
                ContainerHash::compare(other, &container),
                HashComparison::Incomparable,
                "{other}"
            );
        }
    }
}
