//! Our requests against those of a real kubelet (1.26.1), pod by pod. The file holds
//! what it asked containerd for; each deliberate difference is in [`DIFFERENCES`].

use std::collections::BTreeMap;
use std::path::Path;

use cri::v1;
use node_layout::paths;
use pod::PodExt;
use pod::core::Pod;
use pod::runtime_class::RuntimeClass;
use serde_json::{Map, Value, json};

use crate::test_pods::{ContainerCase, node, pod};
use pod_volumes::MountedVolume;

use crate::{ResolvConf, pod_sandbox_config};
use crate::{container_config, parse_resolv_conf};

const RECORDED: &str = include_str!("../../../tests/data/kubelet-cri-requests.jsonl");

/// How many pods the file holds: a file that lost lines must not pass for agreement.
const RECORDED_PODS: usize = 53;

/// Where we differ on purpose: how both sides are made comparable, and why.
const DIFFERENCES: [(&str, Difference, &str); 6] = [
    (
        "hash",
        |_, request| remove(request, "/config/annotations/io.kubernetes.container.hash"),
        "our hash covers a versioned list of fields and has 64 bits, so that an upgrade does not \
         restart containers",
    ),
    (
        "environment",
        |_, request| sort(request, "/config/envs"),
        "ours keeps the order of the spec, the kubelet's comes from a map and is random",
    ),
    (
        "hosts file on the node's network",
        |pod, request| {
            if pod.host_network() {
                remove_mount(request, "/etc/hosts");
            }
        },
        "a kubelet without API server never learns such a pod's address and so mounts no hosts \
         file; one with an API server does, and hostAliases would be lost without it",
    ),
    (
        "termination log",
        |_, request| each_mount(request, |mount| anonymous(mount, "/containers/")),
        "the last part of the file's name is random on both sides",
    ),
    (
        "hostPath",
        |pod, request| each_mount(request, |mount| of_host_path(pod, mount)),
        "the kubelet gives the runtime the node's path, ours is where the path was bound after it \
         was opened and judged: a link that is put there later leads nowhere else",
    ),
    (
        "masked paths",
        |_, request| newer_masks(request),
        "kubelets mask these since 1.31 and 1.34: the use of power and interrupts tell what other \
         processes do",
    ),
];

type Difference = fn(&Pod, &mut Value);

struct Recorded {
    pod: Pod,
    sandboxes: Vec<Value>,
    containers: Vec<Value>,
    envs_ip: Option<String>,
}

fn recorded() -> Vec<Recorded> {
    let lines = RECORDED
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|line| read(&line)).collect()
}

fn read(line: &Value) -> Recorded {
    let requests = |call: &str| -> Vec<Value> {
        let calls = line["calls"].as_array().unwrap().iter();
        calls
            .filter(|made| made["call"] == call)
            .map(|made| made["request"].clone())
            .collect()
    };
    Recorded {
        pod: static_pod(&line["manifest"], &line["metadata"]),
        sandboxes: requests("RunPodSandbox"),
        containers: requests("CreateContainer"),
        envs_ip: line["status"]["podIP"].as_str().map(str::to_owned),
    }
}

/// The pod as the kubelet had it: the manifest under its static identity, with the
/// defaults that matter to requests.
fn static_pod(manifest: &Value, metadata: &Value) -> Pod {
    let mut pod = pod(&manifest.to_string());
    let text = |key: &str| metadata[key].as_str().map(str::to_owned);
    pod.metadata.name = text("name");
    pod.metadata.uid = text("uid");
    pod.metadata.annotations = serde_json::from_value(metadata["annotations"].clone()).unwrap();
    let spec = pod.spec.as_mut().unwrap();
    spec.node_name = Some("lab-node".to_owned());
    let init = spec.init_containers.iter_mut().flatten();
    for container in spec.containers.iter_mut().chain(init) {
        let path = container.termination_message_path.get_or_insert_default();
        if path.is_empty() {
            path.push_str("/dev/termination-log");
        }
        container
            .termination_message_policy
            .get_or_insert("File".to_owned());
        for port in container.ports.iter_mut().flatten() {
            port.protocol.get_or_insert("TCP".to_owned());
        }
        if let Some(resources) = &mut container.resources {
            let mut requests = resources.limits.clone().unwrap_or_default();
            requests.extend(resources.requests.take().unwrap_or_default());
            resources.requests = Some(requests);
        }
    }
    pod
}

