//! Runtime classes of the node's configuration: what a class may say, and pods that name
//! one, as an API server's admission treats those of its objects.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource;
use pod::core::PodSpec;
use pod::resources::ResourceAmounts;
use pod::runtime_class::{RuntimeClass, RuntimeClasses};
use pod::{Pod, Quantity};

use crate::field::{Errors, FieldError, Path};
use crate::formats;
use crate::validate::resources;

type Amounts = BTreeMap<String, resource::Quantity>;

/// Gives a pod that states no overhead that of its class.
pub fn apply_runtime_class(pod: &mut Pod, classes: &RuntimeClasses) {
    let Some(spec) = &mut pod.spec else { return };
    if !is_empty(spec.overhead.as_ref()) {
        return;
    }
    let name = spec.runtime_class_name.as_deref();
    let class = name.and_then(|name| classes.get(name));
    if let Some(class) = class.filter(|class| !class.overhead.is_empty()) {
        spec.overhead = Some(fixed(class));
    }
}

/// What is wrong with the class that a pod names, and with its overhead beside that.
/// `prefix` is that of the paths of the pod's fields.
#[must_use]
pub fn runtime_class_errors(pod: &Pod, classes: &RuntimeClasses, prefix: &str) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let root = format!("{prefix}spec");
    if let Some(spec) = &pod.spec {
        of_spec(spec, classes, Path::Root(&root), &mut errors);
    }
    errors.into_vec()
}

/// What is wrong with a class of a configuration; `path` is the class's own.
#[must_use]
pub fn runtime_class_config_errors(
    name: &str,
    class: &RuntimeClass,
    path: &str,
) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let path = Path::Root(path);
    errors.invalid_if(path, name, formats::dns1123_subdomain(name));
    let handler = path.child("handler");
    errors.invalid_if(
        handler,
        &class.handler,
        formats::dns1123_label(&class.handler),
    );
    let overhead = path.child("overhead");
    let amounts = amounts(class);
    for (name, amount) in &amounts {
        if let Err(problem) = Quantity::from_api(amount) {
            errors.invalid(overhead.key(name), &amount.0, problem.to_string());
        }
    }
    resources::amounts(Some(&amounts), None, overhead, &mut errors);
    errors.into_vec()
}

fn of_spec(spec: &PodSpec, classes: &RuntimeClasses, path: Path<'_>, errors: &mut Errors) {
    let overhead = path.child("overhead");
    let class = match &spec.runtime_class_name {
        None => None,
        Some(name) => match classes.get(name) {
            None => {
                let field = path.child("runtimeClassName");
                return errors.not_found(field, name);
            }
            class => class,
        },
    };
    match class.filter(|class| !class.overhead.is_empty()) {
        None if !is_empty(spec.overhead.as_ref()) => {
            errors.forbidden(overhead, "the pod has no runtime class that defines one");
        }
        None => {}
        Some(class) => {
            let of_class = fixed(class);
            let expected = ResourceAmounts::of(Some(&of_class));
            if ResourceAmounts::of(spec.overhead.as_ref()) != expected {
                errors.forbidden(overhead, "must be that of the pod's runtime class");
            }
        }
    }
}

/// The overhead as the class states it.
fn amounts(class: &RuntimeClass) -> Amounts {
    let stated = class.overhead.iter();
    stated
        .map(|(name, text)| (name.clone(), resource::Quantity(text.clone())))
        .collect()
}

/// The overhead as it is kept in pods: to thousandths.
fn fixed(class: &RuntimeClass) -> Amounts {
    let mut amounts = amounts(class);
    for amount in amounts.values_mut() {
        if let Ok(quantity) = Quantity::from_api(amount) {
            *amount = quantity.rounded_up_to_millis().to_api();
        }
    }
    amounts
}

