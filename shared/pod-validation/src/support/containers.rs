//! What Bulkhead does not do yet in containers.

use pod::Quantity;
use pod::core::{
    Capabilities, Container, ContainerResizePolicy, EnvVar, EnvVarSource, ExecAction, GRPCAction,
    HTTPGetAction, Lifecycle, LifecycleHandler, Probe, ResourceFieldSelector, ResourceRequirements,
    SecurityContext, SleepAction, TCPSocketAction, VolumeMount,
};
use pod::hook::{MAX_HOOK_BYTES, hook_bytes};
use pod::huge_pages::HUGE_PAGES_PREFIX;
use pod::probe::{MAX_PROBE_BYTES, wire_form};
use pod::resources::{CPU, EPHEMERAL_STORAGE, MEMORY};

use super::refuse::refuse;
use crate::field::{Errors, Path};
use crate::optional::{list, text};

pub(super) fn container(container: &Container, path: Path<'_>, errors: &mut Errors) {
    let Container {
        args: _,
        command: _,
        env,
        // All of it is supported.
        env_from: _,
        image: _,
        image_pull_policy: _,
        lifecycle,
        liveness_probe,
        name: _,
        ports: _,
        readiness_probe,
        resize_policy,
        resources,
        restart_policy: _,
        restart_policy_rules: _,
        security_context,
        startup_probe,
        stdin: _,
        stdin_once: _,
        termination_message_path: _,
        termination_message_policy: _,
        tty: _,
        volume_devices,
        volume_mounts,
        working_dir: _,
    } = container;
    refuse(
        &[("volumeDevices", !list(volume_devices).is_empty())],
        path,
        errors,
    );
    for policy in list(resize_policy) {
        let ContainerResizePolicy {
            resource_name: _,
            restart_policy: _,
        } = policy;
    }
    for (field, probe) in [
        ("livenessProbe", liveness_probe),
        ("readinessProbe", readiness_probe),
        ("startupProbe", startup_probe),
    ] {
        if let Some(probe) = probe {
            self::probe(probe, path.child(field), errors);
        }
    }
    if let Some(lifecycle) = lifecycle {
        hooks(lifecycle, path.child("lifecycle"), errors);
    }
    if let Some(requirements) = resources {
        self::resources(requirements, path.child("resources"), errors);
    }
    if let Some(context) = security_context {
        self::security_context(context, path.child("securityContext"), errors);
    }
    list(env).iter().for_each(environment);
    let mounts = path.child("volumeMounts");
    for (index, mount) in list(volume_mounts).iter().enumerate() {
        self::mount(mount, mounts.index(index), errors);
    }
}

/// All that API servers before 1.37 know of a probe is supported, up to a size; a new
/// field would stop this from compiling.
fn probe(probe: &Probe, path: Path<'_>, errors: &mut Errors) {
    let Probe {
        exec,
        failure_threshold: _,
        grpc,
        http_get,
        initial_delay_seconds: _,
        period_seconds: _,
        success_threshold: _,
        tcp_socket,
        termination_grace_period_seconds: _,
        timeout_seconds: _,
    } = probe;
    if let Some(ExecAction { command: _ }) = exec {}
    if let Some(TCPSocketAction { host: _, port: _ }) = tcp_socket {}
    if let Some(action) = http_get {
        http(action, path, errors);
    }
    if let Some(action) = grpc {
        let GRPCAction {
            mode,
            port: _,
            service: _,
        } = action;
        let is_other = !["", "Plaintext"].contains(&text(mode));
        refuse(&[("mode", is_other)], path.child("grpc"), errors);
    }
    let bytes = wire_form(probe).len();
    if bytes > MAX_PROBE_BYTES {
        let detail = format!("it has {bytes} bytes, more than {MAX_PROBE_BYTES}");
        errors.unsupported(path, &detail);
    }
}

