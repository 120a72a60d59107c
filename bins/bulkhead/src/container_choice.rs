//! Which container of a pod is meant. Pure.

use pod::{Pod, PodExt as _, ephemeral};

use crate::failure::Failure;

/// The container that kubectl takes when none is named.
pub(crate) const DEFAULT_CONTAINER_ANNOTATION: &str = "kubectl.kubernetes.io/default-container";

/// All of them, init containers first.
pub(crate) fn names(pod: &Pod) -> Vec<&str> {
    pod.all_containers()
        .map(|(_, container)| container.name.as_str())
        .chain(ephemeral::listed(pod).iter().map(|it| it.name.as_str()))
        .collect()
}

/// The one of this name.
pub(crate) fn named(pod: &Pod, wanted: &str) -> Result<String, Failure> {
    let names = names(pod);
    match names.contains(&wanted) {
        true => Ok(wanted.to_owned()),
        false => Err(Failure::NotFound(format!(
            "pod {} has no container {wanted}; it has: {}",
            pod.name(),
            names.join(", ")
        ))),
    }
}

/// The one that is meant where none is named.
pub(crate) fn usual(pod: &Pod) -> Result<String, Failure> {
    let names = names(pod);
    let annotated = pod.annotation(DEFAULT_CONTAINER_ANNOTATION);
    let annotated = annotated.filter(|name| names.contains(name));
    let first = pod.containers().first().map(|it| it.name.as_str());
    let name = annotated.or(first).map(str::to_owned);
    name.ok_or_else(|| Failure::NotFound(format!("pod {} has no containers", pod.name())))
}