fn is_empty(amounts: Option<&Amounts>) -> bool {
    amounts.is_none_or(BTreeMap::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes() -> RuntimeClasses {
        let text = r#"{"vm":{"handler":"kata","overhead":{"cpu":"250m","memory":"64Mi"}},
            "plain":{"handler":"crun"}}"#;
        serde_json::from_str(text).unwrap()
    }

    fn pod(spec: &str) -> Pod {
        serde_json::from_str(&format!(r#"{{"spec":{spec}}}"#)).unwrap()
    }

    #[test]
    fn a_pod_gets_the_overhead_of_its_class_unless_it_states_one() {
        let stated = r#"{"overhead":{"cpu":"1"},"runtimeClassName":"vm"}"#;
        for (spec, expected) in [
            ("{}", None),
            (r#"{"runtimeClassName":"plain"}"#, None),
            (r#"{"runtimeClassName":"other"}"#, None),
            (r#"{"runtimeClassName":"vm"}"#, Some("250m")),
            (r#"{"runtimeClassName":"vm","overhead":{}}"#, Some("250m")),
            (stated, Some("1")),
        ] {
            let mut pod = pod(spec);
            apply_runtime_class(&mut pod, &classes());
            let overhead = pod.spec.unwrap().overhead.unwrap_or_default();
            let cpu = overhead.get("cpu").map(|amount| amount.0.as_str());
            assert_eq!(cpu, expected, "{spec}");
        }
    }

    #[test]
    fn class_and_overhead_must_be_those_of_the_configuration() {
        for (spec, refused) in [
            ("{}", None),
            (r#"{"overhead":{}}"#, None),
            (r#"{"runtimeClassName":"plain"}"#, None),
            (
                r#"{"runtimeClassName":"vm","overhead":{"memory":"65536Ki","cpu":"0.25"}}"#,
                None,
            ),
            (
                r#"{"runtimeClassName":"other"}"#,
                Some("x.spec.runtimeClassName"),
            ),
            (r#"{"runtimeClassName":"vm"}"#, Some("x.spec.overhead")),
            (
                r#"{"runtimeClassName":"vm","overhead":{"cpu":"250m"}}"#,
                Some("x.spec.overhead"),
            ),
            (
                r#"{"runtimeClassName":"plain","overhead":{"cpu":"1"}}"#,
                Some("x.spec.overhead"),
            ),
            (r#"{"overhead":{"cpu":"1"}}"#, Some("x.spec.overhead")),
        ] {
            let found = runtime_class_errors(&pod(spec), &classes(), "x.");
            let fields: Vec<&str> = found.iter().map(|error| error.field.as_str()).collect();
            assert_eq!(fields, Vec::from_iter(refused), "{spec}");
        }
    }

    #[test]
    fn a_class_of_a_configuration_is_checked_as_an_object_of_an_api_server() {
        for (name, class, refused) in [
            ("vm", r#"{"handler":"kata"}"#, None),
            (
                "vm.example.org",
                r#"{"handler":"k","overhead":{"cpu":"1"}}"#,
                None,
            ),
            ("V", r#"{"handler":"kata"}"#, Some("c")),
            ("vm", r#"{"handler":""}"#, Some("c.handler")),
            ("vm", r#"{"handler":"a.b"}"#, Some("c.handler")),
            (
                "vm",
                r#"{"handler":"k","overhead":{"cpu":"x"}}"#,
                Some("c.overhead[cpu]"),
            ),
            (
                "vm",
                r#"{"handler":"k","overhead":{"cpu":"-1"}}"#,
                Some("c.overhead.limits[cpu]"),
            ),
            (
                "vm",
                r#"{"handler":"k","overhead":{"pods":"1"}}"#,
                Some("c.overhead.limits[pods]"),
            ),
        ] {
            let class: RuntimeClass = serde_json::from_str(class).unwrap();
            let found = runtime_class_config_errors(name, &class, "c");
            let fields: Vec<&str> = found.iter().map(|error| error.field.as_str()).collect();
            assert_eq!(fields, Vec::from_iter(refused), "{name} {class:?}");
        }
    }
}
