//! What an API server takes and warns of, since nobody means it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource;
use pod::core::Container;
use pod::resources::{EPHEMERAL_STORAGE, MEMORY};
use pod::{Pod, Quantity};

use crate::field::{Errors, FieldError, Path};
use crate::optional::list;

type Amounts = BTreeMap<String, resource::Quantity>;

/// What is most likely a mistake in a pod that is valid, its defaults applied.
pub fn warnings(pod: &Pod) -> Vec<FieldError> {
    let mut found = Errors::default();
    let path = Path::Root("spec");
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    fractions(spec.overhead.as_ref(), path.child("overhead"), &mut found);
    containers(
        list(&spec.init_containers),
        path.child("initContainers"),
        &mut found,
    );
    containers(&spec.containers, path.child("containers"), &mut found);
    found.into_vec()
}

fn containers(containers: &[Container], path: Path<'_>, found: &mut Errors) {
    for (index, container) in containers.iter().enumerate() {
        let Some(stated) = &container.resources else {
            continue;
        };
        let path = path.index(index);
        let path = path.child("resources");
        fractions(stated.limits.as_ref(), path.child("limits"), found);
        // A request that is not given is the limit.
        let mut requests = stated.requests.clone().unwrap_or_default();
        let limits = stated.limits.as_ref();
        requests.retain(|name, amount| limits.and_then(|limits| limits.get(name)) != Some(amount));
        fractions(Some(&requests), path.child("requests"), found);
    }
}

/// `256m` of memory is a quarter of a byte.
fn fractions(amounts: Option<&Amounts>, path: Path<'_>, found: &mut Errors) {
    for name in [MEMORY, EPHEMERAL_STORAGE] {
        let amount = amounts.and_then(|amounts| amounts.get(name));
        let Some(quantity) = amount.and_then(|it| Quantity::from_api(it).ok()) else {
            continue;
        };
        if !quantity.is_whole() {
            let detail = "it is a fraction of a byte: m is a thousandth, M and Mi are a million";
            found.invalid(path.key(name), quantity, detail);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fraction_of_a_byte_is_warned_of() {
        let of = |spec: serde_json::Value| -> Vec<String> {
            let pod: Pod = serde_json::from_value(json!({ "spec": spec })).unwrap();
            warnings(&pod).iter().map(ToString::to_string).collect()
        };
        let container = |resources| json!({"containers": [{"name": "c", "resources": resources}]});
        let said = |field: &str, value: &str| {
            format!(
                "spec.{field}: Invalid value: \"{value}\": it is a fraction of a byte: m is a \
                 thousandth, M and Mi are a million"
            )
        };
        let (limits, requests) = (
            "containers[0].resources.limits",
            "containers[0].resources.requests",
        );
        for (spec, expected) in [
            (
                container(json!({"limits": {"memory": "256m", "cpu": "100m"},
                                 "requests": {"memory": "256m"}})),
                vec![said(&format!("{limits}[memory]"), "256m")],
            ),
            (
                container(json!({"requests": {"memory": "0.5", "ephemeral-storage": "1500m"}})),
                vec![
                    said(&format!("{requests}[memory]"), "500m"),
                    said(&format!("{requests}[ephemeral-storage]"), "1500m"),
                ],
            ),
            (
                json!({"overhead": {"memory": "1m"}, "containers": [],
                       "initContainers": [{"name": "i", "resources": {"limits": {"memory": "2m"}}}]}),
                vec![
                    said("overhead[memory]", "1m"),
                    said("initContainers[0].resources.limits[memory]", "2m"),
                ],
            ),
            (
                container(json!({"limits": {"memory": "256M", "cpu": "1m"},
                                 "requests": {"memory": "1000m"}})),
                vec![],
            ),
        ] {
            assert_eq!(of(spec.clone()), expected, "{spec}");
        }
    }
}