fn node_resolv_conf() -> ResolvConf {
    parse_resolv_conf("nameserver 8.8.8.8\nsearch example.org\noptions ndots:2\n").unwrap()
}

fn our_sandbox(pod: &Pod) -> Value {
    let mut node = node();
    // A kubelet without API server knows no classes, and runs a pod that names one by the
    // default handler; here it would be refused.
    let class = pod.spec_or_default().runtime_class_name.clone();
    let classes = class.map(|name| (name, RuntimeClass::default()));
    node.runtime_classes.extend(classes);
    let sandbox = pod_sandbox_config(pod, 0, &node, (Some(&node_resolv_conf()), None)).unwrap();
    assert_eq!(sandbox.runtime_handler, "");
    assert_eq!(sandbox.warnings, []);
    json!({ "config": json_form::sandbox(&sandbox.config) })
}

/// Our request for the container that a recorded one is for.
fn our_container(recorded: &Recorded, request: &Value) -> Value {
    let mut case = ContainerCase::new(recorded.pod.clone());
    case.container = request["config"]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let attempt = request["config"]["metadata"]["attempt"]
        .as_u64()
        .unwrap_or(0);
    case.attempt = u32::try_from(attempt).unwrap();
    case.image_id = request["config"]["image"]["image"]
        .as_str()
        .unwrap()
        .to_owned();
    case.node.root_dir = "/root-dir".into();
    case.pod_ips = match &recorded.envs_ip {
        Some(ip) if !recorded.pod.host_network() => vec![ip.parse().unwrap()],
        _ if recorded.pod.host_network() => vec![],
        _ => case.pod_ips,
    };
    case.volumes = volumes(&recorded.pod, &case.node.root_dir);
    let (_, container) = recorded.pod.container(&case.container).unwrap();
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        if mount.sub_path.is_some() {
            let pod_dir = paths::pod(&case.node.root_dir, recorded.pod.uid());
            let prepared = format!("volume-subpaths/{}/{}/{index}", mount.name, container.name);
            case.sub_paths.insert(index, pod_dir.join(prepared));
        }
    }
    let config = container_config(&case.input()).unwrap();
    json!({ "config": json_form::container(&config) })
}

/// Where volumes of each kind are.
fn volumes(pod: &Pod, root_dir: &Path) -> BTreeMap<String, MountedVolume> {
    let volume = |volume: &pod::core::Volume| {
        let own = paths::pod(root_dir, pod.uid()).join("volumes");
        let (host_path, read_only) = if volume.host_path.is_some() {
            (paths::host_path(root_dir, pod.uid(), &volume.name), false)
        } else if volume.downward_api.is_some() {
            (
                own.join("kubernetes.io~downward-api").join(&volume.name),
                true,
            )
        } else {
            (paths::empty_dir(root_dir, pod.uid(), &volume.name), false)
        };
        (
            volume.name.clone(),
            MountedVolume {
                host_path,
                read_only,
            },
        )
    };
    pod.volumes().iter().map(volume).collect()
}

fn comparable(pod: &Pod, mut request: Value) -> Value {
    for part in ["pod_sandbox_id", "sandbox_config"] {
        request.as_object_mut().unwrap().remove(part);
    }
    for (_, difference, _) in DIFFERENCES {
        difference(pod, &mut request);
    }
    each_mount(&mut request, |mount| {
        let path = mount["host_path"].as_str().unwrap_or_default();
        mount["host_path"] = path.replace("<root-dir>", "/root-dir").into();
    });
    json_annotations(&mut request);
    without_defaults(request).unwrap_or_default()
}

