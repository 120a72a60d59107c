//! Containers and init containers: names, images, ports and policies.

use std::collections::HashSet;
use std::net::IpAddr;

use pod::core::{Container, ContainerPort, PodSpec};
use pod::restart;

use super::{
    env_files, environment, mounts, probes, resize_policies, resources, security, volumes,
};
use crate::field::{Errors, Path};
use crate::formats;
use crate::optional::{list, text};

pub(super) fn validate(
    spec: &PodSpec,
    volumes: &volumes::ByName<'_>,
    path: Path<'_>,
    errors: &mut Errors,
) {
    ordinary(spec, volumes, path.child("containers"), errors);
    initial(spec, volumes, path.child("initContainers"), errors);
}

fn ordinary(spec: &PodSpec, volumes: &volumes::ByName<'_>, path: Path<'_>, errors: &mut Errors) {
    if spec.containers.is_empty() {
        errors.required(path, "");
    }
    let host_network = spec.host_network == Some(true);
    let mut names = HashSet::new();
    let mut host_ports = HashSet::new();
    for (index, container) in spec.containers.iter().enumerate() {
        let path = path.index(index);
        common(container, volumes, path, errors);
        if !names.insert(&container.name) {
            errors.duplicate(path.child("name"), &container.name);
        }
        probes::of_container(container, spec, path, errors);
        resize_policies::of_container(container, spec, path, errors);
        let ports = path.child("ports");
        unique_host_ports(container, &mut host_ports, ports, errors);
        if host_network {
            host_network_ports(container, ports, errors);
        }
    }
}

fn initial(spec: &PodSpec, volumes: &volumes::ByName<'_>, path: Path<'_>, errors: &mut Errors) {
    let mut names: HashSet<_> = spec.containers.iter().map(|each| &each.name).collect();
    for (index, container) in list(&spec.init_containers).iter().enumerate() {
        // Init containers run one by one: their ports only conflict within one,
        // and the API server reports that at the first.
        let first = path.index(0);
        let path = path.index(index);
        common(container, volumes, path, errors);
        if !names.insert(&container.name) {
            errors.duplicate(path.child("name"), &container.name);
        }
        unique_host_ports(container, &mut HashSet::new(), first.child("ports"), errors);
        resize_policies::of_init_container(container, spec, path, errors);
        if pod::accessors::is_restartable(container) {
            probes::of_container(container, spec, path, errors);
        } else {
            probes::forbidden(container, path, errors);
        }
    }
}

/// Largest number of restart rules of a container, and of codes in one of them.
const MAX_RESTART_RULES: usize = 20;
const MAX_RESTART_CODES: usize = 255;

/// A container's own restart policy, and its rules beside that.
fn restarts(container: &Container, path: Path<'_>, errors: &mut Errors) {
    let policy = path.child("restartPolicy");
    let rules = list(&container.restart_policy_rules);
    match &container.restart_policy {
        Some(own) => {
            errors.one_of(policy, own, &["Always", "Never", "OnFailure"]);
        }
        None if !rules.is_empty() => errors.required(policy, "restart rules need it"),
        None => {}
    }
    let path = path.child("restartPolicyRules");
    if rules.len() > MAX_RESTART_RULES {
        errors.invalid(path, rules.len(), "must have at most 20 items");
    }
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        let actions = [restart::RESTART, restart::RESTART_ALL_CONTAINERS];
        errors.one_of(path.child("action"), &rule.action, &actions);
        let path = path.child("exitCodes");
        let Some(codes) = &rule.exit_codes else {
            errors.required(path, "");
            continue;
        };
        errors.one_of(path.child("operator"), &codes.operator, &["In", "NotIn"]);
        let (path, values) = (path.child("values"), list(&codes.values));
        if values.is_empty() {
            errors.required(path, "");
        }
        if values.len() > MAX_RESTART_CODES {
            errors.invalid(path, values.len(), "must have at most 255 items");
        }
        let mut seen = HashSet::new();
        for (index, code) in values.iter().enumerate() {
            if !seen.insert(code) {
                errors.duplicate(path.index(index), code);
            }
        }
    }
}

