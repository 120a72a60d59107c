//! Ephemeral containers, as an API server checks them when they are added to a pod.

use std::collections::HashSet;

use pod::{Pod, PodExt, ephemeral};

use super::{containers, volumes};
use crate::defaults;
use crate::field::{Errors, FieldError, Path};

/// Everything that is wrong with those of a pod, which has its identity.
pub(crate) fn validate(pod: &Pod) -> Vec<FieldError> {
    let mut errors = Errors::default();
    // What is wrong with volumes is told with the pod.
    let volumes = volumes::validate(pod, Path::Root("spec.volumes"), &mut Errors::default());
    let all = pod.all_containers().map(|(_, it)| it.name.as_str());
    let others: HashSet<&str> = all.collect();
    let mut names = others.clone();
    let list = Path::Root("spec.ephemeralContainers");
    for (index, listed) in ephemeral::listed(pod).iter().enumerate() {
        let path = list.index(index);
        let mut container = ephemeral::as_container(listed);
        defaults::container(&mut container);
        containers::common(&container, &volumes, path, &mut errors);
        if !names.insert(&listed.name) {
            errors.duplicate(path.child("name"), &listed.name);
        }
        for (field, is_set) in [
            ("lifecycle", listed.lifecycle.is_some()),
            ("livenessProbe", listed.liveness_probe.is_some()),
            ("ports", listed.ports.iter().any(|it| !it.is_empty())),
            ("readinessProbe", listed.readiness_probe.is_some()),
            (
                "resizePolicy",
                listed.resize_policy.iter().any(|it| !it.is_empty()),
            ),
            (
                "resources",
                listed.resources.iter().any(|it| *it != Default::default()),
            ),
            ("restartPolicy", listed.restart_policy.is_some()),
            ("startupProbe", listed.startup_probe.is_some()),
        ] {
            if is_set {
                let detail = "cannot be set for an ephemeral container";
                errors.forbidden(path.child(field), detail);
            }
        }
        for (index, mount) in listed.volume_mounts.iter().flatten().enumerate() {
            let mounts = path.child("volumeMounts");
            let mount_path = mounts.index(index);
            for (field, value) in [
                ("subPath", &mount.sub_path),
                ("subPathExpr", &mount.sub_path_expr),
            ] {
                if value.iter().any(|value| !value.is_empty()) {
                    let detail = "cannot be set for an ephemeral container";
                    errors.forbidden(mount_path.child(field), detail);
                }
            }
        }
        let target = listed.target_container_name.as_deref().unwrap_or_default();
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(path.child("targetContainerName"), target);
        }
    }
    errors.into_vec()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn wrong(listed: Value) -> Vec<String> {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "d", "uid": "u"},
            "spec": {
                "containers": [{"name": "c", "image": "i:1"}],
                "initContainers": [{"name": "i", "image": "i:1"}],
                "volumes": [{"name": "v", "emptyDir": {}}],
                "ephemeralContainers": listed,
            },
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let found = validate(&pod).into_iter();
        found
            .map(|it| it.field.replace("spec.ephemeralContainers", ""))
            .collect()
    }

    #[test]
    fn an_ephemeral_container_has_a_name_of_its_own_and_fewer_fields() {
        let with = |fields: Value| {
            let mut container = json!({"name": "e", "image": "i:1"});
            let fields = fields.as_object().unwrap().clone();
            container.as_object_mut().unwrap().extend(fields);
            json!([container])
        };
        for (fields, expected) in [
            (json!({}), None),
            (
                json!({"stdin": true, "tty": true, "targetContainerName": "c"}),
                None,
            ),
            (json!({"targetContainerName": "i"}), None),
            (
                json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
                None,
            ),
            (json!({"securityContext": {"privileged": true}}), None),
            (
                json!({"targetContainerName": "e"}),
                Some("targetContainerName"),
            ),
            (json!({"name": "c"}), Some("name")),
            (json!({"name": ""}), Some("name")),
            (json!({"image": ""}), Some("image")),
            (json!({"ports": [{"containerPort": 1}]}), Some("ports")),
            (json!({"restartPolicy": "Never"}), Some("restartPolicy")),
            (
                json!({"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}),
                Some("lifecycle"),
            ),
            (
                json!({"livenessProbe": {"exec": {"command": ["x"]}}}),
                Some("livenessProbe"),
            ),
            (
                json!({"resources": {"limits": {"cpu": "1"}}}),
                Some("resources"),
            ),
            (
                json!({"volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "x"}]}),
                Some("volumeMounts[0].subPath"),
            ),
            (
                json!({"volumeMounts": [{"name": "w", "mountPath": "/v"}]}),
                Some("volumeMounts[0].name"),
            ),
        ] {
            let found = wrong(with(fields.clone()));
            let expected: Vec<String> = expected.iter().map(|it| format!("[0].{it}")).collect();
            assert_eq!(found, expected, "{fields}");
        }
        let twice = json!([{"name": "e", "image": "i"}, {"name": "e", "image": "i"}]);
        assert_eq!(wrong(twice), ["[1].name"]);
    }
}