#[test]
fn our_requests_are_the_kubelets() {
    let recorded = recorded();
    assert_eq!(recorded.len(), RECORDED_PODS);
    let mut compared = 0;
    for case in &recorded {
        let name = case.pod.name();
        for theirs in &case.sandboxes {
            let ours = comparable(&case.pod, our_sandbox(&case.pod));
            assert_eq!(
                ours,
                comparable(&case.pod, theirs.clone()),
                "{name}: RunPodSandbox"
            );
            compared += 1;
        }
        for theirs in &case.containers {
            let ours = comparable(&case.pod, our_container(case, theirs));
            assert_eq!(
                ours,
                comparable(&case.pod, theirs.clone()),
                "{name}: CreateContainer"
            );
            compared += 1;
        }
    }
    // 53 sandboxes, and the containers with their restarts.
    assert_eq!(compared, 53 + 74);
}

/// Each difference must still be one: with any of them left out, some pod differs.
#[test]
fn every_stated_difference_is_a_real_one() {
    for (name, left_out, _) in DIFFERENCES {
        let differs = recorded().iter().any(|case| {
            case.containers.iter().any(|theirs| {
                let ours = our_container(case, theirs);
                let prepared = |mut request: Value| {
                    for (_, difference, _) in DIFFERENCES {
                        if !std::ptr::fn_addr_eq(difference, left_out) {
                            difference(&case.pod, &mut request);
                        }
                    }
                    without_defaults(request["config"].take()).unwrap_or_default()
                };
                let (ours, theirs) = (prepared(ours), prepared(theirs.clone()));
                ["annotations", "envs", "mounts"].iter().any(|part| {
                    let text =
                        |side: &Value| side[part].to_string().replace("<root-dir>", "/root-dir");
                    text(&ours) != text(&theirs)
                })
            })
        });
        assert!(differs, "{name} is no difference any more");
    }
}

fn remove(request: &mut Value, pointer: &str) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    if let Some(Value::Object(parent)) = request.pointer_mut(parent) {
        parent.remove(key);
    }
}

fn sort(request: &mut Value, pointer: &str) {
    if let Some(Value::Array(items)) = request.pointer_mut(pointer) {
        items.sort_by_key(ToString::to_string);
    }
}

fn newer_masks(request: &mut Value) {
    let newer = [
        "/proc/asound",
        "/proc/interrupts",
        "/sys/devices/virtual/powercap",
    ];
    let masked = "/config/linux/security_context/masked_paths";
    if let Some(Value::Array(paths)) = request.pointer_mut(masked) {
        paths.retain(|path| newer.iter().all(|newer| path != newer));
    }
}

fn remove_mount(request: &mut Value, container_path: &str) {
    if let Some(Value::Array(mounts)) = request.pointer_mut("/config/mounts") {
        mounts.retain(|mount| mount["container_path"] != container_path);
    }
}

fn each_mount(request: &mut Value, change: impl Fn(&mut Value)) {
    if let Some(Value::Array(mounts)) = request.pointer_mut("/config/mounts") {
        mounts.iter_mut().for_each(change);
    }
}

/// Names the volume for the path of a hostPath volume.
fn of_host_path(pod: &Pod, mount: &mut Value) {
    for volume in pod.volumes() {
        let Some(source) = &volume.host_path else {
            continue;
        };
        let found = mount["host_path"].as_str().unwrap_or_default();
        let bound = format!("/volumes/kubernetes.io~host-path/{}", volume.name);
        if found == source.path || found.ends_with(&bound) {
            mount["host_path"] = format!("hostPath {}", volume.name).into();
        }
    }
}

/// Takes the name out of a path, if it is one of a file in a directory that contains
/// `marker`.
fn anonymous(mount: &mut Value, marker: &str) {
    let path = mount["host_path"].as_str().unwrap_or_default().to_owned();
    if path.contains(marker) {
        mount["host_path"] = path
            .rsplit_once('/')
            .map_or("", |(directory, _)| directory)
            .into();
    }
}

