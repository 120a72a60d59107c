//! Requests and limits.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource;
use pod::core::{PodSpec, ResourceRequirements};
use pod::huge_pages::{HUGE_PAGES_PREFIX, page_size};
use pod::resources::{
    CPU, EPHEMERAL_STORAGE, MEMORY, ResourceAmounts, all_container_limits, all_container_requests,
    container_limits, is_pod_level,
};
use pod::{Pod, Quantity};

use crate::field::{Errors, Path};
use crate::formats;
use crate::optional::list;

/// Native resources that are counted, not measured.
const COUNTED: &[&str] = &[
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];

type Amounts = BTreeMap<String, resource::Quantity>;

pub(super) fn requirements(
    requirements: &ResourceRequirements,
    path: Path<'_>,
    errors: &mut Errors,
) {
    amounts(
        requirements.limits.as_ref(),
        requirements.requests.as_ref(),
        path,
        errors,
    );
}

/// What a pod states for itself as a whole (since Kubernetes 1.34): each amount alone,
/// and beside those of its containers.
pub(super) fn of_pod(spec: &PodSpec, path: Path<'_>, errors: &mut Errors) {
    let Some(stated) = &spec.resources else {
        return;
    };
    for _ in list(&stated.claims) {
        errors.forbidden(path.child("claims"), "a pod as a whole has no claims");
    }
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    for (names, field) in [
        (&stated.limits, limits_path),
        (&stated.requests, requests_path),
    ] {
        for name in names.iter().flat_map(BTreeMap::keys) {
            if !is_pod_level(name) {
                errors.not_supported(field.key(name), name, &[CPU, MEMORY, "hugepages-*"]);
            }
        }
    }
    amounts(
        stated.limits.as_ref(),
        stated.requests.as_ref(),
        path,
        errors,
    );
    let pod = Pod {
        spec: Some(spec.clone()),
        ..Pod::default()
    };
    let covers = |own: &ResourceAmounts, needed: Quantity, name: &str| {
        own.get(name).is_none_or(|own| needed <= own)
    };
    let (requests, limits) = (
        ResourceAmounts::of(stated.requests.as_ref()),
        ResourceAmounts::of(stated.limits.as_ref()),
    );
    for (name, needed) in all_container_requests(&pod).iter() {
        if !covers(&requests, needed, name) {
            let detail = format!("must not be less than {needed}, which the containers request");
            let own = requests.get(name).unwrap_or(Quantity::ZERO);
            errors.invalid(requests_path.key(name), own, detail);
        }
    }
    for (name, needed) in all_container_limits(&pod).iter() {
        if page_size(name).is_some() && !covers(&limits, needed, name) {
            let detail = format!("must not be less than {needed}, the limits of the containers");
            let own = limits.get(name).unwrap_or(Quantity::ZERO);
            errors.invalid(limits_path.key(name), own, detail);
        }
    }
    for container in &spec.containers {
        for (name, limit) in container_limits(container).iter() {
            if !covers(&limits, limit, name) {
                let detail = format!(
                    "must not be less than {limit} of container {}",
                    container.name
                );
                let own = limits.get(name).unwrap_or(Quantity::ZERO);
                errors.invalid(limits_path.key(name), own, detail);
            }
        }
    }
}

/// Limits and requests, each alone and compared.
pub(crate) fn amounts(
    limits: Option<&Amounts>,
    requests: Option<&Amounts>,
    path: Path<'_>,
    errors: &mut Errors,
) {
    let limits_path = path.child("limits");
    let requests_path = path.child("requests");
    for (name, amount) in limits.into_iter().flatten() {
        self::amount(name, amount, limits_path.key(name), errors);
    }
    for (name, amount) in requests.into_iter().flatten() {
        self::amount(name, amount, requests_path.key(name), errors);
        let limit = limits.and_then(|limits| limits.get(name));
        let limit = limit.and_then(|limit| Quantity::from_api(limit).ok());
        let Ok(request) = Quantity::from_api(amount) else {
            continue;
        };
        match limit {
            Some(limit) if request != limit && !may_be_overcommitted(name) => {
                let detail = format!("must equal the {name} limit of {limit}");
                errors.invalid(requests_path, request, detail);
            }
            Some(limit) if request > limit => {
                let detail = format!("must not be more than the {name} limit of {limit}");
                errors.invalid(requests_path, request, detail);
            }
            None if !may_be_overcommitted(name) => {
                errors.required(limits_path, "a resource that is not shared needs a limit");
            }
            Some(_) | None => {}
        }
    }
    let mut names = limits.into_iter().chain(requests).flat_map(BTreeMap::keys);
    let has_huge_pages = names
        .clone()
        .any(|name| name.starts_with(HUGE_PAGES_PREFIX));
    if has_huge_pages && !names.any(|name| name == CPU || name == MEMORY) {
        errors.forbidden(path, "huge pages need cpu or memory as well");
    }
}

fn amount(name: &str, amount: &resource::Quantity, path: Path<'_>, errors: &mut Errors) {
    if let Some(problem) = formats::qualified_name(name) {
        errors.invalid(path, name, problem);
    } else if !name.contains('/') {
        let standard = [CPU, MEMORY, EPHEMERAL_STORAGE].contains(&name);
        if !standard && !name.starts_with(HUGE_PAGES_PREFIX) {
            errors.invalid(path, name, "is no standard resource of containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.invalid(path, name, "is no name of an extended resource");
    }
    let Ok(quantity) = Quantity::from_api(amount) else {
        return;
    };
    if quantity.is_negative() {
        errors.invalid(path, quantity, "must not be negative");
    }
    if (COUNTED.contains(&name) || is_extended(name)) && !quantity.is_whole() {
        errors.invalid(path, quantity, "must be a whole number");
    }
    if let Some(size) = name.strip_prefix(HUGE_PAGES_PREFIX) {
        let size = size.parse::<Quantity>().map_or(0, Quantity::value);
        if size <= 0 || quantity.value() % size != 0 {
            errors.invalid(path, quantity, "must be a multiple of the page size");
        }
    }
}

/// Resources that Kubernetes itself knows.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Resources of others, such as devices.
pub(crate) fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && formats::qualified_name(&format!("requests.{name}")).is_none()
}

/// Whether limits may be more than requests.
fn may_be_overcommitted(name: &str) -> bool {
    is_native(name) && !name.starts_with(HUGE_PAGES_PREFIX)
}
