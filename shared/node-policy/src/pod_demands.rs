//! What a pod asks for, as demands. The types of Kubernetes are taken apart completely
//! where security is decided, so a field that a new version of the API brings does not
//! compile until somebody decides about it here.

mod context;
mod handlers;
mod volumes;

use pod::Pod;
use pod::core::{
    ContainerPort, EphemeralContainer, Lifecycle, PodSpec, Probe, SecurityContext, VolumeMount,
};

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

/// Everything in a pod that may need permission.
#[must_use]
pub fn demands_of(pod: &Pod) -> Vec<PodDemand> {
    let mut demands = Demands::default();
    let Some(spec) = &pod.spec else {
        return demands.0;
    };
    context::annotations(pod, &mut demands);
    of_spec(spec, &mut demands);
    demands.0
}

/// The list, and how it is written.
#[derive(Default)]
struct Demands(Vec<PodDemand>);

impl Demands {
    fn of_pod(&mut self, field: impl Into<String>, demand: Demand) {
        self.0.push(PodDemand {
            field: field.into(),
            container: None,
            demand,
        });
    }

    fn of_container(&mut self, container: &ContainerView<'_>, field: &str, demand: Demand) {
        self.of_owner(container, format!("{}.{field}", container.path), demand);
    }

    fn of_owner(&mut self, container: &ContainerView<'_>, field: String, demand: Demand) {
        self.0.push(PodDemand {
            field,
            container: Some((container.name.to_owned(), container.image.to_owned())),
            demand,
        });
    }
}

/// What containers of all kinds have in common here.
struct ContainerView<'a> {
    path: String,
    name: &'a str,
    image: &'a str,
    security_context: Option<&'a SecurityContext>,
    ports: &'a [ContainerPort],
    probes: [(&'static str, Option<&'a Probe>); 3],
    lifecycle: Option<&'a Lifecycle>,
    mounts: &'a [VolumeMount],
}

fn of_spec(spec: &PodSpec, demands: &mut Demands) {
    for (name, asked, demand) in [
        ("hostNetwork", spec.host_network, Demand::HostNetwork),
        ("hostPID", spec.host_pid, Demand::HostPid),
        ("hostIPC", spec.host_ipc, Demand::HostIpc),
    ] {
        if asked == Some(true) {
            demands.of_pod(format!("spec.{name}"), demand);
        }
    }
    let context = context::PodContext::of(spec);
    context.demands(demands);
    let containers = containers(spec);
    for container in &containers {
        context.container_demands(container, demands);
        handlers::demands(container, demands);
        if spec.host_network != Some(true) {
            ports(container, demands);
        }
    }
    volumes::demands(spec, &containers, demands);
}

fn ports(container: &ContainerView<'_>, demands: &mut Demands) {
    for (index, port) in container.ports.iter().enumerate() {
        let number = port.host_port.unwrap_or_default();
        // Others are refused by validation.
        if let Ok(number) = u16::try_from(number)
            && number != 0
        {
            let field = format!("ports[{index}].hostPort");
            demands.of_container(container, &field, Demand::HostPort(number));
        }
    }
}

fn containers(spec: &PodSpec) -> Vec<ContainerView<'_>> {
    let mut views = Vec::new();
    let init = spec.init_containers.iter().flatten().enumerate();
    let init = init.map(|(index, container)| (format!("spec.initContainers[{index}]"), container));
    let ordinary = spec.containers.iter().enumerate();
    let ordinary =
        ordinary.map(|(index, container)| (format!("spec.containers[{index}]"), container));
    for (path, container) in init.chain(ordinary) {
        views.push(ContainerView {
            path,
            name: &container.name,
            image: container.image.as_deref().unwrap_or_default(),
            security_context: container.security_context.as_ref(),
            ports: container.ports.as_deref().unwrap_or_default(),
            probes: [
                ("livenessProbe", container.liveness_probe.as_ref()),
                ("readinessProbe", container.readiness_probe.as_ref()),
                ("startupProbe", container.startup_probe.as_ref()),
            ],
            lifecycle: container.lifecycle.as_ref(),
            mounts: container.volume_mounts.as_deref().unwrap_or_default(),
        });
    }
    let ephemeral = spec.ephemeral_containers.iter().flatten().enumerate();
    views.extend(ephemeral.map(|(index, container)| ephemeral_view(index, container)));
    views
}

fn ephemeral_view(index: usize, container: &EphemeralContainer) -> ContainerView<'_> {
    ContainerView {
        path: format!("spec.ephemeralContainers[{index}]"),
        name: &container.name,
        image: container.image.as_deref().unwrap_or_default(),
        security_context: container.security_context.as_ref(),
        ports: container.ports.as_deref().unwrap_or_default(),
        probes: [
            ("livenessProbe", container.liveness_probe.as_ref()),
            ("readinessProbe", container.readiness_probe.as_ref()),
            ("startupProbe", container.startup_probe.as_ref()),
        ],
        lifecycle: container.lifecycle.as_ref(),
        mounts: container.volume_mounts.as_deref().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
