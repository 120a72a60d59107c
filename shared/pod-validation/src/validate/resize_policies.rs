//! What a change of resources means for a container that runs.

use std::collections::HashSet;

use pod::accessors::is_restartable;
use pod::core::{Container, PodSpec};

use crate::field::{Errors, Path};
use crate::optional::{list, text};

/// Of a container that runs as long as its pod.
pub(super) fn of_container(
    container: &Container,
    spec: &PodSpec,
    path: Path<'_>,
    errors: &mut Errors,
) {
    let path = path.child("resizePolicy");
    let mut seen = HashSet::new();
    for (index, policy) in list(&container.resize_policy).iter().enumerate() {
        if !seen.insert(&policy.resource_name) {
            errors.duplicate(path.index(index), &policy.resource_name);
        }
        errors.one_of(path, &policy.resource_name, &["cpu", "memory"]);
        let restart = &policy.restart_policy;
        errors.one_of(path, restart, &["NotRequired", "RestartContainer"]);
        if text(&spec.restart_policy) == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when `restartPolicy` is 'Never'";
            errors.invalid(path, restart, detail);
        }
    }
}

/// Of init containers only sidecars can have one.
pub(super) fn of_init_container(
    container: &Container,
    spec: &PodSpec,
    path: Path<'_>,
    errors: &mut Errors,
) {
    if is_restartable(container) {
        of_container(container, spec, path, errors);
        return;
    }
    let policies = list(&container.resize_policy);
    if !policies.is_empty() {
        let field = path.child("resizePolicy");
        errors.invalid(field, policies.len(), "must not be set for init containers");
    }
}

#[cfg(test)]
mod tests {
    use pod::{Pod, PodSource};
    use serde_json::json;

    use crate::judge;

    /// What is wrong with a container of this kind with these policies.
    fn of(
        policy: &str,
        kind: &str,
        own_policy: Option<&str>,
        policies: &[[&str; 2]],
    ) -> Vec<String> {
        let policies = policies
            .iter()
            .map(|[resource, restart]| json!({"resourceName": resource, "restartPolicy": restart}));
        let mut spec = json!({
            "restartPolicy": policy, "containers": [{"name": "c", "image": "i:1"}],
            "initContainers": [{"name": "i", "image": "i:1", "restartPolicy": own_policy}],
        });
        spec[kind][0]["resizePolicy"] = policies.collect();
        let pod = json!({"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let found = judge(&pod, PodSource::Api, &Default::default()).into_iter();
        let prefix = format!("spec.{kind}[0].resizePolicy");
        found
            .map(|error| match error.field.strip_prefix(&prefix) {
                Some(rest) => format!("{rest} {}", error.detail),
                None => error.field,
            })
            .collect()
    }

    #[test]
    fn each_resource_has_one_policy_that_the_pods_restart_policy_allows() {
        const NEVER: &str = " must be 'NotRequired' when `restartPolicy` is 'Never'";
        const CPU: [&str; 2] = ["cpu", "NotRequired"];
        const MEMORY: [&str; 2] = ["memory", "RestartContainer"];
        for (kind, own) in [("containers", None), ("initContainers", Some("Always"))] {
            let of = |policy, policies: &[_]| of(policy, kind, own, policies);
            assert_eq!(of("Always", &[CPU, MEMORY]), [""; 0]);
            assert_eq!(of("Never", &[CPU]), [""; 0]);
            assert_eq!(of("Never", &[CPU, MEMORY]), [NEVER]);
            assert_eq!(of("Always", &[CPU, CPU]).len(), 1);
            assert!(of("Always", &[CPU, CPU])[0].starts_with("[1]"));
            for wrong in [
                ["", "NotRequired"],
                ["pods", "NotRequired"],
                ["cpu", ""],
                ["cpu", "No"],
            ] {
                assert_eq!(of("Always", &[wrong]).len(), 1, "{wrong:?}");
            }
        }
        let of_init = of("Always", "initContainers", None, &[CPU]);
        assert_eq!(of_init, [" must not be set for init containers"]);
    }
}
