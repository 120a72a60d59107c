//! What one sync is about.

use std::collections::BTreeMap;

use clock::UnixNanos;
use pod::core::Container as ContainerSpec;
use pod::{Pod, PodExt, PodIdentity};
use pod_lifecycle::plan::Refused;

use super::error::Retry;
use super::start_error::StartError;
use crate::image::Image;

/// The pod of a sync.
pub(super) struct Target<'a> {
    pub(super) identity: &'a PodIdentity,
    /// With the paths of the node that its claims stand for.
    pub(super) pod: &'a Pod,
    /// As its source has it: it tells which objects the pod refers to.
    pub(super) given: &'a Pod,
    /// What of it may not change while it runs, as `pod::update` has it.
    pub(super) started_with: &'a str,
    /// When its first sync was, if that is noted.
    pub(super) noted_start: Option<UnixNanos>,
    /// Why the node policy lets nothing new be made for it.
    pub(super) refused: Option<Refused>,
}

/// Images that this sync has found already, or cannot have.
pub(super) type PreparedImages = BTreeMap<String, Result<Image, StartError>>;

/// The spec of a container of the pod.
pub(super) fn spec_of<'a>(
    target: &Target<'a>,
    name: &str,
) -> Result<&'a ContainerSpec, StartError> {
    let found = target.pod.container(name);
    found.map(|(_, spec)| spec).ok_or_else(|| {
        let message = format!("the pod has no container {name:?}");
        StartError::new("CreateContainerConfigError", message, Retry::LATER)
    })
}
