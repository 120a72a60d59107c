//! The one decoded form of a pod that is kept: what a status follows from.

use pod::PodDocument;
use pod::core::{Container, Pod};
use pod::metadata::CONFIG_SOURCE_ANNOTATION;
use pod::wire::WireError;

/// A pod in one version, without what no status needs and what is large: a decoded pod takes
/// many times the memory of its JSON.
#[derive(Debug)]
pub(super) struct KnownPod {
    pub(super) pod: Pod,
    /// Names the version.
    pub(super) hash: String,
}

impl KnownPod {
    /// Decodes a pod.
    pub(super) fn of(document: &PodDocument) -> Result<KnownPod, WireError> {
        let mut pod = document.decode()?;
        let metadata = &mut pod.metadata;
        if let Some(annotations) = &mut metadata.annotations {
            annotations.retain(|name, _| name == CONFIG_SOURCE_ANNOTATION);
        }
        metadata.managed_fields = None;
        metadata.owner_references = None;
        if let Some(spec) = &mut pod.spec {
            spec.affinity = None;
            spec.topology_spread_constraints = None;
            spec.tolerations = None;
            spec.volumes = None;
            let containers = spec.containers.iter_mut();
            containers
                .chain(spec.init_containers.iter_mut().flatten())
                .for_each(shorten);
            for container in spec.ephemeral_containers.iter_mut().flatten() {
                container.args = None;
                container.command = None;
                container.env = None;
                container.env_from = None;
            }
        }
        let hash = document.hash().to_owned();
        Ok(KnownPod { pod, hash })
    }
}

fn shorten(container: &mut Container) {
    container.args = None;
    container.command = None;
    container.env = None;
    container.env_from = None;
    container.lifecycle = None;
    container.ports = None;
    container.security_context = None;
}