/// Annotations that hold JSON are compared as such.
fn json_annotations(request: &mut Value) {
    if let Some(Value::Object(annotations)) = request.pointer_mut("/config/annotations") {
        for value in annotations.values_mut() {
            let parsed = value.as_str().filter(|text| text.starts_with(['{', '[']));
            if let Some(parsed) = parsed.and_then(|text| serde_json::from_str(text).ok()) {
                *value = parsed;
            }
        }
    }
}

/// The JSON form of protocol buffers leaves defaults out; so do both sides here. An
/// empty object stays: a message that is there is not one that is not.
fn without_defaults(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let kept: Map<_, _> = fields
                .filter_map(|(key, value)| Some((key, without_defaults(value)?)))
                .collect();
            Some(Value::Object(kept))
        }
        Value::Array(items) if items.is_empty() => None,
        Value::Array(items) => {
            let items = items.into_iter();
            Some(
                items
                    .map(|item| without_defaults(item).unwrap_or_default())
                    .collect(),
            )
        }
        Value::Null | Value::Bool(false) => None,
        Value::String(text) if text.is_empty() => None,
        Value::Number(number) if number.as_i64() == Some(0) => None,
        other => Some(other),
    }
}

/// Our messages in the JSON form that the file has: 64-bit integers as text, enums by
/// name.
mod json_form {
    use super::{Value, json, v1};

    pub(super) fn sandbox(config: &v1::PodSandboxConfig) -> Value {
        let linux = config.linux.as_ref().unwrap();
        let security = linux.security_context.as_ref().unwrap();
        let metadata = config.metadata.as_ref().unwrap();
        let dns = config.dns_config.as_ref().unwrap();
        let ports = config.port_mappings.iter().map(|port| {
            json!({
                "protocol": name(port.protocol().as_str_name(), "TCP"),
                "container_port": port.container_port,
                "host_port": port.host_port,
                "host_ip": port.host_ip,
            })
        });
        json!({
            "metadata": {
                "name": metadata.name, "uid": metadata.uid,
                "namespace": metadata.namespace, "attempt": metadata.attempt,
            },
            "hostname": config.hostname,
            "log_directory": config.log_directory,
            "dns_config": {
                "servers": dns.servers, "searches": dns.searches, "options": dns.options,
            },
            "port_mappings": ports.collect::<Vec<_>>(),
            "labels": config.labels,
            "annotations": config.annotations,
            "linux": {
                "cgroup_parent": linux.cgroup_parent,
                "security_context": {
                    "namespace_options": namespaces(security.namespace_options.as_ref()),
                    "run_as_user": int64(security.run_as_user),
                    "run_as_group": int64(security.run_as_group),
                    "supplemental_groups": texts(&security.supplemental_groups),
                    "privileged": security.privileged,
                    "seccomp": profile(security.seccomp.as_ref()),
                    "seccomp_profile_path": security.seccomp_profile_path,
                },
                "sysctls": map(&linux.sysctls),
                "overhead": resources(linux.overhead.as_ref()),
                "resources": resources(linux.resources.as_ref()),
            },
        })
    }

    pub(super) fn container(config: &v1::ContainerConfig) -> Value {
        let linux = config.linux.as_ref().unwrap();
        let metadata = config.metadata.as_ref().unwrap();
        let envs = config
            .envs
            .iter()
            .map(|env| json!({ "key": env.key, "value": str::from_utf8(&env.value).unwrap() }));
        let mounts = config.mounts.iter().map(|mount| {
            json!({
                "container_path": mount.container_path,
                "host_path": mount.host_path,
                "readonly": mount.readonly,
                "selinux_relabel": mount.selinux_relabel,
                "propagation": name(mount.propagation().as_str_name(), "PROPAGATION_PRIVATE"),
            })
        });
        json!({
            "metadata": { "name": metadata.name, "attempt": metadata.attempt },
            "image": { "image": config.image.as_ref().unwrap().image },
            "command": config.command,
            "args": config.args,
            "working_dir": config.working_dir,
            "envs": envs.collect::<Vec<_>>(),
            "mounts": mounts.collect::<Vec<_>>(),
            "labels": config.labels,
            "annotations": config.annotations,
            "log_path": config.log_path,
            "stdin": config.stdin,
            "stdin_once": config.stdin_once,
            "tty": config.tty,
            "linux": {
                "resources": resources(linux.resources.as_ref()),
                "security_context": security(linux.security_context.as_ref().unwrap()),
            },
        })
    }

