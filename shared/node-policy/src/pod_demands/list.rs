//! The list of a pod's demands, and what of a container all who write it look at.

use pod::core::{ContainerPort, Lifecycle, Probe, SecurityContext, VolumeMount};

use crate::demand::Demand;

/// A demand with who has it and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDemand {
    /// The field's path in the pod.
    pub field: String,
    /// Name and image of the container that asks for it; `None`: the pod as a whole.
    pub container: Option<(String, String)>,
    /// What is asked for.
    pub demand: Demand,
}

/// The list, and how it is written.
#[derive(Default)]
pub(super) struct Demands(Vec<PodDemand>);

impl Demands {
    pub(super) fn into_list(self) -> Vec<PodDemand> {
        self.0
    }

    pub(super) fn of_pod(&mut self, field: impl Into<String>, demand: Demand) {
        self.0.push(PodDemand {
            field: field.into(),
            container: None,
            demand,
        });
    }

    pub(super) fn of_container(
        &mut self,
        container: &ContainerView<'_>,
        field: &str,
        demand: Demand,
    ) {
        self.of_owner(container, format!("{}.{field}", container.path), demand);
    }

    pub(super) fn of_owner(
        &mut self,
        container: &ContainerView<'_>,
        field: String,
        demand: Demand,
    ) {
        self.0.push(PodDemand {
            field,
            container: Some((container.name.to_owned(), container.image.to_owned())),
            demand,
        });
    }
}

/// What containers of all kinds have in common here.
pub(super) struct ContainerView<'a> {
    pub(super) path: String,
    pub(super) name: &'a str,
    pub(super) image: &'a str,
    pub(super) security_context: Option<&'a SecurityContext>,
    pub(super) ports: &'a [ContainerPort],
    pub(super) probes: [(&'static str, Option<&'a Probe>); 3],
    pub(super) lifecycle: Option<&'a Lifecycle>,
    pub(super) mounts: &'a [VolumeMount],
}