/// What holds for a container of any kind.
pub(super) fn common(
    container: &Container,
    volumes: &volumes::ByName<'_>,
    path: Path<'_>,
    errors: &mut Errors,
) {
    restarts(container, path, errors);
    let name = path.child("name");
    if container.name.is_empty() {
        errors.required(name, "");
    } else {
        errors.invalid_if(
            name,
            &container.name,
            formats::dns1123_label(&container.name),
        );
    }
    let image = text(&container.image);
    if image.is_empty() {
        errors.required(path.child("image"), "");
    } else if image.trim() != image {
        errors.invalid(
            path.child("image"),
            image,
            "must not begin or end with white space",
        );
    }
    errors.one_of(
        path.child("imagePullPolicy"),
        text(&container.image_pull_policy),
        &["Always", "IfNotPresent", "Never"],
    );
    errors.one_of(
        path.child("terminationMessagePolicy"),
        text(&container.termination_message_policy),
        &["File", "FallbackToLogsOnError"],
    );
    ports(list(&container.ports), path.child("ports"), errors);
    environment::validate(container, path, errors);
    env_files::validate(container, volumes, path, errors);
    mounts::validate(container, volumes, path, errors);
    if let Some(requirements) = &container.resources {
        resources::requirements(requirements, path.child("resources"), errors);
    }
    security::container(container, path.child("securityContext"), errors);
}

fn ports(ports: &[ContainerPort], path: Path<'_>, errors: &mut Errors) {
    let mut names = HashSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(&port.name);
        if !name.is_empty() {
            let field = path.child("name");
            if let Some(problem) = formats::port_name(name) {
                errors.invalid(field, name, problem);
            } else if !names.insert(name) {
                errors.duplicate(field, name);
            }
        }
        match port.container_port {
            0 => errors.required(path.child("containerPort"), ""),
            number => port_number(number, path.child("containerPort"), errors),
        }
        if let Some(number) = port.host_port {
            port_number(number, path.child("hostPort"), errors);
        }
        // An API server takes anything, and plugins of pod networks then open no port and
        // say nothing.
        let address = text(&port.host_ip);
        if !address.is_empty() && address.parse::<IpAddr>().is_err() {
            errors.invalid(path.child("hostIP"), address, "must be an IP address");
        }
        errors.one_of(
            path.child("protocol"),
            text(&port.protocol),
            &["TCP", "UDP", "SCTP"],
        );
    }
}

fn port_number(number: i32, path: Path<'_>, errors: &mut Errors) {
    if let Some(problem) = formats::port_number(number) {
        errors.invalid(path, number, problem);
    }
}

/// A port of the node can only be given away once for each protocol and address.
fn unique_host_ports(
    container: &Container,
    taken: &mut HashSet<(String, String, i32)>,
    path: Path<'_>,
    errors: &mut Errors,
) {
    for (index, port) in list(&container.ports).iter().enumerate() {
        let Some(number) = port.host_port else {
            continue;
        };
        let protocol = text(&port.protocol);
        let address = text(&port.host_ip);
        if !taken.insert((protocol.to_owned(), address.to_owned(), number)) {
            let port_path = path.index(index);
            let value = format!("{protocol}/{address}/{number}");
            errors.duplicate(port_path.child("hostPort"), value);
        }
    }
}

/// On the node's network a container's port is the node's.
fn host_network_ports(container: &Container, path: Path<'_>, errors: &mut Errors) {
    for (index, port) in list(&container.ports).iter().enumerate() {
        if port.host_port.unwrap_or(0) != port.container_port {
            let port_path = path.index(index);
            errors.invalid(
                port_path.child("containerPort"),
                port.container_port,
                "must equal hostPort with hostNetwork",
            );
        }
    }
}
