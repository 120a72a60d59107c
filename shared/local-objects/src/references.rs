//! Which objects a pod refers to.

use std::collections::BTreeSet;

use pod::core::Container;
use pod::{Pod, PodExt, ephemeral};

use crate::object::{ObjectKind, ObjectRef};

/// The objects whose content the node needs to run a pod: those of its volumes, those of
/// its containers' variables, and those by which its images are pulled.
#[must_use]
pub fn references(pod: &Pod) -> BTreeSet<ObjectRef> {
    let mut found = Found {
        namespace: pod.namespace(),
        references: BTreeSet::new(),
    };
    for volume in pod.volumes() {
        if let Some(source) = &volume.config_map {
            found.add(ObjectKind::ConfigMap, &source.name);
        }
        if let Some(source) = &volume.persistent_volume_claim {
            found.add(ObjectKind::PersistentVolume, &source.claim_name);
        }
        if let Some(name) = volume.secret.iter().find_map(|it| it.secret_name.as_ref()) {
            found.add(ObjectKind::Secret, name);
        }
        let projected = volume.projected.iter();
        for source in projected.flat_map(|it| it.sources.iter().flatten()) {
            if let Some(source) = &source.config_map {
                found.add(ObjectKind::ConfigMap, &source.name);
            }
            if let Some(source) = &source.secret {
                found.add(ObjectKind::Secret, &source.name);
            }
        }
    }
    let spec = pod.spec.iter();
    for secret in spec.flat_map(|spec| spec.image_pull_secrets.iter().flatten()) {
        if !secret.name.is_empty() {
            found.add(ObjectKind::Secret, &secret.name);
        }
    }
    for (_, container) in pod.all_containers() {
        found.of_container(container);
    }
    for container in ephemeral::containers(pod) {
        found.of_container(&container);
    }
    found.references
}

struct Found<'a> {
    namespace: &'a str,
    references: BTreeSet<ObjectRef>,
}

impl Found<'_> {
    fn of_container(&mut self, container: &Container) {
        for source in container.env_from.iter().flatten() {
            if let Some(source) = &source.config_map_ref {
                self.add(ObjectKind::ConfigMap, &source.name);
            }
            if let Some(source) = &source.secret_ref {
                self.add(ObjectKind::Secret, &source.name);
            }
        }
        let variables = container.env.iter().flatten();
        for source in variables.filter_map(|it| it.value_from.as_ref()) {
            if let Some(selector) = &source.config_map_key_ref {
                self.add(ObjectKind::ConfigMap, &selector.name);
            }
            if let Some(selector) = &source.secret_key_ref {
                self.add(ObjectKind::Secret, &selector.name);
            }
        }
    }

    fn add(&mut self, kind: ObjectKind, name: &str) {
        self.references.insert(ObjectRef {
            kind,
            namespace: self.namespace.to_owned(),
            name: name.to_owned(),
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_way_to_refer_to_an_object_is_found() {
        let mut value = test_pods::manifest("a", "u");
        value["spec"]["volumes"] = json!([
            {"name": "v1", "configMap": {"name": "c1"}},
            {"name": "v2", "secret": {"secretName": "s1"}},
            {"name": "v3", "projected": {"sources": [
                {"configMap": {"name": "c2"}}, {"secret": {"name": "s2"}},
                {"downwardAPI": {"items": []}},
            ]}},
            {"name": "v4", "emptyDir": {}},
            {"name": "v5", "persistentVolumeClaim": {"claimName": "p1"}},
        ]);
        value["spec"]["imagePullSecrets"] = json!([{"name": "s5"}, {"name": ""}]);
        let container = |number: u32| {
            json!({
                "name": format!("c{number}"), "image": "i",
                "envFrom": [
                    {"configMapRef": {"name": format!("c{number}3")}},
                    {"secretRef": {"name": format!("s{number}3")}},
                ],
                "env": [
                    {"name": "A", "value": "b"},
                    {"name": "B", "valueFrom": {"configMapKeyRef":
                        {"name": format!("c{number}4"), "key": "k"}}},
                    {"name": "C", "valueFrom": {"secretKeyRef":
                        {"name": format!("s{number}4"), "key": "k"}}},
                    {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
            })
        };
        value["spec"]["initContainers"] = json!([container(1)]);
        value["spec"]["containers"] = json!([container(2)]);
        let found = references(&test_pods::pod(value));
        let found: Vec<_> = found.iter().map(ToString::to_string).collect();
        let names = |kind: &str, letter: &str| {
            ["1", "13", "14", "2", "23", "24"].map(|it| format!("{kind} default/{letter}{it}"))
        };
        let mut expected = [names("ConfigMap", "c"), names("Secret", "s")].concat();
        expected.push("Secret default/s5".to_owned());
        expected.push("PersistentVolume of the claim default/p1".to_owned());
        assert_eq!(found, expected);
    }
}
