//! Probes and lifecycle hooks.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use pod::core::{
    Container, ExecAction, GRPCAction, HTTPGetAction, Lifecycle, LifecycleHandler, PodSpec, Probe,
    SleepAction, TCPSocketAction,
};

use pod::stop_signal;

use crate::field::{Errors, Path};
use crate::formats;
use crate::optional::{list, text};

/// The probes and hooks of a container that may have them.
pub(super) fn of_container(
    container: &Container,
    spec: &PodSpec,
    path: Path<'_>,
    errors: &mut Errors,
) {
    if let Some(lifecycle) = &container.lifecycle {
        hooks(lifecycle, spec, path.child("lifecycle"), errors);
    }
    for (name, found) in [
        ("livenessProbe", &container.liveness_probe),
        ("startupProbe", &container.startup_probe),
    ] {
        let Some(found) = found else { continue };
        let path = path.child(name);
        probe(found, path, errors);
        if found.success_threshold != Some(1) {
            let value = found.success_threshold.unwrap_or_default();
            errors.invalid(path.child("successThreshold"), value, "must be 1");
        }
    }
    if let Some(found) = &container.readiness_probe {
        let path = path.child("readinessProbe");
        probe(found, path, errors);
        if let Some(seconds) = found.termination_grace_period_seconds {
            let field = path.child("terminationGracePeriodSeconds");
            errors.invalid(field, seconds, "a readiness probe terminates nothing");
        }
    }
}

/// Refuses all of them: an ordinary init container has none.
pub(super) fn forbidden(container: &Container, path: Path<'_>, errors: &mut Errors) {
    for (name, present) in [
        ("lifecycle", container.lifecycle.is_some()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
    ] {
        if present {
            errors.forbidden(
                path.child(name),
                "init containers may have it only with restartPolicy Always",
            );
        }
    }
}

fn probe(probe: &Probe, path: Path<'_>, errors: &mut Errors) {
    let handler = Handler {
        exec: probe.exec.as_ref(),
        http_get: probe.http_get.as_ref(),
        tcp_socket: probe.tcp_socket.as_ref(),
        grpc: probe.grpc.as_ref(),
        sleep: None,
    };
    handler.validate(None, path, errors);
    for (name, value) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        if let Some(value) = value.filter(|value| *value < 0) {
            errors.invalid(path.child(name), value, "must not be negative");
        }
    }
    if let Some(seconds) = probe
        .termination_grace_period_seconds
        .filter(|seconds| *seconds <= 0)
    {
        let field = path.child("terminationGracePeriodSeconds");
        errors.invalid(field, seconds, "must be greater than 0");
    }
}

fn hooks(lifecycle: &Lifecycle, spec: &PodSpec, path: Path<'_>, errors: &mut Errors) {
    for (name, hook) in [
        ("postStart", &lifecycle.post_start),
        ("preStop", &lifecycle.pre_stop),
    ] {
        let Some(hook) = hook else { continue };
        let LifecycleHandler {
            exec,
            http_get,
            tcp_socket,
            sleep,
        } = hook;
        let handler = Handler {
            exec: exec.as_ref(),
            http_get: http_get.as_ref(),
            tcp_socket: tcp_socket.as_ref(),
            grpc: None,
            sleep: sleep.as_ref(),
        };
        let grace = spec.termination_grace_period_seconds;
        handler.validate(grace, path.child(name), errors);
    }
    if let Some(signal) = &lifecycle.stop_signal {
        stop_signal(signal, spec, path.child("stopSignal"), errors);
    }
}

/// Which signals there are depends on the operating system, so the pod has to name it.
fn stop_signal(signal: &str, spec: &PodSpec, path: Path<'_>, errors: &mut Errors) {
    let system = spec.os.as_ref().map_or("", |os| os.name.as_str());
    let supported: &[&'static str] = match system {
        "linux" => &stop_signal::NAMES,
        "windows" => &["SIGKILL", "SIGTERM"],
        "" => {
            let detail = "may be given only together with spec.os.name";
            return errors.forbidden(path, detail);
        }
        // Told of the system itself.
        _ => return,
    };
    if !supported.contains(&signal) {
        errors.not_supported(path, signal, supported);
    }
}

