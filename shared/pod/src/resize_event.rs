//! What events of a resize tell.

use serde::Serialize;

use crate::accessors::PodExt;
use crate::core::{Container, Pod, ResourceRequirements};

/// What the pod is to have, as a kubelet tells it in these events.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<OfContainer<'a>>,
    containers: Vec<OfContainer<'a>>,
    /// That of an API server's object.
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

#[derive(Serialize)]
struct OfContainer<'a> {
    name: &'a str,
    resources: ResourceRequirements,
}

/// The text of an event that `what` becomes of the pod's resize, and why if it went wrong.
pub fn message(what: &str, pod: &Pod, error: &str) -> String {
    fn all(containers: &[Container]) -> Vec<OfContainer<'_>> {
        let of_containers = containers.iter().map(|container| OfContainer {
            name: &container.name,
            resources: container.resources.clone().unwrap_or_default(),
        });
        of_containers.collect()
    }
    let summary = Summary {
        init_containers: all(pod.init_containers()),
        containers: all(pod.containers()),
        generation: pod.metadata.generation.unwrap_or_default(),
        error,
    };
    match serde_json::to_string(&summary) {
        Ok(summary) => format!("{what}: {summary}"),
        Err(_) => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_what_each_container_is_to_have_and_what_went_wrong() {
        let pod: Pod = serde_json::from_str(
            r#"{"metadata":{"generation":2},"spec":{"initContainers":[{"name":"i"}],
                "containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}"#,
        )
        .unwrap();
        let expected = r#"w: {"initContainers":[{"name":"i","resources":{}}],"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}],"generation":2,"error":"e"}"#;
        assert_eq!(message("w", &pod, "e"), expected);
        let nothing = r#"w: {"containers":[],"generation":0}"#;
        assert_eq!(message("w", &Pod::default(), ""), nothing);
    }
}
