//! Runtime classes as a node is configured with them: by which handler of the container
//! runtime a pod runs, and what that costs. What a pod may say of it is in
//! `pod-validation`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde::{Deserialize, Serialize};

use crate::accessors::PodExt;

/// One class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RuntimeClass {
    /// What the runtime calls it: in containerd a table of `runtimes`.
    pub handler: String,
    /// What a pod needs beside its containers, as quantities by resource name; empty for
    /// nothing.
    #[serde(default)]
    pub overhead: BTreeMap<String, String>,
}

/// The classes of a node, by name.
pub type RuntimeClasses = BTreeMap<String, RuntimeClass>;

/// The handler of a pod's class: empty, which means the runtime's default, for a pod
/// that names none; `None` for a class that is not configured.
#[must_use]
pub fn handler<'a>(pod: &Pod, classes: &'a RuntimeClasses) -> Option<&'a str> {
    match &pod.spec_or_default().runtime_class_name {
        None => Some(""),
        Some(name) => classes.get(name).map(|class| class.handler.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handler_is_that_of_the_class_that_a_pod_names() {
        let classes: RuntimeClasses =
            serde_json::from_str(r#"{"vm":{"handler":"kata","overhead":{"cpu":"250m"}}}"#).unwrap();
        for (spec, expected) in [
            ("{}", Some("")),
            (r#"{"runtimeClassName":"vm"}"#, Some("kata")),
            (r#"{"runtimeClassName":"other"}"#, None),
        ] {
            let pod: Pod = serde_json::from_str(&format!(r#"{{"spec":{spec}}}"#)).unwrap();
            assert_eq!(handler(&pod, &classes), expected, "{spec}");
        }
    }
}
