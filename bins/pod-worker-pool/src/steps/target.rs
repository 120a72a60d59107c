//! What one sync is about.

use std::borrow::Cow;
use std::collections::BTreeMap;

use clock::UnixNanos;
use pod::core::Container as ContainerSpec;
use pod::{Pod, PodIdentity, PodSource, ephemeral};
use pod_lifecycle::plan::Refused;

use super::error::Retry;
use super::start_error::StartError;
use crate::image::Image;

/// The pod of a sync.
pub(super) struct Target<'a> {
    pub(super) identity: &'a PodIdentity,
    /// With the paths of the node that its claims stand for.
    pub(super) pod: &'a Pod,
    /// Who delivered it.
    pub(super) source: PodSource,
    /// As its source has it: it tells which objects the pod refers to.
    pub(super) source_pod: &'a Pod,
    /// What of it may not change while it runs, as `pod::update` has it.
    pub(super) started_with: &'a str,
    /// When its first sync was, if that is noted.
    pub(super) noted_start: Option<UnixNanos>,
    /// Why the node policy lets nothing new be made for it.
    pub(super) refused: Option<Refused>,
}

/// Images that this sync has found already, or cannot have.
pub(super) type PreparedImages = BTreeMap<String, Result<Image, StartError>>;

/// The spec of a container of the pod, of whatever kind.
pub(super) fn spec_of<'a>(
    target: &Target<'a>,
    name: &str,
) -> Result<Cow<'a, ContainerSpec>, StartError> {
    let found = ephemeral::any_container(target.pod, name);
    found.ok_or_else(|| {
        let message = format!("the pod has no container {name:?}");
        StartError::new("CreateContainerConfigError", message, Retry::LATER)
    })
}
