//! Requests and limits.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource;
use pod::Quantity;
use pod::core::ResourceRequirements;
use pod::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};

use crate::field::{Errors, Path};
use crate::formats;
use crate::optional::list;

/// Prefix of the names of huge pages; the page size follows.
pub(crate) const HUGE_PAGES: &str = "hugepages-";
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
    for (index, claim) in list(&requirements.claims).iter().enumerate() {
        let claims = path.child("claims");
        let claim_path = claims.index(index);
        if claim.name.is_empty() {
            errors.required(claim_path.child("name"), "");
        }
    }
}

/// Limits and requests, each alone and compared.
pub(super) fn amounts(
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
    let has_huge_pages = names.clone().any(|name| name.starts_with(HUGE_PAGES));
    if has_huge_pages && !names.any(|name| name == CPU || name == MEMORY) {
        errors.forbidden(path, "huge pages need cpu or memory as well");
    }
}

fn amount(name: &str, amount: &resource::Quantity, path: Path<'_>, errors: &mut Errors) {
    if let Some(problem) = formats::qualified_name(name) {
        errors.invalid(path, name, problem);
    } else if !name.contains('/') {
        let standard = [CPU, MEMORY, EPHEMERAL_STORAGE].contains(&name);
        if !standard && !name.starts_with(HUGE_PAGES) {
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
    if let Some(size) = name.strip_prefix(HUGE_PAGES) {
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
    is_native(name) && !name.starts_with(HUGE_PAGES)
}
