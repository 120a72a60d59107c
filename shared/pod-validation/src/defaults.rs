//! The defaults that an API server gives a pod. Zero values are absent here
//! (see `normalize` of `pod-manifest`), so "not set" is `None`.

use std::collections::BTreeMap;

use pod::core::{
    Container, ContainerPort, DownwardAPIVolumeFile, EnvVar, HTTPGetAction, LifecycleHandler,
    PodSpec, Probe, ResourceRequirements, Volume,
};
use pod::huge_pages::page_size;
use pod::resources::{CPU, MEMORY, all_container_limits, all_container_requests, is_pod_level};
use pod::{ImageReference, Pod, Quantity};

use crate::profile_annotations;

/// Permissions of files in volumes that are made of objects.
const DEFAULT_FILE_MODE: i32 = 0o644;

/// Fills in everything that the pod leaves to the API server.
pub fn apply(pod: &mut Pod) {
    profile_annotations::apply(pod);
    let spec = pod.spec.get_or_insert_default();
    let host_network = spec.host_network == Some(true);
    pod_spec(spec);
    let init = spec.init_containers.iter_mut().flatten();
    for each in spec.containers.iter_mut().chain(init) {
        container(each);
        for port in each.ports.iter_mut().flatten() {
            if host_network && port.host_port.is_none() && port.container_port != 0 {
                port.host_port = Some(port.container_port);
            }
        }
    }
    for each in spec.volumes.iter_mut().flatten() {
        volume(each);
    }
    pod_level_resources(pod);
}

/// What a pod that states something for itself as a whole leaves out, as Kubernetes 1.34
/// does: limits of huge pages are those of its containers; and where it has limits,
/// requests are those of its containers, or else its limits.
fn pod_level_resources(pod: &mut Pod) {
    let requested = all_container_requests(pod);
    let limited = all_container_limits(pod);
    let Some(stated) = pod.spec.as_mut().and_then(|spec| spec.resources.as_mut()) else {
        return;
    };
    stated.limits.iter_mut().for_each(round_up);
    stated.requests.iter_mut().for_each(round_up);
    let is_empty = |amounts: &Option<BTreeMap<_, _>>| amounts.iter().all(BTreeMap::is_empty);
    if is_empty(&stated.limits) && is_empty(&stated.requests) {
        return;
    }
    for (name, amount) in limited.iter() {
        let of_requests = stated.requests.as_ref();
        if page_size(name).is_some() && of_requests.is_none_or(|all| !all.contains_key(name)) {
            let limits = stated.limits.get_or_insert_default();
            limits.entry(name.to_owned()).or_insert(amount.to_api());
        }
    }
    let Some(limits) = stated.limits.as_ref().filter(|limits| !limits.is_empty()) else {
        return;
    };
    let requests = stated.requests.get_or_insert_default();
    for name in [CPU, MEMORY] {
        if let Some(amount) = requested.get(name) {
            requests.entry(name.to_owned()).or_insert(amount.to_api());
        }
    }
    for (name, amount) in limits.iter().filter(|(name, _)| is_pod_level(name)) {
        requests.entry(name.clone()).or_insert(amount.clone());
    }
}

fn pod_spec(spec: &mut PodSpec) {
    set(&mut spec.restart_policy, "Always");
    set(&mut spec.dns_policy, "ClusterFirst");
    set(&mut spec.scheduler_name, "default-scheduler");
    spec.termination_grace_period_seconds
        .get_or_insert(pod::accessors::DEFAULT_TERMINATION_GRACE_PERIOD_SECONDS);
    spec.enable_service_links.get_or_insert(true);
    spec.security_context.get_or_insert_default();
    // The old name of the field follows the new one.
    if spec.service_account_name.is_none() {
        spec.service_account_name.clone_from(&spec.service_account);
    }
    spec.service_account.clone_from(&spec.service_account_name);
    if let Some(overhead) = &mut spec.overhead {
        round_up(overhead);
    }
}

