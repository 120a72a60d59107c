//! Containers of a described pod: what was asked for and what became of it.

use pod::core::{
    Container, ContainerPort, ContainerState, ContainerStatus, EnvVar, Probe, ResourceRequirements,
    VolumeMount,
};
use pod::meta::Time;

use crate::pod_row::ending_word;
use crate::text::Text;
use crate::words::{nanos, timestamp};

/// All containers of a list.
pub(super) fn list(
    text: &mut Text,
    heading: &str,
    containers: &[Container],
    statuses: &Option<Vec<ContainerStatus>>,
) {
    if containers.is_empty() {
        return;
    }
    text.heading(heading);
    for container in containers {
        let mut statuses = statuses.iter().flatten();
        let status = statuses.find(|status| status.name == container.name);
        text.line(1, &format!("{}:", container.name));
        what_became_of(text, status);
        what_was_asked_for(text, container, status);
    }
}

fn what_became_of(text: &mut Text, status: Option<&ContainerStatus>) {
    let Some(status) = status else { return };
    text.optional(2, "Container ID", status.container_id.as_deref());
    state(text, "State", status.state.as_ref());
    let last = status.last_state.as_ref();
    state(
        text,
        "Last State",
        last.filter(|last| last.terminated.is_some()),
    );
    let word = |value: bool| if value { "true" } else { "false" };
    text.field(2, "Ready", word(status.ready));
    text.optional(2, "Started", status.started.map(word));
    text.field(2, "Restart Count", &status.restart_count.to_string());
}

fn state(text: &mut Text, key: &str, state: Option<&ContainerState>) {
    let Some(state) = state else { return };
    let time = |time: &Option<Time>| time.as_ref().map(|time| timestamp(nanos(time)));
    if let Some(running) = &state.running {
        text.field(2, key, "Running");
        text.optional(3, "Started", time(&running.started_at));
    } else if let Some(ended) = &state.terminated {
        text.field(2, key, &format!("Terminated: {}", ending_word(ended)));
        text.field(3, "Exit Code", &ended.exit_code.to_string());
        text.optional(3, "Started", time(&ended.started_at));
        text.optional(3, "Finished", time(&ended.finished_at));
        text.optional(3, "Message", ended.message.as_deref());
    } else if let Some(waiting) = &state.waiting {
        let reason = waiting.reason.as_deref().unwrap_or("to be started");
        text.field(2, key, &format!("Waiting: {reason}"));
        text.optional(3, "Message", waiting.message.as_deref());
    }
}

fn what_was_asked_for(text: &mut Text, container: &Container, status: Option<&ContainerStatus>) {
    text.optional(2, "Image", container.image.as_deref());
    text.optional(2, "Image ID", status.map(|status| status.image_id.as_str()));
    text.optional(2, "Command", container.command.as_deref().map(words));
    text.optional(2, "Args", container.args.as_deref().map(words));
    let ports: Vec<String> = container.ports.iter().flatten().map(port).collect();
    text.values(2, "Ports", &ports);
    if let Some(resources) = &container.resources {
        text.values(2, "Requests", &quantities(resources, true));
        text.values(2, "Limits", &quantities(resources, false));
    }
    text.optional(2, "Liveness", container.liveness_probe.as_ref().map(probe));
    text.optional(
        2,
        "Readiness",
        container.readiness_probe.as_ref().map(probe),
    );
    text.optional(2, "Startup", container.startup_probe.as_ref().map(probe));
    let variables: Vec<String> = container.env.iter().flatten().map(variable).collect();
    text.values(2, "Environment", &variables);
    let mounts: Vec<String> = container
        .volume_mounts
        .iter()
        .flatten()
        .map(mount)
        .collect();
    text.values(2, "Mounts", &mounts);
}

/// Arguments as a shell would read them, near enough for people.
fn words(words: &[String]) -> String {
    let word = |word: &String| {
        let plain = !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || c == '"');
        if plain {
            word.clone()
        } else {
            format!("{word:?}")
        }
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn port(port: &ContainerPort) -> String {
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let mut text = format!("{}/{protocol}", port.container_port);
    if let Some(name) = &port.name {
        text += &format!(" ({name})");
    }
    if let Some(host_port) = port.host_port.filter(|port| *port != 0) {
        let host_ip = port
            .host_ip
            .as_deref()
            .filter(|ip| !ip.is_empty())
            .unwrap_or("*");
        text += &format!(" on {host_ip}:{host_port} of the node");
    }
    text
}

fn quantities(resources: &ResourceRequirements, requests: bool) -> Vec<String> {
    let list = if requests {
        &resources.requests
    } else {
        &resources.limits
    };
    list.iter()
        .flatten()
        .map(|(name, quantity)| format!("{name}={}", quantity.0))
        .collect()
}

/// A probe on one line.
fn probe(probe: &Probe) -> String {
    let handler = if let Some(exec) = &probe.exec {
        format!(
            "exec {}",
            words(exec.command.as_deref().unwrap_or_default())
        )
    } else if let Some(http) = &probe.http_get {
        let scheme = http.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
        let host = http.host.as_deref().unwrap_or_default();
        let path = http.path.as_deref().unwrap_or("/");
        format!("http-get {scheme}://{host}:{}{path}", port_word(&http.port))
    } else if let Some(tcp) = &probe.tcp_socket {
        format!(
            "tcp-socket {}:{}",
            tcp.host.as_deref().unwrap_or_default(),
            port_word(&tcp.port)
        )
    } else if let Some(grpc) = &probe.grpc {
        format!(
            "grpc :{} {}",
            grpc.port,
            grpc.service.as_deref().unwrap_or_default()
        )
    } else {
        "none".to_owned()
    };
    format!(
        "{} delay={}s timeout={}s period={}s success={} failure={}",
        handler.trim_end(),
        probe.initial_delay_seconds.unwrap_or(0),
        probe.timeout_seconds.unwrap_or(1),
        probe.period_seconds.unwrap_or(10),
        probe.success_threshold.unwrap_or(1),
        probe.failure_threshold.unwrap_or(3),
    )
}

fn port_word(port: &k8s_openapi::apimachinery::pkg::util::intstr::IntOrString) -> String {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    match port {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(name) => name.clone(),
    }
}

fn variable(variable: &EnvVar) -> String {
    let name = &variable.name;
    let Some(from) = &variable.value_from else {
        return format!("{name}={}", variable.value.as_deref().unwrap_or_default());
    };
    if let Some(field) = &from.field_ref {
        format!("{name} from field {}", field.field_path)
    } else if let Some(resource) = &from.resource_field_ref {
        format!("{name} from resource {}", resource.resource)
    } else if let Some(key) = &from.config_map_key_ref {
        format!("{name} from config map {} key {}", key.name, key.key)
    } else if let Some(key) = &from.secret_key_ref {
        format!("{name} from secret {} key {}", key.name, key.key)
    } else {
        format!("{name} from elsewhere")
    }
}

fn mount(mount: &VolumeMount) -> String {
    let mut text = format!("{} from {}", mount.mount_path, mount.name);
    if let Some(path) = mount.sub_path.as_ref().or(mount.sub_path_expr.as_ref()) {
        text += &format!("/{path}");
    }
    if mount.read_only == Some(true) {
        text += " (read-only)";
    }
    text
}