fn http(action: &HTTPGetAction, path: Path<'_>, errors: &mut Errors) {
    let HTTPGetAction {
        host: _,
        http_headers: _,
        path: _,
        port: _,
        protocol,
        scheme: _,
    } = action;
    // Without it HTTP/1.1 is spoken.
    let is_other = !text(protocol).is_empty();
    refuse(&[("protocol", is_other)], path.child("httpGet"), errors);
}

fn hooks(lifecycle: &Lifecycle, path: Path<'_>, errors: &mut Errors) {
    let Lifecycle {
        post_start,
        pre_stop,
        // Up to the runtime, which has it or not.
        stop_signal: _,
    } = lifecycle;
    for (field, handler) in [("postStart", post_start), ("preStop", pre_stop)] {
        if let Some(handler) = handler {
            hook(handler, path.child(field), errors);
        }
    }
}

/// A tcpSocket is accepted, as by an API server, and fails when it is run.
fn hook(handler: &LifecycleHandler, path: Path<'_>, errors: &mut Errors) {
    let LifecycleHandler {
        exec,
        http_get,
        sleep,
        tcp_socket,
    } = handler;
    if let Some(ExecAction { command: _ }) = exec {}
    if let Some(TCPSocketAction { host: _, port: _ }) = tcp_socket {}
    if let Some(SleepAction { seconds: _ }) = sleep {}
    if let Some(action) = http_get {
        http(action, path, errors);
    }
    let bytes = hook_bytes(handler);
    if bytes > MAX_HOOK_BYTES {
        let detail = format!("it has {bytes} bytes, more than {MAX_HOOK_BYTES}");
        errors.unsupported(path, &detail);
    }
}

fn resources(requirements: &ResourceRequirements, path: Path<'_>, errors: &mut Errors) {
    let ResourceRequirements {
        claims,
        limits,
        requests,
    } = requirements;
    refuse(&[("claims", !list(claims).is_empty())], path, errors);
    let supported = [CPU, MEMORY, EPHEMERAL_STORAGE];
    for (field, amounts) in [("limits", limits), ("requests", requests)] {
        let field = path.child(field);
        for (name, amount) in amounts.iter().flatten() {
            let nothing = Quantity::from_api(amount).is_ok_and(Quantity::is_zero);
            let is_supported =
                supported.contains(&name.as_str()) || name.starts_with(HUGE_PAGES_PREFIX);
            if !nothing && !is_supported {
                errors.unsupported(field.key(name), "");
            }
        }
    }
}

fn security_context(context: &SecurityContext, path: Path<'_>, errors: &mut Errors) {
    let SecurityContext {
        allow_privilege_escalation: _,
        app_armor_profile: _,
        capabilities,
        privileged: _,
        proc_mount: _,
        read_only_root_filesystem: _,
        run_as_group: _,
        run_as_non_root: _,
        run_as_user: _,
        se_linux_options: _,
        seccomp_profile: _,
        windows_options,
    } = context;
    if let Some(Capabilities { add: _, drop: _ }) = capabilities {}
    refuse(
        &[("windowsOptions", windows_options.is_some())],
        path,
        errors,
    );
}

/// All of it is supported; a new field would stop this from compiling.
fn environment(variable: &EnvVar) {
    let EnvVar {
        name: _,
        value: _,
        value_from,
    } = variable;
    let Some(source) = value_from else { return };
    let EnvVarSource {
        config_map_key_ref: _,
        field_ref: _,
        file_key_ref: _,
        resource_field_ref,
        secret_key_ref: _,
    } = source;
    if let Some(ResourceFieldSelector {
        container_name: _,
        divisor: _,
        resource: _,
    }) = resource_field_ref
    {}
}

fn mount(mount: &VolumeMount, path: Path<'_>, errors: &mut Errors) {
    let VolumeMount {
        bind_mount_options,
        mount_path: _,
        mount_propagation: _,
        name: _,
        read_only: _,
        recursive_read_only: _,
        sub_path: _,
        sub_path_expr: _,
    } = mount;
    if !list(bind_mount_options).is_empty() {
        let reason = "the runtimes' interface has no word for it before Kubernetes 1.37";
        errors.unsupported(path.child("bindMountOptions"), reason);
    }
}