/// What a probe or hook does; exactly one of these.
struct Handler<'a> {
    exec: Option<&'a ExecAction>,
    http_get: Option<&'a HTTPGetAction>,
    tcp_socket: Option<&'a TCPSocketAction>,
    grpc: Option<&'a GRPCAction>,
    sleep: Option<&'a SleepAction>,
}

impl Handler<'_> {
    fn validate(&self, grace_seconds: Option<i64>, path: Path<'_>, errors: &mut Errors) {
        let present = [
            ("exec", self.exec.is_some()),
            ("httpGet", self.http_get.is_some()),
            ("tcpSocket", self.tcp_socket.is_some()),
            ("grpc", self.grpc.is_some()),
            ("sleep", self.sleep.is_some()),
        ];
        let mut names = present
            .iter()
            .filter(|(_, present)| *present)
            .map(|(name, _)| *name);
        let Some(first) = names.next() else {
            return errors.required(path, "must say what to do");
        };
        for name in names {
            errors.forbidden(path.child(name), "only one kind of action may be given");
        }
        let path = path.child(first);
        if let Some(action) = self.exec {
            if list(&action.command).is_empty() {
                errors.required(path.child("command"), "");
            }
        } else if let Some(action) = self.http_get {
            http_get(action, path, errors);
        } else if let Some(action) = self.tcp_socket {
            port(&action.port, path.child("port"), errors);
        } else if let Some(action) = self.grpc {
            port(&IntOrString::Int(action.port), path.child("port"), errors);
        } else if let (Some(action), Some(grace)) = (self.sleep, grace_seconds)
            && !(0..=grace).contains(&action.seconds)
        {
            let detail = format!("must be between 0 and the grace period of {grace} seconds");
            errors.invalid(path, action.seconds, detail);
        }
    }
}

fn http_get(action: &HTTPGetAction, path: Path<'_>, errors: &mut Errors) {
    if text(&action.path).is_empty() {
        errors.required(path.child("path"), "");
    }
    port(&action.port, path.child("port"), errors);
    let scheme = text(&action.scheme);
    if !["HTTP", "HTTPS"].contains(&scheme) {
        errors.not_supported(path.child("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in list(&action.http_headers) {
        let problem = formats::http_header_name(&header.name);
        errors.invalid_if(path.child("httpHeaders"), &header.name, problem);
    }
}

fn port(port: &IntOrString, path: Path<'_>, errors: &mut Errors) {
    match port {
        IntOrString::Int(number) => {
            if let Some(problem) = formats::port_number(*number) {
                errors.invalid(path, number, problem);
            }
        }
        IntOrString::String(name) => errors.invalid_if(path, name, formats::port_name(name)),
    }
}

#[cfg(test)]
mod tests {
    use pod::Pod;
    use serde_json::{Value, json};

    use crate::validate;

    fn wrong(system: Value, signal: &str) -> Vec<String> {
        let mut pod: Pod = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "d"},
            "spec": {"os": system, "containers": [
                {"name": "c", "image": "i:1", "lifecycle": {"stopSignal": signal}}
            ]},
        }))
        .unwrap();
        crate::apply_defaults(&mut pod);
        let found = validate(&pod).into_iter();
        found.map(|error| error.to_string()).collect()
    }

    #[test]
    fn a_stop_signal_is_one_of_the_operating_system_that_the_pod_names() {
        const FIELD: &str = "spec.containers[0].lifecycle.stopSignal";
        let (linux, windows) = (json!({"name": "linux"}), json!({"name": "windows"}));
        for (system, signal, expected) in [
            (&linux, "SIGUSR1", None),
            (&linux, "SIGRTMIN+15", None),
            (&linux, "SIGTERM", None),
            (&linux, "TERM", Some("Unsupported value: \"TERM\"")),
            (&linux, "", Some("Unsupported value: \"\"")),
            (&windows, "SIGTERM", None),
            (&windows, "SIGUSR1", Some("Unsupported value: \"SIGUSR1\"")),
            (
                &Value::Null,
                "SIGTERM",
                Some("Forbidden: may be given only"),
            ),
        ] {
            let found = wrong(system.clone(), signal);
            match expected {
                None => assert_eq!(found, Vec::<String>::new(), "{system} {signal}"),
                Some(expected) => {
                    let expected = format!("{FIELD}: {expected}");
                    let is_told = found.len() == 1 && found[0].starts_with(&expected);
                    assert!(is_told, "{system} {signal}: {found:?}");
                }
            }
        }
    }
}