pub(crate) fn container(container: &mut Container) {
    let policy = pull_policy(container.image.as_deref());
    set(&mut container.image_pull_policy, policy);
    set(
        &mut container.termination_message_path,
        "/dev/termination-log",
    );
    set(&mut container.termination_message_policy, "File");
    resources(container.resources.get_or_insert_default());
    container.ports.iter_mut().flatten().for_each(port);
    container.env.iter_mut().flatten().for_each(environment);
    for probe in [
        &mut container.liveness_probe,
        &mut container.readiness_probe,
        &mut container.startup_probe,
    ] {
        probe.iter_mut().for_each(self::probe);
    }
    if let Some(lifecycle) = &mut container.lifecycle {
        lifecycle
            .post_start
            .iter_mut()
            .chain(&mut lifecycle.pre_stop)
            .for_each(hook);
    }
}

fn port(port: &mut ContainerPort) {
    set(&mut port.protocol, "TCP");
}

fn environment(variable: &mut EnvVar) {
    let Some(source) = &mut variable.value_from else {
        return;
    };
    if let Some(field) = &mut source.field_ref {
        set(&mut field.api_version, "v1");
    }
    if let Some(resource) = &mut source.resource_field_ref {
        resource
            .divisor
            .get_or_insert_with(|| Quantity::ZERO.to_api());
    }
}

/// Amounts are kept to thousandths; what is limited and not requested is
/// requested.
fn resources(resources: &mut ResourceRequirements) {
    if let Some(limits) = &mut resources.limits {
        round_up(limits);
        let requests = resources.requests.get_or_insert_default();
        for (name, amount) in limits {
            requests
                .entry(name.clone())
                .or_insert_with(|| amount.clone());
        }
    }
    if let Some(requests) = &mut resources.requests {
        round_up(requests);
    }
}

fn round_up(
    amounts: &mut BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
) {
    for amount in amounts.values_mut() {
        if let Ok(quantity) = Quantity::from_api(amount) {
            *amount = quantity.rounded_up_to_millis().to_api();
        }
    }
}

fn probe(probe: &mut Probe) {
    probe.timeout_seconds.get_or_insert(1);
    probe.period_seconds.get_or_insert(10);
    probe.success_threshold.get_or_insert(1);
    probe.failure_threshold.get_or_insert(3);
    probe.http_get.iter_mut().for_each(http_get);
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_default();
    }
}

fn hook(hook: &mut LifecycleHandler) {
    hook.http_get.iter_mut().for_each(http_get);
}

fn http_get(action: &mut HTTPGetAction) {
    set(&mut action.path, "/");
    set(&mut action.scheme, "HTTP");
}

fn volume(volume: &mut Volume) {
    if has_no_source(volume) {
        volume.empty_dir = Some(Default::default());
    }
    if let Some(source) = &mut volume.host_path {
        source.type_.get_or_insert_default();
    }
    if let Some(source) = &mut volume.secret {
        source.default_mode.get_or_insert(DEFAULT_FILE_MODE);
    }
    if let Some(source) = &mut volume.config_map {
        source.default_mode.get_or_insert(DEFAULT_FILE_MODE);
    }
    if let Some(source) = &mut volume.downward_api {
        source.default_mode.get_or_insert(DEFAULT_FILE_MODE);
        source.items.iter_mut().flatten().for_each(downward_file);
    }
    if let Some(source) = &mut volume.projected {
        source.default_mode.get_or_insert(DEFAULT_FILE_MODE);
        for projection in source.sources.iter_mut().flatten() {
            let files = projection
                .downward_api
                .iter_mut()
                .flat_map(|source| &mut source.items);
            files.flatten().for_each(downward_file);
        }
    }
    if let Some(source) = &mut volume.image {
        let policy = pull_policy(source.reference.as_deref());
        set(&mut source.pull_policy, policy);
    }
}

/// A name that is none is left to the worker to refuse, as the API server does.
fn pull_policy(image: Option<&str>) -> &'static str {
    match image.map(ImageReference::parse) {
        Some(Ok(reference)) if reference.is_latest() => "Always",
        _ => "IfNotPresent",
    }
}

fn downward_file(file: &mut DownwardAPIVolumeFile) {
    if let Some(field) = &mut file.field_ref {
        set(&mut field.api_version, "v1");
    }
    if let Some(resource) = &mut file.resource_field_ref {
        resource
            .divisor
            .get_or_insert_with(|| Quantity::ZERO.to_api());
    }
}

fn has_no_source(volume: &Volume) -> bool {
    *volume
        == Volume {
            name: volume.name.clone(),
            ..Volume::default()
        }
}

fn set(field: &mut Option<String>, value: &str) {
    field.get_or_insert_with(|| value.to_owned());
}