    fn security(context: &v1::LinuxContainerSecurityContext) -> Value {
        let capabilities = context.capabilities.as_ref().map(|capabilities| {
            json!({
                "add_capabilities": capabilities.add_capabilities,
                "drop_capabilities": capabilities.drop_capabilities,
            })
        });
        json!({
            "capabilities": capabilities,
            "privileged": context.privileged,
            "namespace_options": namespaces(context.namespace_options.as_ref()),
            "run_as_user": int64(context.run_as_user),
            "run_as_group": int64(context.run_as_group),
            "run_as_username": context.run_as_username,
            "readonly_rootfs": context.readonly_rootfs,
            "supplemental_groups": texts(&context.supplemental_groups),
            "no_new_privs": context.no_new_privs,
            "masked_paths": context.masked_paths,
            "readonly_paths": context.readonly_paths,
            "seccomp": profile(context.seccomp.as_ref()),
            "seccomp_profile_path": context.seccomp_profile_path,
            "apparmor_profile": context.apparmor_profile,
        })
    }

    fn resources(resources: Option<&v1::LinuxContainerResources>) -> Value {
        let Some(resources) = resources else {
            return Value::Null;
        };
        let huge_pages = resources.hugepage_limits.iter().map(|limit| {
            let bytes = if limit.limit == 0 {
                String::new()
            } else {
                limit.limit.to_string()
            };
            json!({ "page_size": limit.page_size, "limit": bytes })
        });
        json!({
            "cpu_period": text(resources.cpu_period),
            "cpu_quota": text(resources.cpu_quota),
            "cpu_shares": text(resources.cpu_shares),
            "memory_limit_in_bytes": text(resources.memory_limit_in_bytes),
            "oom_score_adj": text(resources.oom_score_adj),
            "memory_swap_limit_in_bytes": text(resources.memory_swap_limit_in_bytes),
            "cpuset_cpus": resources.cpuset_cpus,
            "hugepage_limits": huge_pages.collect::<Vec<_>>(),
            "unified": map(&resources.unified),
        })
    }

    fn namespaces(options: Option<&v1::NamespaceOption>) -> Value {
        let options = options.unwrap();
        json!({
            "network": name(options.network().as_str_name(), "POD"),
            "pid": name(options.pid().as_str_name(), "POD"),
            "ipc": name(options.ipc().as_str_name(), "POD"),
        })
    }

    fn profile(profile: Option<&v1::SecurityProfile>) -> Value {
        let profile = profile.unwrap();
        json!({
            "profile_type": name(profile.profile_type().as_str_name(), "RuntimeDefault"),
            "localhost_ref": profile.localhost_ref,
        })
    }

    fn int64(value: Option<v1::Int64Value>) -> Value {
        value.map_or(Value::Null, |value| json!({ "value": text(value.value) }))
    }

    /// A 64-bit integer; zero is the default.
    fn text(number: i64) -> String {
        if number == 0 {
            String::new()
        } else {
            number.to_string()
        }
    }

    /// A map without entries is not on the wire.
    fn map(map: &std::collections::BTreeMap<String, String>) -> Value {
        if map.is_empty() {
            Value::Null
        } else {
            json!(map)
        }
    }

    fn texts(numbers: &[i64]) -> Vec<String> {
        numbers.iter().map(i64::to_string).collect()
    }

    fn name(name: &str, default: &str) -> Value {
        if name == default {
            Value::Null
        } else {
            name.into()
        }
    }
}
