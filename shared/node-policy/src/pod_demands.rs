//! What a pod asks for, as demands. The types of Kubernetes are taken apart completely
//! where security is decided, so a field that a new version of the API brings does not
//! compile until somebody decides about it here.

mod context;
mod handlers;
mod list;
mod volumes;

use pod::Pod;
use pod::core::{EphemeralContainer, PodSpec};

use crate::demand::Demand;
pub use list::PodDemand;

use list::{ContainerView, Demands};

/// Everything in a pod that may need permission.
#[must_use]
pub fn demands_of(pod: &Pod) -> Vec<PodDemand> {
    let mut demands = Demands::default();
    let Some(spec) = &pod.spec else {
        return demands.into_list();
    };
    context::annotations(pod, &mut demands);
    of_spec(spec, &mut demands);
    demands.into_list()
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
